/** The one poller: tests wait for what they need to see, never for a time. */

/** A slow machine is no fault of the code: nothing fails sooner than this. */
const PATIENCE_MS = 120_000
const POLL_MS = 10
/** What has not come for long is looked for less often: looks cost CPU, which other tests wait for. */
const POLL_MS_MAX = 50
const POLL_SHARE = 0.05

/**
 * Polls until `check` gives something; fails when it does not come at all. `what` says what did not come. `pollMs` is for a
 * look that is expensive, as one that starts a process.
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
