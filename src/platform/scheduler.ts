/**
 * Cooperative scheduler: shares each iteration of the event loop fairly.
 *
 * Work that a client can make long (a list, a search in a log, the start of many requests) yields here, so that timers,
 * heartbeats and small requests wait for one piece of such work only. All of it shares one time budget for each iteration. The
 * budget is time and not bytes or entries, whose cost depends on what is done with them. It starts with the first piece of
 * work of the iteration.
 *
 * Each kind of work has a FIFO queue of its own, and the queues are served round-robin. So a long list does not delay small requests,
 * and many requests do not delay the end of a list.
 */

/** Budget of an iteration. Work that waits in no queue, such as one of few requests, does not count. */
const TURN_MS = 1

interface QueuedWork {
  readonly resume: () => void
  /** Takes the rest of its iteration. */
  readonly isWhole: boolean
}

export class Scheduler {
  readonly turnMs: number
  readonly #now: () => number
  /** Queues with work, the next one first. */
  readonly #queues: SchedulerQueue[] = []
  /** When the first work of this iteration started. */
  #startedMs: number | undefined
  #isScheduled = false

  constructor(turnMs = TURN_MS, now: () => number = () => performance.now()) {
    this.turnMs = turnMs
    this.#now = now
  }

  queue(): SchedulerQueue {
    return new SchedulerQueue(this)
  }

  /** True if this iteration has time left; always true for its first caller. */
  hasTime(): boolean {
    const nowMs = this.#now()
    if (this.#startedMs !== undefined) return nowMs - this.#startedMs < this.turnMs
    this.#startedMs = nowMs
    this.#schedule()
    return true
  }

  /** Called when a queue receives its first work. */
  join(queue: SchedulerQueue): void {
    this.#queues.push(queue)
    this.#schedule()
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(() => {
      this.#isScheduled = false
      this.#startedMs = undefined
      if (this.#queues.length > 0) this.#schedule()
      this.#resumeNext()
    })
  }

  #resumeNext(): void {
    if (this.#queues.length === 0 || !this.hasTime()) return
    const queue = this.#queues.shift()
    const next = queue?.take()
    if (!queue || !next) return
    if (queue.hasWork) this.#queues.push(queue)
    if (next.isWhole) this.#startedMs = Number.NEGATIVE_INFINITY
    next.resume()
    // After the first synchronous part of that work, so that its time counts.
    queueMicrotask(() => this.#resumeNext())
  }
}

/** One kind of work, in FIFO order. */
export class SchedulerQueue {
  readonly #scheduler: Scheduler
  readonly #work: QueuedWork[] = []

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler
  }

  get hasWork(): boolean {
    return this.#work.length > 0
  }

  /** True if a piece of this work may run now: the queue is empty and the iteration has time left. */
  isFree(): boolean {
    return this.#work.length === 0 && this.#scheduler.hasTime()
  }

  /** Undefined: continue. Otherwise resolves when this work may continue. */
  enter(): Promise<void> | undefined {
    if (this.isFree()) return undefined
    return new Promise((resolve) => this.wait(resolve))
  }

  /** Resolves in a later iteration. `isWhole`: no other queued work continues in that iteration. */
  later(isWhole = false): Promise<void> {
    return new Promise((resolve) => this.wait(resolve, isWhole))
  }

  /** Calls back in a later iteration. `resume` must not throw. */
  wait(resume: () => void, isWhole = false): void {
    this.#work.push({ resume, isWhole })
    if (this.#work.length === 1) this.#scheduler.join(this)
  }

  /** Removes and returns the oldest work. */
  take(): QueuedWork | undefined {
    return this.#work.shift()
  }
}

/** The scheduler of this process, which has one event loop. */
export const scheduler: Scheduler = new Scheduler()
const defaultQueue = scheduler.queue()

/**
 * Called by a long loop between two pieces. Undefined: continue. Otherwise resolves in a later iteration; what was read before may
 * be outdated then.
 */
export function yieldIfDue(): Promise<void> | undefined {
  return defaultQueue.enter()
}

/** Resolves in a later iteration, also if this one has time left. */
export function nextTurn(): Promise<void> {
  return defaultQueue.later()
}
