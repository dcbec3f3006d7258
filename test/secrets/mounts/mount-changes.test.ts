/** Failures during changes of mounts: failed removals, requests that never end, a full disk. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { type EntryAccess, Storage } from '../../../src/storage/barrier/storage.ts'
import { MountChanges } from '../../../src/secrets/mounts/mount-changes.ts'
import { newRecord } from '../../../src/secrets/mounts/mount-record.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { MountTestEngine } from '../../helpers/mount-test-engine.ts'
import { eventually } from '../../helpers/eventually.ts'
import { recordingLogger } from '../../helpers/recording-logger.ts'

/** The barrier, on a disk that is full whenever a mount's data is removed, some times. */
function failing(barrier: Barrier, failures: { left: number }): EntryAccess {
  return {
    getShared: (path) => barrier.getShared(path),
    pendingShared: (path) => barrier.pendingShared(path),
    list: (prefix, options) => barrier.list(prefix, options),
    paths: (prefix, options) => barrier.paths(prefix, options),
    history: (prefix, after, limit, isWanted) => barrier.history(prefix, after, limit, isWanted),
    commit: async (batch, raw, isShared) => {
      const isRemoval = batch.deletes.some((path) => path.startsWith('logical/'))
      if (isRemoval && failures.left-- > 0) throw new Error('the disk is full')
      return barrier.commit(batch, raw, isShared)
    },
  }
}

async function open(t: TestContext, failures = { left: 0 }) {
  const shelf = new MountTestEngine()
  const world = await CoreWorld.open(t, { engines: [shelf.engine] })
  const { barrier, open: parts } = world.core
  const changes = new MountChanges({
    table: parts.mounts,
    storage: new Storage(failing(barrier, failures)),
    logger: recordingLogger(world.lines),
    retryMs: 1,
    drainTimeoutMs: 1,
  })
  t.after(() => changes.close())
  await changes.enable(newRecord({ path: 'x/', type: 'shelf' }))
  return { world, shelf, changes }
}

test('a failed removal is logged and retried', async (t) => {
  const failures = { left: 3 }
  const { changes, world } = await open(t, failures)
  await world.ask('POST', 'x/a', { thing: 1 })
  await assert.rejects(changes.disable('x/'), /the disk is full/)
  assert.equal((await world.ask('GET', 'x/a')).status, 404, 'it serves no request any more')
  await eventually(() => world.store.paths('logical/').length === 0 && world.store.paths('core/mounts/').length === 4)
  assert.equal(failures.left, -1)
  assert.ok(world.lines.some(({ message }) => message === 'removing a disabled mount failed, will retry'))
})

test('a request that does not end delays the removal for a limited time and cannot write after it', async (t) => {
  const { changes, shelf, world } = await open(t)
  const slow = world.ask('POST', 'x/slow/thing', { thing: 1 })
  await shelf.arrived
  await changes.disable('x/')
  assert.deepEqual([world.store.paths('logical/').length, world.store.paths('core/mounts/').length], [0, 4])
  shelf.release()
  const { body, status } = await slow
  assert.deepEqual([status, body.errors], [404, ['this mount has been disabled']])
  assert.equal(world.store.paths('logical/').length, 0)
})

test('a view that ends waits for queued commits and accepts no more', async (t) => {
  const { world } = await open(t)
  const { storage, viewScope } = new Storage(world.core.barrier).createView('logical/some/')
  const committed = storage.commit({ puts: [{ path: 'a', value: Buffer.from('1') }], deletes: [] })
  await viewScope.revoke(() => new Error('this has been disabled'))
  assert.deepEqual(world.store.paths('logical/some/'), ['logical/some/a'])
  await committed
  await assert.rejects(storage.commit({ puts: [], deletes: ['a'] }), /has been disabled/)
})

test('a failed commit changes nothing, and the path can be used again', async (t) => {
  const { changes, world } = await open(t)
  const paths = () => world.core.open.mounts.all().map(({ record }) => record.path)
  const before = paths()
  const { barrier } = world.core
  const commit = barrier.commit.bind(barrier)
  barrier.commit = () => Promise.reject(new Error('the disk is full'))
  await assert.rejects(changes.enable(newRecord({ path: 'y/', type: 'shelf' })), /full/)
  await assert.rejects(changes.move('x/', 'y/'), /full/)
  await assert.rejects(
    changes.tune('x/', (record) => ({ ...record, description: 'no' })),
    /full/,
  )
  await assert.rejects(changes.disable('x/'), /full/)
  barrier.commit = commit
  assert.deepEqual(paths(), before)
  assert.equal(world.core.open.mounts.get('x/')?.record.description, '')
  assert.equal((await world.ask('POST', 'x/a', { thing: 1 })).status, 204)
  await changes.move('x/', 'y/')
  await changes.disable('y/')
})
