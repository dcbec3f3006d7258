/**
 * The rounds of `rounds.test.ts` find planted defects of high availability: a history is not linearizable, or the cluster does not
 * recover.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { FaultKind } from '../../helpers/ha/faults.ts'
import { whyNoNamespaces } from '../../helpers/ha/namespace-network.ts'
import { type DefectName, LAUNCHER, plantedIn } from '../../helpers/ha/planted-fault.ts'
import { haRound } from '../../helpers/ha/round.ts'
import { startHaCluster } from '../../helpers/ha-cluster.ts'

const SEED = Number(process.env['OUTPOST_SEED'] ?? 1)
const ROUNDS_MAX = Number(process.env['OUTPOST_HA_ROUNDS'] ?? 10)
const ROUND_MS = 12_000

/** The faults that show each defect. */
const SHOWN_BY: Readonly<Record<DefectName, readonly FaultKind[]>> = {
  'lease twice as long': ['isolated active'],
  'acknowledgement before that of the stream': ['kill both', 'isolated active'],
  'no fence in the stream': ['pause server'],
  'no check of the lease': ['pause server'],
}

for (const [defect, kinds] of Object.entries(SHOWN_BY) as [DefectName, readonly FaultKind[]][]) {
  test(`the checker finds a planted defect: ${defect}`, { skip: whyNoNamespaces() ?? false }, async (t) => {
    const environment = plantedIn(defect)
    const world = await startHaCluster(t, { hasFaults: true, program: LAUNCHER, environmentOf: () => environment })
    for (let round = 0; round < ROUNDS_MAX; round++) {
      const seed = SEED + round
      const result = await haRound({ world, seed, ms: ROUND_MS, kinds }).catch((error: unknown) => String(error))
      // The members do not agree any more.
      if (typeof result === 'string') return t.diagnostic(`seed ${seed}: ${result}`)
      const { story, summary, violations } = result
      t.diagnostic(summary)
      if (violations.length === 0) continue
      t.diagnostic(`${violations[0]}\n${story.join('\n')}`)
      return
    }
    assert.fail(`${ROUNDS_MAX} rounds did not show it`)
  })
}
