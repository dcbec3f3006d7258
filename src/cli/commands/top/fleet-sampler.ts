/**
 * Samples the resource usage of nodes or tasks of a fleet for `outpost top`.
 *
 * Each round sends a bounded number of requests with bounded concurrency, and replaces the oldest samples first. So a fleet of a
 * thousand nodes costs the server no more per second than one of a few hundred, and each row is at most a few rounds old. The
 * list itself is requested less often than samples.
 */
import type { AgentTarget } from '../../client/agent-target.ts'
import {
  AgentRefusal,
  equals,
  filterOf,
  listRecords,
  openResponse,
  parseJson,
  refusalOf,
  responseText,
} from '../../client/http-client.ts'
import { CommandError } from '../../framework/define-command.ts'
import { type JsonFields, fieldsOf } from '../../output/json.ts'

/** Limit for the requests for samples in a round. */
export const ROUND_CALLS_MAX = 250
/** Concurrent requests; each has its own connection. */
const CONCURRENT_CALLS = 16
/** A node that does not respond must not delay the round. */
const CALL_TIMEOUT_MS = 5000
const LIST_INTERVAL_MS = 10_000

export type FleetKind = 'nodes' | 'tasks'

export interface SampledRow {
  /** Of the node, or of the allocation and task. */
  readonly id: string
  /** Name of the node. */
  readonly node: string
  readonly job: string
  readonly task: string
  /** `ready`, `down`, `running`; or the reason why there is no sample. */
  readonly status: string
  /** Undefined without a sample, like all below. Of all processors for a node, of one for a task. */
  readonly cpuPercent?: number
  readonly memoryBytes?: number
  /** Of a node. */
  readonly memoryTotalBytes?: number
  /** Of the file system of the allocations. */
  readonly diskBytes?: number
  readonly diskTotalBytes?: number
  readonly processes?: number
}

export interface FleetFilters {
  readonly kind: FleetKind
  /** Full ID. */
  readonly nodeId: string | undefined
  readonly job: string | undefined
  readonly namespace: string
}

/** A node or an allocation: one request samples it. */
interface SampleSource {
  readonly id: string
  readonly path: string
  readonly query: Readonly<Record<string, string>>
  /** False for a node that is down. */
  readonly isReachable: boolean
  /** The rows of a sample; without one, rows with the failure as their status. */
  rows(sample: JsonFields | undefined, failure: string): SampledRow[]
}

interface Sample {
  readonly rows: readonly SampledRow[]
  readonly atMs: number
}

export class FleetSampler {
  readonly #target: AgentTarget
  readonly #filters: FleetFilters
  #sources: readonly SampleSource[] = []
  #listedAtMs = Number.NEGATIVE_INFINITY
  readonly #samples = new Map<string, Sample>()
  /** Requests for samples so far. */
  calls = 0

  constructor(target: AgentTarget, filters: FleetFilters) {
    this.#target = target
    this.#filters = filters
  }

