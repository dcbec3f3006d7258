/**
 * Decides whether a one-time code is accepted: it must match a time step within the skew, and its step must not be used. Both the TOTP
 * engine and MFA methods call `checkCode`; they limit wrong codes themselves (`wrong-code-limit.ts`, `secrets/mfa/mfa-secret.ts`). All
 * functions are synchronous, so that a handler can check a code and return the batch that marks it as used in one step
 * (docs/decisions/048).
 *
 * A code is accepted once (RFC 6238 §5.2), in any order: the latest used time steps are recorded, and no step below them is
 * accepted. The record does not depend on when a code was accepted. A clock that is set back does not make a code valid
 * again, and a clock that was wrong for a while does not lock users out.
 */
import { timingSafeEqual } from 'node:crypto'
import * as v from 'valibot'
import { codeAt, type CodeForm, stepAt } from './codes.ts'

/** Periods before and after the current one whose codes are accepted. */
export type CodeSkew = 0 | 1

export const SKEW_DEFAULT: CodeSkew = 1

export interface CodeKey {
  readonly key: Uint8Array
  readonly form: CodeForm
  readonly skew: CodeSkew
}

/** `after`: the used steps with this one, to store before the code counts as accepted. */
export type CodeDecision<T extends UsedSteps> =
  | { readonly kind: 'accepted'; readonly after: T }
  | { readonly kind: 'wrong' }
  | { readonly kind: 'used' }

/** `usedSteps` reads the used steps of the key; it is called for a code that matches. `timeMs`: the machine's clock. */
export function checkCode<T extends UsedSteps>(
  code: string,
  { form, key, skew }: CodeKey,
  usedSteps: () => T,
  timeMs: number,
): CodeDecision<T> {
  const step = matchCode(key, form, code, timeMs, skew)
  if (step === undefined) return { kind: 'wrong' }
  const used = usedSteps()
  return isUsed(used, step) ? { kind: 'used' } : { kind: 'accepted', after: withStep(used, step) }
}

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
  skew: CodeSkew,
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
