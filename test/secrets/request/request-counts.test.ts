/** Counts of requests by mount, whose number a caller with rights to mount can raise at will. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { COUNTED_MOUNTS_MAX, RequestCounts } from '../../../src/secrets/request/request-counts.ts'

test('mounts above the limit share one label and their requests are counted', () => {
  const counts = new RequestCounts()
  for (let at = 0; at < 10_000; at++) counts.add(`m${at}/`, 'read', 200)
  counts.add(undefined, 'read', 404)
  const all = counts.all(() => true)
  assert.ok(new Set(all.map(({ mount }) => mount)).size <= COUNTED_MOUNTS_MAX + 2)
  assert.equal(
    all.reduce((sum, { count }) => sum + count, 0),
    10_001,
  )
  assert.equal(all.find(({ mount }) => mount === 'other')?.count, 10_000 - COUNTED_MOUNTS_MAX)
})

test('the label of a disabled mount becomes available to another mount', () => {
  const counts = new RequestCounts()
  for (let at = 0; at < COUNTED_MOUNTS_MAX; at++) counts.add(`m${at}/`, 'write', 204)
  counts.add('late/', 'read', 403)
  assert.equal(
    counts.all(() => true).some(({ mount }) => mount === 'late/'),
    false,
  )
  counts.all((path) => path !== 'm0/')
  counts.add('late/', 'read', 403)
  const all = counts.all((path) => path !== 'm0/')
  assert.deepEqual(
    all.find(({ mount }) => mount === 'late/'),
    { mount: 'late/', verb: 'read', status: '4xx', count: 1 },
  )
  assert.deepEqual(
    all.filter(({ mount }) => mount === 'other').map(({ verb, status, count }) => [verb, status, count]),
    [
      ['read', '4xx', 1],
      ['write', '2xx', 1],
    ],
  )
})
