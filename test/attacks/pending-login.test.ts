/**
 * The holder of a bound or revoked credential logs in in two steps, and must not get more from the second step than the
 * first one would have given. A merge of entities must not bypass an enforcement.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { approle } from '../../src/auth/approle/approle.ts'
import { INVALID_REQUEST_ID } from '../../src/secrets/logins/validate-path.ts'
import type { CoreAnswer } from '../helpers/core-world.ts'
import { MfaWorld } from '../helpers/mfa-world.ts'

const INSIDE = '10.1.1.1'
const OUTSIDE = '10.2.2.2'

/** Logins of userpass and AppRole need a code of the method `app`. */
class Pending {
  readonly mfa: MfaWorld
  readonly roleId: string
  readonly #methodId: string
  #secret = ''
  #periods = 0

  private constructor(mfa: MfaWorld, roleId: string, methodId: string) {
    this.mfa = mfa
    this.roleId = roleId
    this.#methodId = methodId
  }

  static async ready(t: TestContext): Promise<Pending> {
    const mfa = await MfaWorld.open(t, { engines: [approle] })
    const { world } = mfa
    for (const type of ['userpass', 'approle']) await world.ask('POST', `sys/auth/${type}`, { type })
    await world.ask('POST', 'auth/userpass/users/ada', { password: 'pw' })
    await world.ask('POST', 'auth/approle/role/web', { token_bound_cidrs: '10.0.0.0/8' })
    const { data } = (await world.ask('GET', 'auth/approle/role/web/role-id')).body
    await mfa.method('app')
    const methodId = String((await world.ask('GET', 'sys/mfa/method/totp/app')).body.data['id'])
    return new Pending(mfa, String(data['role_id']), methodId)
  }

  async enrolled(login: CoreAnswer): Promise<string> {
    const entityId = String(login.body.auth['entity_id'])
    this.#secret = (await this.mfa.enrol('app', { entityId, token: '' })).secret
    return entityId
  }

