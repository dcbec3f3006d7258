/**
 * The endpoints of a host, from its parts. A server that is no host serves them as well, for other nodes: then the parts
 * are absent, and only what an endpoint looks like and who may call it counts.
 */
import { Fault } from '../kit/errors.ts'
import type { AnyOperation } from '../kit/operation.ts'
import type { Allocation, AllocationTable } from './allocation.ts'
import { contentOperations } from './content.ts'
import { fileOperations } from './files.ts'
import type { Followers } from './followers.ts'
import type { GarbageCollector } from './gc.ts'
import { gcOperations } from './gc-operations.ts'
import { logsOperation } from './logs.ts'
import { metadataOperations, type NodeMetadata } from './metadata.ts'
import type { StatsSampler } from './sampler.ts'
import { statsOperations } from './stats-operations.ts'
import { streamOperation } from './stream.ts'

export interface HostParts {
  readonly allocations: AllocationTable
  readonly followers: Followers
  readonly sampler: StatsSampler
  readonly metadata: NodeMetadata
  readonly collector: GarbageCollector
  readonly nodeId: string
}

export function hostOperations({ allocations, followers, sampler, metadata, collector, nodeId }: HostParts) {
  return [
    ...fileOperations({ allocations }),
    ...contentOperations({ allocations }),
    streamOperation({ allocations, followers }),
    logsOperation({ allocations, followers }),
    ...statsOperations({ sampler, allocations, nodeId }),
    ...metadataOperations({ metadata, nodeId }),
    ...gcOperations({ collector, allocations, nodeId }),
  ] satisfies AnyOperation[]
}

/** The same endpoints on a process without a host. They may be asked for permission; they must be run elsewhere. */
export function absentHostOperations(allocations: AllocationTable): AnyOperation[] {
  return hostOperations({
    allocations,
    followers: absent('followers'),
    sampler: absent('sampler'),
    metadata: absent('metadata'),
    collector: absent('collector'),
    nodeId: '',
  })
}

/** The one place where something is said to be what it is not: using it in any way is a fault of ours. */
// oxlint-disable-next-line typescript/no-unnecessary-type-parameters -- the caller says what is missing
function absent<T extends object>(what: string): T {
  const fail = () => {
    throw new Fault(`this process is no host and has no ${what}`)
  }
  return new Proxy<object>({}, { get: fail, set: fail, has: fail }) as T
}

/** Two tables as one; what is in the first hides the second's. */
export function joined(own: AllocationTable, elsewhere: AllocationTable): AllocationTable {
  return {
    get: (id) => own.get(id) ?? elsewhere.get(id),
    *all(): Generator<Allocation> {
      yield* own.all()
      yield* elsewhere.all()
    },
  }
}
