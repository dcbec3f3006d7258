/**
 * Calls of secondaries under way, by the certificate: a peer may open as many connections as it likes, and each call costs memory.
 */
import { LinkError } from './link.ts'
import type { Method } from './messages.ts'

/** Calls of one certificate at once; a secondary needs three. */
export const CALLS_MAX = 16
/** Of these, those that send entries: each may hold a value of 64 MiB. A secondary needs two. */
export const VALUES_MAX = 4
/**
 * Calls of one certificate that end at once (`Ping`, `Fence`), counted apart: a thief of the certificate who uses up the
 * others does not keep the notice of a promotion from arriving.
 */
const SHORT_MAX = 4

export class CallCount {
  readonly #counts = new Map<string, number>()

  /** Throws a LinkError where there are as many as there may be. */
  enter(fingerprint: string, method: Method): void {
    const keys = keysOf(fingerprint, method)
    for (const [key, most] of keys) {
      if ((this.#counts.get(key) ?? 0) >= most)
        throw new LinkError('busy', `this secondary has ${most} calls under way`)
    }
    for (const [key] of keys) this.#counts.set(key, (this.#counts.get(key) ?? 0) + 1)
  }

  leave(fingerprint: string, method: Method): void {
    for (const [key] of keysOf(fingerprint, method)) {
      const left = (this.#counts.get(key) ?? 1) - 1
      if (left > 0) this.#counts.set(key, left)
      else this.#counts.delete(key)
    }
  }
}

/** What a call counts as, and how many of that there may be. */
function keysOf(fingerprint: string, method: Method): [string, number][] {
  if (method === 'Ping' || method === 'Fence') return [[`${fingerprint} short`, SHORT_MAX]]
  const all: [string, number] = [fingerprint, CALLS_MAX]
  return method === 'Values' ? [all, [`${fingerprint} values`, VALUES_MAX]] : [all]
}
