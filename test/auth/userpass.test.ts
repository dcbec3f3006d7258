import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Engine } from '../../src/engines/framework/engine.ts'
import type { PasswordHash } from '../../src/auth/userpass/password-hash.ts'
import { userpass, userpassEngine } from '../../src/auth/userpass/userpass.ts'
import { TokenStore } from '../../src/secrets/tokens/token-store.ts'
import { type AskOptions, type CoreAnswer, CoreWorld } from '../helpers/core-world.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'

const ANONYMOUS: AskOptions = { token: null }

interface World {
  readonly world: CoreWorld
  readonly login: (name: string, password: string, options?: AskOptions) => Promise<CoreAnswer>
}

/** Passwords cost what they do in the program where the engine is `userpass`. */
async function open(t: TestContext, user: object = {}, engine: Engine = quickUserpass): Promise<World> {
  const world = await CoreWorld.open(t, { engines: [engine] })
  assert.equal((await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })).status, 204)
  const made = await world.ask('POST', 'auth/userpass/users/alice', { password: 'right', ...user })
  assert.equal(made.status, 204, made.text)
  const login = (name: string, password: string, options: AskOptions = {}) =>
    world.ask('POST', `auth/userpass/login/${name}`, { password }, { ...ANONYMOUS, ...options })
  return { world, login }
}

const textsOf = ({ body, status }: CoreAnswer) => [status, body.errors[0]]

test('a login creates a token of its user with the same entity each time', async (t) => {
  const terms = { token_policies: 'p', token_ttl: '1h', token_max_ttl: '2h' }
  const { login, world } = await open(t, terms, userpass)
  const first = await login('Alice', 'right')
  assert.equal(first.status, 200, first.text)
  const { auth } = first.body
  assert.deepEqual(
    [auth['policies'], auth['metadata'], auth['lease_duration'], auth['renewable'], auth['orphan']],
    [['default', 'p'], { username: 'alice' }, 3600, true, true],
  )
  const second = await login('alice', 'right')
  assert.equal(second.body.auth['entity_id'], auth['entity_id'])
  const token = String(auth['client_token'])
  const self = (await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).body.data
  assert.deepEqual(
    [self['display_name'], self['path'], self['entity_id']],
    ['userpass-alice', 'auth/userpass/login/alice', auth['entity_id']],
  )
  const entity = (await world.ask('GET', `identity/entity/id/${String(auth['entity_id'])}`)).body.data
  const [alias] = entity['aliases'] as Record<string, unknown>[]
  assert.deepEqual([alias?.['name'], alias?.['mount_path']], ['alice', 'auth/userpass/'])
  const storage = world.core.open.mounts.get('auth/userpass/')?.storage ?? assert.fail()
  const entry = storage.get(`user/${storage.list('user/', { after: '', limit: 1 })[0]}`)
  const { cost, blockSize, parallelization } = (JSON.parse(String(entry)) as { hash: PasswordHash }).hash
  assert.deepEqual([cost, blockSize, parallelization], [16_384, 8, 1], 'what a hash costs where no test makes it cheap')
})

test('a right password without a token gets the error of a wrong one, with the reason in the log', async (t) => {
  const { login, world } = await open(t, { token_num_uses: 2 })
  const wrong = await login('alice', 'wrong')
  const reasons = () => world.lines.flatMap(({ fields }) => (fields['reason'] === undefined ? [] : [fields['reason']]))
  assert.equal((await world.ask('POST', 'sys/auth/userpass/tune', { token_type: 'batch' })).status, 204)
  assert.deepEqual(textsOf(await login('alice', 'right')), textsOf(wrong))
  assert.deepEqual(reasons(), ['batch tokens cannot have a limited number of uses'])
  // As an earlier version wrote users.
  const storage = world.core.open.mounts.get('auth/userpass/')?.storage ?? assert.fail()
  const [name] = storage.list('user/', { after: '', limit: 1 })
  const path = `user/${name}`
  const user = JSON.parse(String(storage.get(path))) as { terms: { policies: string[] } }
  user.terms.policies = ['root']
  await storage.commit({ puts: [{ path, value: Buffer.from(JSON.stringify(user)) }], deletes: [] })
  assert.deepEqual(textsOf(await login('alice', 'right')), textsOf(wrong))
  assert.equal(reasons().at(-1), 'auth methods cannot create root tokens')
  for (let at = 0; at < 5; at++) await login('alice', 'right')
  assert.equal((await login('alice', 'right')).status, 403, 'it counts as a wrong one, too')
})

