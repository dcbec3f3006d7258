import assert from 'node:assert/strict'
import { test } from 'node:test'
import { matchesGlob } from '../../../src/secrets/policies/policy-name.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { isToken, lookup, make, writePolicy } from '../token-world.ts'

const FRESH = {
  allowed_entity_aliases: null,
  allowed_policies: [],
  allowed_policies_glob: [],
  disallowed_policies: [],
  disallowed_policies_glob: [],
  explicit_max_ttl: 0,
  name: 'r',
  orphan: false,
  path_suffix: '',
  period: 0,
  renewable: true,
  token_explicit_max_ttl: 0,
  token_no_default_policy: false,
  token_period: 0,
  token_type: 'default-service',
}

test('a role is written, partly changed, read, listed and deleted', async (t) => {
  const world = await CoreWorld.open(t)
  const read = async () => (await world.ask('GET', 'auth/token/roles/r')).body.data
  assert.equal((await world.ask('POST', 'auth/token/roles/r', {})).status, 204)
  assert.deepEqual(await read(), FRESH)
  const all = {
    allowed_policies: 'B,a',
    allowed_policies_glob: ['x-*'],
    disallowed_policies: 'c',
    disallowed_policies_glob: 'y-*',
    allowed_entity_aliases: ['one', 'two-*'],
    orphan: true,
    renewable: false,
    path_suffix: 'v1',
    token_period: '1h',
    token_explicit_max_ttl: 7200,
    token_no_default_policy: true,
    token_bound_cidrs: ['10.0.0.0/8', '::1'],
    token_num_uses: 3,
    token_type: 'service',
  }
  await world.ask('POST', 'auth/token/roles/r', all)
  const full = {
    ...all,
    allowed_policies: ['a', 'b'],
    disallowed_policies: ['c'],
    disallowed_policies_glob: ['y-*'],
    name: 'r',
    token_period: 3600,
    period: 3600,
    explicit_max_ttl: 7200,
    bound_cidrs: all.token_bound_cidrs,
  }
  assert.deepEqual(await read(), full)
  await world.ask('POST', 'auth/token/roles/r', { period: 60, orphan: 'false' })
  assert.deepEqual(await read(), { ...full, token_period: 60, period: 60, orphan: false })
  assert.deepEqual((await world.ask('LIST', 'auth/token/roles')).body.data['keys'], ['r'])
  assert.equal((await world.ask('DELETE', 'auth/token/roles/r')).status, 204)
  assert.equal((await world.ask('GET', 'auth/token/roles/r')).status, 404)
  assert.equal((await world.ask('LIST', 'auth/token/roles')).status, 404)
})

test('an invalid role is refused and changes nothing', async (t) => {
  const world = await CoreWorld.open(t)
  await world.ask('POST', 'auth/token/roles/r', { path_suffix: 'old' })
  const rows: [object, RegExp][] = [
    [{ token_type: 'other' }, /^invalid 'token_type' value "other"$/],
    [{ path_suffix: 'a/b' }, /^given role path suffix contains invalid characters/],
    [{ path_suffix: 'a..b' }, /^given role path suffix contains invalid characters/],
    [{ token_bound_cidrs: '10.0.0.0/33' }, /^bound CIDRs: "10\.0\.0\.0\/33" is not an address or a range/],
    [{ token_bound_cidrs: 'host' }, /^bound CIDRs: "host"/],
    [{ token_num_uses: -1 }, /^token_num_uses cannot be negative$/],
    [{ token_period: '-1h' }, /error converting input for field "token_period"/],
    [{ token_type: 'batch' }, /non-orphan tokens$/],
    [{ token_type: 'batch', orphan: true }, /renewable tokens$/],
    [{ token_type: 'batch', orphan: true, renewable: false, period: 5 }, /periodic tokens$/],
  ]
  for (const [body, error] of rows) {
    const answer = await world.ask('POST', 'auth/token/roles/r', body)
    assert.equal(answer.status, 400, JSON.stringify(body))
    assert.match(String(answer.body.errors[0]), error)
  }
  assert.deepEqual((await world.ask('GET', 'auth/token/roles/r')).body.data, { ...FRESH, path_suffix: 'old' })
})