  enforce(name: string, rule: object): Promise<CoreAnswer> {
    const body = { mfa_method_ids: [this.#methodId], ...rule }
    return this.mfa.world.ask('POST', `identity/mfa/login-enforcement/${name}`, body)
  }

  secretId(wish: object = {}): Promise<CoreAnswer> {
    return this.mfa.world.ask('POST', 'auth/approle/role/web/secret-id', wish)
  }

  byRole(secretId: unknown): Promise<CoreAnswer> {
    const body = { role_id: this.roleId, secret_id: secretId }
    return this.mfa.world.ask('POST', 'auth/approle/login', body, { token: null, remote: INSIDE })
  }

  byPassword(password = 'pw'): Promise<CoreAnswer> {
    return this.mfa.world.ask('POST', 'auth/userpass/login/ada', { password }, { token: null })
  }

  /** The second step, with a code that was not used before. */
  finish(first: CoreAnswer): Promise<CoreAnswer> {
    const id = (first.body.auth['mfa_requirement'] as { mfa_request_id: string } | null)?.mfa_request_id
    assert.ok(id, first.text)
    if (++this.#periods > 1) this.mfa.world.nowMs += 30_000
    const body = { mfa_request_id: id, mfa_payload: { [this.#methodId]: [this.mfa.code(this.#secret)] } }
    return this.mfa.world.ask('POST', 'sys/mfa/validate', body, { token: null, remote: OUTSIDE })
  }

  async isTaken(login: CoreAnswer, remote: string): Promise<boolean> {
    const token = String(login.body.auth['client_token'])
    return (await this.mfa.world.ask('GET', 'auth/token/lookup-self', undefined, { token, remote })).status === 200
  }
}

test('the second step refuses other addresses, a removed secret ID and a removed role', async (t) => {
  const it = await Pending.ready(t)
  const { world } = it.mfa
  await it.enrolled(await it.byRole((await it.secretId()).body.data['secret_id']))
  await it.enforce('all', { auth_method_types: ['approle'] })
  const bound = (await it.secretId({ token_bound_cidrs: `${INSIDE}/32` })).body.data['secret_id']
  const done = await it.finish(await it.byRole(bound))
  assert.deepEqual([await it.isTaken(done, OUTSIDE), await it.isTaken(done, INSIDE)], [false, true], done.text)
  const refused = async (first: CoreAnswer, why: string) =>
    assert.deepEqual((await it.finish(first)).body.errors, [INVALID_REQUEST_ID], why)

  const before = await it.byRole(bound)
  await world.ask('POST', 'auth/approle/role/web', { token_bound_cidrs: '192.168.0.0/16' })
  await refused(before, 'no address is in both')
  await world.ask('POST', 'auth/approle/role/web', { token_bound_cidrs: '10.0.0.0/8' })

  for (const uses of [0, 3]) {
    const { secret_id: secretId } = (await it.secretId({ num_uses: uses })).body.data
    const pending = await it.byRole(secretId)
    await world.ask('POST', 'auth/approle/role/web/secret-id/destroy', { secret_id: secretId })
    await refused(pending, `a secret ID of ${uses} uses was destroyed`)
  }
  const last = await it.byRole((await it.secretId({ num_uses: 1 })).body.data['secret_id'])
  assert.equal((await it.finish(last)).status, 200, 'the login that took the last use')
  const another = await it.byRole(bound)
  await world.ask('POST', 'auth/approle/role/web/role-id', { role_id: 'another' })
  await refused(another, 'the role has another ID')
  await world.ask('POST', 'auth/approle/role/web/role-id', { role_id: it.roleId })
  await world.ask('POST', 'auth/approle/role/web', { bind_secret_id: false })
  const without = await it.byRole('')
  await world.ask('POST', 'auth/approle/role/web', { bind_secret_id: true })
  await refused(without, 'a secret ID is needed now')
  const ofOld = await it.byRole((await it.secretId({ num_uses: 1 })).body.data['secret_id'])
  await world.ask('DELETE', 'auth/approle/role/web')
  await world.ask('POST', 'auth/approle/role/web', { role_id: it.roleId })
  await refused(ofOld, 'another role of that name and ID')
})

test('two pending logins with one secret ID both succeed, even if it is used up or expired meanwhile', async (t) => {
  const it = await Pending.ready(t)
  const { world } = it.mfa
  await it.enrolled(await it.byRole((await it.secretId()).body.data['secret_id']))
  await it.enforce('all', { auth_method_types: ['approle'] })
  const tidy = () => world.ask('POST', 'auth/approle/tidy/secret-id')
  const kept = () => world.core.barrier.paths('logical/').filter((path) => path.includes('/secret/')).length
  const before = kept()
  const { secret_id: secretId, secret_id_accessor: accessor } = (await it.secretId({ num_uses: 2 })).body.data
  const [first, second] = [await it.byRole(secretId), await it.byRole(secretId)]
  await tidy()
  assert.deepEqual((await it.byRole(secretId)).body.errors, ['invalid role or secret ID'], 'it is used up')
  const looked = { secret_id: secretId }
  assert.equal((await world.ask('POST', 'auth/approle/role/web/secret-id/lookup', looked)).status, 204)
  const found = await world.ask('POST', 'auth/approle/role/web/secret-id-accessor/lookup', {
    secret_id_accessor: accessor,
  })
  assert.equal(found.status, 404)
  for (const login of [first, second]) assert.equal((await it.finish(login)).status, 200)

  const brief = (await it.secretId({ num_uses: 2, ttl: '60s' })).body.data['secret_id']
  const pending = await it.byRole(brief)
  world.nowMs += 61_000
  await tidy()
  assert.equal((await it.finish(pending)).status, 200, 'it expired meanwhile')
  world.nowMs += 300_000
  await tidy()
  assert.equal(kept(), before, 'nothing is left once no login can wait')

  const gone = (await it.secretId({ num_uses: 2 })).body.data['secret_id']
  const both = [await it.byRole(gone), await it.byRole(gone)]
  await world.ask('POST', 'auth/approle/role/web/secret-id/destroy', { secret_id: gone })
  for (const login of both) assert.deepEqual((await it.finish(login)).body.errors, [INVALID_REQUEST_ID], 'destroyed')
})

test('a change of the password invalidates a pending login, and one of the policies applies to it', async (t) => {
  const it = await Pending.ready(t)
  const { world } = it.mfa
  await it.enrolled(await it.byPassword())
  await it.enforce('all', { auth_method_types: ['userpass'] })
  const first = await it.byPassword()
  await world.ask('POST', 'auth/userpass/users/ada/password', { password: 'new' })
  assert.deepEqual((await it.finish(first)).body.errors, [INVALID_REQUEST_ID])
  const second = await it.byPassword('new')
  await world.ask('POST', 'auth/userpass/users/ada', { policies: 'more' })
  const done = await it.finish(second)
  assert.deepEqual(done.body.auth['token_policies'], ['default', 'more'], 'what the user may have changes with it')
})

test('removing an entity invalidates its pending logins', async (t) => {
  const it = await Pending.ready(t)
  const { world } = it.mfa
  const entityId = await it.enrolled(await it.byPassword())
  await it.enforce('all', { auth_method_types: ['userpass'] })
  assert.equal((await it.finish(await it.byPassword())).status, 200)
  const pending = await it.byPassword()
  assert.equal((await world.ask('DELETE', `identity/entity/id/${entityId}`)).status, 204)
  assert.deepEqual((await it.finish(pending)).body.errors, [INVALID_REQUEST_ID])
})

test('an enforcement for an entity also applies to the entity that it was merged into', async (t) => {
  const it = await Pending.ready(t)
  const { world } = it.mfa
  const adaId = String((await it.byPassword()).body.auth['entity_id'])
  await it.enforce('ada', { identity_entity_ids: [adaId] })
  const made = await world.ask('POST', 'identity/entity', { name: 'bob' })
  const merge = { from_entity_ids: [adaId], to_entity_id: made.body.data['id'] }
  assert.equal((await world.ask('POST', 'identity/entity/merge', merge)).text, '')
  const login = await it.byPassword()
  assert.ok(login.body.auth['mfa_requirement'], 'a code is asked for')
  assert.equal(login.body.auth['client_token'], '')
})