test('a dozen first logins at the same time get one entity', async (t) => {
  const { login, world } = await open(t)
  const answers = await Promise.all(
    Array.from({ length: 12 }, (_, at) => login('alice', 'right', { remote: `10.0.0.${at}` })),
  )
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [200])
  assert.equal(new Set(answers.map(({ body }) => body.auth['entity_id'])).size, 1)
  assert.equal(((await world.ask('LIST', 'identity/entity/id')).body.data['keys'] as string[]).length, 1)
})

test('a token is renewed up to its maximum, but not without its user or after a change of policies', async (t) => {
  const { login, world } = await open(t, { token_ttl: '1h', token_max_ttl: '2h' })
  const token = String((await login('alice', 'right')).body.auth['client_token'])
  const renew = () => world.ask('POST', 'auth/token/renew-self', { increment: '90m' }, { token })
  assert.equal((await renew()).body.auth['lease_duration'], 5400)
  world.nowMs += 3600_000
  const capped = await renew()
  assert.equal(capped.body.auth['lease_duration'], 3600)
  await world.ask('POST', 'auth/userpass/users/alice/policies', { policies: 'other' })
  assert.deepEqual(textsOf(await renew()), [400, 'policies have changed, not renewing'])
  await world.ask('DELETE', 'auth/userpass/users/alice')
  assert.match(String((await renew()).body.errors[0]), /the user of this token no longer exists/)
})

test('a wrong password and an unknown name get the same error and are both locked out', async (t) => {
  const { login, world } = await open(t)
  for (const name of ['alice', 'nobody']) {
    for (let tries = 0; tries < 5; tries++) {
      assert.deepEqual(textsOf(await login(name, 'wrong')), [400, 'invalid username or password'])
    }
    assert.deepEqual(textsOf(await login(name, 'right')), [403, 'permission denied'])
  }
  const locked = (await world.ask('GET', 'sys/locked-users')).body.data
  assert.equal(locked['total'], 2)
  const accessor = String(world.core.open.mounts.get('auth/userpass/')?.record.accessor)
  await world.ask('POST', `sys/locked-users/${accessor}/unlock/alice`)
  assert.equal((await login('alice', 'right')).status, 200)
  world.nowMs += 901_000
  assert.deepEqual(textsOf(await login('nobody', 'right')), [400, 'invalid username or password'])
})

test('lockouts follow the settings of the mount', async (t) => {
  const { login, world } = await open(t)
  const tune = (config: object) => world.ask('POST', 'sys/auth/userpass/tune', { user_lockout_config: config })
  assert.equal((await tune({ lockout_threshold: 0 })).status, 400)
  assert.equal((await tune({ lockout_threshold: 1, lockout_duration: '10s' })).status, 204)
  await login('alice', 'wrong')
  assert.equal((await login('alice', 'right')).status, 403)
  world.nowMs += 11_000
  assert.equal((await login('alice', 'right')).status, 200)
  await login('alice', 'wrong')
  assert.equal((await tune({ lockout_disable: true })).status, 204)
  assert.equal((await login('alice', 'right')).status, 200)
})

test('concurrent guesses are limited like sequential ones', async (t) => {
  const { login } = await open(t)
  const guesses = await Promise.all(
    Array.from({ length: 12 }, (_, at) => login('alice', 'wrong', { remote: `10.0.0.${at}` })),
  )
  const tried = guesses.filter(({ status }) => status === 400).length
  // Two run at a time: one more may be under way when the fifth fails.
  assert.ok(tried >= 5 && tried <= 6, String(tried))
  assert.equal((await login('alice', 'right')).status, 403)
})

