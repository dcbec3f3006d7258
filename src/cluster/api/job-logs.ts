/**
 * `/v1/job/:id/logs`: the logs of all allocations of a job over one connection. `fs/logs` of each allocation runs on its node
 * with the same parameters; its frames are merged in arrival order, each labeled `"AllocID":"…"`. Nodes search (`grep=`), so
 * only matching lines are transferred.
 *
 * Promises. The lines of an allocation arrive in order and without a gap up to the frame that ends its log: `log ended`, or
 * `log failed` with the reason. The end of one log does not end the others. With `follow`, new allocations join from the beginning
 * of their logs, and a log that cannot be read yet is retried. With `cursor`, each frame has the cursor of its log: a client resumes all
 * logs with the last cursor of each, and a log whose node breaks is resumed here. A slow client slows down all nodes; memory is bounded
 * (`byte-queue.ts`).
 *
 * A node is not trusted: how many allocations it reports, how long it takes and how much it sends does not affect other nodes.
 * Slots to follow are shared among the nodes (`node-slots.ts`); without `follow` a node has a few readers and limits for all its
 * logs (`HostReading`); chunks are taken from the nodes by deficit round-robin.
 */
import { setTimeout as sleep } from 'node:timers/promises'
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
import { TIMINGS } from '../nats/timings.ts'
import type { AllocationDescription } from '../roster/node-messages.ts'
import type { RosterQueries } from '../roster/roster-queries.ts'
import type { AllocationRecord } from '../roster/roster-records.ts'
import { MinimumRate, tooSlow } from '../rpc/node-limits.ts'
import { type NodeSlot, NodeSlots } from '../rpc/node-slots.ts'
import { DeficitRoundRobinQueue } from './byte-queue.ts'
import { FrameLabeler, lastFrame } from './frame-labeler.ts'
import { CURSORS_BODY_BYTES_MAX, cursorField } from './job-log-cursors.ts'
import { requireJob } from './jobs-operations.ts'
import { isEnded } from './nomad-allocation.ts'
import { namespaceField, readFields, requireRegion, type ServerDeps } from './query.ts'

const HEARTBEAT_MS = 1000
const HEARTBEAT = Buffer.from('{}')
/** Interval of the rate checks of hosts. */
const RATE_CHECK_MS = 1000
/** Allocations followed over one connection: a thousand, and as many that a hostile node invents. */
const FOLLOWED_MAX = 2000
/** Concurrent reads without follow: at least one of each node, and about `READERS_MAX` in total. */
const READERS_PER_NODE = 4
const READERS_MAX = 1000
/** Bytes of one host in one answer: twice what a hundred tasks keep of both outputs by default, as frames. */
const HOST_BYTES_MAX: number = 64 * 2 ** 30
/** Counted for the start of each log, so that ten thousand empty ones are limited too. */
const LOG_START_BYTES = 4096
const NO_SLOT = `at most ${FOLLOWED_MAX} allocations of a job are followed at once, shared among its hosts`
/** Refusals that a retry may resolve. */
const RETRYABLE: ReadonlySet<RefusalCode> = new Set([
  'not_found',
  'too_many',
  'unavailable',
  'no_answer',
  'not_connected',
  'not_active',
  'sealed',
])
/** Parameters for the start of a log: an allocation that joins later is read from its beginning. */
const START_PARAMETERS = ['offset', 'origin', 'tail_lines', 'since']
/** Parameters of this endpoint, or set for each allocation. */
const OWN_PARAMETERS = ['namespace', 'region', 'task', 'type', 'follow', 'cursor']

/** Accepts `?follow` without a value. */
const follow: Field<boolean> = {
  in: 'query',
  type: 'boolean',
  description: 'Follow the logs, including those of new allocations',
  required: false,
  parse(raw, name) {
    const text = raw.query.find(([key]) => key === name)?.[1]
    const value = text === undefined ? false : text === '' || parseBoolean(text)
    if (value === undefined) throw new Refusal('invalid_request', 'failed to parse follow field to boolean')
    return value
  },
}

