/**
 * Memory of keys that is Node's own (`KeyObject`, the schedules of ciphers) is overwritten when it is freed, and it is
 * freed when the garbage is collected: so at a seal that must not wait until somebody needs the room.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

let collect: (() => void) | undefined

/** Collects all garbage as soon as the work under way has let go of what it holds: some tens of milliseconds, once. */
export function freeMemory(): void {
  setImmediate(() => {
    collect ??= collector()
    collect()
  })
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
