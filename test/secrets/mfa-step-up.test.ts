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
