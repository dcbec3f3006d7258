/** Repeated events are logged once, or once per interval, with bounded memory. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LogOnce } from '../../src/platform/log.ts'

test('a message is logged once until it is forgotten', () => {
  const once = new LogOnce()
  assert.deepEqual([once.due('a'), once.due('a'), once.due('b'), once.due('a')], [1, 0, 1, 0])
  once.forget('a')
  assert.deepEqual([once.due('a'), once.due('b')], [1, 0])
  once.clear()
  assert.equal(once.due('b'), 1)
})

test('with an interval the message is logged again, with the number of its occurrences since', (t) => {
  let nowMs = 0
  t.mock.method(performance, 'now', () => nowMs)
  const once = new LogOnce({ everyMs: 1000 })
  assert.deepEqual([once.due(), once.due(), once.due()], [1, 0, 0])
  nowMs = 999
  assert.equal(once.due(), 0)
  nowMs = 1000
  assert.deepEqual([once.due(), once.due()], [4, 0])
})

test('the number of remembered messages is limited: with an interval the oldest is evicted, else a new one is not logged', () => {
  const always = new LogOnce({ everyMs: 1000, kindsMax: 2 })
  assert.deepEqual(
    [always.due('a'), always.due('b'), always.due('c'), always.due('b'), always.due('a')],
    [1, 1, 1, 0, 1],
  )
  const once = new LogOnce({ kindsMax: 2 })
  assert.deepEqual([once.due('a'), once.due('b'), once.due('c'), once.due('a')], [1, 1, 0, 0])
})
