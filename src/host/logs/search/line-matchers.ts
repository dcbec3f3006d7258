/**
 * Matches the patterns of all line filters on worker threads (`platform/worker-pool.ts`).
 *
 * A pattern comes from a caller, and its engine may take hundreds of milliseconds for one long line, so no pattern is matched on
 * the main thread. Lines are copied into slots of shared memory, two for each worker: one is filled while the worker reads the
 * other. Only positions are sent back.
 *
 * The blocks of a job are matched load by load. A job has one load in the queue at a time, and its next load is queued behind those
 * of all other jobs, so a slow pattern does not delay fast ones for longer than a load. The size of a load follows from the
 * time that the load before took. Blocks that are not in a slot stay with the caller: memory does not grow with the number of jobs.
 * A worker that dies rejects the jobs whose loads it had with a Fault.
 */
import { Fault } from '../../../platform/errors.ts'
import { type WorkerThread, WorkerPool, WorkerTaskError } from '../../../platform/worker-pool.ts'
import type { MatchRequest, MatchResponse } from './line-matcher-worker.ts'

const NEWLINE = 10
const WORKERS_MAX = 2
const LOADS_PER_WORKER = 2
const SLOT_BYTES = 256 * 1024
const IDLE_TIMEOUT_MS = 60_000
/** A load takes seconds where the pattern is slow and the machine is busy. */
const TASK_TIMEOUT_MS = 120_000
/** Target duration of a load. */
const LOAD_MS = 20
const LOAD_BYTES_MIN = 4096
/** For a pattern without a measured load; small, because the first load also compiles the pattern. */
const FIRST_LOAD_BYTES = 64 * 1024
/** For the state tables of the patterns that a worker caches. */
const HEAP_MAX_MIB = 128

/** The stretches that match in each block; undefined where the matcher was closed. */
export type Found = readonly Uint32Array[] | undefined

/** A block, or the part of a block that begins at `offset`. */
interface Part {
  readonly bytes: Buffer
  readonly block: number
  readonly offset: number
}

interface Job {
  readonly matcher: LineMatcher
  /** In order. A part that is longer than a load is cut at a line end once it is its turn. */
  readonly parts: Part[]
  /** By the index of the part. */
  readonly found: Uint32Array[]
  /** Index of the first part that no load has taken. */
  next: number
  runningLoads: number
  /** Aborted once the job has settled: removes its load from the queue. */
  readonly settled: AbortController
  readonly resolve: (found: Found) => void
  readonly reject: (error: unknown) => void
}

/** Parts of a job that were copied into a slot. */
interface Load {
  /** Index of the first of them. */
  readonly first: number
  readonly bytes: number
  readonly slot: SharedArrayBuffer
  readonly lengths: readonly number[]
}

/** Cuts the next part at a line end when it is more than a load; a line is never cut. */
function cutPart(job: Job): void {
  const part = job.parts[job.next]
  if (!part || part.bytes.length <= job.matcher.loadBytes) return
  const { bytes, block, offset } = part
  const before = bytes.lastIndexOf(NEWLINE, job.matcher.loadBytes - 1)
  const to = (before < 0 ? bytes.indexOf(NEWLINE, job.matcher.loadBytes) : before) + 1
  if (to === 0 || to === bytes.length) return
  const rest = { bytes: bytes.subarray(to), block, offset: offset + to }
  job.parts.splice(job.next, 1, { bytes: bytes.subarray(0, to), block, offset }, rest)
}

/** The matches of the parts, as positions in their blocks. */
function foundInBlocks({ parts, found }: Job): Uint32Array[] {
  const blocks: Uint32Array[] = []
  parts.forEach(({ block, offset }, index) => {
    const own = found[index] ?? new Uint32Array()
    const before = blocks[block]
    const shifted = offset === 0 ? own : own.map((at) => at + offset)
    blocks[block] = before ? joined(before, shifted) : shifted
  })
  return blocks
}

function joined(before: Uint32Array, after: Uint32Array): Uint32Array {
  // A stretch that goes on behind the cut is one.
  const same = before.length > 0 && before.at(-1) === after.at(0) ? 1 : 0
  const both = new Uint32Array(before.length + after.length - 2 * same)
  both.set(before.subarray(0, before.length - same))
  both.set(after.subarray(same), before.length - same)
  return both
}

/** One for the process; tests create their own. */
export class LineMatchers {
  readonly #pool: WorkerPool<MatchRequest, MatchResponse>
  /** At most one for each load that can run, allocated when first needed. */
  readonly #freeSlots: SharedArrayBuffer[] = []

