/** Work that gives way: how much of it is done in one turn, who comes in between, and how it ends. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Rejection } from '../../src/engines/framework/engine.ts'
import { inTurns, type Steps, WHOLE } from '../../src/engines/framework/time-slices.ts'
import { countTurns } from '../helpers/turns.ts'

const { signal } = new AbortController()

/** Tells how often others came in. */
function* steps(count: number, then: () => void = () => undefined): Steps<number> {
  let others = 0
  for (let at = 0; at < count; at++) {
    then()
    if (yield 1) others++
  }
  return others
}

test('what is little is done at once, without a promise', () => {
  assert.equal(inTurns(steps(WHOLE - 1), { signal }), 0)
})

test('what is much lets everybody else in, and is told of it', async () => {
  const turns = countTurns()
  const others = await inTurns(steps(20 * WHOLE), { signal })
  assert.ok(others >= 4, `${others} turns`)
  assert.ok(turns.end() >= others)
})

test('of all that wait one goes on in each turn, in order', async () => {
  const order: number[] = []
  // A turn that the test before has begun is not counted.
  await new Promise(setImmediate)
  const turns = countTurns()
  const all = [0, 1, 2].map((who) =>
    inTurns(
      steps(10 * WHOLE, () => void (order.at(-1) !== who && order.push(who))),
      { signal },
    ),
  )
  const others = await Promise.all(all.map(async (each) => await each))
  const sum = others.reduce((total, each) => total + each, 0)
  assert.ok(turns.end() >= sum, `${sum} turns of work`)
  assert.deepEqual(order.slice(0, 9), [0, 1, 2, 0, 1, 2, 0, 1, 2])
})

test('what nobody waits for any more ends in its next turn', async () => {
  const abort = new AbortController()
  let done = 0
  const outcome = inTurns(
    steps(20 * WHOLE, () => void done++),
    { signal: abort.signal },
  )
  const before = done
  abort.abort()
  await assert.rejects(Promise.resolve(outcome), (error) => error instanceof Rejection && error.status === 503)
  assert.equal(done, before)
})

function* fail(count: number): Steps<never> {
  yield* steps(count)
  throw new Rejection(404, 'gone')
}

test('what it throws is thrown at once, or rejects', async () => {
  assert.throws(() => inTurns(fail(3), { signal }), Rejection)
  await assert.rejects(async () => inTurns(fail(20 * WHOLE), { signal }), Rejection)
})
