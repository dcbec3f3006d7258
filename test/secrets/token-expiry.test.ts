import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../helpers/core-world.ts'
import { isToken, lookup, make, tokenPathsIn, reopened } from './token-world.ts'

const HOUR = 3_600_000

async function sweep(world: CoreWorld): Promise<void> {
  // The round that was under way may not have seen everything.
  await world.core.open.tokenExpiry.tick()
  await world.core.open.tokenExpiry.tick()
}

test('an expired token is invalid at once and removed later, with its children and its cubbyhole', async (t) => {
  const world = await CoreWorld.open(t)
  const before = tokenPathsIn(world)
  const parent = await make(world, { ttl: '1h', policies: ['root'] })
  const child = await make(world, { ttl: '9h', policies: ['root'] }, parent.token)
  await Promise.all(Array.from({ length: 70 }, async () => make(world, { ttl: '1h', policies: ['default'] })))
  await world.ask('PUT', 'cubbyhole/x', { a: 1 }, { token: parent.token })
  world.nowMs += HOUR - 1
  assert.ok(await isToken(world, parent.token))
  await sweep(world)
  assert.ok(await isToken(world, parent.token))
  world.nowMs += 1
  for (const { token } of [parent, child]) assert.ok(!(await isToken(world, token)))
  await sweep(world)
  assert.deepEqual(tokenPathsIn(world), before)
  assert.deepEqual(world.core.barrier.paths('logical/'), [])
})

test('a renewal grants the increment or the last TTL from now, up to the maximum TTL', async (t) => {
  const world = await CoreWorld.open(t)
  const { accessor, token } = await make(world, { ttl: '1h', explicit_max_ttl: '4h', policies: ['default'] })
  const renew = async (increment?: string | number) => {
    const { body, status } = await world.ask('POST', 'auth/token/renew', { token, ...(increment && { increment }) })
    return status === 200 ? [body.auth['lease_duration'], body.warnings] : [status, body.errors]
  }
  world.nowMs += HOUR / 2
  assert.deepEqual(await renew(), [3600, null])
  assert.deepEqual(await renew('2h'), [7200, null])
  assert.deepEqual(await renew(), [7200, null])
  assert.deepEqual(await renew('30m'), [1800, null])
  const { creation_ttl: made, last_renewal: at, last_renewal_time: seconds, ttl } = await lookup(world, token)
  assert.deepEqual([made, ttl, at], [3600, 1800, new Date(world.nowMs).toISOString()])
  assert.equal(seconds, Math.floor(world.nowMs / 1000))
  const capped = 'TTL of "10h" exceeded the effective max_ttl of "4h"; TTL value is capped accordingly'
  assert.deepEqual(await renew('10h'), [12_600, [capped]])
  const byAccessor = await world.ask('POST', 'auth/token/renew-accessor', { accessor, increment: 60 })
  assert.deepEqual([byAccessor.body.auth['client_token'], byAccessor.body.auth['lease_duration']], ['', 60])
  assert.deepEqual(await renew('10h'), [12_600, [capped]])
  world.nowMs += 3.5 * HOUR - 500
  assert.deepEqual(await renew('1h'), [400, ['past the max TTL, cannot renew']])
  world.nowMs += 500
  assert.deepEqual(await renew('1h'), [400, ['token not found']])
})

test('the index of expiries follows each renewal', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { ttl: '1h', policies: ['default'] })
  const indexed = () => world.core.barrier.paths('sys/token/expiry/').length
  await Promise.all(
    [1, 2, 3].map(async (hours) => world.ask('POST', 'auth/token/renew', { token, increment: `${hours}h` })),
  )
  assert.equal(indexed(), 1)
  world.nowMs += 2 * HOUR
  await sweep(world)
  assert.ok(await isToken(world, token))
  world.nowMs += HOUR
  await sweep(world)
  assert.equal(indexed(), 0)
})

test('periodic tokens can be renewed up to their explicit maximum TTL', async (t) => {
  const world = await CoreWorld.open(t)
  const forever = await make(world, { period: '24h', policies: ['default'] })
  const bounded = await make(world, { period: '24h', explicit_max_ttl: '60h', policies: ['default'] })
  const renew = async (token: string) =>
    (await world.ask('POST', 'auth/token/renew', { token, increment: '1m' })).body.auth?.['lease_duration']
  for (let day = 0; day < 50; day++) {
    world.nowMs += 23 * HOUR
    assert.equal(await renew(forever.token), 86_400)
    if (day === 1) assert.equal(await renew(bounded.token), 14 * 3600)
    if (day === 0) assert.equal(await renew(bounded.token), 86_400)
    if (day === 2) assert.equal(await renew(bounded.token), undefined)
  }
  assert.equal((await lookup(world, forever.token))['period'], 86_400)
})

