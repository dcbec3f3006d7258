/**
 * A call through a server, and through another agent that asks any server, is answered as the node itself answers it:
 * same status, headers and body, and the same permission, for every endpoint.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test } from 'node:test'
import { type ClusterWorld, ROOT_TOKEN, startCluster } from '../helpers/cluster.ts'
import { type Answer, answersIn, ask, raw } from '../helpers/raw-http.ts'

const POLICIES: Readonly<Record<string, string>> = {
  none: '',
  'node-read': 'node { policy = "read" }',
  'node-write': 'node { policy = "write" }',
  'node-deny': 'node { policy = "deny" }',
  'agent-read': 'agent { policy = "read" }',
  read: 'namespace "default" { policy = "read" }',
  write: 'namespace "default" { policy = "write" }',
  deny: 'namespace "default" { policy = "deny" }',
  'read-fs': 'namespace "default" { capabilities = ["read-fs"] }',
  'read-logs': 'namespace "default" { capabilities = ["read-logs"] }',
  submit: 'namespace "default" { capabilities = ["submit-job"] }',
  elsewhere: 'namespace "other" { policy = "write" }',
}
const tokenOf = (name: string) => `token-of-${name}-for-this-test`
const hashOf = (text: string) => createHash('sha256').update(text).digest('hex')
const tokenBlock = (name: string, token: string, policy: string) =>
  `token "${name}" {\n sha256 = "${hashOf(token)}"\n policy = <<EOT\n${policy}\nEOT\n}`
const ALL = 'node { policy = "write" }\nagent { policy = "write" }\nnamespace "default" { policy = "write" }'
const ANONYMOUS = 'anonymous { policy = "namespace \\"default\\" { capabilities = [\\"read-logs\\"] }" }'
const TOKENS = [
  tokenBlock('root', ROOT_TOKEN, ALL),
  ...Object.entries(POLICIES).map(([name, policy]) => tokenBlock(name, tokenOf(name), policy)),
]
const ACL = `acl {\n enabled = true\n ${ANONYMOUS}\n${TOKENS.join('\n')}\n}`
/** Agents know no token themselves: they ask. */
const HOST_ACL = `acl {\n enabled = true\n ${ANONYMOUS}\n}`

interface Request {
  readonly method: string
  readonly target: string
  readonly body?: string
  /** Its numbers change from moment to moment. */
  readonly changing?: true
}

/** The twelve endpoints, and errors of theirs. */
function requestsFor(allocId: string, nodeId: string): Readonly<Record<string, Request>> {
  const fs = (name: string, query: string) => ({ method: 'GET', target: `/v1/client/fs/${name}/${allocId}?${query}` })
  const own = (path: string) => `${path}?node_id=${nodeId}`
  return {
    ls: fs('ls', 'path=/'),
    'ls deep': fs('ls', 'path=web/local'),
    stat: fs('stat', 'path=web/local/hello.txt'),
    cat: fs('cat', 'path=web/local/hello.txt'),
    readat: fs('readat', 'path=web/local/hello.txt&offset=6&limit=4'),
    stream: fs('stream', 'path=web/local/hello.txt&offset=0&follow=false'),
    logs: fs('logs', 'task=web&type=stdout&follow=false'),
    'logs plain': fs('logs', 'task=web&type=stdout&follow=false&plain=true'),
    'allocation stats': { method: 'GET', target: `/v1/client/allocation/${allocId}/stats`, changing: true },
    'allocation gc': { method: 'GET', target: `/v1/client/allocation/${allocId}/gc` },
    stats: { method: 'GET', target: own('/v1/client/stats'), changing: true },
    metadata: { method: 'GET', target: own('/v1/client/metadata') },
    'metadata POST': { method: 'POST', target: own('/v1/client/metadata'), body: '{"Meta":{"a":"1","empty":null}}' },
    'metadata POST in the body': {
      method: 'POST',
      target: '/v1/client/metadata',
      body: `{"NodeID":"${nodeId}","Meta":{"b":"2"}}`,
    },
    gc: { method: 'GET', target: own('/v1/client/gc') },
    'no such file': fs('cat', 'path=web/local/nothing'),
    'a secret': fs('cat', 'path=web/secrets/token'),
    'a way out': fs('cat', 'path=../../../etc/passwd'),
    'no path': fs('readat', 'path=web/local/hello.txt'),
    'no task': fs('logs', 'follow=false'),
    'no such task': fs('logs', 'task=nobody&type=stdout'),
    'beyond the end': fs('readat', 'path=web/local/hello.txt&offset=999&limit=4'),
    'malformed body': { method: 'POST', target: own('/v1/client/metadata'), body: '{"Meta":' },
    'wrong verb': { method: 'DELETE', target: own('/v1/client/metadata') },
    head: { ...fs('cat', 'path=web/local/hello.txt'), method: 'HEAD' },
    pretty: fs('stat', 'path=web/local/hello.txt&pretty'),
  }
}

async function send(port: number, { method, target, body }: Request, ...lines: readonly string[]): Promise<Answer> {
  if (body === undefined) return ask(port, method, target, ...lines)
  const head = [
    `${method} ${target} HTTP/1.1`,
    'Host: localhost',
    'Connection: close',
    `Content-Length: ${body.length}`,
  ]
  const { bytes } = await raw({ port }, `${[...head, ...lines].join('\r\n')}\r\n\r\n${body}`)
  const [answer] = answersIn(bytes)
  assert.ok(answer)
  return answer
}

