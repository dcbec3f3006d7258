/**
 * Matches the patterns of all line filters on worker threads (`platform/worker-pool.ts`).
 *
 * Patterns are untrusted, and the engine may take half a second of CPU for one long line without a point to yield, so no
 * pattern is matched on the main thread (docs/decisions/008). Lines are copied into slots of shared memory, two per worker:
 * one is filled while the worker reads the other. Only positions are sent back.
 *
 * The blocks of a job are matched in batches. A job has one queued batch at a time, and its next batch is queued after those of
 * all other jobs, so a slow pattern delays fast ones by one batch at most. The size of a batch depends on the duration of the
 * previous one. Blocks that are not in a slot stay with the caller, so memory does not grow with the number of jobs. The death
 * of a worker rejects the jobs of its batches with a Fault.
 */
import { Fault } from '../../../platform/errors.ts'
import { type WorkerThread, WorkerPool, WorkerTaskError } from '../../../platform/worker-pool.ts'
import { NEWLINE } from './line-assembly.ts'
import type { MatchRequest, MatchResponse } from './line-matcher-worker.ts'

const WORKERS_MAX = 2
const BATCHES_PER_WORKER = 2
const SLOT_BYTES = 256 * 1024
const IDLE_TIMEOUT_MS = 60_000
/** Above the seconds that a batch of a slow pattern takes on a busy machine. */
const TASK_TIMEOUT_MS = 120_000
/** Target duration of a batch. */
const BATCH_TARGET_MS = 20
const BATCH_BYTES_MIN = 4096
/** Of the first batch of a pattern: small, because it also compiles the pattern. */
const FIRST_BATCH_BYTES = 64 * 1024
/** Includes the state tables of the cached patterns. */
const HEAP_MAX_MIB = 128

/** The matching ranges of each block; undefined if the matcher was closed. */
export type BlockMatches = readonly Uint32Array[] | undefined

/** A block, or the part of a block that begins at `offset`. */
interface BlockPart {
  readonly bytes: Buffer
  readonly block: number
  readonly offset: number
}

interface MatchJob {
  readonly matcher: LineMatcher
  /** In order. The next part is split at a line end if it is larger than a batch. */
  readonly parts: BlockPart[]
  /** By part. */
  readonly found: Uint32Array[]
  /** Index of the first part that is not in a batch. */
  next: number
  runningBatches: number
  /** Aborted when the job is settled: removes its batch from the queue. */
  readonly settled: AbortController
  readonly resolve: (found: BlockMatches) => void
  readonly reject: (error: unknown) => void
}

/** Parts of a job that were copied into a slot. */
interface MatchBatch {
  /** Index of the first part. */
  readonly first: number
  readonly bytes: number
  readonly slot: SharedArrayBuffer
  readonly lengths: readonly number[]
}

/** Splits the next part at a line end if it is larger than a batch; a line is never split. */
function splitNextPart(job: MatchJob): void {
  const part = job.parts[job.next]
  if (!part || part.bytes.length <= job.matcher.batchBytes) return
  const { bytes, block, offset } = part
  const before = bytes.lastIndexOf(NEWLINE, job.matcher.batchBytes - 1)
  const to = (before < 0 ? bytes.indexOf(NEWLINE, job.matcher.batchBytes) : before) + 1
  if (to === 0 || to === bytes.length) return
  const rest = { bytes: bytes.subarray(to), block, offset: offset + to }
  job.parts.splice(job.next, 1, { bytes: bytes.subarray(0, to), block, offset }, rest)
}

/** Joins the matches of the parts to positions in their blocks. */
function foundInBlocks({ parts, found }: MatchJob): Uint32Array[] {
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
  // A range that continues after the split is one range.
  const same = before.length > 0 && before.at(-1) === after.at(0) ? 1 : 0
  const both = new Uint32Array(before.length + after.length - 2 * same)
  both.set(before.subarray(0, before.length - same))
  both.set(after.subarray(same), before.length - same)
  return both
}

export class LineMatchers {
  readonly #pool: WorkerPool<MatchRequest, MatchResponse>
  /** At most one per running batch, allocated on first use. */
  readonly #freeSlots: SharedArrayBuffer[] = []

