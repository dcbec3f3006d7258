/**
 * The holder of a stolen token looks for a way to a secret that its policy gives only with a code: other endpoints of the
 * engine, other spellings of the path, tokens of other kinds, wrapped answers, codes of others, codes that were used.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { kv } from '../../src/engines/kv/kv.ts'
import type { CoreAnswer } from '../helpers/core-world.ts'
import { MfaWorld, type Person } from '../helpers/mfa-world.ts'

const VALUE = 'the-protected-value'
const ALL = '["create", "read", "update", "patch", "delete", "list", "scan", "sudo"]'
const POLICY = `
path "secret/*" { capabilities = ${ALL} }
path "auth/token/*" { capabilities = ${ALL} }
path "sys/wrapping/*" { capabilities = ${ALL} }
path "sys/capabilities-self" { capabilities = ["update"] }
path "secret/data/app" { capabilities = ${ALL} mfa_methods = ["phone"] }
path "secret/data/both" { capabilities = ["read"] mfa_methods = ["phone", "key"] }
`

async function opened(t: TestContext): Promise<{ mfa: MfaWorld; mallory: Person; secret: string }> {
  const mfa = await MfaWorld.open(t, { engines: [kv] })
  const { world } = mfa
  await world.ask('POST', 'sys/mounts/secret', { type: 'kv', options: { version: '2' } })
  for (const name of ['app', 'both']) await world.ask('POST', `secret/data/${name}`, { data: { value: 'old-value' } })
  world.nowMs += 30_000
  for (const name of ['app', 'both']) await world.ask('POST', `secret/data/${name}`, { data: { value: VALUE } })
  await mfa.method('phone')
  await mfa.method('key')
  await mfa.policy('p', POLICY)
  const mallory = await mfa.person('mallory', ['p'])
  const { secret } = await mfa.enrol('phone', mallory)
  return { mfa, mallory, secret }
}

function hidden(answer: CoreAnswer, what: string): void {
  assert.ok(!answer.text.includes(VALUE) && !answer.text.includes('old-value'), `${what}: ${answer.text}`)
}

/** Ways around `GET secret/data/app`. */
const WAYS: readonly (readonly [string, string, unknown?])[] = [
  ['GET', 'secret/data/app'],
  ['GET', 'secret/data/app/'],
  ['GET', 'secret/data//app'],
  ['GET', 'secret//data/app'],
  ['GET', '/secret/data/app'],
  ['GET', 'secret/data/app?version=1'],
  ['GET', 'secret/data/app?version=01'],
  ['GET', `secret/data/app?at=${new Date(1_800_000_010_000).toISOString()}`],
  ['GET', 'secret/data/./app'],
  ['GET', 'secret/data/x/../app'],
  ['GET', 'secret/data/APP'],
  ['GET', 'secret/data/app%00'],
  ['GET', 'secret/app'],
  ['GET', 'secret/data/app?list=true'],
  ['LIST', 'secret/data/app'],
  ['PATCH', 'secret/data/app', { data: { more: 1 } }],
  ['POST', 'secret/data/app', { data: { taken: 'over' } }],
  ['DELETE', 'secret/data/app'],
  ['GET', 'secret/diff/app?from=1&to=2'],
  ['GET', 'secret/diff/app'],
  ['POST', 'secret/copy/app', { to: 'mine', destination: 'mine' }],
  ['POST', 'secret/move/app', { to: 'mine', destination: 'mine' }],
  ['GET', 'secret/data/mine'],
  ['GET', 'secret/export/'],
  ['GET', 'secret/export/app?format=env'],
  ['GET', 'secret/export/?format=json'],
  ['GET', 'secret/search/?q=app'],
  ['POST', 'secret/search/', { query: 'app' }],
  ['GET', 'secret/subkeys/app'],
  ['GET', 'secret/metadata/app'],
  ['LIST', 'secret/metadata'],
  ['LIST', 'secret/detailed-metadata'],
  ['GET', 'secret/watch/?cursor='],
  ['POST', 'secret/transaction', { operations: [{ op: 'get', path: 'app' }] }],
  ['POST', 'secret/transaction', { operations: [{ operation: 'read', path: 'app' }] }],
  ['POST', 'secret/import/', { secrets: { app: { data: { taken: 'over' } } } }],
  ['GET', 'sys/internal/ui/mounts/secret/data/app'],
  ['POST', 'sys/capabilities-self', { path: 'secret/data/app' }],
]

