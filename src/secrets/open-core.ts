/** Creates the parts of an active core: its stores and the services that use them (`core.ts`). */
import type { Storage } from '../storage/barrier/storage.ts'
import { canonicalAt } from '../engines/framework/path-table.ts'
import { cubbyholePrefix } from '../engines/cubbyhole/cubbyhole.ts'
import type { Caller, Engine } from '../engines/framework/engine.ts'
import type { Logger } from '../platform/log.ts'
import { AuditStore } from './audit/audit-store.ts'
import { AuditTrail } from './audit/audit.ts'
import { ClockMark } from './clock-mark.ts'
import type { ClockSources, CoreClock } from './core-clock.ts'
import { accountName } from './identity/identity-record.ts'
import { EntityPolicies, IdentityStore } from './identity/identity.ts'
import { OidcIssuer } from './identity/oidc-issuer.ts'
import { LeaseRevocation } from './leases/lease-revocation.ts'
import { LeaseStore } from './leases/lease-store.ts'
import { LeaseExpiry } from './leases/lease-expiry.ts'
import { Leases } from './leases/leases.ts'
import { TokenLeases } from './leases/token-leases.ts'
import { Enforcements } from './mfa/enforcement.ts'
import { UserLockout } from './logins/user-lockout.ts'
import { LoginMfa } from './mfa/login-mfa.ts'
import { Mfa } from './mfa/mfa.ts'
import { MountChanges } from './mounts/mount-changes.ts'
import { dataPrefix, type MountRecord } from './mounts/mount-record.ts'
import { PeriodicWork } from './mounts/periodic-work.ts'
import { type Mount, MountTable } from './mounts/mounts.ts'
import type { Acl } from './policies/acl.ts'
import { PolicyStore } from './policies/policy-store.ts'
import { Quotas } from './quotas/quotas.ts'
import type { ServerInfo } from './system/core-parts.ts'
import { SystemSettings } from './system/system-settings.ts'
import { TokenAdmission } from './tokens/token-admission.ts'
import { TokenLeaseIndex } from './tokens/token-lease-index.ts'
import { TokenRevocation } from './tokens/token-revocation.ts'
import { TokenStore } from './tokens/token-store.ts'
import { TokenExpiry } from './tokens/token-expiry.ts'
import { TokenTidy } from './tokens/token-tidy.ts'
import { ResponseWrapping } from './wrapping/wrapping.ts'

/** The entry with the cluster's ID and name */
export const CLUSTER_PATH = 'core/cluster'

/** The state of an active core. */
export interface OpenCore {
  /** The whole barrier, accessible until the core is sealed. */
  readonly storage: Storage
  readonly mounts: MountTable
  readonly mountChanges: MountChanges
  readonly periodicWork: PeriodicWork
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  readonly tokenExpiry: TokenExpiry
  readonly tidy: TokenTidy
  readonly admission: TokenAdmission
  readonly policies: PolicyStore
  readonly settings: SystemSettings
  readonly identity: IdentityStore
  readonly entityPolicies: EntityPolicies
  readonly oidc: OidcIssuer
  readonly mfa: Mfa
  readonly enforcements: Enforcements
  readonly loginMfa: LoginMfa
  readonly leases: Leases
  readonly tokenLeases: TokenLeases
  readonly tokenLeaseIndex: TokenLeaseIndex
  readonly wrapping: ResponseWrapping
  readonly quotas: Quotas
  readonly userLockout: UserLockout
  readonly auditing: { readonly trail: AuditTrail; readonly devices: AuditStore }
  readonly clusterId: string
  readonly clusterName: string
}

interface OpenCoreOptions {
  readonly engines: readonly Engine[]
  /** The whole barrier, accessible until the core is sealed. */
  readonly storage: Storage
  /** Audit devices are disabled. */
  readonly isIsolated: boolean
  /** This core is a fenced DR primary. */
  readonly isFenced: () => boolean
  readonly clock: CoreClock
  /** The clock does not start before this time. */
  readonly clockFromMs: number
  readonly time: ClockSources
  readonly logger: Logger
  readonly serverInfo: ServerInfo | undefined
  /** Directories that audit files must be in; undefined for any directory. */
  readonly auditDirectories: readonly string[] | undefined
  /** Throws a Rejection (403) if the caller's entity is disabled or deleted. */
  readonly aclOf: (caller: Pick<Caller, 'entityId' | 'policies'>) => Acl
  /** Revokes what a mount has issued. Resolves with the reasons of failed revocations. */
  readonly release: (uuid: string) => Promise<readonly string[]>
}

