/**
 * The primary: the secondaries that it knows, and what it does for each of them. It gives out certificates, judges who may
 * join, ships its log (`follower.ts`), answers what a comparison of trees asks, and keeps of its log what the slowest secondary lacks.
 */
import { sleep } from '../kit/clock.ts'
import { messageOf } from '../kit/errors.ts'
import type { Position } from '../store/replica.ts'
import { notAcknowledged } from '../store/store-error.ts'
import { Bandwidth } from './bandwidth.ts'
import type { Bundle } from './bundle.ts'
import { checkEpoch } from './epoch.ts'
import { Follower } from './follower.ts'
import { LinkError } from './link.ts'
import { type FollowCall, LinkServer, type LinkService, type Peer } from './link-server.ts'
import { PROTOCOL, type RequestOf, type ResponseOf } from './messages.ts'
import type { LinkTimings, ReplicationParts } from './parts.ts'
import { Registry } from './registry.ts'
import type { KnownSecondary, ReplicationState, State } from './state.ts'
import { Sync, type Together } from './sync.ts'
import { TreeAnswers } from './tree-answers.ts'

const DRAIN_LOOK_MS = 20

/** Of a promotion elsewhere, as a peer tells it. */
export interface Deposed {
  readonly epoch: number
  readonly addresses: readonly string[]
  readonly api: string
  /** ID of the secondary that was promoted, where it says so itself. */
  readonly heir?: string
  /** This cluster was promoted, too, in the same epoch. */
  readonly isRival?: boolean
}

export interface PrimaryParts extends ReplicationParts {
  readonly state: ReplicationState
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
  readonly sync: Sync
  #server: LinkServer | undefined
  #upkeep: NodeJS.Timeout | undefined
  #kept: number | undefined
  /** When a secondary was heard last. */
  #heardAtMs = performance.now()
  #onHeard: (id: string) => void = () => undefined

