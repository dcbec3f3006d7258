import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KeyedHash } from '../../../src/platform/keyed-hash.ts'
import { Storage } from '../../../src/storage/barrier/storage.ts'
import { MemoryStore } from '../../helpers/memory-store.ts'
import { recordingLogger } from '../../helpers/recording-logger.ts'
import type { Mount } from '../../../src/secrets/mounts/mounts.ts'
import { FailureSketch } from '../../../src/secrets/logins/failure-sketch.ts'
import { UserLockout } from '../../../src/secrets/logins/user-lockout.ts'
import { newRecord } from '../../../src/secrets/mounts/mount-record.ts'

const NAMES = 1000
/** 60,000 in the long form. */
const LOCKED = Number(process.env['OUTPOST_LOCKED_NAMES'] ?? 20_000)
const MINUTE_MS = 60_000

function buffer(entry: { readonly value: Uint8Array } | undefined): Buffer | undefined {
  return entry && Buffer.from(entry.value)
}

/** The entries of a store without a barrier. */
function entriesOf(store: MemoryStore): Storage {
  return new Storage({
    getShared: (path) => buffer(store.get(path)),
    pendingShared: (path) => buffer(store.pending(path)),
    list: (prefix, options) => store.list(prefix ?? '', options),
    paths: (prefix, options) => store.paths(prefix, options),
    history: () => ({ epoch: 0, oldest: 0, newest: 0, rows: [] }),
    commit: (batch) => store.commit(batch),
  })
}

async function open() {
  const clock = { nowMs: 1_000_000_000 }
  const record = newRecord({ path: 'auth/userpass/', type: 'userpass' })
  // Only its record and its secret are looked at.
  const mount = { record, facts: { secret: new KeyedHash(Buffer.from(record.secret, 'base64')) } } as Mount
  const store = new MemoryStore()
  const start = () =>
    new UserLockout({ storage: entriesOf(store), logger: recordingLogger([]), now: () => clock.nowMs, namesMax: NAMES })
  const users = start()
  await users.ready()
  const failures = users.of(mount)
  const fail = (name: string, times: number) => {
    for (let at = 0; at < times; at++) failures.failed(name)
  }
  const flood = (from: number) => {
    for (let at = 0; at < 3 * NAMES; at++) failures.failed(`name-${from + at}`)
  }
  return { clock, fail, failures, flood, mount, record, start, store, users }
}

test('failures with many other names neither unlock nor lock a name', async () => {
  const { clock, fail, failures, flood, mount, users } = await open()
  fail('locked', 5)
  fail('begun', 4)
  flood(0)
  assert.deepEqual(users.locked(mount), [])
  assert.deepEqual([failures.isLocked('locked'), failures.isLocked('begun')], [true, false])
  flood(100_000)
  fail('begun', 1)
  assert.equal(failures.isLocked('begun'), true)
  const others = Array.from({ length: 2000 }, (_, at) => `other-${at}`).filter((name) => failures.isLocked(name))
  assert.deepEqual(others, [])
  clock.nowMs += 16 * MINUTE_MS
  assert.deepEqual([failures.isLocked('locked'), failures.isLocked('begun')], [false, false])
})

test(`a flood that locks ${LOCKED} names locks no other names`, () => {
  const sketch = new FailureSketch()
  const [count, at] = [
    { failures: 5, lastMs: MINUTE_MS },
    { nowMs: MINUTE_MS, windowMs: 15 * MINUTE_MS },
  ]
  for (let name = 0; name < LOCKED; name++) sketch.add(`name-${name}`, count, at)
  const others = Array.from({ length: 200 }, (_, other) => `other-${other}`).filter((name) => sketch.of(name))
  // By chance 1 of 100,000 names shares all of its cells.
  assert.ok(others.length <= 1, `${others.length} of 200 names that failed no login have a count`)
})

test('unlock resets the count of a name in the table and in the sketch', async () => {
  const { fail, failures, flood, record, users } = await open()
  fail('kept', 5)
  await users.unlock(record.accessor, 'kept')
  assert.equal(failures.isLocked('kept'), false)
  fail('gone', 5)
  flood(0)
  assert.equal(failures.isLocked('gone'), true)
  await users.unlock(record.accessor, 'gone')
  fail('gone', 4)
  assert.equal(failures.isLocked('gone'), false)
  fail('gone', 1)
  assert.equal(failures.isLocked('gone'), true)
})

test('an expired count does not affect later counts', async () => {
  const { clock, fail, failures, flood } = await open()
  fail('early', 5)
  flood(0)
  clock.nowMs += 16 * MINUTE_MS
  flood(100_000)
  assert.equal(failures.isLocked('early'), false)
  fail('early', 4)
  assert.equal(failures.isLocked('early'), false)
})

test('a successful login resets the count, and so do 15 minutes without a failure', async () => {
  const { clock, fail, failures } = await open()
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

test('another process continues the counts of answered logins, before and after it has loaded them', async () => {
  const { fail, failures, mount, record, start, users } = await open()
  fail('locked', 5)
  fail('begun', 4)
  fail('right', 4)
  failures.succeeded('right')
  fail('unlocked', 5)
  await users.unlock(record.accessor, 'unlocked')
  await users.recorded()
  const next = start()
  for (const isLoaded of [false, true]) {
    if (isLoaded) await next.ready()
    const names = ['locked', 'begun', 'right', 'unlocked'].filter((name) => next.of(mount).isLocked(name))
    assert.deepEqual(names, ['locked'])
  }
  assert.deepEqual(next.locked(mount), ['locked'])
  next.of(mount).failed('begun')
  next.of(mount).failed('right')
  const locked = ['begun', 'right'].filter((name) => next.of(mount).isLocked(name))
  assert.deepEqual(locked, ['begun'])
})

test('entries of counts are bounded by the table and removed after they have expired', async () => {
  const { clock, fail, start, store, users } = await open()
  for (let at = 0; at < 3 * NAMES; at++) {
    fail(`name-${at}`, 1)
    clock.nowMs += 20
  }
  await users.recorded()
  assert.equal(store.paths('core/lockout/').length, NAMES)
  assert.equal(
    store.paths('').some((path) => path.includes('name')),
    false,
  )
  clock.nowMs += 16 * MINUTE_MS
  await start().ready()
  assert.deepEqual(store.paths(''), [])
})

test('a flood of failed logins stores a thousand counts, and a lock nevertheless', async () => {
  const { fail, failures, flood, mount, start, store, users } = await open()
  flood(0)
  fail('name', 5)
  await users.recorded()
  assert.ok(failures.isLocked('name'))
  assert.ok(store.paths('core/lockout/').length <= 1001, 'counts above the limit are in memory')
  const next = start()
  assert.ok(next.of(mount).isLocked('name'))
})
