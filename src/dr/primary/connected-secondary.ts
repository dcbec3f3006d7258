/**
 * One connected secondary, as the primary serves it: sends rows as they become durable and a heartbeat every second, and receives
 * acknowledgements.
 *
 * Bounded: one message is in flight at a time, and unacknowledged rows stay within a window, so a slow secondary costs a cursor and
 * no memory; the log itself waits on disk. The secondary may acknowledge only rows that were sent to it.
 *
 * An acknowledgement opens the window and shows in the status. Synchronous commits rely on `proven` only: the last position of
 * this history that came with a proof of membership, which neither a sealed secondary nor an attacker with its certificate can produce.
 */
import { pauseDetector } from '../../platform/clock.ts'
import type { Logger } from '../../platform/log.ts'
import type { LogRow, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'
import type { BandwidthLimiter } from '../../platform/token-bucket.ts'
import { ClockSkewLog } from '../link/clock-skew-log.ts'
import { LinkError } from '../link/link.ts'
import { type FollowCall, send } from '../link/link-server.ts'
import { CHUNK_BYTES, splitIntoChunks, type RequestOf, type ResponseOf, ROWS_MAX } from '../link/messages.ts'
import type { LinkTimings } from '../state/replication-context.ts'
import type { ProofVerdict } from '../link/proofs.ts'

type PrimaryHeartbeat = Extract<ResponseOf<'Follow'>, { kind: 'beat' }>
type FollowStart = Extract<RequestOf<'Follow'>, { kind: 'from' }>
type Acknowledgement = Exclude<RequestOf<'Follow'>, { kind: 'from' }>

export interface ConnectedSecondaryContext {
  readonly id: string
  readonly store: ReplicaStore
  readonly logger: Logger
  readonly timings: LinkTimings
  readonly bandwidth: BandwidthLimiter
  readonly window: { readonly rows: number; readonly bytes: number }
  /** host:port of the connection. */
  readonly address: string
  /** Identifies the connection among those with the same certificate. */
  readonly nonce: Uint8Array
  /** Monotonic: when the secondary last had everything. */
  readonly caughtUpMs: number
  /** Whether the `from` message had a valid proof. */
  readonly isAuthenticated: boolean
  readonly verify: (acknowledgement: Acknowledgement) => ProofVerdict
  /** A message arrived, with or without proof. */
  readonly onMessage: () => void
  /** A proof was not valid. */
  readonly onRejected: () => void
  /** Fields of a heartbeat that are the same for all secondaries. */
  readonly heartbeat: () => Omit<PrimaryHeartbeat, 'kind' | 'beat' | 'skewMs' | 'durationMs'>
  /** Whether commits wait for secondaries: rows are then sent without delay. */
  readonly isAwaited: () => boolean
  /** It has acknowledged more, or completed its initial sync. */
  readonly onProgress: () => void
  readonly now: () => number
}

/** A secondary counts as caught up when it has everything that was committed so long ago. */
const CAUGHT_UP_MS = 1000

const COMPARING = 'comparing trees'

/** Overhead of a row in a message. */
const ROW_BYTES = 64

export class ConnectedSecondary {
  readonly id: string
  readonly #context: ConnectedSecondaryContext
  readonly #call: FollowCall
  /** Highest sequence sent. */
  #sent = 0
  #acknowledged = 0
  #isWhole = false
  /** From the last message with a valid proof; undefined before the first. */
  #proven: { readonly sequence: number; readonly isWhole: boolean } | undefined
  #isAuthenticated: boolean
  readonly #probes = new Set<(isAlive: boolean) => void>()
  /** Unacknowledged messages: last sequence of each, and totals sent up to it. */
  readonly #inFlight: { readonly sequence: number; readonly totalBytes: number; readonly totalRows: number }[] = []
  #sentBytes = 0
  #sentRows = 0
  #acknowledgedBytes = 0
  #acknowledgedRows = 0
  readonly #pendingHeartbeats = new Map<number, { readonly atMs: number; readonly monotonicMs: number }>()
  #heartbeatNumber = 0
  #nextHeartbeatMs = 0
  #lastMessageMs = performance.now()
  /** A sample of the log's head: once it is acknowledged, the lag is at most the time since the sample. */
  #headSample: { readonly sequence: number; readonly monotonicMs: number }
  /** Monotonic: the latest moment whose head is known to be acknowledged, and the same with proof. */
  #caughtUpMs: number
  #provenCaughtUpMs = Number.NEGATIVE_INFINITY
  #hasEnded = false
  #endReason = 'the connection was closed'
  #failure: unknown
  #wake: () => void = () => undefined
  readonly #skewLog: ClockSkewLog
  readonly #pauses = pauseDetector()
  skewMs = 0
  durationMs = 0
  /** When the last heartbeat was answered; undefined before the first. */
  heartbeatAtMs: number | undefined

  constructor(context: ConnectedSecondaryContext, call: FollowCall) {
    this.id = context.id
    this.#context = context
    this.#skewLog = new ClockSkewLog(context.logger, 'clock skew to the DR secondary')
    this.#call = call
    this.#isAuthenticated = context.isAuthenticated
    this.#caughtUpMs = context.caughtUpMs
    this.#headSample = this.#sampleHead()
  }

  get address(): string {
    return this.#context.address
  }

  get nonce(): Uint8Array {
    return this.#context.nonce
  }

  /** Highest sequence that the secondary has proven to have on disk; undefined before its first proof. */
  get proven(): number | undefined {
    return this.#proven?.sequence
  }

  /** Whether its last message had a valid proof of membership. */
  get isAuthenticated(): boolean {
    return this.#isAuthenticated
  }

  /** The stream ended for a Merkle comparison on the same connection. */
  get isComparing(): boolean {
    return this.endReason === COMPARING
  }

  get isEnded(): boolean {
    return this.#hasEnded
  }

  get acknowledged(): number {
    return this.#acknowledged
  }

  /** Since the secondary last answered a heartbeat. */
  get heartbeatAgeMs(): number {
    return Math.round(performance.now() - this.#lastMessageMs)
  }

  get lagSeconds(): number {
    if (this.#acknowledged >= this.#context.store.position().sequence) return 0
    return (performance.now() - this.#caughtUpMs) / 1000
  }

  /** Monotonic: the latest moment whose head is known to be acknowledged. */
  get caughtUpMs(): number {
    return this.#caughtUpMs
  }

  /** Why the stream ended, for operators. */
  get endReason(): string {
    return this.#failure instanceof Error ? this.#failure.message : this.#endReason
  }

  get isWhole(): boolean {
    return this.#isWhole
  }

  /** It has proven that its initial sync is complete and that its lag is at most `CAUGHT_UP_MS`. */
  get isCaughtUp(): boolean {
    if (this.#proven?.isWhole !== true || !this.#isAuthenticated) return false
    const hasAll = this.#proven.sequence >= this.#context.store.position().sequence
    return hasAll || performance.now() - this.#provenCaughtUpMs <= CAUGHT_UP_MS
  }

  /** Bytes sent and not acknowledged. */
  get inFlightBytes(): number {
    return this.#sentBytes - this.#acknowledgedBytes
  }

  /** Resolves when the connection ends. Rejects with a LinkError for a protocol violation. */
  async run(from: FollowStart): Promise<void> {
    const { store, timings } = this.#context
    if (!store.holds(from.position)) return this.#diverged('position not in the log of the primary')
    this.#sent = this.#acknowledged = from.position.sequence
    this.#call.on('data', (message: RequestOf<'Follow'>) => {
      try {
        this.#receive(message)
      } catch (error) {
        this.#failure ??= error
        this.end()
      }
    })
    // Paused by `firstFollowMessage`.
    this.#call.resume()
    const end = () => this.#lost(this.#endReason)
    for (const event of ['cancelled', 'end', 'close', 'error']) this.#call.on(event, end)
    const stopListening = store.onAppended(() => this.#wake())
    const window = { rows: this.#context.window.rows, bytes: Math.min(this.#context.window.bytes, from.windowBytes) }
    const ticks = setInterval(() => this.#tick(), Math.max(10, timings.heartbeatMs / 4))
    try {
      while (!this.#hasEnded) await this.#step(window)
    } finally {
      clearInterval(ticks)
      stopListening()
    }
    if (this.#failure !== undefined) throw this.#failure
  }

  #tick(): void {
    const { silenceMs } = this.#context.timings
    if (performance.now() - this.#lastMessageMs > silenceMs) this.#lost(`no message for ${silenceMs} ms`)
    this.#wake()
  }

  /** A connection that was lost while this process did not run says nothing about the secondary. */
  #lost(why: string): void {
    this.#endReason = this.#pauses.pauseText ?? why
    this.end()
  }

  async #step(window: { readonly rows: number; readonly bytes: number }): Promise<void> {
    const nowMs = performance.now()
    if (nowMs >= this.#nextHeartbeatMs) {
      this.#nextHeartbeatMs = nowMs + this.#context.timings.heartbeatMs
      return this.#sendHeartbeat()
    }
    const isOpen = this.inFlightBytes < window.bytes && this.#sentRows - this.#acknowledgedRows < window.rows
    const rows = isOpen ? this.#rows(window) : []
    if (rows === undefined) return this.#diverged('position no longer in the log of the primary')
    if (rows.length > 0) return this.#sendRows(rows)
    await new Promise<void>((resolve) => (this.#wake = resolve))
    // Batch the rows of the next few milliseconds into one message.
    const { gatherMs } = this.#context.timings
    if (!this.#context.isAwaited() && gatherMs > 0) await new Promise((resolve) => setTimeout(resolve, gatherMs))
  }

  /** Undefined when the log has a gap, or ends before what was sent. */
  #rows(window: { readonly rows: number }): LogRow[] | undefined {
    const { store } = this.#context
    const limits = { rows: Math.min(ROWS_MAX, window.rows), bytes: CHUNK_BYTES }
    const rows = store.rowsAfter(this.#sent, limits)
    const [first] = rows
    if (first) return first.sequence === this.#sent + 1 ? rows : undefined
    return store.position().sequence < this.#sent ? undefined : rows
  }

  async #sendRows(rows: readonly LogRow[]): Promise<void> {
    const bytes = rows.reduce((sum, { batch }) => sum + batch.length + ROW_BYTES, 0)
    await this.#context.bandwidth.take(bytes)
    const sequence = rows.at(-1)?.sequence ?? this.#sent
    this.#sent = sequence
    this.#sentBytes += bytes
    this.#sentRows += rows.length
    this.#inFlight.push({ sequence, totalBytes: this.#sentBytes, totalRows: this.#sentRows })
    const [first] = rows
    const { chunks, rest } = splitIntoChunks(first?.batch ?? new Uint8Array())
    for (const chunk of chunks) await send(this.#call, { kind: 'part', bytes: chunk })
    const packed = rows.map((row) => {
      return [row.sequence, row.epoch, row.atMs, row.checksum, row === first ? rest : row.batch]
    })
    await send(this.#call, { kind: 'rows', rows: packed })
  }

  async #sendHeartbeat(): Promise<void> {
    const beat = ++this.#heartbeatNumber
    const { skewMs, durationMs } = this
    const heartbeat = this.#context.heartbeat()
    this.#pendingHeartbeats.set(beat, { atMs: heartbeat.atMs, monotonicMs: performance.now() })
    this.#pendingHeartbeats.delete(beat - PENDING_HEARTBEATS_MAX)
    await send(this.#call, { kind: 'beat', beat, skewMs, durationMs, ...heartbeat })
  }

  async #diverged(why: string): Promise<void> {
    const position: CommitPosition = this.#context.store.position()
    this.#endReason = COMPARING
    this.#context.logger.info('DR secondary started a Merkle comparison', { id: this.id, why })
    await send(this.#call, { kind: 'diverged', position, why })
  }

  /** Sends a heartbeat unless one is pending. Resolves to whether a message arrived within `waitMs`. */
  async probe(waitMs: number): Promise<boolean> {
    if (this.#hasEnded) return false
    if (this.#pendingHeartbeats.size === 0) {
      this.#nextHeartbeatMs = 0
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

  #receive(message: RequestOf<'Follow'>): void {
    this.#lastMessageMs = performance.now()
    if (message.kind === 'from') throw new LinkError('malformed', 'second "from" message on a stream')
    const wasCaughtUp = this.isCaughtUp
    const hasProgress = this.#acknowledge(message)
    if (message.kind === 'echo') this.#measure(message)
    this.#context.onMessage()
    for (const resolve of this.#probes) resolve(true)
    if (hasProgress) this.#wake()
    if (hasProgress || this.isCaughtUp !== wasCaughtUp) this.#context.onProgress()
  }

  #measure({ atMs, beat: number }: Extract<RequestOf<'Follow'>, { kind: 'echo' }>): void {
    const beat = this.#pendingHeartbeats.get(number)
    // A secondary that was busy for long replies to heartbeats that are not pending any more.
    if (!beat && number > 0 && number <= this.#heartbeatNumber - PENDING_HEARTBEATS_MAX) return
    if (!beat) throw new LinkError('malformed', 'reply to an unknown heartbeat')
    this.#pendingHeartbeats.delete(number)
    this.heartbeatAtMs = this.#context.now()
    // The reply has waited while this process did not run.
    if (this.#pauses.isCatchingUp) return
    this.durationMs = Math.round(this.#lastMessageMs - beat.monotonicMs)
    this.skewMs = Math.round(atMs - (beat.atMs + this.durationMs / 2))
    this.#skewLog.note(this.skewMs, { id: this.id })
  }

  /** Returns whether it changed anything. */
  #acknowledge(message: Acknowledgement): boolean {
    const { isWhole, position } = message
    const { sequence } = position
    if (sequence > this.#sent) throw new LinkError('malformed', 'acknowledged rows that were not sent')
    if (sequence < this.#acknowledged) throw new LinkError('malformed', 'acknowledged position went backward')
    const before = this.#proven
    const isNew = sequence > this.#acknowledged || isWhole !== this.#isWhole
    this.#acknowledged = sequence
    this.#isWhole = isWhole
    let oldest = this.#inFlight[0]
    while (oldest && oldest.sequence <= sequence) {
      this.#acknowledgedBytes = oldest.totalBytes
      this.#acknowledgedRows = oldest.totalRows
      this.#inFlight.shift()
      oldest = this.#inFlight[0]
    }
    this.#verifyProof(message)
    this.#updateCaughtUp()
    return isNew || this.#proven?.sequence !== before?.sequence || this.#proven?.isWhole !== before?.isWhole
  }

  #verifyProof(message: Acknowledgement): void {
    const { onRejected, store, verify } = this.#context
    const verdict = message.proof ? verify(message) : 'absent'
    if (verdict === 'invalid') onRejected()
    this.#isAuthenticated = verdict === 'valid'
    // A proof is for one history: the same sequence of another history does not count.
    if (verdict !== 'valid' || !store.holds(message.position)) return
    this.#proven = { sequence: message.position.sequence, isWhole: message.isWhole }
  }

  #updateCaughtUp(): void {
    const { monotonicMs, sequence } = this.#headSample
    if (this.#acknowledged < sequence) return
    this.#caughtUpMs = monotonicMs
    // An acknowledgement without proof also moves the sample: the next proof is then measured against a later one.
    if ((this.proven ?? -1) >= sequence) this.#provenCaughtUpMs = monotonicMs
    this.#headSample = this.#sampleHead()
  }

  #sampleHead() {
    return { sequence: this.#context.store.position().sequence, monotonicMs: performance.now() }
  }

  end(): void {
    this.#hasEnded = true
    for (const resolve of this.#probes) resolve(false)
    this.#wake()
  }

  /** Ends the stream with an error for the secondary. */
  refuse(error: LinkError): void {
    this.#failure ??= error
    this.end()
  }
}

const PENDING_HEARTBEATS_MAX = 16

/** The first message of a stream. Rejects with a LinkError when none comes. */
export function firstFollowMessage(call: FollowCall, waitMs: number): Promise<FollowStart> {
  return new Promise((resolve, reject) => {
    const end = () => reject(new LinkError('lost', 'the stream ended before the first message'))
    const timer = setTimeout(end, waitMs)
    call.once('close', end)
    call.once('error', end)
    call.once('data', (message: RequestOf<'Follow'>) => {
      clearTimeout(timer)
      call.pause()
      if (message.kind === 'from') resolve(message)
      else reject(new LinkError('malformed', 'the first message of a stream must be "from"'))
    })
  })
}
