/**
 * The lines of one log that are searched: the filter that its bytes go through, and how far what has been decided reaches,
 * file by file, so that a cursor can go on behind the last line that was given, or before one that is still open.
 */
import { forgetPlace, type Mark, moveMark } from '../locate/cursor-code.ts'
import { LineFilter } from './line-filter.ts'
import type { LinePattern } from './line-pattern.ts'
import { NOTHING } from '../stream/stream-encoder.ts'
import type { SourceStep } from '../follow/stream-source.ts'

/** Files that one undecided line, or the context before a match, may reach over. */
const FILES_MAX = 1024

/** Which lines are given. */
export interface LineChoice {
  /** Undefined selects every line. */
  readonly pattern: LinePattern | undefined
  readonly invert: boolean
  /** Lines before and after each match. */
  readonly context: number
}

/** One log, or the late bytes of one of its older files. */
export class LogLines {
  readonly filter: LineFilter<Mark>
  /** Files of which something has not been decided, and the newest, in order; and how far each was read. */
  readonly #read = new Map<Mark, number>()
  /** Paths of the files that were read last. */
  readonly #paths = new Map<Mark, string>()
  #current: Mark | undefined

  constructor(choice: LineChoice, after: number) {
    this.filter = new LineFilter({ ...choice, after })
  }

  get undecided(): Mark[] {
    return [...this.#read.keys()]
  }

  pathOf(mark: Mark): string {
    return this.#paths.get(mark) ?? ''
  }

  /** True for a file that was read before the one that is read now. */
  isOlder(mark: Mark): boolean {
    return mark !== this.#current && this.#paths.has(mark)
  }

  /** More bytes of a file, up to `end`. */
  took({ mark, path }: SourceStep, end: number): void {
    this.#current = mark
    this.#read.set(mark, end)
    this.#paths.set(mark, path)
    if (this.#paths.size > FILES_MAX) this.#forgetOldest()
  }

  #forgetOldest(): void {
    const [oldest] = this.#paths.keys()
    if (!oldest) return
    this.#read.delete(oldest)
    this.#paths.delete(oldest)
  }

  /** A stream that goes on now goes on in the file of `mark`: all before it is done, of those behind nothing is. */
  stand(mark: Mark): void {
    let isBefore = true
    for (const [file, end] of this.#read) {
      if (file === mark) isBefore = false
      else if (!isBefore) forgetPlace(file)
      else {
        moveMark(file, NOTHING, 0, end)
        this.#read.delete(file)
      }
    }
  }

  /** Moves the marks to what has been decided, though nothing was selected. */
  settle(): void {
    const { pending, after } = this.filter
    const mark = pending?.place ?? this.#current
    if (!mark) return
    const offset = pending?.offset ?? this.#read.get(mark) ?? 0
    if (mark.offset !== offset) moveMark(mark, NOTHING, 0, offset)
    mark.after = after
    this.stand(mark)
  }

  restart(mark: Mark): void {
    this.filter.reset()
    this.#read.delete(mark)
  }
}
