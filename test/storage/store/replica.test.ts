/** A store as a replica: roles, rows of another log, copies, and equality with its primary to the byte. */
import assert from 'node:assert/strict'
import { createReadStream, createWriteStream } from 'node:fs'
import { dirname, join } from 'node:path'
import { PassThrough } from 'node:stream'
import { test } from 'node:test'
import { encodeBatch, HEAD_PATH } from '../../../src/storage/sqlite/batch.ts'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { checksumOf, type LogRow } from '../../../src/storage/sqlite/rows.ts'
import { NotChained } from '../../../src/storage/store/replica.ts'
import { RollbackCheck } from '../../../src/storage/store/rollback-check.ts'
import { restoreSnapshot, saveSnapshot } from '../../../src/storage/snapshot/snapshot.ts'
import { SqliteStore, StoreError } from '../../../src/storage/store/store.ts'
import { EVERY_ROW } from '../../helpers/every-row.ts'
import { Random } from '../../helpers/frames.ts'
import {
  copy,
  entriesOf,
  openReplica,
  openStore,
  positionOf,
  put,
  randomBatch,
  ship,
} from '../../helpers/replica-pair.ts'

const SEED = Number(process.env['OUTPOST_SEED'] ?? Math.floor(Math.random() * 1e9))
const isKind = (kind: string) => (error: unknown) => error instanceof StoreError && error.kind === kind

test('a replica accepts rows and local batches but no commits; after promotion it accepts commits in a higher epoch', async (t) => {
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  await primary.commit({ puts: [put('a'), put(HEAD_PATH, '1')], deletes: [] })
  await primary.commit({ puts: [put('b'), put(HEAD_PATH, '2')], deletes: ['a'] })
  assert.equal(replica.get('b'), undefined)
  await ship(primary, replica)
  assert.deepEqual(
    Buffer.from(replica.get('b')?.value ?? []),
    Buffer.from('b'),
    'what was known to be absent is asked again',
  )
  assert.throws(() => void replica.commit({ puts: [put('c')], deletes: [] }), isKind('replica'))
  await replica.commit({ puts: [put('local/replication/state')], deletes: [] })
  assert.equal(positionOf(replica), positionOf(primary))
  assert.deepEqual(entriesOf(replica), entriesOf(primary))

  await replica.setRole('own', 2)
  assert.equal(await replica.commit({ puts: [put('c')], deletes: [] }), 3)
  assert.equal(replica.position().epoch, 2)
  await primary.setRole('fenced', 2)
  assert.throws(() => void primary.commit({ puts: [put('late')], deletes: [] }), isKind('fenced'))
  await primary.commit({ puts: [put('local/replication/state')], deletes: [] })
  await assert.rejects(primary.applyRows(replica.rowsAfter(2, EVERY_ROW)), /not a replica/)

  const path = primary.path
  await primary.close()
  const again = await SqliteStore.open(path)
  t.after(() => again.close())
  assert.deepEqual([again.role, again.epoch, again.isWhole], ['fenced', 2, true])
  await again.setRole('replica')
  await ship(replica, again)
  assert.deepEqual(entriesOf(again), entriesOf(replica))
  assert.deepEqual(checkDatabase(again.path), [])
})

test('commits queued before a change of the role are written, and later ones are refused', async (t) => {
  const store = await openStore(t, 'store')
  const before = store.commit({ puts: [put('before')], deletes: [] })
  const changed = store.setRole('fenced', 7)
  assert.throws(() => void store.commit({ puts: [put('behind')], deletes: [] }), isKind('fenced'))
  const local = store.commit({ puts: [put('local/x')], deletes: [] })
  assert.equal(await before, 1)
  await changed
  await local
  assert.equal(store.epoch, 7)
  await store.setRole('own', 3)
  assert.equal(store.epoch, 7, 'an epoch never falls')
  assert.equal(await store.commit({ puts: [put('again')], deletes: [] }), 2)
})

/** With a valid chain for any numbers. */
function chained(row: LogRow, before: LogRow): LogRow {
  return { ...row, checksum: checksumOf(row, before.checksum) }
}