test('from an unbound address a right password is answered and counted as a wrong one', async (t) => {
  const { login } = await open(t, { token_bound_cidrs: '10.0.0.0/8' })
  const far = { remote: '11.0.0.1' }
  const answer = async (password: string, options: AskOptions) => {
    const { status, text } = await login('alice', password, options)
    return [status, text.replace(/"request_id":"[^"]*"/, '')]
  }
  assert.deepEqual(await answer('right', far), await answer('wrong', far))
  assert.equal((await login('alice', 'right', { remote: '10.0.0.1' })).status, 200)
  for (let tries = 0; tries < 5; tries++) assert.equal((await login('alice', 'right', far)).status, 400)
  assert.deepEqual(textsOf(await login('alice', 'right', far)), [403, 'permission denied'])
  assert.deepEqual(textsOf(await login('alice', 'wrong', far)), [403, 'permission denied'])
})

test('a login ends when its auth method is disabled', async (t) => {
  const { login, world } = await open(t)
  const token = String((await login('alice', 'right')).body.auth['client_token'])
  assert.equal((await world.ask('DELETE', 'sys/auth/userpass')).status, 204)
  assert.equal((await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status, 403)
})

test('an entity that is disabled does not log in', async (t) => {
  const { login, world } = await open(t)
  const { entity_id: id } = (await login('alice', 'right')).body.auth
  await world.ask('POST', `identity/entity/id/${String(id)}`, { disabled: true })
  // As a wrong password, and counted as one: otherwise the answer tells that the password is right.
  for (let tries = 0; tries < 5; tries++) {
    assert.deepEqual(textsOf(await login('alice', 'right')), [400, 'invalid username or password'])
  }
  assert.equal((await login('alice', 'right')).status, 403)
})

test('a user who is deleted and created again gets a new entity, without the groups and MFA secrets of the old one', async (t) => {
  const { login, world } = await open(t)
  const old = String((await login('alice', 'right')).body.auth['entity_id'])
  await world.ask('POST', 'identity/group', { name: 'ops', policies: 'p-ops', member_entity_ids: old })
  await world.ask('POST', `identity/entity/id/${old}`, { policies: 'p-entity' })
  await world.ask('POST', 'sys/mfa/method/totp/app', { issuer: 'x', qr_size: 0 })
  await world.ask('POST', 'sys/mfa/method/totp/app/admin-generate', { entity_id: old })
  const before = (await login('alice', 'right')).body.auth
  assert.deepEqual([before['entity_id'], before['identity_policies']], [old, ['p-entity', 'p-ops']])
  assert.equal((await world.ask('DELETE', 'auth/userpass/users/Alice')).status, 204)
  const aliasesOf = async (id: string) => (await world.ask('GET', `identity/entity/id/${id}`)).body.data['aliases']
  assert.deepEqual(await aliasesOf(old), [])
  assert.equal((await world.ask('POST', 'auth/userpass/users/alice', { password: 'new' })).status, 204)
  const { auth } = (await login('alice', 'new')).body
  const id = String(auth['entity_id'])
  assert.notEqual(id, old)
  assert.deepEqual([auth['policies'], auth['identity_policies'] ?? []], [['default'], []])
  const secretOf = async (entity: string) => (await world.ask('GET', `sys/mfa/method/totp/app/entity/${entity}`)).status
  assert.deepEqual([await secretOf(old), await secretOf(id)], [200, 404])
  assert.equal((await login('alice', 'new')).body.auth['entity_id'], id)
})

test('a token of a user who is deleted and created again is not renewed', async (t) => {
  const { login, world } = await open(t)
  const renew = async (token: string) => world.ask('POST', 'auth/token/renew-self', {}, { token })
  const before = String((await login('alice', 'right')).body.auth['client_token'])
  assert.equal((await renew(before)).status, 200)
  assert.equal((await world.ask('DELETE', 'auth/userpass/users/alice')).status, 204)
  assert.deepEqual(textsOf(await renew(before)), [400, 'the user of this token no longer exists, not renewing'])
  assert.equal((await world.ask('POST', 'auth/userpass/users/alice', { password: 'new' })).status, 204)
  const replaced = [400, 'the user or role of this token was replaced, not renewing']
  assert.deepEqual(textsOf(await renew(before)), replaced)
  const after = String((await login('alice', 'new')).body.auth['client_token'])
  assert.deepEqual(textsOf(await renew(before)), replaced)
  assert.equal((await renew(after)).status, 200)
  // An entity that is merged into another one takes its aliases along.
  const { entity_id: from } = (await login('alice', 'new')).body.auth
  const into = (await world.ask('POST', 'identity/entity', { name: 'other' })).body.data['id']
  assert.equal(
    (await world.ask('POST', 'identity/entity/merge', { from_entity_ids: [from], to_entity_id: into })).status,
    204,
  )
  assert.equal((await renew(after)).status, 200)
})

test('an alias created before its user is kept, and a missing user removes none', async (t) => {
  const { login, world } = await open(t)
  const accessor = String(world.core.open.mounts.get('auth/userpass/')?.record.accessor)
  const entity = await world.ask('POST', 'identity/entity', { name: 'bob' })
  const id = String(entity.body.data['id'])
  await world.ask('POST', 'identity/entity-alias', { name: 'bob', canonical_id: id, mount_accessor: accessor })
  assert.equal((await world.ask('DELETE', 'auth/userpass/users/bob')).status, 204)
  await world.ask('POST', 'auth/userpass/users/bob', { password: 'right' })
  assert.equal((await login('bob', 'right')).body.auth['entity_id'], id)
})

test('users are stored, shown and validated', async (t) => {
  const { login, world } = await open(t)
  const users = 'auth/userpass/users'
  const refused = async (path: string, body: object, text: RegExp) => {
    const answer = await world.ask('POST', path, body)
    assert.equal(answer.status, 400, answer.text)
    assert.match(String(answer.body.errors[0]), text)
  }
  await refused(`${users}/bob`, {}, /^missing password$/)
  await refused(`${users}/bob`, { password: 'x'.repeat(1025) }, /at most 1024/)
  await refused(`${users}/${'b'.repeat(257)}`, { password: 'x' }, /at most|1 to 256/)
  await refused(`${users}/bob`, { password: 'x', token_bound_cidrs: 'nonsense' }, /not an address/)
  await refused(`${users}/bob`, { password: 'x', token_type: 'huge' }, /token_type/)
  await refused(`${users}/bob`, { password: 'x', token_num_uses: -1 }, /negative/)
  await refused(`${users}/bob/password`, { password: 'x' }, /username does not exist/)
  await refused('auth/userpass/login/alice', {}, /missing password/)
  await refused(`${users}/alice`, { token_policies: 'a, ROOT' }, /cannot contain root/)
  await refused(`${users}/alice/policies`, { policies: 'root' }, /cannot contain root/)
  await world.ask('POST', `${users}/alice/policies`, { policies: 'a,b' })
  await world.ask('POST', `${users}/alice/password`, { password: 'new' })
  assert.equal((await login('alice', 'right')).status, 400)
  assert.deepEqual((await login('alice', 'new')).body.auth['policies'], ['a', 'b', 'default'])
  const shown = await world.ask('GET', `${users}/alice`)
  assert.deepEqual(shown.body.data['token_policies'], ['a', 'b'])
  assert.ok(!shown.text.includes('hash') && !shown.text.includes('salt'))
  assert.deepEqual((await world.ask('LIST', users)).body.data['keys'], ['alice'])
  assert.ok(!world.core.barrier.paths('').join('\n').includes('alice'))
  await world.ask('DELETE', `${users}/alice`)
  assert.equal((await world.ask('GET', `${users}/alice`)).status, 404)
  assert.equal((await world.ask('LIST', users)).status, 404)
})

test('logins create batch tokens, limited uses and tokens without the default policy', async (t) => {
  const { login, world } = await open(t, { token_type: 'batch', token_no_default_policy: true, token_policies: 'p' })
  const batch = (await login('alice', 'right')).body.auth
  assert.deepEqual([batch['token_type'], batch['policies'], batch['renewable']], ['batch', ['p'], false])
  await world.ask('POST', 'auth/userpass/users/alice', {
    token_type: 'service',
    token_num_uses: 1,
    policies: 'default',
  })
  const token = String((await login('alice', 'right')).body.auth['client_token'])
  const self = () => world.ask('GET', 'auth/token/lookup-self', undefined, { token })
  assert.deepEqual([(await self()).status, (await self()).status], [200, 403])
})

test('batch tokens of an auth method are refused once it is disabled, also after another is enabled there', async (t) => {
  const { login, world } = await open(t, { token_type: 'batch' })
  const token = String((await login('alice', 'right')).body.auth['client_token'])
  const isValid = async (each: string) =>
    (await world.ask('GET', 'auth/token/lookup-self', undefined, { token: each })).status === 200
  assert.ok(await isValid(token))
  await world.ask('POST', 'sys/remount', { from: 'auth/userpass', to: 'auth/people' })
  assert.ok(await isValid(token), 'a method that is moved is the same one')
  await world.ask('DELETE', 'sys/auth/people')
  assert.ok(!(await isValid(token)))
  const { storage } = world.core.open
  assert.equal(new TokenStore(storage).lookup(token, world.nowMs), undefined, 'nor by the entries alone')
  await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })
  await world.ask('POST', 'auth/userpass/users/alice', { password: 'right' })
  assert.ok(!(await isValid(token)))
})

