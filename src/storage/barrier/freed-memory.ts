/**
 * Memory of keys that is Node's own (`KeyObject`, the schedules of ciphers) is overwritten when it is freed, and it is
 * freed when the garbage is collected: so at a seal that must not wait until somebody needs the room.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Work under way may hold a cipher for so long. A process that ends meanwhile gives its memory back as a whole. */
const AFTER_MS = 50

let collect: (() => void) | undefined
let pending: NodeJS.Timeout | undefined
let isAskedAgain = false

/**
 * Collects all garbage when the work under way has let go of what it holds: this holds the process up for some tens of
 * milliseconds. Seals that follow each other share a timer, and one more for those that came while it was pending.
 */
export function freeMemory(): void {
  if (pending) isAskedAgain = true
  else pending = setTimeout(collectNow, AFTER_MS).unref()
}

function collectNow(): void {
  pending = undefined
  collect ??= collector()
  collect()
  if (!isAskedAgain) return
  isAskedAgain = false
  freeMemory()
}

function collector(): () => void {
  // Node gives the function to contexts that are made while the flag is set.
  setFlagsFromString('--expose-gc')
  const found: unknown = runInNewContext('gc')
  setFlagsFromString('--no-expose-gc')
  return () => {
    if (typeof found === 'function') found()
  }
}
