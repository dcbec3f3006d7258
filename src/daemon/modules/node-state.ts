/** What a process announces: a node its identity, resources, metadata and allocations, a server the state of its core. */
import { type NodeState, TASKS_MAX } from '../../cluster/roster/node-messages.ts'
import type { CoreMember } from '../../cluster/roster/region-servers.ts'
import type { Config } from '../../config/load.ts'
import type { Host } from '../../host/host.ts'
import type { AnyOperation } from '../../platform/operation.ts'

export interface OwnCore {
  /** Operations of the secrets core, if this process has one. */
  readonly core: readonly AnyOperation[] | undefined
  /** Cluster ID of the initialized secrets core. */
  readonly clusterId: () => string | undefined
  /** State of the secrets core, for other servers; undefined without one. */
  readonly coreState: () => string | undefined
  /** The servers of the highly available core; undefined without one. */
  readonly coreMembers?: () => Promise<readonly CoreMember[]> | undefined
}

/** `url`: the HTTP address of the process. */
export function nodeStateOf(
  host: Host,
  { config, version }: { readonly config: Config; readonly version: string },
  url: string,
): NodeState {
  const described = host.describe()
  const { host: address, protocol } = new URL(url)
  return {
    node: {
      id: host.nodeId,
      name: config.name,
      datacenter: config.datacenter,
      nodeClass: config.client.nodeClass,
      nodePool: config.client.nodePool,
      version,
      httpAddress: config.advertise.http ?? address,
      tls: protocol === 'https:',
      attributes: { ...described.attributes },
      meta: { ...described.meta },
      resources: {
        cpuMhz: described.cpuMhz,
        cores: described.cores,
        memoryBytes: described.memoryBytes,
        diskBytes: described.diskBytes,
      },
    },
    allocations: described.allocations.map((allocation) => ({
      id: allocation.id,
      name: allocation.name,
      namespace: allocation.namespace,
      jobId: allocation.jobId,
      taskGroup: allocation.taskGroup,
      desiredStatus: allocation.desiredStatus,
      clientStatus: allocation.clientStatus,
      createTimeMs: allocation.createTimeMs,
      tasks: [...allocation.tasks.values()]
        .slice(0, TASKS_MAX)
        .map(({ name, state, failed, startedAtMs, finishedAtMs, exitCode }) => ({
          name,
          state,
          failed,
          ...(startedAtMs === undefined ? {} : { startedAtMs }),
          ...(finishedAtMs === undefined ? {} : { finishedAtMs }),
          ...(exitCode === undefined ? {} : { exitCode }),
        })),
    })),
  }
}
