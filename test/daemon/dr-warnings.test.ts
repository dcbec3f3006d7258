/** Warnings of readiness for a DR primary and a DR secondary, from the status of replication. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { replicationWarnings } from '../../src/daemon/monitoring/dr-metrics.ts'

const CONNECTED = { node_id: 'b', connection_status: 'connected', is_whole: true, authenticated: true }

function warningsFor(mode: 'primary' | 'secondary', last: object, isSealed = false): string[] {
  return replicationWarnings({ mode, last: { mode, ...last } }, isSealed)
}

test('degraded synchronous replication is a warning, once for each cause', () => {
  const degraded = (...secondaries: object[]) => warningsFor('primary', { sync: 'degraded', secondaries })
  assert.deepEqual(warningsFor('primary', { sync: 'on', secondaries: [CONNECTED] }), [])
  assert.deepEqual(degraded(), [
    'synchronous replication is degraded, there is no DR secondary: commits are acknowledged without one',
  ])
  assert.deepEqual(degraded(CONNECTED), [
    'synchronous replication is degraded: commits are acknowledged without the DR secondaries until all have caught up',
  ])
  assert.deepEqual(degraded({ ...CONNECTED, connection_status: 'disconnected', disconnected_seconds: 7 }), [
    'DR secondary "b" disconnected for 7 s: a failover to it would lose later writes',
  ])
  assert.deepEqual(degraded({ ...CONNECTED, authenticated: false }), [
    'DR secondary "b" is connected and not authenticated (sealed?): unseal it',
  ])
})

/** `skewMs`: the clock of the primary minus that of the secondary. */
function primary(skewMs: string): object {
  return { primaries: [{ api_address: 'https://a:4646', clock_skew_ms: skewMs }] }
}

test('a clock skew is a warning on both sides, which names both clocks', () => {
  assert.deepEqual(warningsFor('primary', { secondaries: [{ ...CONNECTED, clock_skew_ms: '600000' }] }), [
    'clock of DR secondary "b" is 600 s ahead of this server: synchronize both clocks (NTP)',
  ])
  assert.deepEqual(warningsFor('secondary', primary('-600000')), [
    'clock of this host is 600 s ahead of the DR primary at https://a:4646: synchronize both clocks (NTP)',
  ])
  assert.deepEqual(warningsFor('secondary', primary('31000')), [
    'clock of this host is 31 s behind the DR primary at https://a:4646: synchronize both clocks (NTP)',
  ])
  assert.deepEqual(warningsFor('secondary', primary('29000')), [])
})

test('a replaced primary that is sealed warns of the claim, and its successor of the pending notice', () => {
  const claim = 'a cluster at https://b claims to have replaced this primary'
  assert.deepEqual(warningsFor('primary', { trouble: claim, secondaries: [] }, true), [claim])
  const missing = { node_id: 'b', connection_status: 'disconnected', disconnected_seconds: 9, disconnect_reason: '' }
  assert.deepEqual(warningsFor('primary', { trouble: claim, secondaries: [missing] }, true), [claim])
  assert.match(
    warningsFor('primary', { secondaries: [missing] }, true).join(),
    /^DR secondary "b" disconnected for 9 s/,
  )
  const [warning, ...more] = warningsFor('primary', { fence_notice_address: 'https://a', secondaries: [] })
  assert.match(String(warning), /^the old DR primary at https:\/\/a has not acknowledged that it was replaced/)
  assert.deepEqual(more, [])
})
