/** `/v1/allocations` and `/v1/allocation/:id`, answered from the roster as the compatible system answers. */
import { Refusal } from '../../platform/errors.ts'
import { type Endpoint, handle, type Identity } from '../../platform/operation.ts'
import { type InputOf, pathParam, queryBoolean, queryText, schema } from '../../platform/schema.ts'
import type { Roster } from '../roster/roster.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import type { AllocationRecord } from '../roster/roster-records.ts'
import { readHeaders, readOne, type RecordList, streamList } from './listing.ts'
import {
  ALLOCATION_FILTER_FIELDS,
  type AllocationStubOptions,
  allocationStub,
  allocationValue,
  filteredAllocation,
} from './nomad-allocation.ts'
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
  type ServerDeps,
  uuidPrefix,
} from './query.ts'
import { ALLOCATION, ALLOCATION_LIST } from './result-schemas.ts'

const allocationsFields = {
  ...listFields,
  prefix: prefixField,
  namespace: namespaceField,
  resources: queryBoolean({ description: 'Include resources', fallback: false }),
  task_states: queryBoolean({ description: 'Include task states', fallback: true }),
}

/** A predicate for allocations in this namespace; with `*` in all namespaces of the caller. */
function isInNamespace(namespace: string, identity: Identity): (record: AllocationRecord) => boolean {
  if (namespace !== '*') return ({ allocation }) => allocation.namespace === namespace
  return ({ allocation }) => identity.allowsNamespace(allocation.namespace, 'read-job')
}

/** Representation of allocations in a list. */
export function allocationFormat(
  roster: Roster,
  options: AllocationStubOptions,
): Pick<RecordList<AllocationRecord>, 'tokenOf' | 'text' | 'filtered'> {
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
    summary: 'List allocations',
    http: ['GET /v1/allocations'],
    ...LIST_ENDPOINT,
    result: ALLOCATION_LIST,
    input: schema(allocationsFields),
    longPoll: (input) => input.index > 0,
    authorize: (input, identity) => requireNamespace(input.namespace, identity, 'read-job'),
  },
  ({ queries, region }: ServerDeps) => ({
    run(input, call) {
      requireRegion(input.region, region)
      const prefix = uuidPrefix(input.prefix, 'alloc')
      const isVisible = isInNamespace(input.namespace, call.identity)
      const { roster, allocationIds } = queries
      return streamList(
        queries,
        {
          topic: { kind: 'allocations' },
          *records(from) {
            for (const id of allocationIds.read({ prefix, from, reverse: input.reverse })) {
              const record = roster.allocation(id)
              if (record) yield record
            }
          },
          isVisible,
          ...allocationFormat(roster, { resources: input.resources, taskStates: input.task_states }),
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
  namespace: queryText({ description: 'No effect: the namespace is that of the allocation', fallback: undefined }),
}

const allocationEndpoint: Endpoint<InputOf<typeof allocationFields>, AllocationRecord> = {
  name: 'server.allocation',
  summary: 'Read an allocation',
  http: ['GET /v1/allocation/:id'],
  ...READ_ENDPOINT,
  result: ALLOCATION,
  input: schema(allocationFields),
  longPoll: (input) => input.index > 0,
  authorize: (_input, identity, { allocation }) => requireNamespace(allocation.namespace, identity, 'read-job'),
}

export const allocation = handle(allocationEndpoint, ({ queries, region }: ServerDeps) => ({
  /** Looked up before authorization, as on the endpoints of a host: an unknown allocation is 404 for every caller. */
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

/** Larger sets are not sorted at once, because that would block the event loop: all allocations are visited in order instead. */
const SORTED_MAX = 5000

/** A set of allocations in order. For a large set it yields other allocations too, which the list must filter out. */
export function* sortedAllocations(
  queries: RosterQueries,
  set: { readonly records: Iterable<AllocationRecord>; readonly size: number },
  page: { readonly from: string | undefined; readonly reverse: boolean },
): Generator<AllocationRecord> {
  const { from, reverse } = page
  if (set.size <= SORTED_MAX) {
    const sign = reverse ? -1 : 1
    for (const record of [...set.records].sort((a, b) => (a.allocation.id < b.allocation.id ? -sign : sign))) {
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
