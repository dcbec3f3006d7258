/**
 * Time, so that a test can hold it still. Wall time is for what people read and for files' times; it may step
 * backwards. Everything that measures or waits uses monotonic time.
 */
export interface Clock {
  /** Wall time in milliseconds since the Unix epoch. */
  nowMs(): number
  /** Milliseconds that only ever grow; the origin means nothing. */
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
