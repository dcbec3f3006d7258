/** What the rooms know about whether this process can do its work, as checks of `telemetry/readiness.ts`. */
import { dirname } from 'node:path'
import type { DiskSpace } from '../telemetry/disk-space.ts'
import type { Check, Outcome } from '../telemetry/readiness.ts'
import type { Config } from '../config/load.ts'
import { unencryptedServers } from '../config/nats-exposure.ts'
import type { Cluster } from './cluster.ts'
import { clockWarning } from './clock-warning.ts'
import { loginChecks } from './login.ts'
import { replicationChecks, replicationWarnings } from './dr-metrics.ts'
import type { ReplicationPart } from './dr.ts'
import type { AgentLogin } from '../login/agent-login.ts'
import type { ChainBreak } from '../secrets/audit/device-chain.ts'
import type { SecretsCore } from '../secrets/core.ts'
import type { FileFault } from '../storage/store/store.ts'

/** In which part of its life the process is. */
export type Phase = 'starting' | 'started' | 'stopping'

export interface ReadinessParts {
  readonly config: Config
  readonly phase: () => Phase
  readonly disk: DiskSpace
  readonly cluster: Cluster | undefined
  readonly core: SecretsCore | undefined
  readonly login?: AgentLogin | undefined
  readonly replication?: ReplicationPart | undefined
  /** What is wrong with the files of the core's database. */
  readonly fileFault: () => FileFault | undefined
}

const MIB = 1 << 20

/** What this process writes to. */
export function dataDirectories({ client, dataDir, server }: Config): string[] {
  return [
    dataDir,
    ...(client.enabled ? [client.stateDir] : []),
    ...(server.enabled && server.secrets ? [dirname(server.storagePath)] : []),
  ]
}

export function checksOf(parts: ReadinessParts): Check[] {
  const { cluster, config, core, disk, fileFault, login, phase, replication } = parts
  return [
    { name: 'listening', now: () => listening(phase()) },
    { name: 'disk', now: () => diskState(disk) },
    ...(cluster && config.nats ? [{ name: 'nats', now: () => natsState(cluster) }] : []),
    ...(core ? [{ name: 'storage', now: () => storageState(fileFault()) }] : []),
    ...(core
      ? [{ name: 'seal', now: () => sealState(core, replication?.refusal, cluster?.cores?.insteadOfInit) }]
      : []),
    ...(core ? [{ name: 'audit', now: () => auditState(core) }] : []),
    ...(cluster?.roster && config.nats ? [{ name: 'roster', now: () => rosterState(cluster) }] : []),
    ...replicationChecks(replication),
    ...loginChecks(login),
  ]
}

function listening(phase: Phase): Outcome {
  return { ok: phase === 'started', reason: phase === 'started' ? 'requests are answered' : phase }
}

function diskState(disk: DiskSpace): Outcome {
  const { fault, leastFreeBytes } = disk
  if (fault !== undefined) return { ok: false, reason: `data directory: ${fault}` }
  if (leastFreeBytes === undefined) return { ok: false, reason: 'data directory: not looked at yet' }
  return { ok: true, reason: `writable, ${Math.floor(leastFreeBytes / MIB)} MiB free` }
}

function natsState({ connection }: Cluster): Outcome {
  return connection.isConnected ? { ok: true, reason: 'connected' } : { ok: false, reason: 'not connected to NATS' }
}

function storageState(fault: FileFault | undefined): Outcome {
  return fault ? { ok: false, reason: fault.summary } : { ok: true, reason: 'the database is in its place' }
}

/** As `sys/health` has it. */
function sealState(core: SecretsCore, refusal: string | undefined, insteadOfInit: string | undefined): Outcome {
  if (refusal !== undefined) return { ok: false, reason: `sealed: ${refusal}` }
  if (!core.isInitialised && core.options.seal.isLost) {
    return {
      ok: false,
      reason: 'not initialised: the database is empty, and was not; the log of the server says what to do',
    }
  }
  if (!core.isInitialised) {
    return { ok: false, reason: `not initialised, ${insteadOfInit ?? 'next: outpost operator init'}` }
  }
  if (core.isSecondary && !core.isSealed) return { ok: true, reason: 'stands by with the key of its primary' }
  return core.isActive
    ? { ok: true, reason: 'unsealed' }
    : { ok: false, reason: `sealed, next: ${core.options.seal.nextStep}` }
}

/** Requests go on as long as one device records them; a broken chain is for an operator to look at. */
function auditState(core: SecretsCore): Outcome {
  const states = core.audit?.states ?? []
  if (states.length === 0) return { ok: true, reason: 'no audit device is enabled' }
  const broken = states.flatMap((state) => (state.broken ? [brokenText(state.path, state.broken)] : []))
  if (broken.length > 0) return { ok: false, reason: broken.join('; ') }
  const failing = states.filter(({ fault }) => fault !== undefined)
  if (failing.length === 0) return { ok: true, reason: 'requests are recorded' }
  const names = failing.map(({ path }) => path).join(', ')
  const ok = failing.length < states.length
  return { ok, reason: ok ? `recorded, but not by ${names}` : `no request is served: not recorded by ${names}` }
}

function brokenText(path: string, { expected, file, found }: ChainBreak): string {
  const end = found ? `ended with line ${found.sequence} of another program` : 'ended with text of another program'
  const next = `next: outpost audit verify -path=${path} FILE..., then outpost audit acknowledge ${path}`
  return `audit chain of ${path} is broken: ${file} ${end} instead of line ${expected.sequence}, ${next}`
}

function rosterState({ connection, roster }: Cluster): Outcome {
  if (!connection.isConnected) return { ok: false, reason: 'nothing is heard from the nodes' }
  const unheard = roster?.unreportedCount ?? 0
  if (unheard === 0) return { ok: true, reason: 'every node that is ready has been heard' }
  return { ok: false, reason: `not heard yet: ${unheard} of ${roster?.nodeCount ?? 0} nodes` }
}

/** What works and should be changed all the same. */
export function warningsOf({
  cluster,
  config,
  replication,
}: Pick<ReadinessParts, 'cluster' | 'config' | 'replication'>): string[] {
  const { nats } = config
  return [
    ...(nats && unencryptedServers(nats).length > 0 ? [UNENCRYPTED] : []),
    ...conflictWarnings(cluster),
    ...clockWarnings(cluster),
    ...replicationWarnings(replication),
  ]
}

/** A check would fail on all of these servers, and a load balancer would then remove the core that works, too. */
function conflictWarnings(cluster: Cluster | undefined): string[] {
  const conflict = cluster?.cores?.conflict
  return conflict === undefined ? [] : [conflict]
}

/** Names a few nodes: with a wrong clock of this server it is all of them. */
function clockWarnings(cluster: Cluster | undefined): string[] {
  const skewed = cluster?.roster?.clocks.skewed ?? []
  const shown = skewed.slice(0, NODES_NAMED).map(({ name, skewMs }) => clockWarning(`node "${name}"`, skewMs))
  const more = skewed.length - shown.length
  return more > 0 ? [...shown, `clocks of ${more} more nodes differ from this server by more than 30 s`] : shown
}

const NODES_NAMED = 5
const UNENCRYPTED =
  'the connection to NATS is not encrypted: nats { servers } has addresses beyond loopback without tls:// or ca_file'
