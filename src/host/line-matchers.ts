/**
 * The worker threads that match patterns for all filters.
 *
 * A pattern comes from a caller, and its engine may take hundreds of milliseconds for one long line, so none is ever
 * matched on the main thread. There are at most `WORKERS_MAX` threads, started when they are needed and ended when
 * nothing was for a minute. Bytes are handed over in slots of shared memory, two for each thread, so that one is filled
 * while the other is worked on; only positions come back.
 *
 * Whoever has work waits in a line and gets one load at a time, sized by how long the load before took: a slow pattern
 * shares the threads with quick ones, and what waits is held by its caller, so memory does not grow with their number.
 * A thread that dies takes with it what it was working on: those callers get a Fault, the others a new thread.
 */
import { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../kit/errors.ts'
import type { MatchAnswer, MatcherData, MatchOrder } from './line-matcher-worker.ts'

const NEWLINE = 10
const WORKERS_MAX = 2
const SLOTS_PER_WORKER = 2
const SLOT_BYTES = 256 * 1024
const IDLE_MS = 60_000
/** What a load should take, so that others get their turn. */
const LOAD_MS = 20
const LOAD_BYTES_MIN = 4096
/** A first guess for a pattern nobody has tried; small, because the first load also compiles. */
const FIRST_LOAD_BYTES = 64 * 1024
/** The heap of a thread: room for the state tables of the patterns it keeps. */
const HEAP_MIB_MAX = 128

/** The stretches that match in each block; undefined when the asker was closed meanwhile. */
export type Found = readonly Uint32Array[] | undefined

/** A block that was asked about, or the part of one from `offset` on. */
interface Part {
  readonly bytes: Buffer
  readonly block: number
  readonly offset: number
}

interface Job {
  readonly asker: LineMatcher
  /** In order. One that is too much for a load is cut at a line end when its turn comes. */
  readonly parts: Part[]
  /** By the index of the part. */
  readonly found: Uint32Array[]
  /** Index of the first part that was not handed over. */
  next: number
  loads: number
  over: boolean
  readonly resolve: (found: Found) => void
  readonly reject: (error: Error) => void
}

interface Load {
  readonly job: Job
  readonly first: number
  readonly bytes: number
}

/** Cuts the next part at a line end when it is more than a load; a line is never cut. */
function cutPart(job: Job): void {
  const part = job.parts[job.next]
  if (!part || part.bytes.length <= job.asker.loadBytes) return
  const { bytes, block, offset } = part
  const before = bytes.lastIndexOf(NEWLINE, job.asker.loadBytes - 1)
  const to = (before < 0 ? bytes.indexOf(NEWLINE, job.asker.loadBytes) : before) + 1
  if (to === 0 || to === bytes.length) return
  const rest = { bytes: bytes.subarray(to), block, offset: offset + to }
  job.parts.splice(job.next, 1, { bytes: bytes.subarray(0, to), block, offset }, rest)
}

/** What was found in the parts, as positions in their blocks. */
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

/** Throws when the system has no thread to give. */
type StartWorker = (data: MatcherData) => Worker

function startWorker(data: MatcherData): Worker {
  return new Worker(new URL('./line-matcher-worker.ts', import.meta.url), {
    workerData: data,
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB_MAX },
  })
}

/** One thread and its slots. */
class Thread {
  readonly worker: Worker
  readonly loads: (Load | undefined)[] = Array.from({ length: SLOTS_PER_WORKER }, () => undefined)
  readonly #slots = Array.from({ length: SLOTS_PER_WORKER }, () => new SharedArrayBuffer(SLOT_BYTES))
  readonly #buffers = this.#slots.map((slot) => Buffer.from(slot))
  busy = 0
  idleTimer: NodeJS.Timeout | undefined
  ending = false
  cause = 'it ended'

