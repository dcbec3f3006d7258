/** Used time steps: more of them than are recorded, and a clock that is set back. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isUsed, NO_STEPS, type UsedSteps, withStep } from '../../../src/engines/totp/code-check.ts'

const KEPT = 8
const after = (...steps: readonly number[]): UsedSteps => steps.reduce<UsedSteps>(withStep, NO_STEPS)

test('rejects each accepted step again, in any order and after more steps than are recorded', () => {
  const rising = Array.from({ length: KEPT + 1 }, (_, at) => 100 + at)
  for (const steps of [rising, rising.toReversed(), [104, 100, 108, 101, 107, 102, 106, 103, 105]]) {
    const kept = after(...steps)
    assert.deepEqual(kept, { usedSteps: rising.slice(1), floorStep: 100 })
    for (const step of steps) assert.ok(isUsed(kept, step), String(step))
    assert.ok(!isUsed(kept, 109))
  }
})

test('rejects steps below the recorded ones and accepts each step between them once', () => {
  const even = Array.from({ length: KEPT + 1 }, (_, at) => 100 + 2 * at)
  const kept = after(...even)
  // The clock was set back to before all of them: any of these codes may have been seen.
  for (const step of [0, 98, 99, 100]) assert.ok(isUsed(kept, step), String(step))
  for (const step of [101, 103, 115]) assert.ok(!isUsed(kept, step), String(step))
  const more = withStep(kept, 101)
  assert.ok(isUsed(more, 101))
  assert.deepEqual([more.usedSteps.length, more.floorStep], [KEPT, 101])
})

test('accepts each code once while the clock is set back step by step, and never lowers the floor', () => {
  let kept = after(...Array.from({ length: KEPT + 1 }, (_, at) => 200 + at))
  const floor = kept.floorStep
  kept = withStep(kept, 300)
  for (let step = 299; step > 290; step--) {
    if (isUsed(kept, step)) continue
    kept = withStep(kept, step)
    assert.ok(isUsed(kept, step) && kept.floorStep >= floor, String(step))
  }
  for (let step = 0; step < 209; step++) assert.ok(isUsed(kept, step), String(step))
})