type MountOf = (uuid: string) => Mount | undefined

/** Reads the state from the barrier. `leaving`: mounts whose removal was in progress, for `mountChanges.resume`. */
export function openCore(options: OpenCoreOptions): { readonly open: OpenCore; readonly leaving: MountRecord[] } {
  const { clock, engines, isFenced, logger, release, storage, time } = options
  const now = () => clock.now()
  const apiAddress = () => options.serverInfo?.apiAddress?.() ?? ''
  const oidc = new OidcIssuer({ storage, now, wall: time.wall, apiAddress })
  const mounts = new MountTable({ storage, engines, identityToken: (record, wish) => oidc.token(record, wish) })
  const leaving = mounts.load()
  const mountChanges = new MountChanges({ table: mounts, storage, logger, release })
  const settings = new SystemSettings(storage)
  const isMounted = (uuid: string) => mounts.byUuid(uuid) !== undefined
  const ofTokens = openTokens(options, mounts, (uuid) => mounts.byUuid(uuid) ?? mountChanges.detached(uuid))
  const digest = (text: string) => ofTokens.tokens.hashOf(`quota\0${text}`)
  const open = {
    storage,
    mounts,
    mountChanges,
    periodicWork: new PeriodicWork({ mounts: () => mounts.all(), now, isFenced, logger }),
    ...ofTokens,
    settings,
    oidc,
    quotas: new Quotas({ storage, isMounted, now, elapsed: time.elapsed, digest }),
    userLockout: new UserLockout({ storage, logger, now }),
    auditing: openAudit(options, settings),
    ...readCluster(storage),
  }
  return { open, leaving }
}

function readCluster(storage: Storage): Pick<OpenCore, 'clusterId' | 'clusterName'> {
  const stored = storage.get(CLUSTER_PATH)?.toString('utf8') ?? '{}'
  const { id = '', name = '' } = JSON.parse(stored) as { id?: string; name?: string }
  return { clusterId: id, clusterName: name }
}

type TokenParts =
  | 'tokens'
  | 'revocation'
  | 'tokenExpiry'
  | 'tidy'
  | 'admission'
  | 'policies'
  | 'identity'
  | 'entityPolicies'
  | 'mfa'
  | 'enforcements'
  | 'loginMfa'
  | 'leases'
  | 'tokenLeases'
  | 'tokenLeaseIndex'
  | 'wrapping'

function openTokens(options: OpenCoreOptions, mounts: MountTable, mountOf: MountOf): Pick<OpenCore, TokenParts> {
  const { clock, isFenced, logger, serverInfo, storage } = options
  const tokens = new TokenStore(storage, (uuid) => mounts.byUuid(uuid) !== undefined)
  const policies = new PolicyStore(storage)
  const isMounted = (accessor: string) => mounts.byAccessor(accessor) !== undefined
  const identity = new IdentityStore(storage, isMounted, (removed) => mfa.mfa.partsOfRemoval(removed))
  const mfa = openMfa(options, identity)
  const entityPolicies = new EntityPolicies(identity)
  const cubbyholes = storage.below(dataPrefix(mounts.get('cubbyhole/')?.record.uuid ?? ''))
  const now = () => clock.now()
  const store = new LeaseStore(storage)
  const leaseRevocation = new LeaseRevocation({ leases: store, mountOf, now, logger })
  // Leases and the cubbyhole of a token are removed with it.
  const onRevoke = [
    (hash: string) => leaseRevocation.revokeOfOwner(hash),
    async (hash: string) => void (await cubbyholes.removeAll(cubbyholePrefix(hash))),
  ]
  const revocation = new TokenRevocation(tokens, logger, onRevoke)
  const tokenLeaseIndex = new TokenLeaseIndex(tokens, logger)
  const clockMark = new ClockMark({ clock, fromMs: options.clockFromMs, storage, logger })
  const tokenExpiry = new TokenExpiry({ tokens, revocation, time: clockMark, isFenced, logger })
  const expiryTimeMs = () => clockMark.expiryTimeMs()
  const leaseExpiry = new LeaseExpiry({ leases: store, revocation: leaseRevocation, expiryTimeMs, isFenced, logger })
  const apiAddress = () => serverInfo?.apiAddress?.() ?? ''
  return {
    wrapping: new ResponseWrapping({ tokens, revocation, storage, cubbyholes, now, apiAddress }),
    leases: new Leases({ store, revocation: leaseRevocation, expiry: leaseExpiry, mountOf, now }),
    tokenLeases: new TokenLeases({ tokens, revocation, index: tokenLeaseIndex, now }),
    tokenLeaseIndex,
    identity,
    entityPolicies,
    ...mfa,
    tokens,
    policies,
    revocation,
    tokenExpiry,
    tidy: new TokenTidy({ tokens, revocation, cubbyholes, logger }),
    admission: new TokenAdmission({
      tokens,
      revocation,
      policies,
      now,
      aclOf: options.aclOf,
      canonical: (path) => canonicalAt(path, mounts.find(path)),
      policiesOf: (entry) => entityPolicies.of(entry),
      onUnknownAddress: (accessor) =>
        logger.warn('address-bound token refused, the caller address was not verified by a server', {
          accessor,
          hint: 'the client address that an agent reports is not trusted: use this token with a server, not with an agent',
        }),
    }),
  }
}

