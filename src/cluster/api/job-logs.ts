/**
 * `/v1/job/:id/logs`: the logs of all allocations of a job over one connection. Each allocation's `fs/logs` runs on its own
 * node with the same parameters; its frames are merged in arrival order, each labelled `"AllocID":"…"`. Searching is
 * done on the nodes (`grep=`), so only matching lines travel.
 *
 * Promises. The lines of one allocation arrive in order and without a gap up to the frame that ends its part: `log ended`, or
 * `log failed` with the reason. The end of one part does not end the others. With `follow`, new allocations join
 * from the beginning of their logs, and one that cannot be read yet is retried. A slow client slows all nodes down;
 * memory is bounded (`round-robin-queue`).
 *
 * A node is not trusted: how many allocations it announces, how long it takes and how much it sends do not affect the other
 * nodes. Slots to follow are shared among the nodes (`node-shares`), reads without follow have slots per node and a
 * limit (`host-reading`), and chunks are taken from the nodes round-robin (`merged-streams`).
 */
import { setTimeout as pause } from 'node:timers/promises'
import { Refusal, type RefusalCode } from '../../platform/errors.ts'
import { admit, type AnyOperation, type Call, type Chunk, handle, isStreamHead } from '../../platform/operation.ts'
import {
  type Field,
  type InputOf,
  parseBoolean,
  pathParam,
  queryBoolean,
  queryText,
  type RawInput,
  schema,
} from '../../platform/schema.ts'
import type { AllocationDescription } from '../roster/node-messages.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import type { AllocationRecord } from '../roster/roster-records.ts'
import { HostReading } from './host-reading.ts'
import { NodeSlots, type NodeSlot } from '../rpc/node-slots.ts'
import { eventFrame, FrameLabels } from './frame-labels.ts'
import { requireJob } from './jobs-operations.ts'
import { MergedStreams } from './merged-streams.ts'
import { isEnded } from './nomad-allocation.ts'
import type { ServerParts } from './nodes-operations.ts'
import { namespaceField, readFields, requireRegion } from './query.ts'
import { TIMINGS } from '../nats/timings.ts'

const HEARTBEAT_MS = 1000
const HEARTBEAT = Buffer.from('{}')
/** Interval of the checks for hosts that are too slow. */
const JUDGE_MS = 1000
/** Allocations followed at once over one connection: a thousand, and as many that one node makes up. */
const FOLLOWED_MAX = 2000
/** Allocations read at once without follow: at least one of each node, and about `READ_MAX` in all. */
const READ_PER_NODE = 4
const READ_MAX = 1000
const NO_SLOT = `at most ${FOLLOWED_MAX} allocations of a job are followed at once, shared among its hosts`
/** Refusals that a retry may resolve. */
const RETRYABLE: ReadonlySet<RefusalCode> = new Set(['not_found', 'too_many', 'unavailable', 'no_answer'])
/** Parameters for where a log begins: an allocation that joins later is read from its beginning. */
const START_PARAMETERS = ['offset', 'origin', 'tail_lines', 'since']
/** Parameters of this endpoint, or set for each allocation. */
const OWN_PARAMETERS = ['namespace', 'region', 'task', 'type', 'follow']

/** `?follow` alone is enough here. */
const follow: Field<boolean> = {
  in: 'query',
  type: 'boolean',
  description: 'Go on with what is written, and with allocations that come',
  required: false,
  parse(raw, name) {
    const text = raw.query.find(([key]) => key === name)?.[1]
    const value = text === undefined ? false : text === '' || parseBoolean(text)
    if (value === undefined) throw new Refusal('invalid_request', 'failed to parse follow field to boolean')
    return value
  },
}

function notHere(description: string, why: string): Field<undefined> {
  return {
    in: 'query',
    type: 'string',
    description,
    required: false,
    parse(raw, name) {
      if (raw.query.some(([key, value]) => key === name && value !== '' && parseBoolean(value) !== false)) {
        throw new Refusal('invalid_request', `${name} cannot be had for a job: ${why}`)
      }
    },
  }
}

