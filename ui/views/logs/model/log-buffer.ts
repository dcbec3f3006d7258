/**
 * The lines of a tail that the page keeps: the last `LINES_MAX`, or fewer if they are long. A line with its stack trace, or a remark of the
 * page, is one entry. Entries have consecutive numbers.
 */
import type { LogName } from '../stream/line-splitter.ts'
import { HeightIndex } from './height-index.ts'

export const LINES_MAX = 100_000
/** About the bytes of the kept lines: most are of one byte for each character. */
const CHARS_MAX = 40_000_000
/** Fixed costs of a line, in characters. */
const LINE_CHARS = 60
/** A trace that has more continues in another entry. */
const TRACE_LINES_MAX = 500
const TRACE_CHARS_MAX = 200_000
const FIRST_CAPACITY = 1024
const NONE: readonly string[] = []

export interface LogSource {
  readonly index: number
  readonly log: LogName
}

export interface LogEntry {
  readonly id: number
  /** Undefined for a remark of the page. */
  readonly source: LogSource | undefined
  text: string
  /** The other lines of a stack trace. */
  more: readonly string[]
  moreChars: number
  file: string
  /** End of the first line in its file. */
  endOffset: number
  /** When a line that was new arrived; 0 if it was written before. */
  readonly receivedMs: number
  /** Changes with each change of the entry. */
  version: number
  isOpen: boolean
}

export interface NewLine {
  readonly source: LogSource
  readonly text: string
  readonly file: string
  readonly endOffset: number
  readonly receivedMs: number
}

export class LogBuffer {
  /** In units of one line of text. */
  readonly heights = new HeightIndex()
  readonly #linesMax: number
  readonly #heightOf: (entry: LogEntry) => number
  #entries: (LogEntry | undefined)[]
  #first = 0
  #end = 0
  #lines = 0
  #chars = 0
  /** Sum of the heights of removed entries. */
  removedHeight = 0
  /** Lines that were removed. */
  removedLines = 0
  /** Lines that were added. */
  addedLines = 0

  constructor(options: { readonly linesMax?: number; readonly heightOf: (entry: LogEntry) => number }) {
    this.#linesMax = options.linesMax ?? LINES_MAX
    this.#heightOf = options.heightOf
    this.#entries = Array.from({ length: FIRST_CAPACITY })
  }

  /** Number of the oldest entry. */
  get first(): number {
    return this.#first
  }

  /** Number after that of the newest entry. */
  get end(): number {
    return this.#end
  }

  get lineCount(): number {
    return this.#lines
  }

  get linesMax(): number {
    return this.#linesMax
  }

  get(id: number): LogEntry | undefined {
    return id < this.#first || id >= this.#end ? undefined : this.#entries[id % this.#entries.length]
  }

  append({ endOffset, file, receivedMs, source, text }: NewLine): LogEntry {
    this.#chars += text.length + LINE_CHARS
    this.#lines++
    this.addedLines++
    return this.#push({
      id: this.#end,
      source,
      text,
      more: NONE,
      moreChars: 0,
      file,
      endOffset,
      receivedMs,
      version: 0,
      isOpen: false,
    })
  }

  appendRemark(text: string): LogEntry {
    const fields = { source: undefined, moreChars: 0, file: '', endOffset: 0, receivedMs: 0, version: 0, isOpen: false }
    return this.#push({ id: this.#end, text, more: NONE, ...fields })
  }

  /** The rest of a line that was shown before its end. */
  complete(entry: LogEntry, { endOffset, file, text }: Pick<NewLine, 'text' | 'file' | 'endOffset'>): void {
    if (entry.id < this.#first) return
    this.#chars += text.length - entry.text.length
    Object.assign(entry, { text, file, endOffset })
    entry.version++
    this.measure(entry)
  }

  /** Adds a line to the trace of an entry. False if the entry was removed or has too many lines. */
  appendTo(entry: LogEntry, text: string): boolean {
    if (entry.id < this.#first || entry.more.length >= TRACE_LINES_MAX || entry.moreChars >= TRACE_CHARS_MAX)
      return false
    entry.moreChars += text.length
    if (entry.more === NONE) entry.more = [text]
    else (entry.more as string[]).push(text)
    entry.version++
    this.#chars += text.length + LINE_CHARS
    this.#lines++
    this.addedLines++
    if (entry.isOpen) this.measure(entry)
    return true
  }

  /** Sets the height of an entry that was opened, closed or changed. */
  measure(entry: LogEntry): void {
    this.heights.set(entry.id, this.#heightOf(entry))
  }

  measureAll(): void {
    for (let id = this.#first; id < this.#end; id++) {
      const entry = this.get(id)
      if (entry) this.measure(entry)
    }
  }

  /** Removes the oldest entries beyond the limits. */
  trim(): void {
    while (this.#first < this.#end - 1 && (this.#lines > this.#linesMax || this.#chars > CHARS_MAX)) {
      const at = this.#first % this.#entries.length
      const entry = this.#entries[at]
      this.#entries[at] = undefined
      this.removedHeight += this.heights.heightOf(this.#first)
      this.heights.shift()
      this.#first++
      if (!entry?.source) continue
      const lines = 1 + entry.more.length
      this.#lines -= lines
      this.removedLines += lines
      this.#chars -= entry.text.length + LINE_CHARS
      for (const text of entry.more) this.#chars -= text.length + LINE_CHARS
    }
  }

  #push(entry: LogEntry): LogEntry {
    if (this.#end - this.#first === this.#entries.length) this.#grow()
    this.#entries[entry.id % this.#entries.length] = entry
    this.#end++
    this.heights.push(this.#heightOf(entry))
    return entry
  }

  #grow(): void {
    const larger: (LogEntry | undefined)[] = Array.from({ length: this.#entries.length * 2 })
    for (let id = this.#first; id < this.#end; id++) larger[id % larger.length] = this.get(id)
    this.#entries = larger
  }
}
