/** The readiness checks of all modules. */
import { dirname } from 'node:path'
import type { DiskSpace } from '../../telemetry/disk-space.ts'
import type { Check, CheckResult, ReadinessRole } from '../../telemetry/readiness.ts'
import type { Config } from '../../config/load.ts'
import { unencryptedServers } from '../../config/config.ts'
import type { Cluster } from '../modules/cluster.ts'
import { clockWarning } from './clock-warning.ts'
import { loginChecks } from '../modules/login.ts'
import { replicationChecks, replicationWarnings } from './dr-metrics.ts'
import { haChecks, haWarnings } from '../modules/ha-metrics.ts'
import type { SecretsCoreProbe } from './secrets-core-probe.ts'
import type { ReplicationPart } from '../modules/dr.ts'
import type { AgentLogin } from '../../login/agent-login.ts'
import type { DeviceState } from '../../secrets/audit/audit.ts'
import type { ChainBreak } from '../../secrets/audit/device-chain.ts'
import type { SecretsCore } from '../../secrets/core.ts'
import type { SnapshotSchedule } from '../../storage/snapshot/scheduled/snapshot-schedule.ts'
import type { FileFault } from '../../storage/store/store.ts'

/** Phase of the process. */
export type Phase = 'starting' | 'started' | 'stopping'

export interface ReadinessParts {
  readonly config: Config
  readonly phase: () => Phase
  readonly disk: DiskSpace
  readonly cluster: Cluster | undefined
  readonly core: SecretsCore | undefined
  /** On a server without a core. */
  readonly coreProbe?: Pick<SecretsCoreProbe, 'state'> | undefined
  readonly login?: AgentLogin | undefined
  readonly replication?: ReplicationPart | undefined
  /** Warnings about certificates that expire. */
  readonly certificateWarnings?: () => readonly string[]
  readonly schedule?: SnapshotSchedule | undefined
  /** Fault of the database files of the core. */
  readonly fileFault: () => FileFault | undefined
}

const MIB = 1 << 20

/** Directories that this process writes to. */
export function dataDirectories({ client, dataDir, server }: Config): string[] {
  return [
    dataDir,
    ...(client.enabled ? [client.stateDir] : []),
    ...(server.enabled && server.secrets ? [dirname(server.storagePath)] : []),
  ]
}

export function roleOf(core: Pick<SecretsCore, 'fence' | 'isSecondary'> | undefined): ReadinessRole {
  if (core?.fence) return 'fenced'
  return core?.isSecondary ? 'standby' : 'active'
}

export function checksOf(parts: ReadinessParts): Check[] {
  const { cluster, config, core, coreProbe, disk, fileFault, login, phase, replication } = parts
  return [
    { name: 'listening', now: () => listening(phase()) },
    { name: 'disk', now: () => diskState(disk) },
    ...(cluster && config.nats ? [{ name: 'nats', now: () => natsState(cluster) }] : []),
    ...(core ? [{ name: 'storage', now: () => storageState(fileFault()) }] : []),
    ...(core
      ? [{ name: 'seal', now: () => sealState(core, replication?.refusal, cluster?.cores?.insteadOfInit) }]
      : []),
    ...(coreProbe ? [{ name: 'secrets_core', now: () => coreProbe.state }] : []),
    ...(core ? [{ name: 'audit', now: () => auditState(core), warnings: () => auditWarnings(core) }] : []),
    ...(cluster?.roster && config.nats ? [{ name: 'roster', now: () => rosterState(cluster) }] : []),
    ...haChecks(core),
    ...replicationChecks(replication, () => core?.isSealed ?? false),
    ...loginChecks(login),
  ]
}

function listening(phase: Phase): CheckResult {
  return { ok: phase === 'started', reason: phase === 'started' ? 'accepting connections' : phase }
}

function diskState(disk: DiskSpace): CheckResult {
  const { fault, leastFreeBytes } = disk
  if (fault !== undefined) return { ok: false, reason: `data directory: ${fault}` }
  if (leastFreeBytes === undefined) return { ok: false, reason: 'data directory: not checked yet' }
  return { ok: true, reason: `writable, ${Math.floor(leastFreeBytes / MIB)} MiB free` }
}

function natsState({ connection }: Cluster): CheckResult {
  const { disconnectReason, isConnected } = connection
  if (isConnected) return { ok: true, reason: 'connected' }
  const because = disconnectReason === undefined ? '' : `: ${disconnectReason}`
  return { ok: false, reason: `not connected to NATS${because}` }
}

function storageState(fault: FileFault | undefined): CheckResult {
  return fault ? { ok: false, reason: fault.summary } : { ok: true, reason: 'database files unchanged' }
}

/** The same state as in `sys/health`. */
function sealState(core: SecretsCore, refusal: string | undefined, insteadOfInit: string | undefined): CheckResult {
  if (refusal !== undefined) return { ok: false, reason: `sealed: ${refusal}` }
  if (!core.isInitialised && core.options.seal.isLost) {
    return {
      ok: false,
      reason: 'not initialized: the database is empty and was not empty before; see the log of the server',
    }
  }
  if (!core.isInitialised) {
    return { ok: false, reason: notInitialised(core.options.ha !== undefined, insteadOfInit) }
  }
  if (core.isSecondary && !core.isSealed) return { ok: true, reason: 'unsealed, standby of its primary' }
  return core.isActive || core.isHaStandby
    ? { ok: true, reason: 'unsealed' }
    : { ok: false, reason: `sealed, next: ${core.options.seal.nextStep}` }
}

