import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { approle } from '../../src/auth/approle/approle.ts'
import type { Store } from '../../src/storage/store/store.ts'
import { type AskOptions, type CoreAnswer, CoreWorld } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { steppedStore } from '../helpers/stepped-store.ts'

type Data = Readonly<Record<string, unknown>>

async function open(t: TestContext, settings: object = {}, wrap = (real: Store): Store => real) {
  const world = await CoreWorld.open(t, { engines: [approle], wrap })
  assert.equal((await world.ask('POST', 'sys/auth/approle', { type: 'approle' })).status, 204)
  const role = (body: object) => world.ask('POST', 'auth/approle/role/web', body)
  const made = await role({ token_policies: 'p', ...settings })
  assert.equal(made.status, 204, made.text)
  const roleId = async () => String((await world.ask('GET', 'auth/approle/role/web/role-id')).body.data['role_id'])
  const secretId = async (body: object = {}): Promise<Data> => {
    const answer = await world.ask('POST', 'auth/approle/role/web/secret-id', body)
    assert.equal(answer.status, 200, answer.text)
    return answer.body.data
  }
  const login = async (secret_id: unknown, options: AskOptions = {}, role_id?: string) =>
    world.ask(
      'POST',
      'auth/approle/login',
      { role_id: role_id ?? (await roleId()), secret_id },
      { token: null, ...options },
    )
  return { world, role, roleId, secretId, login }
}

