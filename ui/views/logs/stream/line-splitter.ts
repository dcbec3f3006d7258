/** Splits the data of frames into lines, for several logs at once. */
import type { Frame } from '../../../api/frame-reader.ts'

/** The log that a file belongs to. */
export interface LogName {
  readonly allocationId: string
  readonly task: string
  /** `stdout` or `stderr`; empty for another file. */
  readonly type: string
}

export interface RawLine {
  readonly log: LogName
  readonly text: string
  /** The file in which the line ends, such as `web.stdout.0`, and the end of the line in it. With a filter only the log is exact. */
  readonly file: string
  readonly endOffset: number
}

/** With more logs, or incomplete lines of more bytes, all lines end here: a faulty host may name another file in each frame. */
const LOGS_MAX = 50_000
const PARTIAL_BYTES_MAX = 64 * 1024 * 1024
const NEWLINE = 10
/** A longer line is split. */
const LINE_BYTES_MAX = 64 * 1024
const LOG_FOLDER = 'alloc/logs/'
const NAME = /^(.+)\.(stdout|stderr)\.\d+$/

/** The incomplete last line of one log. */
interface PartialLine {
  readonly pieces: Uint8Array[]
  bytes: number
  file: string
  endOffset: number
}

interface OpenLog {
  readonly name: LogName
  readonly partial: PartialLine
}

export class LineSplitter {
  readonly #decoder = new TextDecoder()
  readonly #logs = new Map<string, OpenLog>()
  /** Logs by allocation and file name: frames repeat them. */
  readonly #byFile = new Map<string, OpenLog>()
  /** Of all incomplete lines: these, or less. */
  #partialBytes = 0

  /** The lines that are complete with this frame. */
  push({ allocationId, data, file, offset }: Frame): RawLine[] {
    if (!data) return []
    this.#partialBytes += data.length
    const lines = this.#isFull() ? this.#forget() : []
    const { name, partial } = this.#logOf(allocationId, file)
    const shown = file.startsWith(LOG_FOLDER) ? file.slice(LOG_FOLDER.length) : file
    const start = offset - data.length
    let from = 0
    const first = data.indexOf(NEWLINE)
    if (first >= 0 && partial.bytes > 0) {
      append(partial, data.subarray(0, first), shown, start + first + 1)
      lines.push(this.#take(name, partial))
      from = first + 1
    }
    const last = data.lastIndexOf(NEWLINE)
    if (last >= from) {
      // Newlines are at the same places in bytes and in text: a decoder never skips one.
      const texts = this.#decoder.decode(data.subarray(from, last)).split('\n')
      for (const text of texts) {
        const end = data.indexOf(NEWLINE, from) + 1
        lines.push({ log: name, text: withoutReturn(text), file: shown, endOffset: start + end })
        from = end
      }
    }
    if (from < data.length) append(partial, data.subarray(from), shown, offset)
    if (partial.bytes > LINE_BYTES_MAX) lines.push(this.#take(name, partial))
    return lines
  }

  /** Discards the incomplete line of a log whose file was truncated or removed. */
  discard({ allocationId, file }: Frame): void {
    const { partial } = this.#logOf(allocationId, file)
    partial.pieces.length = 0
    partial.bytes = 0
  }

  /** The incomplete lines as far as they were received. */
  incomplete(): RawLine[] {
    return [...this.#logs.values()]
      .filter(({ partial }) => partial.bytes > 0)
      .map(({ name, partial: { bytes, endOffset, file, pieces } }) => {
        const text = withoutReturn(this.#decoder.decode(joined(pieces, bytes)))
        return { log: name, text, file, endOffset }
      })
  }

  /** The incomplete lines, at the end of a stream. */
  finish(): RawLine[] {
    return [...this.#logs.values()]
      .filter(({ partial }) => partial.bytes > 0)
      .map(({ name, partial }) => this.#take(name, partial))
  }

  #isFull(): boolean {
    if (this.#byFile.size >= LOGS_MAX) return true
    if (this.#partialBytes <= PARTIAL_BYTES_MAX) return false
    this.#partialBytes = [...this.#logs.values()].reduce((sum, { partial }) => sum + partial.bytes, 0)
    return this.#partialBytes > PARTIAL_BYTES_MAX / 2
  }

  #forget(): RawLine[] {
    const lines = this.finish()
    this.#logs.clear()
    this.#byFile.clear()
    this.#partialBytes = 0
    return lines
  }

  #take(log: LogName, partial: PartialLine): RawLine {
    const { endOffset, file, pieces } = partial
    const [only] = pieces
    const text = this.#decoder.decode(pieces.length === 1 && only ? only : joined(pieces, partial.bytes))
    pieces.length = 0
    partial.bytes = 0
    return { log, text: withoutReturn(text), file, endOffset }
  }

  #logOf(allocationId: string, file: string): OpenLog {
    const key = `${allocationId}\0${file}`
    const known = this.#byFile.get(key)
    if (known) return known
    const path = file.startsWith(LOG_FOLDER) ? file.slice(LOG_FOLDER.length) : file
    const [, task = path, type = ''] = NAME.exec(path) ?? []
    const log = `${allocationId}\0${task}\0${type}`
    const open = this.#logs.get(log) ?? {
      name: { allocationId, task, type },
      partial: { pieces: [], bytes: 0, file: '', endOffset: 0 },
    }
    this.#logs.set(log, open)
    this.#byFile.set(key, open)
    return open
  }
}

function append(partial: PartialLine, data: Uint8Array, file: string, endOffset: number): void {
  partial.pieces.push(data)
  partial.bytes += data.length
  partial.file = file
  partial.endOffset = endOffset
}

function joined(pieces: readonly Uint8Array[], bytes: number): Uint8Array {
  const all = new Uint8Array(bytes)
  let at = 0
  for (const piece of pieces) {
    all.set(piece, at)
    at += piece.length
  }
  return all
}

function withoutReturn(text: string): string {
  return text.endsWith('\r') ? text.slice(0, -1) : text
}
