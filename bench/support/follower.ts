/**
 * A caller that follows a log, compares every byte with the written data, and records when each part arrived.
 */
import { FrameReader } from './frames.ts'
import { HttpSocket } from './http-socket.ts'
import { nowMs } from './measure.ts'

/** True when `data` is what was written at `position`. */
export type Check = (data: Buffer, position: number) => boolean

const REMEMBERED = 16

/**
 * Followers of one file receive the same frames. Each frame is decoded once and compared for the other followers,
 * so that hundreds of followers do not measure their own decoding.
 */
export class SeenChunks {
  readonly #seen = new Map<number, { raw: Buffer; end: number }>()

  /** Where this chunk ends, if it was seen at this position. */
  endOf(raw: Buffer, position: number): number | undefined {
    const seen = this.#seen.get(position)
    return seen?.raw.equals(raw) ? seen.end : undefined
  }

  add(raw: Buffer, position: number, end: number): void {
    this.#seen.set(position, { raw: Buffer.from(raw), end })
    const oldest = this.#seen.size > REMEMBERED ? this.#seen.keys().next().value : undefined
    if (oldest !== undefined) this.#seen.delete(oldest)
  }
}

export interface FollowerOptions {
  readonly port: number
  readonly path: string
  readonly framed: boolean
  /** Payload bytes after which it is done. */
  readonly total: number
  readonly check: Check
  readonly seen?: SeenChunks
  readonly onPosition?: (position: number) => void
}

export class Follower {
  position = 0
  /** Chunks of the body that carried data. */
  chunks = 0
  wireBytes = 0
  /** What was wrong, if anything. */
  fault: string | undefined
  headMs = Number.NaN
  /** Resolves with the first byte of the body, or with the head if it does not announce a body. */
  readonly ready: Promise<void>
  readonly done: Promise<void>
  /** Alternating times and positions. */
  readonly #arrivals: number[] = []
  readonly #options: FollowerOptions
  readonly #socket: HttpSocket
  readonly #frames: FrameReader
  #isReady = () => {}
  #isDone = () => {}
  /** End of the last data of each file, to check the offsets of frames. */
  #file = { name: '', end: 0 }

  constructor(options: FollowerOptions) {
    this.#options = options
    this.ready = new Promise((resolve) => void (this.#isReady = resolve))
    this.done = new Promise((resolve) => void (this.#isDone = resolve))
    this.#frames = new FrameReader({
      onData: (data, file, endOffset) => this.#frame(data, file, endOffset),
      onEvent: (text) => {
        // A stream with cursors starts with the one of its start position.
        if (!/^\{"Cursor":"[^"]*"\}$/.test(text)) this.#fail(`unexpected frame ${text}`)
      },
    })
    const beganMs = nowMs()
    this.#socket = new HttpSocket(options.port)
    this.#socket.get(options.path, {
      onHead: (status) => {
        this.headMs = nowMs() - beganMs
        if (status !== 200) this.#fail(`status ${status}`)
        this.#isReady()
      },
      onBody: (bytes) => this.#body(bytes),
      onEnd: () => this.position < options.total && this.#fail('the stream ended early'),
      onFail: (error) => this.#fail(error.message),
    })
  }

  /** True if every byte arrived and was correct. */
  get complete(): boolean {
    return this.fault === undefined && this.position === this.#options.total
  }

  close(): void {
    this.#socket.close()
  }

  #fail(fault: string): void {
    this.fault ??= fault
    this.#isReady()
    this.#isDone()
  }

  #body(bytes: Buffer): void {
    this.#isReady()
    this.wireBytes += bytes.length
    const before = this.position
    if (!this.#options.framed) {
      this.#data(bytes)
    } else {
      const { seen } = this.#options
      const whole = this.#frames.whole
      const end = whole ? seen?.endOf(bytes, before) : undefined
      if (end === undefined) this.#frames.feed(bytes)
      else this.position = end
      if (seen && whole && this.#frames.whole && end === undefined && this.position > before && !this.fault) {
        seen.add(bytes, before, this.position)
      }
    }
    if (this.position === before) return
    this.chunks++
    this.#arrivals.push(nowMs(), this.position)
    this.#options.onPosition?.(this.position)
    if (this.position >= this.#options.total) this.#isDone()
  }

  #frame(data: Buffer, file: string, endOffset: number): void {
    if (this.#file.name !== file) this.#file = { name: file, end: 0 }
    this.#file.end += data.length
    // Frames that were skipped because another follower has decoded them count too; only the first follower checks offsets.
    if (!this.#options.seen && endOffset !== this.#file.end) this.#fail(`frame ends at ${endOffset}, data does not`)
    this.#data(data)
  }

  #data(data: Buffer): void {
    if (this.position + data.length > this.#options.total) this.#fail('more bytes than were written')
    if (!this.fault && !this.#options.check(data, this.position)) this.#fail(`wrong bytes at ${this.position}`)
    this.position += data.length
  }

  /** Latencies of units of `unitBytes` from `base` on that were written at these times. */
  latenciesMs(writtenMs: readonly number[], base: number, unitBytes: number): number[] {
    const latencies: number[] = []
    let at = 0
    for (const [index, written] of writtenMs.entries()) {
      const end = base + (index + 1) * unitBytes
      while (at < this.#arrivals.length && (this.#arrivals[at + 1] ?? 0) < end) at += 2
      const arrived = this.#arrivals[at]
      if (arrived === undefined) break
      latencies.push(arrived - written)
    }
    return latencies
  }

  get lastArrivalMs(): number {
    return this.#arrivals.at(-2) ?? Number.NaN
  }
}

/** Checks against a text that is completely known. */
export function checkAgainst(expected: Buffer): Check {
  return (data, position) =>
    position + data.length <= expected.length &&
    data.compare(expected, position, position + data.length, 0, data.length) === 0
}
