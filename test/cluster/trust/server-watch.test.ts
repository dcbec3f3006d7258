/** An agent reports that it knows no connected server. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { KnownServer } from '../../../src/cluster/trust/server-trust.ts'
import { ServerWatch } from '../../../src/cluster/trust/server-watch.ts'
import { type LogLine, recordingLogger } from '../../helpers/recording-logger.ts'

test('an agent without a connected server warns, and stops to warn when one returns', () => {
  const lines: LogLine[] = []
  const bus = { isConnected: true }
  let nowMs = 0
  let known: KnownServer[] = []
  const announce = () => {
    const curveKey = new Uint8Array(32)
    known = [{ serverId: 's', key: 'k', announcedAtMs: nowMs, hasCore: true, curveKey, clockMs: 0, sequence: 0 }]
  }
  const watch = new ServerWatch({
    keys: { servers: () => known },
    bus,
    logger: recordingLogger(lines),
    now: () => nowMs,
  })
  const at = (seconds: number) => {
    nowMs = seconds * 1000
    watch.check()
    return watch.warning !== undefined
  }
  assert.deepEqual([at(0), at(9)], [false, false], 'the first announcement may be under way')
  announce()
  assert.deepEqual([at(10), at(140)], [false, false], 'two announcements may be missed')
  assert.equal(at(165), true)
  assert.match(
    watch.warning ?? '',
    /^no server is connected: calls to other hosts and tokens of the secrets core are refused$/,
  )
  announce()
  assert.equal(at(170), false)
  known = []
  assert.equal(at(175), true, 'a call found no receiver')
  bus.isConnected = false
  assert.equal(at(180), false, 'the check of NATS reports it')
  assert.deepEqual(
    lines.map(({ level, message }) => `${level} ${message}`),
    ['warn no server is connected', 'info a server is connected again', 'warn no server is connected'],
  )
})