const textsOf = ({ body, status }: CoreAnswer) => [status, body.errors[0]]
const WRONG = [400, 'invalid role or secret ID']
const LOCKED = [403, 'permission denied']
/** Entries of secret IDs below the mount. */
const secretsIn = (world: CoreWorld) =>
  world.core.barrier.paths('logical/').filter((path) => /\/(secret|accessor)\//.test(path))

test('a program logs in with its role and a secret ID', async (t) => {
  const { login, roleId, secretId, world } = await open(t, { token_ttl: '1h', token_max_ttl: '2h' })
  const made = await secretId({ metadata: '{"host":"h1"}' })
  const answer = await login(made['secret_id'])
  assert.equal(answer.status, 200, answer.text)
  const { auth } = answer.body
  assert.deepEqual(
    [auth['policies'], auth['metadata'], auth['lease_duration'], auth['orphan']],
    [['default', 'p'], { host: 'h1', role_name: 'web' }, 3600, true],
  )
  const again = await login(made['secret_id'])
  assert.equal(again.body.auth['entity_id'], auth['entity_id'])
  const entity = (await world.ask('GET', `identity/entity/id/${String(auth['entity_id'])}`)).body.data
  assert.equal((entity['aliases'] as Data[])[0]?.['name'], await roleId())
  const token = String(auth['client_token'])
  assert.equal((await world.ask('POST', 'auth/token/renew-self', {}, { token })).status, 200)
  await world.ask('DELETE', 'auth/approle/role/web')
  const refused = await world.ask('POST', 'auth/token/renew-self', {}, { token })
  assert.match(String(refused.body.errors[0]), /the role of this token no longer exists/)
})

test('a secret ID with three uses allows three of many concurrent logins', async (t) => {
  const { login, roleId, secretId, world } = await open(t, { secret_id_num_uses: 3 })
  const { secret_id: secret } = await secretId()
  const id = await roleId()
  const answers = await Promise.all(Array.from({ length: 50 }, () => login(secret, {}, id)))
  assert.equal(answers.filter(({ status }) => status === 200).length, 3)
  assert.deepEqual(
    [...new Set(answers.filter(({ status }) => status !== 200).map((each) => textsOf(each).join()))],
    [WRONG.join(), LOCKED.join()],
  )
  // What is left of it, for logins that wait for a code, is removed once none can wait any more.
  world.nowMs += 301_000
  await world.ask('POST', 'auth/approle/tidy/secret-id')
  assert.deepEqual(secretsIn(world), [])
})

test('wrong, expired, destroyed and foreign pairs get the same error', async (t) => {
  const { login, secretId, world } = await open(t, { secret_id_ttl: '10m' })
  assert.deepEqual(textsOf(await login('nonsense')), WRONG)
  assert.deepEqual(textsOf(await login('nonsense', {}, 'nonsense')), WRONG)
  assert.deepEqual(textsOf(await login('x'.repeat(5000))), WRONG)
  assert.deepEqual(textsOf(await login('')), [400, 'missing secret_id'])
  const [one, two, three] = [await secretId(), await secretId(), await secretId()]
  await world.ask('POST', 'auth/approle/role/web/secret-id/destroy', { secret_id: one['secret_id'] })
  await world.ask('POST', 'auth/approle/role/web/secret-id-accessor/destroy', {
    secret_id_accessor: two['secret_id_accessor'],
  })
  assert.deepEqual([textsOf(await login(one['secret_id'])), textsOf(await login(two['secret_id']))], [WRONG, WRONG])
  await world.ask('POST', 'auth/approle/role/other', {})
  const other = String((await world.ask('GET', 'auth/approle/role/other/role-id')).body.data['role_id'])
  assert.deepEqual(textsOf(await login(three['secret_id'], {}, other)), WRONG)
  assert.equal((await login(three['secret_id'])).status, 200)
  world.nowMs += 601_000
  assert.deepEqual(textsOf(await login(three['secret_id'])), WRONG)
  world.nowMs += 300_000
  assert.equal((await world.ask('POST', 'auth/approle/tidy/secret-id')).status, 202)
  assert.deepEqual(secretsIn(world), [])
})

test('a role keeps its secret IDs when its ID changes, but not when it is created again', async (t) => {
  const { login, role, secretId, world } = await open(t, { role_id: 'chosen' })
  const { secret_id: secret } = await secretId()
  assert.equal((await login(secret, {}, 'chosen')).status, 200)
  assert.equal((await role({ role_id: 'changed' })).status, 204)
  assert.deepEqual(textsOf(await login(secret, {}, 'chosen')), WRONG)
  assert.equal((await login(secret, {}, 'changed')).status, 200)
  await world.ask('DELETE', 'auth/approle/role/web')
  assert.equal((await role({ role_id: 'changed' })).status, 204)
  assert.deepEqual(textsOf(await login(secret, {}, 'changed')), WRONG)
})

test('a role keeps its secret IDs if its removal fails and loses them after it', async (t) => {
  let failing = 0
  const { login, secretId, world } = await open(t, {}, (real) => ({
    ...steppedStore(real, () => undefined),
    commit: (batch) => (failing-- > 0 ? Promise.reject(new Error('the disk is full')) : real.commit(batch)),
  }))
  const { secret_id: secret } = await secretId()
  // One commit: what would be written after it has room again.
  failing = 1
  await assert.rejects(world.ask('DELETE', 'auth/approle/role/web'), /the disk is full/)
  for (let turns = 0; turns < 10; turns++) await turn()
  assert.equal((await login(secret)).status, 200)
  assert.equal((await world.ask('DELETE', 'auth/approle/role/web')).status, 204)
  await eventually(() => secretsIn(world).length === 0, 'its secret IDs are gone')
})

test('secret IDs are looked up, listed and chosen within the limits of the role', async (t) => {
  const { login, secretId, world } = await open(t, { secret_id_num_uses: 5, secret_id_ttl: '1h' })
  const at = 'auth/approle/role/web'
  const refused = async (path: string, body: object, text: RegExp, status = 400) => {
    const answer = await world.ask('POST', `${at}/${path}`, body)
    assert.equal(answer.status, status, answer.text)
    assert.match(String(answer.body.errors[0]), text)
  }
  await refused('secret-id', { num_uses: 6 }, /num_uses/)
  await refused('secret-id', { num_uses: 0 }, /num_uses/)
  await refused('secret-id', { ttl: '2h' }, /ttl/)
  await refused('secret-id', { metadata: 'no' }, /^failed to parse metadata/)
  await refused('secret-id', { cidr_list: 'no' }, /not an address/)
  await refused('custom-secret-id', {}, /^missing secret_id$/)
  await refused('secret-id-accessor/lookup', { secret_id_accessor: 'no' }, /failed to find/, 404)
  assert.equal((await world.ask('POST', 'auth/approle/role/none/secret-id')).status, 404)
  const made = await secretId({ num_uses: 2 })
  const chosen = await world.ask('POST', `${at}/custom-secret-id`, { secret_id: 'mine' })
  assert.equal(chosen.body.data['secret_id'], 'mine')
  await refused('custom-secret-id', { secret_id: 'mine' }, /already exists/)
  assert.equal((await login('mine')).status, 200)
  const lookup = async (path: string, body: object) => (await world.ask('POST', `${at}/${path}`, body)).body.data
  const found = await lookup('secret-id/lookup', { secret_id: made['secret_id'] })
  assert.deepEqual([found['secret_id_num_uses'], found['secret_id_ttl']], [2, 3600])
  assert.deepEqual(await lookup('secret-id-accessor/lookup', { secret_id_accessor: made['secret_id_accessor'] }), found)
  const keys = (await world.ask('LIST', `${at}/secret-id`)).body.data['keys'] as string[]
  assert.deepEqual(keys, [made['secret_id_accessor'], chosen.body.data['secret_id_accessor']].map(String).sort())
  assert.equal((await world.ask('POST', `${at}/secret-id/lookup`, { secret_id: 'none' })).status, 204)
  assert.ok(!world.core.barrier.paths('').join('\n').includes('web'))
})

test('a login is accepted only from addresses of the role and the secret ID', async (t) => {
  const { login, role, secretId } = await open(t, { secret_id_bound_cidrs: '10.0.0.0/8', bind_secret_id: true })
  const { secret_id: secret } = await secretId({ cidr_list: '10.1.0.0/16' })
  assert.deepEqual(textsOf(await login(secret, { remote: '10.2.0.1' })), WRONG)
  assert.deepEqual(textsOf(await login(secret, { remote: '11.0.0.1' })), WRONG)
  assert.equal((await login(secret, { remote: '10.1.0.1' })).status, 200)
  assert.equal((await role({ secret_id_bound_cidrs: '10.1.1.0/24' })).status, 204)
  assert.deepEqual(textsOf(await login(secret, { remote: '10.1.0.1' })), WRONG, 'the role has other addresses now')
  assert.equal((await login(secret, { remote: '10.1.1.1' })).status, 200)
  assert.equal((await role({ bind_secret_id: false, secret_id_bound_cidrs: '' })).status, 400)
  assert.equal((await role({ bind_secret_id: false, token_bound_cidrs: '10.0.0.0/8' })).status, 204)
  assert.equal((await login('', { remote: '10.9.0.1' })).status, 200)
  assert.deepEqual(textsOf(await login('', { remote: '11.0.0.1' })), WRONG)
})

test('settings of a role are changed together and one by one', async (t) => {
  const { role, world } = await open(t, { token_ttl: 60 })
  const at = 'auth/approle/role/web'
  await world.ask('POST', `${at}/token-max-ttl`, { token_max_ttl: '1h' })
  await world.ask('POST', `${at}/policies`, { policies: 'a,b' })
  const read = (await world.ask('GET', at)).body.data
  assert.deepEqual([read['token_ttl'], read['token_max_ttl'], read['token_policies']], [60, 3600, ['a', 'b']])
  assert.deepEqual((await world.ask('GET', `${at}/token-ttl`)).body.data, { token_ttl: 60 })
  await world.ask('DELETE', `${at}/token-ttl`)
  assert.deepEqual((await world.ask('GET', `${at}/token-ttl`)).body.data, { token_ttl: 0 })
  assert.equal((await world.ask('POST', 'auth/approle/role/none/token-ttl', { token_ttl: 1 })).status, 404)
  assert.equal((await role({ local_secret_ids: true })).status, 400)
  assert.equal((await role({ secret_id_num_uses: -1 })).status, 400)
  await role({ role_id: 'chosen' })
  assert.deepEqual(textsOf(await world.ask('POST', 'auth/approle/role/two', { role_id: 'chosen' })), [
    400,
    'role_id already in use',
  ])
  assert.deepEqual((await world.ask('LIST', 'auth/approle/role')).body.data['keys'], ['web'])
  assert.equal((await world.ask('DELETE', at)).status, 204)
  assert.equal((await world.ask('GET', at)).status, 404)
})

test('a wrapped secret ID works for the caller that unwraps it', async (t) => {
  const { login, world } = await open(t)
  const wrapped = await world.ask(
    'POST',
    'auth/approle/role/web/secret-id',
    {},
    { headers: { 'X-Vault-Wrap-TTL': '60' } },
  )
  const { token } = wrapped.body['wrap_info'] as { token: string }
  const unwrapped = await world.ask('POST', 'sys/wrapping/unwrap', undefined, { token })
  assert.equal((await login(unwrapped.body.data['secret_id'])).status, 200)
})

test('a secret ID does not widen the addresses of its role', async (t) => {
  const { world } = await open(t, { token_bound_cidrs: '10.0.0.0/8,fd00::/8', secret_id_bound_cidrs: '10.1.0.0/16' })
  const made = (body: object) => world.ask('POST', 'auth/approle/role/web/secret-id', body)
  for (const range of ['10.0.0.1/0', '10.0.0.0/7', 'fd00::1/0', '::ffff:10.0.0.1/96']) {
    const answer = await made({ token_bound_cidrs: range })
    assert.equal(answer.status, 400, range)
    assert.match(String(answer.body.errors[0]), /is not within the addresses of the role/)
  }
  assert.equal((await made({ cidr_list: '10.1.0.0/8' })).status, 400)
  for (const range of ['10.0.0.0/8', '10.2.0.0/16', '10.0.0.1', 'fd00::1/64', '::ffff:10.0.0.1/104']) {
    assert.equal((await made({ token_bound_cidrs: range })).status, 200, range)
  }
})

test('a login that would get a batch token of a role with limited uses is refused', async (t) => {
  const { login, secretId, world } = await open(t, { token_num_uses: 2, secret_id_num_uses: 1 })
  const { secret_id: secret } = await secretId()
  assert.equal((await world.ask('POST', 'sys/auth/approle/tune', { token_type: 'batch' })).status, 204)
  const refused = await login(secret)
  assert.equal(refused.status, 400, refused.text)
  assert.equal(refused.text, (await login('wrong')).text, 'it does not tell that the secret ID is right')
  // The secret ID was not used up.
  assert.equal((await world.ask('POST', 'sys/auth/approle/tune', { token_type: 'default-service' })).status, 204)
  assert.equal((await login(secret)).body.auth['num_uses'], 2)
})

test('the bound addresses of secret IDs can be removed', async (t) => {
  const { world } = await open(t, { secret_id_bound_cidrs: '10.0.0.0/8' })
  const at = 'auth/approle/role/web/secret-id-bound-cidrs'
  assert.equal((await world.ask('DELETE', at)).status, 204)
  assert.equal((await world.ask('GET', at)).body.data['secret_id_bound_cidrs'], null)
})

test('a disabled entity gets the error of a wrong pair and uses up no secret ID', async (t) => {
  const { login, secretId, world } = await open(t, { secret_id_num_uses: 1 })
  const [first, second] = [await secretId(), await secretId()]
  const id = String((await login(first['secret_id'])).body.auth['entity_id'])
  await world.ask('POST', `identity/entity/id/${id}`, { disabled: true })
  assert.deepEqual(textsOf(await login(second['secret_id'])), WRONG)
  await world.ask('POST', `identity/entity/id/${id}`, { disabled: false })
  assert.equal((await login(second['secret_id'])).body.auth['entity_id'], id)
  assert.deepEqual(textsOf(await login(second['secret_id'])), WRONG)
})

test('five wrong secret IDs lock any role ID until it is unlocked or 15 minutes have passed', async (t) => {
  const { login, roleId, secretId, world } = await open(t)
  const { secret_id: secret } = await secretId()
  const web = await roleId()
  for (const id of [web, 'Unknown']) {
    for (let tries = 0; tries < 5; tries++) assert.deepEqual(textsOf(await login('wrong', {}, id)), WRONG)
    assert.deepEqual(textsOf(await login(secret, {}, id)), LOCKED)
    assert.deepEqual(textsOf(await login('', {}, id)), LOCKED)
  }
  const accessor = String(world.core.open.mounts.get('auth/approle/')?.record.accessor)
  const locked = await world.ask('GET', 'sys/locked-users', { mount_accessor: accessor })
  const [namespace] = locked.body.data['by_namespace'] as { mount_accessors: unknown[] }[]
  const names = ['Unknown', web].sort()
  assert.deepEqual(namespace?.mount_accessors, [{ mount_accessor: accessor, counts: 2, alias_identifiers: names }])
  const unlock = (id: string) => world.ask('POST', `sys/locked-users/${accessor}/unlock/${id}`)
  assert.equal((await unlock(web)).status, 204)
  assert.equal((await unlock('Unknown')).status, 204)
  assert.deepEqual(textsOf(await login('wrong', {}, 'Unknown')), WRONG)
  assert.equal((await login(secret)).status, 200)
  for (let tries = 0; tries < 5; tries++) await login('wrong')
  assert.deepEqual(textsOf(await login(secret)), LOCKED)
  world.nowMs += 901_000
  assert.equal((await login(secret)).status, 200)
})

test('the lockout of role IDs follows user_lockout_config of the mount and is reset by a login', async (t) => {
  const { login, secretId, world } = await open(t)
  const { secret_id: secret } = await secretId()
  const tune = (config: object) => world.ask('POST', 'sys/auth/approle/tune', { user_lockout_config: config })
  assert.equal((await tune({ lockout_threshold: 2, lockout_duration: '10s' })).status, 204)
  for (let round = 0; round < 3; round++) {
    assert.deepEqual(textsOf(await login('wrong')), WRONG)
    assert.equal((await login(secret)).status, 200)
  }
  for (let tries = 0; tries < 2; tries++) await login('wrong')
  assert.deepEqual(textsOf(await login(secret)), LOCKED)
  world.nowMs += 11_000
  assert.equal((await login(secret)).status, 200)
  assert.equal((await tune({ lockout_disable: true })).status, 204)
  for (let tries = 0; tries < 6; tries++) assert.deepEqual(textsOf(await login('wrong')), WRONG)
})

test('a reused role ID gets a new entity', async (t) => {
  const { login, role, secretId, world } = await open(t, { role_id: 'web-id' })
  const entityOf = async (secret: unknown) => {
    const answer = await login(secret, {}, 'web-id')
    assert.equal(answer.status, 200, answer.text)
    return String(answer.body.auth['entity_id'])
  }
  const first = await entityOf((await secretId())['secret_id'])
  assert.equal(await entityOf((await secretId())['secret_id']), first)
  assert.equal((await world.ask('DELETE', 'auth/approle/role/web')).status, 204)
  assert.equal((await role({ role_id: 'web-id' })).status, 204)
  const second = await entityOf((await secretId())['secret_id'])
  assert.equal((await world.ask('POST', 'auth/approle/role/web/role-id', { role_id: 'other-id' })).status, 204)
  assert.equal((await world.ask('POST', 'auth/approle/role/api', { role_id: 'web-id' })).status, 204)
  const made = await world.ask('POST', 'auth/approle/role/api/secret-id', {})
  const third = await entityOf(made.body.data['secret_id'])
  assert.equal(new Set([first, second, third]).size, 3)
})
