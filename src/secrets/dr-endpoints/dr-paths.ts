/** `sys/replication/`: the endpoints of DR replication. */
import { path, type Path } from '../../engines/framework/engine.ts'
import type { DrCore, EventLog, PgpKeyLimiter } from './dr-side.ts'
import { DrTokenAuth } from './dr-token-auth.ts'
import { generationPaths } from './generation-paths.ts'
import { OperationToken } from './operation-token.ts'
import { primaryPaths } from './primary-paths.ts'
import { type SecondaryAccess, secondaryPaths } from './secondary-paths.ts'

/** Authorizes callers of a secondary. */
export function secondaryAccess(core: DrCore): SecondaryAccess {
  const { standby } = core.barrier
  return {
    operationToken: new OperationToken({
      standby,
      replication: () => core.options.replication,
      logger: core.options.logger,
    }),
    tokenAuth: new DrTokenAuth(standby, () => core.now()),
  }
}

export function replicationPaths(
  core: DrCore,
  access: SecondaryAccess,
  { logEvent, pgpRate }: { readonly logEvent: EventLog; readonly pgpRate: PgpKeyLimiter },
): Path[] {
  return [
    ...statusPaths(core),
    ...primaryPaths(core, logEvent),
    ...secondaryPaths(core, access, logEvent),
    ...generationPaths(core, access.operationToken, { logEvent, pgpRate }),
  ]
}

const DISABLED = { mode: 'disabled' }

/** Served without a token and in every state, because clients and monitoring tools call them first. */
function statusPaths(core: DrCore): Path[] {
  const dr = async () => (await core.options.replication?.dr.status()) ?? DISABLED
  const declarations = [
    {
      pattern: 'replication/status',
      summary: 'Read the replication status of this cluster',
      read: async () => ({ data: { dr: await dr(), performance: DISABLED } }),
    },
    {
      pattern: 'replication/dr/status',
      summary: 'Read the DR replication status of this cluster: role, progress, lag and peers',
      read: async () => ({ data: await dr() }),
    },
    {
      pattern: 'replication/performance/status',
      summary: 'Read the status of performance replication, which is not supported',
      read: async () => ({ data: DISABLED }),
    },
  ]
  return declarations.map((declaration) =>
    path({ ...declaration, unauthenticated: true, whileSealed: true, onSecondary: true, fields: {} }),
  )
}
