/**
 * How far the database has come, in a small file beside it that is written after each transaction, before it is answered
 * (`seen-position.ts` reads it at the start). It is written in place and not synced, which costs two microseconds: the kernel keeps it
 * when the process is killed. After a power cut it may tell less than the database has, and never more, as each
 * transaction is synced before.
 */
import { closeSync, constants, fstatSync, lstatSync, rmSync, writeSync } from 'node:fs'
import { openIfThere, replaceFile } from '../kit/own-file.ts'

export interface Seen {
  readonly cluster: string
  readonly epoch: number
  readonly sequence: number
}

/** Of the text, the same each time: what is written in place leaves nothing of what was there. */
const TEXT_BYTES = 128

export class SeenMark {
  readonly #file: string
  #fd: number | undefined
  #written: Seen | undefined
  /** The file could not be made: not tried again before the next look. */
  #isOff = false

  constructor(path: string) {
    this.#file = `${path}.seen`
  }

  /** What cannot be written is not worth an error. */
  write(seen: Seen): void {
    // An empty database says nothing, and what was seen before must go on telling that it is empty.
    if (seen.sequence === 0 || this.#isOff || this.#says(seen)) return
    const text = `${JSON.stringify(seen).padEnd(TEXT_BYTES)}\n`
    try {
      if (this.#fd === undefined) this.#fd = this.#make(text)
      else writeSync(this.#fd, text, 0)
      this.#written = seen
    } catch {
      // A full disk, or a directory in its place.
      this.close()
      this.#isOff = true
    }
  }

  /** Whether the file is still the one that is written to; the next one is made anew otherwise. */
  look(): void {
    this.#isOff = false
    if (this.#fd === undefined) return
    try {
      const [named, open] = [lstatSync(this.#file), fstatSync(this.#fd)]
      if (named.ino === open.ino && named.dev === open.dev) return
    } catch {
      // It was removed.
    }
    this.close()
  }

  /** Everything is removed, and that is meant: the next start must not miss it. */
  forget(): void {
    this.close()
    rmSync(this.#file, { force: true })
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd)
    this.#fd = undefined
    this.#written = undefined
  }

  #says({ cluster, epoch, sequence }: Seen): boolean {
    const known = this.#written
    return known?.sequence === sequence && known.epoch === epoch && known.cluster === cluster
  }

  /**
   * In place of the old one when it is whole. Another process may have put something else there by the time it is opened: a
   * pipe is an error and must not hold up the thread. A file that is gone again is made anew by the next write.
   */
  #make(text: string): number | undefined {
    replaceFile(this.#file, text, { durable: false })
    return openIfThere(this.#file, constants.O_WRONLY | constants.O_NOFOLLOW)
  }
}
