/** Bodies that are too large for an endpoint, or as large as they may be. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { startAgent } from '../helpers/agent-process.ts'
import { answersIn, raw } from '../helpers/raw-http.ts'

const BIG = 'x'.repeat(20 << 20)
const PATHS: readonly (readonly [string, object])[] = [
  ['secret/metadata/a', { custom_metadata: { v: BIG } }],
  ['sys/policies/acl/a', { policy: `# ${BIG}` }],
  ['sys/mounts/b', { type: 'kv', description: BIG }],
  ['auth/token/create', { meta: { v: BIG } }],
  ['auth/token/lookup', { token: BIG }],
  ['sys/tools/hash', { input: BIG }],
  ['sys/unseal', { key: BIG }],
  ['sys/decode-token', { encoded_token: BIG, otp: BIG.slice(0, 1 << 20) }],
  ['client/metadata', { Meta: { v: BIG } }],
  ['search', { Prefix: BIG, Context: 'jobs' }],
]

test('bodies of twenty megabytes and more are never a fault of the server', async (t) => {
  const agent = await startAgent(t, ['-dev', '-dev-no-demo', '-dev-root-token-id', 'root', '-http-port', '0'])
  const send = async (path: string, lines: readonly string[], body: string) => {
    const head = [`POST /v1/${path} HTTP/1.1`, 'Host: localhost', 'X-Vault-Token: root', 'Connection: close', ...lines]
    const [answer] = answersIn((await raw({ port: agent.port }, `${head.join('\r\n')}\r\n\r\n`, body)).bytes)
    return answer?.status ?? 0
  }
  for (const [path, data] of PATHS) {
    const body = JSON.stringify(data)
    const status = await send(path, [`Content-Length: ${body.length}`], body)
    assert.ok(status >= 200 && status < 500, `${path}: ${status}`)
  }
  const tooLarge = 33 << 20
  const chunks = `${tooLarge.toString(16)}\r\n${'x'.repeat(tooLarge)}\r\n0\r\n\r\n`
  for (const path of ['secret/data/a', 'sys/tools/hash', 'client/metadata', 'search']) {
    assert.equal(await send(path, [`Content-Length: ${tooLarge}`], '{'), 413, `${path} as announced`)
    assert.equal(await send(path, ['Transfer-Encoding: chunked'], chunks), 413, `${path} in chunks`)
  }
})