  /**
   * Lists and samples. At most `callsMax` requests for samples are sent. Throws CommandError if the list cannot be read, if the server
   * answers no request, or if the token permits no sample at all.
   */
  async round(signal: AbortSignal, callsMax = ROUND_CALLS_MAX): Promise<void> {
    if (performance.now() - this.#listedAtMs >= LIST_INTERVAL_MS) await this.#list(signal)
    const ageOf = ({ id }: SampleSource) => this.#samples.get(id)?.atMs ?? Number.NEGATIVE_INFINITY
    const due = this.#sources
      .filter(({ isReachable }) => isReachable)
      .toSorted((a, b) => ageOf(a) - ageOf(b))
      .slice(0, callsMax)
    let fault: CommandError | undefined
    let answeredCount = 0
    const queue = due.values()
    const worker = async () => {
      for (const source of queue) {
        if (signal.aborted) return
        const error = await this.#sample(source, signal)
        // With a refusal for one node, the server itself has responded.
        if (error && !(error instanceof AgentRefusal && error.status !== 403)) fault = error
        else answeredCount++
      }
    }
    await Promise.all(Array.from({ length: CONCURRENT_CALLS }, worker))
    if (fault && answeredCount === 0) throw fault
  }

  /** The current rows, also of sources without a sample. */
  rows(): SampledRow[] {
    return this.#sources.flatMap((source) => this.#samples.get(source.id)?.rows ?? source.rows(undefined, ''))
  }

  /** Number of nodes or allocations with a sample and of those that can be sampled, and the age of the oldest sample. */
  coverage(): { readonly sampled: number; readonly reachable: number; readonly oldestMs: number } {
    const reachable = this.#sources.filter(({ isReachable }) => isReachable)
    const times = reachable.flatMap(({ id }) => this.#samples.get(id)?.atMs ?? [])
    const oldestMs = times.length === 0 ? 0 : performance.now() - Math.min(...times)
    return { sampled: times.length, reachable: reachable.length, oldestMs }
  }

  async #list(signal: AbortSignal): Promise<void> {
    this.#sources = this.#filters.kind === 'nodes' ? await this.#nodes(signal) : await this.#allocations(signal)
    this.#listedAtMs = performance.now()
    const known = new Set(this.#sources.map(({ id }) => id))
    for (const id of this.#samples.keys()) if (!known.has(id)) this.#samples.delete(id)
  }

  async #nodes(signal: AbortSignal): Promise<SampleSource[]> {
    const { nodeId } = this.#filters
    const records = await listRecords(
      this.#target,
      '/v1/nodes',
      { filter: filterOf([equals('ID', nodeId)]) },
      { signal },
    )
    return records.map((record) => nodeSource(fieldsOf(record)))
  }

  async #allocations(signal: AbortSignal): Promise<SampleSource[]> {
    const { job, namespace, nodeId } = this.#filters
    const filter = filterOf([equals('ClientStatus', 'running'), equals('NodeID', nodeId), equals('JobID', job)])
    const records = await listRecords(this.#target, '/v1/allocations', { namespace, filter }, { signal })
    return records.map((record) => allocationSource(fieldsOf(record)))
  }

  /** Resolves to the error of the request, if any. */
  async #sample(source: SampleSource, signal: AbortSignal): Promise<CommandError | undefined> {
    this.calls++
    try {
      const sample = await this.#request(source, signal)
      this.#samples.set(source.id, { rows: source.rows(sample, ''), atMs: performance.now() })
      return undefined
    } catch (error) {
      if (!(error instanceof CommandError)) throw error
      if (signal.aborted) return undefined
      const isDenied = error instanceof AgentRefusal && error.status === 403
      const rows = source.rows(undefined, isDenied ? 'not permitted' : 'no response')
      this.#samples.set(source.id, { rows, atMs: performance.now() })
      return error
    }
  }

  /** Not `requestJson`, which sends more requests to name a node that cannot be reached. */
  async #request({ path, query }: SampleSource, signal: AbortSignal): Promise<JsonFields> {
    const limited = AbortSignal.any([signal, AbortSignal.timeout(CALL_TIMEOUT_MS)])
    const response = await openResponse(this.#target, { path, query, signal: limited })
    const text = await responseText(response, this.#target)
    if (response.statusCode !== 200) throw refusalOf(response, text, this.#target)
    return fieldsOf(parseJson(text))
  }
}

function nodeSource(node: JsonFields): SampleSource {
  const [id, status] = [node.text('ID'), node.text('Status')]
  const head = { id, node: node.text('Name') || id, job: '', task: '' }
  return {
    id,
    path: '/v1/client/stats',
    query: { node_id: id },
    isReachable: status === 'ready',
    rows(sample, failure) {
      if (!sample) return [{ ...head, status: failure || status }]
      const cores = sample.list('CPU')
      const totalPercent = cores.reduce((sum, core) => sum + core.number('TotalPercent'), 0)
      const [memory, disk] = [sample.under('Memory'), sample.under('AllocDirStats')]
      return [
        {
          ...head,
          status,
          cpuPercent: totalPercent / Math.max(cores.length, 1),
          memoryBytes: memory.number('Used'),
          memoryTotalBytes: memory.number('Total'),
          diskBytes: disk.number('Used'),
          diskTotalBytes: disk.number('Size'),
        },
      ]
    },
  }
}

function allocationSource(allocation: JsonFields): SampleSource {
  const id = allocation.text('ID')
  const node = allocation.text('NodeName') || allocation.text('NodeID')
  const head = { id, node, job: allocation.text('JobID') }
  const names = allocation.names('TaskStates').sort()
  return {
    id,
    path: `/v1/client/allocation/${id}/stats`,
    query: {},
    isReachable: true,
    rows(sample, failure) {
      if (!sample) return names.map((task) => ({ ...head, task, status: failure || 'running' }))
      const tasks = sample.under('Tasks')
      const sampled = new Set(sample.names('Tasks'))
      return [...new Set([...names, ...sampled])].sort().map((task) => {
        // A task without processes, for example before it has started.
        if (!sampled.has(task)) return { ...head, task, status: 'running' }
        const usage = tasks.under(task).under('ResourceUsage')
        return {
          ...head,
          task,
          status: 'running',
          cpuPercent: usage.under('CpuStats').number('Percent'),
          memoryBytes: usage.under('MemoryStats').number('RSS'),
          processes: tasks.under(task).names('Pids').length,
        }
      })
    },
  }
}
