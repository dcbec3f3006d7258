/** What is read in one turn is of one state, whatever the writer does meanwhile. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { SqliteStore } from '../../src/store/store.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const COMMITS = 250

test('entries of one commit are seen together, by whatever way they are read', async (t) => {
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
    assert.ok(names >= told - 4, 'who was told reads it')
    seen = names
    await turn()
  }
  await Promise.all(all)
  assert.equal(store.paths('a/').length, COMMITS)
})
