/**
 * The core's state: not initialised, sealed, or active with mounts, tokens and policies. Whoever unseals the barrier
 * calls `activate` (or `activateOrSeal`); `seal` ends it. What is read when it becomes active does not grow with the number of
 * entries, only with that of mounts.
 */
import { randomUUID } from 'node:crypto'
import type { Barrier } from '../storage/barrier/barrier.ts'
import type { Seal } from '../storage/seal/seal.ts'
import { type Put, Storage, ViewScope } from '../storage/barrier/storage.ts'
import { type Caller, denied, type Engine } from '../engines/framework/engine.ts'
import type { LoginFailures } from '../engines/framework/login-grant.ts'
import { type Canonical, canonicalAt, PathTable } from '../engines/framework/path-table.ts'
import { messageOf, sealed, unknownToken } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import type { Grants, Identity } from '../platform/operation.ts'
import type { Core } from './request/request-states.ts'
import { type PreparedLogin, prepareLogin, releaseAliases } from './logins/login.ts'
import { LockedUsers } from './logins/login-failures.ts'
import { AuditTrail } from './audit/audit.ts'
import { recordOrigin } from './audit/origin-lines.ts'
import { Leases, leasesLeftError } from './leases/leases.ts'
import { Mfa } from './mfa/mfa.ts'
import {
  defaultRecords,
  encodeRecord,
  identityRecord,
  type MountRecord,
  newRecord,
  recordPath,
} from './mounts/mount-record.ts'
import { ActiveRequests, type Mount, mountOf, type ResolvedPath } from './mounts/mounts.ts'
import type { Acl } from './policies/acl.ts'
import { type ClockSources, CoreClock, machineClock } from './core-clock.ts'
import { CLUSTER_PATH, type OpenCore, openCore } from './open-core.ts'
import { InFlight } from './request/in-flight.ts'
import { NOBODY } from './request/anonymous.ts'
import { Quotas } from './quotas/quotas.ts'
import { isolatedEngine } from './isolated-engine.ts'
import { type DrFence, disabledOnSecondary, fencedPrimary, type ReplicationSide } from './dr/dr-replication.ts'
import { RequestCounts } from './request/request-counts.ts'
import { PolicyStore } from './policies/policy-store.ts'
import type { Surroundings } from './system/host-info.ts'
import { CORS_HEADERS, type CorsSetting, NO_CORS } from './system/system-settings.ts'
import { TokenAdmission, type AdmittedCaller } from './tokens/token-admission.ts'
import { TokenStore } from './tokens/token-store.ts'
import { ResponseWrapping } from './wrapping/wrapping.ts'
import { keptVersions, versionNote } from './system/version-note.ts'

/** Tokens of a mount that is disabled. */
const RELEASED_AT_ONCE = 100

/** A rule of `sys/config/cors` that is in force. */
type CrossOriginRule = Omit<CorsSetting, 'enabled'>

export interface CoreOptions {
  readonly barrier: Barrier
  readonly seal: Seal
  /** Beside those that the core has itself. */
  readonly engines: readonly Engine[]
  /** The core's own engines, made for it: `sys/`, `auth/token/` and `identity/`. */
  readonly own: (core: SecretsCore) => readonly Engine[]
  readonly version: string
  readonly clusterName: string
  /** ID of the cluster that an initialisation creates; a random one unless given. */
  readonly newClusterId?: () => string
  /** Called before an initialisation; rejects with a Refusal where the region has a core already. */
  readonly requireNoOtherCore?: () => Promise<void>
  readonly logger: Logger
  readonly surroundings?: Surroundings
  /** Absent where the process does not replicate. */
  readonly replication?: ReplicationSide
  /** Directories that audit devices may have files below; anywhere unless given. */
  readonly auditDirectories?: readonly string[]
  /** What callers without a token may do with key shares, as the configuration is at this moment; nothing unless given. */
  readonly unauthed?: { readonly rekey: () => boolean; readonly generateRoot: () => boolean }
  /** The machine's clock and the time that passes; real ones unless given. */
  readonly time?: Partial<ClockSources>
  /**
   * Nothing outside the database is read or changed: no audit device records, no lease or token is taken back for its age, no
   * engine works by itself, and those that reach other systems serve nothing (`isolated-engine.ts`).
   */
  readonly isIsolated?: boolean
}

