/**
 * Line selection as a stage of a stream: bytes of one or several logs in, chunks of whole selected lines out. It also
 * interleaves several plain logs line by line.
 *
 * Every chunk is one frame of one file, and its cursor resumes after its last line. Without matches, heartbeats carry the
 * progress of the search.
 */
import { FRAME_DATA_BYTES_MAX } from '../../../platform/stream-frame.ts'
import { type FileMark, moveMark, resetMark } from '../locate/resume-cursor.ts'
import { LineFilter, type LineRun } from './line-filter.ts'
import type { LinePattern } from './line-pattern.ts'
import { type StreamEncoder, NOTHING } from '../stream/stream-encoder.ts'
import type { StreamStage } from '../stream/stream-serving.ts'
import type { SourceDataStep, SourceStep, StreamSource } from '../follow/stream-source.ts'

/** Maximum number of files that an undecided line, or the context before a match, may span. */
const FILES_MAX = 1024

/** The parameters `grep`, `grep_invert`, `grep_context`. */
export interface GrepOptions {
  /** Undefined selects every line. */
  readonly pattern: LinePattern | undefined
  readonly invert: boolean
  /** Number of lines before and after each match. */
  readonly context: number
}

/**
 * The line filter of one log, or of the late bytes of one of its rotated files. It tracks per file which bytes are decided, so
 * that a cursor resumes after the last output line, or before one that is still undecided.
 */
class LogLines {
  readonly filter: LineFilter<FileMark>
  /** Files with undecided bytes and the newest file, in order, with the end of the bytes read. */
  readonly #read = new Map<FileMark, number>()
  /** Paths of recently read files. */
  readonly #paths = new Map<FileMark, string>()
  #current: FileMark | undefined

  constructor(options: GrepOptions, after: number) {
    this.filter = new LineFilter({ ...options, after })
  }