/** `insteadOfInit`: while another server of the region has a core. */
export function notInitialised(isHa: boolean, insteadOfInit: string | undefined): string {
  if (insteadOfInit === undefined) return 'not initialized, next: outpost operator init'
  if (isHa) return 'not initialized: copying the entries of another server, next: outpost operator unseal'
  return `not initialized, ${insteadOfInit}`
}

/** Requests are served while one device writes them; a broken chain needs an operator. */
function auditState(core: SecretsCore): CheckResult {
  const states = core.audit?.states ?? []
  if (states.length === 0) return { ok: true, reason: 'no audit device enabled' }
  const broken = states.flatMap((state) => (state.broken ? [brokenText(state.path, state.broken)] : []))
  if (broken.length > 0) return { ok: false, reason: broken.join('; ') }
  const failing = failingDevices(core)
  if (failing.length === 0) return { ok: true, reason: 'audit devices record requests' }
  const reason = `audit device write failed: ${failing.join(', ')}`
  return failing.length < states.length
    ? { ok: true, reason }
    : { ok: false, reason: `requests are refused, ${reason}` }
}

/** Name and reason of each device that has not recorded its last line. */
function failingDevices(core: SecretsCore): string[] {
  const failing = (core.audit?.states ?? []).filter(({ fault }) => fault !== undefined)
  return failing.map(({ failure, path }) => `${path} ${failure?.reason ?? 'failed'}`)
}

/** Devices that record after a failure, but have not recovered yet. */
function unstableDevices(states: readonly DeviceState[]): string[] {
  return states.flatMap(({ failure, path }) =>
    failure?.isPast ? [`${path} ${failure.reason}, ${Math.floor(failure.agoMs / 1000)} s ago; it records again`] : [],
  )
}

/** While all devices fail, the check does. */
function auditWarnings(core: SecretsCore | undefined): string[] {
  const failing = core ? failingDevices(core) : []
  const states = core?.audit?.states ?? []
  const full = states.filter(({ fault, isDiskFull }) => isDiskFull && fault === undefined)
  return [
    ...(failing.length > 0 && failing.length < states.length
      ? [`audit device write failed: ${failing.join(', ')}; other devices record`]
      : []),
    ...unstableDevices(states).map((text) => `audit device write failed: ${text}`),
    ...full.map(
      ({ path }) => `disk of audit device ${path} is full, lines use its reserve: free space before it is used up`,
    ),
  ]
}

function brokenText(path: string, { expected, file, found }: ChainBreak): string {
  const end = found
    ? `ended with line ${found.sequence}, which another program wrote,`
    : 'ended with text from another program'
  const next = `next: outpost audit verify -path=${path} FILE..., then outpost audit acknowledge ${path}`
  return `audit chain of ${path} is broken: ${file} ${end} instead of line ${expected.sequence}, ${next}`
}

function rosterState({ connection, roster }: Cluster): CheckResult {
  if (!connection.isConnected) return { ok: false, reason: 'not connected to NATS' }
  const unreported = roster?.unreportedCount ?? 0
  if (unreported === 0) return { ok: true, reason: 'all ready nodes reported' }
  return { ok: false, reason: `no report yet from ${unreported} of ${roster?.nodeCount ?? 0} nodes` }
}

/** Conditions that do not affect service but need a change. */
export function warningsOf({
  certificateWarnings,
  cluster,
  config,
  core,
  replication,
  schedule,
}: Pick<ReadinessParts, 'certificateWarnings' | 'cluster' | 'config' | 'core' | 'replication' | 'schedule'>): string[] {
  const { nats } = config
  return [
    ...(nats && unencryptedServers(nats).length > 0 ? [UNENCRYPTED] : []),
    ...conflictWarnings(cluster),
    ...serverWarnings(cluster),
    ...clockWarnings(cluster),
    ...replicationWarnings(replication, core?.isSealed ?? false),
    ...auditWarnings(core),
    ...haWarnings(core),
    ...(certificateWarnings?.() ?? []),
    ...snapshotWarnings(schedule),
  ]
}

function snapshotWarnings(schedule: SnapshotSchedule | undefined): string[] {
  const problem = schedule?.status?.problem
  return problem === undefined ? [] : [problem]
}

/** No failing check: it would fail on all these servers, and a load balancer would remove the right core too. */
function conflictWarnings(cluster: Cluster | undefined): string[] {
  const conflict = cluster?.cores?.conflict
  return conflict === undefined ? [] : [conflict]
}

/** No failing check: an agent answers for its own host. */
function serverWarnings(cluster: Cluster | undefined): string[] {
  const warning = cluster?.servers?.warning
  return warning === undefined ? [] : [warning]
}

/** Names a few nodes: with a wrong clock of this server all nodes are affected. */
function clockWarnings(cluster: Cluster | undefined): string[] {
  const skewed = cluster?.roster?.clocks.skewed ?? []
  const shown = skewed.slice(0, NODES_NAMED).map(({ name, skewMs }) => clockWarning(`node "${name}"`, skewMs))
  const more = skewed.length - shown.length
  return [
    ...serverClockWarnings(cluster),
    ...shown,
    ...(more > 0 ? [`clocks of ${more} more nodes differ from this server by more than 30 s`] : []),
  ]
}

/** If the clock of this host is wrong, all servers are affected: names a few. */
function serverClockWarnings(cluster: Cluster | undefined): string[] {
  const skewed = cluster?.serverClocks?.skewed ?? []
  return skewed.slice(0, NODES_NAMED).map(({ name, skewMs }) => clockWarning('this host', skewMs, `server "${name}"`))
}

const NODES_NAMED = 5
const UNENCRYPTED =
  'the connection to NATS is not encrypted: nats { servers } has addresses beyond loopback without tls:// or ca_file'
