/** `/v1/nodes` and the endpoints of one node, answered from the roster as the compatible system answers. */
import { Refusal } from '../../platform/errors.ts'
import { handle } from '../../platform/operation.ts'
import { type Field, pathParam, queryBoolean, schema } from '../../platform/schema.ts'
import type { AllocationRecord, NodeRecord } from '../roster/roster-records.ts'
import { UNRESTRICTED } from '../trust/authorizer.ts'
import { sortedAllocations } from './allocations-operations.ts'
import { readOne, streamList } from './listing.ts'
import { ALLOCATION_FILTER_FIELDS, allocationValue, filteredAllocation } from './nomad-allocation.ts'
import { filteredNode, heartbeatFact, listedNodeText, NODE_FILTER_FIELDS, nodeValue } from './nomad-node.ts'
import {
  LIST_ENDPOINT,
  listFields,
  prefixField,
  READ_ENDPOINT,
  readFields,
  requireNode,
  requireRegion,
  requireUuid,
  type ServerDeps,
  uuidPrefix,
} from './query.ts'
import { ALLOCATION_LIST, NODE, NODE_LIST } from './result-schemas.ts'

/** `meta.KEY=VALUE`, repeatable: all must match. */
const meta: Field<readonly (readonly [string, string])[]> = {
  in: 'query',
  type: 'string',
  description: 'meta.KEY=VALUE: only nodes with this metadata; repeatable, all must match',
  required: false,
  parse: (raw) =>
    raw.query
      .filter(([name]) => name.startsWith('meta.'))
      .map(([name, value]): [string, string] => [name.slice('meta.'.length), value]),
}

const heartbeatAge = queryBoolean({
  description: 'Include SecondsSinceHeartbeat for a ready node whose heartbeat is late',
  fallback: false,
})

const nodesFields = {
  ...listFields,
  prefix: prefixField,
  meta,
  resources: queryBoolean({ description: 'Include resources', fallback: false }),
  os: queryBoolean({ description: 'Include the name of the operating system', fallback: false }),
  heartbeat_age: heartbeatAge,
  status_time: queryBoolean({
    description: 'Include StatusUpdatedAt, the time of the last change of the status',
    fallback: false,
  }),
}

export const nodes = handle(
  {
    name: 'server.nodes',
    summary: 'List nodes',
    http: ['GET /v1/nodes'],
    ...LIST_ENDPOINT,
    result: NODE_LIST,
    input: schema(nodesFields),
    longPoll: (input) => input.index > 0,
    authorize: (_input, identity) => requireNode(identity),
  },
  ({ queries, region }: ServerDeps) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const prefix = uuidPrefix(input.prefix, 'node')
      const { roster, nodeIds } = queries
      const hasMetadata = ({ node }: NodeRecord) => input.meta.every(([key, value]) => node.meta[key] === value)
      return streamList(
        queries,
        {
          topic: { kind: 'nodes' },
          *records(from) {
            for (const id of nodeIds.read({ prefix, from, reverse: input.reverse })) {
              const record = roster.node(id)
              if (record) yield record
            }
          },
          isVisible: hasMetadata,
          tokenOf: ({ node }) => node.id,
          text: (record) => {
            const lateMs = input.heartbeat_age ? roster.lateHeartbeatMs(record.node.id) : undefined
            return listedNodeText(record, input, lateMs)
          },
          filtered: { fields: NODE_FILTER_FIELDS, value: filteredNode },
        },
        input,
        call,
      )
    },
  }),
)

const nodeFields = { id: pathParam('Full UUID of the node'), heartbeat_age: heartbeatAge, ...readFields }

export const node = handle(
  {
    name: 'server.node',
    summary: 'Read a node',
    http: ['GET /v1/node/:id'],
    ...READ_ENDPOINT,
    result: NODE,
    input: schema(nodeFields),
    longPoll: (input) => input.index > 0,
    authorize: (_input, identity) => requireNode(identity),
  },
  ({ queries, region }: ServerDeps) => ({
    async run(input, call) {
      requireRegion(input.region, region)
      requireUuid(input.id, 'node')
      const find = () => {
        const record = queries.roster.node(input.id)
        if (!record) return undefined
        // Stock commands send their token to this address. The node reports it, so a compromised node would receive tokens;
        // without an address they use this server. With ACL off there are no tokens.
        const heartbeat = input.heartbeat_age ? heartbeatFact(queries.roster.lateHeartbeatMs(input.id)) : {}
        return { ...nodeValue(record), ...heartbeat, ...(call.identity === UNRESTRICTED ? {} : { HTTPAddr: '' }) }
      }
      return readOne(queries, { topic: { kind: 'node', id: input.id }, input, call }, find, 'node not found')
    },
  }),
)

const nodeAllocationsFields = { id: pathParam('Full UUID of the node'), ...listFields }

export const nodeAllocations = handle(
  {
    name: 'server.node_allocations',
    summary: 'List the allocations of a node',
    http: ['GET /v1/node/:id/allocations'],
    ...LIST_ENDPOINT,
    result: ALLOCATION_LIST,
    input: schema(nodeAllocationsFields),
    longPoll: (input) => input.index > 0,
    authorize: (_input, identity) => requireNode(identity),
  },
  ({ queries, region }: ServerDeps) => ({
    run(input, call) {
      requireRegion(input.region, region)
      requireUuid(input.id, 'node')
      const { roster } = queries
      const isReadable = ({ allocation }: AllocationRecord) =>
        call.identity.allowsNamespace(allocation.namespace, 'read-job')
      const nameOf = () => roster.node(input.id)?.node.name ?? ''
      return streamList(
        queries,
        {
          topic: { kind: 'node-allocations', id: input.id },
          *records(from) {
            const { reverse } = input
            const records = [...roster.allocationsOf(input.id)]
            yield* sortedAllocations(queries, { records, size: records.length }, { from, reverse })
          },
          isVisible: (record) => record.nodeId === input.id && isReadable(record),
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
    summary: 'Remove a node with its key and its allocations from this server, after the host was reinstalled',
    http: ['PUT /v1/node/:id/purge', 'POST /v1/node/:id/purge'],
    target: 'server',
    input: schema(purgeFields),
    output: 'json',
    errorFormat: 'plain',
    authorize(_input, identity) {
      if (!identity.allowsNode('write')) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ queries }: ServerDeps) => ({
    async run({ id }) {
      requireUuid(id, 'node')
      if (!queries.roster.purge(id)) throw new Refusal('not_found', 'node not found')
      return { EvalIDs: [], EvalCreateIndex: 0, NodeModifyIndex: queries.roster.index }
    },
  }),
)
