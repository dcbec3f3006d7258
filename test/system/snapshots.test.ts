/** Snapshots of the secrets core over HTTP: taken while it runs, restored as a whole, refused where they do not belong. */
import { eventually } from '../helpers/eventually.ts'
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { request } from 'node:http'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { codeAt } from '../helpers/mfa-world.ts'
import { send } from '../helpers/openbao-replay.ts'

interface Bytes {
  readonly status: number
  readonly body: Buffer
}

function bytesOf(
  port: number,
  method: string,
  path: string,
  token: string,
  body?: Buffer,
  code?: string,
): Promise<Bytes> {
  return new Promise((resolve, reject) => {
    const headers = { 'X-Vault-Token': token, ...(code !== undefined && { 'X-Vault-MFA': code }) }
    const sent = request({ port, host: '127.0.0.1', method, path: `/v1/${path}`, headers }, (response) => {
      const parts: Buffer[] = []
      response.on('data', (part: Buffer) => parts.push(part))
      response.on('end', () => resolve({ status: response.statusCode ?? 0, body: Buffer.concat(parts) }))
      response.on('error', reject)
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

async function server(t: TestContext) {
  const args = ['-dev', '-dev-no-demo', '-http-port', '0', '-cluster-port', '0', '-dev-root-token-id', 'root']
  const directory = workDirectory(t)
  const agent = await agentHere(t, [...args, '-data-dir', directory])
  const ask = async (method: string, path: string, body?: unknown, token = 'root') => {
    const headers = { 'X-Vault-Token': token }
    const asked = { method, path: `/v1/${path}`, headers, ...(body !== undefined && { body: JSON.stringify(body) }) }
    const { body: text, status } = await send(agent.port, asked)
    return {
      status,
      body: JSON.parse(text || '{}') as {
        data?: { data?: unknown }
        auth?: { client_token: string; entity_id: string }
      },
    }
  }
  return { agent, port: agent.port, ask, directory }
}

test('a restore brings back removed data and removes data written after the snapshot', async (t) => {
  const { agent, ask, port } = await server(t)
  for (let at = 0; at < 200; at++) await ask('POST', `secret/data/kept/${at}`, { data: { at } })
  const early = (await ask('POST', 'auth/token/create', {})).body.auth?.client_token ?? ''
  const saved = await bytesOf(port, 'GET', 'sys/storage/snapshot', 'root')
  assert.equal(saved.status, 200)
  assert.ok(!saved.body.includes('kept'))
  await ask('POST', 'secret/data/kept/7', { data: { at: 'changed' } })
  await ask('POST', 'secret/data/late', { data: { a: 1 } })
  await ask('DELETE', 'sys/mounts/cubbyhole')
  const late = (await ask('POST', 'auth/token/create', {})).body.auth?.client_token ?? ''
  const restored = await bytesOf(port, 'POST', 'sys/storage/raft/snapshot', 'root', saved.body)
  assert.equal(restored.status, 204, restored.body.toString())
  assert.deepEqual((await ask('GET', 'secret/data/kept/7')).body.data?.data, { at: 7 })
  assert.equal((await ask('GET', 'secret/data/late')).status, 404)
  assert.equal((await ask('GET', 'auth/token/lookup-self', undefined, early)).status, 200)
  assert.equal((await ask('GET', 'auth/token/lookup-self', undefined, late)).status, 403)
  assert.equal((await ask('POST', 'secret/data/after', { data: { a: 1 } })).status, 200)
  const own = (await ask('GET', 'auth/token/lookup-self')).body.data as unknown as { accessor: string }
  const lines = () =>
    agent
      .stderr()
      .split('\n')
      .filter((line) => line.includes('"@message":"snapshot '))
  await eventually(() => lines().length === 2, 'both are in the log')
  const origin = `"accessor":"${own.accessor}","remote":"127.0.0.1"`
  assert.ok(lines()[0]?.includes(`"snapshot saved","path":"sys/storage/snapshot",${origin}`), lines()[0])
  assert.ok(lines()[1]?.includes(`"@level":"warn"`) && lines()[1]?.includes(`"snapshot restored"`), lines()[1])
  assert.ok(lines()[1]?.includes(`"path":"sys/storage/raft/snapshot","force":false,${origin}`), lines()[1])
})

test('a rule with mfa_methods requires a code, which is used up', async (t) => {
  const { ask, port } = await server(t)
  const rules = ['snapshot', 'raft/snapshot'].map(
    (path) => `path "sys/storage/${path}" { capabilities = ["read", "update", "sudo"] mfa_methods = ["app"] }`,
  )
  await ask('PUT', 'sys/policies/acl/p', { policy: rules.join('\n') })
  await ask('POST', 'sys/mfa/method/totp/app', { issuer: 'outpost', qr_size: 0 })
  await ask('POST', 'sys/auth/userpass', { type: 'userpass' })
  await ask('POST', 'auth/userpass/users/ada', { password: 'right', token_policies: 'p' })
  const login = (await ask('POST', 'auth/userpass/login/ada', { password: 'right' })).body.auth
  const generated = await ask('POST', 'sys/mfa/method/totp/app/admin-generate', { entity_id: login?.entity_id })
  const { secret } = generated.body.data as { secret: string }
  const [first, second] = [0, 1].map((step) => `app:${codeAt(secret, Date.now() + step * 30_000)}`)
  const token = login?.client_token ?? ''
  const save = (code?: string) => bytesOf(port, 'GET', 'sys/storage/snapshot', token, undefined, code)
  const none = await save()
  assert.equal(none.status, 403)
  assert.match(none.body.toString(), /second factor.*X-Vault-MFA/)
  assert.equal((await save('app:')).status, 400)
  const saved = await save(first)
  assert.equal(saved.status, 200, saved.body.toString())
  const used = await save(first)
  assert.deepEqual([used.status, /already used/.test(used.body.toString())], [403, true])
  const restore = (path: string, code?: string) => bytesOf(port, 'POST', `sys/storage/${path}`, token, saved.body, code)
  assert.equal((await restore('snapshot')).status, 403)
  // Its rule is about another path, and this token has none for it.
  assert.equal((await restore('raft/snapshot-force', second)).status, 403)
  assert.equal((await restore('raft/snapshot', second)).status, 204)
})

interface AuditLine {
  readonly type: string
  readonly request?: { readonly path: string; readonly operation: string }
  readonly error?: string
}

test('an audit device records saves and restores of snapshots and refused ones', async (t) => {
  const { ask, directory, port } = await server(t)
  const file = join(directory, 'audit/audit.log')
  const token = (await ask('POST', 'auth/token/create', { policies: ['default'] })).body.auth?.client_token ?? ''
  const device = { type: 'file', options: { file_path: file } }
  assert.equal((await ask('PUT', 'sys/audit/file', device)).status, 204)
  assert.equal((await bytesOf(port, 'GET', 'sys/storage/snapshot', token)).status, 403)
  const saved = await bytesOf(port, 'GET', 'sys/storage/raft/snapshot', 'root')
  const bad = await bytesOf(port, 'POST', 'sys/storage/snapshot', 'root', Buffer.from('hello'))
  const restored = await bytesOf(port, 'POST', 'sys/storage/raft/snapshot', 'root', saved.body)
  assert.deepEqual([saved.status, bad.status, restored.status], [200, 400, 204])
  // The file goes on with the devices of the snapshot.
  assert.equal((await ask('GET', 'sys/mounts')).status, 200)
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n')
  const seen = lines
    .map((line) => JSON.parse(line) as AuditLine)
    .filter(({ request: of }) => /snapshot/.test(of?.path ?? ''))
  assert.deepEqual(
    seen.map((line) => [line.type, line.request?.operation, line.request?.path, line.error !== undefined]),
    [
      ['request', 'read', 'sys/storage/snapshot', false],
      ['response', 'read', 'sys/storage/snapshot', true],
      ['request', 'read', 'sys/storage/raft/snapshot', false],
      ['response', 'read', 'sys/storage/raft/snapshot', false],
      ['request', 'update', 'sys/storage/snapshot', false],
      ['response', 'update', 'sys/storage/snapshot', true],
      ['request', 'update', 'sys/storage/raft/snapshot', false],
      ['response', 'update', 'sys/storage/raft/snapshot', false],
    ],
  )
  const sequences = lines.map((line) => (JSON.parse(line) as { chain?: { sequence?: number } }).chain?.sequence)
  assert.deepEqual(
    sequences,
    lines.map((_line, at) => at + 1),
  )
})

test('a restore without permission, or of a snapshot of another cluster, changes nothing', async (t) => {
  const [one, other] = [await server(t), await server(t)]
  await one.ask('POST', 'secret/data/mine', { data: { a: 1 } })
  await other.ask('POST', 'secret/data/theirs', { data: { a: 1 } })
  const foreign = (await bytesOf(other.port, 'GET', 'sys/storage/raft/snapshot', 'root')).body
  const own = (await bytesOf(one.port, 'GET', 'sys/storage/snapshot', 'root')).body
  const token = (await one.ask('POST', 'auth/token/create', { policies: ['default'] })).body.auth?.client_token ?? ''
  const tried: readonly (readonly [string, string, Buffer | undefined, string, number])[] = [
    ['GET', 'sys/storage/snapshot', undefined, token, 403],
    ['GET', 'sys/storage/snapshot', undefined, 's.unknown', 403],
    ['POST', 'sys/storage/snapshot', own, token, 403],
    ['POST', 'sys/storage/snapshot', foreign, 'root', 400],
    ['POST', 'sys/storage/snapshot', own.subarray(0, own.length - 100), 'root', 400],
    ['POST', 'sys/storage/snapshot', Buffer.from('hello'), 'root', 400],
    ['POST', 'sys/storage/snapshot', undefined, 'root', 400],
    ['DELETE', 'sys/storage/snapshot', undefined, 'root', 405],
  ]
  for (const [method, path, body, as, status] of tried) {
    const answer = await bytesOf(one.port, method, path, as, body)
    assert.equal(answer.status, status, `${method} ${path}: ${answer.body.toString('utf8', 0, 300)}`)
    assert.equal((await one.ask('GET', 'secret/data/mine')).status, 200)
  }
  // A rule is about the path that it names, and force has one of its own.
  const rules = ['sys/storage/*', 'sys/storage/snapshot', 'sys/storage/raft/snapshot-force'].map(
    (path, at) => `path "${path}" { capabilities = ["${at === 0 ? 'read", "update", "sudo' : 'deny'}"] }`,
  )
  await one.ask('PUT', 'sys/policies/acl/some', { policy: rules.join('\n') })
  const some = (await one.ask('POST', 'auth/token/create', { policies: ['some'] })).body.auth?.client_token ?? ''
  for (const [method, path, body, status] of [
    ['GET', 'sys/storage/snapshot', undefined, 403],
    ['GET', 'sys/storage/raft/snapshot', undefined, 200],
    ['POST', 'sys/storage/snapshot', own, 403],
    ['POST', 'sys/storage/raft/snapshot-force', own, 403],
    ['POST', 'sys/storage/raft/snapshot?force=true', own, 403],
    ['POST', 'sys/storage/raft/snapshot', foreign, 400],
  ] as const) {
    assert.equal((await bytesOf(one.port, method, path, some, body)).status, status, `${method} ${path}`)
  }
  // Its entries have another key and cannot be read here.
  assert.equal((await bytesOf(one.port, 'PUT', 'sys/storage/raft/snapshot-force', 'root', foreign)).status, 204)
  assert.equal((await one.ask('GET', 'secret/data/mine')).status, 503)
})
