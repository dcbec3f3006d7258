/** Metrics and readiness of a server of a highly available core. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { haChecks, HaMetrics, haModeOf, haWarnings } from '../../src/daemon/modules/ha-metrics.ts'
import { SecretsCoreProbe } from '../../src/daemon/monitoring/secrets-core-probe.ts'
import { WholeAnswer } from '../../src/platform/operation.ts'
import type { Family } from '../../src/telemetry/metric.ts'
import { Readiness } from '../../src/telemetry/readiness.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { recordingLogger } from '../helpers/recording-logger.ts'
import { ACTIVE_SINCE_MS, ScriptedHa } from '../helpers/scripted-ha.ts'

function valueOf(families: readonly Family[], name: string, role?: string): number | undefined {
  const points = families.find((family) => family.name === name)?.points ?? []
  return points.find(({ labels }) => labels?.['role'] === role)?.value
}

test('the metrics have the role, the lag, the members by role and the takeovers', async () => {
  const ha = new ScriptedHa('s2')
  const metrics = new HaMetrics(ha)
  assert.equal(valueOf(metrics.families(), 'outpost.ha.members', 'lost'), undefined, 'unknown before the first refresh')
  await metrics.refresh()
  const standby = metrics.families()
  const names = ['active', 'has_active', 'lag_entries', 'unapplied_messages', 'takeovers', 'trouble']
  const values = (families: readonly Family[]) => names.map((name) => valueOf(families, `outpost.ha.${name}`))
  assert.deepEqual(values(standby), [0, 1, 0, 2, 0, 0])
  const roles = ['active', 'standby', 'sealed', 'uninitialized', 'lost']
  assert.deepEqual(
    roles.map((role) => valueOf(standby, 'outpost.ha.members', role)),
    [1, 1, 0, 0, 1],
  )
  ha.become('s1')
  assert.deepEqual(values(metrics.families()), [1, 1, 0, 2, 1, 0])
  ha.become('s1', ACTIVE_SINCE_MS + 1000)
  ha.trouble = 'disk full'
  assert.deepEqual(values(metrics.families()), [1, 1, 0, 2, 2, 1])
  ha.active = undefined
  assert.equal(valueOf(metrics.families(), 'outpost.ha.has_active'), 0)
})

test('a NATS server that does not store the commit stream is a warning with its name, and a metric', async (t) => {
  const ha = new ScriptedHa()
  const { core } = await CoreWorld.open(t, { ha })
  const metrics = new HaMetrics(ha)
  assert.deepEqual([haWarnings(core), valueOf(metrics.families(), 'outpost.ha.missing_replicas')], [[], 0])
  ha.missingReplicas = [{ server: 'n2', reason: 'offline' }]
  assert.match(
    haWarnings(core).join(),
    /^NATS server "n2" does not store the commit stream \(offline\): check that it runs/,
  )
  assert.equal(valueOf(metrics.families(), 'outpost.ha.missing_replicas'), 1)
})

test('a lost or sealed server of the cluster is a warning of the others', async (t) => {
  const ha = new ScriptedHa()
  const { core } = await CoreWorld.open(t, { ha })
  ha.lostMembers = [{ name: 's3', lastSeenMs: ACTIVE_SINCE_MS }]
  assert.deepEqual(haWarnings(core), [
    'server "s3" of the secrets core is lost, last report 2026-01-02T03:04:05.678Z: start it, or remove it with "outpost operator members remove s3"',
  ])
  ha.lostMembers = []
  ha.sealedMembers = [{ name: 's2' }]
  assert.deepEqual(haWarnings(core), ['server "s2" of the secrets core is sealed and cannot take over: unseal it'])
})

test('an unreadable list of members removes its metrics only', async () => {
  const ha = new ScriptedHa()
  const metrics = new HaMetrics(ha)
  await metrics.refresh()
  ha.list = new Error('NATS is away')
  await metrics.refresh()
  const families = metrics.families()
  assert.equal(valueOf(families, 'outpost.ha.members', 'active'), undefined)
  assert.equal(valueOf(families, 'outpost.ha.active'), 1)
})

test('a standby is ready and says so, a server in trouble is not ready', async (t) => {
  const ha = new ScriptedHa()
  const { core } = await CoreWorld.open(t, { ha })
  const readiness = new Readiness({
    checks: () => haChecks(core),
    warnings: () => [],
    haMode: () => haModeOf(core),
    refresh: async () => undefined,
    onChange: () => undefined,
    logger: recordingLogger([]),
  })
  const shown = () => {
    const { checks, ha_mode, ready } = readiness.report()
    return [ready, ha_mode, checks.map(({ reason }) => reason).join()]
  }
  assert.deepEqual(shown(), [true, 'active', 'active'])
  await core.enterStandby()
  ha.become('s2')
  assert.deepEqual(shown(), [true, 'standby', 'standby, "s2" is active'])
  ha.active = undefined
  assert.deepEqual(shown(), [true, 'standby', 'standby, waiting for an active server'])
  ha.trouble = 'the stream is not available'
  assert.deepEqual(shown(), [false, 'standby', 'the stream is not available'])
  await core.seal()
  assert.deepEqual(shown(), [true, undefined, ''], 'the check of the seal fails instead')
})

/** Of a server without a core, for the health of the core it asks. */
async function probedState(more: object) {
  const body = JSON.stringify({ initialized: true, sealed: false, standby: true, ...more })
  const probe = new SecretsCoreProbe({
    requestHealth: async () => new WholeAnswer(429, {}, body),
    coreNames: () => ['s2'],
    isConnected: () => true,
  })
  probe.start()
  await setImmediate()
  probe.stop()
  return [probe.state.ok, probe.state.reason]
}

test('the state of the core is starting until the first connection to NATS, and outdated after a later one', async () => {
  let isConnected = false
  const body = JSON.stringify({ initialized: true, sealed: false, standby: true, ha_connection_healthy: true })
  const probe = new SecretsCoreProbe({
    requestHealth: async () => {
      if (!isConnected) throw new Error('not connected')
      return new WholeAnswer(429, {}, body)
    },
    coreNames: () => [],
    isConnected: () => isConnected,
  })
  probe.start()
  await setImmediate()
  probe.stop()
  assert.equal(probe.state.reason, 'not connected to NATS')
  isConnected = true
  assert.equal(probe.state.reason, 'starting')
  isConnected = false
  assert.equal(probe.state.reason, 'not connected to NATS')
  isConnected = true
  assert.match(probe.state.reason, /^connected to NATS again/)
})

test('a server without a core accepts a standby that forwards, and no other one', async () => {
  assert.deepEqual(await probedState({ ha_connection_healthy: true }), [
    true,
    'the secrets core of server "s2" is active',
  ])
  const notActive = [false, 'the secrets core of server "s2" is not active']
  assert.deepEqual(await probedState({ ha_connection_healthy: false }), notActive)
  assert.deepEqual(await probedState({}), notActive)
})
