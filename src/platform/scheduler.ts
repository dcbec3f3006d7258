/**
 * Cooperative scheduling on the event loop.
 *
 * Work that one caller can make long (a list, a log search, the start of very many requests) yields here between its pieces, so
 * that timers, heartbeats and small requests do not wait longer for a hundred such callers than for one. All of it shares one
 * time budget per turn of the event loop. The budget is time and not bytes or entries, because what those cost depends on
 * what is done with them. It starts with the first piece of work of the turn.
 *
 * Each kind of work waits in its own FIFO queue (`Line`), and the queues are served round-robin: a long list does not delay
 * small requests, and many requests do not starve a list.
 *
 * `runSliced` runs a generator in slices. The generator yields the cost of what it has just done, in units of about a microsecond
 * (one bare name), wherever others may run, and receives whether they did. If so, a later read may see a later state: the
 * generator must not use an iterator or a list that it has read in part. It must not write, because no read of it is one step with a
 * write. The first `FIRST_SLICE_UNITS` run at once: a small result is of one state and costs no promise. After that one slice of all
 * waiting generators runs in each turn, in order, so many of them together take no more time than one.
 */
import { Refusal } from './errors.ts'

/** Budget of each turn. Work that does not wait in a queue, such as one of few requests, is not counted. */
const TURN_MS = 1

interface QueuedWork {
  readonly resume: () => void
  /** Takes the rest of its turn. */
  readonly isWhole: boolean
}

export class Scheduler {
  readonly turnMs: number
  readonly #now: () => number
  /** Queues that are not empty, the next one to serve first. */
  readonly #lines: Line[] = []
  /** Start of the first work of this turn. */
  #beganMs: number | undefined
  #isSet = false

  constructor(turnMs = TURN_MS, now: () => number = () => performance.now()) {
    this.turnMs = turnMs
    this.#now = now
  }

  line(): Line {
    return new Line(this)
  }

  /** Whether the turn has time left. The first call of a turn starts its budget. */
  hasTime(): boolean {
    const nowMs = this.#now()
    if (this.#beganMs !== undefined) return nowMs - this.#beganMs < this.turnMs
    this.#beganMs = nowMs
    this.#set()
    return true
  }

  /** Adds a queue that was empty and now has work. */
  join(line: Line): void {
    this.#lines.push(line)
    this.#set()
  }

  #set(): void {
    if (this.#isSet) return
    this.#isSet = true
    setImmediate(() => {
      this.#isSet = false
      this.#beganMs = undefined
      if (this.#lines.length > 0) this.#set()
      this.#resumeNext()
    })
  }

  #resumeNext(): void {
    if (this.#lines.length === 0 || !this.hasTime()) return
    const line = this.#lines.shift()
    const next = line?.take()
    if (!line || !next) return
    if (line.hasWaiting) this.#lines.push(line)
    if (next.isWhole) this.#beganMs = Number.NEGATIVE_INFINITY
    next.resume()
    // After the first microtasks of the resumed work, so that their time counts.
    queueMicrotask(() => this.#resumeNext())
  }
}

/** The FIFO queue of one kind of work. */
export class Line {
  readonly #scheduler: Scheduler
  readonly #waiting: QueuedWork[] = []

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler
  }

  get hasWaiting(): boolean {
    return this.#waiting.length > 0
  }

  /** Whether a piece of work may run now: the queue is empty and the turn has time left. */
  isFree(): boolean {
    return this.#waiting.length === 0 && this.#scheduler.hasTime()
  }

  /** Undefined if the work may run now. Otherwise resolves when it is served. */
  enter(): Promise<void> | undefined {
    if (this.isFree()) return undefined
    return new Promise((resolve) => this.wait(resolve))
  }

  /** Resolves in a later turn. `isWhole`: no other queued work runs in that turn. */
  later(isWhole = false): Promise<void> {
    return new Promise((resolve) => this.wait(resolve, isWhole))
  }

  /** Calls back in a later turn. `resume` must not throw. */
  wait(resume: () => void, isWhole = false): void {
    this.#waiting.push({ resume, isWhole })
    if (this.#waiting.length === 1) this.#scheduler.join(this)
  }

  /** Removes the next work. */
  take(): QueuedWork | undefined {
    return this.#waiting.shift()
  }
}

/** One for the process, which has one event loop. */
export const scheduler: Scheduler = new Scheduler()
const others = scheduler.line()

/**
 * For a loop that may be long, between two iterations. Undefined if the loop may continue now. Otherwise resolves in a later
 * turn, and what was read before may be of an earlier state.
 */
export function giveWay(): Promise<void> | undefined {
  return others.enter()
}

/** Resolves in a later turn, also if this one has time left. */
export function nextTurn(): Promise<void> {
  return others.later()
}

/** Work in slices: yields the cost of what was done, receives whether other work ran since. */
export type SlicedWork<T> = Generator<number, T, boolean>

/** Cost of reading a stored record: some ten microseconds. */
export const RECORD_COST = 4
/** Units that run at once, also if they exceed the time of the turn. */
export const FIRST_SLICE_UNITS = 256
/** Bounds a slice on machines with a coarse clock. */
const SLICE_UNITS_MAX = 4 * FIRST_SLICE_UNITS

const slices = scheduler.line()

/** Returns the result if the first slice completes the work, else a promise. Rejects with a Refusal (503) once `signal` aborts. */
export function runSliced<T>(work: SlicedWork<T>, { signal }: { readonly signal: AbortSignal }): T | Promise<T> {
  const first = runSlice(work, false)
  return first.done === true ? first.value : runRemaining(work, signal)
}

async function runRemaining<T>(work: SlicedWork<T>, signal: AbortSignal): Promise<T> {
  for (;;) {
    await slices.later(true)
    if (signal.aborted) throw new Refusal('unavailable', 'the request was cancelled')
    const next = runSlice(work, true)
    if (next.done === true) return next.value
  }
}

function runSlice<T>(work: SlicedWork<T>, isResumed: boolean): IteratorResult<number, T> {
  const endMs = performance.now() + scheduler.turnMs
  let next = work.next(isResumed)
  for (let units = 0; next.done !== true; next = work.next(false)) {
    units += next.value
    if (units < FIRST_SLICE_UNITS) continue
    if (units >= SLICE_UNITS_MAX || slices.hasWaiting || performance.now() >= endMs) return next
  }
  return next
}