function openMfa(
  { clock, logger, storage, time }: OpenCoreOptions,
  identity: IdentityStore,
): Pick<OpenCore, 'mfa' | 'enforcements' | 'loginMfa'> {
  // Cached since the caller was admitted.
  const entityId = (id: string) => identity.rights(id)?.entityId
  const now = () => clock.now()
  const accountOf = (id: string) => accountName(identity.entity(id)) ?? id
  const mfa = new Mfa({ storage, logger, now, wall: time.wall, entityId, accountOf })
  const enforcements = new Enforcements(storage)
  return { mfa, enforcements, loginMfa: new LoginMfa(mfa, enforcements, now) }
}

function openAudit(
  { auditDirectories, clock, isIsolated, logger, storage, time }: OpenCoreOptions,
  settings: SystemSettings,
): OpenCore['auditing'] {
  const headers = () => settings.auditedHeaders.value
  const trail = new AuditTrail({ logger, now: () => clock.now(), elapsed: time.elapsed, headers })
  return {
    trail,
    devices: new AuditStore({ storage, trail, logger, directories: auditDirectories, isIdle: isIsolated }),
  }
}

/** Engine methods that may act outside of the engine's entries. */
const EXTERNAL_WORK = ['forget', 'periodic', 'release', 'renew', 'revoke'] as const

/**
 * An engine for a core that must change nothing outside its database (`CoreOptions.isIsolated`). An engine that calls other
 * systems keeps its type, so that its mounts load, but has no paths and no work: its credentials are neither issued, renewed nor
 * revoked. Other engines are returned unchanged.
 */
export function isolatedEngine(engine: Engine): Engine {
  const { aliases, description, furtherTypes, kind, type } = engine
  const isExternal = EXTERNAL_WORK.some((work) => engine[work] !== undefined)
  if (!isExternal) return engine
  return {
    type,
    description,
    paths: [],
    ...(kind && { kind }),
    ...(aliases && { aliases }),
    ...(furtherTypes && { furtherTypes }),
  }
}

export function closeParts(open: OpenCore): void {
  const { auditing, leases, mountChanges, periodicWork, revocation, tokenExpiry, tidy, tokenLeaseIndex, tokens } = open
  const ofTokens = [tokenExpiry, tokenLeaseIndex, leases, open.wrapping, revocation, tidy, tokens]
  const parts = [periodicWork, mountChanges, open.userLockout, ...ofTokens]
  for (const part of [...parts, open.identity, open.mfa, open.loginMfa]) part.close()
  for (const part of [auditing.devices, auditing.trail]) part.close()
}

/** Must run synchronously after `openCore`, before any timer fires. */
export function stopBackgroundWork({ leases, periodicWork, tokenExpiry }: OpenCore): void {
  for (const part of [periodicWork, tokenExpiry, leases.expiry]) part.close()
}
