import assert from 'node:assert/strict'
import { type TestContext, test } from 'node:test'
import { approle } from '../../src/auth/approle/approle.ts'
import { INVALID_REQUEST_ID } from '../../src/secrets/logins/validate-path.ts'
import type { CoreAnswer } from '../helpers/core-world.ts'
import { type Enrolled, MfaWorld, wrongCode } from '../helpers/mfa-world.ts'

interface Requirement {
  readonly mfa_request_id: string
  readonly mfa_constraints: Readonly<Record<string, { readonly any: readonly { readonly id: string }[] }>>
}

/** Logins of userpass need a code of `app`; ada has a secret. */
class LoginWorld extends MfaWorld {
  methodId = ''
  adaId = ''
  secret = ''

  static async ready(t: TestContext): Promise<LoginWorld> {
    const { world } = await MfaWorld.open(t, { engines: [approle] })
    const mfa = new LoginWorld(world)
    await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })
    await world.ask('POST', 'auth/userpass/users/ada', { password: 'pw', policies: 'default' })
    mfa.adaId = String((await mfa.login()).body.auth['entity_id'])
    await mfa.method('app')
    mfa.methodId = String((await world.ask('GET', 'sys/mfa/method/totp/app')).body.data['id'])
    mfa.secret = (await mfa.enrol('app', { entityId: mfa.adaId, token: '' })).secret
    await mfa.enforce('all', { auth_method_types: ['userpass'] })
    return mfa
  }

  async enforce(name: string, rule: Readonly<Record<string, unknown>>): Promise<CoreAnswer> {
    const body = { mfa_method_ids: [this.methodId], ...rule }
    return this.world.ask('POST', `identity/mfa/login-enforcement/${name}`, body)
  }

  login(code?: string, user = 'ada'): Promise<CoreAnswer> {
    const headers: Record<string, string> = code === undefined ? {} : { 'X-Vault-MFA': code }
    return this.world.ask('POST', `auth/userpass/login/${user}`, { password: 'pw' }, { token: null, headers })
  }

  async pending(user = 'ada'): Promise<string> {
    return requirementOf(await this.login(undefined, user)).mfa_request_id
  }

  validate(id: string, code: string, method = this.methodId): Promise<CoreAnswer> {
    const body = { mfa_request_id: id, mfa_payload: { [method]: [code] } }
    return this.world.ask('POST', 'sys/mfa/validate', body, { token: null })
  }
}

function requirementOf({ body, text }: CoreAnswer): Requirement {
  const requirement = body.auth['mfa_requirement']
  assert.ok(requirement, text)
  return requirement as Requirement
}

test('a login in two steps names the missing methods, then exchanges a code for the token, once per ID', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const first = await mfa.login()
  assert.deepEqual([first.body.auth['client_token'], first.body.auth['entity_id']], ['', ''])
  const { mfa_constraints: constraints, mfa_request_id: id } = requirementOf(first)
  assert.deepEqual(constraints, {
    all: { any: [{ type: 'totp', id: mfa.methodId, uses_passcode: true, name: 'app' }] },
  })
  const wrong = await mfa.validate(id, wrongCode(mfa.secret, mfa.world.nowMs))
  assert.equal(wrong.status, 403)
  assert.match(wrong.body.errors[0] ?? '', /^failed to satisfy enforcement all\. error: 2 errors occurred/)
  const done = await mfa.validate(id, mfa.code(mfa.secret))
  assert.deepEqual([done.status, done.body.auth['entity_id']], [200, mfa.adaId])
  const token = String(done.body.auth['client_token'])
  assert.equal((await mfa.world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status, 200)
  assert.deepEqual((await mfa.validate(id, mfa.code(mfa.secret, 1))).body.errors, [INVALID_REQUEST_ID])
})

