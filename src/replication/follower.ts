/**
 * One secondary that follows the log of this primary: rows go to it as they become durable, a heartbeat goes each second, and its
 * acknowledgements come back.
 *
 * Bounded: one message is on its way at a time, and rows that it has not acknowledged stay within a window, so a slow
 * secondary costs a cursor and not memory; the log itself waits on the disk. What it claims is checked: it may only acknowledge what was sent to it.
 */
import type { Logger } from '../kit/log.ts'
import type { LogRow, Position, ReplicaStore } from '../store/replica.ts'
import type { Bandwidth } from './bandwidth.ts'
import { LinkError } from './link.ts'
import { type FollowCall, send } from './link-server.ts'
import { CHUNK_BYTES, cutInParts, type RequestOf, type ResponseOf, ROWS_MAX } from './messages.ts'
import type { LinkTimings } from './parts.ts'

type Beat = Extract<ResponseOf<'Follow'>, { kind: 'beat' }>
type From = Extract<RequestOf<'Follow'>, { kind: 'from' }>

export interface FollowerParts {
  readonly id: string
  readonly store: ReplicaStore
  readonly logger: Logger
  readonly timings: LinkTimings
  readonly bandwidth: Bandwidth
  readonly window: { readonly rows: number; readonly bytes: number }
  /** What a heartbeat tells beside what is the follower's own. */
  readonly beat: () => Omit<Beat, 'kind' | 'beat' | 'skewMs' | 'durationMs'>
  /** True while commits wait for secondaries: then rows leave at once. */
  readonly isAwaited: () => boolean
  /** It has acknowledged more, or has become whole. */
  readonly onProgress: () => void
  readonly now: () => number
}

/** Of a row in a message beside its batch. */
const ROW_BYTES = 64

export class Follower {
  readonly id: string
  readonly #parts: FollowerParts
  readonly #call: FollowCall
  /** Rows up to here were sent. */
  #sent = 0
  #acknowledged = 0
  #isWhole = false
  /** Sent and not acknowledged: where each message ended, and what had been sent in all by then. */
  readonly #flying: { readonly sequence: number; readonly totalBytes: number; readonly totalRows: number }[] = []
  #sentBytes = 0
  #sentRows = 0
  #paidBytes = 0
  #paidRows = 0
  readonly #beats = new Map<number, { readonly atMs: number; readonly monotonicMs: number; readonly head: number }>()
  #beat = 0
  #beatDueMs = 0
  #heardMs = performance.now()
  /** Everything that was there at a heartbeat has been acknowledged since. */
  #isCaughtUp = false
  /** Monotonic: when it last had everything that there was when it was asked. */
  #caughtUpMs = performance.now()
  #isEnded = false
  #failure: unknown
  #wake: () => void = () => undefined
  skewMs = 0
  durationMs = 0
  /** When the last heartbeat was answered; undefined before the first. */
  heartbeatAtMs: number | undefined

  constructor(parts: FollowerParts, call: FollowCall) {
    this.id = parts.id
    this.#parts = parts
    this.#call = call
  }

  get acknowledged(): number {
    return this.#acknowledged
  }