test('refuses rows that do not follow, were changed, or have local paths', async (t) => {
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  for (const path of ['a', 'b', 'c', 'd']) await primary.commit({ puts: [put(path)], deletes: [] })
  const [a, b, c, d] = primary.rowsAfter(0, EVERY_ROW) as [LogRow, LogRow, LogRow, LogRow]
  const flipped = { ...b, batch: Buffer.from(b.batch).fill(1, 5, 6) }
  for (const rows of [[b], [a, c], [a, flipped], [a, { ...b, epoch: 9 }], [a, a], [a, b, { ...c, atMs: 5 }]]) {
    await assert.rejects(replica.applyRows(rows), NotChained)
  }
  const newer = chained({ ...a, epoch: 2 }, { ...a, checksum: replica.position().checksum })
  for (const rows of [
    [a, chained({ ...b, sequence: 3 }, a)],
    [newer, chained({ ...b, epoch: 1 }, newer)],
  ]) {
    await assert.rejects(replica.applyRows(rows), NotChained)
  }
  const local = { ...b, batch: encodeBatch({ puts: [put('local/replication/state', 'x')], deletes: [] }) }
  await assert.rejects(
    replica.applyRows([a, { ...local, checksum: checksumOf(local, a.checksum) }]),
    /sent local paths/,
  )
  assert.equal(replica.position().sequence, 0)
  assert.deepEqual(entriesOf(replica), [])
  assert.equal((await replica.applyRows([a, b])).sequence, 2)
  assert.equal((await replica.applyRows([])).sequence, 2)
  await replica.applyRows([c, d])
  assert.deepEqual(entriesOf(replica), entriesOf(primary))
})

test('reads the log by bytes with at least one row, and knows which positions it has', async (t) => {
  const store = await openStore(t, 'store', { log: { bytesMax: 4000, ageMaxMs: 3_600_000, behindBytesMax: 4000 } })
  const positions = [store.position()]
  for (let at = 0; at < 10; at++) {
    await store.commit({ puts: [put('a', 'x'.repeat(1000))], deletes: [] })
    positions.push(store.position())
  }
  const base = store.base()
  assert.ok(base.sequence > 2)
  const lengths = (bytes: number) => store.rowsAfter(base.sequence, { rows: 100, bytes }).length
  assert.deepEqual([lengths(1), lengths(1100), lengths(2100), lengths(2010)], [1, 1, 2, 1])
  assert.equal(store.rowsAfter(10, EVERY_ROW).length, 0)
  const held = positions.filter((position) => store.holds(position)).map(({ sequence }) => sequence)
  assert.deepEqual(
    held,
    positions.map(({ sequence }) => sequence).filter((sequence) => sequence >= base.sequence),
  )
  assert.equal(store.holds({ ...store.position(), checksum: Buffer.alloc(32, 1) }), false)
  assert.equal(store.holds({ ...store.position(), sequence: 11 }), false)
})

test('reports durable rows before their commits resolve, and a commit waits for the acknowledgement', async (t) => {
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  const told: number[] = []
  const end = primary.onAppended((newest) => told.push(newest))
  const acknowledged = Promise.withResolvers<void>()
  primary.acknowledgement = (sequence) => (sequence === 2 ? acknowledged.promise : undefined)
  await primary.commit({ puts: [put('a')], deletes: [] })
  await primary.commit({ puts: [put('local/a')], deletes: [] })
  let isAnswered = false
  const second = primary.commit({ puts: [put('b')], deletes: [] }).then((sequence) => (isAnswered = sequence === 2))
  const local = primary.commit({ puts: [put('local/b')], deletes: [] })
  await local
  assert.equal(isAnswered, false)
  assert.deepEqual(told, [1, 2], 'rows are reported before the commit resolves')
  const received: number[] = []
  replica.onAppended((newest) => received.push(newest))
  await ship(primary, replica, 1)
  assert.deepEqual(received, [1, 2])
  acknowledged.resolve()
  assert.equal(await second, true)
  end()
  primary.acknowledgement = () => Promise.reject(new StoreError('fenced', 'another primary'))
  await assert.rejects(primary.commit({ puts: [put('c')], deletes: [] }), isKind('fenced'))
  primary.acknowledgement = undefined
  await primary.commit({ puts: [put('d')], deletes: [] })
  assert.deepEqual(told, [1, 2])
})

