/**
 * Which time steps had their code accepted, so that each is accepted once (RFC 6238 §5.2), in any order. The latest are kept one
 * by one; below them none is accepted any more. Nothing depends on the time at which they were accepted: a clock that is set back
 * lets no code in again, and one that was wrong for a while locks nobody out.
 */
import * as v from 'valibot'

/** More than can be accepted at one moment, as the machine's clock may be set back by some steps. */
const STEPS_MAX = 8

export interface UsedSteps {
  /** The latest time steps whose codes were accepted, in order. */
  readonly usedSteps: readonly number[]
  /** No step up to this one is accepted. */
  readonly floorStep: number
}

export const usedStepsSchema = v.object({ usedSteps: v.array(v.number()), floorStep: v.number() })

export const NO_STEPS: UsedSteps = { usedSteps: [], floorStep: -1 }

export function isUsed({ floorStep, usedSteps }: UsedSteps, step: number): boolean {
  return step <= floorStep || usedSteps.includes(step)
}

/** What is kept, with one step more. */
export function withStep<T extends UsedSteps>(kept: T, step: number): T {
  const usedSteps = [...kept.usedSteps, step].sort((a, b) => a - b)
  const dropped = usedSteps.splice(0, Math.max(0, usedSteps.length - STEPS_MAX))
  return { ...kept, usedSteps, floorStep: Math.max(kept.floorStep, ...dropped) }
}
