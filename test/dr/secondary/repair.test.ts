/** What damage has changed on a secondary is found and taken from the primary while the log goes on. */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { PassThrough, Readable } from 'node:stream'
import { eventually } from '../../helpers/eventually.ts'
import { releaseStoreWorker, acquireStoreWorker } from '../../../src/storage/store/store-worker-cache.ts'
import { writeFact } from '../../../src/storage/sqlite/rows.ts'
import { restoreSnapshot, saveSnapshot } from '../../../src/storage/snapshot/snapshot.ts'
import { activate, attach, Site, untilSame } from '../../helpers/replication-site.ts'

test('entries that were changed, removed and added beneath a secondary are repaired from its primary', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await primary.putMany('many', 300)
  await activate(primary, secondary)
  const good = primary.text('many/1')
  damage(secondary, (database) => {
    database.exec("INSERT INTO entries (path, sequence, crc, value) VALUES ('added', 1, 1, x'00')")
  })
  await primary.put('meanwhile')
  const { merkle_corruption_report: found } = await secondary.replication.merkleCheck()
  const pages = Object.values(found.corrupted_tree_map['1'].corrupted_index_tuples_map ?? {})
  assert.equal(pages.flatMap(({ subpages }) => subpages).length, 4, 'each of the four is in a subpage of its own')
  await eventually(async () => (await secondary.field('corrupted_merkle_tree')) === false, 'it is repaired')
  assert.ok(secondary.said(/entries repaired from the primary/))
  await untilSame(primary, secondary)
  assert.equal(secondary.text('many/1'), good)
  assert.ok(secondary.text('many/3'))
  assert.equal(secondary.text('added'), undefined)
  assert.equal((await secondary.replication.merkleCheck()).merkle_corruption_report.damaged_entries, 0)
})

test('an old row that was put back on a secondary is repaired from its primary after a reindex', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await primary.put('kept/one', 'old')
  await activate(primary, secondary)
  const database = new DatabaseSync(secondary.store.path, { timeout: 5000 })
  t.after(() => database.close())
  const old = database.prepare("SELECT sequence, crc, value FROM entries WHERE path = 'kept/one'").get()
  await primary.put('kept/one', 'new')
  await untilSame(primary, secondary)
  database
    .prepare("UPDATE entries SET sequence = ?, crc = ?, value = ? WHERE path = 'kept/one'")
    .run(old?.['sequence'] ?? 0, old?.['crc'] ?? 0, old?.['value'] ?? null)
  await secondary.replication.reindex({ diff: true, force: false, skipFlush: false })
  await eventually(() => secondary.said(/entries repaired from the primary/), 'it is repaired')
  await untilSame(primary, secondary)
  assert.equal(secondary.text('kept/one'), 'new')
})

test('entries that were damaged beneath a primary are repaired by a planned change to its secondary and back', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await primary.putMany('many', 300)
  await activate(primary, secondary)
  const good = primary.text('many/1')
  damage(primary)
  const { merkle_corruption_report: found } = await primary.replication.merkleCheck()
  const pages = Object.values(found.corrupted_tree_map['1'].corrupted_index_tuples_map ?? {})
  assert.equal(pages.flatMap(({ subpages }) => subpages).length, 3, 'the primary names what is damaged')
  assert.equal(await primary.field('corrupted_merkle_tree'), true)

  await primary.replication.demote()
  await secondary.replication.promote({ primaryClusterAddr: '', force: false })
  await secondary.put('meanwhile')
  await attach(secondary, primary, 'primary')
  await eventually(async () => (await primary.field('state')) === 'stream-wals', 'it follows')
  // The log goes on, so nothing was compared: that a look is due is known from the check.
  await primary.replication.merkleCheck()
  await eventually(async () => (await primary.field('corrupted_merkle_tree')) === false, 'it is repaired')
  assert.ok(primary.said(/entries repaired from the primary/))
  await untilSame(secondary, primary)

  await secondary.replication.demote()
  await primary.replication.promote({ primaryClusterAddr: '', force: false })
  assert.deepEqual([primary.text('many/1'), primary.text('meanwhile')], [good, 'meanwhile'])
  assert.ok(primary.text('many/3'))
  assert.equal((await primary.replication.merkleCheck()).merkle_corruption_report.damaged_entries, 0)
})