test('a login in one step needs a code, and wrong and used codes are refused alike in both ways', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const code = mfa.code(mfa.secret)
  assert.notEqual((await mfa.login(`app:${code}`)).body.auth['client_token'], '')
  const used = await mfa.login(`${mfa.methodId}:passcode=${code}`)
  assert.deepEqual(
    [used.status, used.body.errors],
    [403, ['permission denied: the code for MFA method app is wrong or was already used']],
  )
  assert.equal((await mfa.login(`app:${wrongCode(mfa.secret, mfa.world.nowMs)}`)).text, used.text)
  assert.deepEqual((await mfa.login('app')).body.errors, ['permission denied: no code for MFA method app was sent'])
  const other = await mfa.validate(await mfa.pending(), code, 'other')
  assert.match(
    other.body.errors[0] ?? '',
    /\* a code was sent for another or an unknown MFA method, and none for MFA method app\n/,
  )
  await mfa.world.ask('POST', 'sys/mfa/method/totp/app/admin-destroy', { entity_id: mfa.adaId })
  const none = await mfa.login(`app:${code}`)
  assert.match(none.body.errors[0] ?? '', /^permission denied: the entity has no secret for the MFA method app/)
  const generated = await mfa.world.ask('POST', 'sys/mfa/method/totp/app/admin-generate', { entity_id: mfa.adaId })
  assert.equal(generated.status, 200)
  assert.equal((await mfa.validate(await mfa.pending(), code, 'app')).status, 403, 'used in the other way')
})

test('a wrong password with a right code gives no token and does not use up the code', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const headers = { 'X-Vault-MFA': `app:${mfa.code(mfa.secret)}` }
  const wrong = await mfa.world.ask('POST', 'auth/userpass/login/ada', { password: 'no' }, { token: null, headers })
  assert.equal(wrong.status, 400)
  assert.equal((await mfa.login(`app:${mfa.code(mfa.secret)}`)).status, 200)
})

test('an invalid payload and an unknown request ID are 400', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const id = await mfa.pending()
  const errors = async (body: object) =>
    (await mfa.world.ask('POST', 'sys/mfa/validate', body, { token: null })).body.errors[0] ?? ''
  assert.equal(await errors({}), 'missing request ID')
  assert.equal(await errors({ mfa_request_id: id }), 'missing mfa payload')
  assert.equal(await errors({ mfa_request_id: id, mfa_payload: {} }), 'missing mfa payload')
  assert.equal(await errors({ mfa_request_id: id, mfa_payload: 'x' }), 'invalid mfa payload')
  assert.match(await errors({ mfa_request_id: id, mfa_payload: { app: ['1', '2'] } }), /multiple passcodes/)
  assert.match(await errors({ mfa_request_id: id, mfa_payload: { app: [{}] } }), /a passcode must be a string/)
  assert.equal(await errors({ mfa_request_id: 'none', mfa_payload: { app: ['1'] } }), INVALID_REQUEST_ID)
  assert.equal((await mfa.validate(id, mfa.code(mfa.secret))).status, 200)
})

test('a pending login ends after five minutes, and with its user, its password method or its entity', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const { world } = mfa
  const late = await mfa.pending()
  world.nowMs += 299_000
  const inTime = await mfa.pending()
  world.nowMs += 2000
  assert.deepEqual((await mfa.validate(late, mfa.code(mfa.secret))).body.errors, [INVALID_REQUEST_ID])
  assert.equal((await mfa.validate(inTime, mfa.code(mfa.secret))).status, 200)
  const ofDisabled = await mfa.pending()
  await world.ask('POST', `identity/entity/id/${mfa.adaId}`, { disabled: true })
  assert.equal((await mfa.validate(ofDisabled, mfa.code(mfa.secret, 1))).status, 403)
  await world.ask('POST', `identity/entity/id/${mfa.adaId}`, { disabled: false })
  await world.ask('DELETE', 'auth/userpass/users/ada')
  assert.equal((await mfa.validate(ofDisabled, mfa.code(mfa.secret, 1))).status, 400)
  await world.ask('POST', 'auth/userpass/users/ada', { password: 'pw' })
  await world.ask('DELETE', 'sys/auth/userpass')
  assert.equal((await mfa.validate(ofDisabled, mfa.code(mfa.secret, 1))).status, 400)
})

