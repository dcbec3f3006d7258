/**
 * `/v1/event/stream`: changes of the roster as they happen, one JSON object a line. Topics are `Node` and `Allocation`. A heartbeat,
 * `{}`, is sent at once and every 30 s.
 *
 * The last changes are kept for callers that resume at an index. A caller that does not read its events is disconnected when too
 * many are queued for it; it can resume with the last index that it has read.
 */
import { Refusal } from '../../platform/errors.ts'
import { type Call, type Chunk, handle, type Identity } from '../../platform/operation.ts'
import { type Field, type InputOf, parseInteger, queryValue, schema } from '../../platform/schema.ts'
import type { Roster } from '../roster/roster.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import type { RosterChange } from '../roster/roster-records.ts'
import { allocationValue } from './nomad-allocation.ts'
import { nodeValue } from './nomad-node.ts'
import { namespaceField, readFields, requireRegion, type ServerDeps } from './query.ts'

const HEARTBEAT_MS = 30_000
/** Changes that are kept for callers that resume. */
const KEPT_MAX = 1000
/** Changes queued for one caller: records, not text. */
const QUEUED_MAX = 10_000
/** Lines of one chunk. */
const LINES_MAX = 64

/** The last changes of the roster, and subscribers to the next ones. */
export class RosterEvents {
  readonly #kept: RosterChange[] = []
  readonly #stopListening: () => void
  readonly #subscribers = new Set<(change: RosterChange) => void>()

  constructor(roster: Roster) {
    this.#stopListening = roster.listen((change) => {
      this.#kept.push(change)
      // Removed in batches: moving a thousand entries for each change would cost more than the change.
      if (this.#kept.length > 2 * KEPT_MAX) this.#kept.splice(0, KEPT_MAX)
      for (const subscriber of this.#subscribers) subscriber(change)
    })
  }

  stop(): void {
    this.#stopListening()
  }

  /** Kept changes from `index` on. */
  from(index: number): readonly RosterChange[] {
    return this.#kept.filter((change) => change.index >= index)
  }

  /** Returns the function that ends the subscription. */
  subscribe(subscriber: (change: RosterChange) => void): () => void {
    this.#subscribers.add(subscriber)
    return () => void this.#subscribers.delete(subscriber)
  }
}

type TopicName = 'Node' | 'Allocation'

/** One `topic=` parameter; `*` means all topics, or all keys. */
interface TopicFilter {
  readonly topic: TopicName | '*'
  readonly key: string
}

const OTHER_TOPICS = new Set(
  (
    'ACLAuthMethod ACLBindingRule ACLPolicy ACLRole ACLToken CSIPlugin CSIVolume Deployment ' +
    'Evaluation HostVolume Job NodeDrain NodePool Operator Service Variable'
  ).split(' '),
)

const topic: Field<readonly TopicFilter[]> = {
  in: 'query',
  type: 'string',
  description: 'Node or Allocation, optionally with :ID; repeatable; default: all',
  required: false,
  parse(raw, name) {
    const texts = raw.query.filter(([key, value]) => key === name && value !== '').map(([, value]) => value)
    return (texts.length === 0 ? ['*'] : texts).flatMap((text) => {
      const colon = text.indexOf(':')
      const requested = colon < 0 ? text : text.slice(0, colon)
      const key = colon < 0 ? '*' : text.slice(colon + 1)
      if (requested === '*' || requested === 'Node' || requested === 'Allocation') return [{ topic: requested, key }]
      if (OTHER_TOPICS.has(requested)) return []
      throw new Refusal(
        'invalid_request',
        `unknown topic ${JSON.stringify(requested.slice(0, 64))}: Node, Allocation or *`,
      )
    })
  },
}

const index: Field<number> = {
  in: 'query',
  type: 'integer',
  description: 'Index of the first event, if the server still has it; default: the next event',
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

/** True for a change that the caller has requested and may see. */
function isSelected(change: RosterChange, input: EventInput, identity: Identity): boolean {
  const isRequested = input.topic.some(
    ({ topic: name, key }) =>
      (name === '*' || name === topicOf(change)) && (key === '*' || keysOf(change).includes(key)),
  )
  if (!isRequested) return false
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

/** Text of each change, encoded once for all callers. */
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
    Topic: topicOf(change),
    Type: change.type,
  }
  const line = `${JSON.stringify({ Events: [event], Index: change.index })}\n`
  lines.set(change, line)
  return line
}

async function* streamEvents(
  deps: { readonly queries: RosterQueries; readonly events: RosterEvents },
  input: EventInput,
  call: Call,
): AsyncGenerator<Chunk> {
  const { queries, events } = deps
  const release = queries.admit()
  const queue: RosterChange[] = []
  let isBehind = false
  let wake: (() => void) | undefined
  const take = (change: RosterChange) => {
    if (isBehind || !isSelected(change, input, call.identity)) return
    if (queue.length >= QUEUED_MAX) isBehind = true
    else queue.push(change)
    wake?.()
  }
  if (input.index > 0) for (const change of events.from(input.index)) take(change)
  const stop = events.subscribe(take)
  const onAbort = () => wake?.()
  call.signal.addEventListener('abort', onAbort)
  try {
    yield { status: 200, contentType: 'application/json', headers: { 'Cache-Control': 'no-cache' } }
    yield Buffer.from('{}\n')
    while (!call.signal.aborted) {
      if (queue.length > 0) {
        const text = queue.splice(0, LINES_MAX).map((change) => lineOf(change, queries.roster))
        yield Buffer.from(text.join(''))
      } else if (isBehind) {
        throw new Refusal(
          'unavailable',
          `the client is more than ${QUEUED_MAX} events behind, resume with the last index`,
        )
      } else {
        const { promise, resolve } = Promise.withResolvers<'heartbeat' | undefined>()
        const timer = setTimeout(() => resolve('heartbeat'), HEARTBEAT_MS).unref()
        wake = () => resolve(undefined)
        if ((await promise) === 'heartbeat') yield Buffer.from('{}\n')
        clearTimeout(timer)
      }
    }
  } finally {
    call.signal.removeEventListener('abort', onAbort)
    stop()
    release()
  }
}

export const eventStream = handle(
  {
    name: 'server.event_stream',
    summary: 'Stream changes of nodes and allocations',
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
  ({ queries, region, events }: ServerDeps & { readonly events: RosterEvents }) => ({
    run(input, call) {
      requireRegion(input.region, region)
      return streamEvents({ queries, events }, input, call)
    },
  }),
)