test('while the tree is rebuilt after a restore, the status has everything but its root', async (t) => {
  const primary = await Site.start(t, 'primary')
  await primary.putMany('many', 300)
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  const root = await primary.field('merkle_root')
  assert.match(String(root), /^[0-9a-f]{40}$/)
  const pieces: Buffer[] = []
  const snapshot = new PassThrough().on('data', (piece: Buffer) => pieces.push(piece))
  await saveSnapshot(primary.store, snapshot)
  const { promise: held, resolve: goOn } = Promise.withResolvers<void>()
  await withholdNextTree(held)
  await restoreSnapshot(primary.store, Readable.from([Buffer.concat(pieces)]))
  const { merkle_root: making, ...rest } = await primary.replication.status()
  goOn()
  assert.equal(making, '')
  assert.deepEqual([rest['mode'], rest['state']], ['primary', 'running'])
  await eventually(async () => (await primary.field('merkle_root')) === root, 'it is made')
})

/** The thread that makes the next tree is asked for it when `until` has resolved. */
async function withholdNextTree(until: Promise<void>): Promise<void> {
  const worker = acquireStoreWorker()
  const post = worker.postMessage.bind(worker)
  worker.postMessage = (message: unknown, transfer = []) => {
    if (!isTreeTask(message)) {
      post(message, transfer)
      return
    }
    void until.then(() => post(message, transfer))
  }
  await releaseStoreWorker(worker)
}

function isTreeTask(message: unknown): boolean {
  return typeof message === 'object' && message !== null && 'task' in message && message.task === 'tree'
}

/** Makes a page of the table of entries unreadable: that with `path`. The database is closed. */
function damagePageOf(file: string, path: string): void {
  const database = new DatabaseSync(file, { readOnly: true })
  const root = Number(database.prepare("SELECT rootpage AS at FROM sqlite_schema WHERE name = 'entries'").get()?.['at'])
  const bytes = Number(database.prepare('PRAGMA page_size').get()?.['page_size'])
  database.close()
  const all = readFileSync(file)
  const pageAt = (page: number) => all.subarray((page - 1) * bytes, page * bytes)
  // An inner page of a b-tree: cells that begin with the number of a page.
  const inner = pageAt(root)
  const children = Array.from({ length: inner.readUInt16BE(3) }, (_, cell) =>
    inner.readUInt32BE(inner.readUInt16BE(12 + 2 * cell)),
  )
  const damaged = children.find((page) => pageAt(page).includes(path))
  assert.ok(damaged !== undefined)
  pageAt(damaged).writeUInt8(0xff, 0)
  writeFileSync(file, all)
}

test('a start does not wait for a rebuild of the tree and does not fail at an unreadable entry', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await primary.putMany('many', 300)
  await activate(primary, secondary)
  const { port } = primary.replication.listening ?? { port: 0 }
  await primary.close()
  const file = primary.store.path
  damagePageOf(file, 'many/150')
  const database = new DatabaseSync(file)
  // As an older version has left it.
  writeFact(database, 'tree', 'made')
  database.close()
  primary.options = { port }
  await primary.open()
  await eventually(() => primary.said(/Merkle tree rebuild failed/), 'the log says so')
  assert.equal(await primary.field('merkle_root'), '')
  await primary.put('goes/on')
  await eventually(() => secondary.text('goes/on') === 'goes/on', 'the log is shipped all the same')
})

/** Two entries are changed and one is removed, behind the back of the process that has the database open. */
function damage({ store }: Site, further: (database: DatabaseSync) => void = () => undefined): void {
  const database = new DatabaseSync(store.path, { timeout: 20_000 })
  database.exec("UPDATE entries SET value = zeroblob(100) WHERE path IN ('many/1', 'many/2')")
  database.exec("DELETE FROM entries WHERE path = 'many/3'")
  further(database)
  database.close()
}

test('entries that were damaged beneath a secondary while it was away are repaired after its trees were compared', async (t) => {
  const log = { bytesMax: 40_000, ageMaxMs: 3_600_000, behindBytesMax: 40_000 }
  const [primary, secondary] = [await Site.start(t, 'primary', { log }), await Site.start(t, 'secondary')]
  await primary.putMany('many', 300)
  await activate(primary, secondary)
  await secondary.close()
  damage(secondary)
  // The log is cut a little with each transaction.
  for (let at = 0; at < 100; at++) await primary.put(`later/${at}`, Buffer.alloc(1000))
  await secondary.open()
  await untilSame(primary, secondary)
  assert.ok(secondary.said(/starting Merkle comparison/), 'the log did not reach')
  // The comparison goes by the tree that was kept, and the tree by what the log has left.
  const { damaged_entries: damaged } = (await secondary.replication.merkleCheck()).merkle_corruption_report
  assert.equal(damaged, 2)
  await eventually(() => secondary.said(/entries repaired from the primary/), 'it is repaired')
  for (const path of ['many/1', 'many/2', 'many/3']) assert.equal(secondary.text(path), primary.text(path))
})
