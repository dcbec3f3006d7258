/** The barrier when commits fail: no durable entry is encrypted with a key or under a root key that is not durable. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Barrier, WrongKey } from '../../../src/storage/barrier/barrier.ts'
import { Storage, ViewScope } from '../../../src/storage/barrier/storage.ts'
import type { Batch } from '../../../src/storage/sqlite/batch.ts'
import { SqliteStore, type StoreError } from '../../../src/storage/store/store.ts'
import { MemoryStore } from '../../helpers/memory-store.ts'
import { Random } from '../../helpers/frames.ts'
import { failWrites } from '../../helpers/failing-writes.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const put = (path: string, value: string) => ({ puts: [{ path, value: Buffer.from(value) }], deletes: [] })
const touchesRing = ({ puts }: Batch) => puts.some(({ path }) => path === 'core/keyring')

async function world(encryptionsMax?: number) {
  const store = new MemoryStore()
  const barrier = new Barrier(store, encryptionsMax === undefined ? {} : { encryptionsMax })
  const rootKey = randomBytes(32)
  await barrier.initialise(rootKey)
  barrier.unseal(rootKey)
  return { store, barrier, rootKey }
}

/** Everything is readable by a barrier that knows nothing but the disk. */
function readable(store: MemoryStore | SqliteStore, rootKey: Buffer): Map<string, string> {
  const fresh = new Barrier(store)
  fresh.unseal(rootKey)
  const own = fresh.paths('').filter((path) => path !== 'core/keyring' && path !== 'core/head')
  return new Map(own.map((path) => [path, fresh.get(path)?.toString() ?? '']))
}

test('a failed rotation fails the commits after it, and the old key stays active', async () => {
  const { store, barrier, rootKey } = await world()
  await barrier.commit(put('a', 'before'))
  store.failNext('full', 1, touchesRing)
  const rotated = barrier.rotate()
  assert.equal(barrier.status.term, 2)
  const behind = barrier.commit(put('a', 'behind'))
  assert.equal(barrier.pending('a')?.toString(), 'behind')
  const late = rotated.catch(() => barrier.commit(put('b', 'late')))
  await assert.rejects(behind, (error: StoreError) => error.kind === 'full')
  await late
  assert.equal(barrier.status.term, 1)
  assert.equal(barrier.get('a')?.toString(), 'before')
  assert.equal(await barrier.rotate(), 2)
  await barrier.commit(put('c', 'new key'))
  const found = readable(store, rootKey)
  assert.deepEqual([found.get('a'), found.get('b'), found.get('c')], ['before', 'late', 'new key'])
})

test('after a failed rekey the previous root key is valid and the new one is not', async () => {
  const { store, barrier, rootKey } = await world()
  await barrier.commit(put('a', 'kept'))
  const next = randomBytes(32)
  store.failNext('failed', 1, touchesRing)
  const changed = barrier.rekey(next)
  const behind = barrier.rekey(randomBytes(32))
  await assert.rejects(changed)
  await assert.rejects(behind)
  assert.throws(() => readable(store, next), WrongKey)
  assert.equal(await barrier.rotate(), 2)
  assert.equal(readable(store, rootKey).get('a'), 'kept')
  await barrier.rekey(next)
  assert.equal(await barrier.rotate(), 3)
  assert.throws(() => readable(store, rootKey), WrongKey)
  assert.equal(readable(store, next).get('a'), 'kept')
})

test('the active key is rotated before its limit without delaying or failing a commit', async () => {
  const { store, barrier, rootKey } = await world(40)
  await Promise.all(Array.from({ length: 100 }, (_, at) => barrier.commit(put(`x/${at}`, String(at)))))
  assert.ok(barrier.status.term >= 5, `term ${barrier.status.term}`)
  assert.ok(barrier.status.encryptions <= 40)
  const found = readable(store, rootKey)
  for (let at = 0; at < 100; at++) assert.equal(found.get(`x/${at}`), String(at))
})

test('the stored count of encryptions is never too low, whichever commits fail', async () => {
  const { store, barrier, rootKey } = await world()
  store.failNext('full', 3)
  for (let at = 0; at < 3; at++) await assert.rejects(barrier.commit(put('a', 'x')))
  for (let at = 0; at < 10; at++) await barrier.commit(put('a', 'x'))
  const after = new Barrier(store)
  after.unseal(rootKey)
  assert.ok(after.status.encryptions >= barrier.status.encryptions)
})

test('unsealing right after a seal during a rotation uses the queued ring', async () => {
  const { store, barrier, rootKey } = await world()
  const rotated = barrier.rotate()
  const behind = barrier.commit(put('a', 'with the new key'))
  barrier.seal()
  barrier.unseal(rootKey)
  assert.equal(barrier.status.term, 2)
  await rotated
  await behind
  await barrier.rotate()
  assert.equal(readable(store, rootKey).get('a'), 'with the new key')
})

test('removeAll deletes everything below the prefix in commits of a bounded size, and nothing else', async () => {
  const { barrier } = await world()
  const storage = new Storage(barrier, new ViewScope(), 'logical/1/')
  const puts = Array.from({ length: 1700 }, (_, at) => ({ path: `d${at % 7}/${at}`, value: Buffer.from('x') }))
  await storage.commit({ puts, deletes: [] })
  await barrier.commit(put('logical/10/thing', 'other'))
  assert.equal(storage.paths('d3/', { limit: 2 }).length, 2)
  assert.equal(storage.pending('d1/1')?.toString(), 'x')
  const inFolder = storage.paths('d3/').length
  assert.equal(await storage.removeAll('d3/'), inFolder)
  assert.deepEqual(storage.list(), ['d0/', 'd1/', 'd2/', 'd4/', 'd5/', 'd6/'])
  assert.equal(await storage.removeAll(), 1700 - inFolder)
  assert.deepEqual(storage.list(), [])
  assert.equal(barrier.get('logical/10/thing')?.toString(), 'other')
})

test('all acknowledged entries are readable after concurrent rotations, commits and failures in SQLite', async (t: TestContext) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  const barrier = new Barrier(store)
  const rootKey = randomBytes(32)
  await barrier.initialise(rootKey)
  barrier.unseal(rootKey)
  failWrites(path, 'poison/%')
  const random = new Random(21)
  const acknowledged = new Map<string, string>()
  const worker = async (name: number) => {
    for (let at = 0; at < 40; at++) {
      const dice = random.between(0, 19)
      const done =
        dice === 0 ? barrier.rotate() : barrier.commit(dice < 3 ? put('poison/x', 'x') : put(`w/${name}`, `${at}`))
      const isTaken = await done.then(
        () => true,
        () => false,
      )
      if (isTaken && dice >= 3) acknowledged.set(`w/${name}`, String(at))
    }
  }
  await Promise.all(Array.from({ length: 12 }, (_, name) => worker(name)))
  const found = readable(store, rootKey)
  for (const [name, value] of acknowledged) assert.equal(found.get(name), value)
  assert.ok(acknowledged.size === 12 && barrier.status.term > 3)
})