function unsupported(reason: string): Field<undefined> {
  return {
    in: 'query',
    type: 'string',
    description: 'Not supported',
    required: false,
    parse(raw, name) {
      if (raw.query.some(([key, value]) => key === name && value !== '' && parseBoolean(value) !== false)) {
        throw new Refusal('invalid_request', `${name} is not supported for the logs of a job: ${reason}`)
      }
    },
  }
}

const fields = {
  id: pathParam('Job ID, percent-encoded if it contains slashes'),
  namespace: namespaceField,
  region: readFields.region,
  task: queryText({ description: 'Task name; default: all tasks', fallback: '*' }),
  type: queryText({ description: 'stdout or stderr; default: both', fallback: '*' }),
  follow,
  end_when_done: queryBoolean({ description: 'With follow: end when all tasks have ended', fallback: false }),
  plain: unsupported('frames contain the allocation ID'),
  cursor: cursorField,
}
type LogsInput = InputOf<typeof fields>

interface JobLogDeps extends ServerDeps {
  /** `host.logs`, as this process routes it. */
  readonly logs: AnyOperation
}

/** Start position of one log. */
interface LogStart {
  /** From the beginning: the allocation was not known when the client began to follow. */
  readonly isJoining: boolean
  /** Empty for a resumable stream without a position; undefined if the stream is not resumable. */
  readonly cursor: string | undefined
}

/** The same request for one allocation. */
function requestFor(input: LogsInput, raw: RawInput, allocationId: string, start: LogStart): RawInput {
  const { cursor, isJoining } = start
  const isStartGiven = isJoining || (cursor ?? '') !== ''
  const inherited = raw.query.filter(
    ([key]) => !OWN_PARAMETERS.includes(key) && !(isStartGiven && START_PARAMETERS.includes(key)),
  )
  const { task, type } = input
  const query: [string, string][] = [
    ['task', task],
    ['type', type],
    ['follow', String(input.follow)],
    ...(cursor === undefined ? [] : [['cursor', cursor] satisfies [string, string]]),
  ]
  return { params: { alloc_id: allocationId }, query: [...inherited, ...query], headers: {}, body: undefined }
}

function sortedById(records: readonly AllocationRecord[]): AllocationRecord[] {
  return records.toSorted(({ allocation: { id: a } }, { allocation: { id: b } }) => (a < b ? -1 : 1))
}

function failedFrame(allocationId: string, error: unknown): Buffer {
  const text = error instanceof Refusal ? `${error.status} ${error.message}` : '500 the node had an internal error'
  return lastFrame('log failed', allocationId, text)
}

/** Reading that can be ended before the end of the log. */
class LogReading {
  readonly #abort = new AbortController()
  /** Reason, if it was ended before. */
  lost: Refusal | undefined

  get signal(): AbortSignal {
    return this.#abort.signal
  }

  end(reason?: Refusal): void {
    this.lost ??= reason
    this.#abort.abort(reason)
  }

  /** The chunks of one log. */
  read(chunks: AsyncIterable<Chunk>): AsyncIterable<Chunk> {
    return chunks
  }
}

/** One log that is followed. */
class FollowedLog extends LogReading {
  readonly record: AllocationRecord
  readonly slot: NodeSlot | undefined

  constructor(record: AllocationRecord, slots: NodeSlots) {
    super()
    this.record = record
    this.slot = slots.acquire(record.nodeId, () => this.end(new Refusal('too_many', NO_SLOT)))
  }
}

/**
 * All logs of one host that are read to their end. The host reports the end of a log, so one that sends for ever, or a little from
 * time to time, would keep the answer from its end, with each of its logs. Therefore the limits apply to all logs of the host
 * together; a host that exceeds them is not read any more, and the answer reports it.
 */
export class HostReading extends LogReading {
  readonly #bytesMax: number
  readonly #rate = new MinimumRate()
  #bytes = 0

  constructor(bytesMax = HOST_BYTES_MAX) {
    super()
    this.#bytesMax = bytesMax
  }