  constructor(options: { idleTimeoutMs?: number; startWorker?: () => WorkerThread } = {}) {
    const { idleTimeoutMs = IDLE_TIMEOUT_MS, startWorker } = options
    this.#pool = new WorkerPool({
      name: 'pattern matching',
      threadName: 'outpost-match',
      url: new URL('./line-matcher-worker.ts', import.meta.url),
      workersMax: WORKERS_MAX,
      tasksPerWorkerMax: BATCHES_PER_WORKER,
      // Bounded by the number of jobs: each has one queued batch.
      queueMax: Number.POSITIVE_INFINITY,
      taskTimeoutMs: TASK_TIMEOUT_MS,
      idleTimeoutMs,
      heapMaxMib: HEAP_MAX_MIB,
      ...(startWorker ? { startWorker } : {}),
    })
  }

  /** `running` and `queued` count batches. */
  get counts(): WorkerPool<MatchRequest, MatchResponse>['counts'] {
    return this.#pool.counts
  }

  submit(job: MatchJob): void {
    void this.#runBatch(job)
  }

  async #runBatch(job: MatchJob): Promise<void> {
    let batch: MatchBatch | undefined
    const prepare = () => {
      batch = this.#fill(job)
      if (job.next < job.parts.length) this.submit(job)
      return { request: { slot: batch.slot, text: job.matcher.text, lengths: batch.lengths } }
    }
    try {
      const { found, tookMs } = await this.#pool.run({ prepare, signal: job.settled.signal })
      if (batch) job.matcher.adjustBatchBytes(batch.bytes, tookMs)
      settleBatch(job, batch?.first ?? 0, found)
    } catch (error) {
      rejectJob(job, error)
    } finally {
      if (batch) this.#freeSlots.push(batch.slot)
    }
  }

  /** Copies the next parts of a job, up to the batch size, into a slot. */
  #fill(job: MatchJob): MatchBatch {
    const slot = this.#freeSlots.pop() ?? new SharedArrayBuffer(SLOT_BYTES)
    const buffer = Buffer.from(slot)
    const first = job.next
    const lengths: number[] = []
    let bytes = 0
    for (;;) {
      if (bytes === 0) splitNextPart(job)
      const part = job.parts[job.next]
      if (!part || (bytes > 0 && bytes + part.bytes.length > job.matcher.batchBytes)) break
      bytes += part.bytes.copy(buffer, bytes)
      lengths.push(part.bytes.length)
      job.next++
    }
    job.runningBatches++
    return { first, bytes, slot, lengths }
  }
}

function settleBatch(job: MatchJob, first: number, found: readonly Uint32Array[]): void {
  job.runningBatches--
  for (const [index, ranges] of found.entries()) job.found[first + index] = ranges
  if (job.settled.signal.aborted || job.runningBatches > 0 || job.next < job.parts.length) return
  job.settled.abort()
  job.resolve(foundInBlocks(job))
}

function rejectJob(job: MatchJob, error: unknown): void {
  if (job.settled.signal.aborted) return
  job.settled.abort()
  job.reject(error instanceof WorkerTaskError ? new Fault(error.message) : error)
}

const shared = new LineMatchers()

/** The matcher of one filter, with one job at a time. */
export class LineMatcher {
  readonly text: string
  batchBytes = FIRST_BATCH_BYTES
  readonly #matchers: LineMatchers
  #job: MatchJob | undefined

  constructor(text: string, matchers: LineMatchers = shared) {
    this.text = text
    this.#matchers = matchers
  }

  /**
   * The matching ranges of each block: begin, end, begin, end. Blocks are whole lines, at most 64 KiB, and must not change
   * until the promise is settled. Rejects with a Fault if a worker died.
   */
  match(blocks: readonly Buffer[]): Promise<BlockMatches> {
    return new Promise((resolve, reject) => {
      const parts = blocks.map((bytes, block) => ({ bytes, block, offset: 0 }))
      const settled = new AbortController()
      this.#job = { matcher: this, parts, found: [], next: 0, runningBatches: 0, settled, resolve, reject }
      this.#matchers.submit(this.#job)
    })
  }

  /** Sets the size of the next batch from the duration of the last one. */
  adjustBatchBytes(bytes: number, tookMs: number): void {
    const fitting = tookMs <= 0 ? SLOT_BYTES : (bytes * BATCH_TARGET_MS) / tookMs
    const bytesMost = Math.min(SLOT_BYTES, 4 * this.batchBytes)
    this.batchBytes = Math.max(BATCH_BYTES_MIN, Math.min(Math.floor(fitting), bytesMost))
  }

  /** Cancels the job: its queued batch is removed, results of running batches are ignored, its promise resolves to undefined. */
  close(): void {
    const job = this.#job
    this.#job = undefined
    if (!job || job.settled.signal.aborted) return
    job.settled.abort()
    job.resolve(undefined)
  }
}
