/**
 * Decides whether a one-time code is accepted: it must match a time step within the skew, its step must not be used, and its key must
 * not have too many wrong codes. All functions are synchronous, so that a handler can check a code and return the batch that marks it
 * as used in one step (docs/decisions/048).
 *
 * A code is accepted once (RFC 6238 §5.2), in any order: the latest used time steps are recorded, and no step below them is
 * accepted. The record does not depend on when a code was accepted. A clock that is set back does not make a code valid
 * again, and a clock that was wrong for a while does not lock users out.
 */
import { timingSafeEqual } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import * as v from 'valibot'
import { Refusal } from '../../platform/errors.ts'
import { codeAt, type CodeForm, stepAt } from './codes.ts'

/**
 * The step of `code` within `skew` steps of now, or undefined. All candidates are computed and compared in constant time, so
 * the response time does not depend on which one matched. If two match (one in a million), the result is always the same: the
 * current step before the previous one before the next one.
 */
export function matchCode(
  key: Uint8Array,
  form: CodeForm,
  code: string,
  timeMs: number,
  skew: 0 | 1,
): number | undefined {
  const given = Buffer.from(code)
  const now = stepAt(form, timeMs)
  let matched: number | undefined
  for (const step of skew === 0 ? [now] : [now + 1, now - 1, now]) {
    if (step < 0) continue
    const expected = Buffer.from(codeAt(key, form, step))
    if (given.length === expected.length && timingSafeEqual(given, expected)) matched = step
  }
  return matched
}

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
