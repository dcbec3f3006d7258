/** How the core is: what load balancers and clients ask before anything else. They answer in every state. */
import { path, type Path, type Reply } from '../engines/engine.ts'
import { boolean, integer } from '../engines/fields.ts'
import type { SecretsCore } from './core.ts'

const NOT_INITIALISED = 501
const SEALED = 503
const ACTIVE = 200

export function healthPaths(core: SecretsCore): Path[] {
  return [
    path({
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
      },
      read: (input): Reply => ({ bare: health(core), status: codeOf(core, input) }),
    }),
  ]
}

function codeOf(core: SecretsCore, codes: { activecode: number; sealedcode: number; uninitcode: number }): number {
  if (!core.isInitialised) return codes.uninitcode
  return core.isActive ? codes.activecode : codes.sealedcode
}

function health(core: SecretsCore): Record<string, unknown> {
  const mode = core.isActive ? 'disabled' : 'unknown'
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
  }
}