/** What must be the same; times and measured numbers are left out. */
function comparable({ status, headers, body, whole }: Answer, { changing }: Request) {
  const kept = [...headers].filter(([name]) => name !== 'date' && !(changing && name === 'content-length'))
  const text = body.toString('latin1')
  return {
    status,
    whole,
    headers: Object.fromEntries(kept.map(([name, value]) => [name, value.replace(/[\w-]+;request/, '')])),
    body: changing && status === 200 ? shapeOf(JSON.parse(text)) : text,
  }
}

/** Names and types of a value, and nothing of its numbers. */
function shapeOf(value: unknown): unknown {
  if (Array.isArray(value)) return 'a list'
  if (typeof value !== 'object' || value === null) return typeof value
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, shapeOf(part)]))
}

function ways(world: ClusterWorld): readonly (readonly [string, number])[] {
  return [
    ['through a server', world.server().port],
    ['through the other server', world.server(1).port],
    ['through the other agent', world.host(1).member.port],
  ]
}

/** One of the ways, each in turn. */
async function compareOne(world: ClusterWorld, at: number, request: Request, what: string, lines: readonly string[]) {
  const all = ways(world)
  return compareBy(world, all.slice(at % all.length, (at % all.length) + 1), request, what, ...lines)
}

function compare(world: ClusterWorld, request: Request, what: string, ...lines: readonly string[]) {
  return compareBy(world, ways(world), request, what, ...lines)
}

async function compareBy(
  world: ClusterWorld,
  by: ReturnType<typeof ways>,
  request: Request,
  what: string,
  ...lines: readonly string[]
) {
  const direct = comparable(await send(world.host().member.port, request, ...lines), request)
  for (const [way, port] of by) {
    assert.deepEqual(comparable(await send(port, request, ...lines), request), direct, `${what} ${way}`)
  }
  return direct
}

test('forwarded calls have the same responses as direct ones', { timeout: 300_000 }, async (suite) => {
  const world = await startCluster(suite, {
    here: ['server', 'client'],
    servers: 2,
    hosts: 2,
    acl: ACL,
    hostAcl: HOST_ACL,
  })

  await suite.test('every endpoint responds and authorizes alike for every policy', async () => {
    const { member, allocId } = world.host()
    const callers: [string, string[]][] = [
      ['root', [`X-Nomad-Token: ${ROOT_TOKEN}`]],
      ['nobody', []],
      ['an unknown token', ['X-Nomad-Token: nobody-knows-me']],
      ...Object.keys(POLICIES).map((name): [string, string[]] => [name, [`Authorization: Bearer ${tokenOf(name)}`]]),
    ]
    const seen = new Set<number>()
    let turn = 0
    for (const [name, request] of Object.entries(requestsFor(allocId, member.nodeId))) {
      for (const [caller, lines] of callers) {
        const what = `${name} as ${caller}`
        // The endpoints in every way as root; the permissions of others in one way each, in turn.
        const { status } =
          caller === 'root'
            ? await compare(world, request, what, ...lines)
            : await compareOne(world, turn++, request, what, lines)
        seen.add(status)
        if (caller === 'an unknown token') assert.ok([400, 403, 405].includes(status), name)
      }
    }
    for (const status of [200, 400, 403, 404, 405, 409])
      assert.ok(seen.has(status), `nothing was answered with ${status}`)
  })

  await suite.test('gzip, JSON on request, conditional requests and long responses are the same', async () => {
    const { member, allocId } = world.host()
    const requests = requestsFor(allocId, member.nodeId)
    const as = `X-Nomad-Token: ${ROOT_TOKEN}`
    for (const name of ['ls', 'stat', 'cat', 'logs', 'logs plain', 'metadata', 'no such file', 'head']) {
      for (const line of [
        'Accept-Encoding: gzip',
        'Accept: application/json',
        'Range: bytes=2-5',
        'Origin: http://x',
      ]) {
        const request = requests[name]
        assert.ok(request)
        await compare(world, request, `${name} with ${line}`, as, line)
      }
    }
  })

  await suite.test('a missing node or allocation is reported at once with the same error', async () => {
    const as = `X-Nomad-Token: ${ROOT_TOKEN}`
    const nobody = 'c1a57e00-ffff-4fff-8fff-ffffffffffff'
    const through = (target: string) => ask(world.server().port, 'GET', target, as)
    const cases: [string, number, string][] = [
      [`/v1/client/stats?node_id=${nobody}`, 404, `Unknown node ${nobody}`],
      ['/v1/client/stats', 400, 'No local Node and node_id not provided'],
      ['/v1/client/metadata?node_id=c1a57e00', 400, 'node lookup failed: '],
      [`/v1/client/fs/ls/${nobody}`, 404, `Unknown allocation "${nobody}"`],
    ]
    for (const [target, status, text] of cases) {
      const answer = await through(target)
      assert.equal(answer.status, status, target)
      assert.ok(answer.body.toString().startsWith(text), `${target}: ${answer.body.toString()}`)
    }
  })
})
