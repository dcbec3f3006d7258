/**
 * Tokens and policies of the secrets core decide about hosts: on the server, on an agent that is asked directly, and
 * through the server, with each of the three headers.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { URI } from 'otpauth'
import { type ClusterWorld, ROOT_TOKEN, startCluster } from '../helpers/cluster.ts'
import { api, type Core, openCore, OPS_ACL, tokenWith } from '../helpers/cluster-core.ts'
import { send } from '../helpers/openbao-replay.ts'
import { eventually } from '../helpers/eventually.ts'
import { openStream } from '../helpers/watch-stream-client.ts'

const HOST_ACL = 'acl {\n enabled = true\n token_ttl = "1s"\n}'

const POLICIES: Readonly<Record<string, string>> = {
  reader: 'node { policy = "read" }\nnamespace "default" { policy = "read" }',
  logs: 'namespace "default" { capabilities = ["read-logs"] }',
  files: 'namespace "default" { capabilities = ["read-fs"] }\nnode { policy = "deny" }',
  nothing: 'path "secret/*" { capabilities = ["read"] }',
}

async function tokenOf(world: ClusterWorld, core: Core, name: string): Promise<string> {
  return (await tokenWith(world, core, { name, text: POLICIES[name] ?? '' })).client_token
}

const HEADERS: readonly ((token: string) => Record<string, string>)[] = [
  (token) => ({ 'X-Vault-Token': token }),
  (token) => ({ 'X-Nomad-Token': token }),
  (token) => ({ Authorization: `Bearer ${token}` }),
]

test('tokens of the core are accepted while it is active and refused while it is sealed', async (t) => {
  const world = await startCluster(t, { here: ['server', 'client'], hosts: 1, acl: OPS_ACL, hostAcl: HOST_ACL })
  const core = await openCore(world)
  await t.test('a token is authorized alike on the server, on the host and through the server', () =>
    decidesAlike(world, core),
  )
  await t.test('revoked and unknown tokens and those of a sealed core are refused', () => refusesWhatEnded(world, core))
})

async function decidesAlike(world: ClusterWorld, core: Core): Promise<void> {
  const host = world.host()
  const { nodeId } = host.member
  const asked: Readonly<Record<string, string>> = {
    metadata: `/v1/client/metadata?node_id=${nodeId}`,
    stats: `/v1/client/stats?node_id=${nodeId}`,
    ls: `/v1/client/fs/ls/${host.allocId}`,
    cat: `/v1/client/fs/cat/${host.allocId}?path=web/local/hello.txt`,
    logs: `/v1/client/fs/logs/${host.allocId}?task=web&type=stdout`,
    gc: `/v1/client/gc?node_id=${nodeId}`,
  }
  const allowed: Readonly<Record<string, readonly string[]>> = {
    reader: ['metadata', 'stats'],
    logs: ['logs'],
    files: ['ls', 'cat', 'logs'],
    nothing: [],
  }
  for (const [policy, names] of Object.entries(allowed)) {
    const token = await tokenOf(world, core, policy)
    for (const [name, path] of Object.entries(asked)) {
      for (const headersOf of HEADERS) {
        for (const port of [world.server().port, host.member.port]) {
          const { status } = await send(port, { method: 'GET', path, headers: headersOf(token) })
          assert.equal(status, names.includes(name) ? 200 : 403, `${policy}: ${name} on port ${port}`)
        }
      }
    }
  }
}

async function refusesWhatEnded(world: ClusterWorld, core: Core): Promise<void> {
  const host = world.host()
  const token = await tokenOf(world, core, 'reader')
  const path = `/v1/client/metadata?node_id=${host.member.nodeId}`
  const ask = async (port: number, with_: string) =>
    (await send(port, { method: 'GET', path, headers: { 'X-Nomad-Token': with_ } })).status
  assert.equal(await ask(host.member.port, token), 200)
  assert.equal(await ask(host.member.port, 's.unknown'), 403)
  await api(world, 'PUT', 'sys/seal', {}, core.rootToken)
  // What an agent remembers of a token ends with the seal.
  await eventually(async () => (await ask(host.member.port, token)) === 503, 'the agent hears of the seal')
  assert.equal(await ask(world.server().port, token), 503)
  assert.equal(await ask(host.member.port, 's.neverheard'), 503)
  assert.equal(await ask(world.server().port, ROOT_TOKEN), 200, 'the configuration’s tokens need no core')
  await api(world, 'PUT', 'sys/unseal', { key: core.key }, '')
  assert.equal(await ask(world.server().port, token), 200)
  await api(world, 'POST', 'auth/token/revoke', { token }, core.rootToken)
  assert.equal(await ask(world.server().port, token), 403)
  await eventually(async () => (await ask(host.member.port, token)) === 403, 'the agent hears of it')
}

/** Without what is different each time. */
function same(text: string): string {
  return text.replace(/"request_id":"[^"]*"/, '').replace(/"server_time_utc":\d+/, '')
}

