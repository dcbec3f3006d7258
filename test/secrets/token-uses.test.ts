import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../helpers/core-world.ts'
import { isToken, lookup, make, tokenPathsIn, reopened } from './token-world.ts'
import { eventually } from '../helpers/eventually.ts'

/** Resolves with the status of a request that any token with the policy `default` may make. */
async function use(world: CoreWorld, token: string): Promise<number> {
  return (await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).status
}

test('of a hundred concurrent requests with a token of fifty uses exactly fifty succeed', async (t) => {
  const world = await CoreWorld.open(t)
  const before = tokenPathsIn(world)
  const { token } = await make(world, { policies: ['default'], num_uses: 50 })
  const statuses = await Promise.all(Array.from({ length: 100 }, async () => use(world, token)))
  assert.equal(statuses.filter((status) => status === 200).length, 50)
  assert.equal(statuses.filter((status) => status === 403).length, 50)
  assert.equal(await use(world, token), 403)
  assert.deepEqual(tokenPathsIn(world), before, 'it is removed after its last use')
})

test('of two concurrent requests with one use left one succeeds, and the cubbyhole is removed with the token', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { policies: ['default'], num_uses: 2 })
  const before = world.core.barrier.paths('logical/')
  assert.equal((await world.ask('PUT', 'cubbyhole/x', { a: 1 }, { token })).status, 204)
  assert.equal(world.core.barrier.paths('logical/').length, before.length + 1)
  const statuses = await Promise.all([use(world, token), use(world, token)])
  assert.deepEqual(statuses.sort(), [200, 403])
  assert.deepEqual(world.core.barrier.paths('logical/'), before)
})

test('a lookup shows the uses left, refused requests count as uses, and lookups by others do not', async (t) => {
  const world = await CoreWorld.open(t)
  const { accessor, token } = await make(world, { policies: ['default'], num_uses: 4 })
  const told = async () =>
    (await world.ask('GET', 'auth/token/lookup-self', undefined, { token })).body.data?.['num_uses']
  assert.equal(await told(), 3)
  assert.equal((await lookup(world, token))['num_uses'], 3)
  assert.equal((await world.ask('POST', 'auth/token/lookup-accessor', { accessor })).body.data['num_uses'], 3)
  for (const [method, path, body, status] of [
    ['GET', 'sys/mounts', undefined, 403],
    ['PUT', 'cubbyhole/x', '{', 400],
  ] as const) {
    assert.equal((await world.ask(method, path, body, { token })).status, status)
  }
  assert.equal(await told(), -1, 'as its last use is under way')
  assert.equal(await told(), undefined)
  assert.equal((await world.ask('POST', 'auth/token/lookup', { token })).status, 403)
  assert.equal((await world.ask('POST', 'auth/token/lookup-accessor', { accessor })).status, 400)
})

test('a use is durable, and a failed commit takes none', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { policies: ['default'], num_uses: 3 })
  assert.equal(await use(world, token), 200)
  await world.close()
  const next = await reopened(t, world)
  assert.equal((await lookup(next, token))['num_uses'], 2)
  assert.equal(await use(next, token), 200)
  assert.equal(await use(next, token), 200)
  assert.equal(await use(next, token), 403)
})

test('a token whose last use was interrupted is invalid after a restart and is removed', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { policies: ['default'], num_uses: 1 })
  const { revocation, tokens } = world.core.open
  const entry = tokens.pending(tokens.hashOf(token))
  assert.ok(entry)
  await revocation.takeLastUse(entry).written
  await world.close()
  const next = await reopened(t, world)
  assert.ok(!(await isToken(next, token)))
  await eventually(() => tokenPathsIn(next).length === 2)
})

test('renew-self counts as a use', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world, { policies: ['default'], num_uses: 2, ttl: '1h' })
  const renew = async () => world.ask('POST', 'auth/token/renew-self', { increment: '2h' }, { token })
  const first = await renew()
  assert.deepEqual([first.status, first.body.auth['num_uses'], first.body.auth['lease_duration']], [200, 1, 7200])
  assert.equal((await renew()).status, 200)
  assert.equal((await renew()).status, 403)
})
