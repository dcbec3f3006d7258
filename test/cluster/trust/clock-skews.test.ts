/** Clock skew from the send times of messages. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ClockSkews } from '../../../src/cluster/trust/clock-skews.ts'
import { type LogLine, recordingLogger } from '../../helpers/recording-logger.ts'

test('messages that waited while this process did not run measure no skew', () => {
  const pauses = { isCatchingUp: false }
  const lines: LogLine[] = []
  const clocks = new ClockSkews({
    logger: recordingLogger(lines),
    message: 'skew',
    fieldsOf: ({ name }) => ({ name }),
    pauses,
  })
  clocks.measure('one', 'one', 5)
  pauses.isCatchingUp = true
  clocks.measure('one', 'one', 40_000)
  assert.deepEqual([clocks.of('one'), clocks.skewed, lines], [5, [], []])
  pauses.isCatchingUp = false
  clocks.measure('one', 'one', 40_000)
  assert.equal(clocks.of('one'), 40_000)
  assert.equal(lines.length, 1)
})
