/**
 * The module `ha`: several servers with one secrets core. One server is *active*; the others are *standby*: they have the same entries and
 * hold the root key, and one of them takes over when the active server fails or steps down.
 *
 * The commit stream (`stream/`) is the log of all commits, stored by a majority of the NATS servers. The active server publishes each group
 * of batches and applies it once NATS has acknowledged it; the other members apply the stream. The lease (`lease/`) decides which server
 * is active, and the stream is the final arbiter: a new active server publishes its *term* before it serves, after which the stream
 * refuses every group of an earlier term.
 *
 * Promises. An acknowledged commit is in the stream and is never lost while a majority of the NATS servers keeps its disks. At most one
 * server serves at any time: a response is sent only if the lease was valid after it was computed (`isServing`). A member never
 * applies a group to a database with another history: it copies the entries of another member instead.
 *
 * Assumes that NATS syncs each message (`sync_interval: always`), that only servers may publish to the subjects of this module, and that
 * the monotonic clocks of two servers differ by less than a tenth in their rate.
 *
 * What can go wrong. The active server is killed or paused: a standby takes over after the lease has run out. NATS has no majority: the
 * active server serves until its lease runs out, commits wait, and nothing is lost. The disk of the active server is full: it steps down
 * if another member can take over. A group cannot be applied: it steps down. Two servers believe that they are active: the stream
 * refuses the older one, which steps down.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { Fault, messageOf, Refusal } from '../platform/errors.ts'
import { type Logger, LogOnce } from '../platform/log.ts'
import { Condition, Mutex } from '../platform/mutex.ts'
import { HaSubjects } from '../cluster/nats/ha-subjects.ts'
import { TIMINGS } from '../cluster/nats/timings.ts'
import type { CommitLog } from '../storage/store/commit-log.ts'
import type { HaPhase, HaServerOptions } from './ha-options.ts'
import { type ActiveLease, type HaBucket, isReporting, type MemberState } from './lease/lease.ts'
import { type OpenParts, openParts } from './open-parts.ts'
import type { MissingReplica } from './replica-monitor.ts'
import { type ActiveRows, requestActiveRows } from './active-rows.ts'
import { beginTerm } from './begin-term.ts'
import { StreamCommitLog } from './stream/stream-commit-log.ts'

/** Time in which a server that stepped down lets others take over, and how long it waits for them once the lease is free. */
const STEP_DOWN_PAUSE_MS = 10_000
const YIELD_MS = 1000
const RETRY_MS = 500
const LOG_INTERVAL_MS = 60_000

export class HaServer {
  readonly #options: HaServerOptions
  readonly #logger: Logger
  readonly #logged = new LogOnce({ everyMs: LOG_INTERVAL_MS })
  readonly #nowMs: () => number
  readonly #wallMs: () => number
  readonly #log: StreamCommitLog
  readonly #stopping = new AbortController()
  readonly #listeners = new Set<() => void>()
  #parts: OpenParts | undefined
  #phase: HaPhase = 'starting'
  /** Ends with the term of this server. */
  #termEnded = new AbortController()
  /** The core was opened in this term; false during an initialization. */
  #hasOpened = false
  #renewing: NodeJS.Timeout | undefined
  #pausedUntilMs = Number.NEGATIVE_INFINITY
  /** Since when this active server lacks the root key. */
  #keylessSinceMs = Number.POSITIVE_INFINITY
  /** Held while the role changes. */
  readonly #mutex = new Mutex()
  /** Another server may have acquired or released the lease: it is read before its next poll. */
  readonly #leaseChanged = new Condition()
  #isStepDownRequested = false
  /** Why the stream cannot be used. */
  #fault: string | undefined
  /** Since when requests about the lease fail. */
  #failing: { readonly sinceMs: number; readonly error: string } | undefined
  /** Why the last attempt to take over failed. */
  #openFault: string | undefined
  takeovers = 0