test('pending logins of one entity are limited and do not evict those of another', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const { loginMfa } = mfa.world.core.open
  const ofAda = await mfa.pending()
  const known = loginMfa.find(ofAda)
  assert.ok(known)
  const { mfa_request_id: ofBob } = loginMfa.begin({ ...known, entityId: 'bob' }, [])
  for (let count = 0; count < 16; count++) loginMfa.begin(known, [])
  assert.equal(loginMfa.pendingCount, 17)
  assert.ok(loginMfa.find(ofBob))
  assert.deepEqual((await mfa.validate(ofAda, mfa.code(mfa.secret))).body.errors, [INVALID_REQUEST_ID])
  for (let count = 0; count < 20_000; count++) loginMfa.begin({ ...known, entityId: `e${count}` }, [])
  assert.equal(loginMfa.pendingCount, 20_000)
})

test('fifty concurrent validations of one login create one token', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const id = await mfa.pending()
  const codes = [mfa.code(mfa.secret), mfa.code(mfa.secret, 1), mfa.code(mfa.secret, -1)]
  const answers = await Promise.all(Array.from({ length: 50 }, (_, at) => mfa.validate(id, codes[at % 3] ?? '')))
  assert.equal(answers.filter(({ status }) => status === 200).length, 1)
  assert.ok(answers.every(({ status }) => status === 200 || status === 400))
})

test('one code is accepted once among concurrent logins of both kinds and requests', async (t) => {
  const mfa = await LoginWorld.ready(t)
  await mfa.policy('default', 'path "cubbyhole/a" { capabilities = ["read"] mfa_methods = ["app"] }')
  const token = String((await mfa.login(`app:${mfa.code(mfa.secret, -1)}`)).body.auth['client_token'])
  const ids = [await mfa.pending(), await mfa.pending()]
  const code = mfa.code(mfa.secret)
  const answers = await Promise.all([
    ...ids.map(async (id) => (await mfa.validate(id, code)).status === 200),
    ...ids.map(async () => (await mfa.login(`app:${code}`)).status === 200),
    ...ids.map(async () => (await mfa.read({ token, entityId: '' }, 'cubbyhole/a', `app:${code}`)).status === 404),
  ])
  assert.equal(answers.filter(Boolean).length, 1)
})

test('enforcements match by mount, type, group and entity, and every matching one needs a code', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const { world } = mfa
  const needs = async () => {
    const requirement = (await mfa.login()).body.auth['mfa_requirement'] as Requirement | null
    return requirement ? Object.keys(requirement.mfa_constraints).sort() : []
  }
  await world.ask('DELETE', 'identity/mfa/login-enforcement/all')
  assert.deepEqual(await needs(), [])
  await mfa.enforce('entity', { identity_entity_ids: [mfa.adaId] })
  const inner = await world.ask('POST', 'identity/group', { name: 'inner', member_entity_ids: [mfa.adaId] })
  const outer = await world.ask('POST', 'identity/group', {
    name: 'outer',
    member_group_ids: [inner.body.data['id']],
  })
  await mfa.enforce('group', { identity_group_ids: [outer.body.data['id']] })
  const { accessor } = (await world.ask('GET', 'sys/auth')).body.data['userpass/'] as { accessor: string }
  await mfa.enforce('mount', { auth_method_accessors: [accessor] })
  await mfa.enforce('other', { auth_method_types: ['approle'] })
  assert.deepEqual(await needs(), ['entity', 'group', 'mount'])
  await mfa.method('second')
  const second = String((await world.ask('GET', 'sys/mfa/method/totp/second')).body.data['id'])
  await mfa.enforce('mount', { auth_method_accessors: [accessor], mfa_method_ids: [second] })
  assert.equal((await mfa.login(`app:${mfa.code(mfa.secret)}`)).status, 403, 'one of two enforcements')
  const other: Enrolled = await mfa.enrol('second', { entityId: mfa.adaId, token: '' })
  const both = `app:${mfa.code(mfa.secret, 1)},second:${mfa.code(other.secret)}`
  assert.equal((await mfa.login(both)).status, 200)
})

