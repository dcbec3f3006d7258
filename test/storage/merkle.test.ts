/** The Merkle tree: maintained as it would be built, over restarts and kills; and what a full check finds and corrects. */
import assert from 'node:assert/strict'
import { createReadStream, createWriteStream } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { crc32 } from 'node:zlib'
import { checkDatabase } from '../../src/storage/store/database-check.ts'
import { restoreSnapshot, saveSnapshot } from '../../src/storage/snapshot/snapshot.ts'
import { writeFact } from '../../src/storage/sqlite/rows.ts'
import { RootCache } from '../../src/storage/store/store-tree.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { leafBytes, leafOf, subpageOf } from '../../src/storage/merkle/tree.ts'
import { eventually } from '../helpers/eventually.ts'
import { Random } from '../helpers/frames.ts'
import { differences, entriesOf, openReplica, openStore, put, randomBatch, ship } from '../helpers/replica-pair.ts'
import { copyDatabase } from '../helpers/step-copies.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const SEED = Number(process.env['OUTPOST_SEED'] ?? Math.floor(Math.random() * 1e9))

/** What a look at everything names: `page isCorrupted subpages`. */
async function findingsOf(store: SqliteStore): Promise<string[]> {
  const { trees, isRootCorrupted } = await store.tree.check()
  assert.equal(trees.local.pages.size, 0)
  assert.equal(isRootCorrupted, trees.replicated.isRootCorrupted)
  return [...trees.replicated.pages].map(
    ([page, { isCorrupted, subpages }]) => `${page} ${isCorrupted} ${subpages.join()}`,
  )
}

/** What `work` gives; `write` is called again and again until it is over, so that commits fall into each part of it. */
async function meanwhile<T>(work: Promise<T>, write: () => Promise<unknown>): Promise<T> {
  const state = { isOver: false }
  const working = work.finally(() => (state.isOver = true))
  while (!state.isOver) await write()
  return working
}

/** As `findingsOf` says that exactly the subpages of these paths are wrong. */
function named(...paths: string[]): string[] {
  const subpages = paths.map((path) => subpageOf(path)).sort((a, b) => a - b)
  return subpages.map((subpage) => `${subpage >> 8} false ${subpage % 256}`)
}

function behindItsBack(path: string, sql: string, ...values: (string | number)[]): void {
  const database = new DatabaseSync(path)
  try {
    assert.equal(database.prepare(sql).run(...values).changes, 1)
  } finally {
    database.close()
  }
}

async function reopened(t: { after(end: () => Promise<void>): void }, path: string): Promise<SqliteStore> {
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  return store
}

test('requests the root once until the tree changes, and never returns a root older than the call', async () => {
  let [version, asked] = [0, 0]
  const { promise, resolve } = Promise.withResolvers<void>()
  const known = new RootCache(
    async () => {
      asked++
      const of = version
      if (asked === 1) await promise
      return Buffer.from([of])
    },
    () => String(version),
  )
  const first = known.get()
  await eventually(() => asked === 1)
  // It may or may not be in the answer that is on its way: these get the next one.
  version = 1
  const later = [known.get(), known.get(), known.get()]
  resolve()
  assert.deepEqual([...(await first)], [0])
  assert.deepEqual(
    await Promise.all(later),
    [1, 1, 1].map((of) => Buffer.from([of])),
  )
  assert.equal(asked, 2)
  for (let at = 0; at < 10; at++) await known.get()
  assert.equal(asked, 2)
  version = 2
  assert.deepEqual([...(await known.get())], [2])
})

