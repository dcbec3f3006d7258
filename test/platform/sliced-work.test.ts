/** Work in slices: how much of it runs in one turn, what runs in between, and how it ends. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Refusal } from '../../src/platform/errors.ts'
import { runSliced, type SlicedWork, FIRST_SLICE_UNITS } from '../../src/platform/sliced-work.ts'
import { countTurns } from '../helpers/event-loop-turns.ts'

const { signal } = new AbortController()

/** Returns how often other work ran in between. */
function* steps(count: number, then: () => void = () => undefined): SlicedWork<number> {
  let others = 0
  for (let at = 0; at < count; at++) {
    then()
    if (yield 1) others++
  }
  return others
}

test('little work runs at once and without a promise', () => {
  assert.equal(runSliced(steps(FIRST_SLICE_UNITS - 1), { signal }), 0)
})

test('much work yields to other work and is notified of it', async () => {
  const turns = countTurns()
  const others = await runSliced(steps(20 * FIRST_SLICE_UNITS), { signal })
  assert.ok(others >= 4, `${others} turns`)
  assert.ok(turns.end() >= others)
})

test('one waiting piece of work runs in each turn, in order', async () => {
  const order: number[] = []
  // A turn that the test before has begun is not counted.
  await new Promise(setImmediate)
  const turns = countTurns()
  const all = [0, 1, 2].map((who) =>
    runSliced(
      steps(10 * FIRST_SLICE_UNITS, () => void (order.at(-1) !== who && order.push(who))),
      { signal },
    ),
  )
  const others = await Promise.all(all.map(async (each) => await each))
  const sum = others.reduce((total, each) => total + each, 0)
  assert.ok(turns.end() >= sum, `${sum} turns of work`)
  assert.deepEqual(order.slice(0, 9), [0, 1, 2, 0, 1, 2, 0, 1, 2])
})

test('canceled work ends in its next turn', async () => {
  const abort = new AbortController()
  let done = 0
  const outcome = runSliced(
    steps(20 * FIRST_SLICE_UNITS, () => void done++),
    { signal: abort.signal },
  )
  const before = done
  abort.abort()
  await assert.rejects(Promise.resolve(outcome), (error) => error instanceof Refusal && error.status === 503)
  assert.equal(done, before)
})

function* fail(count: number): SlicedWork<never> {
  yield* steps(count)
  throw new Refusal('not_found', 'gone')
}

test('an error is thrown in the first slice and rejects after it', async () => {
  assert.throws(() => runSliced(fail(3), { signal }), Refusal)
  await assert.rejects(async () => runSliced(fail(20 * FIRST_SLICE_UNITS), { signal }), Refusal)
})