test('a login that fails one enforcement is not refused for a lock-out of the method of another one', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const { world } = mfa
  await mfa.method('second')
  const methodId = String((await world.ask('GET', 'sys/mfa/method/totp/second')).body.data['id'])
  const { secret } = await mfa.enrol('second', { entityId: mfa.adaId, token: '' })
  await mfa.enforce('more', { auth_method_types: ['userpass'], mfa_method_ids: [methodId] })
  for (let salt = 0; salt < 6; salt++) await mfa.login(`second:${wrongCode(secret, world.nowMs, salt)}`)
  const locked = await mfa.login(`app:${mfa.code(mfa.secret)},second:${mfa.code(secret)}`)
  assert.deepEqual([locked.status, Number(locked.headers['Retry-After']) > 0], [429, true])
  const missing = await mfa.login(`second:${mfa.code(secret)}`)
  assert.deepEqual(
    [missing.status, missing.body.errors],
    [403, ['permission denied: a code was sent for another or an unknown MFA method, and none for MFA method app']],
  )
})

test('an enforcement without a target or method is 400, and a method in use is not removed', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const error = async (rule: object, name = 'e') => (await mfa.enforce(name, { ...rule })).body.errors[0] ?? ''
  assert.match(await error({}), /^One of auth_method_accessors/)
  assert.equal(await error({ mfa_method_ids: [], auth_method_types: ['userpass'] }), 'missing method ids')
  assert.match(await error({ mfa_method_ids: ['x'], auth_method_types: ['userpass'] }), /invalid method id "x"/)
  assert.match(await error({ auth_method_accessors: ['x'] }), /invalid auth method accessor/)
  assert.match(await error({ identity_group_ids: ['x'] }), /invalid group ID/)
  assert.match(await error({ identity_entity_ids: ['x'] }), /invalid entity ID/)
  assert.equal((await mfa.world.ask('GET', 'identity/mfa/login-enforcement/e')).status, 404)
  const kept = await mfa.world.ask('DELETE', 'sys/mfa/method/totp/app')
  assert.match(kept.body.errors[0] ?? '', /still used by an enforcement/)
  assert.deepEqual((await mfa.world.ask('LIST', 'identity/mfa/login-enforcement')).body.data['keys'], ['all'])
  await mfa.world.ask('DELETE', 'identity/mfa/login-enforcement/all')
  assert.equal((await mfa.world.ask('DELETE', 'sys/mfa/method/totp/app')).status, 204)
})

test('a login by AppRole uses the secret ID in the first step and returns the token in the second', async (t) => {
  const mfa = await LoginWorld.ready(t)
  const { world } = mfa
  await world.ask('POST', 'sys/auth/approle', { type: 'approle' })
  await world.ask('POST', 'auth/approle/role/web', { secret_id_num_uses: 1 })
  const roleId = (await world.ask('GET', 'auth/approle/role/web/role-id')).body.data['role_id']
  const secretId = async () => (await world.ask('POST', 'auth/approle/role/web/secret-id')).body.data['secret_id']
  const login = async (id: unknown) =>
    world.ask('POST', 'auth/approle/login', { role_id: roleId, secret_id: id }, { token: null })
  const entityId = String((await login(await secretId())).body.auth['entity_id'])
  const { secret } = await mfa.enrol('app', { entityId, token: '' })
  await mfa.enforce('programs', { auth_method_types: ['approle'] })
  const once = await secretId()
  const { mfa_request_id: id } = requirementOf(await login(once))
  assert.equal((await login(once)).status, 400)
  assert.notEqual((await mfa.validate(id, mfa.code(secret))).body.auth['client_token'], '')
})