test('rebuilds a tree with leaves of an older version at the start, while commits continue', async (t) => {
  const before = await openStore(t, 'one')
  await before.tree.enable()
  for (let at = 0; at < 50; at++) await before.commit({ puts: [put(`a/${at}`)], deletes: [] })
  const root = await before.tree.root()
  await before.tree.rebuild({ diff: false, skipFlush: false })
  await before.close()
  const database = new DatabaseSync(before.path)
  for (const { page, hashes } of database.prepare('SELECT page, hashes FROM tree_pages').all()) {
    const other = Buffer.from(hashes instanceof Uint8Array ? hashes : []).map((byte) => byte ^ 0x55)
    database.prepare('UPDATE tree_pages SET hashes = ?, crc = ? WHERE page = ?').run(other, crc32(other), Number(page))
  }
  writeFact(database, 'tree', 'made')
  database.close()
  const store = await reopened(t, before.path)
  await assert.rejects(() => store.tree.root(), /is being built/)
  const failures: unknown[] = []
  await store.tree.resume((error) => failures.push(error))
  // Two turns of a thread are before it is made, and a start has gone on by then.
  await assert.rejects(store.tree.pages(), /is being built/)
  // The request of `enable` waits behind the running one.
  await meanwhile(store.tree.enable(), () => store.commit({ puts: [put('a/7')], deletes: ['b'] }))
  assert.deepEqual(failures, [])
  assert.deepEqual(await findingsOf(store), [])
  assert.ok(!(await store.tree.root()).equals(root), 'an entry was written since')
  await store.close()
  const again = await reopened(t, before.path)
  assert.match((await again.tree.root()).toString('hex'), /^[0-9a-f]{40}$/)
})

test('one bit in any input of a leaf changes each of its words', () => {
  const source = { sequence: 5, crc: 6, tail: Buffer.alloc(16, 7) }
  const leaf = leafOf('path', source)
  const others = [
    leafOf('pati', source),
    leafOf('path', { ...source, sequence: 4 }),
    leafOf('path', { ...source, sequence: 5 + 2 ** 32 }),
    leafOf('path', { ...source, crc: 7 }),
    leafOf('path', { ...source, tail: Buffer.alloc(15, 7) }),
    ...Array.from({ length: 128 }, (_, bit) => {
      const tail = Buffer.from(source.tail)
      tail.writeUInt8(tail.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3)
      return leafOf('path', { ...source, tail })
    }),
  ]
  for (const other of others) for (const [at, word] of leaf.entries()) assert.notEqual(other[at], word)
  assert.equal(new Set(others.map((one) => leafBytes(one).toString('hex'))).size, others.length)
})

test('the cached root follows changes without a commit', async (t) => {
  const store = await openStore(t, 'one')
  await store.tree.enable()
  await store.commit({ puts: [put('a')], deletes: [] })
  const before = await store.tree.root()
  behindItsBack(store.path, "DELETE FROM entries WHERE path = 'a'")
  assert.ok((await store.tree.root()).equals(before))
  await store.tree.rebuild({ diff: true, skipFlush: false })
  assert.ok(!(await store.tree.root()).equals(before), 'corrected')
  await store.setRole('replica')
  const corrected = await store.tree.root()
  await store.beginCopy(store.position())
  await store.copyEntries([{ ...put('b'), sequence: 1 }], [])
  assert.ok(!(await store.tree.root()).equals(corrected), 'copied')
})

test('the maintained tree equals a built one after commits, restarts, kills and a restore', async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const random = new Random(SEED)
  const directory = temporaryDirectory(t)
  let store = await openStore(t, 'store')
  const { path } = store
  const write = (batches: number) =>
    Promise.all(Array.from({ length: batches }, () => store.commit(randomBatch(random, 300))))
  await write(30)
  assert.equal(store.tree.isEnabled, false)
  await assert.rejects(store.tree.root(), /the Merkle tree is disabled/)
  // It is made while commits go on.
  await meanwhile(store.tree.enable(), () => write(3))
  const done: number[] = []
  for (let round = 0; round < 3; round++) {
    assert.deepEqual(await meanwhile(findingsOf(store), () => write(random.between(1, 9))), [])
    const copied = join(directory, `${round}.db`)
    const writing = write(random.between(1, 60))
    copyDatabase(path, copied)
    await writing
    const killed = await reopened(t, copied)
    assert.deepEqual(await findingsOf(killed), [])
    await killed.close()
    const root = await store.tree.root()
    if (random.chance(0.5)) {
      await store.close()
      store = await reopened(t, path)
    }
    assert.deepEqual(await store.tree.root(), root)
  }
  await store.tree.check((at, total) => done.push(at / total))
  const root = await store.tree.root()
  const file = join(directory, 'snapshot')
  await saveSnapshot(store, createWriteStream(file))
  await write(5)
  assert.notDeepEqual(await store.tree.root(), root)
  await store.commit({ puts: [put('local/replication/state')], deletes: [] })
  await restoreSnapshot(store, createReadStream(file))
  await store.tree.enable()
  assert.deepEqual(await store.tree.root(), root)
  assert.ok(store.get('local/replication/state'), 'a primary stays what it is')
  await store.tree.disable()
  await write(3)
  await store.tree.enable()
  assert.deepEqual(await findingsOf(store), [])
  assert.deepEqual(checkDatabase(path), [])
})

