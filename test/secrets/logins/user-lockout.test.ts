import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Mount } from '../../../src/secrets/mounts/mounts.ts'
import { FailureSketch } from '../../../src/secrets/logins/failure-sketch.ts'
import { UserLockout } from '../../../src/secrets/logins/user-lockout.ts'
import { newRecord } from '../../../src/secrets/mounts/mount-record.ts'

const NAMES = 1000
const MINUTE_MS = 60_000

function open() {
  const clock = { nowMs: 1_000_000_000 }
  const users = new UserLockout(() => clock.nowMs, NAMES)
  const record = newRecord({ path: 'auth/userpass/', type: 'userpass' })
  // Only its record is looked at.
  const mount = { record } as Mount
  const failures = users.of(mount)
  const fail = (name: string, times: number) => {
    for (let at = 0; at < times; at++) failures.failed(name)
  }
  const flood = (from: number) => {
    for (let at = 0; at < 3 * NAMES; at++) failures.failed(`name-${from + at}`)
  }
  return { clock, fail, failures, flood, mount, record, users }
}

test('failures with many other names neither unlock nor lock a name', () => {
  const { clock, fail, failures, flood, mount, users } = open()
  fail('locked', 5)
  fail('begun', 4)
  flood(0)
  assert.deepEqual(users.locked(mount), [])
  assert.deepEqual([failures.isLocked('locked'), failures.isLocked('begun')], [true, false])
  flood(100_000)
  fail('begun', 1)
  assert.equal(failures.isLocked('begun'), true)
  const others = Array.from({ length: 5000 }, (_, at) => `other-${at}`).filter((name) => failures.isLocked(name))
  assert.deepEqual(others, [])
  clock.nowMs += 16 * MINUTE_MS
  assert.deepEqual([failures.isLocked('locked'), failures.isLocked('begun')], [false, false])
})

test('a flood that locks 60,000 names locks no other names', () => {
  const sketch = new FailureSketch()
  const [count, at] = [
    { failures: 5, lastMs: MINUTE_MS },
    { nowMs: MINUTE_MS, windowMs: 15 * MINUTE_MS },
  ]
  for (let name = 0; name < 60_000; name++) sketch.add(`name-${name}`, count, at)
  const others = Array.from({ length: 200 }, (_, other) => `other-${other}`).filter((name) => sketch.of(name))
  // By chance 1 of 100,000 names shares all of its cells.
  assert.ok(others.length <= 1, `${others.length} of 200 names that failed no login have a count`)
})

test('unlock resets the count of a name in the table and in the sketch', () => {
  const { fail, failures, flood, record, users } = open()
  fail('kept', 5)
  users.unlock(record.accessor, 'kept')
  assert.equal(failures.isLocked('kept'), false)
  fail('gone', 5)
  flood(0)
  assert.equal(failures.isLocked('gone'), true)
  users.unlock(record.accessor, 'gone')
  fail('gone', 4)
  assert.equal(failures.isLocked('gone'), false)
  fail('gone', 1)
  assert.equal(failures.isLocked('gone'), true)
})

test('an expired count does not affect later counts', () => {
  const { clock, fail, failures, flood } = open()
  fail('early', 5)
  flood(0)
  clock.nowMs += 16 * MINUTE_MS
  flood(100_000)
  assert.equal(failures.isLocked('early'), false)
  fail('early', 4)
  assert.equal(failures.isLocked('early'), false)
})

test('a successful login resets the count, and so do 15 minutes without a failure', () => {
  const { clock, fail, failures } = open()
  fail('name', 4)
  failures.succeeded('name')
  fail('name', 4)
  assert.equal(failures.isLocked('name'), false)
  clock.nowMs += 15 * MINUTE_MS - 1
  fail('name', 1)
  assert.equal(failures.isLocked('name'), true, 'a moment less than 15 minutes after the failure before')
  clock.nowMs += 15 * MINUTE_MS - 1
  assert.equal(failures.isLocked('name'), true)
  clock.nowMs += 1
  assert.equal(failures.isLocked('name'), false)
  fail('name', 4)
  assert.equal(failures.isLocked('name'), false, 'failures before the lock do not count any more')
  clock.nowMs += 15 * MINUTE_MS
  fail('name', 4)
  assert.equal(failures.isLocked('name'), false)
  clock.nowMs += 24 * 60 * MINUTE_MS
  fail('name', 4)
  assert.equal(failures.isLocked('name'), false, 'a day later')
  fail('name', 1)
  assert.equal(failures.isLocked('name'), true)
})
