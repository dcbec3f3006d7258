/** `/v1/search`: IDs of nodes, allocations, jobs and namespaces with a prefix, at most 20 of each. */
import * as v from 'valibot'
import { Refusal } from '../../platform/errors.ts'
import { handle, type Identity, JsonText } from '../../platform/operation.ts'
import { type Field, schema } from '../../platform/schema.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import { readHeaders } from './listing.ts'
import { namespaceField, readFields, requireRegion, type ServerDeps, uuidPrefix } from './query.ts'

const MATCHES_MAX = 20
const CONTEXTS = ['allocs', 'jobs', 'namespaces', 'nodes'] as const
type SearchContext = (typeof CONTEXTS)[number]
/** Further contexts of the compatible system, always empty. */
const OTHER_CONTEXTS =
  'deployment evals host_volumes node_pools plugins quotas recommendations scaling_policy vars volumes'.split(' ')

/** A key of the body, a JSON object of texts; unknown keys are ignored. */
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
      throw new Refusal('invalid_request', 'expected a JSON object with Prefix and Context, both strings')
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
  Prefix: inBody('Prefix of the IDs', (text) => text),
  Context: inBody('allocs, jobs, namespaces, nodes or all; default: all', contextsOf),
  region: readFields.region,
  namespace: namespaceField,
}

/** Matching IDs in order; an empty string for each one that does not match, so that the caller of this generator can yield. */
function matchingIds(
  queries: RosterQueries,
  context: SearchContext,
  search: { prefix: string; namespace: string; identity: Identity },
) {
  const { prefix, namespace, identity } = search
  const { roster } = queries
  const isVisible = (name: string, capability: 'read-job' | 'list-jobs') =>
    (namespace === '*' || namespace === name) && identity.allowsNamespace(name, capability)
  const uuids = (what: 'node' | 'alloc') => {
    const digits = prefix.replaceAll('-', '')
    if (!/^[0-9a-f]*$/i.test(digits)) return undefined
    return uuidPrefix(digits.slice(0, digits.length - (digits.length % 2)), what)
  }
  const sources: Record<SearchContext, () => Iterable<string>> = {
    nodes() {
      const begin = identity.allowsNode('read') ? uuids('node') : undefined
      return begin === undefined ? [] : queries.nodeIds.read({ prefix: begin, reverse: false })
    },
    *allocs() {
      const begin = uuids('alloc')
      if (begin === undefined) return
      for (const id of queries.allocationIds.read({ prefix: begin, reverse: false })) {
        const record = roster.allocation(id)
        if (record && isVisible(record.allocation.namespace, 'read-job')) yield id
        else yield ''
      }
    },
    *jobs() {
      for (const job of queries.jobs({ reverse: false })) {
        yield job.id.startsWith(prefix) && isVisible(job.namespace, 'list-jobs') ? job.id : ''
      }
    },
    namespaces: () =>
      queries.namespaces().filter((name) => name.startsWith(prefix) && identity.allowsNamespace(name, 'list-jobs')),
  }
  return sources[context]()
}

/** The first matches. Yields to other work while it skips empty strings. */
async function firstOf(ids: Iterable<string>): Promise<{ found: string[]; isTruncated: boolean }> {
  const found: string[] = []
  let visited = 0
  for (const id of ids) {
    const turn = ++visited % 64 === 0 ? yieldIfDue() : undefined
    if (turn) await turn
    if (id === '') continue
    if (found.length === MATCHES_MAX) return { found, isTruncated: true }
    found.push(id)
  }
  return { found, isTruncated: false }
}

export const search = handle(
  {
    name: 'server.search',
    summary: 'Find IDs by prefix',
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
  ({ queries, region }: ServerDeps) => ({
    async run(input, { identity }) {
      requireRegion(input.region, region)
      const { Prefix: prefix, Context: contexts } = input
      const matches: Record<string, string[]> = {}
      const truncations: Record<string, boolean> = {}
      for (const context of contexts) {
        const known = CONTEXTS.find((name) => name === context)
        const ids = known ? matchingIds(queries, known, { prefix, namespace: input.namespace, identity }) : []
        const { found, isTruncated } = await firstOf(ids)
        matches[context] = found
        truncations[context] = isTruncated
      }
      const { index } = queries.roster
      const answer = { Index: index, KnownLeader: true, LastContact: 0, Matches: matches, NextToken: '' }
      return new JsonText(JSON.stringify({ ...answer, Truncations: truncations }), readHeaders(index))
    },
  }),
)
