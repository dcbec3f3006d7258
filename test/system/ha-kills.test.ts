/** A short round of `test/long/ha`: the active server is killed while clients use all servers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { haRound } from '../helpers/ha/round.ts'
import { startHaCluster } from '../helpers/ha-cluster.ts'

const SEED = Number(process.env['OUTPOST_SEED'] ?? 1)

test('the history of clients is linearizable while the active server is killed', { timeout: 240_000 }, async (t) => {
  const world = await startHaCluster(t)
  const result = await haRound({ world, seed: SEED, ms: 2000, clients: 5, kinds: ['kill server'] })
  t.diagnostic(result.summary)
  const report = [
    result.summary,
    ...result.violations,
    ...result.overlaps,
    ...result.unexpected.slice(0, 20),
    ...result.story,
  ].join('\n')
  assert.deepEqual([result.violations.length, result.overlaps.length, result.unexpected.length], [0, 0, 0], report)
  assert.ok(result.story.length > 0)
})
