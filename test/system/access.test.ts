/** Permissions and request logs of a whole agent with ACL enabled. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { type AgentHere, agentHere } from '../helpers/agent-here.ts'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { type Answer, answersIn, ask, raw } from '../helpers/raw-http.ts'
import { ALLOC, makeAllocation, UNKNOWN } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const POLICIES: Readonly<Record<string, string>> = {
  none: '',
  'node-read': 'node { policy = "read" }',
  'node-write': 'node { policy = "write" }',
  'node-deny': 'node { policy = "deny" }',
  'agent-read': 'agent { policy = "read" }',
  read: 'namespace "default" { policy = "read" }',
  write: 'namespace "default" { policy = "write" }',
  job: 'namespace "default" { capabilities = ["read-job"] }',
  fs: 'namespace "default" { capabilities = ["read-fs"] }',
  logs: 'namespace "default" { capabilities = ["read-logs"] }',
  submit: 'namespace "default" { capabilities = ["submit-job"] }',
  gc: 'namespace "default" { capabilities = ["gc-allocation"] }',
  elsewhere: 'namespace "other" { policy = "write" }',
}
const tokenOf = (name: string) => `token-MARKER1-of-${name}`
const hashOf = (text: string) => createHash('sha256').update(text).digest('hex')

const FS = ['ls', 'stat', 'cat', 'readat', 'stream'] as const
const TARGETS: Readonly<Record<string, readonly [string, string, readonly string[]]>> = {
  ...Object.fromEntries(
    FS.map((name) => [
      name,
      ['GET', `/v1/client/fs/${name}/${ALLOC}?path=web/local/hello.txt&offset=0&limit=1&follow=false`, ['fs', 'write']],
    ]),
  ),
  ls: ['GET', `/v1/client/fs/ls/${ALLOC}?path=/`, ['fs', 'write']],
  logs: ['GET', `/v1/client/fs/logs/${ALLOC}?task=web`, ['fs', 'logs', 'write']],
  allocstats: ['GET', `/v1/client/allocation/${ALLOC}/stats`, ['job', 'read', 'write']],
  'alloc gc': ['GET', `/v1/client/allocation/${ALLOC}/gc`, ['submit', 'gc', 'write']],
  stats: ['GET', '/v1/client/stats', ['node-read', 'node-write']],
  metadata: ['GET', '/v1/client/metadata', ['node-read', 'node-write']],
  'metadata POST': ['POST', '/v1/client/metadata', ['node-write']],
  gc: ['GET', '/v1/client/gc', ['node-write']],
  self: ['GET', '/v1/agent/self', ['agent-read']],
  health: ['GET', '/v1/agent/health', [...Object.keys(POLICIES), 'anonymous']],
}

async function guarded(t: TestContext, more = ''): Promise<AgentHere & { directory: string }> {
  const directory = workDirectory(t)
  makeAllocation(join(directory, 'data/alloc'), ALLOC)
  const tokens = Object.entries(POLICIES).map(
    ([name, policy]) => `token "${name}" {\n sha256 = "${hashOf(tokenOf(name))}"\n policy = <<EOT\n${policy}\nEOT\n}`,
  )
  const file = writeConfig(directory, `acl {\nenabled = true\n${tokens.join('\n')}\n${more}}\n`)
  return { ...(await agentHere(t, ['-config', file])), directory }
}

async function call(port: number, method: string, target: string, ...headers: string[]): Promise<Answer> {
  if (method === 'GET') return ask(port, method, target, ...headers)
  const body = '{"Meta":{"a":"1"}}'
  const head = [
    `${method} ${target} HTTP/1.1`,
    'Host: localhost',
    'Connection: close',
    `Content-Length: ${body.length}`,
    ...headers,
  ]
  const [answer] = answersIn((await raw({ port }, `${head.join('\r\n')}\r\n\r\n${body}`)).bytes)
  assert.ok(answer)
  return answer
}

test('each endpoint requires its own permission and no other', async (t) => {
  const { port, directory } = await guarded(t)
  for (const [name, [method, target, allowed]] of Object.entries(TARGETS)) {
    for (const token of [...Object.keys(POLICIES), 'anonymous']) {
      const headers = token === 'anonymous' ? [] : [`X-Nomad-Token: ${tokenOf(token)}`]
      const answer = await call(port, method, target, ...headers)
      const what = `${name} as ${token}: ${answer.status} ${answer.body.toString().slice(0, 100)}`
      if (!allowed.includes(token)) {
        assert.equal(answer.status, 403, what)
        assert.equal(answer.body.toString(), 'Permission denied', what)
      } else if (name === 'alloc gc') assert.equal(answer.status, 409, what)
      else assert.equal(answer.status, 200, what)
    }
  }
  assert.ok(existsSync(join(directory, 'data/alloc', ALLOC, 'web/local/hello.txt')))
})

test('an unknown allocation is 404 before 403, and an unknown token is 403 first', async (t) => {
  const { port } = await guarded(t)
  for (const name of [...FS, 'logs', 'allocstats', 'alloc gc']) {
    const target = (TARGETS[name]?.[1] ?? '').replace(ALLOC, UNKNOWN)
    const anonymous = await ask(port, 'GET', target)
    assert.equal(anonymous.status, 404, name)
    assert.equal(anonymous.body.toString(), `Unknown allocation "${UNKNOWN}"`)
    assert.equal((await ask(port, 'GET', target, 'X-Nomad-Token: nobody-knows-me')).status, 403, name)
  }
})

test('a token is accepted in three headers, and an empty one counts as none', async (t) => {
  const { port } = await guarded(t, 'anonymous { policy = "node { policy = \\"read\\" }" }\n')
  const self = (...headers: string[]) => ask(port, 'GET', '/v1/agent/self', ...headers)
  const good = tokenOf('agent-read')
  for (const header of [
    `X-Vault-Token: ${good}`,
    `X-Nomad-Token:   ${good}  `,
    `Authorization: Bearer ${good}`,
    `authorization: bEARER ${good} and more`,
  ]) {
    assert.equal((await self(header)).status, 200, header)
  }
  const stats = (...headers: string[]) => ask(port, 'GET', '/v1/client/metadata', ...headers)
  for (const none of [
    'Authorization: Basic dTpw',
    'Authorization: Bearer',
    'Authorization:',
    `Authorization: ${good}`,
    'X-Nomad-Token:',
    'X-Vault-Token:   ',
  ]) {
    assert.equal((await stats(none)).status, 200, `${none} counts as no token`)
    assert.equal((await self(none)).status, 403, none)
  }
  for (const wrong of [
    'X-Nomad-Token: x',
    'Authorization: Bearer x',
    `X-Nomad-Token: ${good}x`,
    `X-Nomad-Token: ${hashOf(good)}`,
  ]) {
    assert.equal((await stats(wrong)).status, 403, `${wrong} is refused and not anonymous`)
  }
})

interface AccessLine {
  readonly '@message': string
  readonly operation: string
  readonly status: number
  readonly bytes: number
  readonly ms: number
  readonly remote: string
  readonly accessor: string
  readonly method: string
  readonly path: string
}

test('each request is one log line, and no secret is in the log', async (t) => {
  const agent = await guarded(t)
  const token = tokenOf('write')
  const allocation = join(agent.directory, 'data/alloc', ALLOC)
  writeFileSync(join(allocation, 'web/local/hello.txt'), 'content-MARKER2')
  const target = `/v1/client/fs/cat/${ALLOC}?path=web/local/hello.txt`
  const answers = [
    await ask(agent.port, 'GET', `${target}&password=query-MARKER3`, `X-Nomad-Token: ${token}`),
    await ask(agent.port, 'HEAD', target, `Authorization: Bearer ${token}`),
    await ask(
      agent.port,
      'GET',
      target,
      'X-Vault-Token: wrong-MARKER1',
      'Cookie: cookie-MARKER6',
      'X-Odd: header-MARKER6',
    ),
    await ask(agent.port, 'GET', `http://user-MARKER6@x${target}&follow=query-MARKER3`),
    await ask(agent.port, 'GET', `/v1/agent/self`, `X-Nomad-Token: ${tokenOf('agent-read')}`),
    await ask(agent.port, 'GET', '/v1/nothing?x=query-MARKER3', `X-Nomad-Token: ${token}`),
  ]
  for (const body of [
    'body-MARKER4',
    '{"Meta":{"a":"body-MARKER4"',
    '{"Meta":{"a":["body-MARKER4"]}}',
    '{"Meta":"body-MARKER4"}',
  ]) {
    const head = `POST /v1/client/metadata HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Nomad-Token: ${tokenOf('node-write')}\r\nContent-Length: ${body.length}\r\n\r\n`
    answers.push(...answersIn((await raw({ port: agent.port }, head + body)).bytes))
  }
  await raw(
    { port: agent.port },
    `GET /x HTTP/1.1\r\nHost: localhost\r\nX-Nomad-Token: token-MARKER1\r\nbroken-MARKER6\r\n\r\n`,
  )
  await eventually(
    () => agent.stderr().includes('"operation":"none"') && lines(agent).length >= answers.length,
    'the log is written',
  )
  const said = agent.stderr() + agent.stdout()
  const shown = answers
    .slice(1)
    .map(({ body }) => body.toString())
    .join('\n')
  for (const marker of [
    'MARKER1',
    'MARKER2',
    'MARKER3',
    'MARKER4',
    'MARKER6',
    hashOf(token),
    hashOf(tokenOf('agent-read')),
  ]) {
    assert.ok(!said.includes(marker), `the log holds ${marker}`)
    assert.ok(!shown.includes(marker), `an answer holds ${marker}`)
  }
  const [first, head, denied] = lines(agent)
  assert.deepEqual(
    { ...first, ms: 0 },
    {
      ...first,
      ms: 0,
      method: 'GET',
      operation: 'host.fs_cat',
      status: 200,
      bytes: 15,
      remote: '127.0.0.1',
      accessor: 'write',
      path: target.split('?')[0],
    },
  )
  assert.equal(typeof first?.ms, 'number')
  assert.equal(head?.bytes, 0, 'a HEAD sends nothing')
  assert.equal(denied?.status, 403)
  assert.equal(denied?.bytes, 'Permission denied'.length)
  assert.equal(lines(agent).length, answers.length, 'one line each')
})

function lines(agent: AgentHere): AccessLine[] {
  const parsed = agent
    .stderr()
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as AccessLine)
  return parsed.filter((line) => line['@message'] === 'request')
}

test('files that the agent may not read are refused with an error for the operator', async (t) => {
  if (process.getuid?.() !== 0) return t.skip('needs to give files to another user')
  const directory = workDirectory(t)
  const allocation = makeAllocation(join(directory, 'data/alloc'), ALLOC)
  const { chmodSync, chownSync, linkSync } = await import('node:fs')
  for (const path of ['data', 'data/alloc']) chownSync(join(directory, path), 65534, 65534)
  writeFileSync(join(allocation, 'web/local/closed'), 'x', { mode: 0o600 })
  linkSync(join(allocation, 'web/secrets/token'), join(allocation, 'web/local/hard'))
  chmodSync(join(allocation, 'web/secrets'), 0o700)
  const file = writeConfig(directory, 'acl { enabled = false }')
  const agent = await startAgent(t, ['-config', file], { uid: 65534, env: { HOME: '/' } })
  const get = (name: string, path: string, more = '') =>
    ask(agent.port, 'GET', `/v1/client/fs/${name}/${ALLOC}?path=${path}${more}`)
  for (const [name, more] of [
    ['cat', ''],
    ['readat', '&offset=0&limit=1'],
    ['stream', '&offset=0'],
    ['stream', '&offset=0&follow=false'],
  ] as const) {
    const closed = await get(name, 'web/local/closed', more)
    assert.equal(closed.status, 500, name)
    assert.equal(closed.body.toString(), 'open web/local/closed: permission denied')
    assert.equal((await get(name, 'web/local/hard', more)).status, 403, 'it cannot be excluded that it is a secret')
    assert.equal((await get(name, 'web/secrets/token', more)).status, 500)
  }
  assert.equal((await get('stat', 'web/local/closed')).status, 200)
  assert.equal((await get('ls', 'web/secrets')).body.toString(), 'open web/secrets: permission denied')
  assert.equal((await get('ls', 'web')).status, 200)
})
