/**
 * The primary: issues certificates to secondaries, decides which may join, ships its log (`connected-secondary.ts`), answers Merkle
 * comparisons, and retains the log that the slowest secondary lacks.
 *
 * A certificate may be stolen. Fencing this primary takes a proof of membership (`promotion-claims.ts`), and so does
 * an acknowledgement that a synchronous commit relies on. Each secondary has one connection: another one replaces it only with a proof,
 * where the first has none or does not respond.
 */
import { sleep } from '../../platform/clock.ts'
import { messageOf } from '../../platform/errors.ts'
import type { CommitPosition } from '../../storage/store/replica.ts'
import { notAcknowledged } from '../../storage/sqlite/store-error.ts'
import { SecurityAlarms } from './security-alarms.ts'
import { BandwidthLimiter } from '../../platform/token-bucket.ts'
import type { Bundle } from '../link/bundle.ts'
import { PromotionClaims, type NewerPrimary } from './promotion-claims.ts'
import { checkEpoch, LinkError } from '../link/link.ts'
import { firstFollowMessage, ConnectedSecondary } from './connected-secondary.ts'
import { type FollowCall, LinkServer, type LinkService, type Peer } from '../link/link-server.ts'
import { PROTOCOL, type RequestOf, type ResponseOf } from '../link/messages.ts'
import type { LinkTimings, ReplicationContext } from '../state/replication-context.ts'
import { SecondaryPresence } from './secondary-presence.ts'
import { type Proofs, type ProofSession, type Statement, statements, type ProofVerdict } from '../link/proofs.ts'
import { SecondaryRegistry } from './secondary-registry.ts'
import {
  isOwedTo,
  type KnownSecondary,
  type ReplicationState,
  type ReplicationRecord,
} from '../state/replication-state.ts'
import { SyncReplication, type SyncProgress } from './sync-replication.ts'
import { MerkleResponder } from './merkle-responder.ts'

const POLL_INTERVAL_MS = 20
/** How long a demotion without a chosen secondary waits for all secondaries. */
const DRAIN_MS = 10_000
/** After a kill the saved progress of a connected secondary is at most so old. */
const SAVE_INTERVAL_MS = 60_000
const OTHER_CONNECTION = 'this secondary is already connected with the same certificate'

export interface PrimaryContext extends ReplicationContext {
  readonly state: ReplicationState
  readonly proofs: Proofs
  readonly times: LinkTimings
  readonly nowMs: () => number
  /** Another cluster is the primary. Resolves when this one is fenced. */
  readonly onDeposed: (by: NewerPrimary) => Promise<void>
}

export class Primary {
  readonly #context: PrimaryContext
  readonly #connected = new Map<string, ConnectedSecondary>()
  readonly #bandwidth: BandwidthLimiter
  readonly #registry: SecondaryRegistry
  readonly #merkle: MerkleResponder
  readonly claims: PromotionClaims
  readonly presence: SecondaryPresence
  readonly alarms: SecurityAlarms
  readonly sync: SyncReplication
  #server: LinkServer | undefined
  #retentionTimer: NodeJS.Timeout | undefined
  #saveTimer: NodeJS.Timeout | undefined
  #retainedAfter: number | undefined
  /** When a secondary last sent a message. */
  #lastMessageAtMs = performance.now()
  #onHeard: (id: string) => void = () => undefined

  constructor(context: PrimaryContext) {
    this.#context = context
    this.#bandwidth = new BandwidthLimiter(context.settings.bandwidthBytes)
    const { logger, proofs, settings, store } = context
    this.alarms = new SecurityAlarms(logger)
    this.claims = new PromotionClaims(proofs, this.alarms)
    this.presence = new SecondaryPresence(context.nowMs, context.times.silenceMs)
    this.#registry = new SecondaryRegistry(context)
    this.#merkle = new MerkleResponder(store, this.#bandwidth, logger)
    this.sync = new SyncReplication(store, logger, settings.syncTimeoutMs, () => this.#syncProgress())
  }

  get #state(): ReplicationRecord {
    return this.#context.state.now
  }

