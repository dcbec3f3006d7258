/**
 * Records of the roster, and their validation when they are read from its database. The file may have been edited or damaged, so
 * each row is parsed into its narrow type, and a malformed one is skipped: its node reports its state again.
 */
import * as v from 'valibot'
import type { AllocationOwner, OwnerStore } from './allocation-owners.ts'
import { type AllocationDescription, allocationSchema, type NodeDescription, nodeSchema } from './node-messages.ts'
import { NODE_STATUSES, type NodeStatus } from './node-status.ts'

export interface NodeEvent {
  readonly message: string
  readonly atMs: number
  readonly index: number
}

export interface NodeRecord {
  readonly node: NodeDescription
  readonly status: NodeStatus
  /** Reason of the status. */
  readonly statusText: string
  readonly statusAtMs: number
  /** The last events, the oldest first. */
  readonly events: readonly NodeEvent[]
  readonly createIndex: number
  readonly modifyIndex: number
}

export interface AllocationRecord {
  /** As its node last reported it. */
  readonly allocation: AllocationDescription
  readonly nodeId: string
  /** Time since when its node is down, for an allocation that had not ended. Not stored: it follows from the status of the node. */
  readonly unknownSinceMs?: number
  readonly modifyTimeMs: number
  readonly createIndex: number
  readonly modifyIndex: number
}

/** `unknown`: the node of a pending or running allocation is down. */
export type AllocationStatus = AllocationDescription['clientStatus'] | 'unknown'

export function statusOf({ allocation, unknownSinceMs }: AllocationRecord): AllocationStatus {
  return unknownSinceMs === undefined ? allocation.clientStatus : 'unknown'
}

/** The record while its node is down; unchanged for an allocation that has ended. */
export function unknownSince(record: AllocationRecord, sinceMs: number): AllocationRecord {
  const { clientStatus } = record.allocation
  const isLive = clientStatus === 'running' || clientStatus === 'pending'
  return isLive ? { ...record, modifyTimeMs: sinceMs, unknownSinceMs: sinceMs } : record
}

interface Change<Kind extends string, Type extends string, Record> {
  readonly index: number
  readonly kind: Kind
  readonly type: Type
  readonly key: string
  /** The current record, or the last one of a removed node or allocation. */
  readonly record: Record
}

export type NodeChange = Change<'node', 'NodeRegistration' | 'NodeEvent' | 'NodeDeregistration', NodeRecord>
export interface AllocationChange
  extends Change<'allocation', 'AllocationUpdated' | 'AllocationRemoved', AllocationRecord> {
  /** The previous record, if any. */
  readonly before?: AllocationRecord
}
export type RosterChange = NodeChange | AllocationChange

/** Keeps the roster after a restart. Called after each change; may write later, and may lose the last changes. */
export interface RosterStore extends OwnerStore {
  saveNode(id: string, record: NodeRecord, publicKey: string): void
  saveAllocation(id: string, record: AllocationRecord): void
  removeNode(id: string): void
  removeAllocation(id: string): void
  load(): StoredRoster
}

/** For a roster in memory. */
export const NO_STORE: RosterStore = {
  saveNode: () => undefined,
  saveAllocation: () => undefined,
  removeNode: () => undefined,
  removeAllocation: () => undefined,
  saveOwner: () => undefined,
  removeOwner: () => undefined,
  load: () => ({ index: 0, nodes: [], allocations: [], owners: [] }),
}

export interface StoredRoster {
  readonly index: number
  readonly nodes: Iterable<{ readonly record: NodeRecord; readonly publicKey: string }>
  readonly allocations: Iterable<AllocationRecord>
  /** Owners of allocations that no node reported. */
  readonly owners: Iterable<{ readonly id: string; readonly owner: AllocationOwner }>
}

const text = v.string()
const ms = v.pipe(v.number(), v.finite())
const index = v.pipe(v.number(), v.safeInteger(), v.minValue(0))

const nodeRow = v.object({
  record: v.object({
    node: nodeSchema,
    status: v.picklist(NODE_STATUSES),
    statusText: text,
    statusAtMs: ms,
    events: v.array(v.object({ message: text, atMs: ms, index })),
    createIndex: index,
    modifyIndex: index,
  }),
  publicKey: text,
})

const allocationRow = v.object({
  allocation: allocationSchema,
  nodeId: text,
  modifyTimeMs: ms,
  createIndex: index,
  modifyIndex: index,
})

const ownerRow = v.object({ nodeId: text, publicKey: text, sinceMs: ms })

type Rows = Iterable<{ readonly id: string; readonly value: unknown }>

/** Parses the rows of the tables `node`, `allocation` and `claim`. `onMalformed` is called with the table and ID of skipped rows. */
export function parseRoster(
  rows: { readonly nodes: Rows; readonly allocations: Rows; readonly owners: Rows },
  onMalformed: (table: string, id: string) => void,
): StoredRoster {
  function* parse<T extends v.GenericSchema>(table: string, schema: T, from: Rows) {
    for (const { id, value } of from) {
      const parsed = v.safeParse(schema, value)
      if (parsed.success) yield { id, value: parsed.output }
      else onMalformed(table, id)
    }
  }
  const nodes = [...parse('node', nodeRow, rows.nodes)].map(({ value }) => value)
  const allocations = [...parse('allocation', allocationRow, rows.allocations)].map(({ value }) => value)
  const owners = [...parse('claim', ownerRow, rows.owners)].map(({ id, value }) => ({ id, owner: value }))
  let highest = 0
  for (const { record } of nodes) highest = Math.max(highest, record.modifyIndex)
  for (const { modifyIndex } of allocations) highest = Math.max(highest, modifyIndex)
  return { index: highest, nodes, allocations, owners }
}
