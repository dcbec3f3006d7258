/** Requests to a core while a snapshot is restored. */
import assert from 'node:assert/strict'
import { Readable, Writable } from 'node:stream'
import { test, type TestContext } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { restoreSnapshot, saveSnapshot } from '../../src/storage/snapshot/snapshot.ts'
import type { CoreWorld } from '../helpers/core-world.ts'
import { openKv } from '../helpers/kv-world.ts'
import { isToken, make } from './token-world.ts'
import { eventually } from '../helpers/eventually.ts'

const ENTRIES = 8000

async function saved(world: CoreWorld): Promise<Buffer> {
  const parts: Buffer[] = []
  await saveSnapshot(
    world.store,
    new Writable({
      write(chunk: Buffer, _encoding, done) {
        parts.push(chunk)
        done()
      },
    }),
  )
  return Buffer.concat(parts)
}

/** `meanwhile` runs when the entries are replaced and were not read yet. */
async function restore(world: CoreWorld, snapshot: Buffer, meanwhile: () => void = () => undefined): Promise<void> {
  await restoreSnapshot(world.store, Readable.from([snapshot]), {
    onReplaced() {
      world.core.suspend()
      meanwhile()
    },
  })
  await world.core.resume()
}

/** A mount that takes some time to remove. */
async function withMany(t: TestContext) {
  const world = await openKv(t)
  const mount = world.core.open.mounts.get('secret/')
  assert.ok(mount)
  for (let at = 0; at < ENTRIES; at += 1000) {
    const puts = Array.from({ length: 1000 }, (_, index) => ({ path: `x/${at + index}`, value: Buffer.from('x') }))
    await mount.storage.commit({ puts, deletes: [] })
  }
  const prefix = `logical/${mount.record.uuid}/`
  return {
    world,
    traffic: mount.activeRequests,
    count: () => world.core.barrier.paths(prefix).length,
    remove: () => world.ask('DELETE', 'sys/mounts/secret'),
  }
}

test('a mount that is being removed when a snapshot with it is restored stays whole', async (t) => {
  const { count, remove, traffic, world } = await withMany(t)
  const snapshot = await saved(world)
  // A request is in progress, so the removal of the data waits.
  const leave = traffic.enter()
  const removal = remove()
  await eventually(() => world.core.open.mounts.get('secret/') === undefined)
  await restore(world, snapshot)
  leave()
  assert.equal((await removal).status, 503)
  assert.equal(count(), ENTRIES)
  assert.equal((await world.ask('GET', 'sys/mounts/secret')).status, 200)
})

test('no caller is served from the state before a restore once the entries are replaced', async (t) => {
  const world = await openKv(t)
  const snapshot = await saved(world)
  const { token: late } = await make(world, { no_parent: true })
  assert.ok(await isToken(world, late))
  const asked: ReturnType<CoreWorld['ask']>[] = []
  await restore(world, snapshot, () => {
    asked.push(
      world.ask('POST', 'auth/token/create', { no_parent: true }, { token: late }),
      world.ask('GET', 'sys/mounts', undefined, { token: late }),
      world.ask('POST', 'sys/seal', undefined, { token: null }),
      world.ask('POST', 'sys/generate-root/attempt', {}, { token: null }),
    )
  })
  assert.deepEqual(
    (await Promise.all(asked)).map(({ status }) => status),
    [503, 503, 503, 503],
  )
  assert.equal(await isToken(world, late), false)
  assert.equal((await world.ask('GET', 'sys/mounts')).status, 200)
})

test('a failed write during a restore can be retried', async (t) => {
  const { world } = await withMany(t)
  const snapshot = await saved(world)
  const restored = restore(world, snapshot)
  const seen = new Set<number>()
  const over = new AbortController()
  void restored.then(() => over.abort())
  while (!over.signal.aborted) {
    seen.add((await world.ask('POST', 'cubbyhole/a', { a: 1 })).status)
    // A refusal is immediate, so the end must be observed before.
    await nextTurn()
  }
  await restored
  seen.delete(204)
  assert.deepEqual([...seen], [503])
})

test('a watch from before a restore reports that it must restart, even if as many commits have followed', async (t) => {
  const world = await openKv(t)
  const write = async (count: number) => {
    for (let at = 0; at < count; at++) await world.ask('POST', 'secret/data/a', { data: { at } })
  }
  await write(2)
  const snapshot = await saved(world)
  await write(3)
  const { cursor } = (await world.ask('GET', 'secret/watch')).body.data
  await restore(world, snapshot)
  // Their sequences are those of commits that are no more.
  await write(8)
  for (const _ of [1, 2]) {
    const { body } = await world.ask('GET', `secret/watch?cursor=${String(cursor)}&wait=0`)
    assert.deepEqual([body.data['reset'], body.data['events']], [true, []])
  }
  const { cursor: now } = (await world.ask('GET', 'secret/watch')).body.data
  await write(1)
  const { body } = await world.ask('GET', `secret/watch?cursor=${String(now)}&wait=0`)
  assert.deepEqual([body.data['reset'], (body.data['events'] as unknown[]).length], [undefined, 1])
})
