/** The barrier on a real store: entries read back, the store has no plaintext, and tampering is detected. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test, type TestContext } from 'node:test'
import { Barrier, WrongKey } from '../../../src/storage/barrier/barrier.ts'
import { Storage, ViewScope } from '../../../src/storage/barrier/storage.ts'
import { entryCrc } from '../../../src/storage/sqlite/rows.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { failWrites } from '../../helpers/failing-writes.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

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

test('entries are readable after a seal, a rotation and a rekey', async (t) => {
  const { store, barrier, rootKey } = await world(t)
  await barrier.commit(put('logical/a', 'first'))
  assert.equal(await barrier.rotate(), 2)
  await barrier.commit(put('logical/b', 'second'))
  assert.equal(barrier.get('logical/a')?.toString(), 'first')
  const next = randomBytes(32)
  await barrier.rekey(next)
  barrier.seal()
  assert.throws(() => barrier.get('logical/a'), SEALED)
  await assert.rejects(barrier.commit(put('logical/a', 'x')), SEALED)
  const again = new Barrier(store)
  assert.ok(again.isInitialised && again.isSealed)
  assert.throws(() => again.unseal(rootKey), WrongKey)
  assert.throws(() => again.unseal(randomBytes(16)), WrongKey)
  again.unseal(next)
  assert.equal(again.get('logical/b')?.toString(), 'second')
  assert.equal(again.status.term, 2)
  await assert.rejects(again.initialise(next), /already/)
})

test('sealing overwrites the copy of the root key and not the caller’s buffer', async (t) => {
  const { barrier, rootKey } = await world(t)
  const before = Buffer.from(rootKey)
  barrier.seal()
  assert.ok(rootKey.equals(before))
})

test('the store contains no plaintext', async (t) => {
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

test('refuses an entry that was changed, truncated, moved, or replaced by an entry of another path', async (t) => {
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
  // Read again: the first read is cached.
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
    assert.throws(() => lying.getShared('x/a'), /cannot be decrypted/)
  }
  lie = original
  assert.equal(lying.get('x/a')?.toString(), 'one')
  let beneath = store
  t.after(() => beneath.close())
  const changed = planted[5] ?? original
  // An attacker also corrects the checksum.
  const onPurpose = await plant(changed, entryCrc('x/a', sequence, changed))
  assert.throws(() => onPurpose.get('x/a'), /cannot be decrypted/)
  const byAccident = await plant(changed, entryCrc('x/a', sequence, original))
  assert.throws(() => byAccident.get('x/a'), /the entry x\/a is damaged/)
})

test('a shared buffer is the same until the entry changes, and is dropped by a seal and by a failed commit', async (t) => {
  const { path, barrier, rootKey } = await world(t)
  const storage = new Storage(barrier, new ViewScope(), 'logical/1/')
  await storage.commit(put('a', 'one'))
  const first = storage.get('a')
  assert.equal(storage.get('a'), first)
  const second = storage.commit(put('a', 'two'))
  assert.equal(storage.get('a'), first)
  assert.equal(storage.pending('a')?.toString(), 'two')
  await second
  assert.equal(storage.get('a')?.toString(), 'two')
  failWrites(path, '%poisoned')
  const failing = Promise.allSettled([storage.commit(put('poisoned', 'x')), storage.commit(put('a', 'three'))])
  assert.equal(storage.pending('a')?.toString(), 'three')
  await failing
  assert.equal(storage.get('a')?.toString(), 'two')
  assert.equal(storage.pending('a')?.toString(), 'two')
  await storage.commit({ puts: [], deletes: ['a'] })
  assert.equal(storage.get('a'), undefined)
  await storage.commit(put('a', 'four'))
  assert.equal(storage.get('a')?.toString(), 'four')
  barrier.seal()
  assert.throws(() => storage.get('a'), SEALED)
  barrier.unseal(rootKey)
  assert.equal(storage.get('a')?.toString(), 'four')
})

test('a storage accesses only entries below its prefix', async (t) => {
  const { barrier } = await world(t)
  const storage = new Storage(barrier, new ViewScope(), 'logical/1/')
  await storage.commit(put('deep/thing', 'mine'))
  await barrier.commit(put('logical/2/thing', 'other'))
  assert.equal(storage.get('deep/thing')?.toString(), 'mine')
  assert.equal(storage.below('deep/').get('thing')?.toString(), 'mine')
  assert.deepEqual(storage.list(), ['deep/'])
  assert.deepEqual(storage.list('deep/'), ['thing'])
  assert.equal(storage.get('../2/thing'), undefined)
  await storage.commit({ puts: [], deletes: ['deep/thing'] })
  assert.equal(storage.get('deep/thing'), undefined)
  assert.throws(() => new Storage(barrier, new ViewScope(), 'logical'), /slash/)
})

const SEALED = { name: 'Refusal', code: 'sealed', message: 'Vault is sealed' }

function over(text: string): () => Error {
  return () => new Error(text)
}

test('revoking a scope revokes its views and those of its children, and not those of its parent', async (t) => {
  const { barrier } = await world(t)
  const viewScope = new ViewScope()
  const all = new Storage(barrier, viewScope)
  const [one, two] = [all.createView('logical/1/'), all.createView('logical/2/')]
  const part = one.storage.below('deep/')
  await part.commit(put('thing', 'mine'), [{ path: 'bare', value: Buffer.alloc(0) }])
  assert.deepEqual(one.storage.paths(), ['deep/bare', 'deep/thing'], 'what is not encrypted is below the prefix, too')
  let told = 0
  const leave = one.storage.onCommit(() => told++)
  one.viewScope.endFeed(over('retired'))
  assert.equal(told, 1, 'who waits is woken')
  assert.throws(() => part.history(0, 1, () => true), /retired/)
  await part.commit(put('thing', 'changed'))
  assert.deepEqual([told, part.get('thing')?.toString()], [2, 'changed'])
  leave()
  const last = part.commit(put('thing', 'last'))
  await one.viewScope.revoke(over('disabled'))
  assert.equal(barrier.get('logical/1/deep/thing')?.toString(), 'last', 'it was waited for')
  assert.deepEqual([(await last) > 0, told], [true, 2])
  for (const act of [() => part.get('thing'), () => part.pending('thing'), () => part.list(), () => part.paths()]) {
    assert.throws(act, /disabled/)
  }
  await assert.rejects(part.commit(put('thing', 'late')), /disabled/)
  await two.storage.commit(put('thing', 'other'))
  await viewScope.revoke(over('sealed'))
  for (const each of [all, all.below('x/'), two.storage]) {
    assert.throws(() => each.get('thing'), /sealed/)
    assert.throws(() => each.history(0, 1, () => true), /sealed/)
    await assert.rejects(each.commit(put('thing', 'late')), /sealed/)
  }
  assert.equal(barrier.get('logical/2/thing')?.toString(), 'other')
})

test('concurrent changes of the keys do not overwrite each other', async (t) => {
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
  await assert.rejects(barrier.rotate(), SEALED)
  const under = barrier.initialise(next)
  await assert.rejects(under, /already/)
  barrier.unseal(next)
  assert.equal(barrier.status.term, 5)
})
