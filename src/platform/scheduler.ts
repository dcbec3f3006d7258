/**
 * Who goes on in this turn of the event loop, and who in a later one.
 *
 * Everything that a caller can make long (a list, a search through a log, the beginning of very many requests) gives way
 * here, so that timers, heartbeats and small requests wait no longer for a hundred of them than for one. There is one
 * budget of time for each turn and for all of them together. Time is measured, not bytes or entries, because what those
 * cost depends on what is done with them; what it is measured from is the first piece of work of the turn.
 *
 * Each kind of work stands in a *line* of its own, in order; lines go on by turns. So a long list does not stand in front
 * of small requests, nor do many requests keep a list from its end.
 */

/** Of each turn. What waits in none of the lines, such as a request among few, is not counted. */
const TURN_MS = 1

interface Waiting {
  readonly resume: () => void
  /** It takes what is left of its turn. */
  readonly isWhole: boolean
}

export class Scheduler {
  readonly turnMs: number
  readonly #now: () => number
  /** Those in which somebody waits, the next one first. */
  readonly #lines: Line[] = []
  /** When the first work of this turn began. */
  #beganMs: number | undefined
  #isSet = false

  constructor(turnMs = TURN_MS, now: () => number = () => performance.now()) {
    this.turnMs = turnMs
    this.#now = now
  }

  line(): Line {
    return new Line(this)
  }

  /** Whether more may be done in this turn; the first who asks may. */
  hasTime(): boolean {
    const nowMs = this.#now()
    if (this.#beganMs !== undefined) return nowMs - this.#beganMs < this.turnMs
    this.#beganMs = nowMs
    this.#set()
    return true
  }

  /** To be called when somebody waits in a line where nobody did. */
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
    // Behind what that one does first, so that its time counts.
    queueMicrotask(() => this.#resumeNext())
  }
}

/** One kind of work, in order. */
export class Line {
  readonly #scheduler: Scheduler
  readonly #waiting: Waiting[] = []

  constructor(scheduler: Scheduler) {
    this.#scheduler = scheduler
  }

  get hasWaiting(): boolean {
    return this.#waiting.length > 0
  }

  /** Whether a piece of such work may be done now: nobody waits in the line, and the turn has time. */
  isFree(): boolean {
    return this.#waiting.length === 0 && this.#scheduler.hasTime()
  }

  /** Undefined: go on. Otherwise resolves when it is this one's turn. */
  enter(): Promise<void> | undefined {
    if (this.isFree()) return undefined
    return new Promise((resolve) => this.wait(resolve))
  }

  /** Resolves in a later turn, when it is this one's. `isWhole`: no other waiting work goes on in that turn. */
  later(isWhole = false): Promise<void> {
    return new Promise((resolve) => this.wait(resolve, isWhole))
  }

  /** Calls back in a later turn. `resume` must not throw. */
  wait(resume: () => void, isWhole = false): void {
    this.#waiting.push({ resume, isWhole })
    if (this.#waiting.length === 1) this.#scheduler.join(this)
  }

  /** The one whose turn it is. */
  take(): Waiting | undefined {
    return this.#waiting.shift()
  }
}

/** Of this process: there is one event loop. */
export const scheduler: Scheduler = new Scheduler()
const others = scheduler.line()

/**
 * For a loop that may be long, between two of its pieces. Undefined: go on. Otherwise resolves in a later turn; what was
 * read before may be of an earlier state then.
 */
export function giveWay(): Promise<void> | undefined {
  return others.enter()
}

/** Resolves in a later turn: for what must let others come in, whatever time is left. */
export function nextTurn(): Promise<void> {
  return others.later()
}
