/**
 * The endpoints of the host module. A server that forwards calls to hosts uses `HOST_ENDPOINTS` only; a host binds the handlers
 * to its parts.
 */
import type { AnyOperation, EndpointBinding } from '../platform/operation.ts'
import type { AllocationTable } from './allocations/allocation.ts'
import { fsCat, fsReadAt } from './files/content.ts'
import { fsLs, fsStat } from './files/files.ts'
import type { Followers } from './logs/follow/followers.ts'
import type { GarbageCollector } from './gc/gc.ts'
import { allocationGc, nodeGc } from './gc/gc-operations.ts'
import { fsLogs } from './logs/task-logs.ts'
import { metadataApply, metadataRead, type NodeMetadata } from './node/metadata.ts'
import type { StatsSampler } from './stats/sampler.ts'
import { allocationStats, hostStats } from './stats/stats-operations.ts'
import { fsStream } from './logs/file-stream.ts'

/** The parts of the host module that handlers use. */
export interface HostParts {
  readonly allocations: AllocationTable
  readonly followers: Followers
  readonly sampler: StatsSampler
  readonly metadata: NodeMetadata
  readonly collector: GarbageCollector
  readonly nodeId: string
}

/** All endpoints of a host. */
const TABLE: readonly EndpointBinding<HostParts>[] = [
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

/** The declarations, for a process that only forwards calls. */
export const HOST_ENDPOINTS = TABLE.map(({ endpoint }) => endpoint)

/** Their common path prefix, and the error format of unknown paths below it. */
export const HOST_PATHS = { root: 'client', errorFormat: 'plain' } as const

export function hostOperations(parts: HostParts): AnyOperation[] {
  return TABLE.map((each) => each.in(parts))
}
