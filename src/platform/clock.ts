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