test('a role limits the policies of its tokens', async (t) => {
  const world = await CoreWorld.open(t)
  await writePolicy(world, 'maker', 'path "auth/token/create/*" { capabilities = ["update"] }')
  const maker = await make(world, { policies: ['maker'] })
  const role = (body: object) => world.ask('POST', 'auth/token/roles/r', body)
  const NONE = {
    allowed_policies: [],
    allowed_policies_glob: [],
    disallowed_policies: [],
    disallowed_policies_glob: [],
  }
  const rows: [object, object, readonly string[] | RegExp][] = [
    [{}, {}, ['default', 'maker']],
    [{}, { policies: ['other'] }, /^child policies must be subset of parent$/],
    [{ allowed_policies: ['a', 'b'] }, {}, ['a', 'b', 'default']],
    [{ allowed_policies: ['a', 'b'] }, { policies: ['b'] }, ['b', 'default']],
    [{ allowed_policies: ['a', 'b'] }, { policies: ['b'], no_default_policy: true }, ['b']],
    [
      { allowed_policies: ['a'] },
      { policies: ['c'] },
      /^token policies \(\["c" "default"\]\) must be subset of the role's allowed policies \(\["a" "default"\]\) or glob policies \(\[\]\)$/,
    ],
    [{ allowed_policies: ['a'], allowed_policies_glob: ['x-*'] }, { policies: ['x-1', 'a'] }, ['a', 'default', 'x-1']],
    [{ allowed_policies_glob: ['x-*'] }, {}, ['default']],
    [{ allowed_policies_glob: ['*'] }, { policies: ['root'] }, /^root tokens may not be created/],
    [{ allowed_policies: ['root'] }, {}, /^root tokens may not be created without parent token being root$/],
    [{ disallowed_policies: ['z'] }, { policies: ['any'] }, ['any', 'default']],
    [{ disallowed_policies: ['z'] }, { policies: ['Z'] }, /^token policy "z" is disallowed by this role$/],
    [{ disallowed_policies_glob: ['z*'] }, { policies: ['zz'] }, /^token policy "zz" is disallowed by this role$/],
    [{ disallowed_policies: ['default'] }, { policies: ['a'] }, ['a']],
    [{ disallowed_policies_glob: ['def*'] }, { policies: ['a'] }, ['a']],
  ]
  for (const [rules, body, wanted] of rows) {
    await role({ ...NONE, ...rules })
    const answer = await world.ask('POST', 'auth/token/create/r', body, { token: maker.token })
    const seen = wanted instanceof RegExp ? String(answer.body.errors?.[0]) : answer.body.auth?.['policies']
    if (wanted instanceof RegExp) assert.match(String(seen), wanted)
    else assert.deepEqual(seen, wanted, `${JSON.stringify([rules, body])} ${answer.text}`)
  }
  await role({ ...NONE, token_no_default_policy: true, allowed_policies: ['a', 'default'] })
  assert.deepEqual((await make(world, {}, maker.token, 'create/r')).auth['policies'], ['a'])
})

test('a role sets type, TTLs, uses, addresses and path of its tokens', async (t) => {
  const world = await CoreWorld.open(t)
  const role = (body: object) => world.ask('POST', 'auth/token/roles/r', { allowed_policies: 'a', ...body })
  await role({ orphan: true, path_suffix: 'v1', token_period: '1h', token_num_uses: 5, renewable: false })
  const one = await make(world, { num_uses: 9 }, undefined, 'create/r')
  const facts = await lookup(world, one.token)
  assert.deepEqual(
    ['orphan', 'path', 'period', 'num_uses', 'renewable', 'role', 'ttl'].map((name) => facts[name]),
    [true, 'auth/token/create/r/v1', 3600, 5, false, 'r', 3600],
  )
  const two = await make(world, { period: '2h', explicit_max_ttl: '5h', renewable: true }, undefined, 'create/r')
  assert.deepEqual(two.warnings, [
    'Period specified both during creation call and in role; using the lesser value of 3600 seconds',
    'Policy "a" does not exist',
  ])
  await role({ orphan: true, token_type: 'default-batch', token_period: 0, token_num_uses: 0, path_suffix: '' })
  assert.match((await make(world, {}, undefined, 'create/r')).token, /^b\./)
  assert.match((await make(world, { type: 'service' }, undefined, 'create/r')).token, /^s\./)
  await role({ token_type: 'service' })
  assert.match((await make(world, { type: 'batch' }, undefined, 'create/r')).token, /^s\./)
  await role({ allowed_entity_aliases: ['web-*'] })
  const alias = (name: string) => world.ask('POST', 'auth/token/create/r', { entity_alias: name })
  assert.equal((await alias('db-1')).body.errors[0], "invalid 'entity_alias' value")
  const [web, again] = [await alias('web-1'), await alias('WEB-1')].map(({ body }) => body.auth['entity_id'])
  assert.match(String(web), /^[0-9a-f-]{36}$/)
  assert.equal(again, web)
})

