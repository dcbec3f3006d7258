/** Requests that begin in one turn of the event loop are few, all of them begin, and in order. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { NOBODY } from '../../src/kit/operation.ts'
import { InFlight } from '../../src/secrets/in-flight.ts'
import { Pace } from '../../src/secrets/pace.ts'

test('what begins in a turn takes no more than its time, in the order in which they came, and none is left', async () => {
  let nowMs = 0
  const pace = new Pace(3, () => nowMs)
  let turn = 0
  let isOver = false
  const count = () => {
    turn++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  const begun: { at: number; turn: number }[] = []
  const enter = async (at: number, ms = 1) => {
    const waiting = pace.enter()
    if (waiting) await waiting
    begun.push({ at, turn })
    nowMs += ms
  }
  const first = Array.from({ length: 8 }, (_, at) => enter(at))
  // One that comes later does not overtake those that wait; one that takes long has a turn of its own.
  await first[3]
  await Promise.all([...first, enter(8, 100), enter(9, 100), enter(10)])
  isOver = true
  assert.deepEqual(
    begun.map(({ at }) => at),
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
  )
  const counts = Array.from({ length: turn + 1 }, (_, each) => begun.filter((one) => one.turn === each).length)
  assert.deepEqual(counts.slice(0, 5), [3, 3, 3, 1, 1])
  assert.notEqual(begun[8]?.turn, begun[9]?.turn)
})

test('who comes when nobody waits does not wait', async () => {
  const pace = new Pace(0)
  assert.equal(pace.enter(), undefined)
  await pace.enter()
  await new Promise(setImmediate)
  assert.equal(pace.enter(), undefined)
})

test('who comes when some still wait does not overtake them, although there is room again', async () => {
  const inFlight = new InFlight(new Pace(0))
  const raw = { params: {}, query: [], headers: {}, body: undefined }
  const { signal } = new AbortController()
  const call = { requestId: 'r', identity: NOBODY, signal, raw, token: undefined, hops: 0 }
  const leave = Array.from({ length: 8 }, () => inFlight.enter('write', 'x', call))
  const waiting = Array.from({ length: 10 }, () => inFlight.turn())
  for (const each of leave) each()
  assert.ok(inFlight.turn())
  await Promise.all(waiting.map(async (each) => each))
  await new Promise(setImmediate)
  await new Promise(setImmediate)
  assert.equal(inFlight.turn(), undefined)
})
