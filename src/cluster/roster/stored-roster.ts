/**
 * The roster as its database gave it back. Somebody may have edited the file, or a disk may have damaged it: each row is
 * read into its narrow type, and one that has another shape is passed over. Its node says everything again.
 */
import * as v from 'valibot'
import { allocationSchema, nodeSchema } from './description.ts'
import { NODE_STATUSES, type RosterContent } from './roster.ts'

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

const claimRow = v.object({ nodeId: text, publicKey: text, sinceMs: ms })

type Rows = Iterable<{ readonly id: string; readonly value: unknown }>

/** `onUnreadable` is told the table and ID of each row that was passed over. */
export function rosterContent(
  rows: { readonly nodes: Rows; readonly allocations: Rows; readonly claims: Rows },
  onUnreadable: (table: string, id: string) => void,
): RosterContent {
  function* read<T extends v.GenericSchema>(table: string, schema: T, from: Rows) {
    for (const { id, value } of from) {
      const parsed = v.safeParse(schema, value)
      if (parsed.success) yield { id, value: parsed.output }
      else onUnreadable(table, id)
    }
  }
  const nodes = [...read('node', nodeRow, rows.nodes)].map(({ value }) => value)
  const allocations = [...read('allocation', allocationRow, rows.allocations)].map(({ value }) => value)
  const claims = [...read('claim', claimRow, rows.claims)].map(({ id, value }) => ({ id, claim: value }))
  let highest = 0
  for (const { record } of nodes) highest = Math.max(highest, record.modifyIndex)
  for (const { modifyIndex } of allocations) highest = Math.max(highest, modifyIndex)
  return { index: highest, nodes, allocations, claims }
}
