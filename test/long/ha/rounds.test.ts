/**
 * Rounds of random faults against a high availability cluster with 20 clients; the history of each is checked. A round is
 * repeated with `OUTPOST_SEED` and `OUTPOST_HA_ROUNDS=1`. `OUTPOST_HA_KINDS` is a list of kinds of faults, separated by
 * commas. On a violation its smallest part is printed, and the cluster ends.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FAULT_KINDS } from '../../helpers/ha/faults.ts'
import { haRound } from '../../helpers/ha/round.ts'
import { startHaCluster } from '../../helpers/ha-cluster.ts'

const ROUNDS = Number(process.env['OUTPOST_HA_ROUNDS'] ?? 3)
const ROUND_MS = Number(process.env['OUTPOST_HA_ROUND_MS'] ?? 12_000)
const SEED = Number(process.env['OUTPOST_SEED'] ?? 1)
const KINDS = process.env['OUTPOST_HA_KINDS']?.split(',')
/** A new cluster after this number of rounds. */
const ROUNDS_PER_CLUSTER = 20
const RECOVERY_MS = 180_000
/** Shown of each log when the cluster does not recover. */
const LOG_CHARS = 20_000

/** The newest errors in the log of a server. */
function errorsOf(name: string, log: string): string[] {
  const lines = log.split('\n').filter((line) => /"@level":"error"|\[ERROR\]/.test(line))
  return lines.slice(-10).map((line) => `${name}: ${line}`)
}

for (let first = 0; first < ROUNDS; first += ROUNDS_PER_CLUSTER) {
  const count = Math.min(ROUNDS_PER_CLUSTER, ROUNDS - first)
  const seeds = Array.from({ length: count }, (_, at) => SEED + first + at)
  test(`histories are linearizable while members and networks fail (OUTPOST_SEED=${seeds[0]}, ${count} rounds)`, {
    timeout: count * (ROUND_MS + RECOVERY_MS),
  }, async (t) => {
    const world = await startHaCluster(t, { hasFaults: true })
    const kinds = KINDS && FAULT_KINDS.filter((kind) => KINDS.includes(kind))
    for (const seed of seeds) {
      const result = await haRound({ world, seed, ms: ROUND_MS, ...(kinds && { kinds }) }).catch((error: unknown) => {
        // The logs are removed with the cluster.
        const { nats, servers } = world.cluster
        for (const { name, process } of [...servers, ...nats])
          t.diagnostic(`${name}:\n${process.log.slice(-LOG_CHARS)}`)
        throw error
      })
      t.diagnostic(result.summary)
      const errors = world.cluster.servers.flatMap(({ name, process }) => errorsOf(name, process.log))
      const { overlaps, story, unexpected, violations } = result
      const report = [...violations, ...overlaps, ...unexpected.slice(0, 20), ...story, ...errors].join('\n')
      assert.deepEqual(
        [result.violations.length, result.overlaps.length, result.unexpected.length],
        [0, 0, 0],
        `${result.summary}\n${report}`,
      )
    }
  })
}