  /** Since the secondary last answered a heartbeat. */
  get heartbeatAgeMs(): number {
    return Math.round(performance.now() - this.#heardMs)
  }

  /** For how long it has not had all that this primary has. */
  get lagSeconds(): number {
    if (this.#acknowledged >= this.#parts.store.position().sequence) return 0
    return (performance.now() - this.#caughtUpMs) / 1000
  }

  get isWhole(): boolean {
    return this.#isWhole
  }

  get isCaughtUp(): boolean {
    return this.#isCaughtUp && this.#isWhole
  }

  /** For tests and figures: bytes that were sent and not acknowledged. */
  get flyingBytes(): number {
    return this.#sentBytes - this.#paidBytes
  }

  /** Serves it until the connection ends. Rejects with a LinkError for what it must not do. */
  async run(from: From): Promise<void> {
    const { store, timings } = this.#parts
    if (!store.holds(from.position)) return this.#diverged('the log of the primary does not hold this position')
    this.#sent = this.#acknowledged = from.position.sequence
    this.#call.on('data', (message: RequestOf<'Follow'>) => {
      try {
        this.#take(message)
      } catch (error) {
        this.#failure ??= error
        this.end()
      }
    })
    // It stood still since its first message.
    this.#call.resume()
    const end = () => this.end()
    for (const event of ['cancelled', 'end', 'close', 'error']) this.#call.on(event, end)
    const stopListening = store.onAppended(() => this.#wake())
    const window = { rows: this.#parts.window.rows, bytes: Math.min(this.#parts.window.bytes, from.windowBytes) }
    const ticks = setInterval(() => this.#tick(), Math.max(10, timings.beatMs / 4))
    try {
      while (!this.#isEnded) await this.#step(window)
    } finally {
      clearInterval(ticks)
      stopListening()
    }
    if (this.#failure !== undefined) throw this.#failure
  }

  #tick(): void {
    if (performance.now() - this.#heardMs > this.#parts.timings.silenceMs) this.end()
    this.#wake()
  }

  async #step(window: { readonly rows: number; readonly bytes: number }): Promise<void> {
    const nowMs = performance.now()
    if (nowMs >= this.#beatDueMs) {
      this.#beatDueMs = nowMs + this.#parts.timings.beatMs
      return this.#sendBeat()
    }
    const isOpen = this.flyingBytes < window.bytes && this.#sentRows - this.#paidRows < window.rows
    const rows = isOpen ? this.#rows(window) : []
    if (rows === undefined) return this.#diverged('the log of the primary no longer holds this position')
    if (rows.length > 0) return this.#sendRows(rows)
    await new Promise<void>((resolve) => (this.#wake = resolve))
    // A few milliseconds later there are more of them, and they cost one message.
    const { gatherMs } = this.#parts.timings
    if (!this.#parts.isAwaited() && gatherMs > 0) await new Promise((resolve) => setTimeout(resolve, gatherMs))
  }

  /** Undefined when the log has a gap, or goes back behind what was sent. */
  #rows(window: { readonly rows: number }): LogRow[] | undefined {
    const { store } = this.#parts
    const limits = { rows: Math.min(ROWS_MAX, window.rows), bytes: CHUNK_BYTES }
    const rows = store.rowsAfter(this.#sent, limits)
    const [first] = rows
    if (first) return first.sequence === this.#sent + 1 ? rows : undefined
    return store.position().sequence < this.#sent ? undefined : rows
  }

  async #sendRows(rows: readonly LogRow[]): Promise<void> {
    const bytes = rows.reduce((sum, { batch }) => sum + batch.length + ROW_BYTES, 0)
    await this.#parts.bandwidth.take(bytes)
    const sequence = rows.at(-1)?.sequence ?? this.#sent
    this.#sent = sequence
    this.#sentBytes += bytes
    this.#sentRows += rows.length
    this.#flying.push({ sequence, totalBytes: this.#sentBytes, totalRows: this.#sentRows })
    const [first] = rows
    const { parts, rest } = cutInParts(first?.batch ?? new Uint8Array())
    for (const part of parts) await send(this.#call, { kind: 'part', bytes: part })
    const packed = rows.map((row) => {
      return [row.sequence, row.epoch, row.atMs, row.checksum, row === first ? rest : row.batch]
    })
    await send(this.#call, { kind: 'rows', rows: packed })
  }

  async #sendBeat(): Promise<void> {
    const beat = ++this.#beat
    const { skewMs, durationMs } = this
    const said = this.#parts.beat()
    this.#beats.set(beat, { atMs: said.atMs, monotonicMs: performance.now(), head: said.position.sequence })
    // Of those that were never answered only the newest are remembered.
    this.#beats.delete(beat - BEATS_KEPT)
    await send(this.#call, { kind: 'beat', beat, skewMs, durationMs, ...said })
  }

  async #diverged(why: string): Promise<void> {
    const position: Position = this.#parts.store.position()
    this.#parts.logger.info('a secondary compares trees with this primary', { id: this.id, why })
    await send(this.#call, { kind: 'diverged', position, why })
  }

  #take(message: RequestOf<'Follow'>): void {
    this.#heardMs = performance.now()
    if (message.kind === 'from') throw new LinkError('malformed', 'a stream begins once')
    this.#acknowledge(message.sequence, message.isWhole)
    if (message.kind === 'ack') return
    const beat = this.#beats.get(message.beat)
    if (!beat) throw new LinkError('malformed', 'the answer to a heartbeat that was never sent')
    this.#beats.delete(message.beat)
    this.durationMs = Math.round(this.#heardMs - beat.monotonicMs)
    this.skewMs = Math.round(message.atMs - (beat.atMs + this.durationMs / 2))
    this.heartbeatAtMs = this.#parts.now()
    const wasCaughtUp = this.isCaughtUp
    this.#isCaughtUp = this.#acknowledged >= beat.head
    if (this.#isCaughtUp) this.#caughtUpMs = beat.monotonicMs
    if (this.isCaughtUp !== wasCaughtUp) this.#parts.onProgress()
  }

  #acknowledge(sequence: number, isWhole: boolean): void {
    if (sequence > this.#sent) throw new LinkError('malformed', 'rows were acknowledged that were never sent')
    if (sequence < this.#acknowledged) throw new LinkError('malformed', 'an acknowledgement was taken back')
    const hasProgress = sequence > this.#acknowledged || isWhole !== this.#isWhole
    this.#acknowledged = sequence
    this.#isWhole = isWhole
    let paid = this.#flying[0]
    while (paid && paid.sequence <= sequence) {
      this.#paidBytes = paid.totalBytes
      this.#paidRows = paid.totalRows
      this.#flying.shift()
      paid = this.#flying[0]
    }
    if (!hasProgress) return
    this.#wake()
    this.#parts.onProgress()
  }

  end(): void {
    this.#isEnded = true
    this.#wake()
  }

  /** Ends it with a reason that the secondary is told. */
  refuse(error: LinkError): void {
    this.#failure ??= error
    this.end()
  }
}

const BEATS_KEPT = 16
