/** What keeps happening is said once, or once in a while, and memory of it has a bound. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LogOnce } from '../../src/platform/log.ts'

test('a thing is said once, until it is forgotten', () => {
  const once = new LogOnce()
  assert.deepEqual([once.due('a'), once.due('a'), once.due('b'), once.due('a')], [1, 0, 1, 0])
  once.forget('a')
  assert.deepEqual([once.due('a'), once.due('b')], [1, 0])
  once.clear()
  assert.equal(once.due('b'), 1)
})

test('with a time it is said again, with how often it has happened since', (t) => {
  let nowMs = 0
  t.mock.method(performance, 'now', () => nowMs)
  const once = new LogOnce({ everyMs: 1000 })
  assert.deepEqual([once.due(), once.due(), once.due()], [1, 0, 0])
  nowMs = 999
  assert.equal(once.due(), 0)
  nowMs = 1000
  assert.deepEqual([once.due(), once.due()], [4, 0])
})

test('what is remembered is bounded: the oldest gives way where it is said again anyway, else a new one is not said', () => {
  const always = new LogOnce({ everyMs: 1000, kindsMax: 2 })
  assert.deepEqual(
    [always.due('a'), always.due('b'), always.due('c'), always.due('b'), always.due('a')],
    [1, 1, 1, 0, 1],
  )
  const once = new LogOnce({ kindsMax: 2 })
  assert.deepEqual([once.due('a'), once.due('b'), once.due('c'), once.due('a')], [1, 1, 0, 0])
})
