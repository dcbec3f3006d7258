/**
 * Limits on one-time codes: each is accepted once, and wrong codes are rate-limited.
 *
 * A code is accepted once (RFC 6238 §5.2), in any order: the latest used time steps are recorded, and no step below them is
 * accepted. The record does not depend on when a code was accepted. A clock that is set back does not make a code valid
 * again, and a clock that was wrong for a while does not lock users out.
 */
import { LRUCache } from 'lru-cache'
import * as v from 'valibot'
import { Refusal } from '../../platform/errors.ts'

/** More than the steps that are valid at one time, as the system clock may be set back by some steps. */
const STEPS_MAX = 8

export interface UsedSteps {
  /** The latest time steps whose codes were accepted, ascending. */
  readonly usedSteps: readonly number[]
  /** Steps up to this one are rejected. */
  readonly floorStep: number
}

export const usedStepsSchema = v.object({ usedSteps: v.array(v.number()), floorStep: v.number() })

export const NO_STEPS: UsedSteps = { usedSteps: [], floorStep: -1 }

export function isUsed({ floorStep, usedSteps }: UsedSteps, step: number): boolean {
  return step <= floorStep || usedSteps.includes(step)
}

export function withStep<T extends UsedSteps>(kept: T, step: number): T {
  const usedSteps = [...kept.usedSteps, step].sort((a, b) => a - b)
  const dropped = usedSteps.splice(0, Math.max(0, usedSteps.length - STEPS_MAX))
  return { ...kept, usedSteps, floorStep: Math.max(kept.floorStep, ...dropped) }
}

/** More than typing errors need. With six digits, attempts at this rate succeed within a day with a probability of 1 in 20. */
const WRONG_MAX = 5
const WINDOW_MS = 30_000
const KEYS_MAX = 10_000

interface CountWindow {
  readonly endsAtMs: number
  count: number
}

/** Counts the wrong codes of each key of a mount, in memory, in windows of half a minute. */
export class WrongCodeLimit {
  readonly #windows = new LRUCache<string, CountWindow>({ max: KEYS_MAX })

  /** Throws a Refusal (429) once the key had too many in the window. */
  check(hash: string, nowMs: number): void {
    const window = this.#windows.get(hash)
    if (!window || window.endsAtMs <= nowMs || window.count < WRONG_MAX) return
    const seconds = Math.ceil((window.endsAtMs - nowMs) / 1000)
    throw new Refusal('too_many', `too many wrong codes for this key, try again in ${seconds} seconds`, {
      'Retry-After': String(seconds),
    })
  }

  count(hash: string, nowMs: number): void {
    const known = this.#windows.get(hash)
    if (known && known.endsAtMs > nowMs) known.count++
    else this.#windows.set(hash, { endsAtMs: nowMs + WINDOW_MS, count: 1 })
  }
}
