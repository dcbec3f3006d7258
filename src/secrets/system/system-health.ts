/**
 * `sys/health`: the state of the core for load balancers and clients, served in every state. Fields without a meaning here exist
 * because some clients require them.
 *
 * A standby forwards requests, so its status is 429. 473 is for a performance standby, which serves reads from its own, older
 * state without being asked to: load balancers with `perfstandbyok` would send reads to it that must be current.
 */
import type { Barrier } from '../../storage/barrier/barrier.ts'
import { path, type Path, Rejection, type Reply } from '../../engines/framework/engine.ts'
import { boolean, integer } from '../../engines/framework/fields.ts'
import { haFault } from '../ha-endpoints/ha-side.ts'
import type { CoreState, WithOptions, WithClock } from './core-parts.ts'
import { versionFacts } from './version-history.ts'

const NOT_INITIALISED = 501
const SEALED = 503
const ACTIVE = 200
/** Statuses without a body */
const BODILESS = new Set([204, 205, 304])

export interface HealthParts extends CoreState, WithClock, WithOptions<'version' | 'replication' | 'ha'> {
  readonly barrier: Pick<Barrier, 'integrity'>
}

export function healthPath(core: HealthParts): Path {
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
      standbycode: integer('Status code of a standby, which forwards requests', { fallback: 429 }),
      standbyok: boolean('Whether a standby counts as active', { fallback: false }),
      drsecondarycode: integer('Status code of a DR secondary', { fallback: 472 }),
      performancestandbycode: integer('Status code of a performance standby: not used, because a standby forwards', {
        fallback: 473,
      }),
      perfstandbyok: boolean('Whether a performance standby counts as active: not used', { fallback: false }),
      removedcode: integer('Status code of a server that was removed from its cluster', { fallback: 530 }),
      haunhealthycode: integer('Status code of a fenced primary, and of a standby that cannot forward', {
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
  readonly standbycode: number
  readonly standbyok: boolean
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
  if (isHaUnhealthy(core)) return codes.haunhealthycode
  if (core.isSecondary) return codes.drsecondarycode
  if (isStandby(core) && !codes.standbyok) return codes.standbycode
  return core.fence ? codes.haunhealthycode : codes.activecode
}

/** `standbyok` does not hide this state, as in Vault. */
function isHaUnhealthy({ options: { ha } }: HealthParts): boolean {
  return ha !== undefined && haFault(ha) !== undefined
}

/** A server whose lease has run out serves no request, although its core is open. */
function isStandby({ isHaStandby, options: { ha } }: HealthParts): boolean {
  return isHaStandby || ha?.role === 'standby'
}

/** The DR role of this cluster; `unknown` while the core is sealed and replication is disabled. */
function drState(core: HealthParts): DrState {
  const { dr } = core.options.replication ?? {}
  if (!dr || dr.mode === 'disabled') return { mode: core.isSealed ? 'unknown' : 'disabled', sync: 'off' }
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
    standby: !core.isActive || fence !== undefined || isStandby(core),
    performance_standby: false,
    replication_performance_mode: core.isSealed && !core.isSecondary ? 'unknown' : 'disabled',
    replication_dr_mode: dr.mode,
    ...(dr.sync === 'off' ? {} : { sync: dr.sync }),
    ...(fence && { fenced: true, fence_reason: fence.reason, fence_detail: fence.text }),
    server_time_utc: Math.floor(core.now() / 1000),
    ...versionFacts(core.options.version),
    ...(isStandby(core) && !core.isSealed && { ha_connection_healthy: !isHaUnhealthy(core) }),
    ...(core.isActive ? { cluster_name: core.open.clusterName, cluster_id: core.open.clusterId } : {}),
    last_wal: 0,
    ...(warnings.length > 0 ? { warnings } : {}),
  }
}
