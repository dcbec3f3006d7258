/**
 * The endpoints of a host. A server that hands calls on to hosts needs no more of them than `HOST_ENDPOINTS`; a host binds
 * them to what it has.
 */
import type { AnyOperation, RoomEndpoint } from '../platform/operation.ts'
import type { AllocationTable } from './allocations/allocation.ts'
import { fsCat, fsReadAt } from './files/content.ts'
import { fsLs, fsStat } from './files/files.ts'
import type { Followers } from './logs/follow/followers.ts'
import type { GarbageCollector } from './gc/gc.ts'
import { allocationGc, nodeGc } from './gc/gc-operations.ts'
import { fsLogs } from './logs/logs.ts'
import { metadataApply, metadataRead, type NodeMetadata } from './node/metadata.ts'
import type { StatsSampler } from './stats/sampler.ts'
import { allocationStats, hostStats } from './stats/stats-operations.ts'
import { fsStream } from './logs/stream.ts'

/** What the handlers of a host are made of. */
export interface HostParts {
  readonly allocations: AllocationTable
  readonly followers: Followers
  readonly sampler: StatsSampler
  readonly metadata: NodeMetadata
  readonly collector: GarbageCollector
  readonly nodeId: string
}

/** Every endpoint of a host: a line each. */
const TABLE: readonly RoomEndpoint<HostParts>[] = [
  fsLs,
  fsStat,
  fsCat,
  fsReadAt,
  fsStream,
  fsLogs,
  hostStats,
  allocationStats,
  metadataRead,
  metadataApply,
  allocationGc,
  nodeGc,
]

/** As data, for a process that only hands their calls on. */
export const HOST_ENDPOINTS = TABLE.map(({ endpoint }) => endpoint)

/** Where they all are. What is below and is none of them is refused in their form. */
export const HOST_PATHS = { root: 'client', errorFormat: 'plain' } as const

export function hostOperations(parts: HostParts): AnyOperation[] {
  return TABLE.map((each) => each.in(parts))
}
