/**
 * The secondary: connects to its primary, receives its log and, where the log does not reach, compares Merkle trees and copies what
 * differs. It reconnects as long as it is a secondary; the status has the reason while it is disconnected. Which requests a secondary
 * refuses is decided in `src/secrets/dr-endpoints/dr-refusals.ts`.
 */
import { sleep } from '../../platform/clock.ts'
import { messageOf } from '../../platform/errors.ts'
import { StoreError } from '../../storage/sqlite/store-error.ts'
import type { CommitPosition } from '../../storage/store/replica.ts'
import { ClockSkewLog } from '../link/clock-skew-log.ts'
import { LinkClient, LinkError, type LinkRefusal } from '../link/link.ts'
import type { ProofSession } from '../link/proofs.ts'
import type { KnownUpstream } from '../state/replication-state.ts'
import { lastSharedSequence, writeConflictReport } from './conflict-report.ts'
import { claimedEpoch, dialFirst, type JoinedPrimary, joinPrimary, type SecondaryContext } from './join.ts'
import { type PrimaryHeartbeat, LogReceiver } from './log-receiver.ts'
import { copyDifference, type CopyProgress } from './merkle-sync.ts'
import { checkAndRepair, isCorrupted } from './repair.ts'

export type SecondaryPhase = 'idle' | 'stream-wals' | 'merkle-diff' | 'merkle-sync'
export class Secondary {
  readonly #context: SecondaryContext
  #abort = new AbortController()
  #running: Promise<void> | undefined
  #link: LinkClient | undefined
  #receiver: LogReceiver | undefined
  #phase: SecondaryPhase = 'idle'
  #progress: CopyProgress | undefined
  /** The copy is complete at this sequence. */
  #completeAtSequence: number | undefined
  #copied = { entries: 0, bytes: 0 }
  /** Why it is disconnected, for the status; undefined while it is connected. */
  #trouble: string | undefined
  /** The log says so. */
  #isInterrupted = false
  #lastHeartbeat: (PrimaryHeartbeat & { readonly receivedAtMs: number; readonly monotonicMs: number }) | undefined
  /** Monotonic: when it last had everything up to the known head of the primary. */
  #caughtUpMs = performance.now()
  #startedAtMs = 0
  #connections = 0
  /** Monotonic. */
  #nextCheckMs: number
  #isChecking = false
  /** Whether the next check compares with the primary's tree. */
  #isCompared = false
  #refusal: LinkRefusal | undefined
  #isDiverged = false
  /** The error of a primary that was replaced; cleared when a primary connects. */
  #replaced: string | undefined
  /** A message has arrived on the open stream. */
  #isConnected = false
  readonly #skewLog: ClockSkewLog

  constructor(context: SecondaryContext) {
    this.#context = context
    this.#skewLog = new ClockSkewLog(context.logger, 'clock skew to the DR primary')
    this.#nextCheckMs = performance.now() + context.times.compareMs
  }

  get phase(): SecondaryPhase {
    return this.#phase
  }

  get trouble(): string | undefined {
    return this.#trouble
  }

  get progress(): CopyProgress | undefined {
    return this.#phase === 'merkle-sync' ? this.#progress : undefined
  }

  /** Entries and bytes fetched by Merkle syncs since the start. */
  get copied(): { readonly entries: number; readonly bytes: number } {
    return this.#copied
  }

  get lastHeartbeat() {
    return this.#lastHeartbeat
  }

  get startedAtMs(): number {
    return this.#startedAtMs
  }

  get connections(): number {
    return this.#connections
  }

  /** State of the gRPC channel; `idle` without one. */
  get connectionState(): string {
    return this.#link?.state ?? (this.#running && this.#context.state.now.upstream ? 'connecting' : 'idle')
  }

  get isConnected(): boolean {
    return this.#isConnected
  }

  /** Received rows that are not applied yet. */
  get waiting(): number {
    return this.#receiver?.waiting ?? 0
  }

