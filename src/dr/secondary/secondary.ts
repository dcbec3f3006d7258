/**
 * The secondary: it dials its primary, follows its log and, where the log does not reach, compares trees and copies what differs. It
 * tries again for as long as it is a secondary, and what keeps it from following is in its status.
 */
import { sleep } from '../../platform/clock.ts'
import { messageOf, Refusal } from '../../platform/errors.ts'
import type { CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'
import { StoreError } from '../../storage/sqlite/store-error.ts'
import { copyDifference, type Progress } from './catch-up.ts'
import { unsharedSince, writeConflicts } from './conflicts.ts'
import { type Beat, Following } from './following.ts'
import { LinkClient, LinkError, linkErrorOf, type LinkRefusal } from '../link/link.ts'
import { PROTOCOL, type ResponseOf } from '../link/messages.ts'
import type { LinkTimings, ReplicationParts } from '../state/parts.ts'
import { type Proofs, type Session, statements } from '../link/proofs.ts'
import { checkAndRepair } from './repair.ts'
import { isCorrupted } from '../tree/merkle-report.ts'
import type { KnownUpstream, ReplicationState } from '../state/state.ts'

export type SecondaryPhase = 'idle' | 'stream-wals' | 'merkle-diff' | 'merkle-sync'
/** `session`: for proofs on this connection; undefined where the primary gave no nonce. */
type Joined = ResponseOf<'Join'> & { readonly session: Session | undefined }

export interface SecondaryParts extends ReplicationParts {
  readonly state: ReplicationState
  readonly proofs: Proofs
  readonly times: LinkTimings
  readonly nowMs: () => number
}

export class Secondary {
  readonly #parts: SecondaryParts
  #abort = new AbortController()
  #running: Promise<void> | undefined
  #link: LinkClient | undefined
  #following: Following | undefined
  #phase: SecondaryPhase = 'idle'
  #progress: Progress | undefined
  /** The copy is whole at this sequence. */
  #wholeAt: number | undefined
  #copied = { entries: 0, bytes: 0 }
  /** What keeps it from following, for people; undefined while nothing does. */
  #trouble: string | undefined
  #lastBeat: (Beat & { readonly heardAtMs: number; readonly monotonicMs: number }) | undefined
  /** Monotonic: when it last had everything that the primary was known to have. */
  #caughtUpMs = performance.now()
  #startedAtMs = 0
  #connections = 0
  /** Monotonic: when all entries are looked at next. */
  #lookAtMs: number
  #isLooking = false
  /** The next check compares the tree with that of the primary. */
  #isCompared = false
  #refusal: LinkRefusal | undefined
  #isDiverged = false
  /** What the primary said when it refused this cluster as one that was replaced; until a primary is followed. */
  #replaced: string | undefined
  /** The primary has been heard on the stream that is open. */
  #isFollowing = false

  constructor(parts: SecondaryParts) {
    this.#parts = parts
    this.#lookAtMs = performance.now() + parts.times.compareMs
  }

  get phase(): SecondaryPhase {
    return this.#phase
  }

  get trouble(): string | undefined {
    return this.#trouble
  }

  get progress(): Progress | undefined {
    return this.#phase === 'merkle-sync' ? this.#progress : undefined
  }

  /** Entries and bytes that comparisons of trees have fetched since the start. */
  get copied(): { readonly entries: number; readonly bytes: number } {
    return this.#copied
  }

  get lastBeat() {
    return this.#lastBeat
  }

  get startedAtMs(): number {
    return this.#startedAtMs
  }

  get connections(): number {
    return this.#connections
  }

  /** Of gRPC's channel; `idle` while there is none. */
  get connectionState(): string {
    return this.#link?.state ?? (this.#running && this.#parts.state.now.upstream ? 'connecting' : 'idle')
  }

  get isConnected(): boolean {
    return this.#isFollowing
  }

  /** Rows that have arrived and were not applied. */
  get waiting(): number {
    return this.#following?.waiting ?? 0
  }

  /** Rows that the primary has said to have and are not here; undefined before its first word. */
  get lagEntries(): number | undefined {
    const head = this.#lastBeat?.position.sequence
    return head === undefined ? undefined : Math.max(0, head - this.#parts.store.position().sequence)
  }

  /** For how long this cluster has not had all that its primary has; grows while that is silent. */
  get lagSeconds(): number | undefined {
    if (!this.#lastBeat) return undefined
    const nowMs = performance.now()
    const silentMs = nowMs - this.#lastBeat.monotonicMs
    if ((this.lagEntries ?? 0) === 0) return silentMs <= this.#parts.times.beatMs * 2 ? 0 : silentMs / 1000
    return (nowMs - this.#caughtUpMs) / 1000
  }

  /** The primary does not take the certificate any more. */
  get isRevoked(): boolean {
    return this.#refusal === 'revoked' || this.#refusal === 'unknown'
  }

  /** The primary has said that it was replaced, or this cluster has seen a newer one: in these words. */
  get replaced(): string | undefined {
    return this.#replaced
  }

  /** The primary has said that its history is another, and the comparison has not begun. */
  get isDiverged(): boolean {
    return this.#isDiverged
  }

  /** Begins, or begins again with what is known by now. */
  start(): void {
    this.#abort = new AbortController()
    this.#running = this.#run(this.#abort.signal)
  }

  /** Resolves when the store is left alone. What was received is applied first. */
  async stop(): Promise<void> {
    await this.#following?.drain()
    this.#abort.abort()
    this.#link?.close()
    await this.#running
    this.#running = undefined
    this.#phase = 'idle'
  }

  async #run(signal: AbortSignal): Promise<void> {
    const { times, logger } = this.#parts
    let waitMs = times.retryMinMs
    while (!signal.aborted && this.#parts.state.now.upstream) {
      try {
        await this.#session(this.#parts.state.now.upstream, signal, () => (waitMs = times.retryMinMs))
      } catch (error) {
        if (signal.aborted) break
        const text = messageOf(error)
        if (troubleOf(error) !== this.#trouble)
          logger.warn('the primary is not followed', { error: text, retry_ms: waitMs })
        this.#trouble = troubleOf(error)
        this.#refusal = error instanceof LinkError ? error.reason : undefined
        if (this.#refusal === 'deposed') this.#replaced = text
      }
      this.#phase = 'idle'
      await sleep(waitMs * (0.75 + Math.random() / 2), signal)
      waitMs = Math.min(waitMs * 2, times.retryMaxMs)
    }
    this.#phase = 'idle'
  }

  async #session(upstream: KnownUpstream, signal: AbortSignal, onFollowing: () => void): Promise<void> {
    const link = await dialFirst(upstream, this.#parts.times.answerMs, signal)
    this.#link = link
    this.#connections++
    this.#startedAtMs = this.#parts.nowMs()
    try {
      for (let hasCompared = false; ; hasCompared = true) {
        signal.throwIfAborted()
        const joined = await this.#join(link, upstream)
        if (!this.#parts.store.isWhole) await this.#copy(link, joined, signal)
        const before = this.#parts.store.position().sequence
        const end = await this.#follow(link, joined.session, signal, onFollowing)
        signal.throwIfAborted()
        if (hasCompared && this.#parts.store.position().sequence === before) {
          throw new LinkError('failed', `the log of the primary does not go on where a comparison ended: ${end}`)
        }
        this.#parts.logger.info('the log of the primary does not go on here, trees are compared', { why: end })
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

  async #join(link: LinkClient, upstream: KnownUpstream): Promise<Joined> {
    const joined = await joinPrimary(link, upstream, this.#parts, false)
    const { store, state } = this.#parts
    if (joined.epoch < store.epoch) {
      throw new LinkError('deposed', `the primary is in epoch ${joined.epoch}, this cluster has seen ${store.epoch}`)
    }
    const { now } = state
    // The primary is there, too: from now on this cluster may prove it.
    if (!this.#parts.proofs.isSealed && now.provenEpoch !== store.epoch)
      await state.change(() => ({ provenEpoch: store.epoch }))
    // It has written nothing of its own.
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

  async #reportConflicts(joined: Joined): Promise<void> {
    const { store, state, dataDir, nowMs, logger } = this.#parts
    const since = unsharedSince(store, joined.forks, state.now.ownSince)
    if (store.position().sequence <= since) return
    const report = writeConflicts(store, since, { dataDir, setId: state.now.setId, nowMs: nowMs() })
    if (!report) return
    logger.warn('commits that the primary never got are given up; they are in this file', { ...report })
    await state.change(({ conflicts }) => ({ conflicts: [...conflicts, report.path], ownSince: undefined }))
  }

  async #copy(link: LinkClient, joined: Joined, signal: AbortSignal): Promise<void> {
    const { store, state, logger, times } = this.#parts
    this.#phase = 'merkle-diff'
    this.#trouble = this.#refusal = undefined
    const progress: Progress = { found: 0, done: 0, bytes: 0 }
    this.#progress = progress
    const beganAtMs = performance.now()
    this.#wholeAt = await copyDifference({
      link,
      store,
      from: joined.position,
      clusterId: joined.clusterId,
      progress,
      answerMs: times.answerMs,
      signal,
      onDamaged: (paths) => logger.error('the primary cannot read entries', { paths: paths.slice(0, 10).join(', ') }),
      onDifference: () => (this.#phase = 'merkle-sync'),
    })
    this.#copied = { entries: this.#copied.entries + progress.done, bytes: this.#copied.bytes + progress.bytes }
    const { done, bytes } = progress
    const ms = Math.round(performance.now() - beganAtMs)
    logger.info('what differed from the primary was copied', { entries: done, bytes, ms, set: state.now.setId })
    await this.#finishCopy(store.position())
  }

  async #finishCopy(position: CommitPosition): Promise<void> {
    const { store, logger } = this.#parts
    if (store.isWhole || this.#wholeAt === undefined || position.sequence < this.#wholeAt) return
    await store.finishCopy()
    logger.info('the copy of the primary is whole', { sequence: position.sequence })
  }

  /** Resolves with why the log of the primary does not go on here; rejects with a LinkError when the connection is lost. */
  async #follow(
    link: LinkClient,
    session: Session | undefined,
    signal: AbortSignal,
    onFollowing: () => void,
  ): Promise<string> {
    const { store, addresses, proofs, settings, times, nowMs } = this.#parts
    const following = new Following({
      link,
      store,
      session,
      proofs,
      epoch: claimedEpoch(this.#parts.state, store),
      addresses: addresses(),
      bufferBytes: settings.bufferBytes,
      times,
      nowMs,
      onApplied: async (position) => {
        await this.#finishCopy(position)
        if (position.sequence >= (this.#lastBeat?.position.sequence ?? 0)) this.#caughtUpMs = performance.now()
      },
      onBeat: (beat) => {
        this.#onBeat(beat)
        onFollowing()
      },
    })
    this.#following = following
    try {
      return await following.run(signal)
    } finally {
      this.#following = undefined
      this.#isFollowing = false
    }
  }

  /** The next heartbeat starts a check of all entries; with `isCompared` against the tree of the primary too, not only the own one. */
  repairSoon(isCompared = false): void {
    this.#lookAtMs = 0
    this.#isCompared ||= isCompared
  }

  /** When it is due, and nothing else is to be done. */
  async #look(): Promise<void> {
    const { store, logger, times, state, nowMs } = this.#parts
    const link = this.#link
    if (!link || this.#isLooking || performance.now() < this.#lookAtMs || !store.isWhole) return
    this.#isLooking = true
    this.#lookAtMs = performance.now() + times.compareMs
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
      if (!this.#abort.signal.aborted) logger.warn('entries could not be compared', { error: messageOf(error) })
    } finally {
      this.#isLooking = false
    }
  }

  #onBeat(beat: Beat): void {
    const monotonicMs = performance.now()
    this.#lastBeat = { ...beat, heardAtMs: this.#parts.nowMs(), monotonicMs }
    this.#isFollowing = true
    this.#phase = 'stream-wals'
    this.#trouble = this.#refusal = this.#replaced = undefined
    this.#isDiverged = false
    if (this.lagEntries === 0) this.#caughtUpMs = monotonicMs
    void this.#look()
    const { upstream } = this.#parts.state.now
    if (upstream && beat.addresses.join() !== upstream.known.join()) void this.#learn(beat.addresses)
  }

  /** The primary has other addresses now: they are dialled after the one that was handed over. */
  async #learn(known: string[]): Promise<void> {
    try {
      await this.#parts.state.change(({ upstream }) => ({ upstream: upstream && { ...upstream, known } }))
    } catch (error) {
      this.#parts.logger.warn('the addresses of the primary could not be saved', { error: messageOf(error) })
    }
  }
}

/** For all who may ask for the status: without the paths of this machine, which are in the log. */
function troubleOf(error: unknown): string {
  const cause = error instanceof LinkError ? error.cause : error
  if (!(cause instanceof StoreError)) return messageOf(error)
  return cause.kind === 'full'
    ? 'no space is left on the disk of this secondary: free some, and it goes on by itself'
    : `this secondary cannot write (${cause.kind}): its log says why`
}

/** The first of its addresses that answers, one after the other. Rejects with a LinkError. */
async function dialFirst(upstream: KnownUpstream, answerMs: number, signal: AbortSignal): Promise<LinkClient> {
  let failure: unknown
  for (const address of new Set([upstream.address, ...upstream.known])) {
    signal.throwIfAborted()
    try {
      return await LinkClient.connect(upstream, address, answerMs, signal)
    } catch (error) {
      failure ??= error
    }
  }
  throw linkErrorOf(failure)
}

/**
 * Pings addresses one at a time; resolves with the first at which the primary of this set answers. Rejects with a Refusal that
 * says of each why not.
 */
export async function firstThatAnswers(
  upstream: KnownUpstream,
  addresses: readonly string[],
  answerMs: number,
): Promise<{ readonly address: string }> {
  const failures: string[] = []
  for (const address of addresses) {
    try {
      // oxlint-disable-next-line no-await-in-loop
      const link = await LinkClient.connect(upstream, address, answerMs)
      try {
        const { setId } = await link.call('Ping', {}, answerMs)
        if (setId === upstream.setId) return { address }
        failures.push(`${address}: it is of another replication set`)
      } finally {
        link.close()
      }
    } catch (error) {
      failures.push(`${address}: ${messageOf(error)}`)
    }
  }
  throw new Refusal('invalid_request', `none of the addresses is the primary's: ${failures.join('; ')}`)
}

/** Says who we are. `isTrial`: nothing changes on the primary. Rejects with a LinkError. */
export async function joinPrimary(
  link: LinkClient,
  upstream: KnownUpstream,
  parts: Pick<SecondaryParts, 'store' | 'version' | 'addresses' | 'nowMs' | 'times'> & {
    readonly proofs?: Proofs
    readonly state?: ReplicationState
  },
  isTrial: boolean,
): Promise<Joined> {
  const { version, addresses, nowMs, proofs, state, store, times } = parts
  const session = await sessionOf(link, upstream.id, times.answerMs)
  const about = { protocol: PROTOCOL, version, isTrial, nonce: upstream.nonce, atMs: nowMs(), ...addresses() }
  // Of a cluster that is going to be wiped, its own history means nothing.
  const epoch = isTrial || !state ? 0 : claimedEpoch(state, store)
  const proof = session && proofs?.of(statements.join(session, epoch))
  const joined = await link.call('Join', { ...about, position: store.position(), epoch, proof }, times.answerMs)
  if (joined.setId !== upstream.setId) throw new LinkError('set', 'the primary is of another replication set')
  if (joined.protocol !== PROTOCOL) {
    throw new LinkError('version', `the primary speaks version ${joined.protocol} of the link, this end ${PROTOCOL}`)
  }
  return { ...joined, session }
}

/** The epoch that this cluster claims to have seen: not above the one that it may prove. */
export function claimedEpoch({ now }: Pick<ReplicationState, 'now'>, store: Pick<ReplicaStore, 'epoch'>): number {
  return Math.min(store.epoch, now.provenEpoch ?? 0)
}

/** What proofs on this connection are made for; undefined where the primary, of an older version, gives no nonce. */
export async function sessionOf(link: LinkClient, id: string, answerMs: number): Promise<Session | undefined> {
  const { nonce } = await link.call('Ping', {}, answerMs)
  return nonce && { id, nonce }
}
