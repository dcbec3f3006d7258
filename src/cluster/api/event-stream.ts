/**
 * `/v1/event/stream`: what changes in the roster, one JSON object a line, as it happens. Topics are `Node` and
 * `Allocation`. `{}` comes at once and every 30 s, so that both sides know that the other is there.
 *
 * The last changes are kept for callers that come back with the index behind which they want to go on. A caller that
 * does not take its events is cut when too many wait for it: it can tell, and ask again with the index it has seen.
 */
import { Refusal } from '../../platform/errors.ts'
import { type Call, type Chunk, handle, type Identity } from '../../platform/operation.ts'
import { type Field, type InputOf, parseInteger, queryValue, schema } from '../../platform/schema.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import { allocationValue } from './nomad-allocation.ts'
import { nodeValue } from './nomad-node.ts'
import type { ServerParts } from './nodes-operations.ts'
import { namespaceField, readFields, requireRegion } from './query.ts'
import type { Roster } from '../roster/roster.ts'
import type { RosterChange } from '../roster/roster-records.ts'

const HEARTBEAT_MS = 30_000
const KEPT_MAX = 1000
/** Changes that may wait for one caller: they hold records, not text. */
const WAITING_MAX = 10_000
/** Lines of one write. */
const LINES_MAX = 64

/** The last changes, and who hears the next ones. */
export class Events {
  readonly #kept: RosterChange[] = []
  readonly #stopListening: () => void
  readonly #takers = new Set<(change: RosterChange) => void>()

  constructor(roster: Roster) {
    this.#stopListening = roster.listen((change) => {
      this.#kept.push(change)
      // In lumps: moving a thousand entries for each change would cost more than the change.
      if (this.#kept.length > 2 * KEPT_MAX) this.#kept.splice(0, KEPT_MAX)
      for (const take of this.#takers) take(change)
    })
  }

  stop(): void {
    this.#stopListening()
  }

  /** Those at `index` and behind that are still known. */
  from(index: number): readonly RosterChange[] {
    return this.#kept.filter((change) => change.index >= index)
  }

  listen(take: (change: RosterChange) => void): () => void {
    this.#takers.add(take)
    return () => void this.#takers.delete(take)
  }
}

type TopicName = 'Node' | 'Allocation'

/** What one `topic=` asks for; `*` is all topics, or all keys. */
interface Wanted {
  readonly topic: TopicName | '*'
  readonly key: string
}

const OTHER_TOPICS = new Set(
  (
    'ACLAuthMethod ACLBindingRule ACLPolicy ACLRole ACLToken CSIPlugin CSIVolume Deployment ' +
    'Evaluation HostVolume Job NodeDrain NodePool Operator Service Variable'
  ).split(' '),
)

const topic: Field<readonly Wanted[]> = {
  in: 'query',
  type: 'string',
  description: 'Node or Allocation, with :ID for one of them; may be given several times; all when absent',
  required: false,
  parse(raw, name) {
    const texts = raw.query.filter(([key, value]) => key === name && value !== '').map(([, value]) => value)
    return (texts.length === 0 ? ['*'] : texts).flatMap((text) => {
      const colon = text.indexOf(':')
      const asked = colon < 0 ? text : text.slice(0, colon)
      const key = colon < 0 ? '*' : text.slice(colon + 1)
      if (asked === '*' || asked === 'Node' || asked === 'Allocation') return [{ topic: asked, key }]
      if (OTHER_TOPICS.has(asked)) return []
      throw new Refusal('invalid_request', `unknown topic ${JSON.stringify(asked.slice(0, 64))}: Node, Allocation or *`)
    })
  },
}

const index: Field<number> = {
  in: 'query',
  type: 'integer',
  description: 'Where to begin, as far back as changes are known; with the next one when absent',
  required: false,
  parse(raw, name) {
    const text = queryValue(raw, name)
    const value = text === undefined ? 0 : parseInteger(text)
    if (typeof value === 'string' || value < 0) throw new Refusal('invalid_request', 'Invalid index')
    return value
  },
}

const fields = { topic, index, namespace: namespaceField, region: readFields.region }
type EventInput = InputOf<typeof fields>

