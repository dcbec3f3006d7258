/**
 * OpenSSL overwrites the memory of keys (`KeyObject`, key schedules of ciphers) when it is freed, which happens when the garbage is
 * collected. After a seal, a collection is forced instead of waiting for memory pressure.
 */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

/** Delay until running operations have released their ciphers. */
const DELAY_MS = 50

let collect: (() => void) | undefined
let pending: NodeJS.Timeout | undefined
let isRequestedAgain = false

/**
 * Schedules a full garbage collection, which blocks the process for some tens of milliseconds. Calls while one is scheduled share one
 * further collection.
 */
export function scheduleGc(): void {
  if (pending) isRequestedAgain = true
  else pending = setTimeout(collectNow, DELAY_MS).unref()
}

function collectNow(): void {
  pending = undefined
  collect ??= collector()
  collect()
  if (!isRequestedAgain) return
  isRequestedAgain = false
  scheduleGc()
}

function collector(): () => void {
  // Node adds the function `gc` to contexts that are created while the flag is set.
  setFlagsFromString('--expose-gc')
  const found: unknown = runInNewContext('gc')
  setFlagsFromString('--no-expose-gc')
  return () => {
    if (typeof found === 'function') found()
  }
}
