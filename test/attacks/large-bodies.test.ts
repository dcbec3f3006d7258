/** Bodies that are too large for an endpoint, or as large as they may be. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { startCluster } from '../helpers/cluster.ts'
import { answersIn, raw } from '../helpers/raw-http.ts'

const BIG = 'x'.repeat(20 << 20)
/** More than a value of these may be. */
const LARGE = BIG.slice(0, 4 << 20)
const PATHS: readonly (readonly [string, object])[] = [
  ['secret/metadata/a', { custom_metadata: { v: BIG } }],
  ['sys/policies/acl/a', { policy: `# ${BIG}` }],
  ['sys/mounts/b', { type: 'kv', description: LARGE }],
  ['auth/token/create', { meta: { v: LARGE } }],
  ['auth/token/lookup', { token: LARGE }],
  ['sys/tools/hash', { input: BIG }],
  ['sys/unseal', { key: LARGE }],
  ['sys/decode-token', { encoded_token: LARGE, otp: LARGE.slice(0, 1 << 20) }],
  ['client/metadata', { Meta: { v: BIG } }],
  ['search', { Prefix: LARGE, Context: 'jobs' }],
]

interface Sent {
  readonly port: number
  readonly path: string
  readonly body: string | Buffer
  readonly lines?: readonly string[]
}

/** Sends a POST as root; its length is announced unless other lines are given. */
async function post({ port, path, body: sent, lines }: Sent) {
  // Ready bytes: a socket takes much longer for a large string.
  const body = typeof sent === 'string' ? Buffer.from(sent, 'latin1') : sent
  const framing = lines ?? [`Content-Length: ${body.length}`]
  const head = [`POST /v1/${path} HTTP/1.1`, 'Host: localhost', 'X-Vault-Token: root', 'Connection: close', ...framing]
  const [answer] = answersIn((await raw({ port }, `${head.join('\r\n')}\r\n\r\n`, body)).bytes)
  return { status: answer?.status ?? 0, text: answer?.body.toString() ?? '' }
}

const CHUNKED = ['Transfer-Encoding: chunked']
const inChunks = (body: string) => `${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`

test('bodies of many megabytes cause no internal error', async (t) => {
  const agent = await agentHere(t, ['-dev', '-dev-no-demo', '-dev-root-token-id', 'root', '-http-port', '0'])
  const { port } = agent
  for (const [path, data] of PATHS) {
    const body = JSON.stringify(data)
    const { status } = await post({ port, path, body })
    assert.ok(status >= 200 && status < 500, `${path}: ${status}`)
  }
  const tooLarge = 33 << 20
  const chunks = Buffer.from(inChunks('x'.repeat(tooLarge)), 'latin1')
  for (const path of ['secret/data/a', 'sys/tools/hash', 'client/metadata', 'search']) {
    const announced = await post({ port, path, body: '{', lines: [`Content-Length: ${tooLarge}`] })
    assert.equal(announced.status, 413, `${path} as announced`)
  }
  for (const path of ['secret/data/a', 'client/metadata']) {
    assert.equal((await post({ port, path, body: chunks, lines: CHUNKED })).status, 413, `${path} in chunks`)
  }
})

test('a transaction of small patches to a large secret is refused before it exhausts the memory', async (t) => {
  const { port } = await agentHere(t, ['-dev', '-dev-no-demo', '-dev-root-token-id', 'root', '-http-port', '0'])
  // Four times that is more than a request can write.
  const large = JSON.stringify({ data: { v: 'x'.repeat(13 << 20) } })
  assert.equal((await post({ port, path: 'secret/data/a', body: large })).status, 200)
  const patch = { op: 'patch', path: 'a', data: { w: 1 } }
  const transact = (count: number) =>
    post({
      port,
      path: 'secret/transaction',
      body: JSON.stringify({ operations: Array.from({ length: count }, () => patch) }),
    })
  for (const count of [4, 100]) {
    const { status, text } = await transact(count)
    assert.equal(status, 413, text)
    assert.match(text, /a request can write at most 50331648 bytes of data, split it/)
  }
  assert.equal((await transact(2)).status, 200, 'nothing of the others was carried out')
})

test('a body larger than a NATS message is 413 with the limit, whether it is forwarded or not', async (t) => {
  const world = await startCluster(t, {
    here: ['server', 'client'],
    servers: 2,
    hosts: 2,
    oneCore: true,
    nats: 'max_payload: 300KB',
  })
  const [edge, agent] = [world.server(1).port, world.host(0).member.port]
  const other = world.host(1).member
  const body = JSON.stringify({ Meta: { v: 'x'.repeat(400_000) } })
  const ways = [
    { name: 'from a server to a node', port: edge, path: `client/metadata?node_id=${other.nodeId}` },
    { name: 'from an agent to a node', port: agent, path: `client/metadata?node_id=${other.nodeId}` },
    { name: 'from a server without secrets', port: edge, path: 'secret/data/a' },
  ]
  for (const { name, port, path } of ways) {
    for (const [sent, lines] of [
      [body, undefined],
      [inChunks(body), CHUNKED],
    ] as const) {
      const { status, text } = await post({ port, path, body: sent, ...(lines && { lines }) })
      assert.equal(status, 413, `${name}: ${text}`)
      assert.match(text, /needs a message of 4\d{5} bytes and NATS carries at most 307200 \(max_payload/, name)
    }
    const small = await post({ port, path, body: '{"Meta":{"v":"x"}}' })
    assert.ok(small.status < 500 || small.status === 503, `${name}: ${small.status} ${small.text}`)
    const lie = await post({ port, path, body: '{}', lines: [`Content-Length: ${33 << 20}`] })
    assert.equal(lie.status, 413, `${name}: ${lie.text}`)
  }
})
