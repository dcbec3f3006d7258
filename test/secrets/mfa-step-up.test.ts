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
  assert.equal((await mfa.read(ada, 'cubbyhole/safe', `app:${wrongCode(secret, mfa.world.nowMs)}`)).text, none.text)
  assert.equal((await mfa.read(ada, 'cubbyhole/safe', `app:${code}`)).status, 404)
  assert.equal((await mfa.read(ada, 'cubbyhole/safe', `app:${code}`)).text, none.text, 'used')
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

test('rules of several policies for one path ask for the union, by names and IDs; a method that is gone lets nobody in', async (t) => {
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

test('tokens without an entity, of a disabled one, and the root token', async (t) => {
  const mfa = await MfaWorld.open(t)
  const { world } = mfa
  await mfa.method('app')
  await mfa.policy('p', PROTECTED)
  const ada = await mfa.person('ada', ['p'])
  const { secret } = await mfa.enrol('app', ada)
  const orphan = await world.ask('POST', 'auth/token/create', { policies: ['p'] })
  const token = String(orphan.body.auth['client_token'])
  const without = await mfa.read({ token, entityId: '' }, 'cubbyhole/safe', `app:${mfa.code(secret)}`)
  assert.equal(without.text, (await mfa.read(ada, 'cubbyhole/safe')).text)
  await world.ask('POST', `identity/entity/id/${ada.entityId}`, { disabled: true })
  assert.equal((await mfa.read(ada, 'cubbyhole/safe', `app:${mfa.code(secret)}`)).status, 403)
  assert.equal((await world.ask('GET', 'cubbyhole/safe')).status, 404)
})
