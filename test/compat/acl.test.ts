/**
 * Replays the recorded permission matrix: each kind of token against each endpoint. The same tokens, with the policies
 * that their names tell, are in the agent's configuration. Compared are the statuses, and the texts of refusals.
 */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { send } from './call.ts'
import type { Comparable } from './comparable.ts'
import { aclDifferences } from './differences-acl.ts'
import { completed } from './differences-unary.ts'
import { type CompatHost, put, startHost, writeManifest } from './host.ts'
import { Judge, unexplained } from './judge.ts'
import { recorded } from './recording.ts'

const NODE = '30ca37a9-c0b9-8c7f-7614-0b5050be6ad6'
const ALLOC = '394c11a6-7c73-f09a-217f-ac97db3f04b5'

const capability = (name: string): string => `namespace "default" { capabilities = ["${name}"] }`

/** The recorded tokens that were known, and what each may do. */
const TOKENS: Readonly<Record<string, readonly [token: string, policy: string]>> = {
  mgmt: [
    'dbf326ee-780c-8b81-6ddb-0ed0f0749715',
    'namespace "*" { policy = "write" } node { policy = "write" } agent { policy = "write" } operator { policy = "write" }',
  ],
  'node-read': ['14bb01c8-b016-e9c6-2ed2-67bc0cb25845', 'node { policy = "read" }'],
  'node-write': ['609cac3a-5c5a-b552-034e-59bd5748f7d5', 'node { policy = "write" }'],
  'node-deny': ['c7a7c0c5-06a2-1909-c088-5c6d46058db1', 'node { policy = "deny" }'],
  'agent-read': ['38b6f878-2017-34cf-ecd8-97e4f571fa8d', 'agent { policy = "read" }'],
  'operator-read': ['808ba4f8-81e8-5ad3-aebc-9bafe4483c68', 'operator { policy = "read" }'],
  'ns-read': ['d617651e-3ea9-5f33-8b10-f850b3d81b95', 'namespace "default" { policy = "read" }'],
  'ns-write': ['d9f823e8-3d43-3323-a14d-8710453ddf43', 'namespace "default" { policy = "write" }'],
  'ns-deny': ['d7542bc9-5393-b8ba-45fe-0b8ce23d6ca2', 'namespace "default" { policy = "deny" }'],
  'ns-other': ['317211ce-964f-fd87-ee7a-0be347c734d9', 'namespace "other" { policy = "write" }'],
  'read-fs': ['e46c2465-069b-3134-60c5-1e4915fa1329', capability('read-fs')],
  'read-logs': ['1e9c3cb8-8706-6edc-773e-5bfb2f8c56c3', capability('read-logs')],
  'read-job': ['97bfc3a7-f437-08d2-af2a-2427137b4d59', capability('read-job')],
  'submit-job': ['8f0c2820-291c-feb0-3818-dcb58b13acbc', capability('submit-job')],
  'gc-allocation': ['81e64c74-6a51-593e-bd71-23e8f67e3dce', capability('gc-allocation')],
}

function aclBlock(): string {
  const tokens = Object.entries(TOKENS).map(([name, [token, policy]]) => {
    const sha256 = createHash('sha256').update(token).digest('hex')
    return `  token "${name}" {\n    sha256 = "${sha256}"\n    policy = ${JSON.stringify(policy)}\n  }`
  })
  return `acl {\n  enabled = true\n${tokens.join('\n')}\n}`
}

describe('tokens and endpoints', () => {
  const judge = new Judge(aclDifferences)
  let host: CompatHost

  before(async () => {
    host = await startHost(
      NODE,
      (allocDir) => {
        writeManifest(allocDir, ALLOC, { web: 'running' })
        put(join(allocDir, ALLOC, 'alloc/data/hello.txt'), 'hello')
        put(join(allocDir, ALLOC, 'alloc/logs/web.stdout.0'), 'hello out\n')
      },
      aclBlock(),
    )
  })
  after(async () => {
    await host.stop()
    process.stdout.write(`${judge.summary()}\n`)
  })

  for (const row of recorded('acl')) {
    test(row.name, async () => {
      const full = { ...completed(row), name: row.name }
      const answer = await send(host.url, full)
      const error = answer.status >= 400 ? answer.body.toString() : ''
      const { status = 0, text = '' } = row.answer ?? {}
      judge.check(row, permission(status, text), permission(answer.status, error))
    })
  }

  test('every listed difference still occurs and is explained', () => {
    assert.deepEqual(judge.stale(), [])
    assert.deepEqual(unexplained(aclDifferences), [])
  })
})

function permission(status: number, body: string): Comparable {
  return { status, headers: [], body, end: 'ended' }
}