/** Of each address, one by one; the long form sends 100. */
const GUESSES = Number(process.env['OUTPOST_GUESSES'] ?? 10)

test('a login of a user that does not exist costs a hash as expensive as that of any other', async (t) => {
  // More memory than a hash may use, so that computing it fails.
  const world = await CoreWorld.open(t, { engines: [userpassEngine({ hashCost: 1 << 17 })] })
  assert.equal((await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })).status, 204)
  const login = world.ask('POST', 'auth/userpass/login/absent', { password: 'wrong' }, ANONYMOUS)
  await assert.rejects(login, /a password could not be hashed/)
})

test('a name that is locked while its login is queued costs no hash', async (t) => {
  // More memory than a hash may use: a hash that is computed fails.
  const world = await CoreWorld.open(t, { engines: [userpassEngine({ hashCost: 1 << 17 })] })
  assert.equal((await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })).status, 204)
  const { core } = world
  const failuresOf = core.failuresOf.bind(core)
  let checks = 0
  t.mock.method(core, 'failuresOf', (mount: Parameters<typeof failuresOf>[0]) =>
    Object.assign(Object.create(failuresOf(mount)), { isLocked: () => ++checks > 1 }),
  )
  const login = await world.ask('POST', 'auth/userpass/login/absent', { password: 'wrong' }, ANONYMOUS)
  assert.deepEqual(textsOf(login), [403, 'permission denied'])
})