/** True for a change that was asked for and that the caller may see. */
function isWanted(change: RosterChange, input: EventInput, identity: Identity): boolean {
  const asked = input.topic.some(
    ({ topic: name, key }) =>
      (name === '*' || name === topicOf(change)) && (key === '*' || keysOf(change).includes(key)),
  )
  if (!asked) return false
  if (change.kind === 'node') return identity.allowsNode('read')
  const { namespace } = change.record.allocation
  return (input.namespace === '*' || input.namespace === namespace) && identity.allowsNamespace(namespace, 'read-job')
}

function topicOf(change: RosterChange): TopicName {
  return change.kind === 'node' ? 'Node' : 'Allocation'
}

function keysOf(change: RosterChange): readonly string[] {
  return change.kind === 'node' ? [change.key] : [change.key, change.record.allocation.jobId]
}

/** Each change becomes text once, for however many callers. */
const lines = new WeakMap<RosterChange, string>()

function lineOf(change: RosterChange, roster: Roster): string {
  const known = lines.get(change)
  if (known !== undefined) return known
  const isNode = change.kind === 'node'
  const payload = isNode
    ? { Node: nodeValue(change.record) }
    : { Allocation: allocationValue(change.record, roster.node(change.record.nodeId)?.node.name ?? '', false) }
  const event = {
    FilterKeys: isNode ? null : [change.record.allocation.jobId],
    Index: change.index,
    Key: change.key,
    Namespace: isNode ? '' : change.record.allocation.namespace,
    Payload: payload,
    QueryTopic: topicOf(change),
    Type: change.type,
  }
  const line = `${JSON.stringify({ Events: [event], Index: change.index })}\n`
  lines.set(change, line)
  return line
}

async function* streamed(
  parts: { readonly queries: RosterQueries; readonly events: Events },
  input: EventInput,
  call: Call,
): AsyncGenerator<Chunk> {
  const { queries, events } = parts
  const leave = queries.admit()
  const waiting: RosterChange[] = []
  let isBehind = false
  let wake: (() => void) | undefined
  const take = (change: RosterChange) => {
    if (isBehind || !isWanted(change, input, call.identity)) return
    if (waiting.length >= WAITING_MAX) isBehind = true
    else waiting.push(change)
    wake?.()
  }
  if (input.index > 0) for (const change of events.from(input.index)) take(change)
  const stop = events.listen(take)
  const onAbort = () => wake?.()
  call.signal.addEventListener('abort', onAbort)
  try {
    yield { status: 200, contentType: 'application/json', headers: { 'Cache-Control': 'no-cache' } }
    yield Buffer.from('{}\n')
    while (!call.signal.aborted) {
      if (waiting.length > 0) {
        const text = waiting.splice(0, LINES_MAX).map((change) => lineOf(change, queries.roster))
        yield Buffer.from(text.join(''))
      } else if (isBehind) {
        throw new Refusal('unavailable', 'the caller does not take its events, ask again with the index last seen')
      } else {
        const { promise, resolve } = Promise.withResolvers<'beat' | undefined>()
        const timer = setTimeout(() => resolve('beat'), HEARTBEAT_MS).unref()
        wake = () => resolve(undefined)
        if ((await promise) === 'beat') yield Buffer.from('{}\n')
        clearTimeout(timer)
      }
    }
  } finally {
    call.signal.removeEventListener('abort', onAbort)
    stop()
    leave()
  }
}

export const eventStream = handle(
  {
    name: 'server.event_stream',
    summary: 'Changes of nodes and allocations as they happen',
    http: ['GET /v1/event/stream'],
    target: 'server',
    input: schema(fields),
    output: 'stream',
    errorFormat: 'plain',
    endless: () => true,
    authorize(input, identity) {
      const { namespace } = input
      const mayNodes = identity.allowsNode('read')
      const mayAllocations = namespace === '*' || identity.allowsNamespace(namespace, 'read-job')
      const denied = input.topic.some(({ topic: name }) =>
        name === 'Node' ? !mayNodes : name === 'Allocation' && !mayAllocations,
      )
      if (denied || (!mayNodes && !mayAllocations)) throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ queries, region, events }: ServerParts & { readonly events: Events }) => ({
    run(input, call) {
      requireRegion(input.region, region)
      return streamed({ queries, events }, input, call)
    },
  }),
)
