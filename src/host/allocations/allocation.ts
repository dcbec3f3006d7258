/**
 * An allocation as the host module sees it: an immutable snapshot of one `alloc.json`, or of a bare directory without one,
 * as of the last scan. `allocations.ts` creates and updates the snapshots.
 */
import { unknownAllocation, unknownNode } from '../../platform/operation.ts'

export interface Task {
  readonly name: string
  readonly state: 'pending' | 'running' | 'dead'
  readonly failed: boolean
  /** Undefined while the task has never started. */
  readonly startedAtMs: number | undefined
  readonly finishedAtMs: number | undefined
  /** Of a dead task, if the supervisor recorded it. */
  readonly exitCode?: number
  readonly pids: readonly number[]
  /** Start of the first of `pids`, in clock ticks since boot (proc(5)), if the supervisor recorded it. */
  readonly pidStartTicks?: number
  /** Reported dead only because its process started later than the task by wall clock. */
  readonly presumed?: boolean
  /** The supervisor keeps no log of this task. */
  readonly logsDisabled: boolean
  readonly maxFiles: number
  readonly maxFileSizeMb: number
}

export type AllocClientStatus = 'pending' | 'running' | 'complete' | 'failed' | 'lost'

export interface Allocation {
  readonly id: string
  readonly name: string
  readonly namespace: string
  readonly jobId: string
  readonly taskGroup: string
  readonly desiredStatus: 'run' | 'stop' | 'evict'
  readonly clientStatus: AllocClientStatus
  readonly createTimeMs: number
  readonly tasks: ReadonlyMap<string, Task>
  /** Absolute path of its directory with every symlink resolved. */
  readonly directory: string
  /** Its directory was removed by garbage collection; only the record is left. */
  readonly collected: boolean
}

/** The allocations of this host, by exact ID. */
export interface AllocationTable {
  get(id: string): Allocation | undefined
  all(): IterableIterator<Allocation>
}

/** Runs before the permission check, as in Nomad: an unknown allocation is 404 for every caller. */
export function findAllocation(table: AllocationTable, id: string): Allocation {
  const found = table.get(id)
  if (found) return found
  throw unknownAllocation(id)
}

/** Throws a Refusal for another node's `node_id`. A server forwards calls for other nodes before this. */
export function requireOwnNode(nodeId: string | undefined, ownNodeId: string): void {
  if (nodeId === undefined || nodeId === ownNodeId) return
  throw unknownNode(nodeId)
}