  get undecided(): FileMark[] {
    return [...this.#read.keys()]
  }

  pathOf(mark: FileMark): string {
    return this.#paths.get(mark) ?? ''
  }

  /** True for a file that was read before the current one. */
  isOlder(mark: FileMark): boolean {
    return mark !== this.#current && this.#paths.has(mark)
  }

  /** Records that a file was read up to `end`. */
  noteRead({ mark, path }: SourceStep, end: number): void {
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

  /** Makes the file of `mark` the one to resume in: earlier files are complete, later ones are not begun. */
  resumeIn(mark: FileMark): void {
    let isBefore = true
    for (const [file, end] of this.#read) {
      if (file === mark) isBefore = false
      else if (!isBefore) resetMark(file)
      else {
        moveMark(file, NOTHING, 0, end)
        this.#read.delete(file)
      }
    }
  }

  /** Advances the marks over decided lines that were not selected. */
  advanceMarks(): void {
    const { pending, after } = this.filter
    const mark = pending?.file ?? this.#current
    if (!mark) return
    const offset = pending?.offset ?? this.#read.get(mark) ?? 0
    if (mark.offset !== offset) moveMark(mark, NOTHING, 0, offset)
    mark.after = after
    this.resumeIn(mark)
  }

  restart(mark: FileMark): void {
    this.filter.reset()
    this.#read.delete(mark)
  }
}

/** Rotated files whose late bytes are searched; followers watch no more than these. */
const LATE_MAX = 8

export class LineStage implements StreamStage {
  readonly #encoder: StreamEncoder
  readonly #options: GrepOptions
  readonly #logs = new Map<number, LogLines>()
  /** Late bytes are separate lines. */
  readonly #late = new Map<FileMark, LogLines>()
  /** Two alternating buffers: a chunk stays valid until the second chunk after it is requested. */
  #buffers: [Buffer, Buffer] = [NOTHING, NOTHING]
  #slot: 0 | 1 = 0
  #progress = false

  constructor(encoder: StreamEncoder, options: GrepOptions) {
    this.#encoder = encoder
    this.#options = options
  }

  /** Context lines from before a cursor apply to the next lines of the log, in any of its files. */
  begin(source: StreamSource): void {
    for (const { log, after } of source.marks()) this.#logs.set(log, new LogLines(this.#options, after))
    this.#encoder.begin({ marks: () => this.#marksWith(source.marks()) })
  }

  /** Includes files that the source has left, while they have undecided bytes. The oldest of each log is first. */
  #marksWith(marks: readonly FileMark[]): FileMark[] {
    const known = new Set(marks)
    const left = [...this.#logs.values()].flatMap((log) => log.undecided.filter((mark) => !known.has(mark)))
    return [...left, ...marks]
  }

  async *take(sourceStep: SourceDataStep): AsyncGenerator<Buffer> {
    const { step, mark } = sourceStep
    const { data, start } = step.kind === 'private' ? step : step.chunk
    const log = this.#linesOf(mark)
    log.noteRead(sourceStep, start + data.length)
    yield* this.#send(log, await log.filter.push(data, mark, start), data)
    log.advanceMarks()
    this.#progress = true
  }

  async *finish(): AsyncGenerator<Buffer> {
    for (const log of [...this.#logs.values(), ...this.#late.values()]) {
      yield* this.#send(log, await log.filter.finish(), NOTHING)
    }
  }

  reset(mark: FileMark): void {
    const log = this.#linesOf(mark)
    log.restart(mark)
    this.#progress = true
  }

  heartbeat(): Buffer {
    // When the chunk after this one is requested, all output is written.
    this.#buffers = [NOTHING, NOTHING]
    if (!this.#progress) return this.#encoder.heartbeat
    this.#progress = false
    return this.#encoder.positionFrame()
  }

  close(): void {
    for (const log of [...this.#logs.values(), ...this.#late.values()]) log.filter.close()
  }

  #linesOf(mark: FileMark): LogLines {
    const known = this.#logs.get(mark.log)
    if (known?.isOlder(mark)) return this.#lateLinesOf(mark)
    if (known) return known
    const made = new LogLines(this.#options, 0)
    this.#logs.set(mark.log, made)
    return made
  }

  #lateLinesOf(mark: FileMark): LogLines {
    const known = this.#late.get(mark)
    if (known) return known
    const made = new LogLines(this.#options, 0)
    this.#late.set(mark, made)
    for (const [old, lines] of this.#late) {
      if (this.#late.size <= LATE_MAX) break
      lines.filter.close()
      this.#late.delete(old)
    }
    return made
  }

  /** Chunks of lines of one file, each as many as fit into a frame. */
  async *#send(log: LogLines, runs: readonly LineRun<FileMark>[], data: Buffer): AsyncGenerator<Buffer> {
    let batch: LineRun<FileMark>[] = []
    let bytes = 0
    for (const run of runs) {
      for (const piece of log.filter.pieces(run, FRAME_DATA_BYTES_MAX)) {
        const fits = bytes + piece.bytes.length <= FRAME_DATA_BYTES_MAX && batch[0]?.file === piece.file
        if (batch.length > 0 && !fits) {
          yield this.#chunk(log, batch, bytes, data)
          batch = []
          bytes = 0
        }
        batch.push(piece)
        bytes += piece.bytes.length
      }
    }
    if (batch.length > 0) yield this.#chunk(log, batch, bytes, data)
  }

  #chunk(log: LogLines, batch: readonly LineRun<FileMark>[], bytes: number, data: Buffer): Buffer {
    const last = batch.at(-1)
    if (!last) return NOTHING
    const { file: mark, end, after } = last
    // Only unmodified bytes of the file can be compared with it at a resume.
    const inFile = last.bytes.buffer === data.buffer
    moveMark(mark, inFile ? last.bytes : NOTHING, inFile ? last.bytes.length : 0, end)
    mark.after = after
    log.resumeIn(mark)
    this.#progress = false
    const path = log.pathOf(mark)
    const encoder = this.#encoder
    const lines =
      batch.length === 1
        ? last.bytes
        : Buffer.concat(
            batch.map((piece) => piece.bytes),
            bytes,
          )
    const target = this.#buffer(encoder.linesBytesMax(lines.length))
    return encoder.lines(lines, end, { path, mark }, target)
  }

  #buffer(bytes: number): Buffer {
    this.#slot = this.#slot === 0 ? 1 : 0
    if (this.#buffers[this.#slot].length < bytes) this.#buffers[this.#slot] = Buffer.allocUnsafeSlow(bytes)
    return this.#buffers[this.#slot]
  }
}