function over(given: string, most: string): string {
  return `TTL of "${given}" exceeded the effective max_ttl of "${most}"; TTL value is capped accordingly`
}

test('the TTL of a token defaults to that of the mount', async (t) => {
  const world = await CoreWorld.open(t)
  const ttl = async (body: object) => {
    const { auth, warnings } = await make(world, { policies: ['default'], ...body })
    return [auth['lease_duration'], warnings]
  }
  assert.deepEqual(await ttl({}), [2_764_800, null])
  assert.deepEqual(await ttl({ ttl: '800h30m5s' }), [2_764_800, [over('800h30m5s', '768h')]])
  assert.deepEqual(await ttl({ ttl: '40d' }), [2_764_800, [over('960h', '768h')]])
  await world.ask('POST', 'sys/auth/token/tune', { default_lease_ttl: '2h', max_lease_ttl: '5h' })
  assert.deepEqual(await ttl({}), [7200, null])
  assert.deepEqual(await ttl({ ttl: '6h' }), [18_000, [over('6h', '5h')]])
  const root = await make(world)
  assert.deepEqual([root.auth['lease_duration'], root.auth['renewable']], [0, false])
  const expiring = await make(world, { policies: ['root'], ttl: '1h' })
  const refused = await world.ask('POST', 'auth/token/create', {}, { token: expiring.token })
  assert.match(String(refused.body.errors[0]), /^expiring root tokens cannot create non-expiring root tokens$/)
})

test('a clock change of hours does not change the lifetime of tokens', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { ttl: '2h', policies: ['default'] })
  const half = await make(world, { ttl: '30m', policies: ['default'] })
  world.setClock(6 * HOUR)
  await sweep(world)
  assert.ok(await isToken(world, token))
  world.setClock(-12 * HOUR)
  assert.ok(await isToken(world, token))
  world.nowMs += 0.6 * HOUR
  assert.ok(!(await isToken(world, half.token)), 'also with a clock that says that it is hours before')
  assert.ok(await isToken(world, token))
  await sweep(world)
  // By the machine's clock there is time left, so nothing is taken away yet.
  assert.ok(world.core.open.tokens.pending(world.core.open.tokens.hashOf(half.token)))
  world.setClock(6 * HOUR)
  world.nowMs += 2 * HOUR
  assert.ok(!(await isToken(world, token)))
  await sweep(world)
  assert.equal(tokenPathsIn(world).length, 2, 'the root token and its accessor')
})

test('a start with a clock that was set back continues from the stored time', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { ttl: '1h', policies: ['default'] })
  world.nowMs += 0.9 * HOUR
  await sweep(world)
  await world.close()
  const next = await reopened(t, world, { nowMs: world.nowMs - 5 * HOUR })
  assert.ok(await isToken(next, token))
  next.nowMs += 0.12 * HOUR
  assert.ok(!(await isToken(next, token)))
})

test('a start with a clock that was set forward refuses expired tokens and removes none at first', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { ttl: '2h', policies: ['default'] })
  await sweep(world)
  await world.close()
  const wrong = await reopened(t, world, { nowMs: world.nowMs + 6 * HOUR })
  assert.ok(!(await isToken(wrong, token)))
  wrong.nowMs += 500_000
  await sweep(wrong)
  await wrong.close()
  const right = await reopened(t, world, { nowMs: world.nowMs + 500_000 })
  assert.ok(await isToken(right, token), 'the mistake was noticed within minutes, and has cost nothing')
})

test('a start after hours offline removes expired tokens some minutes later', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { ttl: '2h', policies: ['default'] })
  await sweep(world)
  await world.close()
  const next = await reopened(t, world, { nowMs: world.nowMs + 6 * HOUR })
  assert.ok(!(await isToken(next, token)))
  next.nowMs += 600_000
  await sweep(next)
  assert.equal(tokenPathsIn(next).length, 2, 'the root token and its accessor')
})