/** The present code of an authenticator application. */
function application(url: unknown): string {
  return URI.parse(String(url)).generate()
}

/** A code that was accepted by way of one server is used at the other, too: of a second factor, and of the TOTP engine. */
async function oneUseAcross(owner: number, other: number, rootToken: string): Promise<void> {
  const ask = async (port: number, path: string, body?: object, headers: Record<string, string> = {}) => {
    const method = body ? 'POST' : 'GET'
    const all = { 'X-Vault-Token': rootToken, ...headers }
    const asked = { method, path: `/v1/${path}`, headers: all, ...(body && { body: JSON.stringify(body) }) }
    const answer = await send(port, asked)
    const parsed = answer.body === '' ? {} : (JSON.parse(answer.body) as Record<string, Record<string, unknown>>)
    return { status: answer.status, data: parsed['data'] ?? {}, auth: parsed['auth'] ?? {} }
  }
  await ask(owner, 'sys/mfa/method/totp/m', { issuer: 'Example', qr_size: 0 })
  const policy = 'path "cubbyhole/coded" { capabilities = ["create", "update"] mfa_methods = ["m"] }'
  await ask(owner, 'sys/policies/acl/coded', { policy })
  await ask(owner, 'auth/token/roles/r', { allowed_entity_aliases: ['*'], allowed_policies: ['coded'] })
  const made = await ask(owner, 'auth/token/create/r', { entity_alias: 'ann', policies: ['coded'] })
  const entity = { entity_id: made.auth['entity_id'] }
  const { data } = await ask(other, 'sys/mfa/method/totp/m/admin-generate', entity)
  const token = { 'X-Vault-Token': String(made.auth['client_token']) }
  const coded = { ...token, 'X-Vault-MFA': `m:${application(data['url'])}` }
  const statuses: number[] = []
  for (const [port, headers] of [
    [other, token],
    [other, coded],
    [other, coded],
    [owner, coded],
  ] as const) {
    statuses.push((await ask(port, 'cubbyhole/coded', { a: 'b' }, headers)).status)
  }
  assert.deepEqual(statuses, [403, 204, 403, 403])
  await ask(owner, 'sys/mounts/totp', { type: 'totp' })
  const key = await ask(other, 'totp/keys/k', { generate: true, issuer: 'a', account_name: 'b' })
  const code = { code: application(key.data['url']) }
  assert.deepEqual((await ask(other, 'totp/code/k', code)).data, { valid: true })
  for (const port of [owner, other]) assert.equal((await ask(port, 'totp/code/k', code)).status, 400)
}

/** A stream through `other` until its token is revoked. */
async function streamThrough(owner: number, other: number, rootToken: string): Promise<void> {
  const ask = async (path: string, body: object) => {
    const headers = { 'X-Vault-Token': rootToken }
    const { body: text } = await send(owner, {
      method: 'POST',
      path: `/v1/${path}`,
      body: JSON.stringify(body),
      headers,
    })
    return JSON.parse(text || '{}') as { auth?: { client_token: string } }
  }
  await ask('sys/policies/acl/watcher', { policy: 'path "kv/*" {\n capabilities = ["read"]\n}' })
  const { auth } = await ask('auth/token/create', { policies: ['watcher'] })
  const token = auth?.client_token ?? ''
  const lines = await openStream(other, 'kv/watch?stream=true', { token })
  const events = await openStream(other, 'kv/watch', { token, headers: { Accept: 'text/event-stream' } })
  assert.deepEqual([lines.status, events.status], [200, 200])
  await eventually(() => lines.lines().length > 0 && events.text().includes('id: '))
  await ask('kv/data/a', { data: { a: 1 } })
  await eventually(() => lines.told().includes('write a 1') && events.text().includes('"path":"a"'))
  await ask('auth/token/revoke', { token })
  await ask('kv/data/a', { data: { a: 2 } })
  assert.deepEqual([await lines.ended, await events.ended], ['end', 'end'])
  assert.deepEqual([lines.lines().at(-1)?.status, /event: end\ndata: .*403/.test(events.tail())], [403, true])
}