  constructor(options: HaServerOptions) {
    this.#options = options
    this.#logger = options.logger
    this.#nowMs = options.nowMs ?? (() => performance.now())
    this.#wallMs = options.wallMs ?? Date.now
    this.#log = new StreamCommitLog(() => options.store.position(), this.#wallMs)
    this.#log.onRefused = () => void this.#leaveTerm('another server has published to the commit stream', false)
    this.#log.onSlow = () => this.#logger.warn('commits wait for NATS, which does not acknowledge them')
    options.store.onFailure(() => this.#checkApplied())
  }

  start(): void {
    void this.#run()
  }

  /** For the store. */
  get commitLog(): CommitLog {
    return this.#log
  }

  get phase(): HaPhase {
    return this.#phase
  }

  /** True if a response that was computed before this call may be sent. */
  get isServing(): boolean {
    return this.#phase === 'active' && (this.#parts?.lease.isValid ?? false)
  }

  /** Why this server cannot become active or does not follow the stream; undefined while it can. */
  get trouble(): string | undefined {
    const isWithoutActive = this.#parts?.lease.holder === undefined
    return this.#followingTrouble ?? (isWithoutActive ? this.#openFault : undefined)
  }

  get #followingTrouble(): string | undefined {
    return this.#fault ?? this.#natsTrouble ?? this.#parts?.follower.trouble
  }

  get #natsTrouble(): string | undefined {
    if (!this.#failing || this.#nowMs() - this.#failing.sinceMs < TIMINGS.haFailingMs) return undefined
    const { error } = this.#failing
    return `NATS does not store commits and the lease (${error}): check that a majority of the NATS servers runs with JetStream`
  }

  #setFailing(error?: unknown): void {
    this.#failing =
      error === undefined ? undefined : { sinceMs: this.#failing?.sinceMs ?? this.#nowMs(), error: messageOf(error) }
  }

  get lease(): ActiveLease | undefined {
    return this.#parts?.lease
  }

  /** NATS servers that do not store the commit stream at present. */
  get missingReplicas(): readonly MissingReplica[] {
    return this.#parts?.replicas.missing ?? []
  }

