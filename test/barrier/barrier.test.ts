/** The barrier on a real store: what is written reads back, nothing below shows it, and what was tampered with is refused. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test, type TestContext } from 'node:test'
import { Barrier, Sealed, WrongKey } from '../../src/barrier/barrier.ts'
import { View } from '../../src/barrier/view.ts'
import { entryCrc } from '../../src/store/entry-crc.ts'
import { SqliteStore } from '../../src/store/store.ts'
import { poison } from '../helpers/poison.ts'
import { temporaryDirectory } from '../host/host-fixture.ts'

async function world(t: TestContext) {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  const barrier = new Barrier(store)
  const rootKey = randomBytes(32)
  await barrier.initialise(rootKey)
  barrier.unseal(rootKey)
  return { path, store, barrier, rootKey }
}

const put = (path: string, value: string) => ({ puts: [{ path, value: Buffer.from(value) }], deletes: [] })

test('what is written reads back, also after sealing, rotating and another root key', async (t) => {
  const { store, barrier, rootKey } = await world(t)
  await barrier.commit(put('logical/a', 'first'))
  assert.equal(await barrier.rotate(), 2)
  await barrier.commit(put('logical/b', 'second'))
  assert.equal(barrier.get('logical/a')?.toString(), 'first')
  const next = randomBytes(32)
  await barrier.rekey(next)
  barrier.seal()
  assert.throws(() => barrier.get('logical/a'), Sealed)
  await assert.rejects(barrier.commit(put('logical/a', 'x')), Sealed)
  const again = new Barrier(store)
  assert.ok(again.isInitialised && again.isSealed)
  assert.throws(() => again.unseal(rootKey), WrongKey)
  assert.throws(() => again.unseal(randomBytes(16)), WrongKey)
  again.unseal(next)
  assert.equal(again.get('logical/b')?.toString(), 'second')
  assert.equal(again.status.term, 2)
  await assert.rejects(again.initialise(next), /already/)
})

test('sealing overwrites the root key that was handed over, not the caller’s own', async (t) => {
  const { barrier, rootKey } = await world(t)
  const before = Buffer.from(rootKey)
  barrier.seal()
  assert.ok(rootKey.equals(before))
})

test('nothing below shows what was written', async (t) => {
  const { path, store, barrier, rootKey } = await world(t)
  const secret = 'a-secret-that-is-searched-for'
  for (let at = 0; at < 50; at++) await barrier.commit(put(`logical/${at}`, secret))
  const files = Buffer.concat([path, `${path}-wal`].map((file) => readFileSync(file)))
  assert.equal(files.indexOf(secret), -1)
  assert.equal(files.indexOf(rootKey), -1)
  assert.equal(files.indexOf(rootKey.toString('base64')), -1)
  const values = Array.from({ length: 50 }, (_, at) =>
    Buffer.from(store.get(`logical/${at}`)?.value ?? []).toString('hex'),
  )
  assert.equal(new Set(values).size, 50)
})

test('an entry that was changed, cut, moved or replaced by an older one of another path is refused', async (t) => {
  const { path, store, barrier, rootKey } = await world(t)
  await barrier.commit({ puts: [...put('x/a', 'one').puts, ...put('x/b', 'two').puts], deletes: [] })
  let lie: Uint8Array | undefined
  const lying = new Barrier({
    get: (at) => (at === 'x/a' && lie ? { value: lie, sequence } : store.get(at)),
    pending: (at) => store.pending(at),
    list: (...asked) => store.list(...asked),
    paths: (...asked) => store.paths(...asked),
    commit: (batch) => store.commit(batch),
    onFailure: (listener) => store.onFailure(listener),
  })
  lying.unseal(rootKey)
  const original = Buffer.from(store.get('x/a')?.value ?? [])
  const other = Buffer.from(store.get('x/b')?.value ?? [])
  const sequence = store.get('x/a')?.sequence ?? 0
  // What was read before is still known: it is read anew.
  const plant = async (value: Uint8Array, crc: number) => {
    const database = new DatabaseSync(path)
    database.prepare('UPDATE entries SET value = ?, crc = ? WHERE path = ?').run(value, crc, 'x/a')
    database.close()
    await beneath.close()
    beneath = await SqliteStore.open(path)
    const reader = new Barrier(beneath)
    reader.unseal(rootKey)
    return reader
  }
  const planted = [other, original.subarray(0, -1), original.subarray(0, 10), Buffer.alloc(0)]
  for (let at = 0; at < original.length; at++) {
    const changed = Buffer.from(original)
    changed[at] = (changed[at] ?? 0) ^ 1
    planted.push(changed)
  }
  for (lie of planted) {
    assert.throws(() => lying.get('x/a'), /cannot be decrypted/)
    assert.throws(() => lying.shown('x/a'), /cannot be decrypted/)
  }
  lie = original
  assert.equal(lying.get('x/a')?.toString(), 'one')
  let beneath = store
  t.after(() => beneath.close())
  const changed = planted[5] ?? original
  // Whoever does it on purpose sets the checksum right.
  const onPurpose = await plant(changed, entryCrc('x/a', sequence, changed))
  assert.throws(() => onPurpose.get('x/a'), /cannot be decrypted/)
  const byAccident = await plant(changed, entryCrc('x/a', sequence, original))
  assert.throws(() => byAccident.get('x/a'), /the entry x\/a is damaged/)
})

test('what is shared is the same until it changes, and nothing once it is sealed or did not come to be', async (t) => {
  const { path, barrier, rootKey } = await world(t)
  const view = new View(barrier, 'logical/1/')
  await view.commit(put('a', 'one'))
  const first = view.get('a')
  assert.equal(view.get('a'), first)
  const second = view.commit(put('a', 'two'))
  assert.equal(view.get('a'), first)
  assert.equal(view.pending('a')?.toString(), 'two')
  await second
  assert.equal(view.get('a')?.toString(), 'two')
  poison(path, '%poisoned')
  const failing = Promise.allSettled([view.commit(put('poisoned', 'x')), view.commit(put('a', 'three'))])
  assert.equal(view.pending('a')?.toString(), 'three')
  await failing
  assert.equal(view.get('a')?.toString(), 'two')
  assert.equal(view.pending('a')?.toString(), 'two')
  await view.commit({ puts: [], deletes: ['a'] })
  assert.equal(view.get('a'), undefined)
  await view.commit(put('a', 'four'))
  assert.equal(view.get('a')?.toString(), 'four')
  barrier.seal()
  assert.throws(() => view.get('a'), Sealed)
  barrier.unseal(rootKey)
  assert.equal(view.get('a')?.toString(), 'four')
})

test('a view reaches only what is below it', async (t) => {
  const { barrier } = await world(t)
  const view = new View(barrier, 'logical/1/')
  await view.commit(put('deep/thing', 'mine'))
  await barrier.commit(put('logical/2/thing', 'other'))
  assert.equal(view.get('deep/thing')?.toString(), 'mine')
  assert.equal(view.below('deep/').get('thing')?.toString(), 'mine')
  assert.deepEqual(view.list(), ['deep/'])
  assert.deepEqual(view.list('deep/'), ['thing'])
  assert.equal(view.get('../2/thing'), undefined)
  await view.commit({ puts: [], deletes: ['deep/thing'] })
  assert.equal(view.get('deep/thing'), undefined)
  assert.throws(() => new View(barrier, 'logical'), /slash/)
})

test('changes of the keys at the same moment do not undo each other', async (t) => {
  const { store, barrier } = await world(t)
  const next = randomBytes(32)
  const beside = { raw: [{ path: 'core/plain', value: Buffer.from('readable') }], ...put('core/x', 'hidden') }
  await Promise.all([barrier.rotate(), barrier.rekey(next, beside), barrier.rotate(), barrier.rotate()])
  assert.equal(Buffer.from(store.get('core/plain')?.value ?? []).toString(), 'readable')
  barrier.seal()
  barrier.unseal(next)
  assert.equal(barrier.status.term, 4)
  assert.equal(barrier.get('core/x')?.toString(), 'hidden')
  const turning = barrier.rotate()
  barrier.seal()
  assert.equal(await turning, 5)
  assert.ok(barrier.isSealed)
  await assert.rejects(barrier.rotate(), Sealed)
  const under = barrier.initialise(next)
  await assert.rejects(under, /already/)
  barrier.unseal(next)
  assert.equal(barrier.status.term, 5)
})
