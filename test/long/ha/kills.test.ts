/** A short round without root: the active server is killed while clients use all servers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventually } from '../../helpers/eventually.ts'
import { haRound } from '../../helpers/ha/round.ts'
import { startHaCluster } from '../../helpers/ha-cluster.ts'

const WARNED_MS = 60_000
const SEED = Number(process.env['OUTPOST_SEED'] ?? 1)

test('the history of clients is linearizable while the active server is killed, and a killed NATS server is reported', {
  timeout: 240_000,
}, async (t) => {
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

  // All is stored by a majority; the missing server is reported until it is back.
  const [server] = world.cluster.servers
  const leader = await world.cluster.streamLeader()
  const follower = world.cluster.nats.find((node) => node !== leader)
  assert.ok(server && follower)
  const warnings = async () => {
    const answer = await fetch(`${server.url}/v1/agent/ready`)
    const { warnings: texts } = (await answer.json()) as { readonly warnings: readonly string[] }
    return texts.filter((text) => text.includes('does not store the commit stream'))
  }
  assert.deepEqual(await warnings(), [])
  await follower.process.kill()
  const isNamed = async () => (await warnings())[0]?.startsWith(`NATS server "${follower.name}" `) === true
  await eventually(isNamed, 'the missing NATS server is named', WARNED_MS)
  follower.process.start()
  await eventually(async () => (await warnings()).length === 0, 'the warning ends', WARNED_MS)
})
