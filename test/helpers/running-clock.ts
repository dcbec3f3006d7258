/**
 * A clock that stands still while this process does not run, because the machine is busy. What a recording or a rate says in
 * seconds is waited for and judged by it where server and client are this process: on a quiet machine it is the clock.
 */
const TICK_MS = 20
/** Timers are late by so much without any load. */
const LATE_MS = 5

let heldUp = 0
let tickedAtMs = performance.now()

setInterval(() => {
  const nowMs = performance.now()
  const lateMs = nowMs - tickedAtMs - TICK_MS
  if (lateMs > LATE_MS) heldUp += lateMs
  tickedAtMs = nowMs
}, TICK_MS).unref()

/** For how long this process was held up since it began, in milliseconds. */
export function heldUpMs(): number {
  return heldUp
}

/** Milliseconds since this process began in which it ran. */
export function runningMs(): number {
  return performance.now() - heldUp
}

/** Resolves when `runningMs` has come to `atMs`. */
export async function runningUntil(atMs: number): Promise<void> {
  for (let leftMs = atMs - runningMs(); leftMs > 0; leftMs = atMs - runningMs()) {
    await new Promise((resolve) => setTimeout(resolve, leftMs))
  }
}
