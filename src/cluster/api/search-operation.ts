/** `/v1/search`: IDs of nodes, allocations, jobs and namespaces that begin with a prefix, at most 20 of each. */
import * as v from 'valibot'
import { Refusal } from '../../platform/errors.ts'
import { handle, type Identity, JsonText } from '../../platform/operation.ts'
import { type Field, schema } from '../../platform/schema.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import { readHeaders } from './listing.ts'
import type { ServerParts } from './nodes-operations.ts'
import { namespaceField, readFields, requireRegion, uuidPrefix } from './query.ts'

const FOUND_MAX = 20
const CONTEXTS = ['allocs', 'jobs', 'namespaces', 'nodes'] as const
type Context = (typeof CONTEXTS)[number]
/** What the compatible system knows besides: nothing is ever found there. */
const OTHER_CONTEXTS =
  'deployment evals host_volumes node_pools plugins quotas recommendations scaling_policy vars volumes'.split(' ')

/** One key of the body, which is an object of texts; others are not looked at. */
function inBody<T>(description: string, parse: (text: string) => T): Field<T> {
  return {
    in: 'body',
    type: 'string',
    description,
    required: false,
    parse(raw, name) {
      const body = json(raw.body ?? '')
      const parsed = v.safeParse(v.record(v.string(), v.unknown()), body)
      const text = parsed.success && !Array.isArray(body) ? (parsed.output[name] ?? '') : undefined
      if (typeof text === 'string') return parse(text)
      throw new Refusal('invalid_request', 'give an object with Prefix and Context, both text')
    },
  }
}

function contextsOf(context: string): readonly string[] {
  if (context === '' || context === 'all') return [...CONTEXTS, ...OTHER_CONTEXTS]
  if ([...CONTEXTS, ...OTHER_CONTEXTS].includes(context)) return [context]
  const names = ['all', ...CONTEXTS].join(', ')
  throw new Refusal('invalid_request', `context must be one of ${names}; got ${JSON.stringify(context.slice(0, 64))}`)
}

function json(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const fields = {
  Prefix: inBody('What IDs begin with', (text) => text),
  Context: inBody('allocs, jobs, namespaces, nodes, or all, which is also what it is when absent', contextsOf),
  region: readFields.region,
  namespace: namespaceField,
}

/** IDs that the caller may see, in order. */
function idsIn(
  queries: RosterQueries,
  context: Context,
  asked: { prefix: string; namespace: string; identity: Identity },
) {
  const { prefix, namespace, identity } = asked
  const { roster } = queries
  const isSeen = (name: string, capability: 'read-job' | 'list-jobs') =>
    (namespace === '*' || namespace === name) && identity.allowsNamespace(name, capability)
  const uuids = (what: 'node' | 'alloc') => {
    const digits = prefix.replaceAll('-', '')
    if (!/^[0-9a-f]*$/i.test(digits)) return undefined
    return uuidPrefix(digits.slice(0, digits.length - (digits.length % 2)), what)
  }
  const sources: Record<Context, () => Iterable<string>> = {
    nodes() {
      const begin = identity.allowsNode('read') ? uuids('node') : undefined
      return begin === undefined ? [] : queries.nodeIds.read({ prefix: begin, reverse: false })
    },
    *allocs() {
      const begin = uuids('alloc')
      if (begin === undefined) return
      for (const id of queries.allocationIds.read({ prefix: begin, reverse: false })) {
        const record = roster.allocation(id)
        if (record && isSeen(record.allocation.namespace, 'read-job')) yield id
        else yield ''
      }
    },
    *jobs() {
      for (const job of queries.jobs({ reverse: false })) {
        yield job.id.startsWith(prefix) && isSeen(job.namespace, 'list-jobs') ? job.id : ''
      }
    },
    namespaces: () =>
      queries.namespaces().filter((name) => name.startsWith(prefix) && identity.allowsNamespace(name, 'list-jobs')),
  }
  return sources[context]()
}

/** Empty IDs stand for those that do not count, so that looking past many of them lets others have a turn. */
async function firstOf(ids: Iterable<string>): Promise<{ found: string[]; isCut: boolean }> {
  const found: string[] = []
  let looked = 0
  for (const id of ids) {
    const turn = ++looked % 64 === 0 ? yieldIfDue() : undefined
    if (turn) await turn
    if (id === '') continue
    if (found.length === FOUND_MAX) return { found, isCut: true }
    found.push(id)
  }
  return { found, isCut: false }
}

export const search = handle(
  {
    name: 'server.search',
    summary: 'IDs that begin with a prefix',
    http: ['PUT /v1/search', 'POST /v1/search'],
    target: 'server',
    input: schema(fields),
    output: 'json',
    errorFormat: 'plain',
    bodyBytesMax: 1 << 16,
    authorize(input, identity) {
      const { namespace } = input
      const mayList = namespace === '*' || identity.allowsNamespace(namespace, 'list-jobs')
      if (mayList || identity.allowsNode('read') || identity.allowsNamespace(namespace, 'read-job')) return
      throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ queries, region }: ServerParts) => ({
    async run(input, { identity }) {
      requireRegion(input.region, region)
      const { Prefix: prefix, Context: contexts } = input
      const matches: Record<string, string[]> = {}
      const truncations: Record<string, boolean> = {}
      for (const context of contexts) {
        const known = CONTEXTS.find((name) => name === context)
        const ids = known ? idsIn(queries, known, { prefix, namespace: input.namespace, identity }) : []
        const { found, isCut } = await firstOf(ids)
        matches[context] = found
        truncations[context] = isCut
      }
      const { index } = queries.roster
      const answer = { Index: index, KnownLeader: true, LastContact: 0, Matches: matches, NextToken: '' }
      return new JsonText(JSON.stringify({ ...answer, Truncations: truncations }), readHeaders(index))
    },
  }),
)
