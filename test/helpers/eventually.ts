/** The only poller of the tests: tests wait for a condition and never for a time. */

/** Longer than any delay of a slow machine. */
const PATIENCE_MS = 120_000
const POLL_MS = 10
/** Polling slows down, because polls use CPU that other tests need. */
const POLL_MS_MAX = 50
const POLL_SHARE = 0.05

/**
 * Polls until `check` returns a truthy value, and fails after a long time. `what` describes the condition in the error.
 * `pollMs` is for expensive checks, such as those that start a process.
 */
export async function eventually<T>(
  check: () => T | undefined | false | Promise<T | undefined | false>,
  what: string | (() => string) = check.toString(),
  limitMs = PATIENCE_MS,
  pollMs?: number,
): Promise<T> {
  const startedMs = performance.now()
  for (;;) {
    const value = await check()
    if (value !== undefined && value !== false) return value
    const elapsedMs = performance.now() - startedMs
    if (elapsedMs > limitMs) throw new Error(`not within ${limitMs} ms: ${typeof what === 'string' ? what : what()}`)
    const waitMs = pollMs ?? Math.min(POLL_MS_MAX, Math.max(POLL_MS, elapsedMs * POLL_SHARE))
    await new Promise((resolve) => setTimeout(resolve, waitMs))
  }
}