test('no other endpoint and no other spelling reads or changes the value without a code', async (t) => {
  const { mallory, mfa } = await opened(t)
  const { world } = mfa
  for (const [method, path, body] of WAYS) {
    for (const headers of [
      {},
      { 'X-Vault-MFA': 'phone' },
      { 'X-Vault-MFA': 'phone:000000' },
      { 'X-Vault-Wrap-TTL': '60s' },
    ]) {
      const given: Readonly<Record<string, string>> = headers
      const answer = await world.ask(method, path, body, { token: mallory.token, headers: given })
      hidden(answer, `${method} ${path}`)
      const wrapping = answer.body['wrap_info'] as { readonly token: string } | null | undefined
      if (!wrapping) continue
      hidden(await world.ask('POST', 'sys/wrapping/unwrap', {}, { token: wrapping.token }), `unwrapped ${path}`)
    }
  }
  const kept = await world.ask('GET', 'secret/data/app')
  assert.deepEqual(kept.body.data['data'], { value: VALUE })
  assert.equal((await world.ask('GET', 'secret/data/mine')).status, 404)
  assert.equal((await world.ask('GET', 'secret/metadata/app')).body.data['current_version'], 2)
})

test('children, orphans and batch tokens need a code and get the value with a code of their entity', async (t) => {
  const { mallory, mfa, secret } = await opened(t)
  const { world } = mfa
  const codes = [-1, 0, 1].map((periods) => mfa.code(secret, periods))
  for (const [path, body] of [
    ['auth/token/create', { policies: ['p'] }],
    ['auth/token/create', { policies: ['p'], type: 'batch' }],
    ['auth/token/create-orphan', { policies: ['p'] }],
  ] as const) {
    const made = await world.ask('POST', path, body, { token: mallory.token })
    const token = String(made.body.auth['client_token'])
    const child = { ...mallory, token }
    hidden(await mfa.read(child, 'secret/data/app'), path)
    const code = codes.pop() ?? ''
    const answer = await mfa.read(child, 'secret/data/app', `phone:${code}`)
    const hasEntity = made.body.auth['entity_id'] !== ''
    assert.equal(hasEntity, !path.endsWith('orphan'))
    if (hasEntity) assert.equal(answer.status, 200, answer.text)
    else hidden(answer, 'without an entity')
    if (hasEntity) hidden(await mfa.read(mallory, 'secret/data/app', `phone:${code}`), 'a used code')
  }
})

test('a code of another entity or method is refused, and so is one code where two methods are required', async (t) => {
  const { mallory, mfa, secret } = await opened(t)
  const bob = await mfa.person('bob', ['p'])
  const { secret: bobs } = await mfa.enrol('phone', bob)
  hidden(await mfa.read(mallory, 'secret/data/app', `phone:${mfa.code(bobs)}`), 'of another entity')
  const { secret: keys } = await mfa.enrol('key', mallory)
  hidden(await mfa.read(mallory, 'secret/data/app', `key:${mfa.code(keys)}`), 'of another method')
  hidden(await mfa.read(mallory, 'secret/data/both', `phone:${mfa.code(secret)}`), 'one of two')
  hidden(await mfa.read(mallory, 'secret/data/both', `phone:${mfa.code(secret)}`, 'key:000000'), 'one wrong')
  const both = [`phone:${mfa.code(secret, 1)}`, `key:${mfa.code(keys, 1)}`]
  assert.equal((await mfa.read(mallory, 'secret/data/both', ...both)).status, 200)
  hidden(await mfa.read(mallory, 'secret/data/both', ...both), 'used')
})

test('with a code a version can be read by its number and by its time', async (t) => {
  const { mallory, mfa, secret } = await opened(t)
  const time = new Date(1_800_000_010_000).toISOString()
  const old = await mfa.read(mallory, 'secret/data/app?version=1', `phone:${mfa.code(secret, -1)}`)
  assert.equal(old.status, 200, old.text)
  const then = await mfa.read(mallory, `secret/data/app?at=${time}`, `phone:${mfa.code(secret)}`)
  assert.deepEqual([then.status, then.text.includes('old-value')], [200, true], then.text)
})