  /** Creates the certificate authority if there is none (only while unsealed), listens, and starts its timers. */
  async start({ mayCreateAuthority }: { readonly mayCreateAuthority: boolean }): Promise<void> {
    if (mayCreateAuthority && !this.#state.authority) await this.#registry.makeAuthority()
    await this.#listen()
    this.resumeSync()
    this.#retentionTimer ??= setInterval(() => void this.#retainLog(), this.#context.times.heartbeatMs)
    this.#saveTimer ??= setInterval(() => void this.#saveProgress(), SAVE_INTERVAL_MS)
    await this.#retainLog()
  }

  async stop(): Promise<void> {
    clearInterval(this.#retentionTimer)
    clearInterval(this.#saveTimer)
    this.#retentionTimer = this.#saveTimer = undefined
    this.sync.stop()
    const connected = [...this.#connected.values()]
    for (const secondary of connected) {
      secondary.end()
      this.#disconnected(secondary, 'info')
    }
    this.#server?.close()
    this.#server = undefined
    await this.#saveProgress(connected)
    await this.#context.store.keepLogBehind(undefined)
  }

  /** After the last commit: resolves when all connected secondaries have everything, or after `DRAIN_MS`. */
  async drain(): Promise<void> {
    const { sequence } = this.#context.store.position()
    const untilMs = performance.now() + DRAIN_MS
    const isBehind = () =>
      [...this.#connected.values()].some(
        (one) => (one.isAuthenticated ? (one.proven ?? 0) : one.acknowledged) < sequence,
      )
    while (isBehind() && performance.now() < untilMs) await sleep(POLL_INTERVAL_MS)
    if (isBehind()) this.#context.logger.warn('this primary was demoted before a DR secondary had all commits')
    this.failWaitingCommits()
  }

  /** Waiting commits fail: this cluster may no longer be the primary when a secondary acknowledges them. */
  failWaitingCommits(): void {
    this.sync.stop(notAcknowledged())
  }

  /** Starts synchronous replication if it is configured and this cluster was not replaced. */
  resumeSync(): void {
    if (this.#context.settings.sync && this.#state.deposed === undefined) this.sync.start()
  }

  /** After an unseal: verifies earlier claims. Resolves when this cluster is fenced if one is valid. */
  async verifyPendingClaims(): Promise<void> {
    const { proven, unproven } = this.claims.verifyPending()
    for (const { by } of proven) await this.#context.onDeposed(by)
    if (proven.length > 0 || unproven.length === 0) return
    // A thief may have displaced the claim of the member, which repeats it; it can be verified now.
    const isOpen = (id: string) => !this.#connected.get(id)?.isAuthenticated
    const untilMs = performance.now() + this.#context.times.startMs
    while (!this.#state.deposed && unproven.some(isOpen) && performance.now() < untilMs) await sleep(POLL_INTERVAL_MS)
  }

  /** Another cluster is the primary: redirects the secondaries. */
  deposed(): void {
    this.failWaitingCommits()
    const error = this.#registry.deposedError
    if (error) for (const connected of this.#connected.values()) connected.refuse(error)
  }

  get address(): { readonly host: string; readonly port: number } | undefined {
    return this.#server?.address
  }

  /** Secondaries that have joined. */
  get active(): readonly KnownSecondary[] {
    return this.#state.secondaries.filter(({ status }) => status === 'active')
  }

  get connected(): ReadonlyMap<string, ConnectedSecondary> {
    return this.#connected
  }

  /** Time since the last message of any secondary; 0 without secondaries. */
  get silenceMs(): number {
    if (this.active.length === 0) return 0
    return performance.now() - this.#lastMessageAtMs
  }

  async #listen(): Promise<void> {
    const { authority } = this.#state
    if (this.#server || !authority) return
    const { listenAddress, logger } = this.#context
    this.#server = await LinkServer.listen({
      ...listenAddress,
      authority: authority.certificate,
      identity: { certificate: authority.serverCertificate, key: authority.serverKey },
      service: this.#service(),
      logger,
    })
  }

  /** Resolves to the activation, as text if it was sealed to a key. Rejects with a Refusal. */
  async issue(request: Parameters<SecondaryRegistry['issue']>[0]): Promise<Bundle | string> {
    this.#registry.checkIssuable(request.id)
    if (!this.#server) await this.start({ mayCreateAuthority: true })
    return this.#registry.issue(request)
  }

  /** Rejects with a Refusal for an ID that is not known. */
  async revoke(id: string): Promise<void> {
    const fingerprint = await this.#registry.revoke(id)
    this.claims.forget(id)
    this.presence.forget(id)
    this.#connected.get(id)?.refuse(new LinkError('revoked', 'this secondary was revoked'))
    this.#server?.cut(fingerprint)
    this.sync.update()
    await this.#retainLog()
  }

  /** Called with the ID at every message of a secondary. */
  set onHeard(listener: (id: string) => void) {
    this.#onHeard = listener
  }

  /**
   * Once a secondary has proven that its initial sync is complete, only messages with a proof end silence: an attacker with its certificate
   * could keep this primary from fencing itself. A sealed primary cannot verify and accepts no writes. A notice of a promotion is not
   * a connection of the secondary: it is repeated while this primary is sealed.
   */
  #heard(id: string, isProven = false, isNotice = false): void {
    const needsProof = this.#state.secondaries.some(({ wasWhole }) => wasWhole) && !this.#context.proofs.isSealed
    if (isProven || !needsProof) this.#lastMessageAtMs = performance.now()
    if (!isNotice) this.presence.recordMessage(id)
    this.#onHeard(id)
  }

  #service(): LinkService {
    const { store } = this.#context
    return {
      unary: {
        Join: (peer, request) => this.#join(peer, request),
        Fence: (peer, request) => this.#fence(peer, request),
        Ping: async (peer) => {
          this.#registry.knownPeer(peer)
          const { nonce } = peer.connection
          return { position: store.position(), epoch: store.epoch, setId: this.#state.setId, nonce }
        },
        Pages: (peer) => this.#authorized(peer, () => this.#merkle.pages()),
        Subpages: (peer, request) => this.#authorized(peer, () => this.#merkle.subpages(request)),
        Leaves: (peer, request) => this.#authorized(peer, () => this.#merkle.leaves(request)),
      },
      follow: (peer, call) => this.#follow(peer, call),
      values: (peer, request) => this.#values(peer, request),
    }
  }

  async #authorized<T>(peer: Peer, answer: () => Promise<T>): Promise<T> {
    this.#noteRequest(this.#registry.authorize(peer), peer)
    return answer()
  }

  async *#values(peer: Peer, request: RequestOf<'Values'>): AsyncGenerator<ResponseOf<'Values'>> {
    this.#noteRequest(this.#registry.authorize(peer), peer)
    for await (const message of this.#merkle.values(request)) {
      this.#heard(this.#registry.authorize(peer).id, peer.connection.isProven)
      yield message
    }
  }

  async #join(peer: Peer, request: RequestOf<'Join'>): Promise<ResponseOf<'Join'>> {
    const known = this.#registry.knownPeer(peer)
    this.#registry.checkJoin(known, request)
    const { proof } = request
    const statement = statements.join(proofSessionOf(known, peer), request.epoch)
    const isProven = this.#isProven(peer, statement, proof)
    this.#heard(known.id, isProven)
    // A cluster in preflight has an unrelated history and epoch.
    if (!request.isTrial) {
      const { api, cluster, epoch } = request
      await this.#depose(known, peer, { statement, proof, by: { epoch, addresses: [cluster], api } })
    }
    const error = this.#registry.deposedError
    if (error) throw error
    const { state, store, version } = this.#context
    const position = store.position()
    if (!request.isTrial) {
      await this.#admit(known, peer, isProven)
      const acknowledged = store.holds(request.position) ? request.position.sequence : position.sequence
      await state.change(({ notice, secondaries }) => ({
        notice: isProven && isOwedTo(notice, request.cluster) ? undefined : notice,
        secondaries: secondaries.map((one) =>
          one.id === known.id
            ? { ...one, status: 'active', api: request.api, cluster: request.cluster, acknowledged }
            : one,
        ),
      }))
      await this.#retainLog()
    }
    return {
      ...this.#announcement(position),
      protocol: PROTOCOL,
      version,
      setId: this.#state.setId,
      clusterId: store.clusterId,
      forks: this.#state.forks,
      bytes: this.#bytes(),
    }
  }

  #bytes(): number {
    const { store } = this.#context
    return 'fileBytes' in store && typeof store.fileBytes === 'number' ? store.fileBytes : 0
  }

  /** Fields of each heartbeat and of the response to `Join`. */
  #announcement(position: CommitPosition = this.#context.store.position()) {
    const { store, nowMs } = this.#context
    const { api } = this.#context.addresses()
    return { position, epoch: store.epoch, atMs: nowMs(), addresses: [...this.#registry.clusterAddresses()], api }
  }

  #verdict({ connection }: Peer, statement: Statement, proof: Uint8Array | undefined): ProofVerdict {
    const verdict = this.#context.proofs.verify(statement, proof)
    if (verdict === 'valid') connection.isProven = true
    return verdict
  }

  #isProven(peer: Peer, statement: Statement, proof: Uint8Array | undefined): boolean {
    return this.#verdict(peer, statement, proof) === 'valid'
  }

