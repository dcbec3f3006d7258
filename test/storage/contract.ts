/** The contract of a store, for every implementation. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import type { Store } from '../../src/storage/store/store.ts'
import { Random } from '../helpers/frames.ts'

const bytes = (text: string) => Buffer.from(text)
const put = (path: string, value = path) => ({ path, value: bytes(value) })

/** The names directly below a prefix, the slow way. */
function namesBelow(paths: Iterable<string>, prefix: string): string[] {
  const names = new Set<string>()
  for (const path of paths) {
    if (!path.startsWith(prefix)) continue
    const rest = path.slice(prefix.length)
    const slash = rest.indexOf('/')
    names.add(slash < 0 ? rest : rest.slice(0, slash + 1))
  }
  return [...names].sort((a, b) => Buffer.compare(bytes(a), bytes(b)))
}

export function storeContract(name: string, open: (t: TestContext) => Promise<Store>): void {
  test(`${name}: reads, updates and deletes committed entries`, async (t) => {
    const store = await open(t)
    assert.equal(store.get('a'), undefined)
    const first = await store.commit({ puts: [put('a'), put('b/c', '')], deletes: [] })
    assert.deepEqual(Buffer.from(store.get('a')?.value ?? []), bytes('a'))
    assert.equal(store.get('a')?.sequence, first)
    assert.equal(store.get('b/c')?.value.length, 0)
    const second = await store.commit({ puts: [put('a', 'again')], deletes: ['b/c', 'never was'] })
    assert.equal(second, first + 1)
    assert.deepEqual(Buffer.from(store.get('a')?.value ?? []), bytes('again'))
    assert.equal(store.get('b/c'), undefined)
  })

  test(`${name}: malformed batches are refused and change nothing`, async (t) => {
    const store = await open(t)
    for (const path of ['', '/a', 'a/', 'a//b', 'a\0b', '\ud800', 'x'.repeat(5000)]) {
      assert.throws(() => void store.commit({ puts: [put('fine'), put(path, 'x')], deletes: [] }), /malformed/)
    }
    assert.throws(() => void store.commit({ puts: [put('a')], deletes: ['a'] }), /twice/)
    assert.throws(() => void store.commit({ puts: [put('local/x'), put('c')], deletes: [] }), /mixes/)
    const large = { path: 'a', value: Buffer.alloc(65 << 20) }
    assert.throws(() => void store.commit({ puts: [large], deletes: [] }), /larger than/)
    assert.equal(store.get('fine'), undefined)
    assert.equal(store.pending('fine'), undefined)
  })

  test(`${name}: concurrent commits are ordered by their calls`, async (t) => {
    const store = await open(t)
    const sequences = await Promise.all(
      Array.from({ length: 200 }, (_, at) =>
        store.commit({ puts: [put('same', String(at)), put(`own/${at}`)], deletes: [] }),
      ),
    )
    assert.deepEqual(
      sequences,
      [...sequences].sort((a, b) => a - b),
    )
    assert.equal(new Set(sequences).size, 200)
    assert.deepEqual(Buffer.from(store.get('same')?.value ?? []), bytes('199'))
    assert.equal(store.list('own/').length, 200)
  })

  test(`${name}: a queued value is pending at once and durable later, and the newest value wins`, async (t) => {
    const store = await open(t)
    await store.commit({ puts: [put('old'), put('gone')], deletes: [] })
    const first = store.commit({ puts: [put('a', '1')], deletes: ['gone'] })
    const second = store.commit({ puts: [put('a', '2'), put('gone', 'back')], deletes: [] })
    const third = store.commit({ puts: [], deletes: ['gone'] })
    const text = (path: string) =>
      store.pending(path)?.value && Buffer.from(store.pending(path)?.value ?? []).toString()
    assert.equal(text('a'), '2')
    assert.equal(text('gone'), undefined)
    assert.equal(text('old'), 'old')
    await Promise.all([first, second, third])
    assert.equal(text('a'), '2')
    assert.equal(store.get('gone'), undefined)
  })

  test(`${name}: a counter based on pending values is exact without waiting for commits`, async (t) => {
    const store = await open(t)
    const increase = async () => {
      const count = Number(Buffer.from(store.pending('count')?.value ?? []).toString() || 0)
      await store.commit({ puts: [put('count', String(count + 1))], deletes: [] })
    }
    await Promise.all(Array.from({ length: 300 }, increase))
    assert.equal(Buffer.from(store.get('count')?.value ?? []).toString(), '300')
  })

  test(`${name}: paths returns all paths below a prefix, in order and in pages`, async (t) => {
    const store = await open(t)
    const paths = ['m/a', 'm/a/b', 'm/a/c/d', 'm/a!', 'm/😀', 'm0', 'l/z', 'm/b'].sort((a, b) =>
      Buffer.compare(bytes(a), bytes(b)),
    )
    await store.commit({ puts: paths.map((path) => put(path)), deletes: [] })
    assert.deepEqual(store.paths(''), paths)
    const below = paths.filter((path) => path.startsWith('m/'))
    assert.deepEqual(store.paths('m/'), below)
    assert.deepEqual(store.paths('m/', { after: 'm/a', limit: 2 }), below.slice(1, 3))
    assert.deepEqual(store.paths('nothing/'), [])
  })

  test(`${name}: list equals a listing computed from all paths, complete and in pages`, async (t) => {
    const store = await open(t)
    const random = new Random(5)
    const parts = ['a', 'b', 'a!', 'é', 'x', '😀', 'Z', '0', 'a0'] as const
    const paths = new Set<string>()
    for (let count = 0; count < 300; count++) {
      paths.add(Array.from({ length: random.between(1, 4) }, () => random.pick(parts)).join('/'))
    }
    await store.commit({ puts: [...paths].map((path) => put(path)), deletes: [] })
    for (const prefix of ['', 'a/', 'a/b/', 'é/', 'a!/', '😀/', 'nothing/']) {
      const wanted = namesBelow(paths, prefix)
      assert.deepEqual(store.list(prefix), wanted, prefix)
      const paged: string[] = []
      for (let page = store.list(prefix, { limit: 2 }); page.length > 0; ) {
        paged.push(...page)
        page = store.list(prefix, { limit: 2, after: paged.at(-1) ?? '' })
      }
      assert.deepEqual(paged, wanted, prefix)
    }
  })
}