  constructor(start: StartWorker) {
    this.worker = start({ slots: this.#slots })
    this.worker.unref()
  }

  /** Hands over the next parts of a job, as many as it may have at once. */
  take(job: Job): void {
    const slot = this.loads.indexOf(undefined)
    const buffer = this.#buffers[slot]
    if (!buffer) throw new Fault('a line matcher was given more than it can hold')
    const first = job.next
    const lengths: number[] = []
    let bytes = 0
    for (;;) {
      if (bytes === 0) cutPart(job)
      const part = job.parts[job.next]
      if (!part || (bytes > 0 && bytes + part.bytes.length > job.asker.loadBytes)) break
      bytes += part.bytes.copy(buffer, bytes)
      lengths.push(part.bytes.length)
      job.next++
    }
    this.loads[slot] = { job, first, bytes }
    job.loads++
    if (this.busy++ === 0) this.worker.ref()
    clearTimeout(this.idleTimer)
    const order: MatchOrder = { slot, text: job.asker.text, lengths }
    // oxlint-disable-next-line unicorn/require-post-message-target-origin -- that is for windows, this is a thread
    this.worker.postMessage(order)
  }

  /** Frees a slot; what was in it. */
  free(slot: number): Load | undefined {
    const load = this.loads[slot]
    this.loads[slot] = undefined
    if (load && --this.busy === 0) this.worker.unref()
    return load
  }
}

/** The threads and who waits for them. One for the process; tests make their own. */
export class LineMatchers {
  readonly #threads: Thread[] = []
  readonly #queue: Job[] = []
  readonly #idleMs: number
  readonly #startWorker: StartWorker

  constructor(options: { idleMs?: number; startWorker?: StartWorker } = {}) {
    this.#idleMs = options.idleMs ?? IDLE_MS
    this.#startWorker = options.startWorker ?? startWorker
  }

  /** Threads that run, jobs that wait to be handed over (further), and slots in use. */
  get counts(): { threads: number; waiting: number; slotsUsed: number } {
    const slotsUsed = this.#threads.reduce((sum, { busy }) => sum + busy, 0)
    return { threads: this.#threads.length, waiting: this.#queue.length, slotsUsed }
  }

  submit(job: Job): void {
    this.#queue.push(job)
    this.#handOver()
  }

  withdraw(job: Job): void {
    const index = this.#queue.indexOf(job)
    if (index >= 0) this.#queue.splice(index, 1)
  }

  /** Gives whoever is first in line one load, and the place behind all others when that was not all. */
  #handOver(): void {
    while (this.#queue.length > 0) {
      const thread = this.#freeThread()
      if (!thread) return
      const job = this.#queue.shift()
      if (!job) return
      thread.take(job)
      if (job.next < job.parts.length) this.#queue.push(job)
    }
  }

  #freeThread(): Thread | undefined {
    const [least] = this.#threads.toSorted((a, b) => a.busy - b.busy)
    if (least?.busy === 0) return least
    const started = this.#threads.length < WORKERS_MAX ? this.#start() : undefined
    return started ?? (least && least.busy < SLOTS_PER_WORKER ? least : undefined)
  }

  /** Undefined when there is no thread to be had; if there is no other either, nobody who waits can be served. */
  #start(): Thread | undefined {
    let thread: Thread
    try {
      thread = new Thread(this.#startWorker)
    } catch (error) {
      if (this.#threads.length > 0) return undefined
      const message = `a thread that matches patterns cannot be started: ${messageOf(error)}`
      for (const job of this.#queue.splice(0)) this.#fail(job, message)
      return undefined
    }
    thread.worker.on('message', (answer: MatchAnswer) => this.#answered(thread, answer))
    thread.worker.on('error', (error) => {
      thread.cause = error instanceof Error ? error.message : String(error)
    })
    thread.worker.on('exit', () => this.#ended(thread))
    this.#threads.push(thread)
    return thread
  }

  #answered(thread: Thread, answer: MatchAnswer): void {
    const load = thread.free(answer.slot)
    if (thread.busy === 0) this.#endWhenIdle(thread)
    if (load) {
      const { job, first, bytes } = load
      job.asker.learn(bytes, answer.tookMs)
      if (answer.failure === undefined) this.#found(job, first, answer.found)
      else this.#fail(job, `a pattern could not be matched: ${answer.failure}`)
    }
    this.#handOver()
  }

  #found(job: Job, first: number, found: readonly Uint32Array[]): void {
    job.loads--
    found.forEach((stretches, index) => {
      job.found[first + index] = stretches
    })
    if (job.over || job.loads > 0 || job.next < job.parts.length) return
    job.over = true
    job.resolve(foundInBlocks(job))
  }

  #fail(job: Job, message: string): void {
    this.withdraw(job)
    if (job.over) return
    job.over = true
    job.reject(new Fault(message))
  }

  #endWhenIdle(thread: Thread): void {
    clearTimeout(thread.idleTimer)
    thread.idleTimer = setTimeout(() => {
      this.#remove(thread)
      void thread.worker.terminate()
    }, this.#idleMs).unref()
  }

  /** The thread has ended by itself, or because its time was over. */
  #ended(thread: Thread): void {
    this.#remove(thread)
    clearTimeout(thread.idleTimer)
    for (const load of thread.loads) {
      if (load) this.#fail(load.job, `the thread that matches patterns is gone: ${thread.cause}`)
    }
    this.#handOver()
  }

  #remove(thread: Thread): void {
    const index = this.#threads.indexOf(thread)
    if (index >= 0) this.#threads.splice(index, 1)
  }
}

const shared = new LineMatchers()

/** What one filter asks of the threads. One question at a time. */
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
   * 64 KiB, and stay as they are until the promise is settled. Rejects with a Fault when the thread died.
   */
  match(blocks: readonly Buffer[]): Promise<Found> {
    return new Promise((resolve, reject) => {
      const parts = blocks.map((bytes, block) => ({ bytes, block, offset: 0 }))
      this.#job = { asker: this, parts, found: [], next: 0, loads: 0, over: false, resolve, reject }
      this.#matchers.submit(this.#job)
    })
  }

  /** The next load is as large as what would have taken its time. */
  learn(bytes: number, tookMs: number): void {
    const fitting = tookMs <= 0 ? SLOT_BYTES : (bytes * LOAD_MS) / tookMs
    const bytesMost = Math.min(SLOT_BYTES, 4 * this.loadBytes)
    this.loadBytes = Math.max(LOAD_BYTES_MIN, Math.min(Math.floor(fitting), bytesMost))
  }

  /** What waits is dropped, what is worked on is not listened to any more; the promise gives undefined. */
  close(): void {
    const job = this.#job
    this.#job = undefined
    if (!job || job.over) return
    job.over = true
    this.#matchers.withdraw(job)
    job.resolve(undefined)
  }
}
