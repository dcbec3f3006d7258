/**
 * What several logs contain before a tail is live. The server sends one log after the other; here their lines are put in the order of their times,
 * without a change of the order within a log. A line without a time stays behind the line before it.
 */
import type { RawLine } from '../stream/line-splitter.ts'
import { withoutEscapes } from './escapes.ts'
import { timeOfLine } from './line-time.ts'

/** More lines than these are shown as they come. */
const LINES_MAX = 50_000

export class Backlog {
  readonly #logs = new Map<RawLine['log'], RawLine[]>()
  #lines = 0

  get isFull(): boolean {
    return this.#lines >= LINES_MAX
  }

  push(line: RawLine): void {
    const known = this.#logs.get(line.log)
    if (known) known.push(line)
    else this.#logs.set(line.log, [line])
    this.#lines++
  }

  /** Removes and returns all lines. */
  take(): RawLine[] {
    const logs = [...this.#logs.values()]
    this.#logs.clear()
    this.#lines = 0
    const [only] = logs
    return logs.length === 1 && only ? only : inOrderOfTime(logs)
  }
}

function inOrderOfTime(logs: readonly (readonly RawLine[])[]): RawLine[] {
  const now = new Date()
  return logs
    .flatMap((lines) => {
      const times = lines.map(({ text }) => timeOfLine(withoutEscapes(text), now))
      // A log without times is last: the error that ended a task is in its stderr.
      let lastMs = times.find((time) => time !== undefined) ?? Infinity
      return lines.map((line, index) => {
        // Of clocks that go back, the order in the log is kept.
        lastMs = Math.max(lastMs, times[index] ?? 0)
        return { line, atMs: lastMs }
      })
    })
    .toSorted((one, other) => (one.atMs === other.atMs ? 0 : one.atMs - other.atMs))
    .map(({ line }) => line)
}