  constructor(parts: PrimaryParts) {
    this.#parts = parts
    this.#bandwidth = new Bandwidth(parts.settings.bandwidthBytes)
    const { logger, settings, store } = parts
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
    if (this.#parts.settings.sync && this.#state.deposed === undefined) this.sync.start()
    this.#upkeep ??= setInterval(() => void this.#keep(), this.#parts.times.beatMs)
    await this.#keep()
  }

  async stop(): Promise<void> {
    clearInterval(this.#upkeep)
    this.#upkeep = undefined
    this.sync.stop()
    for (const follower of this.#followers.values()) follower.end()
    this.#server?.close()
    this.#server = undefined
    await this.#remember()
    await this.#parts.store.keepLogBehind(undefined)
  }

  /** Nothing is committed any more: resolves when all connected secondaries have everything, or after a while. */
  async drain(waitMs: number): Promise<void> {
    const { sequence } = this.#parts.store.position()
    const untilMs = performance.now() + waitMs
    const isBehind = () => [...this.#followers.values()].some((one) => one.acknowledged < sequence)
    while (isBehind() && performance.now() < untilMs) await sleep(DRAIN_LOOK_MS)
    if (isBehind()) this.#parts.logger.warn('a secondary lacks commits of this primary, which becomes a secondary')
    this.giveUp()
  }

  /** Commits that still wait for a secondary fail: this one may not be the primary when they arrive there. */
  giveUp(): void {
    this.sync.stop(notAcknowledged())
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
    const silences = [...this.#followers.values()].map(({ heartbeatAgeMs }) => heartbeatAgeMs)
    return Math.min(performance.now() - this.#heardAtMs, ...silences)
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
    this.#followers.get(id)?.refuse(new LinkError('revoked', 'this secondary was revoked'))
    this.#server?.cut(fingerprint)
    this.sync.look()
    await this.#keep()
  }

  /** Calls back with each secondary that is heard. */
  set onHeard(listener: (id: string) => void) {
    this.#onHeard = listener
  }

  #heard(id: string): void {
    this.#heardAtMs = performance.now()
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
          return { position: store.position(), epoch: store.epoch, setId: this.#state.setId }
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
    this.#heard(this.#registry.ruling(peer).id)
    return answer()
  }

  async *#values(peer: Peer, request: RequestOf<'Values'>): AsyncGenerator<ResponseOf<'Values'>> {
    // Before anything is read for it.
    this.#registry.ruling(peer)
    for await (const message of this.#trees.values(request)) {
      this.#heard(this.#registry.ruling(peer).id)
      yield message
    }
  }

  async #join(peer: Peer, asked: RequestOf<'Join'>): Promise<ResponseOf<'Join'>> {
    const known = this.#registry.known(peer)
    this.#registry.judge(known, asked)
    this.#heard(known.id)
    // A cluster that only wants to know whether it could join has a history, and an epoch, of its own.
    if (!asked.isTrial) await this.#depose(asked.epoch, { addresses: [asked.cluster], api: asked.api })
    const error = this.#registry.deposedError
    if (error) throw error
    const { state, store, version } = this.#parts
    const position = store.position()
    if (!asked.isTrial) {
      const acknowledged = store.holds(asked.position) ? asked.position.sequence : position.sequence
      await state.change(({ secondaries }) => ({
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

  /** A peer that has seen a higher epoch has seen a newer primary. */
  async #depose(epoch: number, by: { addresses: readonly string[]; api: string }): Promise<void> {
    const { store, onDeposed } = this.#parts
    if (epoch <= store.epoch) return
    checkEpoch(epoch, store.epoch)
    await onDeposed({ epoch, ...by })
  }

  async #fence(peer: Peer, asked: RequestOf<'Fence'>): Promise<ResponseOf<'Fence'>> {
    const known = this.#registry.joined(peer)
    checkEpoch(asked.epoch, this.#parts.store.epoch)
    this.#heard(known.id)
    // A secondary of this primary was promoted. Its epoch may be no higher than ours when a snapshot was restored here: it is told.
    const { epoch } = this.#parts.store
    const { addresses, api } = asked
    await this.#parts.onDeposed({ epoch: Math.max(asked.epoch, epoch), addresses, api, heir: known.id })
    const { deposed } = this.#state
    // Two were promoted: this cluster is the one place where they meet, and the first notice counts.
    const isSecond = deposed?.heir !== undefined && deposed.heir !== known.id && asked.epoch <= deposed.epoch
    if (!isSecond) return { epoch }
    return { epoch, rival: { epoch: deposed.epoch, addresses: deposed.addresses, api: deposed.api } }
  }

  async #follow(peer: Peer, call: FollowCall): Promise<void> {
    const from = await firstOf(call, this.#parts.times.answerMs)
    const known = this.#registry.ruling(peer)
    this.#heard(known.id)
    await this.#depose(from.epoch, { addresses: [from.cluster], api: from.api })
    this.#registry.ruling(peer)
    const { settings, store, logger, times, nowMs } = this.#parts
    this.#followers.get(known.id)?.refuse(new LinkError('busy', 'the same secondary has connected anew'))
    const follower = new Follower(
      {
        id: known.id,
        store,
        logger,
        timings: times,
        bandwidth: this.#bandwidth,
        window: { rows: settings.bufferLength, bytes: settings.bufferBytes },
        beat: () => ({ ...this.#about(store.position()), sync: this.sync.state }),
        isAwaited: () => this.sync.state === 'on',
        onProgress: () => this.#progress(follower),
        now: nowMs,
      },
      call,
    )
    this.#followers.set(known.id, follower)
    logger.info('a secondary follows', { id: known.id, address: peer.address, from: from.position.sequence })
    try {
      await follower.run(from)
    } finally {
      if (this.#followers.get(known.id) === follower) this.#followers.delete(known.id)
      logger.info('a secondary follows no more', { id: known.id, acknowledged: follower.acknowledged })
      await this.#remember()
    }
  }

  #progress(follower: Follower): void {
    this.#heard(follower.id)
    if (follower.isCaughtUp && !this.#state.secondaries.find(({ id }) => id === follower.id)?.wasWhole) {
      void this.#remember()
    }
    this.sync.look()
  }

  /** What is known of connected secondaries goes into the state, for the time in which they are not. */
  async #remember(): Promise<void> {
    const stale = this.#state.secondaries.some((one) => this.#newer(one) !== one)
    if (!stale) return
    try {
      await this.#parts.state.change(({ secondaries }) => ({ secondaries: secondaries.map((one) => this.#newer(one)) }))
      this.sync.look()
    } catch (error) {
      this.#parts.logger.warn('the progress of secondaries could not be saved', { error: messageOf(error) })
    }
  }

  #newer(one: KnownSecondary): KnownSecondary {
    const follower = this.#followers.get(one.id)
    if (!follower) return one
    const acknowledged = Math.max(follower.acknowledged, one.acknowledged ?? 0)
    const wasWhole = one.wasWhole || follower.isCaughtUp
    return acknowledged === one.acknowledged && wasWhole === one.wasWhole ? one : { ...one, acknowledged, wasWhole }
  }

  #acknowledgedBy(one: KnownSecondary): number {
    return this.#followers.get(one.id)?.acknowledged ?? one.acknowledged ?? 0
  }

  #together(): Together | undefined {
    const members = this.#state.secondaries.filter((one) => one.status === 'active' && one.wasWhole)
    if (members.length === 0) return undefined
    return {
      acknowledged: Math.min(...members.map((one) => this.#followers.get(one.id)?.acknowledged ?? -1)),
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

/** The first message of a stream. Rejects with a LinkError when none comes. */
function firstOf(call: FollowCall, waitMs: number): Promise<Extract<RequestOf<'Follow'>, { kind: 'from' }>> {
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