export class SecretsCore implements Core {
  readonly options: CoreOptions
  /** All that there are, the core's own in front. */
  readonly engines: readonly Engine[]
  readonly inFlight = new InFlight()
  readonly requestCounts = new RequestCounts()
  readonly lockedUsers = new LockedUsers(() => this.now())
  /** `sys/` while nothing can be read: its paths that answer in any state. */
  readonly #sealedSystem: ResolvedPath['mount']
  readonly #time: ClockSources
  readonly #clock: CoreClock
  #open: OpenCore | undefined
  /** Of everything in `#open`. */
  #viewScope: ViewScope | undefined
  #isSuspended = false
  #onSeal: (() => Promise<void>) | undefined
  /** Other processes may remember what this core has told of its tokens. */
  #isRemembered = false

  constructor(options: CoreOptions) {
    this.options = options
    this.#time = { ...machineClock(), ...options.time }
    this.#clock = new CoreClock(this.#time)
    const engines = options.isIsolated ? options.engines.map(isolatedEngine) : options.engines
    this.engines = [...options.own(this), ...engines]
    this.#sealedSystem = this.#systemMount()
  }

  get barrier(): Barrier {
    return this.options.barrier
  }

  get isInitialised(): boolean {
    return this.barrier.isInitialised
  }

  get isActive(): boolean {
    return this.#open !== undefined && !this.barrier.isSealed
  }

  get isSecondary(): boolean {
    return this.options.replication?.dr.mode === 'secondary'
  }

  /** Neither open nor, on a secondary, standing by with the key of its primary. */
  get isSealed(): boolean {
    return !this.isActive && !(this.isSecondary && this.barrier.standby.isHeld)
  }

  get fence(): DrFence | undefined {
    return this.options.replication?.dr.fence
  }

  disabledOnSecondary(): Error {
    return disabledOnSecondary(this.options.replication?.dr ?? { primaryAddress: undefined })
  }

  /** What pages of other origins may do; undefined where nothing is known of it, or where they may do nothing. */
  get crossOrigin(): CrossOriginRule | undefined {
    const { allowCredentials, allowedHeaders, allowedOrigins, enabled } = this.isActive
      ? this.open.settings.cors.value
      : NO_CORS
    return enabled
      ? { allowCredentials, allowedOrigins, allowedHeaders: [...CORS_HEADERS, ...allowedHeaders] }
      : undefined
  }

  /** The open core. Throws a Refusal (503) while it is sealed. */
  get open(): OpenCore {
    if (!this.#open || this.barrier.isSealed) throw sealed()
    return this.#open
  }

  /** The time by which everything here lives: see `core-clock.ts`. */
  now(): number {
    return this.#clock.now()
  }

  /** The machine's clock, in milliseconds since 1970. */
  wallMs(): number {
    return this.#time.wall()
  }

  /** What a fresh core begins with, to be committed together with its keyring, and the only sight of its root token. */
  beginning(
    rootToken?: string,
    more: readonly MountRecord[] = [],
  ): { readonly puts: readonly Put[]; readonly rootToken: string } {
    const tokens = TokenStore.initial(this.now(), rootToken)
    const mounts = [...defaultRecords(), ...more].map((record) => ({
      path: recordPath(record.uuid),
      value: encodeRecord(record),
    }))
    const { clusterName, newClusterId = randomUUID } = this.options
    const cluster = { id: newClusterId(), name: clusterName }
    const version = versionNote([], this.options.version, this.now())
    const puts = [
      { path: CLUSTER_PATH, value: Buffer.from(JSON.stringify(cluster)) },
      ...(version ? [version] : []),
      ...mounts,
      ...PolicyStore.initial(this.now()),
      ...tokens.puts,
    ]
    return { puts, rootToken: tokens.token }
  }

  /** Takes up work: the barrier has been unsealed. */
  activate(): void {
    const viewScope = new ViewScope()
    const storage = new Storage(this.barrier, viewScope)
    this.#isSuspended = false
    this.#viewScope = viewScope
    const { leaving, open } = openCore({
      engines: this.engines,
      logger: this.options.logger,
      surroundings: this.options.surroundings,
      auditDirectories: this.options.auditDirectories,
      storage,
      isIsolated: this.options.isIsolated ?? false,
      clock: this.#clock,
      time: this.#time,
      aclOf: (caller) => this.aclOf(caller),
      release: (uuid) => this.#release(uuid),
    })
    this.#open = open
    this.#isRemembered = true
    this.barrier.startScan()
    if (this.options.isIsolated) return stopOwnWork(open)
    open.mountChanges.resume(leaving)
    open.mfa.resume()
    open.tokenLeaseIndex.begin()
    this.#noteVersion()
    this.#addIdentity()
    const { logger, seal } = this.options
    const { trail } = open.auditing
    void recordOrigin({ note: seal.origin, trail, nobody: this.nobody.caller, logger })
    logger.info('the secrets core is active', { cluster_id: open.clusterId })
  }

  #noteVersion(): void {
    const { logger, version } = this.options
    const { storage } = this.open
    const note = versionNote(keptVersions(storage), version, this.now())
    if (!note) return
    storage.commit({ puts: [note], deletes: [] }).catch((error: unknown) => {
      logger.warn('the version could not be noted', { error: messageOf(error) })
    })
  }

