/** `outpost operator usage` and `sys/internal/counters/usage`, against a whole server. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { freshServer, jsonOf } from '../helpers/secrets-server.ts'

interface Usage {
  entities: number
  groups: number
  tokens: { service: number; root: number; periodic: number; by_policy: object; by_auth_method: object }
  leases: { total: number }
  mounts: Record<string, unknown>[]
  policies: number
  quotas: number
  store: { store_bytes: number }
}

test('counts tokens by policy and method, entities, and the items of each mount', async (t) => {
  const { keys, run, token } = await freshServer(t)
  const done = async (line: string, input = '') => {
    const ran = await run(line, input, token)
    assert.equal(ran.code, 0, `${line}: ${ran.stderr}`)
  }
  const usage = async () => (await jsonOf(run, 'operator usage', token)) as unknown as Usage
  for (const key of keys.slice(0, 2)) assert.equal((await run('operator unseal -', key)).code, 0)
  const before = await usage()
  assert.deepEqual([before.tokens.service, before.tokens.root, before.entities, before.leases.total], [1, 1, 0, 0])
  for (const line of [
    'secrets enable -version=2 -path=app kv',
    'secrets enable totp',
    'auth enable userpass',
    'kv put app/one a=1',
    'kv put app/one a=2',
    'kv put app/folder/two a=1',
    'kv put app/gone a=1',
    'kv metadata delete app/gone',
    'policy write readers -',
    'write auth/userpass/users/ann password=pw-of-ann policies=readers',
    'quota write all rate=1000',
    'token create -policy=readers -period=1h',
    'token create -policy=readers -ttl=1h',
    'token create -type=batch -policy=readers -ttl=1h',
    'entity write ops',
    'group write team',
  ]) {
    await done(line, 'path "app/*" { capabilities = ["read"] }')
  }
  assert.equal((await run('login -method=userpass -no-store username=ann password=pw-of-ann')).code, 0)
  const after = await usage()
  assert.deepEqual(after.tokens.by_policy, { default: 3, readers: 3, root: 1 })
  assert.deepEqual(after.tokens.by_auth_method, { 'auth/token/': 3, 'auth/userpass/': 1 })
  assert.deepEqual([after.tokens.service, after.tokens.periodic], [4, 1])
  // The login made an entity.
  assert.deepEqual([after.entities, after.groups, after.quotas], [2, 1, 1])
  assert.equal(after.policies, before.policies + 1)
  const mount = (path: string) => after.mounts.find((each) => each['path'] === path)
  assert.deepEqual([mount('app/')?.['secrets'], mount('app/')?.['type']], [2, 'kv'])
  assert.ok(Number(mount('app/')?.['entries']) >= 4)
  assert.deepEqual([mount('totp/')?.['keys'], mount('auth/userpass/')?.['users']], [0, 1])
  assert.equal(mount('sys/'), undefined)
  assert.ok(after.store.store_bytes > 0)
  const table = (await run('operator usage', '', token)).stdout
  assert.match(table, /^Service Tokens +4$/m)
  assert.match(table, /^app\/ +kv +2 secrets +\d+ +0$/m)
  assert.match(table, /^readers +3$/m)
  await t.test('needs sudo, and an unsealed server', async () => {
    const made = (await jsonOf(run, 'token create -policy=readers', token))['auth'] as { client_token: string }
    const refused = await run('operator usage', '', made.client_token)
    assert.deepEqual([refused.code, refused.stdout], [1, ''])
    assert.match(refused.stderr, /permission denied/)
    await done('operator seal -yes')
    const sealed = await run('operator usage', '', token)
    assert.equal(sealed.code, 1)
    assert.match(sealed.stderr, /the server is sealed, next: outpost operator unseal/)
  })
})