  override async *read(chunks: AsyncIterable<Chunk>): AsyncGenerator<Chunk> {
    const iterator = chunks[Symbol.asyncIterator]()
    try {
      for (;;) {
        this.#rate.beginWait()
        const { done, value } = await iterator.next().finally(() => this.#rate.endWait())
        if (done) return
        this.#count(isStreamHead(value) ? LOG_START_BYTES : value.length)
        yield value
      }
    } finally {
      await iterator.return?.()
    }
  }

  #count(bytes: number): void {
    this.#rate.received(bytes)
    this.#bytes += bytes
    if (this.#bytes <= this.#bytesMax) return
    const limit = `${this.#bytesMax / 2 ** 30} GiB`
    this.end(
      new Refusal('no_answer', `the response can contain at most ${limit} from each host, read its logs one by one`),
    )
  }

  /** Must be called about once a second. */
  checkRate(): void {
    if (!this.lost && this.#rate.isViolated()) this.end(tooSlow())
  }
}

/** One request for the logs of a job. */
class JobLogStream {
  readonly #queries: RosterQueries
  readonly #logs: AnyOperation
  readonly #input: LogsInput
  readonly #call: Call
  readonly #queue = new DeficitRoundRobinQueue()
  /** Logs and hosts that are being read. */
  #readerCount = 0
  /** Allocations that were followed, or were refused a slot. */
  readonly #known = new Set<string>()
  readonly #slots = new NodeSlots({ slots: FOLLOWED_MAX })
  readonly #followed = new Set<FollowedLog>()
  readonly #hosts: HostReading[] = []
  /** The last cursor of each log that the client has, or that its node has sent before the log broke. */
  readonly #cursors: Map<string, string> | undefined
  readonly #isResumed: boolean
  #rateCheckedAtMs = performance.now()

  constructor({ queries, logs }: JobLogDeps, input: LogsInput, call: Call) {
    this.#queries = queries
    this.#logs = logs
    this.#input = input
    this.#call = call
    this.#cursors = input.cursor && new Map(input.cursor)
    this.#isResumed = (input.cursor?.size ?? 0) > 0
  }

  async *run(): AsyncGenerator<Chunk> {
    const { namespace, id, follow: isFollowed, end_when_done: ends } = this.#input
    const all = [...(this.#queries.job(namespace, id)?.allocations.values() ?? [])]
    const records = all.filter(({ allocation }) => this.#hasTask(allocation))
    const [first] = records
    if (!first && (!isFollowed || ends)) throw new Refusal('not_found', 'no allocation of this job has a matching log')
    // Invalid parameters are invalid for every allocation: refused before the head is sent.
    if (first) this.#logs.input.parse(this.#requestFor(first.allocation.id, false))
    const release = this.#queries.admit()
    const stopJoining = isFollowed ? this.#followNew() : () => undefined
    const onAbort = () => this.#queue.wake()
    this.#call.signal.addEventListener('abort', onAbort)
    try {
      const headers = { 'X-Content-Type-Options': 'nosniff' }
      yield { status: 200, contentType: 'application/json', frames: true, headers }
      if (isFollowed) this.#followAll(records)
      else this.#readAll(records)
      yield* this.#chunks(isFollowed && !ends)
    } finally {
      this.#call.signal.removeEventListener('abort', onAbort)
      stopJoining()
      release()
      for (const reading of [...this.#followed, ...this.#hosts]) reading.end()
      this.#queue.close()
    }
  }

  #hasTask({ tasks }: AllocationDescription): boolean {
    return this.#input.task === '*' || tasks.some(({ name }) => name === this.#input.task)
  }

  /** Runs until the reader has ended; it reports its own errors. */
  #start(reader: () => Promise<void>): void {
    this.#readerCount++
    const onEnd = () => {
      this.#readerCount--
      this.#queue.wake()
    }
    void reader().then(onEnd, onEnd)
  }

  #followAll(records: readonly AllocationRecord[]): void {
    // All acquire their slots before the first one starts, because a later one may take the slot of an earlier one.
    const logs = sortedById(records).map((record) => {
      this.#known.add(record.allocation.id)
      return this.#acquire(record)
    })
    const refused: AllocationRecord[] = []
    for (const log of logs) {
      if (log.slot && !log.lost) this.#start(() => this.#follow(log, false))
      else {
        this.#followed.delete(log)
        refused.push(log.record)
      }
    }
    for (const [nodeId, [one, ...others]] of Map.groupBy(refused, (record) => record.nodeId)) {
      const text = `${1 + others.length} allocations of this host are not followed: ${NO_SLOT}`
      const frame = lastFrame('log failed', one?.allocation.id ?? '', text)
      this.#start(async () => void (await this.#queue.put(nodeId, frame)))
    }
  }

  #readAll(records: readonly AllocationRecord[]): void {
    const ofNodes = Map.groupBy(sortedById(records), ({ nodeId }) => nodeId)
    const readers = Math.max(1, Math.min(READERS_PER_NODE, Math.floor(READERS_MAX / ofNodes.size)))
    for (const own of ofNodes.values()) {
      const host = new HostReading()
      this.#hosts.push(host)
      const next = own.values()
      for (let at = 0; at < readers; at++) this.#start(() => this.#readHost(host, next))
    }
  }

  /** Reads logs of a host one after the other; all readers of the host take from the same iterator. */
  async #readHost(host: HostReading, next: IterableIterator<AllocationRecord>): Promise<void> {
    for (const record of next) {
      if (host.lost) {
        const text = `${1 + [...next].length} allocations of this host are not read: ${host.lost.message}`
        await this.#queue.put(record.nodeId, lastFrame('log failed', record.allocation.id, text))
        return
      }
      await this.#read(record, host, {})
    }
  }

  /** Follows new allocations of the job; returns the function that stops it. */
  #followNew(): () => void {
    const { namespace, id: jobId } = this.#input
    return this.#queries.roster.listen((change) => {
      // Removed allocations are deleted, because a node may report new ones without end.
      if (change.type === 'AllocationRemoved') this.#known.delete(change.key)
      if (change.type !== 'AllocationUpdated') return
      const { allocation } = change.record
      if (allocation.namespace !== namespace || allocation.jobId !== jobId || !this.#hasTask(allocation)) return
      if (this.#known.has(allocation.id)) return
      // The allocation was removed and added again, and its log has not ended meanwhile.
      const isFollowed = this.#followed.values().some(({ record }) => record.allocation.id === allocation.id)
      const log = isFollowed ? undefined : this.#acquire(change.record)
      if (log && !log.slot) return
      this.#known.add(allocation.id)
      if (log) this.#start(() => this.#follow(log, true))
    })
  }

  #acquire(record: AllocationRecord): FollowedLog {
    const log = new FollowedLog(record, this.#slots)
    if (log.slot) this.#followed.add(log)
    return log
  }

  async *#chunks(isEndless: boolean): AsyncGenerator<Buffer> {
    // The interval begins with the last chunk: `next` may return early without one.
    let lastChunkMs = performance.now()
    while (!this.#call.signal.aborted) {
      if (this.#readerCount === 0 && this.#queue.length === 0 && !isEndless) return
      const startMs = performance.now()
      this.#checkRates(startMs)
      const chunk = await this.#queue.next(Math.max(1, lastChunkMs + HEARTBEAT_MS - startMs))
      if (chunk) yield chunk
      else if (performance.now() - lastChunkMs >= HEARTBEAT_MS * 0.9) yield HEARTBEAT
      else continue
      lastChunkMs = performance.now()
    }
  }

  #checkRates(nowMs: number): void {
    if (nowMs - this.#rateCheckedAtMs < RATE_CHECK_MS) return
    this.#rateCheckedAtMs = nowMs
    for (const host of this.#hosts) host.checkRate()
  }

  /** Reads until the log ends. Retries a log that did not start for as long as the allocation may still write. */
  async #follow(log: FollowedLog, isJoining: boolean): Promise<void> {
    const { allocation, nodeId } = log.record
    try {
      let mayGrow = this.#mayGrow(allocation.id)
      let result = await this.#read(log.record, log, { isJoining })
      while (result === 'retry' && mayGrow) {
        await sleep(TIMINGS.logRetryMs, undefined, { signal: log.signal, ref: false }).catch(() => undefined)
        if (log.signal.aborted) {
          if (log.lost) await this.#queue.put(nodeId, failedFrame(allocation.id, log.lost))
          return
        }
        // One more attempt after the end of the allocation reads what it wrote before.
        mayGrow = this.#mayGrow(allocation.id)
        result = await this.#read(log.record, log, { isJoining, isRetry: true })
      }
    } finally {
      this.#followed.delete(log)
      if (log.slot) this.#slots.release(log.slot)
    }
  }

  #mayGrow(allocationId: string): boolean {
    const record = this.#queries.roster.allocation(allocationId)
    return record !== undefined && !isEnded(record.allocation)
  }

