/**
 * How the core is, and what it is to others: what load balancers and clients ask before anything else. Most of it answers
 * in every state. Fields that have no meaning here are there because some client cannot do without them.
 */
import type { Barrier } from '../../barrier/barrier.ts'
import { hostname } from 'node:os'
import { path, type Path, Rejection, type Reply } from '../../engines/engine.ts'
import { boolean, integer } from '../../engines/fields.ts'
import type { CoreState, MadeWith, Timed } from './core-parts.ts'

const NOT_INITIALISED = 501
const SEALED = 503
const ACTIVE = 200
/** These never have a body. */
const BODILESS = new Set([204, 205, 304])

export interface HealthParts extends CoreState, Timed, MadeWith<'version' | 'surroundings'> {
  readonly barrier: Pick<Barrier, 'integrity'>
}

export function healthPaths(core: HealthParts): Path[] {
  return [healthPath(core), ...standingPaths(core), ...replicationPaths()]
}

function healthPath(core: HealthParts): Path {
  return path({
    pattern: 'health',
    summary: 'The state of this server, as a status code and in words',
    unauthenticated: true,
    whileSealed: true,
    anyFields: true,
    fields: {
      activecode: integer('Status code of an active server', { fallback: ACTIVE }),
      sealedcode: integer('Status code of a sealed server', { fallback: SEALED }),
      uninitcode: integer('Status code of a server that was not initialised', { fallback: NOT_INITIALISED }),
      standbycode: integer('Status code of a standby: there is none so far', { fallback: 429 }),
      standbyok: boolean('Whether a standby counts as active', { fallback: false }),
      drsecondarycode: integer('Status code of a secondary for disaster recovery', { fallback: 472 }),
      performancestandbycode: integer('Status code of a standby that answers reads: there is none', { fallback: 473 }),
      perfstandbyok: boolean('Whether such a standby counts as active', { fallback: false }),
      removedcode: integer('Status code of a server that was removed from its cluster', { fallback: 530 }),
      haunhealthycode: integer('Status code of a standby that has lost the active server', { fallback: 474 }),
    },
    read(input): Reply {
      const status = codeOf(core, input)
      return BODILESS.has(status) ? { status } : { bare: health(core), status }
    },
  })
}

function codeOf(core: HealthParts, codes: { activecode: number; sealedcode: number; uninitcode: number }): number {
  const code = !core.isInitialised ? codes.uninitcode : core.isActive ? codes.activecode : codes.sealedcode
  // Lower ones announce another answer, higher ones do not exist.
  if (code < 200 || code > 599) throw new Rejection(400, 'a status code is a number from 200 to 599')
  return code
}

function health(core: HealthParts): Record<string, unknown> {
  const mode = core.isActive ? 'disabled' : 'unknown'
  const { warnings } = core.barrier.integrity
  return {
    initialized: core.isInitialised,
    sealed: !core.isActive,
    standby: !core.isActive,
    performance_standby: false,
    replication_performance_mode: mode,
    replication_dr_mode: mode,
    server_time_utc: Math.floor(core.now() / 1000),
    version: core.options.version,
    ...(core.isActive ? { cluster_name: core.open.clusterName, cluster_id: core.open.clusterId } : {}),
    last_wal: 0,
    ...(warnings.length > 0 ? { warnings } : {}),
  }
}

/** One server, which is therefore the active one. */
function standingPaths(core: MadeWith<'version' | 'surroundings'>): Path[] {
  return [
    path({
      pattern: 'leader',
      summary: 'Which server is the active one: this one, as there is no other',
      unauthenticated: true,
      whileSealed: true,
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
      summary: 'The servers of this cluster',
      fields: {},
      read() {
        const { surroundings, version } = core.options
        const node = {
          hostname: hostname(),
          api_address: surroundings?.apiAddress?.() ?? '',
          cluster_address: surroundings?.clusterAddress?.() ?? '',
          active_node: true,
          last_echo: null,
          version,
        }
        return { data: { nodes: [node] }, flattened: true }
      },
    }),
  ]
}

/** Clients ask before they know what kind of server this is. */
function replicationPaths(): Path[] {
  return ['replication/status', 'replication/dr/status', 'replication/performance/status'].map((pattern) =>
    path({
      pattern,
      summary: 'Replication between clusters: there is none',
      unauthenticated: true,
      fields: {},
      read: () => ({ data: { mode: 'disabled' } }),
    }),
  )
}