test('a flood of wrong passwords from 100 addresses tries no name more often than its lock allows', async (t) => {
  // A hash long enough that others of its name wait for their turn meanwhile.
  const { login, world } = await open(t, {}, userpassEngine({ hashCost: 1024 }))
  const names = ['alice', ...Array.from({ length: 9 }, (_, at) => `guess-${at}`)]
  const quiet = await world.ask('POST', 'auth/userpass/users/quiet', { password: 'right' })
  assert.equal(quiet.status, 204)
  const statuses = new Map<number, number>()
  const guess = async (at: number) => {
    const { status } = await login(names[at % 10] ?? '', 'wrong', { remote: `10.0.0.${(at * 7) % 100}` })
    statuses.set(status, (statuses.get(status) ?? 0) + 1)
  }
  const addresses = Array.from({ length: 100 }, async (_, address) => {
    for (let at = 0; at < GUESSES; at++) await guess(address + at * 100)
  })
  const logins: number[] = []
  for (let at = 0; at < 5; at++) logins.push((await login('quiet', 'right', { remote: '10.9.9.9' })).status)
  await Promise.all(addresses)
  assert.deepEqual(logins, [200, 200, 200, 200, 200], 'a user at another address has a turn')
  const tried = statuses.get(400) ?? 0
  // One more of each may be under way on each thread when the fifth fails.
  assert.ok(tried >= 50 && tried <= 70, String(tried))
  assert.equal(
    [...statuses.values()].reduce((a, b) => a + b, 0),
    100 * GUESSES,
  )
  assert.deepEqual(
    [...statuses.keys()].filter((status) => ![400, 403, 503].includes(status)),
    [],
  )
  assert.equal((await login('alice', 'right')).status, 403)
  assert.equal((await world.ask('GET', 'sys/locked-users')).body.data['total'], 10)
})