const manyPuts = (value: string) => {
  return { puts: Array.from({ length: 9000 }, (_, at) => put(`many/${at}`, value)), deletes: [] }
}

/** Size of all notes in a database. */
function notesBytes(path: string): number {
  const database = new DatabaseSync(path, { readOnly: true })
  const row = database.prepare('SELECT sum(length(deltas)) AS bytes FROM tree_changes').get()
  database.close()
  return Number(row?.['bytes'] ?? 0)
}

test('many changes are written to pages, and a restart reads the remaining notes', async (t) => {
  const store = await openStore(t, 'store')
  await store.tree.enable()
  const sizes: number[] = []
  for (let round = 0; round < 7; round++) {
    await store.commit(manyPuts(String(round)))
    sizes.push(notesBytes(store.path))
  }
  assert.ok(Math.max(...sizes) > 500_000 && Math.max(...sizes) < 2 << 20, String(sizes))
  assert.ok((sizes.at(-1) ?? 0) < Math.max(...sizes), String(sizes))
  const progress: number[] = []
  await store.tree.check((done, total) => progress.push(done / total))
  assert.ok(progress.length > 0 && progress.every((part) => part > 0 && part <= 1))
  const root = await store.tree.root()
  await store.close()
  const again = await reopened(t, store.path)
  assert.deepEqual(await again.tree.root(), root)
  assert.deepEqual(await findingsOf(again), [])
})

test('pages that only notes of an earlier process have changed are written with the others', async (t) => {
  const store = await openStore(t, 'store')
  await store.tree.enable()
  await store.commit({ puts: [put('first')], deletes: [] })
  await store.close()
  const next = await reopened(t, store.path)
  const page = subpageOf('first') >> 8
  const isElsewhere = ({ path }: { readonly path: string }) => subpageOf(path) >> 8 !== page
  const { puts } = manyPuts('value')
  const sizes = [notesBytes(next.path)]
  while ((sizes.at(-1) ?? 0) >= Math.max(...sizes)) {
    await next.commit({ puts: puts.filter(isElsewhere), deletes: [] })
    await next.markSeen()
    sizes.push(notesBytes(next.path))
  }
  const root = await next.tree.root()
  await next.close()
  const last = await reopened(t, store.path)
  assert.deepEqual(await last.tree.root(), root)
  assert.deepEqual(await findingsOf(last), [])
})

test('a check reports planted damage by page and subpage while commits continue, and a rebuild corrects it', async (t) => {
  const store = await openStore(t, 'store')
  await store.tree.enable()
  const long = 'x'.repeat(500)
  for (let at = 0; at < 40; at++) await store.commit({ puts: [put(`e/${at}`, long)], deletes: [] })
  assert.deepEqual(await findingsOf(store), [])
  const { path } = store
  const flip = "UPDATE entries SET value = CAST(replace(CAST(value AS TEXT), ?, ?) AS BLOB) WHERE path = 'e/1'"
  behindItsBack(path, flip, long, `${'x'.repeat(200)}y${'x'.repeat(299)}`)
  assert.deepEqual(await findingsOf(store), named('e/1'), 'a bit in the middle of a value')
  assert.deepEqual((await store.tree.check()).damagedPaths, ['e/1'])
  behindItsBack(
    path,
    "UPDATE entries SET value = CAST(replace(CAST(value AS TEXT), 'y', 'x') AS BLOB) WHERE path = 'e/1'",
  )
  assert.deepEqual(await findingsOf(store), [])

  behindItsBack(path, "UPDATE entries SET value = CAST(substr(value, 1, 499) || 'z' AS BLOB) WHERE path = 'e/2'")
  behindItsBack(path, "DELETE FROM entries WHERE path = 'e/3'")
  behindItsBack(path, "INSERT INTO entries (path, sequence, crc, value) VALUES ('e/put', 4, 5, x'00')")
  behindItsBack(path, "UPDATE entries SET sequence = 1 WHERE path = 'e/4'")
  const wanted = named('e/2', 'e/3', 'e/put', 'e/4')
  let count = 0
  const writeOther = () => store.commit({ puts: [put(`other/${count++}`)], deletes: [`e/${10 + (count % 30)}`] })
  const findings = await meanwhile(findingsOf(store), writeOther)
  assert.deepEqual(findings, wanted)
  await store.tree.rebuild({ diff: true, skipFlush: false })
  // The tree is that of the entries, of which three are damaged still.
  assert.deepEqual(await findingsOf(store), named('e/2', 'e/put', 'e/4'))
  assert.equal((await store.tree.check()).isRootCorrupted, false)
})