test('a server without a core forwards secrets requests and resolves tokens at the one that has it', async (t) => {
  const world = await startCluster(t, {
    here: ['client', 'server-1'],
    servers: 2,
    hosts: 1,
    acl: OPS_ACL,
    hostAcl: HOST_ACL,
    oneCore: true,
  })
  const [owner, other, host] = [world.server(0), world.server(1), world.host()]
  const core = await openCore(world)
  const token = await tokenOf(world, core, 'reader')
  const both = async (method: string, path: string, body?: string, as = core.rootToken) => {
    const asked = { method, path, headers: { 'X-Vault-Token': as }, ...(body !== undefined && { body }) }
    const [own, relayed] = [await send(owner.port, asked), await send(other.port, asked)]
    assert.equal(relayed.status, own.status, `${method} ${path}: ${relayed.body}`)
    assert.equal(same(relayed.body), same(own.body), `${method} ${path}`)
    return relayed
  }
  await both('GET', '/v1/sys/health')
  await both('POST', '/v1/cubbyhole/a', '{"a":"<1>"}')
  assert.match((await both('GET', '/v1/cubbyhole/a')).body, /"a":"\\u003c1\\u003e"/)
  await both('LIST', '/v1/cubbyhole')
  await both('GET', '/v1/cubbyhole/nothing')
  await both('POST', '/v1/cubbyhole/a', '{"a":')
  await both('GET', '/v1/sys/mounts', undefined, token)
  await both('GET', '/v1/sys/mounts', undefined, 's.unknown')
  assert.equal((await both('GET', '/v1/auth/token/lookup-self', undefined, token)).status, 403)
  const mounting = { method: 'POST', path: '/v1/sys/mounts/kv', body: '{"type":"kv","options":{"version":"2"}}' }
  assert.equal((await send(owner.port, { ...mounting, headers: { 'X-Vault-Token': core.rootToken } })).status, 204)
  assert.match((await both('GET', '/v1/kv/watch')).body, /"cursor":"\d+-\d+"/)
  await streamThrough(owner.port, other.port, core.rootToken)
  const path = `/v1/client/metadata?node_id=${host.member.nodeId}`
  for (const port of [owner.port, other.port, host.member.port]) {
    const ask = (as: string) => send(port, { method: 'GET', path, headers: { 'X-Nomad-Token': as } })
    assert.equal((await ask(token)).status, 200)
    assert.equal((await ask('s.unknown')).status, 403)
  }
  await oneUseAcross(owner.port, other.port, core.rootToken)
  await owner.kill()
  // What is asked before NATS has seen the connection end is answered by nothing: 504.
  const ask = { method: 'GET', path: '/v1/cubbyhole/a', headers: { 'X-Vault-Token': token } }
  await eventually(async () => {
    const lost = await send(other.port, ask)
    assert.ok([503, 504].includes(lost.status), lost.body)
    return lost.status === 503 && /no server with the secrets core is connected/.test(lost.body)
  })
})

test('a watch through a server without a core ends when either server stops', async (t) => {
  const world = await startCluster(t, { here: ['server'], servers: 2, hosts: 0, acl: OPS_ACL, oneCore: true })
  const [owner, other] = [world.server(0), world.server(1)]
  const core = await openCore(world)
  const headers = { 'X-Vault-Token': core.rootToken }
  const mounting = {
    method: 'POST',
    path: '/v1/sys/mounts/kv',
    body: '{"type":"kv","options":{"version":"2"}}',
    headers,
  }
  assert.equal((await send(owner.port, mounting)).status, 204)
  const watch = async (query: string) => {
    const answer = await send(other.port, { method: 'GET', path: `/v1/kv/watch${query}`, headers })
    const body = JSON.parse(answer.body) as { data?: { cursor: string; events: unknown[] } }
    return { status: answer.status, ...body.data }
  }
  const isServed = async () => {
    const path = '/v1/metrics?format=prometheus'
    const { body } = await send(owner.port, { method: 'GET', path, headers: { 'X-Nomad-Token': ROOT_TOKEN } })
    return /calls_in_flight\{[^}]*direction="served"[^}]*\} 1/.test(body)
  }
  for (const stopping of [other, owner]) {
    const { cursor } = await eventually(async () => {
      const first = await watch('')
      return first.status === 200 ? first : undefined
    }, 'the servers know each other')
    const poll = watch(`?wait=60s&cursor=${cursor}`)
    poll.catch(() => undefined)
    await eventually(isServed, 'the poll waits')
    await stopping.stop()
    const { events, status } = await poll
    assert.deepEqual([status, events], [200, []], stopping.name)
    if (stopping === other) await other.start()
  }
})
