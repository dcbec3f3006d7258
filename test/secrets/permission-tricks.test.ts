/** Names and paths that are written so that they pass by a rule, and that a rule must not miss. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../helpers/core-world.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { make, writePolicy } from './token-world.ts'

test('a role with allowed prefixes does not allow a list with other names', async (t) => {
  const world = await CoreWorld.open(t)
  await writePolicy(world, 'ops', 'path "sys/mounts" { capabilities = ["read"] }')
  await writePolicy(world, 'dev-a', 'path "sys/host-info" { capabilities = ["read"] }')
  await writePolicy(world, 'maker', 'path "auth/token/create/dev" { capabilities = ["update"] }')
  await world.ask('POST', 'auth/token/roles/dev', { allowed_policies_glob: ['dev-*'] })
  const { token: maker } = await make(world, { policies: ['maker'] })
  const { token: known } = await make(world, { policies: ['dev-a', 'ops'] })
  // What these policies amount to together is kept from now on.
  assert.equal((await world.ask('GET', 'sys/mounts', undefined, { token: known })).status, 200)
  for (const name of ['dev-a\nops', 'dev-a\u0000ops', 'dev-a","ops', 'dev-a,ops', 'dev-\ud800']) {
    const { body, status } = await world.ask('POST', 'auth/token/create/dev', { policies: [name] }, { token: maker })
    if (status === 400) continue
    const token = String(body.auth['client_token'])
    assert.equal((await world.ask('GET', 'sys/mounts', undefined, { token })).status, 403, JSON.stringify(name))
  }
})

test('invalid policy names are refused in every field', async (t) => {
  const world = await CoreWorld.open(t)
  const [rare, long] = [encodeURIComponent('中'.repeat(512)), 'y'.repeat(5000)]
  for (const policies of ['\ud800', ['\ud800'], ['a\nb'], ['y'.repeat(600)], ['中'.repeat(512)]]) {
    assert.equal((await world.ask('POST', 'auth/token/create', { policies })).status, 400)
    assert.equal((await world.ask('POST', 'auth/token/create-orphan', { policies })).status, 400)
  }
  assert.equal((await world.ask('POST', 'auth/token/roles/odd', { allowed_policies: ['\ud800'] })).status, 204)
  assert.equal((await world.ask('POST', 'auth/token/create/odd')).status, 400)
  for (const name of [rare, long]) {
    assert.equal((await world.ask('PUT', `sys/policies/acl/${name}`, { policy: 'path "a" {}' })).status, 400)
    assert.equal((await world.ask('GET', `sys/policies/acl/${name}`)).status, 404)
    assert.equal((await world.ask('DELETE', `sys/policies/acl/${name}`)).status, 400)
    assert.equal((await world.ask('DELETE', `sys/policy/${name}`)).status, 400)
    assert.equal((await world.ask('DELETE', `auth/token/roles/${name}`)).status, 204)
    assert.equal((await world.ask('GET', `auth/token/roles/${name}`)).status, 404)
  }
})

test('a denied path is denied with a trailing slash, and a denied policy in every spelling', async (t) => {
  const world = await CoreWorld.open(t, { engines: [kv] })
  assert.equal((await world.ask('POST', 'sys/mounts/secret', { type: 'kv-v2' })).status, 204)
  assert.equal((await world.ask('POST', 'auth/token/roles/one', {})).status, 204)
  await writePolicy(world, 'prod', 'path "a" { capabilities = ["read"] }')
  await writePolicy(
    world,
    'most',
    `path "*" { capabilities = ["create", "read", "update", "patch", "delete", "list", "sudo"] }
     path "sys/mounts" { capabilities = ["deny"] }
     path "sys/mounts/secret" { capabilities = ["deny"] }
     path "sys/policies/acl/prod" { capabilities = ["deny"] }
     path "sys/policy/prod" { capabilities = ["deny"] }
     path "auth/token/roles/+" { capabilities = ["deny"] }
     path "sys/host-info" { capabilities = ["read"] }`,
  )
  const { token } = await make(world, { policies: ['most'] })
  for (const [method, path] of [
    ['GET', 'sys/mounts'],
    ['GET', 'sys/mounts/secret'],
    ['DELETE', 'sys/mounts/secret'],
    ['GET', 'auth/token/roles/one'],
    ['DELETE', 'auth/token/roles/one'],
  ] as const) {
    for (const written of [path, `${path}/`, `${path}//`, `/${path}/`]) {
      assert.equal((await world.ask(method, written, undefined, { token })).status, 403, `${method} ${written}`)
    }
  }
  for (const path of ['sys/policies/acl/Prod', 'sys/policies/acl/PROD', 'sys/policy/pROD']) {
    for (const [method, body] of [['GET'], ['DELETE'], ['POST', { policy: 'path "b" {}' }]] as const) {
      assert.equal((await world.ask(method, path, body, { token })).status, 403, `${method} ${path}`)
    }
  }
  assert.equal((await world.ask('PATCH', 'sys/policies/acl/Prod', { ttl: 1 }, { token })).status, 403)
  assert.equal((await world.ask('GET', 'sys/policies/acl/Most', undefined, { token })).status, 200)
  // Sudo is asked of both.
  assert.equal((await world.ask('GET', 'sys/host-info/', undefined, { token })).status, 200)
  assert.equal((await world.ask('GET', 'sys/mounts/secret')).status, 200)
  assert.equal((await world.ask('GET', 'sys/policies/acl/prod')).status, 200)
})

test('names of Object.prototype are ordinary names', async (t) => {
  const world = await CoreWorld.open(t)
  for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) {
    for (const [path, status] of [
      [`sys/config/ui/headers/${name}`, 404],
      [`sys/config/auditing/request-headers/${name}`, 400],
    ] as const) {
      assert.equal((await world.ask('GET', path)).status, status, path)
    }
  }
  assert.equal((await world.ask('POST', 'sys/config/ui/headers/constructor', { values: 'x' })).status, 400)
  const meta: unknown = JSON.parse('{"__proto__":"a","constructor":"b","prototype":"c","x":"d"}')
  for (const type of ['service', 'batch']) {
    const { token } = await make(world, { meta, type, ttl: '1h', policies: ['default'] })
    const { text } = await world.ask('GET', 'auth/token/lookup-self', undefined, { token })
    assert.ok(text.includes(`"meta":${JSON.stringify(meta)}`), text)
  }
})

test('a verification of key shares that is canceled during the last share changes nothing', async (t) => {
  const world = await CoreWorld.open(t)
  const split = { secret_shares: 1, secret_threshold: 1 }
  const [before, zeros] = [world.unsealKey.toString('hex'), '00'.repeat(32)]
  for (let turns = 0; turns < 30; turns++) {
    const started = await world.ask('PUT', 'sys/rekey/init', { ...split, require_verification: true })
    const made = await world.ask('PUT', 'sys/rekey/update', { key: before, nonce: started.body['nonce'] })
    const nonce = made.body['verification_nonce']
    const verified = world.ask('PUT', 'sys/rekey/verify', { key: zeros, nonce })
    for (let turn = 0; turn < turns; turn++) await Promise.resolve()
    await world.ask('DELETE', 'sys/rekey/init')
    assert.equal((await verified).status, 400, `${turns} turns`)
  }
  await world.core.seal()
  assert.equal((await world.ask('PUT', 'sys/unseal', { key: zeros })).status, 400)
  assert.equal((await world.ask('PUT', 'sys/unseal', { key: before })).body['sealed'], false)
})

test('a denied value is denied in every spelling that its field parses to it, and under every name of the field', async (t) => {
  const world = await CoreWorld.open(t, { engines: [kv, quickUserpass] })
  assert.equal((await world.ask('POST', 'sys/mounts/secret', { type: 'kv-v2' })).status, 204)
  assert.equal((await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })).status, 204)
  await writePolicy(
    world,
    'narrow',
    `path "secret/destroy/+" { capabilities = ["update"] denied_parameters = { versions = ["1"] } }
     path "sys/auth/+/tune" { capabilities = ["update", "sudo"] denied_parameters = { default_lease_ttl = ["1h"] } }
     path "auth/token/create" { capabilities = ["update"] denied_parameters = { no_parent = ["true"] ttl = [] } }
     path "auth/userpass/users/denied" {
       capabilities = ["create", "update"]
       denied_parameters = { token_policies = ["admin"] period = ["1h"] }
     }
     path "auth/userpass/users/allowed" {
       capabilities = ["create", "update"]
       allowed_parameters = { token_policies = ["dev"] "*" = [] }
     }`,
  )
  const { token } = await make(world, { policies: ['narrow'] })
  const denied: readonly (readonly [string, Readonly<Record<string, unknown>>])[] = [
    ...['1', '01', '+1', '2,01', '2, +1', ['2', '01'], 1, true, [true]].map(
      (versions) => ['secret/destroy/a', { versions }] as const,
    ),
    ...['1h', '60m', '3600', '3600s', 3600].map(
      (default_lease_ttl) => ['sys/auth/userpass/tune', { default_lease_ttl }] as const,
    ),
    ...[true, 'true', 'TRUE', 'True', 'T', 't', '1', 1, 2].map(
      (no_parent) => ['auth/token/create', { no_parent }] as const,
    ),
    ['auth/token/create', { lease: '1h' }],
    ['auth/userpass/users/denied', { password: 'x', policies: 'Admin' }],
    ['auth/userpass/users/denied', { password: 'x', token_period: 3600 }],
    ['auth/userpass/users/denied', { password: 'x', period: '60m' }],
    ['auth/userpass/users/allowed', { password: 'x', policies: 'admin' }],
  ]
  for (const [path, body] of denied) {
    const { status, text } = await world.ask('POST', path, body, { token })
    assert.equal(status, 403, `${path} ${JSON.stringify(body)}: ${text}`)
  }
  const allowed: typeof denied = [
    ['secret/destroy/a', { versions: '2,3' }],
    ['sys/auth/userpass/tune', { default_lease_ttl: '2h' }],
    ['auth/token/create', { no_parent: 'F' }],
    ['auth/userpass/users/denied', { password: 'x', policies: 'dev', token_period: '2h' }],
    ['auth/userpass/users/allowed', { password: 'x', policies: 'dev', token_ttl: '2h' }],
  ]
  for (const [path, body] of allowed) {
    const { status, text } = await world.ask('POST', path, body, { token })
    assert.ok(status === 200 || status === 204, `${path} ${JSON.stringify(body)}: ${status} ${text}`)
  }
})
