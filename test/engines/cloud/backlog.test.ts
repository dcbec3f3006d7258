/** When what is left to be undone in AWS is tried again. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Backlog } from '../../../src/engines/cloud/intents/revocation-backlog.ts'

test('what fails is tried again after pauses that double, of 15 s at most', async () => {
  const backlog = new Backlog()
  const pausesSeconds: number[] = []
  let lastMs = 0
  for (let nowMs = 0; pausesSeconds.length < 8; nowMs += 1000) {
    if (backlog.due(['one'], nowMs, false).length === 0) continue
    await backlog.attempt(
      'one',
      nowMs,
      () => Promise.reject(new Error('AWS is away')),
      () => undefined,
    )
    pausesSeconds.push((nowMs - lastMs) / 1000)
    lastMs = nowMs
  }
  assert.deepEqual(pausesSeconds, [0, 1, 2, 4, 8, 15, 15, 15])
})