  constructor(options: { idleTimeoutMs?: number; startWorker?: () => WorkerThread } = {}) {
    const { idleTimeoutMs = IDLE_TIMEOUT_MS, startWorker } = options
    this.#pool = new WorkerPool({
      name: 'pattern matching',
      url: new URL('./line-matcher-worker.ts', import.meta.url),
      workersMax: WORKERS_MAX,
      tasksPerWorkerMax: LOADS_PER_WORKER,
      // One load for each job, and callers wait for their job.
      queueMax: Number.POSITIVE_INFINITY,
      taskTimeoutMs: TASK_TIMEOUT_MS,
      idleTimeoutMs,
      heapMaxMib: HEAP_MAX_MIB,
      ...(startWorker ? { startWorker } : {}),
    })
  }

  /** `running` and `queued` count loads. */
  get counts(): WorkerPool<MatchRequest, MatchResponse>['counts'] {
    return this.#pool.counts
  }

  submit(job: Job): void {
    void this.#runLoad(job)
  }

  async #runLoad(job: Job): Promise<void> {
    let load: Load | undefined
    const prepare = () => {
      load = this.#fill(job)
      if (job.next < job.parts.length) this.submit(job)
      return { request: { slot: load.slot, text: job.matcher.text, lengths: load.lengths } }
    }
    try {
      const { found, tookMs } = await this.#pool.run({ prepare, signal: job.settled.signal })
      if (load) job.matcher.learn(load.bytes, tookMs)
      settleLoad(job, load?.first ?? 0, found)
    } catch (error) {
      fail(job, error)
    } finally {
      if (load) this.#freeSlots.push(load.slot)
    }
  }

  /** Copies the next parts of a job into a slot, as many as one load may have. */
  #fill(job: Job): Load {
    const slot = this.#freeSlots.pop() ?? new SharedArrayBuffer(SLOT_BYTES)
    const buffer = Buffer.from(slot)
    const first = job.next
    const lengths: number[] = []
    let bytes = 0
    for (;;) {
      if (bytes === 0) cutPart(job)
      const part = job.parts[job.next]
      if (!part || (bytes > 0 && bytes + part.bytes.length > job.matcher.loadBytes)) break
      bytes += part.bytes.copy(buffer, bytes)
      lengths.push(part.bytes.length)
      job.next++
    }
    job.runningLoads++
    return { first, bytes, slot, lengths }
  }
}

function settleLoad(job: Job, first: number, found: readonly Uint32Array[]): void {
  job.runningLoads--
  for (const [index, stretches] of found.entries()) job.found[first + index] = stretches
  if (job.settled.signal.aborted || job.runningLoads > 0 || job.next < job.parts.length) return
  job.settled.abort()
  job.resolve(foundInBlocks(job))
}

function fail(job: Job, error: unknown): void {
  if (job.settled.signal.aborted) return
  job.settled.abort()
  job.reject(error instanceof WorkerTaskError ? new Fault(error.message) : error)
}

const shared = new LineMatchers()

/** The matcher of one filter. Runs one job at a time. */
export class LineMatcher {
  readonly text: string
  loadBytes = FIRST_LOAD_BYTES
  readonly #matchers: LineMatchers
  #job: Job | undefined

  constructor(text: string, matchers: LineMatchers = shared) {
    this.text = text
    this.#matchers = matchers
  }

  /**
   * The stretches of lines that match in each block: begin, end, begin, end. Blocks are whole lines, none longer than
   * 64 KiB, and are not changed until the promise is settled. Rejects with a Fault where a worker died.
   */
  match(blocks: readonly Buffer[]): Promise<Found> {
    return new Promise((resolve, reject) => {
      const parts = blocks.map((bytes, block) => ({ bytes, block, offset: 0 }))
      const settled = new AbortController()
      this.#job = { matcher: this, parts, found: [], next: 0, runningLoads: 0, settled, resolve, reject }
      this.#matchers.submit(this.#job)
    })
  }

  /** Sets the size of the next load from the duration of the last one. */
  learn(bytes: number, tookMs: number): void {
    const fitting = tookMs <= 0 ? SLOT_BYTES : (bytes * LOAD_MS) / tookMs
    const bytesMost = Math.min(SLOT_BYTES, 4 * this.loadBytes)
    this.loadBytes = Math.max(LOAD_BYTES_MIN, Math.min(Math.floor(fitting), bytesMost))
  }

  /** Cancels the job: its queued load is removed, results of running loads are ignored, its promise resolves to undefined. */
  close(): void {
    const job = this.#job
    this.#job = undefined
    if (!job || job.settled.signal.aborted) return
    job.settled.abort()
    job.resolve(undefined)
  }
}
