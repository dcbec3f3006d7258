/** Watches: reported changes, permissions, cursors, and the cost of a thousand watchers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { kv } from '../../../src/engines/kv/kv.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { expectStatus as expect, openKv, tokenWith, writeSecret as write } from '../../helpers/kv-world.ts'
import { eventually } from '../../helpers/eventually.ts'

interface Watched {
  readonly events: { readonly path: string; readonly change: string; readonly version: number }[]
  readonly cursor: string
  readonly reset?: boolean
}

async function watch(world: CoreWorld, path = '', query = '', token?: string): Promise<Watched> {
  const { body, status, text } = await world.ask('GET', `secret/watch${path}${query}`, undefined, { token })
  assert.equal(status, 200, text)
  return body.data as unknown as Watched
}

const told = ({ events }: Watched) => events.map(({ change, path, version }) => `${change} ${path} ${version}`)

test('each kind of change is reported in order from a cursor on', async (t) => {
  const world = await openKv(t)
  await write(world, 'before', {})
  const { cursor, events } = await watch(world)
  assert.deepEqual(events, [])
  await write(world, 'f/a', { x: 1 })
  await expect(world, 200, 'PATCH', 'secret/data/f/a', { data: { y: 1 } })
  await expect(world, 204, 'DELETE', 'secret/data/f/a')
  await expect(world, 204, 'POST', 'secret/undelete/f/a', { versions: [2] })
  await expect(world, 204, 'POST', 'secret/destroy/f/a', { versions: [1] })
  await expect(world, 204, 'POST', 'secret/metadata/f/a', { max_versions: 3 })
  await expect(world, 200, 'POST', 'secret/move/f/a', { to: 'g/b' })
  const all = await watch(world, '', `?cursor=${cursor}`)
  assert.deepEqual(told(all).slice(0, 6), [
    'write f/a 1',
    'write f/a 2',
    'delete f/a 2',
    'undelete f/a 2',
    'destroy f/a 2',
    'metadata f/a 2',
  ])
  assert.deepEqual(told(all).slice(6).sort(), ['remove f/a 0', 'write g/b 2'])
  assert.deepEqual(told(await watch(world, '', `?cursor=${all.cursor}&wait=0`)), [])
  assert.deepEqual(told(await watch(world, '/g', `?cursor=${cursor}`)), ['write g/b 2'])
  assert.deepEqual(told(await watch(world, '/g/b', `?cursor=${cursor}`)), ['write g/b 2'])
  assert.deepEqual(told(await watch(world, '/f/', `?cursor=${cursor}`)).length, 7)
  for (const query of ['?cursor=x', '?cursor=-1', '?cursor=1', '?cursor=1-1&wait=61', '?cursor=1-1&wait=x']) {
    await expect(world, 400, 'GET', `secret/watch${query}`)
  }
})

test('a watcher wakes on a relevant change and on no other', async (t) => {
  const world = await openKv(t)
  const { cursor } = await watch(world)
  const waiting = watch(world, '/f', `?cursor=${cursor}&wait=50`)
  const one = watch(world, '/g/x', `?cursor=${cursor}&wait=50`)
  await write(world, 'other', {})
  await write(world, 'g/y', {})
  await write(world, 'f/a', {})
  assert.deepEqual(told(await waiting), ['write f/a 1'])
  await write(world, 'g/x', {})
  assert.deepEqual(told(await one), ['write g/x 1'])
  const before = performance.now()
  assert.deepEqual(told(await watch(world, '/f', `?cursor=${(await waiting).cursor}&wait=1`)), [])
  assert.ok(performance.now() - before >= 900)
})

test('a watcher neither receives nor wakes for a secret that its token may not read', async (t) => {
  const world = await openKv(t)
  const token = await tokenWith(
    world,
    `path "secret/watch" { capabilities = ["read"] }
     path "secret/data/mine/*" { capabilities = ["read"] }
     path "secret/metadata/shown" { capabilities = ["read"] }`,
  )
  const { cursor } = await watch(world)
  for (const name of ['theirs', 'mine/a', 'shown']) await write(world, name, {})
  assert.deepEqual(told(await watch(world, '', `?cursor=${cursor}`, token)), ['write mine/a 1', 'write shown 1'])
  const { cursor: next } = await watch(world)
  const waiting = watch(world, '', `?cursor=${next}&wait=50`, token)
  await write(world, 'theirs', {})
  await write(world, 'mine/b', {})
  assert.deepEqual(told(await waiting), ['write mine/b 1'])
  assert.equal((await world.ask('GET', 'secret/watch/f', undefined, { token })).status, 403)
})

test('a cursor resumes after a restart in another process without losing events', async (t) => {
  const world = await openKv(t)
  const { cursor } = await watch(world)
  await write(world, 'a', {})
  await world.core.seal()
  world.unseal()
  await write(world, 'b', {})
  assert.deepEqual(told(await watch(world, '', `?cursor=${cursor}`)), ['write a 1', 'write b 1'])
  await world.core.seal()
  await world.store.close()
  const next = await CoreWorld.reopen(world.directory, world.keys, { engines: [kv] })
  t.after(() => next.store.close())
  await expect(next, 204, 'DELETE', 'secret/metadata/a')
  assert.deepEqual(told(await watch(next, '', `?cursor=${cursor}`)), ['write a 1', 'write b 1', 'remove a 0'])
  // Of another history, and of a commit that this database does not have.
  for (const later of ['999-1', `${cursor.split('-')[0]}-999999999`]) {
    const newer = await watch(next, '', `?cursor=${later}`)
    assert.deepEqual([newer.reset, newer.events], [true, []], later)
  }
})

test('sealing ends a long poll', async (t) => {
  const world = await openKv(t)
  const { cursor } = await watch(world)
  const waiting = world.ask('GET', `secret/watch?cursor=${cursor}&wait=50`)
  await world.core.seal()
  assert.equal((await waiting).status, 503)
})

test('disabling the mount ends a long poll without waiting for it', async (t) => {
  const world = await openKv(t)
  const { cursor } = await watch(world)
  const waiting = world.ask('GET', `secret/watch?cursor=${cursor}&wait=55`)
  const before = performance.now()
  await expect(world, 204, 'DELETE', 'sys/mounts/secret')
  assert.equal((await waiting).status, 404)
  assert.ok(performance.now() - before < 40_000)
})

test('a thousand watchers each receive their own changes and leave no subscription', async (t) => {
  const world = await openKv(t)
  const { cursor } = await watch(world)
  const waiting = Array.from({ length: 1000 }, (_, at) => watch(world, `/f${at % 10}`, `?cursor=${cursor}&wait=55`))
  let done = 0
  for (const each of waiting) void each.then(() => done++)
  await Promise.all(Array.from({ length: 500 }, (_, at) => write(world, `other/${at}`, {})))
  assert.equal(done, 0)
  await write(world, 'f3/x', {})
  await eventually(() => done === 100)
  for (let at = 0; at < 10; at++) await write(world, `f${at}/y`, {})
  for (const [at, each] of (await Promise.all(waiting)).entries()) {
    assert.deepEqual(told(each)[0], at % 10 === 3 ? 'write f3/x 1' : `write f${at % 10}/y 1`)
  }
  // The timer of who watches the seal went with the last of them.
  const { cursor: last } = await watch(world)
  assert.deepEqual(told(await watch(world, '', `?cursor=${last}&wait=0`)), [])
})

test('many changes come in pages of whole commits', async (t) => {
  const world = await openKv(t)
  const { cursor } = await watch(world)
  const secrets = Object.fromEntries(Array.from({ length: 700 }, (_, at) => [`k${at}`, { data: { at } }]))
  for (const folder of ['a', 'b']) await expect(world, 200, 'POST', `secret/import/${folder}`, { secrets })
  await write(world, 'last', {})
  const first = await watch(world, '', `?cursor=${cursor}`)
  assert.equal(first.events.length, 700)
  const second = await watch(world, '', `?cursor=${first.cursor}`)
  assert.equal(second.events.length, 701)
})
