/**
 * The primary: the secondaries that it knows, and what it does for each of them. It issues certificates, judges who may
 * join, ships its log (`follower.ts`), answers what a comparison of trees asks, and keeps of its log what the slowest secondary lacks.
 *
 * A certificate may be in the hands of a thief. What fences this primary needs a proof of membership (`claims.ts`), and so does
 * an acknowledgement that a synchronous commit relies on. One connection of a secondary follows: another one takes its place
 * only where it has a proof and the first has none, or does not answer.
 */
import { sleep } from '../../platform/clock.ts'
import { messageOf } from '../../platform/errors.ts'
import type { Position } from '../../storage/store/replica.ts'
import { notAcknowledged } from '../../storage/sqlite/store-error.ts'
import { Alarms } from '../state/alarms.ts'
import { Bandwidth } from '../link/bandwidth.ts'
import type { Bundle } from '../link/bundle.ts'
import { Claims, type Deposed } from './claims.ts'
import { checkEpoch } from '../link/epoch.ts'
import { firstOfStream, Follower } from './follower.ts'
import { LinkError } from '../link/link.ts'
import { type FollowCall, LinkServer, type LinkService, type Peer } from '../link/link-server.ts'
import { PROTOCOL, type RequestOf, type ResponseOf } from '../link/messages.ts'
import type { LinkTimings, ReplicationParts } from '../state/parts.ts'
import { Presence } from './presence.ts'
import { type Proofs, type Session, type Statement, statements, type Verdict } from '../link/proofs.ts'
import { Registry } from './registry.ts'
import { isOwedTo, type KnownSecondary, type ReplicationState, type State } from '../state/state.ts'
import { Sync, type Together } from './sync.ts'
import { TreeAnswers } from '../tree/tree-answers.ts'

/** Between two looks at a condition that is waited for. */
const LOOK_MS = 20
/** A planned switch: how long secondaries may take for what this primary committed last. */
const DRAIN_MS = 10_000
/** The saved progress of a connected secondary may be so old after a kill. */
const SAVE_INTERVAL_MS = 60_000
const TAKEN = 'another connection with this certificate follows this primary'

export interface PrimaryParts extends ReplicationParts {
  readonly state: ReplicationState
  readonly proofs: Proofs
  readonly times: LinkTimings
  readonly nowMs: () => number
  /** Another cluster is the primary. Resolves when this one takes no more writes. */
  readonly onDeposed: (by: Deposed) => Promise<void>
}

export class Primary {
  readonly #parts: PrimaryParts
  readonly #followers = new Map<string, Follower>()
  readonly #bandwidth: Bandwidth
  readonly #registry: Registry
  readonly #trees: TreeAnswers
  readonly #claims: Claims
  readonly presence: Presence
  readonly alarms: Alarms
  readonly sync: Sync
  #server: LinkServer | undefined
  #upkeep: NodeJS.Timeout | undefined
  #saves: NodeJS.Timeout | undefined
  #kept: number | undefined
  /** When a secondary was heard last. */
  #heardAtMs = performance.now()
  #onHeard: (id: string) => void = () => undefined

  constructor(parts: PrimaryParts) {
    this.#parts = parts
    this.#bandwidth = new Bandwidth(parts.settings.bandwidthBytes)
    const { logger, proofs, settings, store } = parts
    this.alarms = new Alarms(logger)
    this.#claims = new Claims(proofs, this.alarms)
    this.presence = new Presence(parts.nowMs, parts.times.silenceMs)
    this.#registry = new Registry(parts)
    this.#trees = new TreeAnswers(store, this.#bandwidth, logger)
    this.sync = new Sync(store, logger, settings.syncTimeoutMs, () => this.#together())
  }

  get #state(): State {
    return this.#parts.state.now
  }

