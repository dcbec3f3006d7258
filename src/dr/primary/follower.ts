/**
 * One secondary that follows the log of this primary: rows go to it as they become durable, a heartbeat goes each second, and its
 * acknowledgements come back.
 *
 * Bounded: one message is on its way at a time, and rows that it has not acknowledged stay within a window, so a slow
 * secondary costs a cursor and not memory; the log itself waits on the disk. The secondary may only acknowledge what was sent to it.
 *
 * An acknowledgement opens the window and shows in the status. Synchronous commits rely on `proven` only: the last position of
 * this history that came with a proof of membership, which a sealed secondary, or a thief of its certificate, cannot make.
 */
import type { Logger } from '../../platform/log.ts'
import type { LogRow, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'
import type { Bandwidth } from '../link/bandwidth.ts'
import { LinkError } from '../link/link.ts'
import { type FollowCall, send } from '../link/link-server.ts'
import { CHUNK_BYTES, cutInParts, type RequestOf, type ResponseOf, ROWS_MAX } from '../link/messages.ts'
import type { LinkTimings } from '../state/parts.ts'
import type { Verdict } from '../link/proofs.ts'

type Beat = Extract<ResponseOf<'Follow'>, { kind: 'beat' }>
type From = Extract<RequestOf<'Follow'>, { kind: 'from' }>
type Acknowledgement = Exclude<RequestOf<'Follow'>, { kind: 'from' }>

export interface FollowerParts {
  readonly id: string
  readonly store: ReplicaStore
  readonly logger: Logger
  readonly timings: LinkTimings
  readonly bandwidth: Bandwidth
  readonly window: { readonly rows: number; readonly bytes: number }
  /** host:port of the connection. */
  readonly address: string
  /** Of the connection: tells it from others with the same certificate. */
  readonly nonce: Uint8Array
  /** Monotonic: when the secondary last had everything. */
  readonly caughtUpMs: number
  /** Whether the secondary has proven its membership when it began to follow. */
  readonly isAuthenticated: boolean
  readonly verify: (acknowledgement: Acknowledgement) => Verdict
  /** A word has come, with a proof or without. */
  readonly onHeard: () => void
  /** A proof was not valid. */
  readonly onRejected: () => void
  /** What a heartbeat tells beside what is the follower's own. */
  readonly beat: () => Omit<Beat, 'kind' | 'beat' | 'skewMs' | 'durationMs'>
  /** True while commits wait for secondaries: then rows leave at once. */
  readonly isAwaited: () => boolean
  /** It has acknowledged more, or has become whole. */
  readonly onProgress: () => void
  readonly now: () => number
}

/** A secondary counts as caught up when it has everything that this primary had so long ago. */
const CAUGHT_UP_MS = 1000

/** From here on a difference of the clocks is logged. */
const SKEW_WARNING_MS = 30_000
const COMPARING = 'comparing trees'

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
  /** With the newest proof of membership; undefined before the first. */
  #proven: { readonly sequence: number; readonly isWhole: boolean } | undefined
  #isAuthenticated: boolean
  readonly #probes = new Set<(isHeard: boolean) => void>()
  /** Sent and not acknowledged: where each message ended, and what had been sent in all by then. */
  readonly #flying: { readonly sequence: number; readonly totalBytes: number; readonly totalRows: number }[] = []
  #sentBytes = 0
  #sentRows = 0
  #paidBytes = 0
  #paidRows = 0
  readonly #beats = new Map<number, { readonly atMs: number; readonly monotonicMs: number }>()
  #beat = 0
  #beatDueMs = 0
  #heardMs = performance.now()
  /** The head of the log at a past moment: once it is acknowledged, the secondary is behind by the time since that moment. */
  #mark: { readonly sequence: number; readonly monotonicMs: number }
  /** Monotonic: the latest moment whose head is known to be acknowledged, and the same with proof. */
  #caughtUpMs: number
  #provenCaughtUpMs = Number.NEGATIVE_INFINITY
  #isEnded = false
  #endReason = 'the connection was closed'
  #failure: unknown
  #wake: () => void = () => undefined
  #isSkewed = false
  skewMs = 0
  durationMs = 0
  /** When the last heartbeat was answered; undefined before the first. */
  heartbeatAtMs: number | undefined

  constructor(parts: FollowerParts, call: FollowCall) {
    this.id = parts.id
    this.#parts = parts
    this.#call = call
    this.#isAuthenticated = parts.isAuthenticated
    this.#caughtUpMs = parts.caughtUpMs
    this.#mark = this.#markNow()
  }

  get address(): string {
    return this.#parts.address
  }

  get nonce(): Uint8Array {
    return this.#parts.nonce
  }

  /** Up to here the secondary has proven to have the log on its disk; undefined before its first proof. */
  get proven(): number | undefined {
    return this.#proven?.sequence
  }

  /** Whether its newest word came with a valid proof of membership. */
  get isAuthenticated(): boolean {
    return this.#isAuthenticated
  }

  /** It has left the log for a comparison of trees on the same connection. */
  get isComparing(): boolean {
    return this.endReason === COMPARING
  }

  get isEnded(): boolean {
    return this.#isEnded
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

  /** Monotonic: the latest moment whose head is known to be acknowledged. */
  get caughtUpMs(): number {
    return this.#caughtUpMs
  }

  /** Why it does not follow any more, for operators. */
  get endReason(): string {
    return this.#failure instanceof Error ? this.#failure.message : this.#endReason
  }

  get isWhole(): boolean {
    return this.#isWhole
  }

  /** It proves that it is whole and not further behind than `CAUGHT_UP_MS`. */
  get isCaughtUp(): boolean {
    if (this.#proven?.isWhole !== true || !this.#isAuthenticated) return false
    const hasAll = this.#proven.sequence >= this.#parts.store.position().sequence
    return hasAll || performance.now() - this.#provenCaughtUpMs <= CAUGHT_UP_MS
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
    if (performance.now() - this.#heardMs > this.#parts.timings.silenceMs) {
      this.#endReason = `no message for ${this.#parts.timings.silenceMs} ms`
      this.end()
    }
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
    this.#beats.set(beat, { atMs: said.atMs, monotonicMs: performance.now() })
    // Of those that were never answered only the newest are remembered.
    this.#beats.delete(beat - BEATS_KEPT)
    await send(this.#call, { kind: 'beat', beat, skewMs, durationMs, ...said })
  }

  async #diverged(why: string): Promise<void> {
    const position: CommitPosition = this.#parts.store.position()
    this.#endReason = COMPARING
    this.#parts.logger.info('DR secondary starts a Merkle comparison', { id: this.id, why })
    await send(this.#call, { kind: 'diverged', position, why })
  }

  /** Sends a heartbeat at once, unless one is under way; resolves with whether anything was received within `waitMs`. */
  async answers(waitMs: number): Promise<boolean> {
    if (this.#isEnded) return false
    if (this.#beats.size === 0) {
      this.#beatDueMs = 0
      this.#wake()
    }
    const { promise, resolve } = Promise.withResolvers<boolean>()
    const timer = setTimeout(() => resolve(false), waitMs)
    this.#probes.add(resolve)
    try {
      return await promise
    } finally {
      clearTimeout(timer)
      this.#probes.delete(resolve)
    }
  }

  #take(message: RequestOf<'Follow'>): void {
    this.#heardMs = performance.now()
    if (message.kind === 'from') throw new LinkError('malformed', 'a stream begins once')
    const wasCaughtUp = this.isCaughtUp
    const hasProgress = this.#acknowledge(message)
    if (message.kind === 'echo') this.#measure(message)
    this.#parts.onHeard()
    for (const resolve of this.#probes) resolve(true)
    if (hasProgress) this.#wake()
    if (hasProgress || this.isCaughtUp !== wasCaughtUp) this.#parts.onProgress()
  }

  #measure({ atMs, beat: number }: Extract<RequestOf<'Follow'>, { kind: 'echo' }>): void {
    const beat = this.#beats.get(number)
    if (!beat) throw new LinkError('malformed', 'the answer to a heartbeat that was never sent')
    this.#beats.delete(number)
    this.durationMs = Math.round(this.#heardMs - beat.monotonicMs)
    this.skewMs = Math.round(atMs - (beat.atMs + this.durationMs / 2))
    this.heartbeatAtMs = this.#parts.now()
    this.#noteSkew()
  }

  #noteSkew(): void {
    const isSkewed = Math.abs(this.skewMs) > SKEW_WARNING_MS
    if (isSkewed === this.#isSkewed) return
    this.#isSkewed = isSkewed
    const facts = { id: this.id, skew_seconds: Math.round(this.skewMs / 1000) }
    if (isSkewed)
      this.#parts.logger.warn('clock of the DR secondary or of this primary is wrong: set both right', facts)
    else this.#parts.logger.info('clock of the DR secondary is right again', facts)
  }

  /** Returns whether anything is known that was not. */
  #acknowledge(message: Acknowledgement): boolean {
    const { isWhole, position } = message
    const { sequence } = position
    if (sequence > this.#sent) throw new LinkError('malformed', 'rows were acknowledged that were never sent')
    if (sequence < this.#acknowledged) throw new LinkError('malformed', 'an acknowledgement was taken back')
    const before = this.#proven
    const hasNews = sequence > this.#acknowledged || isWhole !== this.#isWhole
    this.#acknowledged = sequence
    this.#isWhole = isWhole
    let paid = this.#flying[0]
    while (paid && paid.sequence <= sequence) {
      this.#paidBytes = paid.totalBytes
      this.#paidRows = paid.totalRows
      this.#flying.shift()
      paid = this.#flying[0]
    }
    this.#judge(message)
    this.#reach()
    return hasNews || this.#proven?.sequence !== before?.sequence || this.#proven?.isWhole !== before?.isWhole
  }

  #judge(message: Acknowledgement): void {
    const { onRejected, store, verify } = this.#parts
    const verdict = message.proof ? verify(message) : 'absent'
    if (verdict === 'invalid') onRejected()
    this.#isAuthenticated = verdict === 'valid'
    // A proof is of one history: a row of another one with this number is not on that disk.
    if (verdict !== 'valid' || !store.holds(message.position)) return
    this.#proven = { sequence: message.position.sequence, isWhole: message.isWhole }
  }

  #reach(): void {
    const { monotonicMs, sequence } = this.#mark
    if (this.#acknowledged < sequence) return
    this.#caughtUpMs = monotonicMs
    // An acknowledgement without proof moves the mark as well: the next proof is then measured against a later one.
    if ((this.proven ?? -1) >= sequence) this.#provenCaughtUpMs = monotonicMs
    this.#mark = this.#markNow()
  }

  #markNow() {
    return { sequence: this.#parts.store.position().sequence, monotonicMs: performance.now() }
  }

  end(): void {
    this.#isEnded = true
    for (const resolve of this.#probes) resolve(false)
    this.#wake()
  }

  /** Ends it with a reason that the secondary is told. */
  refuse(error: LinkError): void {
    this.#failure ??= error
    this.end()
  }
}

const BEATS_KEPT = 16

/** The first message of a stream. Rejects with a LinkError when none comes. */
export function firstOfStream(call: FollowCall, waitMs: number): Promise<From> {
  return new Promise((resolve, reject) => {
    const end = () => reject(new LinkError('lost', 'the stream ended before it began'))
    const timer = setTimeout(end, waitMs)
    call.once('close', end)
    call.once('error', end)
    call.once('data', (message: RequestOf<'Follow'>) => {
      clearTimeout(timer)
      call.pause()
      if (message.kind === 'from') resolve(message)
      else reject(new LinkError('malformed', 'a stream begins with a position'))
    })
  })
}