test('a check reports a damaged page of the tree, and a rebuild writes it again', async (t) => {
  const first = await openStore(t, 'store')
  await first.tree.enable()
  await first.commit({ puts: [put('a'), put('b')], deletes: [] })
  await first.tree.rebuild({ diff: false, skipFlush: false })
  const subpage = subpageOf('a')
  const page = subpage >> 8
  const damage =
    "UPDATE tree_pages SET hashes = CAST(substr(hashes, 1, ?) || x'ffff' || substr(hashes, ?) AS BLOB) WHERE page = ?"
  const at = (subpage % 256) * 20 + 3
  behindItsBack(first.path, damage, at, at + 3, page)
  assert.deepEqual(await findingsOf(first), [`${page} true `], 'what is in memory is right')
  await first.close()
  const store = await reopened(t, first.path)
  assert.deepEqual(await findingsOf(store), [`${page} true ${subpage % 256}`])
  await store.commit({ puts: [put('a', 'anew'), put('c')], deletes: ['b'] })
  assert.deepEqual(await findingsOf(store), [`${page} true ${subpage % 256}`], 'no commit corrects it')
  await store.tree.rebuild({ diff: true, skipFlush: true })
  assert.deepEqual(await findingsOf(store), [])
  behindItsBack(store.path, 'DELETE FROM tree_pages WHERE page = ?', 7)
  assert.deepEqual(await findingsOf(store), ['7 true '])
  await store.tree.rebuild({ diff: false, skipFlush: false })
  await store.commit({ puts: [put('d')], deletes: [] })
  await store.close()

  // Damaged notes: the tree is rebuilt before it is used.
  behindItsBack(store.path, 'UPDATE tree_changes SET crc = crc + 1')
  const third = await reopened(t, store.path)
  await assert.rejects(third.tree.root(), /being built/)
  await third.tree.enable()
  assert.deepEqual(await findingsOf(third), [])
})

function damageEntries(path: string): void {
  behindItsBack(path, "UPDATE entries SET value = zeroblob(100) WHERE path = 'e/1'")
  behindItsBack(path, "UPDATE entries SET value = CAST(x'00' || substr(value, 2) AS BLOB) WHERE path = 'e/2'")
  behindItsBack(path, "DELETE FROM entries WHERE path = 'e/3'")
  behindItsBack(path, "INSERT INTO entries (path, sequence, crc, value) VALUES ('e/put', 4, 5, x'00')")
}

test('damaged entries of one side are repaired from the other side', async (t) => {
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  for (let at = 0; at < 30; at++) await primary.commit({ puts: [put(`e/${at}`, 'v'.repeat(100))], deletes: [] })
  await ship(primary, replica)
  for (const [good, bad] of [
    [primary, replica],
    [replica, primary],
  ] as const) {
    for (const store of [primary, replica]) await store.tree.enable()
    damageEntries(bad.path)
    // Deltas of entries that were written meanwhile are no hindrance.
    await primary.commit({ puts: [put('e/4', 'anew')], deletes: ['e/5'] })
    await ship(primary, replica)
    const { trees } = await bad.tree.check()
    const subpages = [...trees.replicated.pages].flatMap(([page, found]) => found.subpages.map((at) => page * 256 + at))
    const { wanted, deletes } = await differences(good, bad, subpages)
    assert.deepEqual([wanted.sort(), deletes], [['e/1', 'e/2', 'e/3'], ['e/put']])
    const { sequence, entries, missing } = good.entriesAt([...wanted, ...deletes])
    await bad.repairEntries(entries, missing, sequence)
    await bad.tree.rebuild({ diff: true, skipFlush: false })
    assert.deepEqual(await findingsOf(bad), [])
    assert.deepEqual(entriesOf(replica), entriesOf(primary))
    assert.deepEqual(await replica.tree.root(), await primary.tree.root())
  }
})