const fields = {
  id: pathParam('ID of the job, percent-encoded where it has slashes'),
  namespace: namespaceField,
  region: readFields.region,
  task: queryText({ description: 'Name of the task; all tasks when absent', fallback: '*' }),
  type: queryText({ description: 'stdout or stderr; both when absent', fallback: '*' }),
  follow,
  end_when_done: queryBoolean({ description: 'With follow: end when every task has ended', fallback: false }),
  plain: notHere('Refused', 'frames say whose bytes they are'),
  cursor: notHere('Refused', 'a place in many logs is no single one; follow one allocation, or use since'),
}
type LogsInput = InputOf<typeof fields>

interface LogsParts extends ServerParts {
  /** `host.logs` as this process routes it. */
  readonly logs: AnyOperation
}

/** The same request for one allocation. */
function requestOf(input: LogsInput, raw: RawInput, allocationId: string, isJoining: boolean): RawInput {
  const left = raw.query.filter(
    ([key]) => !OWN_PARAMETERS.includes(key) && !(isJoining && START_PARAMETERS.includes(key)),
  )
  const { task, type } = input
  const query: [string, string][] = [
    ['task', task],
    ['type', type],
    ['follow', String(input.follow)],
  ]
  return { params: { alloc_id: allocationId }, query: [...left, ...query], headers: {}, body: undefined }
}

/** An allocation's log in the answer. */
interface Part {
  readonly nodeId: string
  readonly allocationId: string
  /** Aborts when reading stops. */
  readonly signal: AbortSignal
  /** Why reading stopped before the end of the log. */
  readonly lost: Refusal | undefined
}

class FollowedPart implements Part {
  readonly nodeId: string
  readonly allocationId: string
  readonly #abort = new AbortController()
  slot: NodeSlot | undefined
  lost: Refusal | undefined

  constructor({ nodeId, allocation }: AllocationRecord) {
    this.nodeId = nodeId
    this.allocationId = allocation.id
  }

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  /** Another node has got its slot. */
  lose(): void {
    this.lost = new Refusal('too_many', NO_SLOT)
    this.end()
  }

  end(): void {
    this.#abort.abort()
  }
}

function inOrder(records: readonly AllocationRecord[]): AllocationRecord[] {
  return records.toSorted(({ allocation: { id: a } }, { allocation: { id: b } }) => (a < b ? -1 : 1))
}

function count(left: Map<string, { id: string; count: number }>, nodeId: string, id: string): void {
  const known = left.get(nodeId)
  if (known) known.count++
  else left.set(nodeId, { id, count: 1 })
}

function failedFrame(allocationId: string, reason: unknown): Buffer {
  const text = reason instanceof Refusal ? `${reason.status} ${reason.message}` : '500 the node had an internal error'
  return eventFrame('log failed', allocationId, text)
}

/** One request for the logs of a job. */
class JobLogs {
  readonly #queries: RosterQueries
  readonly #logs: AnyOperation
  readonly #input: LogsInput
  readonly #call: Call
  readonly #merged = new MergedStreams()
  readonly #known = new Set<string>()
  readonly #slots = new NodeSlots({ slots: FOLLOWED_MAX })
  readonly #followed = new Set<FollowedPart>()
  readonly #hosts: HostReading[] = []
  #judgedAtMs = performance.now()

  constructor(parts: { queries: RosterQueries; logs: AnyOperation }, input: LogsInput, call: Call) {
    this.#queries = parts.queries
    this.#logs = parts.logs
    this.#input = input
    this.#call = call
  }