  /** Rows behind the last announced head of the primary; undefined before its first message. */
  get lagEntries(): number | undefined {
    const head = this.#lastHeartbeat?.position.sequence
    return head === undefined ? undefined : Math.max(0, head - this.#context.store.position().sequence)
  }

  /** Grows while the primary is silent; undefined before its first message. */
  get lagSeconds(): number | undefined {
    if (!this.#lastHeartbeat) return undefined
    const nowMs = performance.now()
    const silentMs = nowMs - this.#lastHeartbeat.monotonicMs
    if ((this.lagEntries ?? 0) === 0) return silentMs <= this.#context.times.heartbeatMs * 2 ? 0 : silentMs / 1000
    return (nowMs - this.#caughtUpMs) / 1000
  }

  /** Whether the primary refuses the certificate. */
  get isRevoked(): boolean {
    return this.#refusal === 'revoked' || this.#refusal === 'unknown'
  }

  /** The error if the primary was replaced, or this cluster has seen a newer one. */
  get replaced(): string | undefined {
    return this.#replaced
  }

  /** The histories differ and no comparison has completed. */
  get isDiverged(): boolean {
    return this.#isDiverged
  }

  start(): void {
    this.#abort = new AbortController()
    this.#running = this.#run(this.#abort.signal)
  }

  /** Applies the received rows. Resolves when the store is no longer written. */
  async stop(): Promise<void> {
    await this.#receiver?.drain()
    this.#abort.abort()
    this.#link?.close()
    await this.#running
    this.#running = undefined
    this.#phase = 'idle'
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { times, logger } = this.#context
    let waitMs = times.retryMinMs
    while (!signal.aborted && this.#context.state.now.upstream) {
      try {
        await this.#replicate(this.#context.state.now.upstream, signal, () => (waitMs = times.retryMinMs))
      } catch (error) {
        if (signal.aborted) break
        const text = messageOf(error)
        if (troubleTextOf(error) !== this.#trouble)
          logger.warn('replication from primary interrupted', { error: text, retry_ms: waitMs })
        this.#isInterrupted = true
        this.#trouble = troubleTextOf(error)
        this.#refusal = error instanceof LinkError ? error.reason : undefined
        if (this.#refusal === 'deposed') this.#replaced = text
      }
      this.#phase = 'idle'
      await sleep(waitMs * (0.75 + Math.random() / 2), signal)
      waitMs = Math.min(waitMs * 2, times.retryMaxMs)
    }
    this.#phase = 'idle'
  }

  async #replicate(upstream: KnownUpstream, signal: AbortSignal, onConnected: () => void): Promise<void> {
    const link = await dialFirst(upstream, this.#context.times.answerMs, signal)
    this.#link = link
    this.#connections++
    this.#startedAtMs = this.#context.nowMs()
    try {
      for (let hasCompared = false; ; hasCompared = true) {
        signal.throwIfAborted()
        const joined = await this.#join(link, upstream)
        if (!this.#context.store.isWhole) await this.#copy(link, joined, signal)
        const before = this.#context.store.position().sequence
        const end = await this.#follow(link, joined.session, signal, onConnected)
        signal.throwIfAborted()
        if (hasCompared && this.#context.store.position().sequence === before) {
          throw new LinkError(
            'failed',
            `the primary's log does not continue at the end of the Merkle comparison: ${end}`,
          )
        }
        this.#context.logger.info('log gap, starting Merkle comparison', { why: end })
        this.#isDiverged = true
        const again = await this.#join(link, upstream)
        await this.#reportConflicts(again)
        await this.#copy(link, again, signal)
      }
    } finally {
      link.close()
      this.#link = undefined
    }
  }

  async #join(link: LinkClient, upstream: KnownUpstream): Promise<JoinedPrimary> {
    const joined = await joinPrimary(link, upstream, this.#context, false)
    const { store, state } = this.#context
    if (joined.epoch < store.epoch) {
      throw new LinkError(
        'deposed',
        `the primary is in epoch ${joined.epoch}, this cluster has seen epoch ${store.epoch}`,
      )
    }
    const { now } = state
    // The primary has this epoch: from now on this cluster may prove it.
    if (!this.#context.proofs.isSealed && now.provenEpoch !== store.epoch)
      await state.change(() => ({ provenEpoch: store.epoch }))
    // It has no commits of a separate history.
    const isOwn = now.ownSince === undefined || store.position().sequence > now.ownSince
    if (!isOwn) await state.change(() => ({ ownSince: undefined }))
    const isNews =
      !upstream.hasJoined || now.forks.length !== joined.forks.length || joined.api !== upstream.api || now.needsToken
    if (isNews) {
      await state.change((before) => ({
        forks: joined.forks,
        needsToken: false,
        upstream: before.upstream && { ...before.upstream, hasJoined: true, api: joined.api },
      }))
    }
    return joined
  }

  async #reportConflicts(joined: JoinedPrimary): Promise<void> {
    const { store, state, dataDir, nowMs, logger } = this.#context
    const since = lastSharedSequence(store, joined.forks, state.now.ownSince)
    if (store.position().sequence <= since) return
    const report = writeConflictReport(store, since, { dataDir, setId: state.now.setId, nowMs: nowMs() })
    if (!report) return
    logger.warn('commits that the primary never received were dropped, see the conflict report', { ...report })
    await state.change(({ conflicts }) => ({ conflicts: [...conflicts, report.path], ownSince: undefined }))
  }

  async #copy(link: LinkClient, joined: JoinedPrimary, signal: AbortSignal): Promise<void> {
    const { store, state, logger, times } = this.#context
    this.#phase = 'merkle-diff'
    this.#trouble = this.#refusal = undefined
    const progress: CopyProgress = { found: 0, done: 0, bytes: 0 }
    this.#progress = progress
    const beganAtMs = performance.now()
    this.#completeAtSequence = await copyDifference({
      link,
      store,
      from: joined.position,
      clusterId: joined.clusterId,
      progress,
      answerMs: times.answerMs,
      signal,
      onDamaged: (paths) =>
        logger.error('damaged entries on the primary not copied', {
          paths: paths.slice(0, 10).join(', '),
        }),
      onDifference: () => (this.#phase = 'merkle-sync'),
    })
    this.#copied = { entries: this.#copied.entries + progress.done, bytes: this.#copied.bytes + progress.bytes }
    const { done, bytes } = progress
    const ms = Math.round(performance.now() - beganAtMs)
    logger.info('Merkle sync complete', { entries: done, bytes, ms, set: state.now.setId })
    await this.#finishCopy(store.position())
  }

  async #finishCopy(position: CommitPosition): Promise<void> {
    const { store, logger } = this.#context
    if (store.isWhole || this.#completeAtSequence === undefined || position.sequence < this.#completeAtSequence) return
    await store.finishCopy()
    logger.info('initial sync complete', { sequence: position.sequence })
  }

  /** Resolves to the reason of a log gap; rejects with a LinkError when the connection is lost. */
  async #follow(
    link: LinkClient,
    session: ProofSession | undefined,
    signal: AbortSignal,
    onConnected: () => void,
  ): Promise<string> {
    const { store, addresses, proofs, settings, times, nowMs } = this.#context
    const receiver = new LogReceiver({
      link,
      store,
      session,
      proofs,
      epoch: claimedEpoch(this.#context.state, store),
      addresses: addresses(),
      bufferBytes: settings.bufferBytes,
      times,
      nowMs,
      onApplied: async (position) => {
        await this.#finishCopy(position)
        if (position.sequence >= (this.#lastHeartbeat?.position.sequence ?? 0)) this.#caughtUpMs = performance.now()
      },
      onHeartbeat: (beat) => {
        this.#onHeartbeat(beat)
        onConnected()
      },
    })
    this.#receiver = receiver
    try {
      return await receiver.run(signal)
    } finally {
      this.#receiver = undefined
      this.#isConnected = false
    }
  }

  /** The next heartbeat starts a check of all entries, with `isCompared` also against the primary's tree. */
  scheduleRepair(isCompared = false): void {
    this.#nextCheckMs = 0
    this.#isCompared ||= isCompared
  }

  /** Runs the periodic check if it is due. */
  async #checkEntries(): Promise<void> {
    const { store, logger, times, state, nowMs } = this.#context
    const link = this.#link
    if (!link || this.#isChecking || performance.now() < this.#nextCheckMs || !store.isWhole) return
    this.#isChecking = true
    this.#nextCheckMs = performance.now() + times.compareMs
    const isCompared = this.#isCompared
    this.#isCompared = false
    try {
      const { signal } = this.#abort
      const report = await checkAndRepair({ link, store, logger, answerMs: times.answerMs, signal, isCompared })
      const isTreeCorrupted = isCorrupted(report)
      if (isTreeCorrupted || state.now.isTreeCorrupted)
        await state.change(() => ({ isTreeCorrupted, lastCheckMs: nowMs() }))
    } catch (error) {
      this.#isCompared ||= isCompared
      if (!this.#abort.signal.aborted) logger.warn('entry check failed, will retry', { error: messageOf(error) })
    } finally {
      this.#isChecking = false
    }
  }

  #onHeartbeat(beat: PrimaryHeartbeat): void {
    const monotonicMs = performance.now()
    this.#lastHeartbeat = { ...beat, receivedAtMs: this.#context.nowMs(), monotonicMs }
    this.#isConnected = true
    this.#phase = 'stream-wals'
    this.#trouble = this.#refusal = this.#replaced = undefined
    if (this.#isInterrupted) this.#context.logger.info('replication from primary resumed')
    this.#isInterrupted = false
    this.#isDiverged = false
    if (this.lagEntries === 0) this.#caughtUpMs = monotonicMs
    void this.#checkEntries()
    // The primary sends zeros until it has measured on this connection.
    if (beat.skewMs !== 0 || beat.durationMs !== 0) this.#skewLog.note(beat.skewMs, { primary: beat.api })
    const { upstream } = this.#context.state.now
    if (upstream && beat.addresses.join() !== upstream.known.join()) void this.#saveAddresses(beat.addresses)
  }

  /** Addresses that the primary announces; they are dialled after the one in the activation. */
  async #saveAddresses(known: string[]): Promise<void> {
    try {
      await this.#context.state.change(({ upstream }) => ({ upstream: upstream && { ...upstream, known } }))
    } catch (error) {
      this.#context.logger.warn('saving the addresses of the primary failed', { error: messageOf(error) })
    }
  }
}

/** For the status, which many clients may read: without paths of this host. The log has them. */
function troubleTextOf(error: unknown): string {
  const cause = error instanceof LinkError ? error.cause : error
  if (!(cause instanceof StoreError)) return messageOf(error)
  return cause.kind === 'full'
    ? 'the disk of this secondary is full: free space, replication then resumes'
    : `this secondary cannot write (${cause.kind}): see its log`
}
