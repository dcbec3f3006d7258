/** `/v1/allocations` and `/v1/allocation/:id`: as the compatible system answers, from the roster. */
import { Refusal } from '../../platform/errors.ts'
import { type Endpoint, handle, type Identity } from '../../platform/operation.ts'
import { type InputOf, pathParam, queryBoolean, queryText, schema } from '../../platform/schema.ts'
import { list, type Listing, readHeaders, readOne } from './listing.ts'
import {
  ALLOCATION_FILTER_FIELDS,
  type AllocationStubOptions,
  allocationStub,
  allocationValue,
  filteredAllocation,
} from './nomad-allocation.ts'
import type { ServerParts } from './nodes-operations.ts'
import {
  LIST_ENDPOINT,
  listFields,
  namespaceField,
  prefixField,
  READ_ENDPOINT,
  readFields,
  requireNamespace,
  requireRegion,
  requireUuid,
  uuidPrefix,
} from './query.ts'
import type { Roster } from '../roster/roster.ts'
import type { AllocationRecord } from '../roster/roster-records.ts'

const allocationsFields = {
  ...listFields,
  prefix: prefixField,
  namespace: namespaceField,
  resources: queryBoolean({ description: 'With the resources of each allocation', fallback: false }),
  task_states: queryBoolean({ description: 'With the states of the tasks', fallback: true }),
}

/** True for an allocation in this namespace, or in any that the caller may see. */
export function seen(namespace: string, identity: Identity): (record: AllocationRecord) => boolean {
  if (namespace !== '*') return ({ allocation }) => allocation.namespace === namespace
  return ({ allocation }) => identity.allowsNamespace(allocation.namespace, 'read-job')
}

/** How allocations look in a list, wherever it comes from. */
export function allocationLooks(
  roster: Roster,
  options: AllocationStubOptions,
): Pick<Listing<AllocationRecord>, 'tokenOf' | 'text' | 'filtered'> {
  const nameOf = ({ nodeId }: AllocationRecord) => roster.node(nodeId)?.node.name ?? ''
  return {
    tokenOf: ({ allocation }) => allocation.id,
    text: (record) => JSON.stringify(allocationStub(record, nameOf(record), options)),
    filtered: {
      fields: ALLOCATION_FILTER_FIELDS,
      value: (record) => filteredAllocation(record, nameOf(record)),
    },
  }
}

export const allocations = handle(
  {
    name: 'server.allocations',
    summary: 'The allocations that this server has heard of',
    http: ['GET /v1/allocations'],
    ...LIST_ENDPOINT,
    input: schema(allocationsFields),
    longPoll: (input) => input.index > 0,
    authorize: (input, identity) => requireNamespace(input.namespace, identity, 'read-job'),
  },
  ({ queries, region }: ServerParts) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const prefix = uuidPrefix(input.prefix, 'alloc')
      const isSeen = seen(input.namespace, call.identity)
      const { roster, allocationIds } = queries
      return list(
        queries,
        {
          topic: { kind: 'allocations' },
          *records(from) {
            for (const id of allocationIds.read({ prefix, from, reverse: input.reverse })) {
              const record = roster.allocation(id)
              if (record) yield record
            }
          },
          isSeen,
          ...allocationLooks(roster, { resources: input.resources, taskStates: input.task_states }),
        },
        input,
        call,
      )
    },
  }),
)

const allocationFields = {
  id: pathParam('Full UUID of the allocation'),
  ...readFields,
  namespace: queryText({ description: 'Accepted; permission is that of the allocation', fallback: undefined }),
}

const allocationEndpoint: Endpoint<InputOf<typeof allocationFields>, AllocationRecord> = {
  name: 'server.allocation',
  summary: 'What this server has heard of one allocation',
  http: ['GET /v1/allocation/:id'],
  ...READ_ENDPOINT,
  input: schema(allocationFields),
  longPoll: (input) => input.index > 0,
  authorize: (_input, identity, { allocation }) => requireNamespace(allocation.namespace, identity, 'read-job'),
}

export const allocation = handle(allocationEndpoint, ({ queries, region }: ServerParts) => ({
  /** Looked up first, as on the endpoints of a host: unknown is 404, whoever asks. */
  find({ id }) {
    requireUuid(id, 'alloc')
    const record = queries.roster.allocation(id)
    if (record) return record
    throw new Refusal('not_found', 'alloc not found', readHeaders(queries.indexOf({ kind: 'allocations' })))
  },
  async run(input, call) {
    requireRegion(input.region, region)
    const value = () => {
      const record = queries.roster.allocation(input.id)
      return record && allocationValue(record, queries.roster.node(record.nodeId)?.node.name ?? '')
    }
    return readOne(queries, { topic: { kind: 'allocation', id: input.id }, input, call }, value, 'alloc not found')
  },
}))