  async *run(): AsyncGenerator<Chunk> {
    const { namespace, id, follow: isFollowed, end_when_done: ends } = this.#input
    const records = [...(this.#queries.job(namespace, id)?.allocations.values() ?? [])]
    const wanted = records.filter(({ allocation }) => this.#isWanted(allocation))
    const [first] = wanted
    if (!first && (!isFollowed || ends)) throw new Refusal('not_found', 'no allocation of this job has such a log')
    // Bad parameters are bad for every allocation: refused before anything is sent.
    if (first) this.#logs.input.parse(requestOf(this.#input, this.#call.raw, first.allocation.id, false))
    const leave = this.#queries.admit()
    const stop = isFollowed ? this.#join() : () => undefined
    const onAbort = () => this.#merged.wake()
    this.#call.signal.addEventListener('abort', onAbort)
    try {
      yield {
        status: 200,
        contentType: 'application/json',
        frames: true,
        headers: { 'X-Content-Type-Options': 'nosniff' },
      }
      if (isFollowed) this.#followAll(wanted)
      else this.#readAll(wanted)
      yield* this.#chunks(isFollowed && !ends)
    } finally {
      this.#call.signal.removeEventListener('abort', onAbort)
      stop()
      leave()
      for (const part of this.#followed) part.end()
      for (const host of this.#hosts) host.close()
      this.#merged.close()
    }
  }

  #isWanted({ tasks }: AllocationDescription): boolean {
    return this.#input.task === '*' || tasks.some(({ name }) => name === this.#input.task)
  }

  #followAll(records: readonly AllocationRecord[]): void {
    const parts: FollowedPart[] = []
    /** The first allocation of each node that got no slot, and how many did not. */
    const left = new Map<string, { id: string; count: number }>()
    for (const record of inOrder(records)) {
      this.#known.add(record.allocation.id)
      const part = this.#enter(record)
      if (part) parts.push(part)
      else count(left, record.nodeId, record.allocation.id)
    }
    for (const part of parts) {
      if (part.lost) {
        this.#followed.delete(part)
        count(left, part.nodeId, part.allocationId)
      } else this.#merged.run(() => this.#follow(part, false))
    }
    for (const [nodeId, { count: many, id }] of left) {
      const text = `${many} allocations of this host are not followed: ${NO_SLOT}`
      this.#merged.run(async () => void (await this.#merged.put(eventFrame('log failed', id, text), nodeId)))
    }
  }

  #readAll(records: readonly AllocationRecord[]): void {
    const ofNodes = Map.groupBy(inOrder(records), ({ nodeId }) => nodeId)
    const runSlices = Math.max(1, Math.min(READ_PER_NODE, Math.floor(READ_MAX / ofNodes.size)))
    for (const own of ofNodes.values()) {
      const host = new HostReading()
      this.#hosts.push(host)
      const next = own.values()
      for (let at = 0; at < runSlices; at++) this.#merged.run(() => this.#readHost(host, next))
    }
  }

  /** Reads the allocations of a host one by one; other readers of the host take from the same iterator. */
  async #readHost(host: HostReading, next: IterableIterator<AllocationRecord>): Promise<void> {
    for (const { allocation, nodeId } of next) {
      if (host.lost) {
        const text = `${1 + [...next].length} allocations of this host are not read: ${host.lost.message}`
        await this.#merged.put(eventFrame('log failed', allocation.id, text), nodeId)
        return
      }
      const part = {
        allocationId: allocation.id,
        nodeId,
        signal: host.signal,
        get lost() {
          return host.lost
        },
      }
      await this.#read(part, false, { through: (chunks) => host.read(chunks) })
    }
  }

  /** Follows new allocations of the job; returns the function that stops it. */
  #join(): () => void {
    const { namespace, id: jobId } = this.#input
    return this.#queries.roster.listen((change) => {
      // Removed allocations are forgotten: a node may announce new ones without end.
      if (change.type === 'AllocationRemoved') this.#known.delete(change.key)
      if (change.type !== 'AllocationUpdated') return
      const { allocation } = change.record
      if (allocation.namespace !== namespace || allocation.jobId !== jobId || !this.#isWanted(allocation)) return
      if (this.#known.has(allocation.id)) return
      // It was removed and came back, and its log has not ended meanwhile.
      if (this.#isFollowed(allocation.id)) {
        this.#known.add(allocation.id)
        return
      }
      const part = this.#enter(change.record)
      if (!part) return
      this.#known.add(allocation.id)
      this.#merged.run(() => this.#follow(part, true))
    })
  }

