/**
 * A clock that stops while this process is not scheduled because the machine is busy. Tests whose server and client are
 * both in this process use it for recorded times and rates. On an idle machine it equals the real clock.
 */
const TICK_MS = 20
/** Normal delay of timers without load. */
const LATE_MS = 5

let heldUp = 0
let tickedAtMs = performance.now()

setInterval(() => {
  const nowMs = performance.now()
  const lateMs = nowMs - tickedAtMs - TICK_MS
  if (lateMs > LATE_MS) heldUp += lateMs
  tickedAtMs = nowMs
}, TICK_MS).unref()

/** Total time for which this process was not scheduled, in milliseconds. */
export function heldUpMs(): number {
  return heldUp
}

/** Milliseconds since the start of the process for which it was scheduled. */
export function runningMs(): number {
  return performance.now() - heldUp
}

/** Resolves when `runningMs` has reached `atMs`. */
export async function runningUntil(atMs: number): Promise<void> {
  for (let leftMs = atMs - runningMs(); leftMs > 0; leftMs = atMs - runningMs()) {
    await new Promise((resolve) => setTimeout(resolve, leftMs))
  }
}
