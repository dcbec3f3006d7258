/** How far nodes may be ahead of their callers, each and in total. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  FIRST_BYTES,
  SHRINKS_UNTIL_RELEASED,
  CreditWindow,
  CreditPool,
} from '../../../src/cluster/rpc/credit-window.ts'

const MIB = 1 << 20

/** Takes `bytes` as they come in messages; gives how far the node was ahead at most. */
function readFast(window: CreditWindow, bytes: number): number {
  let most = 0
  for (let done = 0; done < bytes; done += 16_000) {
    assert.ok(window.receive(16_000))
    if (window.take(16_000)) window.grow()
    most = Math.max(most, window.allowed - window.taken)
  }
  return most
}

test('the window of a call starts small and doubles as data is taken, up to 4 MiB', () => {
  const window = new CreditWindow(new CreditPool())
  assert.equal(window.allowed, FIRST_BYTES)
  assert.ok(readFast(window, 100_000) < 4 * FIRST_BYTES)
  assert.equal(readFast(window, 100 * MIB), 4 * MIB)
})

test('all calls together are granted at most the pool and their first bytes', () => {
  const pool = new CreditPool()
  const windows = Array.from({ length: 500 }, () => new CreditWindow(pool))
  for (const window of windows) readFast(window, 20 * MIB)
  const ahead = windows.reduce((sum, window) => sum + window.allowed - window.taken, 0)
  assert.ok(ahead <= 32 * MIB + 500 * FIRST_BYTES, `${ahead} bytes`)
  assert.equal(pool.left, 0)
  for (const window of windows) window.close()
  assert.equal(pool.left, 32 * MIB)
  windows[0]?.close()
  assert.equal(pool.left, 32 * MIB)
})

test('an idle call releases its credit for others, and a stalled one keeps it', () => {
  const pool = new CreditPool()
  const [resting, stalled] = [new CreditWindow(pool), new CreditWindow(pool)]
  for (const window of [resting, stalled]) readFast(window, 20 * MIB)
  stalled.receive(MIB)
  const before = pool.left
  for (const window of [resting, stalled]) window.shrinkIfIdle()
  assert.equal(resting.shrinkIfIdle(), true)
  assert.equal(stalled.shrinkIfIdle(), false)
  assert.equal(resting.allowed - resting.taken, FIRST_BYTES)
  assert.equal(pool.left, before, 'what the node has on its way stays reserved')
  for (let at = 0; at < SHRINKS_UNTIL_RELEASED; at++) resting.shrinkIfIdle()
  assert.ok(pool.left > before)
  assert.ok(stalled.allowed - stalled.taken > MIB)
})

/** Bytes that a window takes from a node that sends without credit. */
function overrun(window: CreditWindow): number {
  let received = 0
  while (window.receive(16_000)) received += 16_000
  return received
}

test('a call with 64 KiB of credit accepts 64 KiB and one message from a node that ignores its credit', () => {
  assert.ok(overrun(new CreditWindow(new CreditPool())) <= FIRST_BYTES + 16_384)
})

test('a call that was idle accepts no more than its reduced credit', () => {
  const [early, late] = [new CreditWindow(new CreditPool()), new CreditWindow(new CreditPool())]
  for (const window of [early, late]) readFast(window, 20 * MIB)
  for (let at = 0; at < 2; at++) early.shrinkIfIdle()
  for (let at = 0; at < SHRINKS_UNTIL_RELEASED + 2; at++) late.shrinkIfIdle()
  assert.ok(overrun(early) > MIB, 'what was sent before the node received the smaller allowance is taken')
  assert.ok(overrun(late) <= FIRST_BYTES + 16_384)
})
