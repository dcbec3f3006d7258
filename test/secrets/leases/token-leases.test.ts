/** Tokens as leases of the paths at which they were issued: `sys/leases` for tokens that `auth/` issued. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { CoreWorld } from '../../helpers/core-world.ts'
import { eventually } from '../../helpers/eventually.ts'
import { leaseTestEngine } from '../../helpers/lease-test-engine.ts'
import { quickUserpass } from '../../helpers/quick-userpass.ts'
import { isToken, make, reopened, tokenPathsIn, writePolicy } from '../token-world.ts'

const USERS = ['alice', 'bob', 'carol']

/** `userpass` and `userpass2`, each with the same users. */
async function open(t: TestContext, options: Parameters<typeof CoreWorld.open>[1] = {}) {
  const world = await CoreWorld.open(t, { engines: [quickUserpass], ...options })
  for (const path of ['userpass', 'userpass2']) {
    await world.ask('POST', `sys/auth/${path}`, { type: 'userpass' })
    for (const name of USERS) {
      await world.ask('POST', `auth/${path}/users/${name}`, { password: 'right', token_policies: 'own' })
    }
  }
  const login = async (path: string, name: string) => {
    const answer = await world.ask('POST', `auth/${path}/login/${name}`, { password: 'right' }, { token: null })
    assert.equal(answer.status, 200, answer.text)
    return String(answer.body.auth['client_token'])
  }
  return { world, login }
}

async function keysBelow(world: CoreWorld, prefix: string): Promise<readonly string[]> {
  const answer = await world.ask('LIST', `sys/leases/lookup/${prefix}`)
  return answer.status === 404 ? [] : (answer.body.data['keys'] as string[])
}

const hashOf = (world: CoreWorld, token: string) => world.core.open.tokens.hashOf(token)

async function revokePrefix(world: CoreWorld, prefix: string, body?: object): Promise<void> {
  const answer = await world.ask('PUT', `sys/leases/revoke-prefix/${prefix}`, body)
  assert.equal(answer.status, 204, answer.text)
}

test('a token can be listed, looked up and revoked as a lease, but not renewed', async (t) => {
  const world = await CoreWorld.open(t)
  const made = await make(world, { policies: ['default'], ttl: '1h' })
  const child = await make(world, { policies: ['root'], ttl: '1h' })
  assert.deepEqual(await keysBelow(world, ''), ['auth/'])
  assert.deepEqual(await keysBelow(world, 'auth'), ['token/'])
  assert.deepEqual(await keysBelow(world, 'auth/token'), ['create/'])
  const keys = await keysBelow(world, 'auth/token/create')
  assert.equal(keys.length, 2)
  assert.ok(keys.every((key) => /^h[\da-f]{64}$/.test(key)))
  const id = `auth/token/create/h${world.core.open.tokens.hashOf(made.token)}`
  assert.ok(keys.includes(id.slice(id.lastIndexOf('/') + 1)))
  world.nowMs += 60_000
  const looked = await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })
  const { expire_time: expires, issue_time: issued, ...rest } = looked.body.data
  assert.deepEqual(rest, { id, path: 'auth/token/create', last_renewal: null, renewable: true, ttl: 3540 })
  assert.equal(Date.parse(String(expires)) - Date.parse(String(issued)), 3_600_000)
  const renewed = await world.ask('PUT', 'sys/leases/renew', { lease_id: id, increment: 600 })
  assert.deepEqual([renewed.status, renewed.body.errors], [400, ['tokens cannot be renewed through this endpoint']])
  await world.ask('POST', 'auth/token/renew', { token: made.token, increment: 1800 })
  const again = (await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })).body.data
  assert.deepEqual([again['ttl'], again['last_renewal']], [1800, new Date(world.nowMs).toISOString()])
  const grandchild = await make(world, { policies: ['default'] }, child.token)
  const childId = `auth/token/create/h${world.core.open.tokens.hashOf(child.token)}`
  assert.equal((await world.ask('PUT', `sys/leases/revoke/${childId}`, {})).status, 204)
  assert.deepEqual([await isToken(world, child.token), await isToken(world, grandchild.token)], [false, false])
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: id, sync: true })).status, 204)
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: id })).status, 204, 'again')
  assert.ok(!(await isToken(world, made.token)))
  assert.equal((await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })).body.errors[0], 'invalid lease')
  assert.equal((await world.ask('PUT', 'sys/leases/renew', { lease_id: id })).body.errors[0], 'lease not found')
  assert.equal((await world.ask('LIST', 'sys/leases/lookup/')).status, 404)
})

