/**
 * Which time steps had their code accepted, so that each is accepted once (RFC 6238 §5.2), in any order. The latest are kept one
 * by one; below them none is accepted any more. Nothing depends on the time at which they were accepted: a clock that is set back
 * lets no code in again.
 */
import * as v from 'valibot'

/** More than can be accepted at one moment, as the machine's clock may be set back by some steps. */
const STEPS_MAX = 32

export const usedStepsSchema = v.object({
  /** In order. */
  steps: v.array(v.number()),
  /** No step up to this one is accepted. */
  floor: v.number(),
})

export type UsedSteps = v.InferOutput<typeof usedStepsSchema>

export const NO_STEPS: UsedSteps = { steps: [], floor: -1 }

export function isUsed({ floor, steps }: UsedSteps, step: number): boolean {
  return step <= floor || steps.includes(step)
}

export function withStep({ floor, steps }: UsedSteps, step: number): UsedSteps {
  const all = [...steps, step].sort((a, b) => a - b)
  const dropped = all.splice(0, Math.max(0, all.length - STEPS_MAX))
  return { steps: all, floor: Math.max(floor, ...dropped) }
}
