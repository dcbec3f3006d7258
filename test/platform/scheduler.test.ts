/** Requests that begin in one turn of the event loop are few, all of them begin, and in order. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ANONYMOUS } from '../../src/platform/operation.ts'
import { Scheduler } from '../../src/platform/scheduler.ts'
import { InFlight } from '../../src/secrets/request/in-flight.ts'

test('work that starts in one turn stays within its time slice, in order of arrival, and all of it runs', async () => {
  let nowMs = 0
  const line = new Scheduler(3, () => nowMs).queue()
  let turn = 0
  let isOver = false
  const count = () => {
    turn++
    if (!isOver) setImmediate(count)
  }
  setImmediate(count)
  const begun: { at: number; turn: number }[] = []
  const enter = async (at: number, ms = 1) => {
    const waiting = line.enter()
    if (waiting) await waiting
    begun.push({ at, turn })
    nowMs += ms
  }
  const first = Array.from({ length: 8 }, (_, at) => enter(at))
  // Later work does not overtake waiting work, and long work has a separate turn.
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

test('work does not wait if the queue is empty', async () => {
  const line = new Scheduler(0).queue()
  assert.equal(line.enter(), undefined)
  await line.enter()
  await new Promise(setImmediate)
  assert.equal(line.enter(), undefined)
})

test('new work does not overtake waiting work, even if a slot is free', async () => {
  const inFlight = new InFlight(new Scheduler(0).queue())
  const raw = { params: {}, query: [], headers: {}, body: undefined }
  const { signal } = new AbortController()
  const call = { requestId: 'r', identity: ANONYMOUS, signal, raw, token: undefined, hops: 0 }
  const leave = Array.from({ length: 8 }, () => inFlight.enter('write', 'x', call))
  const waiting = Array.from({ length: 10 }, () => inFlight.admit())
  for (const each of leave) each()
  assert.ok(inFlight.admit())
  await Promise.all(waiting.map(async (each) => each))
  await new Promise(setImmediate)
  await new Promise(setImmediate)
  assert.equal(inFlight.admit(), undefined)
})

test('queues are served round-robin and share the time slice, and work that needs all of it ends the turn', async () => {
  let nowMs = 0
  let turn = 0
  const scheduler = new Scheduler(2, () => nowMs)
  const [lists, requests] = [scheduler.queue(), scheduler.queue()]
  const count = () => {
    turn++
    if (lists.hasWork || requests.hasWork) setImmediate(count)
  }
  const done: string[] = []
  const go = (name: string) => () => {
    nowMs += 1
    done.push(`${turn}${name}`)
  }
  assert.ok(requests.isFree())
  nowMs += 2
  assert.ok(!requests.isFree() && !lists.isFree(), 'the time of a turn is one for all')
  for (const name of ['a', 'b', 'c']) lists.wait(go(name))
  for (const name of ['x', 'y', 'z']) requests.wait(go(name))
  const whole = lists.later(true).then(go('whole'))
  lists.wait(go('last'))
  setImmediate(count)
  await whole
  while (lists.hasWork) await new Promise(setImmediate)
  const turns = Object.groupBy(done, (each) => each[0] ?? '')
  assert.deepEqual(
    Object.values(turns).map((each = []) => each.map((name) => name.slice(1)).join(' ')),
    ['a x', 'b y', 'c z', 'whole', 'last'],
  )
})
