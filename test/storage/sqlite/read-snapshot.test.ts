/** All reads of one turn of the event loop see one state, regardless of concurrent commits. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { positionOf, writeBase } from '../../../src/storage/sqlite/rows.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const COMMITS = 250

test('all reads of one turn see a commit completely or not at all', async (t) => {
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'secrets.db'))
  t.after(() => store.close())
  const textOf = (path: string) => Buffer.from(store.get(path)?.value ?? []).toString()
  let told = 0
  const commit = async (count: number) => {
    const value = Buffer.from(String(count))
    const names = ['a', 'b'].map((side) => ({ path: `${side}/${String(count).padStart(6, '0')}`, value }))
    await store.commit({ puts: [...names, { path: 'same/a', value }, { path: 'same/b', value }], deletes: [] })
    told = Math.max(told, count)
  }
  // A few at a time, so that commits end while this thread reads.
  const all = [0, 1, 2, 3].map(async (first) => {
    for (let count = first + 1; count <= COMMITS; count += 4) await commit(count)
  })
  t.after(() => Promise.allSettled(all))
  for (let seen = 0; seen < COMMITS; ) {
    const first = textOf('same/a')
    const names = store.paths('a/').length
    // Long enough that the writer finishes something in between.
    for (let look = 0; look < 40; look++) store.paths('a/', { limit: 50 })
    assert.equal(store.paths('b/').length, names)
    assert.equal(textOf('same/b'), first)
    assert.ok(names >= told - 4, 'a caller reads its own commit')
    seen = names
    await turn()
  }
  await Promise.all(all)
  assert.equal(store.paths('a/').length, COMMITS)
})

test('a concurrent trim of the log causes no gap in a history', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  for (let count = 1; count <= 9; count++) {
    await store.commit({ puts: [{ path: 'same/a', value: Buffer.from(String(count)) }], deletes: [] })
  }
  // As the writer trims: on a connection of its own, in one transaction.
  const writer = new DatabaseSync(path)
  t.after(() => writer.close())
  const trim = (upTo: number) => {
    writer.exec('BEGIN IMMEDIATE')
    const row = writer.prepare('SELECT sequence, epoch, checksum FROM log WHERE sequence = ?').get(upTo) ?? {}
    writer.prepare('DELETE FROM log WHERE sequence <= ?').run(upTo)
    writeBase(writer, { ...positionOf(row), total: 0 })
    writer.exec('COMMIT')
  }
  trim(1)
  const parse = JSON.parse.bind(JSON)
  let trims = 0
  t.mock.method(JSON, 'parse', (text: string): unknown => {
    // The base of the log was just read, its rows were not.
    if (text.includes('"checksum"') && trims++ === 0) trim(6)
    return parse(text)
  })
  const { oldest, rows } = store.history(1, 100)
  assert.equal(trims, 1, 'the log was trimmed between the two reads')
  assert.equal(oldest, 1)
  assert.deepEqual(
    rows.map(({ sequence }) => sequence),
    [2, 3, 4, 5, 6, 7, 8, 9],
  )
  await turn()
  assert.equal(store.history(0, 100).oldest, 6, 'the next turn sees the trim')
})
