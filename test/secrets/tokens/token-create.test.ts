import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../../helpers/core-world.ts'
import { isToken, lookup, make, TOKEN_POLICY, tokenPathsIn, writePolicy } from '../token-world.ts'

async function refused(world: CoreWorld, body: object, by?: string, path = 'create'): Promise<string> {
  const answer = await world.ask('POST', `auth/token/${path}`, body, by === undefined ? {} : { token: by })
  assert.equal(answer.status, 400, answer.text)
  return String(answer.body.errors[0])
}

test('a token request that is not allowed is refused and creates nothing', async (t) => {
  const world = await CoreWorld.open(t)
  await writePolicy(world, 'maker', TOKEN_POLICY)
  const maker = await make(world, { policies: ['maker'] })
  const limited = await make(world, { policies: ['maker'], num_uses: 9 })
  const batch = await make(world, { policies: ['maker'], type: 'batch' })
  const before = tokenPathsIn(world).length
  const rows: [object, string | undefined, RegExp][] = [
    [{ policies: ['other'] }, maker.token, /^child policies must be subset of parent$/],
    [{ policies: ['root'] }, maker.token, /^child policies must be subset of parent$/],
    [{ no_parent: true }, maker.token, /^root or sudo privileges required to create orphan token$/],
    [{ id: 'mine' }, maker.token, /^root or sudo privileges required to specify token id$/],
    [{ period: '1h' }, maker.token, /^root or sudo privileges required to create periodic token$/],
    [{}, limited.token, /^restricted use token cannot generate child tokens$/],
    [{}, batch.token, /^batch tokens cannot create more tokens$/],
    [{ type: 'batch' }, undefined, /^batch tokens cannot be root tokens$/],
    [{ type: 'batch', policies: ['a'], num_uses: 1 }, undefined, /^batch tokens cannot have "num_uses" set$/],
    [{ type: 'batch', policies: ['a'], period: 5 }, undefined, /^batch tokens cannot have "period" set$/],
    [{ type: 'batch', policies: ['a'], explicit_max_ttl: 5 }, undefined, /^batch tokens cannot have "explicit_max/],
    [{ type: 'batch', policies: ['a'], id: 'x' }, undefined, /^batch tokens cannot have "id" set$/],
    [{ type: 'both' }, undefined, /^invalid 'token_type' value$/],
    [{ num_uses: -1 }, undefined, /^number of uses cannot be negative$/],
    [{ ttl: '-5m' }, undefined, /^ttl must be positive$/],
    [{ ttl: 'soon' }, undefined, /^ttl: expected seconds or a duration/],
    [{ period: '-1' }, undefined, /^period must be positive$/],
    [{ explicit_max_ttl: -1 }, undefined, /^explicit_max_ttl must be positive$/],
    [{ id: 's.abc' }, undefined, /^custom token ID cannot have the 's\.' prefix$/],
    [{ id: 'b.abc' }, undefined, /^custom token ID cannot have the 'b\.' prefix$/],
    [{ id: 'a.bc' }, undefined, /^custom token ID cannot have a '\.'$/],
    [{ id: 'a b' }, undefined, /^custom token ID must have at most 512 ASCII characters and no spaces$/],
    [{ id: 'ä' }, undefined, /^custom token ID must have at most 512 ASCII/],
    [{ policies: ['response-wrapping'] }, undefined, /^cannot assign policy "response-wrapping"$/],
    [{ entity_alias: 'x' }, undefined, /^'entity_alias' is only allowed in combination with token role$/],
    [{ meta: { a: 'x'.repeat(70_000) } }, undefined, /^the token entry exceeds 65536 bytes/],
    [{ type: 'batch', policies: ['a'], meta: { a: 'x'.repeat(7000) } }, undefined, /exceeds 8192 characters/],
    [{ policies: { a: 1 } }, undefined, /^Field validation failed: error converting input for field "policies"/],
    [{ meta: 'x' }, undefined, /^Field validation failed: error converting input for field "meta"/],
  ]
  for (const [body, by, error] of rows) assert.match(await refused(world, body, by), error, JSON.stringify(body))
  assert.match(await refused(world, {}, undefined, 'create/none'), /^unknown role none$/)
  assert.equal(tokenPathsIn(world).length, before)
})

test('a token gets the requested policies or those of its parent, with or without default', async (t) => {
  const world = await CoreWorld.open(t)
  await writePolicy(world, 'maker', TOKEN_POLICY)
  await writePolicy(world, 'sudoer', 'path "auth/token/*" { capabilities = ["update", "sudo"] }')
  const maker = await make(world, { policies: ['maker', 'b', 'a'] })
  const bare = await make(world, { policies: ['maker', 'a'], no_default_policy: true })
  const sudoer = await make(world, { policies: ['sudoer'] })
  const policiesOf = async (body: object, by?: string) => (await make(world, body, by)).auth['policies']
  assert.deepEqual(await policiesOf({}), ['root'])
  assert.deepEqual(await policiesOf({}, maker.token), ['a', 'b', 'default', 'maker'])
  assert.deepEqual(await policiesOf({ policies: [' B', 'A ', 'a', ''] }, maker.token), ['a', 'b', 'default'])
  assert.deepEqual(await policiesOf({ policies: ['a'], no_default_policy: true }, maker.token), ['a'])
  assert.deepEqual(await policiesOf({ no_default_policy: true }, maker.token), ['a', 'b', 'maker'])
  assert.deepEqual(await policiesOf({ policies: ['a'] }, bare.token), ['a'], 'the parent has no default either')
  assert.deepEqual(await policiesOf({ policies: ['anything'] }, sudoer.token), ['anything', 'default'])
  assert.match(await refused(world, { policies: ['root', 'a'] }, sudoer.token), /^root tokens may not be created/)
  assert.deepEqual(await policiesOf({ policies: ['root', 'a'] }), ['root'])
  assert.deepEqual((await make(world, { policies: ['maker', 'no-such'] })).warnings, [
    'Policy "no-such" does not exist',
  ])
})

test('a lookup shows everything that was requested at creation', async (t) => {
  const world = await CoreWorld.open(t)
  const meta = { who: 'me', 'a b': '<&>', __proto__x: '1' }
  const body = { policies: ['p'], ttl: '2h', explicit_max_ttl: '3h', display_name: 'Bob & co!', num_uses: 7, meta }
  const { accessor, auth, token } = await make(world, { ...body, renewable: false, no_parent: true })
  assert.match(token, /^s\.[0-9A-Za-z]{24}$/)
  assert.match(accessor, /^[0-9A-Za-z]{24}$/)
  const { creation_time: createdAt, expire_time: end, issue_time: issuedAt, ...rest } = await lookup(world, token)
  assert.equal(createdAt, Math.floor(world.nowMs / 1000))
  assert.equal(end, new Date(world.nowMs + 7_200_000).toISOString())
  assert.equal(issuedAt, new Date(world.nowMs).toISOString())
  assert.deepEqual(rest, {
    accessor,
    creation_ttl: 7200,
    display_name: 'token-Bob---co',
    entity_id: '',
    explicit_max_ttl: 10_800,
    id: token,
    meta,
    num_uses: 7,
    orphan: true,
    path: 'auth/token/create',
    policies: ['default', 'p'],
    renewable: false,
    ttl: 7200,
    type: 'service',
  })
  assert.deepEqual([auth['lease_duration'], auth['num_uses'], auth['orphan']], [7200, 7, true])
})

test('a chosen token ID can be used once only, also while the previous token is being removed', async (t) => {
  const world = await CoreWorld.open(t)
  await make(world, { id: 'chosen', policies: ['default'] })
  assert.match(await refused(world, { id: 'chosen' }), /^cannot create a token with a duplicate ID$/)
  const both = await Promise.all(
    ['twice', 'twice'].map(async (id) => world.ask('POST', 'auth/token/create', { id, policies: ['default'] })),
  )
  assert.deepEqual(new Set(both.map(({ status }) => status)), new Set([200, 400]))
  await world.ask('POST', 'auth/token/revoke', { token: 'chosen' })
  assert.ok(!(await isToken(world, 'chosen')))
  await make(world, { id: 'chosen', policies: ['default'] })
  assert.ok(await isToken(world, 'chosen'))
})

test('a batch token is not stored, ends with its parent, and is invalid in another cluster', async (t) => {
  const [world, other] = [await CoreWorld.open(t), await CoreWorld.open(t)]
  await writePolicy(world, 'maker', TOKEN_POLICY)
  const parent = await make(world, { policies: ['maker'] })
  const before = tokenPathsIn(world)
  const body = { type: 'batch', ttl: '10m', meta: { a: 'b' }, display_name: 'x' }
  const { auth, token } = await make(world, body, parent.token)
  assert.deepEqual(tokenPathsIn(world), before)
  assert.match(token, /^b\.[\w-]+$/)
  const facts = [auth['accessor'], auth['renewable'], auth['token_type'], auth['lease_duration']]
  assert.deepEqual(facts, ['', false, 'batch', 600])
  const { display_name: name, meta, orphan, type } = await lookup(world, token)
  assert.deepEqual([name, meta, orphan, type], ['token-x', { a: 'b' }, false, 'batch'])
  const self = await world.ask('GET', 'auth/token/lookup-self', undefined, { token })
  assert.equal(self.body.data['id'], token)
  for (const verb of ['renew', 'revoke']) {
    const answer = await world.ask('POST', `auth/token/${verb}`, { token })
    const done = verb === 'renew' ? 'renewed' : 'revoked'
    assert.deepEqual([answer.status, answer.body.errors], [400, [`batch tokens cannot be ${done}`]])
  }
  const cubby = await world.ask('GET', 'cubbyhole/x', undefined, { token })
  assert.equal(cubby.status, 400)
  assert.ok(!(await isToken(other, token)))
  for (const changed of [`${token}A`, token.slice(0, -4), token.replace(/.$/, '!'), 'b.', 'b.AAAA']) {
    assert.ok(!(await isToken(world, changed)), changed)
  }
  assert.ok(await isToken(world, token))
  await world.ask('POST', 'auth/token/revoke', { token: parent.token })
  assert.ok(!(await isToken(world, token)))
  const orphan2 = await make(world, { type: 'batch', ttl: '10m', policies: ['default'] })
  world.nowMs += 600_000
  assert.ok(!(await isToken(world, orphan2.token)))
})

test('the depth of descendants is limited', async (t) => {
  const world = await CoreWorld.open(t)
  let last = world.rootToken
  for (let depth = 1; depth <= 100; depth++) last = (await make(world, {}, last)).token
  assert.match(await refused(world, {}, last), /^a token can have at most 100 ancestors$/)
  await make(world, { no_parent: true }, last)
  assert.ok(await isToken(world, last))
})

test('an accessor identifies a token without revealing it', async (t) => {
  const world = await CoreWorld.open(t)
  const made = await Promise.all(Array.from({ length: 70 }, async () => make(world, { policies: ['default'] })))
  const names = (await world.ask('LIST', 'auth/token/accessors')).body.data['keys'] as string[]
  assert.equal(names.length, 71)
  for (const { accessor } of made) assert.ok(names.includes(accessor))
  const page = await world.ask('GET', `auth/token/accessors?list=true&limit=20&after=${names[29]}`)
  assert.deepEqual(page.body.data['keys'], names.slice(30, 50))
  const { accessor = '', token = '' } = made[0] ?? {}
  const found = await world.ask('POST', 'auth/token/lookup-accessor', { accessor })
  assert.deepEqual([found.body.data['id'], found.body.data['accessor']], ['', accessor])
  assert.equal((await world.ask('POST', 'auth/token/lookup-accessor', { accessor: token })).status, 400)
  assert.ok(!(await isToken(world, accessor)))
  assert.equal((await world.ask('POST', 'auth/token/revoke-accessor', { accessor })).status, 204)
  assert.ok(!(await isToken(world, token)))
})
