/**
 * The primary: the secondaries that it knows, and what it does for each of them. It gives out certificates, judges who may
 * join, ships its log (`follower.ts`), answers what a comparison of trees asks, and keeps of its log what the slowest secondary lacks.
 */
import { randomUUID } from 'node:crypto'
import { sleep } from '../kit/clock.ts'
import { messageOf, Refusal } from '../kit/errors.ts'
import type { Position } from '../store/replica.ts'
import { Bandwidth } from './bandwidth.ts'
import { type Bundle, sealBundle } from './bundle.ts'
import { fingerprintOf, makeAuthority, makeIdentity } from './certificates.ts'
import { Follower } from './follower.ts'
import { LinkError } from './link.ts'
import { type FollowCall, LinkServer, type LinkService, type Peer } from './link-server.ts'
import { CHUNK_BYTES, cutInParts, LEAVES_MAX, PROTOCOL, type RequestOf, type ResponseOf } from './messages.ts'
import type { LinkTimings, ReplicationParts } from './parts.ts'
import type { KnownSecondary, ReplicationState, State } from './state.ts'
import { Sync, type Together } from './sync.ts'
import { isOlder } from './version.ts'

const AUTHORITY_KEY = 'replication/authority'
const REVOKED_KEPT = 1024
const SECONDARIES_MAX = 64
const DRAIN_LOOK_MS = 20
/** Of a leaf in a message beside its path. */
const LEAF_BYTES = 24

/** Of a promotion elsewhere, as a peer tells it. */
export interface Deposed {
  readonly epoch: number
  readonly addresses: readonly string[]
  readonly api: string
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
    this.sync = new Sync(store, logger, settings.syncTimeoutMs, () => this.#together())
  }

