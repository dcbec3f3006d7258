/**
 * The state of the core: not initialized, sealed, or active with mounts, tokens and policies. The code that unseals the barrier
 * calls `activate` or `activateOrSeal`; `seal` ends the activity. The time to activate depends on the number of mounts, not on the
 * number of entries.
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
import type { UserLockout } from './logins/user-lockout.ts'
import { AuditTrail, endTrail, requireRecording } from './audit/audit.ts'
import { recordOrigin } from './audit/request-audit.ts'
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
import { closeParts, CLUSTER_PATH, isolatedEngine, type OpenCore, openCore, stopBackgroundWork } from './open-core.ts'
import { InFlight } from './request/in-flight.ts'
import { ANONYMOUS } from './request/authorization.ts'
import { Quotas } from './quotas/quotas.ts'
import { disabledOnSecondary, fencedPrimary, noTokensOnSecondary } from './dr-endpoints/dr-refusals.ts'
import type { DrFence, ReplicationSide } from './dr-endpoints/dr-side.ts'
import type { HaSide } from './ha-endpoints/ha-side.ts'
import { RequestCounts } from './request/request-counts.ts'
import { PolicyStore } from './policies/policy-store.ts'
import type { ServerInfo } from './system/core-parts.ts'
import { CORS_HEADERS, type CorsSetting, NO_CORS } from './system/system-settings.ts'
import { TokenAdmission, type AdmittedCaller } from './tokens/token-admission.ts'
import { TokenStore } from './tokens/token-store.ts'
import { ResponseWrapping } from './wrapping/wrapping.ts'
import { recordVersion, versionPut } from './system/version-history.ts'

/** Tokens of a disabled auth method that are revoked in one batch */
const REVOKED_AT_ONCE = 100

/** The active rule of `sys/config/cors`. */
type CrossOriginRule = Omit<CorsSetting, 'enabled'>

export interface CoreOptions {
  readonly barrier: Barrier
  readonly seal: Seal
  /** In addition to the core's own engines. */
  readonly engines: readonly Engine[]
  /** Creates the core's own engines: `sys/`, `auth/token/` and `identity/`. */
  readonly own: (core: SecretsCore) => readonly Engine[]
  readonly version: string
  readonly clusterName: string
  /** ID of the cluster that an initialization creates; random by default. */
  readonly newClusterId?: () => string
  /** Called before an initialization; rejects with a Refusal if the region has a core already. */
  readonly requireNoOtherCore?: () => Promise<void>
  readonly logger: Logger
  readonly serverInfo?: ServerInfo
  /** Absent if DR replication is not configured. */
  readonly replication?: ReplicationSide
  /** Absent without high availability. */
  readonly ha?: HaSide
  /** False while another server of the cluster may be active: engines then change nothing outside of the database. */
  readonly mayAct?: () => boolean
  /** Directories that audit files must be in; any directory by default. */
  readonly auditDirectories?: readonly string[]
  /** Whether callers without a token may use the endpoints for key shares, by the current configuration; no by default. */
  readonly unauthed?: { readonly rekey: () => boolean; readonly generateRoot: () => boolean }
  /** The machine's clocks by default. */
  readonly time?: Partial<ClockSources>
  /**
   * Nothing outside the database is read or changed: audit devices are disabled, no lease or token is revoked when it expires,
   * engines do no periodic work, and engines that call other systems serve nothing (`isolatedEngine`).
   */
  readonly isIsolated?: boolean
  /** The entries change below the barrier, by another server: no scan compares all of them. */
  readonly isReplica?: boolean
}

