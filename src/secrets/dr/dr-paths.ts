/** `sys/replication/`: the paths of a cluster that others take over from, or that takes over from another. */
import type { Path } from '../../engines/framework/engine.ts'
import { generationPaths } from './generation-paths.ts'
import { OperationToken } from './operation-token.ts'
import { primaryPaths } from './primary-paths.ts'
import { type Doorway, type ReplicationParts, sideOf } from './dr-parts.ts'
import { type SecondaryAccess, secondaryPaths } from './secondary-paths.ts'
import { StandbyRights } from './dr-token-auth.ts'
import { replicationStatusPaths } from './status-paths.ts'

/** Who may do something on a secondary. */
export function secondaryAccess(core: ReplicationParts): SecondaryAccess {
  const { standby } = core.barrier
  return {
    token: new OperationToken({ standby, side: () => sideOf(core), logger: core.options.logger }),
    rights: new StandbyRights(standby, () => core.now()),
  }
}

export function replicationPaths(core: ReplicationParts, access: SecondaryAccess, door: Doorway): Path[] {
  return [
    ...replicationStatusPaths(core),
    ...primaryPaths(core, door),
    ...secondaryPaths(core, access, door),
    ...generationPaths(core, access.token, door),
  ]
}