  get #state(): State {
    return this.#parts.state.now
  }

  /** Makes the authority where there is none yet (the core is open then), listens, and begins its upkeep. */
  async start({ mayMake }: { readonly mayMake: boolean }): Promise<void> {
    if (mayMake && !this.#state.authority) await this.#makeAuthority()
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
  }

  /** Another cluster is the primary: secondaries are sent there. */
  deposed(): void {
    this.sync.stop()
    const error = this.#deposedError
    if (error) for (const follower of this.#followers.values()) follower.refuse(error)
  }

  get #deposedError(): LinkError | undefined {
    const { deposed } = this.#state
    if (!deposed) return undefined
    const where = deposed.api || deposed.addresses.join(', ')
    return new LinkError('deposed', `this cluster was replaced as primary in epoch ${deposed.epoch} by ${where}`)
  }

  /** Where it listens; undefined while it does not. */
  get address(): { readonly host: string; readonly port: number } | undefined {
    return this.#server?.address
  }

  get followers(): ReadonlyMap<string, Follower> {
    return this.#followers
  }

  /** For how long no secondary was heard, in milliseconds; 0 when there is none to be heard. */
  get silenceMs(): number {
    return this.#state.secondaries.some(({ status }) => status === 'active') ? performance.now() - this.#heardAtMs : 0
  }

  async #makeAuthority(): Promise<void> {
    const { secrets, nowMs, state } = this.#parts
    const { setId } = this.#state
    const authority = await makeAuthority(setId, nowMs())
    const identity = await makeIdentity(authority, 'server', setId, nowMs())
    const protectedKey = Buffer.from(secrets.protect(AUTHORITY_KEY, authority.key))
    await state.change(() => ({
      authority: {
        certificate: authority.certificate,
        protectedKey,
        serverCertificate: identity.certificate,
        serverKey: identity.key,
      },
    }))
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

  /** Throws a Refusal. */
  async issue(o: { id: string; ttlMs: number; publicKey?: string | undefined }): Promise<Bundle | string> {
    const { secrets, nowMs, state } = this.#parts
    this.#checkId(o.id)
    if (!this.#state.authority) await this.start({ mayMake: true })
    const { authority, setId } = this.#state
    if (!authority) throw new Refusal('unavailable', 'this primary has no authority for certificates yet')
    const key = secrets.reveal(AUTHORITY_KEY, authority.protectedKey)
    const identity = await makeIdentity({ certificate: authority.certificate, key }, 'client', setId, nowMs())
    const bundle: Bundle = {
      version: 1,
      set_id: setId,
      id: o.id,
      cluster_addr: this.#clusterAddress(),
      api_addr: this.#parts.addresses().api,
      ca_cert: authority.certificate,
      client_cert: identity.certificate,
      client_key: identity.key,
      expires_at_ms: nowMs() + o.ttlMs,
      nonce: randomUUID(),
    }
    const sealed = o.publicKey === undefined ? undefined : sealBundle(bundle, o.publicKey)
    const secondary: KnownSecondary = {
      id: o.id,
      status: 'pending',
      fingerprint: fingerprintOf(identity.certificate),
      nonce: bundle.nonce,
      expiresAtMs: bundle.expires_at_ms,
      api: '',
      cluster: '',
      wasWhole: false,
    }
    await state.change(({ secondaries }) => {
      this.#checkId(o.id)
      return { secondaries: [...secondaries.filter(({ id }) => id !== o.id), secondary] }
    })
    return sealed ?? bundle
  }

  #checkId(id: string): void {
    const known = this.#state.secondaries.find((one) => one.id === id)
    if (known?.status === 'active') {
      throw new Refusal('invalid_request', `secondary with ID "${id}" already exists; revoke it first`)
    }
    if (!known && this.#state.secondaries.length >= SECONDARIES_MAX) {
      throw new Refusal('invalid_request', `this primary has ${SECONDARIES_MAX} secondaries, revoke one first`)
    }
  }

  #clusterAddress(): string {
    return this.#state.primaryClusterAddr || this.#parts.addresses().cluster
  }

  /** Throws a Refusal for an ID that is not known. */
  async revoke(id: string): Promise<void> {
    const known = this.#state.secondaries.find((one) => one.id === id)
    if (!known)
      throw new Refusal('invalid_request', `there is no secondary with ID "${id}": see known_secondaries of the status`)
    await this.#parts.state.change(({ secondaries, revoked }) => ({
      secondaries: secondaries.filter((one) => one.id !== id),
      revoked: [...revoked, known.fingerprint].slice(-REVOKED_KEPT),
    }))
    this.#followers.get(id)?.refuse(new LinkError('revoked', 'this secondary was revoked'))
    this.#server?.cut(known.fingerprint)
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
          this.#known(peer)
          return { position: store.position(), epoch: store.epoch, setId: this.#state.setId }
        },
        Pages: async (peer) => {
          this.#ruling(peer)
          return { position: store.position(), pages: [...(await store.tree.pages())] }
        },
        Subpages: (peer, request) => this.#subpages(peer, request),
        Leaves: (peer, request) => this.#leaves(peer, request),
      },
      follow: (peer, call) => this.#follow(peer, call),
      values: (peer, request) => this.#values(peer, request),
    }
  }

  /** Throws a LinkError for who is not, or no longer, a secondary of this primary. */
  #known(peer: Peer): KnownSecondary {
    const { revoked, secondaries } = this.#state
    const known = secondaries.find(({ fingerprint }) => fingerprint === peer.fingerprint)
    if (known) return known
    if (revoked.includes(peer.fingerprint))
      throw new LinkError('revoked', 'this secondary was revoked: it needs a new activation')
    throw new LinkError(
      'unknown',
      'this certificate was replaced by a newer activation, or is of a primary before this one',
    )
  }

  /** The same, and for a primary that was deposed. */
  #ruling(peer: Peer): KnownSecondary {
    const known = this.#known(peer)
    const error = this.#deposedError
    if (error) throw error
    return known
  }

  async #join(peer: Peer, asked: RequestOf<'Join'>): Promise<ResponseOf<'Join'>> {
    const known = this.#known(peer)
    this.#heard(known.id)
    await this.#depose(asked.epoch, { addresses: [asked.cluster], api: asked.api })
    this.#ruling(peer)
    const { state, store, version, nowMs } = this.#parts
    if (asked.protocol !== PROTOCOL) {
      throw new LinkError(
        'version',
        `the primary speaks version ${PROTOCOL} of the link, the secondary ${asked.protocol}`,
      )
    }
    if (isOlder(asked.version, version)) {
      throw new LinkError(
        'version',
        `the primary has version ${version}, the secondary the older ${asked.version}: upgrade the secondary first`,
      )
    }
    if (known.nonce !== asked.nonce) throw new LinkError('used', 'the activation is not the newest one of this ID')
    if (known.status === 'pending' && nowMs() > known.expiresAtMs) {
      throw new LinkError('expired', 'the activation has expired: issue a new one on the primary')
    }
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
    return { position, epoch: store.epoch, atMs: nowMs(), addresses: [this.#clusterAddress()], api }
  }

  /** A peer that has seen a higher epoch has seen a newer primary. */
  async #depose(epoch: number, by: { addresses: readonly string[]; api: string }): Promise<void> {
    if (epoch <= this.#parts.store.epoch) return
    await this.#parts.onDeposed({ epoch, ...by })
  }

  async #fence(peer: Peer, asked: RequestOf<'Fence'>): Promise<ResponseOf<'Fence'>> {
    const known = this.#known(peer)
    this.#heard(known.id)
    // A secondary of this primary was promoted. Its epoch may be no higher than ours when a snapshot was restored here: it is told.
    const { epoch } = this.#parts.store
    await this.#parts.onDeposed({ epoch: Math.max(asked.epoch, epoch), addresses: asked.addresses, api: asked.api })
    return { epoch }
  }

  async #follow(peer: Peer, call: FollowCall): Promise<void> {
    const from = await firstOf(call, this.#parts.times.answerMs)
    const known = this.#ruling(peer)
    if (known.status !== 'active') throw new LinkError('unknown', 'a secondary joins before it follows')
    this.#heard(known.id)
    await this.#depose(from.epoch, { addresses: [from.cluster], api: from.api })
    this.#ruling(peer)
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
    const active = this.#state.secondaries.filter(({ status }) => status === 'active')
    const slowest = active.length === 0 ? undefined : Math.min(...active.map((one) => this.#acknowledgedBy(one)))
    if (slowest === this.#kept) return
    this.#kept = slowest
    try {
      await this.#parts.store.keepLogBehind(slowest)
    } catch (error) {
      this.#parts.logger.debug('the log could not be told what to keep', { error: messageOf(error) })
    }
  }

  async #subpages(peer: Peer, { pages }: RequestOf<'Subpages'>): Promise<ResponseOf<'Subpages'>> {
    this.#ruling(peer)
    const found = await this.#parts.store.tree.subpages(pages)
    return { pages: [...found].map(([page, hashes]): [number, Buffer[]] => [page, [...hashes]]) }
  }

  async #leaves(peer: Peer, { subpages, after }: RequestOf<'Leaves'>): Promise<ResponseOf<'Leaves'>> {
    this.#ruling(peer)
    const { store } = this.#parts
    const found = await store.tree.leaves(new Set(subpages), after, LEAVES_MAX)
    const leaves: [string, Buffer][] = []
    let bytes = 0
    for (const { path, leaf } of found.leaves) {
      if (bytes > CHUNK_BYTES) break
      leaves.push([path, leaf])
      bytes += path.length + LEAF_BYTES
    }
    await this.#bandwidth.take(bytes)
    const next = leaves.length < found.leaves.length ? leaves.at(-1)?.[0] : found.after
    return { leaves, after: next, sequence: store.position().sequence }
  }

  async *#values(peer: Peer, { paths }: RequestOf<'Values'>): AsyncGenerator<ResponseOf<'Values'>> {
    const { logger } = this.#parts
    for (let at = 0; at < paths.length; ) {
      this.#ruling(peer)
      const { entries, damaged, sequence, next } = this.#entries(paths, at)
      at = next
      for (const path of damaged) logger.error('an entry is damaged and was not copied to a secondary', { path })
      await this.#bandwidth.take(entries.reduce((sum, [path, , value]) => sum + path.length + value.length, 0))
      const [first] = entries
      const { parts, rest } = cutInParts(first?.[2] ?? new Uint8Array())
      for (const part of parts) yield { kind: 'part', bytes: part }
      if (first) first[2] = rest
      yield { kind: 'entries', entries, damaged, sequence }
    }
  }

  /** As many as fit a message, one at least: how large they are shows when they are read. All of one moment. */
  #entries(paths: readonly string[], from: number) {
    const entries: [string, number, Uint8Array][] = []
    const damaged: string[] = []
    let [next, bytes, sequence] = [from, 0, 0]
    for (; next < paths.length && bytes < CHUNK_BYTES; next++) {
      const read = this.#parts.store.entriesAt(paths.slice(next, next + 1))
      const size = read.entries.reduce((sum, { path, value }) => sum + path.length + value.length, 0)
      if (entries.length > 0 && bytes + size > CHUNK_BYTES) break
      bytes += size
      for (const { path, value, ...entry } of read.entries) entries.push([path, entry.sequence, value])
      damaged.push(...read.damaged)
      sequence = read.sequence
    }
    return { entries, damaged, sequence, next }
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
