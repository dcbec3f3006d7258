/** The one poller: tests wait for what they need to see, never for a time. */

/** A slow machine is no fault of the code: nothing fails sooner than this. */
const PATIENCE_MS = 60_000
const POLL_MS = 10

/** Polls until `check` gives something; fails when it does not come at all. `what` says what did not come. */
export async function eventually<T>(
  check: () => T | undefined | false | Promise<T | undefined | false>,
  what: string | (() => string) = check.toString(),
  limitMs = PATIENCE_MS,
): Promise<T> {
  const deadlineMs = performance.now() + limitMs
  for (;;) {
    const value = await check()
    if (value !== undefined && value !== false) return value
    if (performance.now() > deadlineMs)
      throw new Error(`not within ${limitMs} ms: ${typeof what === 'string' ? what : what()}`)
    await new Promise((resolve) => setTimeout(resolve, POLL_MS))
  }
}
