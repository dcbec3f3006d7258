/**
 * Response wrapping through the whole core: an answer is unwrapped once, by any caller, and a kill neither loses nor
 * repeats it.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { kv } from '../../../src/engines/kv/kv.ts'
import { CoreWorld } from '../../helpers/core-world.ts'

interface Wrapped {
  readonly token: string
  readonly ttl: number
  readonly creation_path: string
  readonly wrapped_accessor?: string
}

const INVALID = 'wrapping token is not valid or does not exist'

async function opened(t: Parameters<typeof CoreWorld.open>[0]) {
  const world = await CoreWorld.open(t, { engines: [kv] })
  await world.ask('POST', 'sys/mounts/kept', { type: 'kv', options: { version: '2' } })
  await world.ask('POST', 'kept/data/db', { data: { password: 'once' } })
  const wrap = async (path = 'kept/data/db', headers: Record<string, string> = {}, method = 'GET', body?: unknown) => {
    const answer = await world.ask(method, path, body, { headers: { 'X-Vault-Wrap-TTL': '60', ...headers } })
    assert.equal(answer.status, 200, answer.text)
    return answer.body['wrap_info'] as Wrapped
  }
  const unwrap = (token: string, as: string | null = null) =>
    world.ask('POST', 'sys/wrapping/unwrap', as === token ? undefined : { token }, { token: as })
  return { world, wrap, unwrap }
}

test('unwrap returns the wrapped answer unchanged', async (t) => {
  const { unwrap, world, wrap } = await opened(t)
  const plain = await world.ask('GET', 'kept/data/db')
  const info = await wrap()
  assert.equal(info.ttl, 60)
  assert.equal(info.creation_path, 'kept/data/db')
  const looked = await world.ask('POST', 'sys/wrapping/lookup', { token: info.token }, { token: null })
  assert.equal(looked.body.data['creation_path'], 'kept/data/db')
  assert.equal(looked.body.data['creation_ttl'], 60)
  const answer = await unwrap(info.token)
  assert.equal(answer.status, 200, answer.text)
  assert.deepEqual(answer.body.data, plain.body.data)
  assert.equal((await unwrap(info.token)).body.errors[0], INVALID)
  assert.equal((await world.ask('POST', 'sys/wrapping/lookup', { token: info.token })).body.errors[0], INVALID)
  const left = world.store.paths('').filter((path) => /^core\/wrap|\/(response|wrapinfo)$/.test(path))
  assert.deepEqual(left, [], 'nothing is left of it')
})

test('of fifty concurrent callers exactly one unwraps the answer', async (t) => {
  const { unwrap, world, wrap } = await opened(t)
  for (const kind of ['field', 'client', 'old'] as const) {
    const { token } = await wrap()
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => {
        if (kind === 'old') return world.ask('GET', 'cubbyhole/response', undefined, { token })
        return unwrap(token, kind === 'client' ? token : world.rootToken)
      }),
    )
    assert.equal(answers.filter(({ text }) => text.includes('once')).length, 1, kind)
  }
})

test('any use of a wrapping token is its last one', async (t) => {
  const { unwrap, world, wrap } = await opened(t)
  const { token } = await wrap()
  assert.equal((await world.ask('GET', 'kept/data/db', undefined, { token })).status, 403)
  assert.equal((await unwrap(token)).body.errors[0], INVALID)
})

test('an invalid, expired or modified wrapping token is refused', async (t) => {
  const { unwrap, world, wrap } = await opened(t)
  for (const token of ['bad', world.rootToken, 'eyJhbGciOiJFUzUxMiIsInR5cCI6IkpXVCJ9.e30.AAAA']) {
    assert.equal((await unwrap(token)).body.errors[0], INVALID, token)
  }
  assert.equal((await world.ask('GET', 'kept/data/db')).status, 200, 'the root token is none the worse')
  const none = await world.ask('POST', 'sys/wrapping/unwrap', {}, { token: null })
  assert.equal(none.status, 403)
  assert.equal(none.body.errors[0], 'error validating wrapping token: token is empty')
  const { token } = await wrap()
  world.nowMs += 61_000
  assert.equal((await unwrap(token)).body.errors[0], INVALID)
  const jwt = (await wrap('kept/data/db', { 'X-Vault-Wrap-Format': 'jwt' })).token
  const [head = '', claims = '', signature = ''] = jwt.split('.')
  const read = JSON.parse(Buffer.from(claims, 'base64url').toString()) as { jti: string; exp: number }
  const later = Buffer.from(JSON.stringify({ ...read, exp: read.exp + 1000 })).toString('base64url')
  assert.equal((await unwrap([head, later, signature].join('.'))).body.errors[0], INVALID)
  const unsigned = Buffer.from('{"alg":"none","typ":"JWT"}').toString('base64url')
  assert.equal((await unwrap([unsigned, claims, ''].join('.'))).body.errors[0], INVALID)
  assert.equal((await unwrap(jwt)).status, 200)
  assert.equal((await unwrap(read.jti)).body.errors[0], INVALID, 'the token in it is the same one')
})

test('answers with a token, a lease or data are wrapped, and empty answers are not', async (t) => {
  const { unwrap, world, wrap } = await opened(t)
  const created = await wrap('auth/token/create', {}, 'POST', { policies: ['default'] })
  const auth = (await unwrap(created.token)).body.auth
  assert.equal(created.wrapped_accessor, auth['accessor'])
  const headers = { 'X-Vault-Wrap-TTL': '60' }
  assert.equal((await world.ask('POST', 'kept/config', { max_versions: 3 }, { headers })).status, 204)
  assert.equal((await world.ask('GET', 'kept/data/missing', undefined, { headers })).status, 404)
  assert.equal((await world.ask('GET', 'kept/data/db', undefined, { headers, token: null })).status, 403)
  await world.ask('DELETE', 'kept/data/db')
  const deleted = await wrap()
  assert.match((await unwrap(deleted.token)).text, /"deletion_time":"2/)
  assert.equal((await world.ask('POST', 'sys/wrapping/wrap', { a: 1 })).status, 400)
  const exact = await wrap('sys/wrapping/wrap', {}, 'POST', '{"n":12345678901234567890}')
  assert.match((await unwrap(exact.token)).text, /12345678901234567890/)
  assert.equal(
    (await world.ask('GET', 'kept/data/db', undefined, { headers: { 'X-Vault-Wrap-TTL': '-5' } })).status,
    400,
  )
  assert.equal(
    (await world.ask('GET', 'kept/data/db', undefined, { headers: { 'X-Vault-Wrap-TTL': '9999h' } })).status,
    400,
  )
})

test('rewrap moves the answer to a new token in one commit', async (t) => {
  const { unwrap, world, wrap } = await opened(t)
  const first = await wrap()
  const answer = await world.ask('POST', 'sys/wrapping/rewrap', { token: first.token })
  const second = answer.body['wrap_info'] as Wrapped
  assert.equal(second.ttl, 60)
  assert.equal(second.creation_path, 'kept/data/db')
  assert.equal((await unwrap(first.token)).body.errors[0], INVALID)
  assert.match((await unwrap(second.token)).text, /once/)
})

test('a policy can require wrapped answers within its TTL limits', async (t) => {
  const { world } = await opened(t)
  const rule = 'path "kept/data/db" { capabilities = ["read"] min_wrapping_ttl = "1m" max_wrapping_ttl = "2m" }'
  await world.ask('POST', 'sys/policies/acl/wrapped', { policy: rule })
  const made = await world.ask('POST', 'auth/token/create', { policies: ['wrapped'] })
  const token = String(made.body.auth['client_token'])
  const read = async (ttl?: string) => {
    const headers: Record<string, string> = ttl === undefined ? {} : { 'X-Vault-Wrap-TTL': ttl }
    return (await world.ask('GET', 'kept/data/db', undefined, { token, headers })).status
  }
  assert.deepEqual([await read(), await read('30s'), await read('90s'), await read('5m')], [403, 403, 200, 403])
})

test('a wrapping token survives a seal and a restart', async (t) => {
  const { world, wrap } = await opened(t)
  const { token } = await wrap('kept/data/db', { 'X-Vault-Wrap-Format': 'jwt' })
  await world.close()
  const again = await CoreWorld.reopen(world.directory, world.keys, { engines: [kv] })
  t.after(() => again.store.close())
  assert.match((await again.ask('POST', 'sys/wrapping/unwrap', { token })).text, /once/)
  assert.equal((await again.ask('POST', 'sys/wrapping/unwrap', { token })).status, 400)
  await again.core.seal()
})

test('without a token no answer is wrapped, and unwrap with a wrap TTL does not lose the answer', async (t) => {
  const { unwrap, world, wrap } = await opened(t)
  const headers = { 'X-Vault-Wrap-TTL': '60' }
  const entries = () => world.store.paths('').length
  const before = entries()
  const { token } = await wrap()
  const withOne = entries()
  for (const path of ['sys/wrapping/pubkey', 'sys/internal/ui/mounts']) {
    const answer = await world.ask('GET', path, undefined, { headers, token: null })
    assert.equal(answer.status, 400, answer.text)
  }
  const lookup = await world.ask('POST', 'sys/wrapping/lookup', { token }, { headers, token: null })
  assert.equal(lookup.status, 400)
  const twice = await world.ask('POST', 'sys/wrapping/unwrap', { token }, { headers, token: null })
  assert.equal(twice.status, 400)
  assert.ok(withOne > before)
  assert.ok(entries() <= withOne + 1, 'no more than the key of the server')
  assert.match((await unwrap(token)).text, /once/)
})