export class SecretsCore implements Core {
  readonly options: CoreOptions
  /** All engines, the core's own first. */
  readonly engines: readonly Engine[]
  readonly inFlight = new InFlight()
  readonly requestCounts = new RequestCounts()
  /** `sys/` while the core is not active: only paths that are declared for any state. */
  readonly #sealedSystem: ResolvedPath['mount']
  readonly #time: ClockSources
  readonly #clock: CoreClock
  #open: OpenCore | undefined
  /** Of the last activity: its counts may still be queued. */
  #userLockout: UserLockout | undefined
  /** Revokes the storage access of everything in `#open`. */
  #viewScope: ViewScope | undefined
  /** Of the last activity: its devices may still be open. */
  #lastTrail: AuditTrail | undefined
  #isSuspended = false
  /** The clock does not start before this time. */
  #clockFromMs = 0
  #onSeal: (() => Promise<void>) | undefined
  /** Other processes may have cached identities of this core's tokens. */
  #isCached = false

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

  /** An unsealed server of a highly available core that is not the active one. On a DR secondary, the active server has no open core. */
  get isHaStandby(): boolean {
    const { ha } = this.options
    const isOpen = this.isActive || (this.isSecondary && ha?.role === 'active')
    return ha !== undefined && !isOpen && this.barrier.standby.isHeld
  }

  /** Neither active nor in standby with the root key: of a DR secondary, or of a highly available core. */
  get isSealed(): boolean {
    return !this.isActive && !this.isHaStandby && !(this.isSecondary && this.barrier.standby.isHeld)
  }

  get fence(): DrFence | undefined {
    return this.options.replication?.dr.fence
  }

  disabledOnSecondary(): Error {
    return disabledOnSecondary(this.#primary)
  }

  get #primary(): { readonly primaryAddress: string | undefined } {
    return this.options.replication?.dr ?? { primaryAddress: undefined }
  }

  /** The CORS rule; undefined if CORS is disabled or the core is not active. */
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

  /** The clock for TTLs, see `core-clock.ts`. */
  now(): number {
    return this.#clock.now()
  }

  /** A standby that answers reads must not accept what has expired for the active server. */
  advanceClock(activeMs: number): void {
    this.#clock.advanceTo(activeMs)
  }

  /** The machine's clock, in milliseconds since 1970. */
  wallMs(): number {
    return this.#time.wall()
  }

  /** The entries of a new core, to be committed with its keyring, and its root token, which is stored nowhere. */
  initialState(
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
    const version = versionPut([], this.options.version, this.now())
    const puts = [
      { path: CLUSTER_PATH, value: Buffer.from(JSON.stringify(cluster)) },
      ...(version ? [version] : []),
      ...mounts,
      ...PolicyStore.initial(this.now()),
      ...tokens.puts,
    ]
    return { puts, rootToken: tokens.token }
  }

  /** Starts the core after the barrier was unsealed. */
  activate(): void {
    const viewScope = new ViewScope(undefined, this.options.mayAct)
    const storage = new Storage(this.barrier, viewScope)
    this.#isSuspended = false
    this.#viewScope = viewScope
    const { leaving, open } = openCore({
      engines: this.engines,
      logger: this.options.logger,
      serverInfo: this.options.serverInfo,
      auditDirectories: this.options.auditDirectories,
      storage,
      isIsolated: this.options.isIsolated ?? false,
      isFenced: () => this.fence !== undefined,
      clock: this.#clock,
      clockFromMs: this.#clockFromMs,
      time: this.#time,
      aclOf: (caller) => this.aclOf(caller),
      release: (uuid) => this.#release(uuid),
    })
    this.#open = open
    this.#userLockout = open.userLockout
    this.#isCached = true
    if (!this.options.isReplica) this.barrier.startScan()
    if (this.options.isIsolated) return stopBackgroundWork(open)
    open.mountChanges.resume(leaving)
    open.mfa.resume()
    open.tokenLeaseIndex.begin()
    open.userLockout.begin()
    const { logger, seal, version } = this.options
    recordVersion({ storage, version, nowMs: this.now(), logger })
    this.#addIdentityMount()
    const { trail } = open.auditing
    void recordOrigin({ note: seal.origin, trail, anonymous: this.anonymous.caller, logger })
    logger.info('secrets core active', { cluster_id: open.clusterId })
  }

