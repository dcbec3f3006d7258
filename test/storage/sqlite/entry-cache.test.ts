/** Cached entries follow durable batches and never return to an earlier state. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { EntryCache } from '../../../src/storage/sqlite/entry-reader.ts'

const entry = (text: string, sequence: number) => ({ value: Buffer.from(text), sequence })
const never = () => assert.fail('the database was asked')

function textIn(cache: EntryCache, read: () => ReturnType<typeof entry> | undefined = never): string | undefined {
  const found = cache.get('a', read)
  return found && Buffer.from(found.value).toString()
}

function next(text: string) {
  return () => entry(text, 9)
}

test('reads the database once per path, also for missing entries, and again after a clear', () => {
  const cache = new EntryCache()
  assert.equal(
    textIn(cache, () => entry('one', 1)),
    'one',
  )
  assert.equal(textIn(cache), 'one')
  cache.clear()
  assert.equal(
    textIn(cache, () => undefined),
    undefined,
  )
  assert.equal(textIn(cache), undefined)
})

test('a later batch replaces a cached entry, and an earlier batch does not', () => {
  const cache = new EntryCache()
  textIn(cache, () => entry('three', 3))
  cache.applyBatch({ puts: [{ path: 'a', value: Buffer.from('two') }], deletes: [] }, 2)
  cache.applyBatch({ puts: [], deletes: ['a'] }, 1)
  assert.equal(textIn(cache), 'three')
  cache.applyBatch({ puts: [{ path: 'a', value: Buffer.from('four') }], deletes: [] }, 4)
  assert.equal(textIn(cache), 'four')
})

test('drops a cached entry when the order of two states is unknown', () => {
  const cache = new EntryCache()
  textIn(cache, () => undefined)
  cache.applyBatch({ puts: [{ path: 'a', value: Buffer.from('put') }], deletes: [] }, 7)
  assert.equal(textIn(cache, next('put')), 'put')
  // Entries of this machine have the sequence of the row before them, all of them the same one.
  cache.applyBatch({ puts: [{ path: 'a', value: Buffer.from('local') }], deletes: [] }, 9)
  assert.equal(textIn(cache, next('local')), 'local')
  cache.applyBatch({ puts: [], deletes: ['a'] }, 10)
  assert.equal(
    textIn(cache, () => undefined),
    undefined,
  )
  cache.applyBatch({ puts: [], deletes: ['a'] }, 11)
  assert.equal(textIn(cache, next('back')), 'back')
})

test('caches neither entries that were not read nor large ones', () => {
  const cache = new EntryCache()
  cache.applyBatch({ puts: [{ path: 'a', value: Buffer.from('put') }], deletes: [] }, 1)
  assert.equal(
    textIn(cache, () => entry('read', 1)),
    'read',
  )
  let asked = 0
  for (let at = 0; at < 2; at++) {
    cache.get('large', () => {
      asked++
      return { value: Buffer.alloc(1 << 20), sequence: 1 }
    })
  }
  assert.equal(asked, 2)
})