test('wipe leaves only the state of replication, and the next start reports no loss', async (t) => {
  const store = await openStore(t, 'store')
  await store.tree.enable()
  await store.commit({ puts: [put('a'), put('b')], deletes: [] })
  await store.commit({
    puts: [put('local/entry-set/00'), put('local/replication/state'), put('local/replication0')],
    deletes: [],
  })
  await store.raiseEpoch(4)
  await assert.rejects(store.wipe(), /not a replica/)
  await store.setRole('replica')
  assert.ok(store.get('a'))
  await store.wipe()
  assert.deepEqual(store.paths(''), ['local/replication/state'])
  assert.equal(store.get('a'), undefined)
  assert.deepEqual([store.position().sequence, store.epoch, store.base().sequence], [0, 0, 0])
  const path = store.path
  await store.close()
  const again = await SqliteStore.open(path)
  t.after(() => again.close())
  assert.equal(new RollbackCheck(again).warning, undefined)
  assert.equal(new RollbackCheck(again).refusal, undefined)
  assert.deepEqual(checkDatabase(path), [])
})

test('a copy results in the entries of the primary despite concurrent commits and interruptions', async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const random = new Random(SEED)
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  const write = async (batches: number) => {
    await Promise.all(Array.from({ length: batches }, () => primary.commit(randomBatch(random, 200))))
  }
  await write(40)
  for (let round = 0; round < 12; round++) {
    let stepsLeft = random.chance(0.4) ? random.between(1, 8) : Number.POSITIVE_INFINITY
    const between = async () => {
      if (random.chance(0.5)) await write(random.between(1, 4))
      if (stepsLeft-- === 0) throw new Error('cut')
    }
    const cut = await copy(primary, replica, { between, piece: random.between(3, 40) }).then(
      () => false,
      (error: Error) => error.message === 'cut' || Promise.reject(error),
    )
    assert.equal(replica.isWhole, !cut)
    if (cut && random.chance(0.5)) continue
    if (cut) await copy(primary, replica)
    await ship(primary, replica, random.between(1, 30))
    assert.deepEqual(entriesOf(replica), entriesOf(primary))
    assert.equal(positionOf(replica), positionOf(primary))
    assert.deepEqual(await replica.tree.root(), await primary.tree.root())
    assert.equal(replica.clusterId, primary.clusterId)
    // The other direction: differences are found without the log.
    await write(random.between(0, 10))
  }
  assert.deepEqual(checkDatabase(primary.path), [])
  if (replica.isWhole) assert.deepEqual(checkDatabase(replica.path), [])
})

test('a former primary that becomes a replica loses its unshipped commits and copies only differences', async (t) => {
  const old = await openStore(t, 'old')
  const replica = await openReplica(t)
  for (let at = 0; at < 50; at++) await old.commit({ puts: [put(`e/${at}`)], deletes: [] })
  await ship(old, replica)
  await old.commit({ puts: [put('e/1', 'never shipped'), put('lost')], deletes: ['e/2'] })
  await replica.setRole('own', 2)
  await replica.commit({ puts: [put('new'), put('e/3', 'anew')], deletes: ['e/4'] })
  await old.setRole('replica', 2)
  assert.equal(replica.holds(old.position()), false)
  const copied = await copy(replica, old)
  assert.deepEqual(copied.map(({ path }) => path).sort(), ['e/1', 'e/2', 'e/3', 'new'])
  assert.deepEqual(entriesOf(old), entriesOf(replica))
  assert.equal(positionOf(old), positionOf(replica))
  assert.equal(old.get('lost'), undefined)
  await ship(replica, old)
})

