/** The entry set: it follows commits and failures, is the same after a restart, and detects changes of the database. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test, type TestContext } from 'node:test'
import { Barrier } from '../../../src/storage/barrier/barrier.ts'
import { loadEntrySet } from '../../../src/storage/barrier/entry-set-load.ts'
import { ShardWriter } from '../../../src/storage/barrier/entry-set-shards.ts'
import { EntrySetMismatch, EntrySet, RollbackError, SET_KEY_BYTES } from '../../../src/storage/barrier/entry-set.ts'
import { decrypt, encrypt } from '../../../src/storage/barrier/cipher.ts'
import { Keyring } from '../../../src/storage/barrier/keyring.ts'
import { HEAD_PATH } from '../../../src/storage/sqlite/batch.ts'
import { entryCrc } from '../../../src/storage/sqlite/rows.ts'
import { type EntryMark, MarkTable } from '../../../src/storage/barrier/mark-table.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { Random } from '../../helpers/frames.ts'
import { MemoryStore } from '../../helpers/memory-store.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const ROOT_KEY = randomBytes(32)
const put = (path: string, value: string) => ({ puts: [{ path, value: Buffer.from(value) }], deletes: [] })

async function opened(t: TestContext) {
  const path = join(temporaryDirectory(t), 'secrets.db')
  let store = await SqliteStore.open(path)
  t.after(() => store.close())
  const barrier = new Barrier(store)
  await barrier.initialise(ROOT_KEY)
  barrier.unseal(ROOT_KEY)
  const reopened = async (change: (database: DatabaseSync) => void = () => undefined) => {
    await store.close()
    const database = new DatabaseSync(path)
    change(database)
    database.close()
    store = await SqliteStore.open(path)
    return new Barrier(store)
  }
  return { barrier, reopened, current: () => store }
}

test('the table of marks behaves like a Map under random inserts and deletes', () => {
  const random = new Random(7)
  const table = new MarkTable()
  const model = new Map<string, { id: EntryMark; mark: EntryMark }>()
  for (let step = 0; step < 20_000; step++) {
    // Few low words, so that many want the same slot.
    const id = { hi: random.between(1, 40), lo: random.between(0, 30) * 0x01_00_00_01 }
    if (random.between(0, 2) === 0) {
      table.delete(id)
      model.delete(`${id.hi}.${id.lo}`)
    } else {
      const mark = { hi: step, lo: random.between(0, 0xff_ff_ff_ff) }
      table.set(id, mark)
      model.set(`${id.hi}.${id.lo}`, { id, mark })
    }
    if (step % 500 > 0) continue
    const copy = MarkTable.decode(Buffer.from(table.encode()))
    for (const one of [table, copy]) {
      assert.equal(one?.size, model.size)
      for (const held of model.values()) assert.deepEqual(one?.get(held.id), held.mark)
    }
  }
  assert.equal(MarkTable.decode(Buffer.alloc(17)), undefined)
  const one = new MarkTable()
  one.set({ hi: 1, lo: 2 }, { hi: 3, lo: 4 })
  const bytes = Buffer.from(one.encode())
  assert.equal(MarkTable.decode(bytes)?.size, 1)
  assert.equal(MarkTable.decode(Buffer.concat([bytes, bytes])), undefined, 'one ID twice')
})

test('never refuses an intact entry over random commits, failures and restarts', async () => {
  const random = new Random(11)
  const store = new MemoryStore()
  let barrier = new Barrier(store)
  await barrier.initialise(ROOT_KEY)
  barrier.unseal(ROOT_KEY)
  for (let step = 0; step < 3000; step++) {
    const path = `p/${random.between(0, 40)}`
    const what = random.between(0, 20)
    if (what === 0) store.failNext('failed', random.between(1, 3))
    else if (what === 1) await new Promise((resolve) => setImmediate(resolve))
    else if (what === 2 && random.between(0, 9) === 0) {
      barrier.seal()
      barrier = random.between(0, 1) === 0 ? new Barrier(store) : barrier
      barrier.unseal(ROOT_KEY)
    } else if (what === 3 && random.between(0, 9) === 0) barrier.rotate().catch(() => undefined)
    else if (what < 8) barrier.commit({ puts: [], deletes: [path] }).catch(() => undefined)
    else barrier.commit(put(path, `${step}`)).catch(() => undefined)
    const read = `p/${random.between(0, 40)}`
    barrier.get(read)
    barrier.pending(read)
    barrier.getShared(read)
  }
  assert.equal(barrier.integrity.changed, 0)
})

test('a set loaded from shards and the log equals the set of the entries, also with queued changes', async (t) => {
  const { barrier, current: store, reopened } = await opened(t)
  const random = new Random(3)
  let current = barrier
  for (let round = 0; round < 4; round++) {
    const done: Promise<unknown>[] = []
    for (let at = 0; at < 400; at++) {
      const path = `many/${random.between(0, 3000)}`
      done.push(
        current.commit(random.between(0, 4) === 0 ? { puts: [], deletes: [path] } : put(path, `${round}.${at}`)),
      )
      if (at === 200) {
        // What is queued now is neither in the entries nor in a part yet.
        current.seal()
        current = new Barrier(store())
        current.unseal(ROOT_KEY)
      }
    }
    current.startScan()
    await Promise.all(done)
    const looking = current
    await eventually(() => looking.integrity.isChecked, 'all entries were looked at')
    assert.deepEqual(looking.integrity.warnings, [])
    if (round % 2 === 0) current.seal()
    current = await reopened((database) => {
      // Without these the entries themselves have to tell.
      if (round === 2) database.exec("DELETE FROM entries WHERE path LIKE 'local/%/3%'")
    })
    current.unseal(ROOT_KEY)
    for (const path of current.paths('many/')) assert.ok(current.get(path))
  }
})

test('replays log rows of an entry that is changed, deleted and written again without reading entries', async (t) => {
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'secrets.db'))
  t.after(() => store.close())
  const random = new Random(11)
  const [setKey, termKey] = [randomBytes(SET_KEY_BYTES), { term: 1, key: randomBytes(32) }]
  const set = new EntrySet(setKey)
  const parts = new ShardWriter(store, Date.now)
  const commit = (change: { puts: { path: string; value: Buffer }[]; deletes: string[] }) => {
    const flight = set.bind(change)
    const head = { path: HEAD_PATH, value: set.sealHead() }
    const done = store.commit({ puts: [...change.puts, head], deletes: change.deletes })
    // So that some parts are older than others, and than rows of the same entries.
    parts.countChanges(flight.changes.length, set, termKey)
    return done.then(() => set.confirm(flight))
  }
  parts.invalidate()
  const done: Promise<unknown>[] = []
  for (let at = 0; at < 1200; at++) {
    const path = `x/${random.between(0, 40)}`
    const isRemoved = random.between(0, 3) === 0
    done.push(
      commit(isRemoved ? { puts: [], deletes: [path] } : { puts: [{ path, value: randomBytes(40) }], deletes: [] }),
    )
  }
  await Promise.all(done)
  const open = (path: string, value: Uint8Array) => decrypt(path, value, () => termKey.key)
  const loaded = loadEntrySet(store, setKey, store.get(HEAD_PATH)?.value, open)
  assert.ok(loaded.isQuick)
  assert.equal(loaded.set.size, set.size)
  for (let at = 0; at <= 40; at++) loaded.set.check(`x/${at}`, store.get(`x/${at}`)?.value)
})

test('a damaged, older or swapped shard makes the start slower and changes no result', async (t) => {
  const { barrier, reopened } = await opened(t)
  for (let at = 0; at < 600; at++) await barrier.commit(put(`x/${at % 50}`, `${at}`))
  barrier.seal()
  const changes = [
    "UPDATE entries SET value = substr(value, 1, 40) WHERE path = 'local/entry-set/07'",
    "UPDATE entries SET value = (SELECT value FROM entries WHERE path = 'local/entry-set/01') WHERE path = 'local/entry-set/02'",
    "DELETE FROM log WHERE sequence < 500; UPDATE entries SET sequence = 5 WHERE path LIKE 'local/%'",
    "DELETE FROM entries WHERE path LIKE 'local/%'",
  ]
  for (const change of changes) {
    const again = await reopened((database) => {
      database.exec(change)
    })
    again.unseal(ROOT_KEY)
    for (let at = 0; at < 50; at++) assert.equal(again.get(`x/${at}`)?.toString(), String(at + 550))
    again.seal()
  }
})

test('a database without an entry set is migrated, and is protected afterwards', async (t) => {
  const { barrier, reopened } = await opened(t)
  await barrier.commit(put('a', 'one'))
  // The ring as it was written then: without a key for the set.
  const ring = Keyring.fresh(0)
  const old = JSON.parse(ring.encode().toString()) as { setKey?: string }
  delete old.setKey
  const bytes = encrypt('core/keyring', Buffer.from(JSON.stringify(old)), { term: 0, key: ROOT_KEY })
  const value = encrypt('a', Buffer.from('one'), ring.activeKey)
  let first: { value: Uint8Array; sequence: number; crc: number } | undefined
  const before = await reopened((database) => {
    database.exec("DELETE FROM entries WHERE path LIKE 'local/%' OR path IN ('core/head', 'core/encryptions')")
    const set = database.prepare('UPDATE entries SET value = ?, sequence = 1, crc = ? WHERE path = ?')
    set.run(bytes, entryCrc('core/keyring', 1, bytes), 'core/keyring')
    set.run(value, entryCrc('a', 1, value), 'a')
    first = { value, sequence: 1, crc: entryCrc('a', 1, value) }
  })
  before.unseal(ROOT_KEY)
  assert.equal(before.get('a')?.toString(), 'one')
  await before.commit(put('a', 'two'))
  before.seal()
  const after = await reopened((database) => {
    const { crc = 0, sequence = 0, value: was = new Uint8Array() } = first ?? {}
    database.prepare("UPDATE entries SET value = ?, sequence = ?, crc = ? WHERE path = 'a'").run(was, sequence, crc)
  })
  after.unseal(ROOT_KEY)
  assert.throws(() => after.get('a'), RollbackError)
  after.seal()
  const headless = await reopened((database) => {
    database.exec("DELETE FROM entries WHERE path = 'core/head'")
  })
  assert.throws(() => headless.unseal(ROOT_KEY), EntrySetMismatch)
  assert.ok(headless.isSealed)
})