test('a password that is changed while a login waits for its hash lets in neither the old nor the new one', async (t) => {
  const { login, world } = await open(t)
  const storage = world.core.open.mounts.get('auth/userpass/')?.storage ?? assert.fail()
  const path = `user/${storage.list('user/', { after: '', limit: 1 })[0]}`
  const before = Buffer.from(storage.get(path) ?? assert.fail())
  const change = (body: object) => world.ask('POST', 'auth/userpass/users/alice', body)
  assert.equal((await change({ password: 'new' })).status, 204)
  const after = Buffer.from(storage.get(path) ?? assert.fail())
  const put = (value: Buffer) => storage.commit({ puts: [{ path, value }], deletes: [] })
  for (const password of ['right', 'new']) {
    await put(before)
    const underWay = login('alice', password)
    // In the same turn: the hash of the login has not been derived.
    const changed = put(after)
    assert.deepEqual(textsOf(await underWay), [400, 'invalid username or password'], password)
    await changed
  }
  assert.equal((await login('alice', 'right')).status, 400)
  assert.equal((await login('alice', 'new')).status, 200)

  const removed = login('alice', 'new')
  const removal = world.ask('DELETE', 'auth/userpass/users/alice')
  assert.deepEqual(textsOf(await removed), [400, 'invalid username or password'], 'a user who is removed')
  assert.equal((await removal).status, 204)
})

test('changes of a user during the hash of a login or password are kept and apply', async (t) => {
  const { login, world } = await open(t, { token_policies: 'first' })
  const policies = (names: string) => world.ask('POST', 'auth/userpass/users/alice/policies', { token_policies: names })
  const [made] = await Promise.all([login('alice', 'right'), policies('second')])
  assert.deepEqual(made.body.auth['policies'], ['default', 'second'])

  for (const path of ['users/alice', 'users/alice/password']) {
    const written = world.ask('POST', `auth/userpass/${path}`, { password: path })
    const [{ status, text }] = await Promise.all([written, policies(`after ${path}`)])
    assert.equal(status, 204, text)
    const user = (await world.ask('GET', 'auth/userpass/users/alice')).body.data
    assert.deepEqual(user['token_policies'], [`after ${path}`])
    assert.equal((await login('alice', path)).status, 200, path)
  }

  const underWay = world.ask('POST', 'auth/userpass/users/alice/password', { password: 'late' })
  await world.ask('DELETE', 'auth/userpass/users/alice')
  assert.deepEqual(textsOf(await underWay), [400, 'username does not exist'])
  assert.equal((await world.ask('GET', 'auth/userpass/users/alice')).status, 404, 'a user who is removed stays so')
})

test('once the period of a user is removed, its token ends at the maximum of the mount', async (t) => {
  const { login, world } = await open(t, { token_period: '20d' })
  const user = (body: object) => world.ask('POST', 'auth/userpass/users/alice', body)
  const token = String((await login('alice', 'right')).body.auth['client_token'])
  const renew = () => world.ask('POST', 'auth/token/renew-self', { increment: '20d' }, { token })
  const days = async (count: number) => {
    world.nowMs += count * 86_400_000
    return Number((await renew()).body.auth['lease_duration']) / 86_400
  }
  assert.deepEqual([await days(19), await days(1)], [20, 20], 'a period has no last day')
  assert.equal((await user({ token_period: '10d' })).status, 204)
  assert.equal(await days(1), 10)
  assert.equal((await user({ token_period: 0 })).status, 204)
  assert.equal(await days(1), 10, 'the maximum is 32 days after the login')
  assert.equal(await days(9), 1)
  world.nowMs += 86_399_000
  assert.equal((await renew()).body.auth['lease_duration'], 1)
  world.nowMs += 1000
  assert.equal((await renew()).status, 403)
})