  /** Sequence of the newest known message of the stream, and of the newest applied one. */
  get positions(): { readonly committed: number; readonly applied: number } {
    const applied = this.#options.store.member.streamMark?.position ?? 0
    return { committed: Math.max(applied, this.#parts?.follower.received ?? 0, this.#log.last), applied }
  }

  /** Calls the listener when the phase, the lease or its holder may have changed. Returns a function that removes it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** The stored states of all members. Rejects with a Refusal while NATS does not respond. */
  async members(): Promise<MemberState[]> {
    return this.#fromBucket('list the members', (bucket) => bucket.members())
  }

  /** Cluster addresses of the other members, as they have reported them. */
  get otherClusterAddresses(): readonly string[] {
    const addresses = this.#parts?.reports.others.map(({ clusterAddress }) => clusterAddress) ?? []
    return addresses.filter((address) => address !== '')
  }

  /** Other members that have stopped to report. Empty while this server cannot read the reports. */
  get lostMembers(): readonly MemberState[] {
    return this.#parts?.reports.lost ?? []
  }

  /** Other members that report that they are sealed. */
  get sealedMembers(): readonly MemberState[] {
    return (this.#parts?.reports.reporting ?? []).filter(({ state }) => state === 'sealed')
  }

  /** Time of the newest complete snapshot that another member knows; 0: never. */
  get newestSnapshotMs(): number {
    return Math.max(0, ...(this.#parts?.reports.others ?? []).map(({ snapshotAtMs }) => snapshotAtMs))
  }

  /** Rejects with a Refusal while NATS does not respond. */
  async removeMember(name: string): Promise<void> {
    await this.#fromBucket('remove the member', (bucket) => bucket.removeMember(name))
  }

  async #fromBucket<T>(what: string, request: (bucket: HaBucket) => Promise<T>): Promise<T> {
    if (!this.#parts)
      throw new Refusal(
        'unavailable',
        `cannot ${what}: ${this.trouble ?? 'the server is connecting to NATS, try again'}`,
      )
    try {
      return await request(this.#parts.bucket)
    } catch (error) {
      throw new Refusal('unavailable', `cannot ${what}, NATS does not respond: ${messageOf(error)}`)
    }
  }

  /** See `CommitStream.skipBatchDelay`. */
  skipBatchDelay(): void {
    this.#parts?.stream.skipBatchDelay()
  }

  /** See `requestActiveRows`. */
  activeRows(): Promise<ActiveRows | undefined> {
    const { connection, lease } = this.#parts ?? {}
    return requestActiveRows(connection, this.#options.region, lease?.holder?.serverId)
  }

  /**
   * Becomes active to initialize the core: the entries are empty. Rejects with a Refusal if another server is active or the stream has
   * commits already.
   */
  async acquireForInitialization(): Promise<void> {
    await this.#mutex.runExclusive(async () => {
      const parts = this.#parts
      if (!parts) throw new Refusal('unavailable', this.trouble ?? 'the server is connecting to NATS, try again')
      try {
        await parts.lease.poll()
        if (this.#options.store.position().sequence > 0) throw alreadyInitialized()
        if (!parts.lease.mayAcquire(0) || !(await this.#takeOver(parts, false))) {
          throw new Refusal('unavailable', 'another server is being initialized, try again')
        }
        if (this.#options.store.position().sequence === 0) return
      } catch (error) {
        if (error instanceof Refusal) throw error
        throw new Refusal('unavailable', `NATS does not respond as required: ${messageOf(error)}; try again`)
      }
      await this.#endTerm(parts, true)
      throw alreadyInitialized()
    })
  }

  /** The next `stepDownIfRequested` steps down. Throws a Refusal unless active. */
  requestStepDown(): void {
    if (this.#phase !== 'active') throw new Refusal('unavailable', 'this server is not active')
    this.#isStepDownRequested = true
  }

  /** Steps down if that was requested: the core is closed, and the lease is released. Called once the request is executed and before its response is sent. */
  async stepDownIfRequested(): Promise<void> {
    if (!this.#isStepDownRequested) return
    this.#isStepDownRequested = false
    this.#pausedUntilMs = this.#nowMs() + STEP_DOWN_PAUSE_MS
    await this.#leaveTerm('step-down requested', true)
  }

  /** Releases the lease because the core was sealed by an operator, or after an initialization. */
  async release(reason: string): Promise<void> {
    await this.#leaveTerm(reason, true)
  }

  /** With a full disk this server yields to another one. */
  diskChanged(isFull: boolean): void {
    this.#pausedUntilMs = isFull ? Number.MAX_SAFE_INTEGER : this.#nowMs()
    if (isFull && this.#phase === 'active') void this.#yieldToAnother('the disk is full')
  }

  /** Whether an unsealed member could take over. */
  async #hasSuccessor(): Promise<boolean> {
    const { serverId } = this.#options
    const members = await this.members().catch(() => [])
    const standbys = members.filter((member) => member.serverId !== serverId && member.state === 'standby')
    return standbys.some((member) => isReporting(member, this.#wallMs()))
  }

  /** Checks the members after they have reported twice: the same change may have removed the key of all of them. */
  async #yieldToKeyHolder(): Promise<void> {
    this.#keylessSinceMs = Math.min(this.#keylessSinceMs, this.#nowMs())
    if (this.#nowMs() - this.#keylessSinceMs < 2 * TIMINGS.haReportMs) return
    this.#keylessSinceMs = this.#nowMs()
    if (!(await this.#hasSuccessor())) return
    this.#pausedUntilMs = this.#nowMs() + STEP_DOWN_PAUSE_MS
    await this.#leaveTerm('an unsealed member can take over', true)
  }

  async #yieldToAnother(reason: string): Promise<void> {
    if (await this.#hasSuccessor()) await this.#leaveTerm(reason, true)
    else this.#logger.warn('this server stays active, no other member can take over', { reason })
  }

  /** Steps down without taking over again, and continues to follow. Never rejects. */
  async leave(): Promise<void> {
    this.#pausedUntilMs = Number.POSITIVE_INFINITY
    await this.#leaveTerm('the server is stopping', true).catch(() => undefined)
  }

  async stop(): Promise<void> {
    await this.leave()
    this.#stopping.abort()
    this.#log.end()
    this.#leaseChanged.notifyAll()
    await this.#mutex.whenIdle()
    this.#parts?.reports.stop()
    this.#parts?.placement.stop()
    this.#parts?.replicas.stop()
    await this.#parts?.follower.stop()
    this.#phase = 'stopped'
    await this.#parts?.connection.close()
  }

  get #isStopped(): boolean {
    return this.#stopping.signal.aborted
  }

  async #run(): Promise<void> {
    while (!this.#isStopped) {
      try {
        this.#parts ??= await this.#open()
        if (this.#phase === 'standby' || this.#phase === 'starting') this.#parts.follower.start()
        await this.#checkLease(this.#parts)
        if (this.#phase === 'starting') this.#setPhase('standby')
      } catch (error) {
        if (!this.#parts) this.#fault = error instanceof Fault ? error.message : unreachable(error)
        else if (this.#phase === 'standby') this.#setFailing(error)
        this.#warn('high availability: NATS does not respond as required, retrying', error)
      }
      await this.#leaseChanged.wait(this.#parts ? TIMINGS.haPollMs : RETRY_MS)
    }
  }

  async #open(): Promise<OpenParts> {
    const parts = await openParts(this.#options, {
      nowMs: this.#nowMs,
      wallMs: this.#wallMs,
      state: () => this.#state(),
      isServing: () => this.isServing,
      isStopped: () => this.#isStopped,
      warn: (message, error) => this.#warn(message, error),
    })
    this.#fault = undefined
    parts.connection.subscribe(new HaSubjects(this.#options.region).leaseChanged, {
      callback: () => this.#leaseChanged.notifyAll(),
    })
    return parts
  }

  /** Reads the lease, and takes over if it is free. */
  async #checkLease(parts: OpenParts): Promise<void> {
    const { core } = this.#options
    if (this.#phase === 'active' && this.#hasOpened && core.state !== 'unsealed') {
      return this.#leaveTerm('the secrets core was sealed', true)
    }
    if (this.#phase === 'active' && core.lacksKey) return this.#yieldToKeyHolder()
    this.#keylessSinceMs = Number.POSITIVE_INFINITY
    if (this.#phase !== 'standby' && this.#phase !== 'starting') return
    if (await parts.lease.poll()) this.#notify()
    this.#setFailing()
    const yields = this.#nowMs() < this.#pausedUntilMs || core.lacksKey
    const waitMs = yields ? YIELD_MS : 0
    if (!this.#mayTakeOver || !parts.lease.mayAcquire(waitMs)) return
    await this.#mutex.runExclusive(() => this.#takeOver(parts, true))
  }

  get #mayTakeOver(): boolean {
    const { core, store } = this.#options
    const isReady = core.state === 'unsealed' && (this.#parts?.follower.isJoined ?? false) && !store.member.isJoining
    return isReady && this.#followingTrouble === undefined && this.#pausedUntilMs < Number.POSITIVE_INFINITY
  }

  /** False if another server was faster. `opensCore`: false for an initialization. */
  async #takeOver(parts: OpenParts, opensCore: boolean): Promise<boolean> {
    const { core, store } = this.#options
    if (!(await parts.lease.acquire())) return false
    this.#termEnded = new AbortController()
    this.#hasOpened = opensCore
    this.#setPhase('taking over')
    const startedAtMs = this.#nowMs()
    this.#renew(parts)
    try {
      await parts.follower.stop()
      await beginTerm(this.#options, parts, {
        log: this.#log,
        signal: this.#termEnded.signal,
        retried: (request) => this.#retried(request),
      })
      const { holder, idleMs } = parts.lease
      if (opensCore) await core.open({ clockMs: holder?.clockMs ?? 0, idleMs })
      if (parts.lease.term === 0) throw new Error('another server holds the lease')
      this.#setPhase('active')
      this.#openFault = undefined
      this.takeovers++
      const tookMs = Math.round(this.#nowMs() - startedAtMs)
      this.#logger.info('this server is active', {
        term: parts.lease.term,
        took_ms: tookMs,
        row: store.position().sequence,
      })
      this.#announceLease(parts)
      return true
    } catch (error) {
      this.#openFault = `taking over failed: ${messageOf(error)}`
      this.#logger.error('taking over failed, another server may take over', { error: messageOf(error) })
      this.#pausedUntilMs = this.#nowMs() + STEP_DOWN_PAUSE_MS
      await this.#endTerm(parts, true)
      throw error
    }
  }

  async #retried<T>(request: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        return await request()
      } catch (error) {
        if (this.#isStopped || this.#parts?.lease.term === 0) throw error
      }
      await sleep(RETRY_MS / 10)
    }
  }

  #renew(parts: OpenParts): void {
    clearTimeout(this.#renewing)
    const { signal } = this.#termEnded
    const renew = async () => {
      try {
        const isHeld = await parts.lease.renew()
        if (signal.aborted) return
        if (!isHeld) {
          this.#termEnded.abort()
          void this.#leaveTerm('another server holds the lease', false)
          return
        }
        this.#setFailing()
      } catch (error) {
        this.#setFailing(error)
        this.#warn('lease not renewed, retrying', error)
      }
      if (!signal.aborted && parts.lease.term > 0)
        this.#renewing = setTimeout(() => void renew(), parts.lease.isValid ? TIMINGS.haRenewMs : RETRY_MS / 10)
    }
    this.#renewing = setTimeout(() => void renew(), TIMINGS.haRenewMs)
  }

  /** A commit failed: steps down if a group of the stream could not be applied here. */
  #checkApplied(): void {
    if (this.#phase !== 'active') return
    setImmediate(() => {
      if (this.#phase === 'active' && this.positions.applied < this.#log.last) {
        void this.#leaveTerm('a committed change could not be applied to the database', true)
      }
    })
  }

  /** Ends the activity of this server, if it is active. */
  async #leaveTerm(reason: string, releases: boolean): Promise<void> {
    if (this.#phase !== 'active') return
    // A refused server must serve nothing from this moment on.
    this.#setPhase('stepping down')
    await this.#mutex.runExclusive(async () => {
      if (this.#phase !== 'stepping down' || !this.#parts) return
      this.#logger[releases ? 'info' : 'warn']('this server is no longer active', { reason })
      await this.#endTerm(this.#parts, releases)
    })
  }

  async #endTerm(parts: OpenParts, releases: boolean): Promise<void> {
    const { core } = this.#options
    // Commits in progress can succeed only while the lease is held.
    if (!releases) this.#log.end()
    await core.close(releases).catch((error: unknown) => this.#warn('closing the secrets core failed', error))
    this.#log.end()
    this.#termEnded.abort()
    clearTimeout(this.#renewing)
    if (releases)
      await parts.lease.release().catch((error: unknown) => this.#warn('lease not released, it will expire', error))
    else parts.lease.abandon()
    this.#setPhase('standby')
    this.#announceLease(parts)
  }

  #announceLease({ connection }: OpenParts): void {
    if (!connection.isClosed()) connection.publish(new HaSubjects(this.#options.region).leaseChanged)
  }

  #state(): MemberState {
    const { addresses, core, name, serverId, snapshotAtMs = () => 0, store, version } = this.#options
    const passive = core.lacksKey ? 'sealed' : core.state === 'unsealed' ? 'standby' : core.state
    const state = this.#phase === 'active' ? 'active' : passive
    const { api: apiAddress, cluster: clusterAddress } = addresses()
    const { applied } = this.positions
    const row = store.position().sequence
    const [atMs, snapshotMs] = [this.#wallMs(), snapshotAtMs()]
    return { name, serverId, apiAddress, clusterAddress, version, state, row, applied, atMs, snapshotAtMs: snapshotMs }
  }

  #setPhase(phase: HaPhase): void {
    this.#phase = phase
    this.#notify()
  }

  #notify(): void {
    for (const listener of this.#listeners) listener()
  }

  #warn(message: string, error: unknown): void {
    const text = messageOf(error)
    this.#logger[this.#logged.due(`${message} ${text}`) > 0 ? 'warn' : 'debug'](message, { error: text })
  }
}

function alreadyInitialized(): Refusal {
  return new Refusal('invalid_request', 'Vault is already initialized')
}

function unreachable(error: unknown): string {
  return `the commit stream cannot be opened: ${messageOf(error)}; check that the NATS servers of nats.servers run with JetStream`
}
