/**
 * `sys/health`, `sys/leader` and `sys/ha-status`: the state of the core for load balancers and clients. Most of it is served in
 * every state. Fields without a meaning here exist because some clients require them.
 */
import type { Barrier } from '../../storage/barrier/barrier.ts'
import { hostname } from 'node:os'
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { boolean, integer } from '../../engines/framework/fields.ts'
import type { CoreState, WithOptions, WithClock } from './core-parts.ts'
import { versionFacts } from './version-history.ts'

const NOT_INITIALISED = 501
const SEALED = 503
const ACTIVE = 200
/** Statuses without a body */
const BODILESS = new Set([204, 205, 304])

export interface HealthParts extends CoreState, WithClock, WithOptions<'version' | 'serverInfo' | 'replication'> {
  readonly barrier: Pick<Barrier, 'integrity'>
}

export function healthPaths(core: HealthParts): Path[] {
  return [healthPath(core), ...activeServerPaths(core)]
}

function healthPath(core: HealthParts): Path {
  return path({
    pattern: 'health',
    summary: 'Read the state of this server as a status code and as JSON',
    unauthenticated: true,
    whileSealed: true,
    onSecondary: true,
    anyFields: true,
    fields: {
      activecode: integer('Status code of an active server', { fallback: ACTIVE }),
      sealedcode: integer('Status code of a sealed server', { fallback: SEALED }),
      uninitcode: integer('Status code of an uninitialized server', { fallback: NOT_INITIALISED }),
      standbycode: integer('Status code of a standby: not used', { fallback: 429 }),
      standbyok: boolean('Whether a standby counts as active', { fallback: false }),
      drsecondarycode: integer('Status code of a DR secondary', { fallback: 472 }),
      performancestandbycode: integer('Status code of a performance standby: not used', { fallback: 473 }),
      perfstandbyok: boolean('Whether a performance standby counts as active', { fallback: false }),
      removedcode: integer('Status code of a server that was removed from its cluster', { fallback: 530 }),
      haunhealthycode: integer('Status code of a fenced primary', {
        fallback: 474,
      }),
    },
    read(input): Reply {
      const dr = drState(core)
      const status = codeOf(core, dr.mode, input)
      return BODILESS.has(status) ? { status } : { bare: health(core, dr), status }
    },
  })
}

interface StatusCodes {
  readonly activecode: number
  readonly drsecondarycode: number
  readonly haunhealthycode: number
  readonly sealedcode: number
  readonly uninitcode: number
}

function codeOf(core: HealthParts, dr: string, codes: StatusCodes): number {
  const code = stateCode(core, dr, codes)
  // A code below 200 announces a further response.
  if (code < 200 || code > 599) throw new Rejection(400, 'a status code must be from 200 to 599')
  return code
}

function stateCode(core: HealthParts, dr: string, codes: StatusCodes): number {
  // The entries received from the primary so far may not suffice to unseal.
  if (dr === 'bootstrapping') return codes.drsecondarycode
  if (!core.isInitialised) return codes.uninitcode
  if (core.isSealed) return codes.sealedcode
  if (core.isSecondary) return codes.drsecondarycode
  return core.fence ? codes.haunhealthycode : codes.activecode
}

/** The DR role of this cluster; `unknown` while the core is sealed and replication is disabled. */
function drState(core: HealthParts): DrState {
  const { dr } = core.options.replication ?? {}
  if (!dr || dr.mode === 'disabled') return { mode: core.isActive ? 'disabled' : 'unknown', sync: 'off' }
  return dr.brief
}

interface DrState {
  readonly mode: string
  /** Whether commits wait for secondaries. */
  readonly sync: string
}

function health(core: HealthParts, dr: DrState): Record<string, unknown> {
  const { fence } = core
  const { warnings } = core.barrier.integrity
  return {
    initialized: core.isInitialised,
    sealed: core.isSealed,
    standby: !core.isActive || fence !== undefined,
    performance_standby: false,
    replication_performance_mode: core.isActive || core.isSecondary ? 'disabled' : 'unknown',
    replication_dr_mode: dr.mode,
    ...(dr.sync === 'off' ? {} : { sync: dr.sync }),
    ...(fence && { fenced: true, fence_reason: fence.reason, fence_detail: fence.text }),
    server_time_utc: Math.floor(core.now() / 1000),
    ...versionFacts(core.options.version),
    ...(core.isActive ? { cluster_name: core.open.clusterName, cluster_id: core.open.clusterId } : {}),
    last_wal: 0,
    ...(warnings.length > 0 ? { warnings } : {}),
  }
}

/** The core runs on one server, which is therefore the active one. */
function activeServerPaths(core: WithOptions<'version' | 'serverInfo'>): Path[] {
  return [
    path({
      pattern: 'leader',
      summary: 'Read the active server, which is always this one',
      unauthenticated: true,
      whileSealed: true,
      onSecondary: true,
      fields: {},
      read: () => ({
        bare: {
          ha_enabled: false,
          is_self: false,
          active_time: '0001-01-01T00:00:00Z',
          leader_address: '',
          leader_cluster_address: '',
          performance_standby: false,
          performance_standby_last_remote_wal: 0,
        },
      }),
    }),
    path({
      pattern: 'ha-status',
      summary: 'List the servers of this cluster',
      fields: {},
      read() {
        const { serverInfo, version } = core.options
        const node = {
          hostname: hostname(),
          api_address: serverInfo?.apiAddress?.() ?? '',
          cluster_address: serverInfo?.clusterAddress?.() ?? '',
          active_node: true,
          last_echo: null,
          version,
        }
        return { data: { nodes: [node] }, flattened: true }
      },
    }),
  ]
}
