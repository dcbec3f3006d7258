import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { type Store, StoreError } from '../../src/storage/store/store.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { isToken, lookup, make, tokenPathsIn } from './token-world.ts'
import { eventually } from '../helpers/eventually.ts'

interface Disk {
  isFull: boolean
}

async function worldOn(t: TestContext): Promise<{ world: CoreWorld; disk: Disk }> {
  const disk: Disk = { isFull: false }
  const wrap = (real: Store): Store => ({
    get: (name) => real.get(name),
    pending: (name) => real.pending(name),
    list: (prefix, options) => real.list(prefix, options),
    paths: (prefix, options) => real.paths(prefix, options),
    onFailure: (listener) => real.onFailure(listener),
    // As the store itself: what cannot be queued is thrown at once, and nothing else is touched by it.
    commit: (batch) => {
      if (disk.isFull) throw new StoreError('full', 'the disk is full')
      return real.commit(batch)
    },
  })
  return { world: await CoreWorld.open(t, { wrap }), disk }
}

test('on a full disk no token is created, revoked or used, and all of it works again later', async (t) => {
  const { disk, world } = await worldOn(t)
  const [plain, limited] = [
    await make(world, { policies: ['default'], ttl: '1h' }),
    await make(world, { policies: ['default'], num_uses: 2 }),
  ]
  const before = tokenPathsIn(world)
  disk.isFull = true
  const asks: [string, object | undefined, string][] = [
    ['auth/token/create', {}, world.rootToken],
    ['auth/token/revoke', { token: plain.token }, world.rootToken],
    ['auth/token/revoke-orphan', { token: plain.token }, world.rootToken],
    ['auth/token/renew', { token: plain.token }, world.rootToken],
    ['auth/token/renew-self', {}, limited.token],
  ]
  for (const [path, body, token] of asks)
    assert.equal((await world.ask('POST', path, body, { token })).status, 507, path)
  const use = await world.ask('GET', 'auth/token/lookup-self', undefined, { token: limited.token })
  assert.equal(use.status, 507)
  assert.ok(await isToken(world, plain.token), 'what writes nothing works')
  world.nowMs += 3_600_000
  await world.core.open.tokenExpiry.tick()
  disk.isFull = false
  assert.deepEqual(tokenPathsIn(world), before)
  assert.equal((await lookup(world, limited.token))['num_uses'], 2)
  await eventually(() => tokenPathsIn(world).length < before.length)
  for (const wanted of [200, 200, 403]) {
    const { status } = await world.ask('GET', 'auth/token/lookup-self', undefined, { token: limited.token })
    assert.equal(status, wanted)
  }
})

test('a tree whose cleanup fails on a full disk is invalid, and is removed when space is available', async (t) => {
  const { disk, world } = await worldOn(t)
  const top = await make(world)
  const child = await make(world, {}, top.token)
  const { revocation, tokens } = world.core.open
  const { storage } = tokens
  // Full from the moment on at which the one commit that counts is queued.
  const revoked = revocation.revoke(tokens.hashOf(top.token))
  disk.isFull = true
  await revoked
  for (const { token } of [top, child]) assert.ok(!(await isToken(world, token)))
  assert.equal(storage.list('sys/token/revoking/').length, 1)
  await eventually(() => world.lines.some(({ message }) => message === 'token cleanup failed, will retry'))
  disk.isFull = false
  await eventually(() => tokenPathsIn(world).length === 2)
})

test('any text that is not a token is refused', async (t) => {
  const world = await CoreWorld.open(t)
  const other = await CoreWorld.open(t)
  const strange = ['', ' ', 'x', 's.', 'b.', 'b.AAAA', `b.${'A'.repeat(8000)}`, 's.AAAAAAAAAAAAAAAAAAAAAAAA', '\0']
  strange.push('../../salt', '__proto__', 'constructor', '😀'.repeat(300), 'a'.repeat(20_000), '\ud800')
  strange.push(other.rootToken, `${world.rootToken} `, world.core.open.tokens.hashOf(world.rootToken))
  for (const token of strange) {
    const answer = await world.ask('GET', 'auth/token/lookup-self', undefined, { token })
    assert.deepEqual([answer.status, answer.body.errors], [403, ['permission denied']], token.slice(0, 40))
    for (const verb of ['lookup', 'renew', 'revoke', 'revoke-orphan', 'lookup-accessor', 'revoke-accessor']) {
      const named = verb.endsWith('accessor') ? { accessor: token } : { token }
      const { status } = await world.ask('POST', `auth/token/${verb}`, named)
      assert.ok(status < 500, `${verb} ${token.slice(0, 40)} ${status}`)
    }
  }
  assert.ok(await isToken(world, world.rootToken))
})

test('no request body causes an internal error', async (t) => {
  const world = await CoreWorld.open(t)
  const values = [
    null,
    true,
    0,
    -1,
    1.5,
    1e15,
    '',
    'x',
    [],
    [1, null, 'a'],
    {},
    { a: { b: 1 } },
    '9'.repeat(30),
    '-1h',
    '1e9h',
  ]
  const names =
    'id policies meta no_parent no_default_policy renewable ttl lease explicit_max_ttl period display_name num_uses type entity_alias token accessor increment'
  for (const path of ['create', 'create-orphan', 'lookup', 'renew', 'renew-self', 'revoke', 'roles/r', 'create/r']) {
    for (const name of names.split(' ')) {
      for (const value of values) {
        const body = { policies: ['default'], [name]: value }
        const { status, text } = await world.ask('POST', `auth/token/${path}`, body)
        assert.ok(status < 500, `${path} ${name} ${JSON.stringify(value)}: ${text}`)
      }
    }
  }
  assert.ok(await isToken(world, world.rootToken))
})
