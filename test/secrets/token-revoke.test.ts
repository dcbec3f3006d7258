import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../helpers/core-world.ts'
import { MountTestEngine } from '../helpers/mount-test-engine.ts'
import { isToken, lookup, make, tokenPathsIn, reopened } from './token-world.ts'
import { eventually } from '../helpers/eventually.ts'

const revoke = (world: CoreWorld, token: string) => world.ask('POST', 'auth/token/revoke', { token })

test('revoking a token revokes its descendants at once and leaves nothing', async (t) => {
  const world = await CoreWorld.open(t)
  const before = tokenPathsIn(world)
  const top = await make(world)
  const children = await Promise.all(Array.from({ length: 80 }, async () => make(world, {}, top.token)))
  const [first, second] = children
  assert.ok(first && second)
  const grandchildren = await Promise.all(Array.from({ length: 80 }, async () => make(world, {}, first.token)))
  const deep = await make(world, {}, (await make(world, {}, second.token)).token)
  const orphan = await make(world, { no_parent: true }, second.token)
  for (const { token } of [top, first, deep]) await world.ask('PUT', 'cubbyhole/a/b', { x: 1 }, { token })
  assert.equal(world.core.barrier.paths('logical/').length, 3)
  assert.equal((await revoke(world, top.token)).status, 204)
  for (const { token } of [top, ...children.slice(0, 3), ...grandchildren.slice(-3), deep]) {
    assert.ok(!(await isToken(world, token)))
  }
  assert.ok(await isToken(world, orphan.token))
  await world.ask('POST', 'auth/token/revoke', { token: orphan.token })
  await eventually(() => tokenPathsIn(world).length === before.length)
  assert.deepEqual(tokenPathsIn(world), before)
  assert.deepEqual(world.core.barrier.paths('logical/'), [])
})

test('descendants are invalid before they are removed', async (t) => {
  const world = await CoreWorld.open(t)
  const top = await make(world)
  const child = await make(world, {}, top.token)
  const grandchild = await make(world, { policies: ['default'], type: 'batch' }, child.token)
  const { tokens } = world.core.open
  const entry = tokens.pending(tokens.hashOf(top.token))
  assert.ok(entry)
  // Only the one commit, without what follows it.
  await tokens.commitRevocation([entry.hash], { puts: [], deletes: tokens.pathsOf(entry) })
  for (const { token } of [top, child, grandchild]) assert.ok(!(await isToken(world, token)))
  assert.equal((await world.ask('POST', 'auth/token/lookup-accessor', { accessor: child.accessor })).status, 400)
  await world.ask('POST', 'auth/token/tidy')
  await world.core.open.tidy.idle()
  assert.equal(tokenPathsIn(world).length, 2, 'the root token and its accessor')
})

test('revoke-orphan makes the children orphans', async (t) => {
  const world = await CoreWorld.open(t)
  const top = await make(world)
  const middle = await make(world, { ttl: '1h', policies: ['root'] }, top.token)
  const children = await Promise.all(
    Array.from({ length: 70 }, async () => make(world, { ttl: '1h', policies: ['root'] }, middle.token)),
  )
  const grandchild = await make(world, { ttl: '1h', policies: ['root'] }, children[0]?.token)
  const asked = world.ask('POST', 'auth/token/revoke-orphan', { token: middle.token })
  assert.equal((await asked).status, 204)
  assert.ok(!(await isToken(world, middle.token)))
  for (const { token } of children) assert.ok((await lookup(world, token))['orphan'])
  assert.equal((await lookup(world, grandchild.token))['orphan'], false)
  assert.equal((await revoke(world, top.token)).status, 204)
  for (const { token } of [...children.slice(0, 3), grandchild]) assert.ok(await isToken(world, token))
  const again = await world.ask('POST', 'auth/token/revoke-orphan', { token: middle.token })
  assert.deepEqual([again.status, again.body.errors], [400, ['token to revoke not found']])
})

test('the first root token can be revoked, with its children', async (t) => {
  const world = await CoreWorld.open(t)
  const [child, orphan] = [await make(world), await make(world, { no_parent: true })]
  const answer = await world.ask('POST', 'auth/token/revoke-self')
  assert.equal(answer.status, 204)
  for (const token of [world.rootToken, child.token]) assert.ok(!(await isToken(world, token)))
  assert.ok(await isToken(world, orphan.token))
  await world.close()
  const next = await reopened(t, world)
  assert.ok(!(await isToken(next, world.rootToken)))
})

test('a child that is created while its parent is revoked is refused or revoked', async (t) => {
  const world = await CoreWorld.open(t)
  for (let round = 0; round < 10; round++) {
    const parent = await make(world)
    const asked = Array.from({ length: 20 }, async (_, at) =>
      at === round * 2
        ? revoke(world, parent.token)
        : world.ask('POST', 'auth/token/create', { policies: ['default'] }, { token: parent.token }),
    )
    for (const [at, { body, status }] of (await Promise.all(asked)).entries()) {
      // Requests after the revocation were decided by it, although it was not durable yet.
      assert.equal(status, at === round * 2 ? 204 : at < round * 2 ? 200 : 403)
      if (status === 200) assert.ok(!(await isToken(world, String(body.auth['client_token']))))
    }
  }
  await eventually(() => tokenPathsIn(world).length === 2)
})

test('a request under way continues when its token is revoked', async (t) => {
  const shelf = new MountTestEngine()
  const world = await CoreWorld.open(t, { engines: [shelf.engine] })
  await world.ask('POST', 'sys/mounts/shelf', { type: 'shelf' })
  const { token } = await make(world)
  const slow = world.ask('PUT', 'shelf/slow/thing', { a: 1 }, { token })
  await shelf.arrived
  assert.equal((await revoke(world, token)).status, 204)
  assert.ok(!(await isToken(world, token)))
  shelf.release()
  assert.ok((await slow).status < 300)
  assert.equal((await world.ask('PUT', 'shelf/thing', { a: 2 }, { token })).status, 403)
})

test('a second revocation of a token waits for the first', async (t) => {
  const world = await CoreWorld.open(t)
  const { token } = await make(world)
  const answers = await Promise.all(
    Array.from({ length: 8 }, async () => {
      const { status } = await revoke(world, token)
      return { status, left: await isToken(world, token) }
    }),
  )
  for (const { left, status } of answers) assert.deepEqual({ left, status }, { left: false, status: 204 })
})