  /** Makes the authority where there is none yet (the core is open then), listens, and begins its upkeep. */
  async start({ mayMake }: { readonly mayMake: boolean }): Promise<void> {
    if (mayMake && !this.#state.authority) await this.#registry.makeAuthority()
    await this.#listen()
    this.resumeSync()
    this.#upkeep ??= setInterval(() => void this.#keep(), this.#parts.times.beatMs)
    this.#saves ??= setInterval(() => void this.#remember(), SAVE_INTERVAL_MS)
    await this.#keep()
  }

  async stop(): Promise<void> {
    clearInterval(this.#upkeep)
    clearInterval(this.#saves)
    this.#upkeep = this.#saves = undefined
    this.sync.stop()
    const followers = [...this.#followers.values()]
    for (const follower of followers) {
      follower.end()
      this.#left(follower, 'info')
    }
    this.#server?.close()
    this.#server = undefined
    await this.#remember(followers)
    await this.#parts.store.keepLogBehind(undefined)
  }

  /** Nothing is committed any more: resolves when all connected secondaries have everything, or after a while. */
  async drain(): Promise<void> {
    const { sequence } = this.#parts.store.position()
    const untilMs = performance.now() + DRAIN_MS
    const isBehind = () =>
      [...this.#followers.values()].some(
        (one) => (one.isAuthenticated ? (one.proven ?? 0) : one.acknowledged) < sequence,
      )
    while (isBehind() && performance.now() < untilMs) await sleep(LOOK_MS)
    if (isBehind()) this.#parts.logger.warn('a secondary lacks commits of this primary, which becomes a secondary')
    this.giveUp()
  }

  /** Commits that still wait for a secondary fail: this one may not be the primary when they arrive there. */
  giveUp(): void {
    this.sync.stop(notAcknowledged())
  }

  /** Commits wait for secondaries, where the settings say so and this cluster was not replaced. */
  resumeSync(): void {
    if (this.#parts.settings.sync && this.#state.deposed === undefined) this.sync.start()
  }

  /** This cluster was unsealed: resolves when it takes no more writes where a claim that came before is proven. */
  async settleClaims(): Promise<void> {
    const { proven, unproven } = this.#claims.take()
    for (const { by } of proven) await this.#parts.onDeposed(by)
    if (proven.length > 0 || unproven.length === 0) return
    // A thief may have displaced the claim of the member, which repeats it and can be verified now.
    const isOpen = (id: string) => !this.#followers.get(id)?.isAuthenticated
    const untilMs = performance.now() + this.#parts.times.startMs
    while (!this.#state.deposed && unproven.some(isOpen) && performance.now() < untilMs) await sleep(LOOK_MS)
  }

  /** Another cluster is the primary: secondaries are sent there. */
  deposed(): void {
    this.giveUp()
    const error = this.#registry.deposedError
    if (error) for (const follower of this.#followers.values()) follower.refuse(error)
  }

  /** Where it listens; undefined while it does not. */
  get address(): { readonly host: string; readonly port: number } | undefined {
    return this.#server?.address
  }

  /** Those that have joined. */
  get active(): readonly KnownSecondary[] {
    return this.#state.secondaries.filter(({ status }) => status === 'active')
  }

  get followers(): ReadonlyMap<string, Follower> {
    return this.#followers
  }

  /** For how long no secondary was heard, in milliseconds; 0 when there is none to be heard. */
  get silenceMs(): number {
    if (this.active.length === 0) return 0
    return performance.now() - this.#heardAtMs
  }

  async #listen(): Promise<void> {
    const { authority } = this.#state
    if (this.#server || !authority) return
    const { listenAddress, logger } = this.#parts
    this.#server = await LinkServer.listen({
      ...listenAddress,
      authority: authority.certificate,
      identity: { certificate: authority.serverCertificate, key: authority.serverKey },
      service: this.#service(),
      logger,
    })
  }

  /** Resolves with what the secondary is activated with, as text where it was sealed to a key. Rejects with a Refusal. */
  async issue(asked: Parameters<Registry['issue']>[0]): Promise<Bundle | string> {
    this.#registry.check(asked.id)
    if (!this.#server) await this.start({ mayMake: true })
    return this.#registry.issue(asked)
  }

  /** Rejects with a Refusal for an ID that is not known. */
  async revoke(id: string): Promise<void> {
    const fingerprint = await this.#registry.revoke(id)
    this.#claims.forget(id)
    this.presence.forget(id)
    this.#followers.get(id)?.refuse(new LinkError('revoked', 'this secondary was revoked'))
    this.#server?.cut(fingerprint)
    this.sync.look()
    await this.#keep()
  }

  /** Calls back with each secondary that is heard. */
  set onHeard(listener: (id: string) => void) {
    this.#onHeard = listener
  }

  /**
   * Silence is measured by words that come with a proof, once a secondary has proven that it is whole: a thief of its certificate
   * could keep this primary from fencing itself. A sealed primary can verify nothing, and takes no writes.
   */
  #heard(id: string, isProven = false): void {
    const needsProof = this.#state.secondaries.some(({ wasWhole }) => wasWhole) && !this.#parts.proofs.isSealed
    if (isProven || !needsProof) this.#heardAtMs = performance.now()
    this.presence.heard(id)
    this.#onHeard(id)
  }

  #service(): LinkService {
    const { store } = this.#parts
    return {
      unary: {
        Join: (peer, request) => this.#join(peer, request),
        Fence: (peer, request) => this.#fence(peer, request),
        Ping: async (peer) => {
          this.#registry.known(peer)
          const { nonce } = peer.connection
          return { position: store.position(), epoch: store.epoch, setId: this.#state.setId, nonce }
        },
        Pages: (peer) => this.#ruled(peer, () => this.#trees.pages()),
        Subpages: (peer, request) => this.#ruled(peer, () => this.#trees.subpages(request)),
        Leaves: (peer, request) => this.#ruled(peer, () => this.#trees.leaves(request)),
      },
      follow: (peer, call) => this.#follow(peer, call),
      values: (peer, request) => this.#values(peer, request),
    }
  }

  async #ruled<T>(peer: Peer, answer: () => Promise<T>): Promise<T> {
    this.#notice(this.#registry.ruling(peer), peer)
    return answer()
  }

  async *#values(peer: Peer, request: RequestOf<'Values'>): AsyncGenerator<ResponseOf<'Values'>> {
    // Before anything is read for it.
    this.#notice(this.#registry.ruling(peer), peer)
    for await (const message of this.#trees.values(request)) {
      this.#heard(this.#registry.ruling(peer).id, peer.connection.isProven)
      yield message
    }
  }

  async #join(peer: Peer, asked: RequestOf<'Join'>): Promise<ResponseOf<'Join'>> {
    const known = this.#registry.known(peer)
    this.#registry.judge(known, asked)
    const { proof } = asked
    const statement = statements.join(sessionOf(known, peer), asked.epoch)
    const isProven = this.#isProven(peer, statement, proof)
    this.#heard(known.id, isProven)
    // A cluster that only wants to know whether it could join has a history, and an epoch, of its own.
    if (!asked.isTrial) {
      const { api, cluster, epoch } = asked
      await this.#depose(known, peer, { statement, proof, by: { epoch, addresses: [cluster], api } })
    }
    const error = this.#registry.deposedError
    if (error) throw error
    const { state, store, version } = this.#parts
    const position = store.position()
    if (!asked.isTrial) {
      await this.#admit(known, peer, isProven)
      const acknowledged = store.holds(asked.position) ? asked.position.sequence : position.sequence
      await state.change(({ notice, secondaries }) => ({
        notice: isProven && isOwedTo(notice, asked.cluster) ? undefined : notice,
        secondaries: secondaries.map((one) =>
          one.id === known.id
            ? { ...one, status: 'active', api: asked.api, cluster: asked.cluster, acknowledged }
            : one,
        ),
      }))
      await this.#keep()
    }
    return {
      ...this.#about(position),
      protocol: PROTOCOL,
      version,
      setId: this.#state.setId,
      clusterId: store.clusterId,
      forks: this.#state.forks,
      bytes: this.#bytes(),
    }
  }

  #bytes(): number {
    const { store } = this.#parts
    return 'fileBytes' in store && typeof store.fileBytes === 'number' ? store.fileBytes : 0
  }

  /** What each heartbeat and the answer to a join tell. */
  #about(position: Position) {
    const { store, nowMs } = this.#parts
    const { api } = this.#parts.addresses()
    return { position, epoch: store.epoch, atMs: nowMs(), addresses: [this.#registry.clusterAddress()], api }
  }

  #verdict({ connection }: Peer, statement: Statement, proof: Uint8Array | undefined): Verdict {
    const verdict = this.#parts.proofs.verify(statement, proof)
    if (verdict === 'valid') connection.isProven = true
    return verdict
  }

  #isProven(peer: Peer, statement: Statement, proof: Uint8Array | undefined): boolean {
    return this.#verdict(peer, statement, proof) === 'valid'
  }