  /** Between `suspend` and `resume`. */
  get isSuspended(): boolean {
    return this.#isSuspended
  }

  /** A restored snapshot has replaced all entries: the core stays inactive until `resume`. */
  suspend(): void {
    void this.#close()
    this.#isSuspended = true
  }

  /** Activates the core with the restored entries, or seals it if they have another key. Does nothing if not suspended. */
  async resume(): Promise<void> {
    if (!this.#isSuspended) return
    this.#isSuspended = false
    await (this.barrier.isSealed ? this.seal() : this.activateOrSeal())
  }

  /**
   * Enters standby as a DR secondary: requests in flight end with 503, queued commits become durable, the barrier closes and its
   * root key is kept. Resolves after agents were notified.
   */
  async enterStandby(): Promise<void> {
    this.#isSuspended = false
    const closed = this.#close()
    await Promise.all([closed.then(() => this.options.seal.enterStandby()), this.#invalidateTokens()])
    this.options.logger.info('secrets core in standby')
  }

  /**
   * Leaves standby with the kept root key. Throws a Refusal (503) if there is none. `clockMs`: the clock of the last active server has not
   * passed this time.
   */
  async leaveStandby(clockMs = 0): Promise<void> {
    if (this.isActive) return
    this.#clockFromMs = clockMs
    this.barrier.openFromStandby()
    await this.activateOrSeal()
    if (this.options.ha && this.isActive) await this.#requireAudit()
  }

  /** Another server may be able to record requests. Throws a Fault, in standby again, if this one cannot. */
  async #requireAudit(): Promise<void> {
    try {
      await requireRecording(this.open.auditing.trail)
    } catch (error) {
      await this.enterStandby()
      throw error
    }
  }

  /** Resolves when the queued commits are durable or have failed. */
  async #close(): Promise<void> {
    const open = this.#open
    this.#open = undefined
    this.#lastTrail = open?.auditing.trail ?? this.#lastTrail
    const queued = this.#viewScope?.revoke(sealed)
    if (open) closeParts(open)
    await queued
  }

  /** Seals the barrier immediately and drops all decrypted state. Resolves when the queued writes are finished. */
  async seal(): Promise<void> {
    void this.#close()
    await Promise.all([this.options.seal.seal(), this.#invalidateTokens()])
  }

  /** Resolves when agents were notified to drop cached tokens, because this core can no longer validate them. */
  async #invalidateTokens(): Promise<void> {
    if (!this.#isCached) return
    this.#isCached = false
    await this.#onSeal?.()
  }

  /** Before a stop: stores the heads of the audit chains, so they continue even if a file is rotated meanwhile. Never rejects. */
  async saveAuditHeads(): Promise<void> {
    await this.#open?.auditing.devices.saveHeads()
  }

  /** `listener` is called and awaited when the core is sealed or enters standby. It must not reject and must be fast. */
  onSeal(listener: () => Promise<void>): void {
    this.#onSeal = listener
  }

  /** Activates the core, or seals it if that fails. */
  async activateOrSeal(): Promise<void> {
    const isStandby = this.barrier.standby.isHeld
    try {
      await endTrail(this.#lastTrail)
      await this.options.replication?.unsealed()
      if (!isStandby) this.activate()
      // The standby key is no longer held if a promotion was finished, which has activated the core.
      else if (this.barrier.standby.isHeld)
        this.options.logger.info(
          this.isSecondary
            ? 'this server is a DR secondary and holds the root key of its primary'
            : 'this server is a standby and holds the root key of its cluster',
        )
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
   * The identity of a token for the rest of the process. Throws a Refusal for an invalid token, and while the core cannot validate
   * tokens. `again`: the caller was admitted before and no use is consumed.
   */
  identityOf(token: string, remote: string | undefined, again = false): Identity | Promise<Identity> {
    return this.#tokenAdmission().identityOf(token, remote, again)
  }

  /** The grants of a token for another process. Throws as `identityOf` does. */
  grantsOf(token: string, remote: string | undefined, again = false): Grants | Promise<Grants> {
    return this.#tokenAdmission().grantsOf(token, remote, again)
  }

  #tokenAdmission(): TokenAdmission {
    // An uninitialized core has issued no token.
    if (!this.isInitialised) throw unknownToken()
    if (this.isSecondary) throw noTokensOnSecondary(this.#primary)
    if (!this.#open || this.barrier.isSealed) throw sealed()
    // The tokens of a fenced primary may have been revoked at the new primary.
    if (this.fence) throw fencedPrimary(this.fence)
    return this.#open.admission
  }

  /** The ACL of a token's and its entity's policies. Throws a Rejection (403) if the entity is disabled or deleted. */
  aclOf(caller: Pick<Caller, 'entityId' | 'policies'>): Acl {
    const { entityPolicies, policies } = this.open
    const names = entityPolicies.of(caller)
    if (!names) throw denied()
    return policies.acl(names, this.now(), entityPolicies.factsOf(caller))
  }

  login(...[accepted, credentials]: Parameters<Core['login']>): PreparedLogin {
    const onLoginRefused = (mountPath: string, reason: string) => this.onLoginRefused(mountPath, reason)
    return prepareLogin({ ...this.open, now: () => this.now(), onLoginRefused }, accepted, credentials)
  }

  releaseAliases(mount: Mount, names: readonly string[]): Pick<PreparedLogin, 'onSettled' | 'parts'> {
    return releaseAliases(this.open.identity, { mount, names, nowMs: this.now() })
  }

  /** A login with valid credentials was refused. */
  onLoginRefused(mountPath: string, reason: string): void {
    this.options.logger.warn('login with valid credentials refused, the response omits the reason', {
      mount: mountPath,
      reason,
    })
  }

  failuresOf(mount: Mount): LoginFailures {
    return this.open.userLockout.of(mount)
  }

  /** Resolves when the failed logins so far are durable. Rejects if they could not be stored. */
  async failuresRecorded(): Promise<void> {
    await this.#userLockout?.recorded()
  }

  /** Revokes what a mount has issued: tokens, leases, then the rest. Resolves with the reasons of failed revocations. */
  async #release(uuid: string): Promise<readonly string[]> {
    const { identity, leases, mountChanges, mounts, periodicWork, revocation, tokens } = this.open
    identity.dropRights()
    for (;;) {
      const hashes = tokens.ofMount(uuid, REVOKED_AT_ONCE)
      if (hashes.length === 0) break
      for (const hash of hashes) await revocation.revoke(hash)
    }
    // Batch tokens have no entries. Their leases are owned by the auth method.
    await leases.revocation.revokeOfOwner(uuid)
    const failed = await leases.revokeOfMount(uuid)
    const mount = mounts.byUuid(uuid) ?? mountChanges.detached(uuid)
    if (failed > 0) return [leasesLeftError(mount?.record.path ?? '', failed)]
    return mount ? periodicWork.release(mount) : []
  }

  /** Cores of versions without identity have no such mount. */
  #addIdentityMount(): void {
    const { mounts, storage } = this.open
    if (mounts.get('identity/') || !mounts.engine('identity')) return
    const record = identityRecord()
    const put = { path: recordPath(record.uuid), value: encodeRecord(record) }
    storage.commit({ puts: [put], deletes: [] }).then(
      () => mounts.attach(record),
      (error: unknown) => this.options.logger.error('creating the identity mount failed', { error: messageOf(error) }),
    )
  }

  readonly anonymous = ANONYMOUS

  #systemMount(): ResolvedPath['mount'] {
    const engine = this.engines.find(({ type }) => type === 'system')
    if (!engine) throw new Error('no engine has the type "system"')
    return mountOf(newRecord({ path: 'sys/', type: 'system' }), engine, {
      paths: new PathTable(engine.paths),
      ...new Storage(this.barrier).createView(),
      activeRequests: new ActiveRequests(),
      identityToken: () => Promise.reject(sealed()),
    })
  }
}
