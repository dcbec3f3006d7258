import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MfaWorld, wrongCode } from '../helpers/mfa-world.ts'

const PROTECTED = `
path "cubbyhole/open" { capabilities = ["create", "read", "update"] }
path "cubbyhole/safe" { capabilities = ["create", "read", "update", "delete", "list"] mfa_methods = ["app"] }
`

test('a path with mfa_methods is read with a code of the method, each code once', async (t) => {
  const mfa = await MfaWorld.open(t)
  await mfa.method('app')
  await mfa.policy('p', PROTECTED)
  const ada = await mfa.person('ada', ['p'])
  const { secret } = await mfa.enrol('app', ada)
  const none = await mfa.read(ada, 'cubbyhole/safe')
  assert.equal(none.status, 403)
  assert.match(none.body.errors[0] ?? '', /second factor.*app.*X-Vault-MFA/)
  const code = mfa.code(secret)
  const wrong = await mfa.read(ada, 'cubbyhole/safe', `app:${wrongCode(secret, mfa.world.nowMs)}`)
  assert.match(wrong.body.errors[0] ?? '', /wrong or was already used/)
  assert.equal((await mfa.read(ada, 'cubbyhole/safe', `app:${code}`)).status, 404)
  assert.equal((await mfa.read(ada, 'cubbyhole/safe', `app:${code}`)).text, wrong.text, 'used')
  const write = await mfa.world.ask(
    'POST',
    'cubbyhole/safe',
    { x: 1 },
    {
      token: ada.token,
      headers: { 'X-Vault-MFA': `app:passcode=${mfa.code(secret, 1)}` },
    },
  )
  assert.equal(write.status, 204)
  assert.deepEqual((await mfa.read(ada, 'cubbyhole/safe', `app:${mfa.code(secret, -1)}`)).body.data, { x: 1 })
})

const rule = (path: string, ...names: string[]) =>
  `path "cubbyhole/${path}" { capabilities = ["read"] mfa_methods = ${JSON.stringify(names)} }\n`

test('a refusal names the remedy, and does not reveal which of several codes was wrong', async (t) => {
  const mfa = await MfaWorld.open(t)
  await mfa.method('app')
  await mfa.method('second', { require_confirmation: true })
  await mfa.policy(
    'p',
    rule('one', 'app') + rule('two', 'second') + rule('both', 'app', 'second') + rule('gone', 'gone'),
  )
  const ada = await mfa.person('ada', ['p'])
  const why = async (path: string, ...codes: string[]) => {
    const { body, status } = await mfa.read(ada, `cubbyhole/${path}`, ...codes)
    assert.equal(status, 403)
    return (body.errors[0] ?? '')
      .replace(/^permission denied: /, '')
      .replace(/\. A policy requires a second factor.*/, '')
  }
  const noSecret = 'the entity has no secret for the MFA method app: generate one, or ask an administrator for one'
  assert.equal(await why('one'), noSecret)
  assert.equal(await why('one', 'app:123456'), noSecret)
  const app = await mfa.enrol('app', ada)
  const second = await mfa.enrol('second', ada)
  const unconfirmed =
    'the secret of the entity for the MFA method second is not confirmed: confirm it with its first code'
  assert.equal(await why('two', `second:${mfa.code(second.secret)}`), unconfirmed)
  assert.equal(await why('one'), 'no code for MFA method app was sent')
  assert.equal(await why('one', 'app'), 'no code for MFA method app was sent')
  assert.equal(
    await why('one', 'other:123456'),
    'a code was sent for another or an unknown MFA method, and none for MFA method app',
  )
  assert.equal(await why('gone'), 'the policy names the unknown MFA method gone')
  const confirm = { entity_id: ada.entityId, passcode: mfa.code(second.secret) }
  const at = 'sys/mfa/method/totp/second/admin-confirm'
  assert.equal((await mfa.world.ask('POST', at, confirm)).status, 204)
  const again = await mfa.world.ask('POST', at, { ...confirm, passcode: mfa.code(second.secret, 1) })
  assert.match(again.body.errors[0] ?? '', /it is already active$/)
  const wrongApp = [`app:${wrongCode(app.secret, mfa.world.nowMs)}`, `second:${mfa.code(second.secret, 1)}`]
  const wrongSecond = [`app:${mfa.code(app.secret)}`, `second:${wrongCode(second.secret, mfa.world.nowMs)}`]
  const wrong = 'the code for one of the MFA methods app or second is wrong or was already used'
  assert.deepEqual([await why('both', ...wrongApp), await why('both', ...wrongSecond)], [wrong, wrong])
  const used = mfa.code(app.secret, 1)
  assert.equal((await mfa.read(ada, 'cubbyhole/one', `app:${used}`)).status, 404)
  const wrongAlone = await mfa.read(ada, 'cubbyhole/one', `app:${wrongCode(app.secret, mfa.world.nowMs)}`)
  assert.equal((await mfa.read(ada, 'cubbyhole/one', `app:${used}`)).text, wrongAlone.text)
})