  /** Other entries have taken the place of all there were: nothing is done upon these until `resume`. */
  suspend(): void {
    void this.#close()
    this.#isSuspended = true
  }

  /** Begins anew upon the other entries; sealed, where they are of another key. Nothing, where it is not suspended. */
  async resume(): Promise<void> {
    if (!this.#isSuspended) return
    this.#isSuspended = false
    await (this.barrier.isSealed ? this.seal() : this.activateOrSeal())
  }

  /**
   * The server stands by from now on for another one: requests under way end with 503, what they have queued becomes
   * durable, the barrier closes and its root key is held. Agents are told by then.
   */
  async standDown(): Promise<void> {
    const closed = this.#close()
    await Promise.all([closed.then(() => this.options.seal.standDown()), this.#forgetTokens()])
    this.options.logger.info('the secrets core stands by')
  }

  /** The other way: it opens with the key that is held. Throws a Refusal (503) where none is. */
  async standUp(): Promise<void> {
    if (this.isActive) return
    this.barrier.openHeld()
    await this.activateOrSeal()
  }

  /** Resolves when what was queued is durable, or has failed. */
  async #close(): Promise<void> {
    const open = this.#open
    this.#open = undefined
    const queued = this.#viewScope?.revoke(sealed)
    if (open) this.#end(open)
    await queued
  }

  #end(open: OpenCore): void {
    const {
      auditing,
      leases,
      mountChanges,
      periodicWork,
      revocation,
      tidy,
      tokenExpiry,
      tokenLeaseIndex,
      tokens,
      wrapping,
    } = open
    const parts = [periodicWork, mountChanges, tokenExpiry, tokenLeaseIndex, leases, wrapping, revocation, tidy, tokens]
    for (const part of [...parts, open.identity, open.mfa, open.loginMfa]) part.close()
    for (const part of [auditing.devices, auditing.trail]) part.close()
  }

  /** Seals the barrier at once and forgets everything that came from below it; resolves when nothing is left to write. */
  async seal(): Promise<void> {
    void this.#close()
    await Promise.all([this.options.seal.seal(), this.#forgetTokens()])
  }

  /** Resolves when agents were told not to go on with tokens that they remember: nothing here answers for these any more. */
  async #forgetTokens(): Promise<void> {
    if (!this.#isRemembered) return
    this.#isRemembered = false
    await this.#onSeal?.()
  }

  /** Before a stop: the audit chains go on from here, also where a file is rotated meanwhile. Never rejects. */
  async saveAuditHeads(): Promise<void> {
    await this.#open?.auditing.devices.saveHeads()
  }

  /** `tell` is called when the core is sealed or stands by, and waited for: it must not reject, and must end soon. */
  onSeal(tell: () => Promise<void>): void {
    this.#onSeal = tell
  }

  /** Takes up work, or is sealed again where it cannot. */
  async activateOrSeal(): Promise<void> {
    const isStandby = this.barrier.standby.isHeld
    try {
      await this.options.replication?.unsealed()
      if (!isStandby) this.activate()
      // It is not held any more where a promotion was finished, which has activated the core.
      else if (this.barrier.standby.isHeld)
        this.options.logger.info('this server is a DR secondary and holds the root key of its primary')
    } catch (error) {
      await this.seal()
      throw error
    }
  }

  get wrapping(): ResponseWrapping {
    return this.open.wrapping
  }

  get mfa(): Mfa {
    return this.open.mfa
  }

  get leases(): Leases {
    return this.open.leases
  }

  get audit(): AuditTrail | undefined {
    return this.#open?.auditing.trail
  }

  get quotas(): Quotas | undefined {
    const quotas = this.#open?.quotas
    return quotas?.isOn ? quotas : undefined
  }

  find(path: string): ResolvedPath | undefined {
    if (this.#open) return this.#open.mounts.find(path)
    return path.startsWith('sys/') ? { mount: this.#sealedSystem, rest: path.slice('sys/'.length) } : undefined
  }

  readonly canonical: Canonical = (path) => canonicalAt(path, this.find(path))

  knows = (token: string | undefined, remote: string | undefined) => this.#open?.admission.knows(token, remote) ?? false

  admit(token: string | undefined, remote: string | undefined): AdmittedCaller {
    return this.open.admission.admit(token, remote)
  }

  /**
   * Who a token is to the rest of the process. Throws a Refusal for what is no token, and while the core cannot tell.
   * `again`: its caller was admitted before and no use is taken.
   */
  identityOf(token: string, remote: string | undefined, again = false): Identity | Promise<Identity> {
    return this.#askable().identityOf(token, remote, again)
  }

  /** What to tell another process about a token. Throws as `identityOf` does. */
  grantsOf(token: string, remote: string | undefined, again = false): Grants | Promise<Grants> {
    return this.#askable().grantsOf(token, remote, again)
  }

  #askable(): TokenAdmission {
    // It has never given anybody a token, so it can tell.
    if (!this.isInitialised) throw unknownToken()
    if (!this.#open || this.barrier.isSealed) throw sealed()
    // Its tokens may have been revoked elsewhere.
    if (this.fence) throw fencedPrimary(this.fence)
    return this.#open.admission
  }

  /** What a token may do, by its policies and its entity. Throws a Rejection (403) where that is disabled or gone. */
  aclOf(caller: Pick<Caller, 'entityId' | 'policies'>): Acl {
    const { entityPolicies, policies } = this.open
    const names = entityPolicies.of(caller)
    if (!names) throw denied()
    return policies.acl(names, this.now(), entityPolicies.factsOf(caller))
  }

  login(...[accepted, credentials]: Parameters<Core['login']>): PreparedLogin {
    const onBarred = (mountPath: string, reason: string) => this.onBarred(mountPath, reason)
    return prepareLogin({ ...this.open, now: () => this.now(), onBarred }, accepted, credentials)
  }

  releaseAliases(mount: Mount, names: readonly string[]): Pick<PreparedLogin, 'landed' | 'parts'> {
    return releaseAliases(this.open.identity, { mount, names, nowMs: this.now() })
  }

  /** A login with right credentials gets no token. */
  onBarred(mountPath: string, reason: string): void {
    this.options.logger.warn('a login with right credentials was refused, its caller is not told why', {
      mount: mountPath,
      reason,
    })
  }

  failuresOf(mount: Mount): LoginFailures {
    return this.lockedUsers.of(mount)
  }

  /** Takes back what a mount has given out: tokens, leases, then the rest; resolves with what could not be. */
  async #release(uuid: string): Promise<readonly string[]> {
    const { identity, leases, mountChanges, mounts, periodicWork, revocation, tokens } = this.open
    identity.dropRights()
    for (;;) {
      const hashes = tokens.ofMount(uuid, RELEASED_AT_ONCE)
      if (hashes.length === 0) break
      for (const hash of hashes) await revocation.revoke(hash)
    }
    // Its batch tokens have no entries; their leases have the auth method as their owner.
    await leases.revocation.revokeOfOwner(uuid)
    const failed = await leases.revokeOfMount(uuid)
    const mount = mounts.byUuid(uuid) ?? mountChanges.detached(uuid)
    if (failed > 0) return [leasesLeftError(mount?.record.path ?? '', failed)]
    return mount ? periodicWork.release(mount) : []
  }

  /** A core that is older than identity gets its mount. */
  #addIdentity(): void {
    const { mounts, storage } = this.open
    if (mounts.get('identity/') || !mounts.engine('identity')) return
    const record = identityRecord()
    const put = { path: recordPath(record.uuid), value: encodeRecord(record) }
    storage.commit({ puts: [put], deletes: [] }).then(
      () => mounts.attach(record),
      (error: unknown) => this.options.logger.error('identity/ could not be added', { error: messageOf(error) }),
    )
  }

  readonly nobody = NOBODY

  #systemMount(): ResolvedPath['mount'] {
    const engine = this.engines.find(({ type }) => type === 'system')
    if (!engine) throw new Error('there is no system engine')
    return mountOf(newRecord({ path: 'sys/', type: 'system' }), engine, {
      paths: new PathTable(engine.paths),
      ...new Storage(this.barrier).createView(),
      activeRequests: new ActiveRequests(),
      identityToken: () => Promise.reject(sealed()),
    })
  }
}

/** In the turn in which it was made: no timer of it has fired. */
function stopOwnWork({ leases, periodicWork, tokenExpiry }: OpenCore): void {
  for (const part of [periodicWork, tokenExpiry, leases.expiry]) part.close()
}