  /** A member with a higher epoch has seen a newer primary. Throws a LinkError without a valid proof. */
  async #depose(
    { id }: KnownSecondary,
    { address }: Peer,
    claim: { readonly statement: Statement; readonly proof: Uint8Array | undefined; readonly by: NewerPrimary },
  ): Promise<void> {
    const { store, onDeposed } = this.#context
    if (claim.by.epoch <= store.epoch) return
    checkEpoch(claim.by.epoch, store.epoch)
    const by = { ...claim.by, provenBy: id }
    this.claims.check({ ...claim, id, address, by })
    await onDeposed(by)
  }

  async #fence(peer: Peer, request: RequestOf<'Fence'>): Promise<ResponseOf<'Fence'>> {
    const known = this.#registry.joinedPeer(peer)
    const { id } = known
    const { onDeposed, proofs, store } = this.#context
    checkEpoch(request.epoch, store.epoch)
    // After a restored snapshot the epoch of the promoted secondary may not be above ours; the reply has ours.
    const { epoch } = store
    const { addresses, api, nonce, proof } = request
    const by = { epoch: Math.max(request.epoch, epoch), addresses, api, heir: id, provenBy: id }
    const statement = statements.fence(proofSessionOf(known, peer), request)
    this.#heard(id, this.#isProven(peer, statement, proof), true)
    this.claims.check({ id, address: peer.address, statement, proof, by })
    await onDeposed(by)
    const { deposed } = this.#state
    // Two secondaries were promoted: only this cluster sees both, and the first notice wins.
    const isSecond = deposed?.heir !== undefined && deposed.heir !== id && request.epoch <= deposed.epoch
    const rival = isSecond ? { epoch: deposed.epoch, addresses: deposed.addresses, api: deposed.api } : undefined
    return { epoch, rival, proof: proofs.of(statements.fenced(nonce, epoch, rival)) }
  }

  /** Raises an alarm for a request on another connection than the secondary's `Follow` stream. */
  #noteRequest({ id }: KnownSecondary, peer: Peer): void {
    this.#heard(id, peer.connection.isProven)
    if (this.#rivalOf(id, peer)) this.#raiseDuplicate(id, peer)
  }

  /** The same secondary on another connection. */
  #rivalOf(id: string, { connection }: Peer): ConnectedSecondary | undefined {
    const current = this.#connected.get(id)
    return current && !current.isEnded && current.nonce !== connection.nonce ? current : undefined
  }

  #raiseDuplicate(id: string, { address }: Peer): void {
    this.alarms.raise('duplicate', id, { address, connected: this.#connected.get(id)?.address ?? '' })
  }

  /**
   * Closes another connection of the same secondary if this one may replace it: this one has a proof, and the other has none or does
   * not answer. Rejects with a LinkError otherwise: a lost connection times out, and the secondary reconnects.
   */
  async #admit({ id }: KnownSecondary, peer: Peer, isProven: boolean): Promise<void> {
    for (let rival = this.#rivalOf(id, peer); rival; rival = this.#rivalOf(id, peer)) {
      const isLive = await rival.probe(2 * this.#context.times.heartbeatMs)
      if (rival.isEnded) continue
      if (isLive) this.#raiseDuplicate(id, peer)
      if (!isProven || (isLive && rival.isAuthenticated)) throw new LinkError('busy', OTHER_CONNECTION)
      rival.refuse(new LinkError('busy', 'another connection with this certificate proved its membership'))
    }
  }

  async #follow(peer: Peer, call: FollowCall): Promise<void> {
    const from = await firstFollowMessage(call, this.#context.times.answerMs)
    const known = this.#registry.authorize(peer)
    const { api, cluster, epoch, proof } = from
    const session = proofSessionOf(known, peer)
    const statement = statements.follow(session, epoch)
    const isProven = this.#isProven(peer, statement, proof)
    this.#heard(known.id, isProven)
    await this.#depose(known, peer, { statement, proof, by: { epoch, addresses: [cluster], api } })
    await this.#admit(known, peer, isProven)
    this.#registry.authorize(peer)
    // Another one may have connected meanwhile.
    if (this.#rivalOf(known.id, peer)) throw new LinkError('busy', OTHER_CONNECTION)
    const { settings, store, logger, proofs, times, nowMs } = this.#context
    this.#connected.get(known.id)?.refuse(new LinkError('busy', 'the secondary connected again'))
    const connected = new ConnectedSecondary(
      {
        id: known.id,
        address: peer.address,
        nonce: peer.connection.nonce,
        caughtUpMs: this.presence.caughtUpMs(known),
        isAuthenticated: isProven,
        verify: ({ isWhole, position, proof: given }) =>
          this.#verdict(peer, statements.acknowledgement(session, position, isWhole), given),
        onMessage: () => this.#heard(known.id, connected.isAuthenticated),
        onRejected: () => this.alarms.raise('proof', known.id, { address: peer.address, proof: 'invalid' }),
        store,
        logger,
        timings: times,
        bandwidth: this.#bandwidth,
        window: { rows: settings.bufferLength, bytes: settings.bufferBytes },
        heartbeat: () => ({ ...this.#announcement(), sync: this.sync.state, isSealed: proofs.isSealed }),
        isAwaited: () => this.sync.state === 'on',
        onProgress: () => this.#progress(connected),
        now: nowMs,
      },
      call,
    )
    this.#connected.set(known.id, connected)
    peer.connection.isFollowed = true
    this.presence.connected(known.id)
    logger.info('DR secondary connected', { id: known.id, address: peer.address, from: from.position.sequence })
    try {
      await connected.run(from)
    } finally {
      peer.connection.isFollowed = false
      if (this.#connected.get(known.id) === connected) {
        // A disconnect after a revocation is expected.
        this.#disconnected(connected, this.active.some(({ id }) => id === known.id) ? 'warn' : 'info')
        await this.#saveProgress([connected])
      }
    }
  }

  #disconnected(connected: ConnectedSecondary, level: 'info' | 'warn'): void {
    const { acknowledged, endReason, id, isComparing } = connected
    this.#connected.delete(id)
    this.presence.disconnected(connected, endReason)
    if (!isComparing) this.#context.logger[level]('DR secondary disconnected', { id, reason: endReason, acknowledged })
  }

  #progress(connected: ConnectedSecondary): void {
    if (connected.isCaughtUp && !this.#state.secondaries.find(({ id }) => id === connected.id)?.wasWhole) {
      void this.#saveProgress()
    }
    this.sync.update()
  }

  /** Saves the progress of connected secondaries. `left`: disconnected ones with unsaved progress. */
  async #saveProgress(left: readonly ConnectedSecondary[] = []): Promise<void> {
    if (this.#state.secondaries.every((one) => this.#withProgress(one, left) === one)) return
    try {
      await this.#context.state.change(({ secondaries }) => ({
        secondaries: secondaries.map((one) => this.#withProgress(one, left)),
      }))
      this.sync.update()
    } catch (error) {
      this.#context.logger.warn('saving the progress of DR secondaries failed', { error: messageOf(error) })
    }
  }

  #withProgress(one: KnownSecondary, left: readonly ConnectedSecondary[]): KnownSecondary {
    const connected = this.#connected.get(one.id) ?? left.find(({ id }) => id === one.id)
    if (!connected) return one
    return {
      ...one,
      acknowledged: Math.max(connected.acknowledged, one.acknowledged ?? 0),
      wasWhole: one.wasWhole || connected.isCaughtUp,
      caughtUpAtMs: this.presence.caughtUpAtMs(one, connected),
    }
  }

  #acknowledgedBy(one: KnownSecondary): number {
    return this.#connected.get(one.id)?.acknowledged ?? one.acknowledged ?? 0
  }

  #syncProgress(): SyncProgress | undefined {
    const synced = this.#state.secondaries.filter((one) => one.status === 'active' && one.wasWhole)
    if (synced.length === 0) return undefined
    return {
      acknowledged: Math.min(...synced.map((one) => this.#connected.get(one.id)?.proven ?? -1)),
      isCaughtUp: synced.every((one) => this.#connected.get(one.id)?.isCaughtUp),
    }
  }

  /** The log retains what the slowest active secondary lacks. */
  async #retainLog(): Promise<void> {
    const { active } = this
    const slowest = active.length === 0 ? undefined : Math.min(...active.map((one) => this.#acknowledgedBy(one)))
    if (slowest === this.#retainedAfter) return
    this.#retainedAfter = slowest
    try {
      await this.#context.store.keepLogBehind(slowest)
    } catch (error) {
      this.#context.logger.debug('setting the log retention failed', { error: messageOf(error) })
    }
  }
}

function proofSessionOf({ id }: KnownSecondary, { connection }: Peer): ProofSession {
  return { id, nonce: connection.nonce }
}