test('a repair applies entries of one sequence and skips paths that later rows have changed', async (t) => {
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  for (const path of ['a', 'b', 'c', 'd']) await primary.commit({ puts: [put(path)], deletes: [] })
  const { sequence, entries, missing } = primary.entriesAt(['a', 'b', 'x'])
  assert.deepEqual([sequence, missing], [4, ['x']])
  await assert.rejects(replica.repairEntries(entries, missing, sequence), NotChained)
  await primary.commit({ puts: [put('b', 'newer'), put('x')], deletes: [] })
  await ship(primary, replica)
  await replica.repairEntries(entries, missing, sequence)
  assert.deepEqual(entriesOf(replica), entriesOf(primary))
  await assert.rejects(replica.repairEntries([{ ...put('a'), sequence: 5 }], [], 4), /newer than the repair/)
  await assert.rejects(replica.copyEntries(entries, []), /no copy is in progress/)
})

test('refuses a repair of a sequence before the base of the log, and accepts one at the base', async (t) => {
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  for (const value of ['1', '2', '3', '4']) await primary.commit({ puts: [put('a', value)], deletes: [] })
  await ship(primary, replica)
  // The earlier log is gone, so it is unknown whether rows have changed an entry since.
  await replica.beginCopy(primary.position(), primary.clusterId)
  await replica.finishCopy()
  const { sequence } = replica.base()
  const before = entriesOf(replica)
  const old = { ...put('a', '3'), sequence: sequence - 1 }
  await assert.rejects(replica.repairEntries([old], [], sequence - 1), {
    name: 'NotChained',
    message: `the log does not reach back to sequence ${sequence - 1}`,
  })
  await assert.rejects(replica.repairEntries([], ['a'], sequence - 1), NotChained)
  assert.deepEqual(entriesOf(replica), before)
  await replica.repairEntries([], ['a'], sequence)
  assert.equal(replica.get('a'), undefined)
})

test('the tree of a replica matches its entries after a rolled back transaction', async (t) => {
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  await Promise.all([primary.tree.enable(), replica.tree.enable()])
  for (const value of ['1', '2']) await primary.commit({ puts: [put('a', value)], deletes: [] })
  // Written twice, so that its leaf is remembered.
  await ship(primary, replica)
  await primary.commit({ puts: [put('a', '3')], deletes: [] })
  await primary.commit({ puts: [put('b')], deletes: ['a'] })
  const [good, other] = primary.rowsAfter(2, { rows: 2, bytes: 1 << 20 })
  assert.ok(good && other)
  const forged = { ...other, checksum: Buffer.alloc(other.checksum.length) }
  await assert.rejects(replica.applyRows([good, forged]), NotChained)
  assert.deepEqual(await replica.tree.root(), (await replica.tree.check()).root)
  await replica.applyRows([good])
  const report = await replica.tree.check()
  assert.deepEqual([...report.trees.replicated.pages], [], 'no subpage differs from the entries')
  await ship(primary, replica)
  assert.deepEqual(await replica.tree.root(), await primary.tree.root())
})

test('refuses a snapshot of an incomplete copy, and a restore replaces it', async (t) => {
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  await primary.commit({ puts: [put('a')], deletes: [] })
  const file = join(dirname(primary.path), 'snapshot')
  await saveSnapshot(primary, createWriteStream(file))
  await replica.beginCopy(primary.position(), primary.clusterId)
  await assert.rejects(restoreSnapshot(replica, createReadStream(file), { force: true }), /not a primary/)
  await replica.setRole('own', 2)
  assert.equal(replica.isWhole, false)
  await assert.rejects(saveSnapshot(replica, new PassThrough()), /initial sync .* is not complete/)
  await restoreSnapshot(replica, createReadStream(file), { force: true })
  assert.deepEqual([replica.isWhole, replica.get('a')?.value.length], [true, 1])
  const path = replica.path
  await replica.close()
  const again = await SqliteStore.open(path)
  t.after(() => again.close())
  assert.equal(again.isWhole, true)
})
