/** A failed commit fails the commits that depend on it, and no others, in both implementations of a store. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import type { Batch } from '../../src/storage/sqlite/batch.ts'
import { type Store, StoreError, SqliteStore } from '../../src/storage/store/store.ts'
import { MemoryStore } from '../helpers/memory-store.ts'
import { Random } from '../helpers/frames.ts'
import { failWrites } from '../helpers/failing-writes.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const put = (path: string, value = path) => ({ path, value: Buffer.from(value) })
const textIn = (entry: { readonly value: Uint8Array } | undefined) => entry && Buffer.from(entry.value).toString()

interface Failing {
  readonly store: Store
  /** Batches with an entry below `poison/` fail until the returned function is called. */
  readonly fail: () => () => void
}

async function sqlite(t: TestContext): Promise<Failing> {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  return { store, fail: () => failWrites(path, 'poison/%') }
}

const fits = ({ puts }: Batch) => puts.some(({ path }) => path.startsWith('poison/'))

function memory(): Promise<Failing> {
  const store = new MemoryStore()
  const fail = () => {
    store.failNext('failed', 1e9, fits)
    return () => store.failNext('failed', 0)
  }
  return Promise.resolve({ store, fail })
}

for (const [name, open] of [['sqlite', sqlite] as const, ['memory', memory] as const]) {
  test(`${name}: all commits queued after a failed one fail, and later ones do not`, async (t) => {
    const { store, fail } = await open(t)
    await store.commit({ puts: [put('a', '0')], deletes: [] })
    const heal = fail()
    let told = 0
    store.onFailure(() => {
      told++
      assert.equal(textIn(store.pending('a')), '0')
      assert.equal(store.pending('poison/x'), undefined)
    })
    const failing = store.commit({ puts: [put('poison/x'), put('a', '1')], deletes: [] })
    assert.equal(textIn(store.pending('a')), '1')
    const behind = [
      store.commit({ puts: [put('a', '2')], deletes: [] }),
      store.commit({ puts: [put('unrelated')], deletes: [] }),
      store.commit({ puts: [], deletes: ['a'] }),
    ]
    // The first to hear of it finds the store as it was, and what it commits then is taken.
    const again = failing.catch((error: unknown) => {
      assert.ok(error instanceof StoreError && error.kind === 'failed')
      assert.equal(told, 1)
      assert.equal(textIn(store.pending('a')), '0')
      return store.commit({ puts: [put('a', 'again')], deletes: [] })
    })
    for (const one of behind) await assert.rejects(one, (error: StoreError) => error.kind === 'failed')
    await again
    assert.equal(textIn(store.get('a')), 'again')
    assert.equal(store.get('unrelated'), undefined)
    heal()
    await store.commit({ puts: [put('poison/x')], deletes: [] })
    assert.equal(told, 1)
  })

  test(`${name}: counters that are incremented while commits fail count exactly the acknowledged commits`, async (t) => {
    const { store, fail } = await open(t)
    fail()
    const random = new Random(11)
    const acknowledged = [0, 0, 0]
    const increase = async (which: number, isPoisoned: boolean) => {
      const path = `count/${which}`
      const count = Number(textIn(store.pending(path)) ?? 0) + 1
      const puts = [put(path, String(count)), ...(isPoisoned ? [put('poison/x')] : [])]
      await store.commit({ puts, deletes: [] })
      acknowledged[which] = (acknowledged[which] ?? 0) + 1
    }
    const worker = async () => {
      for (let at = 0; at < 60; at++) {
        await increase(random.between(0, 2), random.between(0, 9) === 0).catch((error: unknown) => {
          assert.ok(error instanceof StoreError)
        })
      }
    }
    await Promise.all(Array.from({ length: 8 }, worker))
    const found = acknowledged.map((_, which) => Number(textIn(store.get(`count/${which}`)) ?? 0))
    assert.deepEqual(found, acknowledged)
    assert.ok(found.every((count) => count > 10))
  })
}

test('commits queued after a commit of an older epoch are fenced too', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  const raised = store.raiseEpoch(3)
  const late = store.commit({ puts: [put('a', 'late')], deletes: [] })
  const behind = raised.then(async () => {
    assert.equal(store.epoch, 3)
    if (textIn(store.pending('a')) !== 'late') return 'told already'
    return store.commit({ puts: [put('b', 'upon late')], deletes: [] }).catch((error: StoreError) => error.kind)
  })
  await assert.rejects(late, (error: StoreError) => error.kind === 'fenced')
  assert.match(String(await behind), /told already|fenced/)
  assert.equal(store.get('b'), undefined)
  await store.commit({ puts: [put('a', 'now')], deletes: [] })
  assert.equal(textIn(store.get('a')), 'now')
})

test('a store whose writer exited fails queued commits and refuses new ones', async (t) => {
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'secrets.db'))
  const last = store.commit({ puts: [put('a')], deletes: [] })
  const closing = store.close()
  await last
  await closing
  assert.throws(() => void store.commit({ puts: [put('b')], deletes: [] }), /closed/)
})
