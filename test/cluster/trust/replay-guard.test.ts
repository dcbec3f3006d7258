import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ReplayGuard } from '../../../src/cluster/trust/replay-guard.ts'

const WINDOW = 2048
const ISSUERS_MAX = 1024
const KEEP_MS = 1000

function opened() {
  const clock = { nowMs: 0 }
  const guard = new ReplayGuard(KEEP_MS, () => clock.nowMs)
  return { clock, use: (sequence: number, issuer = 'server') => guard.use(issuer, sequence) }
}

test('each number is accepted once, in any order within the window', () => {
  const { use } = opened()
  for (const sequence of [1, 3, 2, 10]) assert.equal(use(sequence), 'fresh', String(sequence))
  for (const sequence of [1, 2, 3, 10]) assert.equal(use(sequence), 'used', String(sequence))
  assert.equal(use(WINDOW), 'fresh')
  assert.equal(use(4), 'fresh', 'the window still has it')
  assert.equal(use(WINDOW + 5), 'fresh')
  assert.deepEqual([use(5), use(6)], ['used', 'fresh'], 'what has left the window is used')
})

test('a jump clears the skipped numbers, also if it is longer than the window', () => {
  for (const jump of [1, WINDOW - 1, WINDOW, WINDOW + 1, 10 * WINDOW + 7]) {
    const { use } = opened()
    for (let sequence = 1; sequence <= WINDOW; sequence++) use(sequence)
    const highest = WINDOW + jump
    assert.equal(use(highest), 'fresh', `jump of ${jump}`)
    for (let sequence = 1; sequence <= highest; sequence++) {
      if (sequence > highest - WINDOW && sequence > WINDOW && sequence < highest) continue
      assert.equal(use(sequence), 'used', `${sequence} after a jump of ${jump}`)
    }
    for (let sequence = Math.max(highest - WINDOW, WINDOW) + 1; sequence < highest; sequence++) {
      assert.deepEqual([use(sequence), use(sequence)], ['fresh', 'used'], `${sequence} after a jump of ${jump}`)
    }
  }
})

test('servers above the limit are refused, and no used number is forgotten for them', () => {
  const { clock, use } = opened()
  for (let issuer = 0; issuer < ISSUERS_MAX; issuer++) assert.equal(use(7, `server-${issuer}`), 'fresh')
  assert.equal(use(1, 'one-more'), 'full')
  assert.deepEqual([use(7, 'server-0'), use(8, 'server-0')], ['used', 'fresh'], 'those that are known go on')
  // Assertions of as long ago could still be valid.
  clock.nowMs = KEEP_MS
  assert.equal(use(1, 'one-more'), 'full')
  assert.equal(use(9, 'server-0'), 'fresh')
  clock.nowMs = KEEP_MS + 1
  assert.equal(use(1, 'one-more'), 'fresh', 'assertions of the others have expired')
  assert.equal(use(9, 'server-0'), 'used', 'it has called since')
  assert.deepEqual([use(1, 'one-more'), use(7, 'server-1')], ['used', 'fresh'])
})
