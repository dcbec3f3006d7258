/** `outpost operator dr failover` behind a promotion that did not make a primary. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { temporaryDirectory } from './outpost-process.ts'
import { recordingCore, runAt } from './recording-core.ts'

const DR = 'sys/replication/dr'
const PROMOTE = `PUT ${DR}/secondary/promote`

test('failover fails if the promoted cluster does not accept writes', async (t) => {
  const core = await recordingCore(t)
  const generation = `${DR}/secondary/generate-operation-token`
  const before = { mode: 'secondary', state: 'idle', trouble: 'replaced', primaries: [] }
  let after: object = { mode: 'primary', epoch: 1, state: 'fenced', replaced_by: 'http://other', fence_notice: '' }
  core.answers = {
    get [`GET ${DR}/status`](): readonly [number, unknown] {
      return [200, { data: core.asked.some(({ line }) => line === PROMOTE) ? after : before }]
    },
    'GET sys/seal-status': [200, { sealed: false }],
    'GET sys/health': [200, { initialized: true }],
    [`GET ${generation}/attempt`]: [200, { otp_length: 4 }],
    [`PUT ${generation}/attempt`]: [200, { nonce: 'n', required: 1 }],
    [`PUT ${generation}/update`]: [200, { complete: true, encoded_token: 'AAAAAA==' }],
  }
  const file = join(temporaryDirectory(t), 'share')
  writeFileSync(file, 'c2hhcmU=\n')
  const failover = () => runAt(core, ['operator', 'dr', 'failover', '-yes', `@${file}`])
  const fenced = await failover()
  assert.equal(fenced.code, 1)
  assert.match(
    fenced.err,
    /promoted, but the server does not accept writes \(state "fenced"\): http:\/\/other was also promoted/,
  )
  assert.doesNotMatch(fenced.err, /It serves/)
  core.asked.length = 0
  after = { ...after, state: 'running', replaced_by: '' }
  const running = await failover()
  assert.equal(running.code, 0, running.err)
  assert.match(running.err, /Promoted to primary of epoch 1/)
})
