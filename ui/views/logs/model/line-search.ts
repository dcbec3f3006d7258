/** Search in the kept lines: which entries match, found in slices of time, and kept up to date while lines are added and removed. */
import { withoutEscapes } from './escapes.ts'
import type { LogBuffer, LogEntry } from './log-buffer.ts'
import type { TextPattern } from './text-pattern.ts'

/** Entries, or characters, between two looks at the clock. */
const STEP = 64
const STEP_CHARS = 64 * 1024

export class LineSearch {
  readonly pattern: TextPattern
  readonly #buffer: LogBuffer
  /** Numbers of matching entries in order; those before `#removed` were removed. */
  readonly #matches: number[] = []
  #removed = 0
  #scannedTo: number

  constructor(buffer: LogBuffer, pattern: TextPattern) {
    this.#buffer = buffer
    this.pattern = pattern
    this.#scannedTo = buffer.first
  }

  /** Number of matching entries that are known by now. */
  get count(): number {
    return this.#matches.length - this.#removed
  }

  get isComplete(): boolean {
    return this.#scannedTo >= this.#buffer.end
  }

  /** Searches until everything was searched, or `deadlineMs` of the clock has passed. Returns true if it is complete. */
  scan(deadlineMs = Infinity, clock: () => number = () => performance.now()): boolean {
    this.#removeOld()
    while (!this.isComplete) {
      const to = Math.min(this.#scannedTo + STEP, this.#buffer.end)
      let chars = 0
      for (; this.#scannedTo < to && chars < STEP_CHARS; this.#scannedTo++) {
        const entry = this.#buffer.get(this.#scannedTo)
        if (!entry) continue
        chars += entry.text.length
        if (this.#isMatch(entry)) this.#matches.push(entry.id)
      }
      if (clock() > deadlineMs) break
    }
    return this.isComplete
  }

  /** A line was added to the trace of an entry. */
  noteChange(entry: LogEntry): void {
    if (entry.id >= this.#scannedTo || !this.#isMatch(entry)) return
    const at = this.#indexFrom(entry.id)
    if (this.#matches[at] !== entry.id) this.#matches.splice(at, 0, entry.id)
  }

  /** The first match after an entry, or the first one of all. */
  next(id: number): number | undefined {
    return this.#matches[this.#indexFrom(id + 1)] ?? this.#matches[this.#removed]
  }

  /** The last match before an entry, or the last one of all. */
  previous(id: number): number | undefined {
    if (this.count === 0) return undefined
    const at = this.#indexFrom(id) - 1
    return at < this.#removed ? this.#matches.at(-1) : this.#matches[at]
  }

  /** Place of a match among all, from 1; 0 for an entry that does not match. */
  placeOf(id: number): number {
    const at = this.#indexFrom(id)
    return this.#matches[at] === id ? at - this.#removed + 1 : 0
  }

  #isMatch({ more, text }: LogEntry): boolean {
    return this.#matchesText(text) || more.some((line) => this.#matchesText(line))
  }

  #matchesText(text: string): boolean {
    return this.pattern.test(withoutEscapes(text))
  }

  #removeOld(): void {
    const { first } = this.#buffer
    if (this.#scannedTo < first) this.#scannedTo = first
    while (this.#removed < this.#matches.length && (this.#matches[this.#removed] ?? 0) < first) this.#removed++
    if (this.#removed > 10_000 && this.#removed > this.#matches.length / 2) {
      this.#matches.splice(0, this.#removed)
      this.#removed = 0
    }
  }

  /** Index of the first match that is not before an entry. */
  #indexFrom(id: number): number {
    let [low, high] = [this.#removed, this.#matches.length]
    while (low < high) {
      const middle = (low + high) >> 1
      if ((this.#matches[middle] ?? 0) < id) low = middle + 1
      else high = middle
    }
    return low
  }
}