test('a trailing slash needs the code of the path', async (t) => {
  const mfa = await MfaWorld.open(t)
  await mfa.method('app')
  const own = 'path "auth/token/lookup-self" { capabilities = ["read"] mfa_methods = ["app"] }'
  await mfa.policy('p', `path "auth/token/*" { capabilities = ["read"] } ${own}`)
  const ada = await mfa.person('ada', ['p'])
  const { secret } = await mfa.enrol('app', ada)
  for (const path of ['auth/token/lookup-self', 'auth/token/lookup-self/']) {
    assert.equal((await mfa.read(ada, path)).status, 403, path)
  }
  assert.equal((await mfa.read(ada, 'auth/token/lookup-self/', `app:${mfa.code(secret)}`)).status, 200)
})

test('a method that a policy adds while a code is validated is required', async (t) => {
  const mfa = await MfaWorld.open(t)
  await mfa.method('app')
  await mfa.method('second')
  await mfa.policy('p', rule('one', 'app'))
  const ada = await mfa.person('ada', ['p'])
  const { secret } = await mfa.enrol('app', ada)
  // It is written before the code is, which the request has still to wait for.
  const changed = mfa.policy('p', rule('one', 'app', 'second'))
  const answer = await mfa.read(ada, 'cubbyhole/one', `app:${mfa.code(secret)}`)
  await changed
  assert.equal(answer.status, 403)
  assert.match(answer.body.errors[0] ?? '', /permission denied\n\n$/)
})

test('an authenticator application shows the name of the entity, or of its alias, and not an ID', async (t) => {
  const mfa = await MfaWorld.open(t)
  await mfa.method('app')
  const label = async (name: string) => {
    const { url } = await mfa.enrol('app', await mfa.person(name, []))
    return decodeURIComponent(new URL(url).pathname.split('/').at(-1) ?? '')
  }
  assert.equal(await label('ada'), 'outpost:ada')
  const { body } = await mfa.world.ask('POST', 'identity/entity', {})
  const entityId = String(body.data['id'])
  const { accessor } = (await mfa.world.ask('GET', 'sys/auth')).body.data['token/'] as { accessor: string }
  const alias = { name: 'grace@example.com', canonical_id: entityId, mount_accessor: accessor }
  await mfa.world.ask('POST', 'identity/entity-alias', alias)
  const { url } = await mfa.enrol('app', { entityId, token: '' })
  assert.match(decodeURIComponent(url), /outpost:grace@example\.com\?/)
})

test('a name that does not fit the QR code of the method is replaced by the ID', async (t) => {
  const mfa = await MfaWorld.open(t)
  await mfa.method('app', { qr_size: 64, key_size: 70 })
  const ada = await mfa.person('a'.repeat(100), [])
  assert.match((await mfa.enrol('app', ada)).url, new RegExp(`outpost:${ada.entityId}`))
})

test('several policies for one path require the union of their methods, and a removed method allows no caller', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  for (const name of ['app', 'second']) await mfa.method(name)
  const second = String((await world.ask('GET', 'sys/mfa/method/totp/second')).body.data['id'])
  await mfa.policy('p', PROTECTED)
  await mfa.policy('q', `path "cubbyhole/safe" { capabilities = ["read"] mfa_methods = ["${second}", "app"] }`)
  await mfa.policy('r', 'path "cubbyhole/safe" { capabilities = ["read"] }')
  const ada = await mfa.person('ada', ['p', 'q', 'r'])
  const [one, two] = [await mfa.enrol('app', ada), await mfa.enrol('second', ada)]
  const read = async (...codes: string[]) => (await mfa.read(ada, 'cubbyhole/safe', ...codes)).status
  assert.deepEqual([await read(), await read(`app:${mfa.code(one.secret)}`)], [403, 403])
  assert.equal(await read(`app:${mfa.code(one.secret)}`, `second:${mfa.code(two.secret)}`), 404)
  assert.equal(await read(`${second}:${mfa.code(two.secret, 1)}`, `app:${mfa.code(one.secret, 1)}`), 404)
  assert.equal((await world.ask('DELETE', 'sys/mfa/method/totp/second?force=true')).status, 204)
  assert.equal(await read(`app:${mfa.code(one.secret, -1)}`), 403)
  const alone = await mfa.person('bob', ['r'])
  assert.equal((await mfa.read(alone, 'cubbyhole/safe')).status, 404)
})

test('a path with mfa_methods refuses tokens without an entity or with a disabled one, and allows root', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('app')
  await mfa.policy('p', PROTECTED)
  const ada = await mfa.person('ada', ['p'])
  const { secret } = await mfa.enrol('app', ada)
  const orphan = await world.ask('POST', 'auth/token/create', { policies: ['p'] })
  const token = String(orphan.body.auth['client_token'])
  const without = await mfa.read({ token, entityId: '' }, 'cubbyhole/safe', `app:${mfa.code(secret)}`)
  assert.match(without.body.errors[0] ?? '', /^permission denied: this token has no entity/)
  await world.ask('POST', `identity/entity/id/${ada.entityId}`, { disabled: true })
  assert.equal((await mfa.read(ada, 'cubbyhole/safe', `app:${mfa.code(secret)}`)).status, 403)
  assert.equal((await world.ask('GET', 'cubbyhole/safe')).status, 404)
})
