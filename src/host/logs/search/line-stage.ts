/**
 * The search for lines as a stage of a stream: bytes of one log or several go in, chunks of whole selected lines come
 * out. It also gives several plain logs in one stream line by line, so that none cuts into another's line.
 *
 * Every chunk is one frame of one file, and the marks are moved so that the cursor in it goes on behind its last line.
 * Where nothing matched for a while, heartbeats tell how far the search has come.
 */
import { FRAME_DATA_BYTES_MAX } from '../../../platform/frame.ts'
import { type Mark, moveMark } from '../locate/cursor-code.ts'
import type { LineRun } from './line-filter.ts'
import { type LineChoice, LogLines } from './log-lines.ts'
import { type Encoder, NOTHING } from '../stream/stream-encoder.ts'
import type { Stage } from '../stream/stream-serving.ts'
import type { Source, SourceData } from '../follow/stream-source.ts'

/** Older files whose late bytes are searched; followers listen to no more of them. */
const LATE_MAX = 8

export class LineStage implements Stage {
  readonly #encoder: Encoder
  readonly #choice: LineChoice
  readonly #logs = new Map<number, LogLines>()
  /** Late bytes are lines of their own. */
  readonly #late = new Map<Mark, LogLines>()
  /** Two, in turns: a chunk stays as it is until the second one after it is asked for. */
  #buffers: [Buffer, Buffer] = [NOTHING, NOTHING]
  #turn: 0 | 1 = 0
  #progress = false

  constructor(encoder: Encoder, choice: LineChoice) {
    this.#encoder = encoder
    this.#choice = choice
  }

  /** Context that is owed from before a cursor is owed by the log, in whichever of its files the next line stands. */
  begin(source: Source): void {
    for (const { log, after } of source.marks()) this.#logs.set(log, new LogLines(this.#choice, after))
    this.#encoder.begin({ marks: () => this.#marksWith(source.marks()) })
  }

  /** Also of files that the source has left, while something in them is undecided. Of each log the oldest first. */
  #marksWith(marks: readonly Mark[]): Mark[] {
    const known = new Set(marks)
    const left = [...this.#logs.values()].flatMap((log) => log.undecided.filter((mark) => !known.has(mark)))
    return [...left, ...marks]
  }

  async *take(taken: SourceData): AsyncGenerator<Buffer> {
    const { step, mark } = taken
    const { data, start } = step.kind === 'own' ? step : step.chunk
    const log = this.#linesOf(mark)
    log.took(taken, start + data.length)
    yield* this.#send(log, await log.filter.push(data, mark, start), data)
    log.settle()
    this.#progress = true
  }

  async *finish(): AsyncGenerator<Buffer> {
    for (const log of [...this.#logs.values(), ...this.#late.values()]) {
      yield* this.#send(log, await log.filter.finish(), NOTHING)
    }
  }

  reset(mark: Mark): void {
    const log = this.#linesOf(mark)
    log.restart(mark)
    this.#progress = true
  }

  heartbeat(): Buffer {
    // Everything that was given is written by the time the chunk behind this one is asked for.
    this.#buffers = [NOTHING, NOTHING]
    if (!this.#progress) return this.#encoder.heartbeat
    this.#progress = false
    return this.#encoder.placeFrame()
  }

  close(): void {
    for (const log of [...this.#logs.values(), ...this.#late.values()]) log.filter.close()
  }

  #linesOf(mark: Mark): LogLines {
    const known = this.#logs.get(mark.log)
    if (known?.isOlder(mark)) return this.#lateLinesOf(mark)
    if (known) return known
    const made = new LogLines(this.#choice, 0)
    this.#logs.set(mark.log, made)
    return made
  }

  #lateLinesOf(mark: Mark): LogLines {
    const known = this.#late.get(mark)
    if (known) return known
    const made = new LogLines(this.#choice, 0)
    this.#late.set(mark, made)
    for (const [old, lines] of this.#late) {
      if (this.#late.size <= LATE_MAX) break
      lines.filter.close()
      this.#late.delete(old)
    }
    return made
  }

  /** Runs of lines as chunks, as many lines of one file in each as fit into a frame. */
  async *#send(log: LogLines, runs: readonly LineRun<Mark>[], data: Buffer): AsyncGenerator<Buffer> {
    let batch: LineRun<Mark>[] = []
    let bytes = 0
    for (const run of runs) {
      for (const piece of log.filter.pieces(run, FRAME_DATA_BYTES_MAX)) {
        const fits = bytes + piece.bytes.length <= FRAME_DATA_BYTES_MAX && batch[0]?.place === piece.place
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

  #chunk(log: LogLines, batch: readonly LineRun<Mark>[], bytes: number, data: Buffer): Buffer {
    const last = batch.at(-1)
    if (!last) return NOTHING
    const { place: mark, end, after } = last
    // Only bytes that lie in the file as they are given may be compared with it later.
    const inFile = last.bytes.buffer === data.buffer
    moveMark(mark, inFile ? last.bytes : NOTHING, inFile ? last.bytes.length : 0, end)
    mark.after = after
    log.stand(mark)
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
    this.#turn = this.#turn === 0 ? 1 : 0
    if (this.#buffers[this.#turn].length < bytes) this.#buffers[this.#turn] = Buffer.allocUnsafeSlow(bytes)
    return this.#buffers[this.#turn]
  }
}
