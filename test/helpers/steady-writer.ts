/**
 * A task that logs numbered lines at a constant rate with rotation. Files that a follower needs are kept, and others are
 * removed beyond the maximum number.
 */
import { createHash } from 'node:crypto'
import { appendFileSync, unlinkSync, writeFileSync } from 'node:fs'
import { numberedLine } from './line-checker.ts'

const EVERY_MS = 20
const LINES = Number(process.env['CHAOS_LINES'] ?? 30)
const FILE_BYTES = 2000 * LINES
const FILES_KEPT = 5

export class SteadyWriter {
  readonly #pathOf: (index: number) => string
  /** Followers need no bytes before this position. */
  readonly #needed: () => number
  readonly #timer: NodeJS.Timeout
  readonly #hash = createHash('sha256')
  /** End position of each existing file. */
  readonly #ends: { index: number; end: number }[] = []
  #index = 0
  #inFile = 0
  #line = 0
  bytes = 0
  removed = 0

  constructor(pathOf: (index: number) => string, needed: () => number) {
    this.#pathOf = pathOf
    this.#needed = needed
    writeFileSync(pathOf(0), '')
    this.#timer = setInterval(() => this.#write(), EVERY_MS)
  }

  #write(): void {
    const text = Array.from({ length: LINES }, () => `${numberedLine(this.#line++)}\n`).join('')
    appendFileSync(this.#pathOf(this.#index), text)
    this.#hash.update(text)
    this.bytes += text.length
    this.#inFile += text.length
    if (this.#inFile >= FILE_BYTES) this.#rotate()
  }

  #rotate(): void {
    this.#ends.push({ index: this.#index, end: this.bytes })
    writeFileSync(this.#pathOf(++this.#index), '')
    this.#inFile = 0
    const needed = this.#needed()
    for (let [oldest] = this.#ends; oldest && this.#ends.length >= FILES_KEPT; [oldest] = this.#ends) {
      // The position at the end of a file belongs to that file.
      if (oldest.end >= needed) return
      unlinkSync(this.#pathOf(oldest.index))
      this.#ends.shift()
      this.removed++
    }
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** SHA-256 of everything; callable once. */
  digest(): string {
    return this.#hash.digest('hex')
  }
}