  /**
   * Sends one log and the frame that ends it. A retry that fails like the first attempt sends nothing. A log that breaks after its start is
   * retried at its last cursor; without cursors it has ended.
   */
  async #read(
    { allocation: { id }, nodeId }: AllocationRecord,
    reading: LogReading,
    { isJoining = false, isRetry = false }: { readonly isJoining?: boolean; readonly isRetry?: boolean },
  ): Promise<'ended' | 'retry'> {
    let hasStarted = false
    const labeler = new FrameLabeler('AllocID', id, { keepsCursor: this.#cursors !== undefined })
    try {
      for await (const chunk of reading.read(this.#open(id, reading.signal, isJoining))) {
        hasStarted = true
        if (!isStreamHead(chunk) && !(await this.#queue.put(nodeId, labeler.label(chunk)))) return 'ended'
      }
      this.#keepCursor(id, labeler)
      if (reading.lost) throw reading.lost
      const last = labeler.isComplete ? lastFrame('log ended', id) : lastFrame('log failed', id, 'incomplete frame')
      await this.#queue.put(nodeId, last)
      return 'ended'
    } catch (error) {
      this.#keepCursor(id, labeler)
      const isContinuable = !hasStarted || (this.#input.follow && (this.#cursors?.has(id) ?? false))
      const mayRetry = !reading.lost && isContinuable && error instanceof Refusal && RETRYABLE.has(error.code)
      if (!mayRetry || !isRetry || hasStarted) await this.#queue.put(nodeId, failedFrame(id, reading.lost ?? error))
      return mayRetry ? 'retry' : 'ended'
    }
  }

  /** All frames of the labeler were queued: the log goes on behind them, also if its allocation is removed and added again. */
  #keepCursor(allocationId: string, { cursor }: FrameLabeler): void {
    if (cursor !== undefined) this.#cursors?.set(allocationId, cursor)
  }

  /** An allocation without a cursor in a resumed stream has started since, or its log could not be read. */
  #requestFor(allocationId: string, isJoining: boolean): RawInput {
    const cursor = this.#cursors && (this.#cursors.get(allocationId) ?? '')
    const start = { isJoining: isJoining || this.#isResumed, cursor }
    return requestFor(this.#input, this.#call.raw, allocationId, start)
  }

  #open(allocationId: string, signal: AbortSignal, isJoining: boolean): AsyncIterable<Chunk> {
    const { requestId, identity, token, hops, remote } = this.#call
    const raw = this.#requestFor(allocationId, isJoining)
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
    summary: 'Read or follow the logs of all allocations of a job, each frame labeled with its allocation',
    http: ['GET /v1/job/:id/logs', 'POST /v1/job/:id/logs'],
    target: 'server',
    input: schema(fields),
    output: 'stream',
    errorFormat: 'plain',
    bodyBytesMax: CURSORS_BODY_BYTES_MAX,
    endless: (input) => input.follow,
    authorize(input, identity) {
      const { namespace } = input
      if (namespace === '*') requireJob(input, identity)
      if (identity.allowsNamespace(namespace, 'read-logs') || identity.allowsNamespace(namespace, 'read-fs')) return
      throw new Refusal('permission_denied', 'Permission denied')
    },
  },
  ({ queries, region, logs }: JobLogDeps) => ({
    run(input, call) {
      requireRegion(input.region, region)
      return new JobLogStream({ queries, region, logs }, input, call).run()
    },
  }),
)