test('service tokens are leases, and batch tokens, wrapping tokens and the first root token are not', async (t) => {
  const { world, login } = await open(t)
  await world.ask('POST', 'auth/token/roles/ci', { allowed_policies: 'default', path_suffix: 'jobs' })
  const rooted = await make(world, { policies: ['root'] })
  const orphan = await make(world, { policies: ['default'], ttl: '1h' }, undefined, 'create-orphan')
  const periodic = await make(world, { policies: ['default'], period: '10m' })
  const ofRole = await make(world, {}, undefined, 'create/ci')
  await make(world, { type: 'batch', policies: ['default'] })
  const fixed = await make(world, { policies: ['default'], renewable: false })
  await world.ask('POST', 'auth/token/create', { ttl: '1h' }, { headers: { 'X-Vault-Wrap-TTL': '60' } })
  await world.ask('POST', 'auth/userpass2/tune', {})
  await world.ask('POST', 'sys/auth/userpass2/tune', { token_type: 'batch' })
  await login('userpass2', 'alice')
  assert.deepEqual(await keysBelow(world, 'auth'), ['token/'])
  assert.deepEqual(await keysBelow(world, 'auth/token'), ['create-orphan/', 'create/'])
  const created = await keysBelow(world, 'auth/token/create')
  const hash = (token: string) => `h${world.core.open.tokens.hashOf(token)}`
  const wrapped = created.filter((key) => ![rooted, periodic, fixed].some(({ token }) => key === hash(token)))
  assert.deepEqual(wrapped.length, 2, 'the folder of the role, and the token inside of the wrapping token')
  assert.ok(wrapped.includes('ci/'))
  assert.deepEqual(await keysBelow(world, 'auth/token/create/ci'), ['jobs/'])
  assert.deepEqual(await keysBelow(world, 'auth/token/create/ci/jobs'), [hash(ofRole.token)])
  const look = async (path: string, token: string) => {
    const { body } = await world.ask('PUT', 'sys/leases/lookup', { lease_id: `${path}/${hash(token)}` })
    return [body.data['expire_time'] === null, body.data['renewable'], body.data['ttl']]
  }
  assert.deepEqual(await look('auth/token/create', rooted.token), [true, false, 0])
  assert.deepEqual(await look('auth/token/create-orphan', orphan.token), [false, true, 3600])
  assert.deepEqual(await look('auth/token/create', periodic.token), [false, true, 600])
  const refused = await world.ask('PUT', 'sys/leases/renew', { lease_id: `auth/token/create/${hash(fixed.token)}` })
  assert.equal(refused.body.errors[0], 'lease is not renewable')
  const first = await world.ask('PUT', 'sys/leases/lookup', { lease_id: `auth/token/root/${hash(world.rootToken)}` })
  assert.equal(first.body.errors[0], 'invalid lease')
  assert.deepEqual(await world.core.open.leases.counts(), { leases: 0, irrevocable: 0 }, 'no lease is counted twice')
})

test('revoke-prefix of an auth method revokes its tokens and their descendants only', async (t) => {
  const { world, login } = await open(t)
  await writePolicy(world, 'own', 'path "auth/token/create" { capabilities = ["update"] }')
  const tokens = await Promise.all(USERS.map((name) => login('userpass', name)))
  const [alice = '', bob = ''] = tokens
  const child = (await make(world, { policies: ['own'] }, alice)).token
  const other = await login('userpass2', 'alice')
  const created = (await make(world, { policies: ['default'] })).token
  assert.deepEqual(await keysBelow(world, 'auth'), ['token/', 'userpass/', 'userpass2/'])
  assert.deepEqual(await keysBelow(world, 'auth/userpass/login'), ['alice/', 'bob/', 'carol/'])
  assert.equal((await keysBelow(world, 'auth/userpass/login/bob')).length, 1)
  await revokePrefix(world, 'auth/userpass/login/bo')
  assert.ok(await isToken(world, bob), 'a prefix is whole names')
  await revokePrefix(world, 'auth/userpass/login/bob')
  assert.ok(!(await isToken(world, bob)))
  assert.ok(await isToken(world, alice))
  await revokePrefix(world, 'auth/userpass', { sync: true })
  for (const token of [...tokens, child]) assert.ok(!(await isToken(world, token)))
  for (const token of [other, created]) assert.ok(await isToken(world, token))
  assert.deepEqual(await keysBelow(world, 'auth'), ['token/', 'userpass2/'])
  const hashes = [...tokens, child].map((token) => world.core.open.tokens.hashOf(token))
  const left = tokenPathsIn(world).filter((path) => hashes.some((hash) => path.includes(hash)))
  assert.deepEqual(left, [], 'with sync nothing is left of them')
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-force/auth/userpass2')).status, 204)
  assert.ok(!(await isToken(world, other)))
  await revokePrefix(world, `auth/token/create/h${world.core.open.tokens.hashOf(created)}`)
  assert.ok(!(await isToken(world, created)), 'a prefix may be the ID of a lease')
})

