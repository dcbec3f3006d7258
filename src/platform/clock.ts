/**
 * Clock, replaceable in tests. Wall time is for timestamps; it may step backward. Timeouts and measurements use
 * monotonic time.
 */
export interface Clock {
  /** Wall time in milliseconds since the Unix epoch. */
  nowMs(): number
  /** Monotonic time in milliseconds, with an arbitrary origin. */
  monotonicMs(): number
}

export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
}

/** Waits `ms`, or until `signal` aborts; resolves either way. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve()
    const onAbort = () => {
      clearTimeout(timer)
      resolve()
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort)
      resolve()
    }, ms)
    signal?.addEventListener('abort', onAbort, { once: true })
  })
}

/** Interval of the detector's timer. */
const TICK_MS = 500

export interface PauseDetectorOptions {
  /** Time without a tick that counts as a pause. Shorter ones occur on a busy machine. */
  readonly pauseMs?: number
  /** Time for the messages that waited. */
  readonly catchUpMs?: number
}

/**
 * Detects that this process did not run for a time: it was stopped, swapped out, or its machine was paused. After that, messages which
 * have waited in its sockets arrive late, so the time since they were sent means nothing.
 */
export class PauseDetector {
  readonly #pauseMs: number
  readonly #catchUpMs: number
  #tickedAtMs = performance.now()
  #resumedAtMs = Number.NEGATIVE_INFINITY
  #pausedMs = 0

  constructor({ pauseMs = 5000, catchUpMs = 2000 }: PauseDetectorOptions = {}) {
    this.#pauseMs = pauseMs
    this.#catchUpMs = catchUpMs
    setInterval(() => this.#look(), Math.min(TICK_MS, pauseMs / 4)).unref()
  }

  /** True from the end of a pause until waiting messages have been read. Whether a timer or a socket is served first does not matter. */
  get isCatchingUp(): boolean {
    return this.#look() - this.#resumedAtMs < this.#catchUpMs
  }

  /** The cause of what this process has missed, for operators; undefined unless it is catching up. */
  get pauseText(): string | undefined {
    if (!this.isCatchingUp) return undefined
    return `this process was stopped for ${Math.round(this.#pausedMs / 1000)} s (frozen, or its machine was paused)`
  }

  #look(): number {
    const nowMs = performance.now()
    const sinceMs = nowMs - this.#tickedAtMs
    if (sinceMs > this.#pauseMs) [this.#resumedAtMs, this.#pausedMs] = [nowMs, sinceMs]
    this.#tickedAtMs = nowMs
    return nowMs
  }
}

let ofProcess: PauseDetector | undefined

/** One detector for the process, started with the first call. */
export function pauseDetector(): PauseDetector {
  ofProcess ??= new PauseDetector()
  return ofProcess
}
