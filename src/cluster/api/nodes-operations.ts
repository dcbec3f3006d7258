/** `/v1/nodes` and what is below one node: as the compatible system answers, from the roster. */
import { UNRESTRICTED } from '../trust/authorizer.ts'
import { Refusal } from '../../platform/errors.ts'
import { handle } from '../../platform/operation.ts'
import { type Field, pathParam, queryBoolean, schema } from '../../platform/schema.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import { list, readOne } from './listing.ts'
import { ALLOCATION_FILTER_FIELDS, allocationValue, filteredAllocation } from './nomad-allocation.ts'
import { filteredNode, NODE_FILTER_FIELDS, nodeStubText, nodeValue } from './nomad-node.ts'
import {
  LIST_ENDPOINT,
  listFields,
  prefixField,
  READ_ENDPOINT,
  readFields,
  requireNode,
  requireRegion,
  requireUuid,
  uuidPrefix,
} from './query.ts'
import type { AllocationRecord, NodeRecord } from '../roster/roster-records.ts'

/** What a server's endpoints work on. */
export interface ServerParts {
  readonly queries: RosterQueries
  /** Of this server. */
  readonly region: string
}

/** `meta.KEY=VALUE`, as often as one likes: all must be so. */
const meta: Field<readonly (readonly [string, string])[]> = {
  in: 'query',
  type: 'string',
  description: 'meta.KEY=VALUE: only nodes whose metadata has this value; given several times, all of them',
  required: false,
  parse: (raw) =>
    raw.query
      .filter(([name]) => name.startsWith('meta.'))
      .map(([name, value]): [string, string] => [name.slice('meta.'.length), value]),
}

const nodesFields = {
  ...listFields,
  prefix: prefixField,
  meta,
  resources: queryBoolean({ description: 'With the resources of each node', fallback: false }),
  os: queryBoolean({ description: 'With the name of each operating system', fallback: false }),
  status_time: queryBoolean({ description: 'With StatusUpdatedAt: since when each has its status', fallback: false }),
}

export const nodes = handle(
  {
    name: 'server.nodes',
    summary: 'The nodes that this server has heard of',
    http: ['GET /v1/nodes'],
    ...LIST_ENDPOINT,
    input: schema(nodesFields),
    longPoll: (input) => input.index > 0,
    authorize: (_input, identity) => requireNode(identity),
  },
  ({ queries, region }: ServerParts) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const prefix = uuidPrefix(input.prefix, 'node')
      const { roster, nodeIds } = queries
      const wanted = ({ node }: NodeRecord) => input.meta.every(([key, value]) => node.meta[key] === value)
      return list(
        queries,
        {
          topic: { kind: 'nodes' },
          *records(from) {
            for (const id of nodeIds.read({ prefix, from, reverse: input.reverse })) {
              const record = roster.node(id)
              if (record) yield record
            }
          },
          isSeen: wanted,
          tokenOf: ({ node }) => node.id,
          text: (record) => nodeStubText(record, input),
          filtered: { fields: NODE_FILTER_FIELDS, value: filteredNode },
        },
        input,
        call,
      )
    },
  }),
)

const nodeFields = { id: pathParam('Full UUID of the node'), ...readFields }

export const node = handle(
  {
    name: 'server.node',
    summary: 'What this server has heard of one node',
    http: ['GET /v1/node/:id'],
    ...READ_ENDPOINT,
    input: schema(nodeFields),
    longPoll: (input) => input.index > 0,
    authorize: (_input, identity) => requireNode(identity),
  },
  ({ queries, region }: ServerParts) => ({
    async run(input, call) {
      requireRegion(input.region, region)
      requireUuid(input.id, 'node')
      const find = () => {
        const record = queries.roster.node(input.id)
        if (!record) return undefined
        // Stock commands call this address with their token, and a node says it itself: one that was taken over would be
        // sent tokens. Where there is none they ask this server. With the ACL off there are no tokens.
        return { ...nodeValue(record), ...(call.identity === UNRESTRICTED ? {} : { HTTPAddr: '' }) }
      }
      return readOne(queries, { topic: { kind: 'node', id: input.id }, input, call }, find, 'node not found')
    },
  }),
)

const nodeAllocationsFields = { id: pathParam('Full UUID of the node'), ...listFields }

export const nodeAllocations = handle(
  {
    name: 'server.node_allocations',
    summary: 'The allocations of one node',
    http: ['GET /v1/node/:id/allocations'],
    ...LIST_ENDPOINT,
    input: schema(nodeAllocationsFields),
    longPoll: (input) => input.index > 0,
    authorize: (_input, identity) => requireNode(identity),
  },
  ({ queries, region }: ServerParts) => ({
    run(input, call) {
      requireRegion(input.region, region)
      requireUuid(input.id, 'node')
      const { roster } = queries
      const isSeen = ({ allocation }: AllocationRecord) =>
        call.identity.allowsNamespace(allocation.namespace, 'read-job')
      const nameOf = () => roster.node(input.id)?.node.name ?? ''
      return list(
        queries,
        {
          topic: { kind: 'node-allocations', id: input.id },
          *records(from) {
            const { reverse } = input
            const records = [...roster.allocationsOf(input.id)]
            yield* inOrder(queries, { records, size: records.length }, { from, reverse })
          },
          isSeen: (record) => record.nodeId === input.id && isSeen(record),
          tokenOf: ({ allocation }) => allocation.id,
          text: (record) => JSON.stringify(allocationValue(record, nameOf())),
          filtered: {
            fields: ALLOCATION_FILTER_FIELDS,
            value: (record) => filteredAllocation(record, nameOf()),
          },
        },
        input,
        call,
      )
    },
  }),
)

const purgeFields = { id: pathParam('Full UUID of the node') }

export const nodePurge = handle(
  {
    name: 'server.node_purge',
    summary: 'Makes this server forget a node, its key and its allocations: for a host that was set up anew',
    http: ['PUT /v1/node/:id/purge', 'POST /v1/node/:id/purge'],
    target: 'server',
    input: schema(purgeFields),
    output: 'json',
    errorFormat: 'plain',
    authorize(_input, identity) {
      if (!identity.allowsNode('write')) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ queries }: ServerParts) => ({
    async run({ id }) {
      requireUuid(id, 'node')
      if (!queries.roster.purge(id)) throw new Refusal('not_found', 'node not found')
      return { EvalIDs: [], EvalCreateIndex: 0, NodeModifyIndex: queries.roster.index }
    },
  }),
)

/** More are not sorted at once, which would hold everybody up: all allocations are gone through in order instead. */
const SORTED_MAX = 5000

/** Some of the allocations, by ID; where they are very many, others too, and the list must leave them out. */
export function* inOrder(
  queries: RosterQueries,
  part: { readonly records: Iterable<AllocationRecord>; readonly size: number },
  page: { readonly from: string | undefined; readonly reverse: boolean },
): Generator<AllocationRecord> {
  const { from, reverse } = page
  if (part.size <= SORTED_MAX) {
    const sign = reverse ? -1 : 1
    for (const record of [...part.records].sort((a, b) => (a.allocation.id < b.allocation.id ? -sign : sign))) {
      const { id } = record.allocation
      if (from === undefined || (reverse ? id <= from : id >= from)) yield record
    }
    return
  }
  for (const id of queries.allocationIds.read({ prefix: '', from, reverse })) {
    const record = queries.roster.allocation(id)
    if (record) yield record
  }
}
