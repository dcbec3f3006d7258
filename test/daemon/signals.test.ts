/** Metrics of a core that is sealed, and of replication whose state is not known: absent rather than wrong. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { AnyFamily } from '../../src/telemetry/metric.ts'
import { replicationFamilies } from '../../src/daemon/monitoring/dr-metrics.ts'
import { SecretsMetrics } from '../../src/daemon/modules/secrets-metrics.ts'
import { CoreWorld } from '../helpers/core-world.ts'

function valueOf(families: readonly AnyFamily[], name: string): unknown {
  return families.find((family) => family.name === `outpost.${name}`)?.points[0]?.value
}

test('a sealed core exports no counts of tokens, leases and refusals from before the seal', async (t) => {
  const world = await CoreWorld.open(t)
  const metrics = new SecretsMetrics({ core: world.core, store: world.store, snapshotTime: { atMs: 0 } })
  await metrics.refresh()
  const open = metrics.families(1)
  assert.deepEqual([valueOf(open, 'secrets.sealed'), valueOf(open, 'secrets.active')], [0, 1])
  assert.equal(typeof valueOf(open, 'tokens'), 'number')
  assert.equal(typeof valueOf(open, 'leases'), 'number')
  await world.core.seal()
  // A scrape that comes before the next count.
  for (const sealed of [metrics.families(1), (await metrics.refresh(), metrics.families(1))]) {
    assert.deepEqual([valueOf(sealed, 'secrets.sealed'), valueOf(sealed, 'secrets.active')], [1, 0])
    for (const name of ['tokens', 'leases', 'leases_irrevocable', 'lease.revocations', 'quota.exceeded'])
      assert.equal(valueOf(sealed, name), undefined, name)
    assert.equal(valueOf(sealed, 'secrets.initialized'), 1)
    assert.equal(typeof valueOf(sealed, 'store.commits'), 'number')
  }
})

function degraded(sync: string): unknown {
  return valueOf(replicationFamilies({ mode: 'primary', last: { mode: 'primary', sync } }), 'replication.sync_degraded')
}

test('asynchronous commits are degraded only if replication is configured as synchronous', () => {
  assert.deepEqual(['off', 'on', 'degraded'].map(degraded), [0, 0, 1])
})

function ofSecondary(last: object): readonly AnyFamily[] {
  return replicationFamilies({ mode: 'secondary', last: { mode: 'secondary', ...last } })
}

test('the lag of a secondary without a message from its primary is absent, and not 0', () => {
  const unknown = ofSecondary({ lag_entries: null, lag_seconds: null })
  const known = ofSecondary({ lag_entries: 3, lag_seconds: 1.5 })
  for (const [name, value] of [
    ['lag_entries', 3],
    ['lag_seconds', 1.5],
  ] as const)
    assert.deepEqual(
      [valueOf(unknown, `replication.${name}`), valueOf(known, `replication.${name}`)],
      [undefined, value],
    )
  assert.equal(valueOf(unknown, 'replication.connected'), 0)
})
