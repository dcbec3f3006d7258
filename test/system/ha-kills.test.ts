/** The active of two servers is killed while clients use both. Longer rounds with three NATS servers: `test/long/ha`. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { haRound } from '../helpers/ha/round.ts'
import { startHaCluster } from '../helpers/ha-cluster.ts'

test('the history of clients is linearizable while the active server is killed', { timeout: 240_000 }, async (t) => {
  const world = await startHaCluster(t, { servers: ['s1', 's2'], nats: ['n1'] })
  const { overlaps, story, summary, unexpected, violations } = await haRound({
    world,
    seed: 1,
    ms: 1500,
    clients: 4,
    kinds: ['kill server'],
  })
  t.diagnostic(summary)
  const report = [summary, ...violations, ...overlaps, ...unexpected.slice(0, 20), ...story].join('\n')
  assert.deepEqual([violations.length, overlaps.length, unexpected.length], [0, 0, 0], report)
  assert.ok(story.length > 0)
})
