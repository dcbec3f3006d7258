/** Retries of failed revocations in AWS. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RetryBacklog } from '../../../src/engines/cloud/intents/retry-backlog.ts'

test('retries with pauses that double up to 15 s', async () => {
  const backlog = new RetryBacklog()
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