test('a prefix finds the tokens of a user in any case of the name', async (t) => {
  const { world, login } = await open(t)
  const tokens = [await login('userpass', 'Alice'), await login('userpass', 'alice')]
  assert.equal((await keysBelow(world, 'auth/userpass/login/ALICE')).length, 2)
  assert.deepEqual(await keysBelow(world, 'auth/userpass/login'), ['alice/'])
  await revokePrefix(world, 'auth/userpass/login/ALICE')
  for (const token of tokens) assert.ok(!(await isToken(world, token)))
})

test('leases of revoked tokens are revoked with them', async (t) => {
  const own = leaseTestEngine()
  const { world, login } = await open(t, { engines: [own.engine, quickUserpass] })
  await world.ask('POST', 'sys/mounts/lent', { type: 'lender' })
  await writePolicy(world, 'own', 'path "lent/*" { capabilities = ["read"] }')
  for (const name of USERS) {
    const token = await login('userpass', name)
    assert.equal((await world.ask('GET', 'lent/creds/app?ttl=3600', undefined, { token })).status, 200)
  }
  assert.equal(own.leased.size, 3)
  assert.deepEqual(await keysBelow(world, ''), ['auth/', 'lent/'])
  await revokePrefix(world, 'auth/userpass')
  await eventually(() => own.leased.size === 0, 'the leases of the tokens end')
})

test('a lease ID is not accepted as a token or at another path, and a login stores no further entries', async (t) => {
  const { world, login } = await open(t)
  const before = new Set(tokenPathsIn(world))
  const token = await login('userpass', 'alice')
  const hash = world.core.open.tokens.hashOf(token)
  const kinds = tokenPathsIn(world).flatMap((path) => (before.has(path) ? [] : [path.split('/')[2]]))
  assert.deepEqual(
    kinds.toSorted((a = '', b = '') => a.localeCompare(b)),
    ['accessor', 'expiry', 'id', 'lease'],
    'the entry and the names that lead to it',
  )
  for (const path of tokenPathsIn(world)) assert.ok(!path.includes('alice') && !path.includes('userpass'), path)
  const id = `auth/userpass/login/alice/h${hash}`
  assert.equal((await world.ask('PUT', 'sys/leases/lookup', { lease_id: id })).status, 200)
  for (const presented of [id, `h${hash}`, hash]) {
    assert.ok(!(await isToken(world, presented)))
    assert.equal((await world.ask('POST', 'auth/token/lookup', { token: presented })).status, 403)
    const named = await world.ask('POST', 'auth/token/lookup-accessor', { accessor: presented })
    assert.equal(named.status, 400)
  }
  for (const foreign of [id.replace('alice', 'bob'), id.replace('/h', '/'), id.slice(0, -1), `x/${id}`]) {
    assert.equal((await world.ask('PUT', 'sys/leases/lookup', { lease_id: foreign })).body.errors[0], 'invalid lease')
    assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: foreign })).status, 204)
  }
  assert.ok(await isToken(world, token))
})

test('tokens of a moved auth method are found by the path at which they were issued', async (t) => {
  const { world, login } = await open(t)
  const old = await login('userpass', 'alice')
  await world.ask('POST', 'sys/remount', { from: 'auth/userpass', to: 'auth/people' })
  const fresh = await login('people', 'alice')
  await revokePrefix(world, 'auth/people')
  assert.deepEqual([await isToken(world, old), await isToken(world, fresh)], [true, false])
  await revokePrefix(world, 'auth/userpass')
  assert.ok(!(await isToken(world, old)))
})