test('a renewal uses the current role', async (t) => {
  const world = await CoreWorld.open(t)
  const role = (body: object) => world.ask('POST', 'auth/token/roles/r', { allowed_policies: 'a', ...body })
  await role({ token_period: '1h' })
  const { token } = await make(world, {}, undefined, 'create/r')
  const renewed = async () => world.ask('POST', 'auth/token/renew', { token })
  await role({ token_period: '30m' })
  assert.equal((await renewed()).body.auth['lease_duration'], 1800)
  await role({ token_period: '30m', token_explicit_max_ttl: '20m' })
  assert.equal((await renewed()).body.auth['lease_duration'], 1200)
  await world.ask('DELETE', 'auth/token/roles/r')
  const answer = await renewed()
  assert.deepEqual(
    [answer.status, answer.body.errors],
    [400, ['original token role "r" could not be found, not renewing']],
  )
  assert.ok(await isToken(world, token))
})

test('a renewal does not exceed the explicit maximum TTL of the token, whatever that of its role is', async (t) => {
  const world = await CoreWorld.open(t)
  const role = (body: object) => world.ask('POST', 'auth/token/roles/r', { allowed_policies: 'a', ...body })
  await role({})
  const { token } = await make(world, { explicit_max_ttl: '1h', ttl: '30m' }, undefined, 'create/r')
  const renewed = async () => (await world.ask('POST', 'auth/token/renew', { token, increment: '2h' })).body
  assert.equal((await renewed()).auth['lease_duration'], 3600)
  await role({ token_explicit_max_ttl: '2h' })
  world.nowMs += 1_800_000
  assert.equal((await renewed()).auth['lease_duration'], 1800)
  world.nowMs += 1_799_500
  assert.deepEqual((await renewed()).errors, ['past the max TTL, cannot renew'])
})

test('once the period of a role is removed, its tokens expire at the maximum TTL of the mount', async (t) => {
  const world = await CoreWorld.open(t)
  const role = (body: object) => world.ask('POST', 'auth/token/roles/r', { allowed_policies: 'a', ...body })
  await role({ token_period: '30d' })
  const { token } = await make(world, {}, undefined, 'create/r')
  const renewed = () => world.ask('POST', 'auth/token/renew', { token })
  world.nowMs += 20 * 86_400_000
  assert.equal((await renewed()).body.auth['lease_duration'], 30 * 86_400)
  await role({ token_period: 0 })
  assert.equal((await renewed()).body.auth['lease_duration'], 12 * 86_400, '32 days after it was created')
  world.nowMs += 12 * 86_400_000 - 500
  assert.deepEqual((await renewed()).body.errors, ['past the max TTL, cannot renew'])
  await role({ token_period: '30d' })
  assert.equal((await renewed()).body.auth['lease_duration'], 30 * 86_400, 'a period that is given again counts')
})

test('globs match as wildcards and take linear time', () => {
  const rows: [string, string, boolean][] = [
    ['abc', 'abc', true],
    ['abc', 'ab', false],
    ['abc', '*', true],
    ['', '*', true],
    ['abc', 'a*c', true],
    ['ac', 'a*c', true],
    ['a', 'a*a', false],
    ['abcbc', 'a*bc', true],
    ['abxbcy', 'a*bc', false],
    ['one-two-three', '*-*-*', true],
    ['one-two', '*-*-*', false],
    ['aXbXc', 'a*X*c', true],
    ['ab', '*ab*', true],
  ]
  for (const [name, glob, wanted] of rows) assert.equal(matchesGlob(name, glob), wanted, `${name} ${glob}`)
  assert.ok(!matchesGlob('a'.repeat(100_000), `${'*a'.repeat(1000)}*b`))
})
