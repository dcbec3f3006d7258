/**
 * What an allocation is to the rest of the host room: a read-only picture of one `alloc.json` (or of a bare directory
 * that has none), as of the last look. See `allocations.ts` for how the pictures are made and kept true.
 */
import { unknownAllocation, unknownNode } from '../../platform/operation.ts'

export interface Task {
  readonly name: string
  readonly state: 'pending' | 'running' | 'dead'
  readonly failed: boolean
  /** Undefined while the task has never started. */
  readonly startedAtMs: number | undefined
  readonly finishedAtMs: number | undefined
  readonly pids: readonly number[]
  /** When the first of `pids` started, in clock ticks since boot (proc(5)), where the supervisor says so. */
  readonly pidStartTicks?: number
  /** It is shown dead because its process seems to be another one by now, which only the clocks say. */
  readonly presumed?: boolean
  /** The supervisor keeps no log of this task. */
  readonly logsDisabled: boolean
  readonly maxFiles: number
  readonly maxFileSizeMb: number
}

export type ClientStatus = 'pending' | 'running' | 'complete' | 'failed' | 'lost'

export interface Allocation {
  readonly id: string
  readonly name: string
  readonly namespace: string
  readonly jobId: string
  readonly taskGroup: string
  readonly desiredStatus: 'run' | 'stop' | 'evict'
  readonly clientStatus: ClientStatus
  readonly createTimeMs: number
  readonly tasks: ReadonlyMap<string, Task>
  /** Absolute path of its directory with every symlink resolved. */
  readonly directory: string
  /** Its directory was removed by garbage collection; only the record is left. */
  readonly collected: boolean
}

/** The allocations of this host, by ID. Lookups are exact: no prefixes, no case folding. */
export interface AllocationTable {
  get(id: string): Allocation | undefined
  all(): IterableIterator<Allocation>
}

/**
 * The allocation `id` names. Runs before any permission check, as clients of the compatible system expect: an unknown
 * allocation is 404 whoever asks.
 */
export function findAllocation(table: AllocationTable, id: string): Allocation {
  const found = table.get(id)
  if (found) return found
  throw unknownAllocation(id)
}

/** Refuses a `node_id` that is not this host's. A server resolves other nodes before a call gets here. */
export function requireOwnNode(nodeId: string | undefined, ownNodeId: string): void {
  if (nodeId === undefined || nodeId === ownNodeId) return
  throw unknownNode(nodeId)
}