  /** A member that has seen a higher epoch has seen a newer primary. Throws a LinkError for one that does not prove it. */
  async #depose(
    { id }: KnownSecondary,
    { address }: Peer,
    claim: { readonly statement: Statement; readonly proof: Uint8Array | undefined; readonly by: Deposed },
  ): Promise<void> {
    const { store, onDeposed } = this.#parts
    if (claim.by.epoch <= store.epoch) return
    checkEpoch(claim.by.epoch, store.epoch)
    const by = { ...claim.by, provenBy: id }
    this.#claims.check({ ...claim, id, address, by })
    await onDeposed(by)
  }

  async #fence(peer: Peer, asked: RequestOf<'Fence'>): Promise<ResponseOf<'Fence'>> {
    const known = this.#registry.joined(peer)
    const { id } = known
    const { onDeposed, proofs, store } = this.#parts
    checkEpoch(asked.epoch, store.epoch)
    // A secondary of this primary was promoted. Its epoch may be no higher than ours when a snapshot was restored here: it is told.
    const { epoch } = store
    const { addresses, api, nonce, proof } = asked
    const by = { epoch: Math.max(asked.epoch, epoch), addresses, api, heir: id, provenBy: id }
    const statement = statements.fence(sessionOf(known, peer), asked)
    this.#heard(id, this.#isProven(peer, statement, proof))
    this.#claims.check({ id, address: peer.address, statement, proof, by })
    await onDeposed(by)
    const { deposed } = this.#state
    // Two were promoted: this cluster is the one place where they meet, and the first notice counts.
    const isSecond = deposed?.heir !== undefined && deposed.heir !== id && asked.epoch <= deposed.epoch
    const rival = isSecond ? { epoch: deposed.epoch, addresses: deposed.addresses, api: deposed.api } : undefined
    return { epoch, rival, proof: proofs.of(statements.fenced(nonce, epoch, rival)) }
  }

  /** A secondary asks on the connection on which it follows. */
  #notice({ id }: KnownSecondary, peer: Peer): void {
    this.#heard(id, peer.connection.isProven)
    if (this.#rivalOf(id, peer)) this.#alarm(id, peer)
  }

  /** The follower of the same secondary on another connection. */
  #rivalOf(id: string, { connection }: Peer): Follower | undefined {
    const current = this.#followers.get(id)
    return current && !current.isEnded && current.nonce !== connection.nonce ? current : undefined
  }

  #alarm(id: string, { address }: Peer): void {
    this.alarms.raise('duplicate', id, { address, connected: this.#followers.get(id)?.address ?? '' })
  }

  /**
   * Ends the connection that follows with the same certificate where this one may take its place: it has a proof, and the
   * other one has none or does not answer. Rejects with a LinkError otherwise: a lost connection ends by its silence, and
   * the secondary dials again.
   */
  async #admit({ id }: KnownSecondary, peer: Peer, isProven: boolean): Promise<void> {
    for (let rival = this.#rivalOf(id, peer); rival; rival = this.#rivalOf(id, peer)) {
      const isLive = await rival.answers(2 * this.#parts.times.beatMs)
      if (rival.isEnded) continue
      if (isLive) this.#alarm(id, peer)
      if (!isProven || (isLive && rival.isAuthenticated)) throw new LinkError('busy', TAKEN)
      rival.refuse(new LinkError('busy', 'another connection with this certificate has proven its membership'))
    }
  }

  async #follow(peer: Peer, call: FollowCall): Promise<void> {
    const from = await firstOfStream(call, this.#parts.times.answerMs)
    const known = this.#registry.ruling(peer)
    const { api, cluster, epoch, proof } = from
    const session = sessionOf(known, peer)
    const statement = statements.follow(session, epoch)
    const isProven = this.#isProven(peer, statement, proof)
    this.#heard(known.id, isProven)
    await this.#depose(known, peer, { statement, proof, by: { epoch, addresses: [cluster], api } })
    await this.#admit(known, peer, isProven)
    this.#registry.ruling(peer)
    // Another one may have come while this one waited.
    if (this.#rivalOf(known.id, peer)) throw new LinkError('busy', TAKEN)
    const { settings, store, logger, proofs, times, nowMs } = this.#parts
    this.#followers.get(known.id)?.refuse(new LinkError('busy', 'the same secondary follows on a newer connection'))
    const follower = new Follower(
      {
        id: known.id,
        address: peer.address,
        nonce: peer.connection.nonce,
        caughtUpMs: this.presence.caughtUpMs(known),
        isAuthenticated: isProven,
        verify: ({ isWhole, position, proof: given }) =>
          this.#verdict(peer, statements.acknowledgement(session, position, isWhole), given),
        onHeard: () => this.#heard(known.id, follower.isAuthenticated),
        onRejected: () => this.alarms.raise('proof', known.id, { address: peer.address, proof: 'invalid' }),
        store,
        logger,
        timings: times,
        bandwidth: this.#bandwidth,
        window: { rows: settings.bufferLength, bytes: settings.bufferBytes },
        beat: () => ({ ...this.#about(store.position()), sync: this.sync.state, isSealed: proofs.isSealed }),
        isAwaited: () => this.sync.state === 'on',
        onProgress: () => this.#progress(follower),
        now: nowMs,
      },
      call,
    )
    this.#followers.set(known.id, follower)
    peer.connection.isFollowed = true
    this.presence.follows(known.id)
    logger.info('DR secondary connected', { id: known.id, address: peer.address, from: from.position.sequence })
    try {
      await follower.run(from)
    } finally {
      peer.connection.isFollowed = false
      if (this.#followers.get(known.id) === follower) {
        // The end of a revoked secondary was asked for.
        this.#left(follower, this.active.some(({ id }) => id === known.id) ? 'warn' : 'info')
        await this.#remember([follower])
      }
    }
  }

  #left(follower: Follower, level: 'info' | 'warn'): void {
    const { acknowledged, endReason, id, isComparing } = follower
    this.#followers.delete(id)
    this.presence.left(follower, endReason)
    if (!isComparing) this.#parts.logger[level]('DR secondary disconnected', { id, reason: endReason, acknowledged })
  }

  #progress(follower: Follower): void {
    if (follower.isCaughtUp && !this.#state.secondaries.find(({ id }) => id === follower.id)?.wasWhole) {
      void this.#remember()
    }
    this.sync.look()
  }

  /** What is known of connected secondaries goes into the state, for the time in which they are not. */
  async #remember(left: readonly Follower[] = []): Promise<void> {
    if (this.#state.secondaries.every((one) => this.#newer(one, left) === one)) return
    try {
      await this.#parts.state.change(({ secondaries }) => ({
        secondaries: secondaries.map((one) => this.#newer(one, left)),
      }))
      this.sync.look()
    } catch (error) {
      this.#parts.logger.warn('the progress of secondaries could not be saved', { error: messageOf(error) })
    }
  }

  /** `left`: those that follow no more, and whose last acknowledgement is not saved. */
  #newer(one: KnownSecondary, left: readonly Follower[]): KnownSecondary {
    const follower = this.#followers.get(one.id) ?? left.find(({ id }) => id === one.id)
    if (!follower) return one
    return {
      ...one,
      acknowledged: Math.max(follower.acknowledged, one.acknowledged ?? 0),
      wasWhole: one.wasWhole || follower.isCaughtUp,
      caughtUpAtMs: this.presence.caughtUpAtMs(one, follower),
    }
  }

  #acknowledgedBy(one: KnownSecondary): number {
    return this.#followers.get(one.id)?.acknowledged ?? one.acknowledged ?? 0
  }

  #together(): Together | undefined {
    const members = this.#state.secondaries.filter((one) => one.status === 'active' && one.wasWhole)
    if (members.length === 0) return undefined
    return {
      acknowledged: Math.min(...members.map((one) => this.#followers.get(one.id)?.proven ?? -1)),
      isCaughtUp: members.every((one) => this.#followers.get(one.id)?.isCaughtUp),
    }
  }

  /** The log keeps what the slowest active secondary lacks. */
  async #keep(): Promise<void> {
    const { active } = this
    const slowest = active.length === 0 ? undefined : Math.min(...active.map((one) => this.#acknowledgedBy(one)))
    if (slowest === this.#kept) return
    this.#kept = slowest
    try {
      await this.#parts.store.keepLogBehind(slowest)
    } catch (error) {
      this.#parts.logger.debug('the log could not be told what to keep', { error: messageOf(error) })
    }
  }
}

function sessionOf({ id }: KnownSecondary, { connection }: Peer): Session {
  return { id, nonce: connection.nonce }
}