  #isFollowed(id: string): boolean {
    return this.#followed.values().some(({ allocationId }) => allocationId === id)
  }

  #enter(record: AllocationRecord): FollowedPart | undefined {
    const part = new FollowedPart(record)
    part.slot = this.#slots.acquire(part.nodeId, () => part.lose())
    if (!part.slot) return undefined
    this.#followed.add(part)
    return part
  }

  async *#chunks(isEndless: boolean): AsyncGenerator<Buffer> {
    // The interval begins with the last chunk: `next` may return early without one.
    let quietSinceMs = performance.now()
    while (!this.#call.signal.aborted) {
      if (!this.#merged.isActive && !isEndless) return
      const startMs = performance.now()
      this.#judge(startMs)
      const chunk = await this.#merged.next(Math.max(1, quietSinceMs + HEARTBEAT_MS - startMs))
      if (chunk) yield chunk
      else if (performance.now() - quietSinceMs >= HEARTBEAT_MS * 0.9) yield HEARTBEAT
      else continue
      quietSinceMs = performance.now()
    }
  }

  #judge(nowMs: number): void {
    if (nowMs - this.#judgedAtMs < JUDGE_MS) return
    this.#judgedAtMs = nowMs
    for (const host of this.#hosts) host.judge()
  }

  /** Reads until the stream ends; retries one that did not begin for as long as the allocation may still write. */
  async #follow(part: FollowedPart, isJoining: boolean): Promise<void> {
    const { allocationId, nodeId, signal } = part
    try {
      let mayGrow = this.#mayGrow(allocationId)
      let outcome = await this.#read(part, isJoining)
      while (outcome === 'retry' && mayGrow) {
        await pause(TIMINGS.logRetryMs, undefined, { signal, ref: false }).catch(() => undefined)
        if (signal.aborted) {
          if (part.lost) await this.#merged.put(failedFrame(allocationId, part.lost), nodeId)
          return
        }
        // What was written before it ended is read by one more attempt.
        mayGrow = this.#mayGrow(allocationId)
        outcome = await this.#read(part, isJoining, { isRetry: true })
      }
    } finally {
      this.#followed.delete(part)
      if (part.slot) this.#slots.release(part.slot)
    }
  }

  #mayGrow(allocationId: string): boolean {
    const record = this.#queries.roster.allocation(allocationId)
    return record !== undefined && !isEnded(record.allocation)
  }

  /** Sends one allocation's log and the frame that ends it. A retry that fails as the first attempt did sends nothing. */
  async #read(
    part: Part,
    isJoining: boolean,
    how: { readonly isRetry?: boolean; through?(chunks: AsyncIterable<Chunk>): AsyncIterable<Chunk> } = {},
  ): Promise<'ended' | 'retry'> {
    const { allocationId: id, nodeId } = part
    let hasBegun = false
    try {
      const labels = new FrameLabels('AllocID', id)
      const chunks = this.#open(part, isJoining)
      for await (const chunk of how.through?.(chunks) ?? chunks) {
        hasBegun = true
        if (!isStreamHead(chunk) && !(await this.#merged.put(labels.take(chunk), nodeId))) return 'ended'
      }
      if (part.lost) throw part.lost
      const last = labels.isWhole ? eventFrame('log ended', id) : eventFrame('log failed', id, 'cut short')
      await this.#merged.put(last, nodeId)
      return 'ended'
    } catch (error) {
      const mayRetry = !part.lost && !hasBegun && error instanceof Refusal && RETRYABLE.has(error.code)
      if (!mayRetry || !how.isRetry) await this.#merged.put(failedFrame(id, part.lost ?? error), nodeId)
      return mayRetry ? 'retry' : 'ended'
    }
  }

  #open({ allocationId: id, signal }: Part, isJoining: boolean): AsyncIterable<Chunk> {
    const { requestId, identity, token, hops, remote } = this.#call
    const raw = requestOf(this.#input, this.#call.raw, id, isJoining)
    const input = this.#logs.input.parse(raw)
    const about = admit(this.#logs, input, identity)
    const call = { requestId, identity, token, hops, remote, raw, signal }
    const result = this.#logs.run(input, call, about)
    if (Symbol.asyncIterator in result) return result
    throw new Refusal('not_implemented', 'logs are not streamed here')
  }
}

export const jobLogs = handle(
  {
    name: 'server.job_logs',
    summary: 'The logs of all allocations of a job in one stream, each frame labelled with its allocation',
    http: ['GET /v1/job/:id/logs'],
    target: 'server',
    input: schema(fields),
    output: 'stream',
    errorFormat: 'plain',
    endless: (input) => input.follow,
    authorize(input, identity) {
      const { namespace } = input
      if (namespace === '*') requireJob(input, identity)
      if (identity.allowsNamespace(namespace, 'read-logs') || identity.allowsNamespace(namespace, 'read-fs')) return
      throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ queries, region, logs }: LogsParts) => ({
    run(input, call) {
      requireRegion(input.region, region)
      return new JobLogs({ queries, logs }, input, call).run()
    },
  }),
)
