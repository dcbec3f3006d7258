/** A process that did not run catches up with its messages for a time. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { PauseDetector } from '../../src/platform/clock.ts'

/** Blocks this thread. */
function pause(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

test('a process catches up after a pause, whether its timer or another event is served first', async () => {
  const detector = new PauseDetector({ pauseMs: 2000, catchUpMs: 1000 })
  assert.equal(detector.isCatchingUp, false)
  assert.equal(detector.pauseText, undefined)
  pause(2100)
  assert.equal(detector.pauseText, 'this process was stopped for 2 s (frozen, or its machine was paused)')
  assert.equal(detector.isCatchingUp, true, 'before the timer')
  await delay(1100)
  assert.equal(detector.isCatchingUp, false)
  assert.equal(detector.pauseText, undefined, 'the pause explains nothing any more')
  pause(2100)
  await delay(100)
  assert.equal(detector.isCatchingUp, true, 'after the timer')
})