test('a database of an older version gets the lease index, and the old index is removed', async (t) => {
  const { world, login } = await open(t)
  const mount = world.core.open.mounts.get('auth/userpass/')?.record.uuid ?? assert.fail()
  const logins = [await login('userpass', 'alice'), await login('userpass', 'bob')]
  const created = await Promise.all(Array.from({ length: 70 }, async () => (await make(world, { ttl: '1h' })).token))
  const indexed = tokenPathsIn(world).toSorted()
  const puts = logins.map((token) => ({
    path: `sys/token/login/${mount}/${hashOf(world, token)}`,
    value: Buffer.alloc(0),
  }))
  // The index was begun, as by a process that was killed meanwhile.
  const deletes = tokenPathsIn(world).filter((path) => path.startsWith('sys/token/lease/'))
  await world.core.open.storage.commit({ puts: [], deletes: ['core/token-leases-indexed', ...deletes.slice(5)] }, puts)
  await world.close()
  const next = await reopened(t, world, { engines: [quickUserpass] })
  assert.equal((await keysBelow(next, 'auth/token/create')).length, created.length)
  assert.deepEqual(tokenPathsIn(next).toSorted(), indexed)
  await revokePrefix(next, 'auth/userpass/login/alice')
  const [alice = '', bob = ''] = logins
  assert.deepEqual([await isToken(next, alice), await isToken(next, bob)], [false, true])
  assert.equal((await next.ask('DELETE', 'sys/auth/userpass')).status, 204)
  assert.ok(!(await isToken(next, bob)))
  await next.core.seal()
})

test('disabling an auth method revokes all its tokens while the lease index is incomplete', async (t) => {
  const { world, login } = await open(t)
  const mount = world.core.open.mounts.get('auth/userpass/')?.record.uuid ?? assert.fail()
  const token = await login('userpass', 'alice')
  const path = `sys/token/login/${mount}/${world.core.open.tokens.hashOf(token)}`
  const deletes = [
    'core/token-leases-indexed',
    ...tokenPathsIn(world).filter((each) => each.startsWith('sys/token/lease/')),
  ]
  await world.core.open.storage.commit({ puts: [], deletes }, [{ path, value: Buffer.alloc(0) }])
  await world.close()
  // An isolated core does no work by itself.
  const next = await reopened(t, world, { engines: [quickUserpass], isIsolated: true })
  assert.equal((await next.ask('DELETE', 'sys/auth/userpass')).status, 204)
  assert.ok(!(await isToken(next, token)))
  assert.deepEqual(next.core.barrier.paths('sys/token/login/'), [])
  await next.core.seal()
})

test('a prefix finds tokens after hundreds of stale index entries and damaged tokens', async (t) => {
  const { world, login } = await open(t)
  const token = await login('userpass', 'alice')
  const index = tokenPathsIn(world).find(
    (path) => path.startsWith('sys/token/lease/') && path.endsWith(hashOf(world, token)),
  )
  const folder = index?.slice(0, index.lastIndexOf('/') + 1) ?? assert.fail('it is a lease')
  const hashes = Array.from({ length: 600 }, (_, at) => String(at).padStart(64, '0'))
  const { storage } = world.core.open
  const value = Buffer.from('damaged')
  await storage.commit(
    { puts: hashes.slice(0, 20).map((hash) => ({ path: `sys/token/id/${hash}`, value })), deletes: [] },
    hashes.map((hash) => ({ path: folder + hash, value: Buffer.alloc(0) })),
  )
  assert.equal((await keysBelow(world, 'auth/userpass/login/alice')).length, hashes.length + 1)
  await revokePrefix(world, 'auth/userpass/login/alice')
  assert.ok(!(await isToken(world, token)))
})

test('revoke-prefix of many tokens uses commits of bounded size and lets requests through in between', async (t) => {
  const sizes: number[] = []
  let isCounting = false
  const world = await CoreWorld.open(t, {
    wrap: (real) =>
      new Proxy(real, {
        get(target, name) {
          const value: unknown = Reflect.get(target, name, target)
          if (typeof value !== 'function') return value
          return (...given: unknown[]) => {
            const [batch] = given as [{ deletes: readonly string[] }]
            if (name === 'commit' && isCounting) sizes.push(batch.deletes.length)
            return (value as (...each: unknown[]) => unknown).apply(target, given)
          }
        },
      }),
  })
  const tokens = await Promise.all(
    Array.from({ length: 600 }, async () => (await make(world, { policies: ['default'], ttl: '1h' })).token),
  )
  isCounting = true
  let served = 0
  const serving = setInterval(() => {
    void world.ask('GET', 'sys/health', undefined, { token: null }).then(() => served++)
  }, 1)
  t.after(() => clearInterval(serving))
  await revokePrefix(world, 'auth/token/create', { sync: true })
  clearInterval(serving)
  assert.ok(served > 10, `${served} requests while it was under way`)
  assert.ok(
    sizes.length >= 10 && Math.max(...sizes) <= 32 * 6,
    `${sizes.length} commits, at most ${Math.max(...sizes)}`,
  )
  for (const token of tokens.slice(0, 5)) assert.ok(!(await isToken(world, token)))
  assert.equal(tokenPathsIn(world).length, 2, 'the root token and its accessor')
})
