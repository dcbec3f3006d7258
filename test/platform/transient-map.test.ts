/** Maps for short-lived entries: they behave like a Map and keep no removed value alive. */
import assert from 'node:assert/strict'
import { suite, test } from 'node:test'
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { WeakCache, TransientMap } from '../../src/platform/transient-map.ts'

/** Values that pass; of a kilobyte each. */
const PASSING = 20_000
const WAITING = 64
/** Far less than all of them, and more than a page or two of V8. */
const LEFT_BYTES_MAX = 6 << 20

function collector(): () => void {
  setFlagsFromString('--expose-gc')
  const found = runInNewContext('gc') as () => void
  setFlagsFromString('--no-expose-gc')
  return found
}

function oldBytes(): number {
  return getHeapSpaceStatistics().find(({ space_name: name }) => name === 'old_space')?.space_used_size ?? 0
}

/** The most that the old generation grew by while values passed, from a state in which all that is there is old. */
function grownBy(pass: (at: number, value: object) => void): number {
  const collect = collector()
  for (let at = 0; at < 200; at++) pass(at, {})
  collect()
  collect()
  const before = oldBytes()
  let most = 0
  for (let at = 200; at < PASSING; at++) {
    pass(at, { numbers: Array.from({ length: 100 }, () => at) })
    if (at % 500 === 0) most = Math.max(most, oldBytes() - before)
  }
  return most
}

suite('a map whose entries come and go', () => {
  test('holds what a Map holds, in the same order', () => {
    const [passing, map] = [new TransientMap<number, number>(), new Map<number, number>()]
    // A linear congruence: the same steps each time.
    let step = 7
    for (let at = 0; at < 20_000; at++) {
      step = (step * 1_103_515_245 + 12_345) % 2_147_483_648
      const key = (step >> 8) % 300
      if (step % 3 === 0) {
        passing.set(key, at)
        map.set(key, at)
      } else {
        passing.delete(key)
        map.delete(key)
      }
      assert.equal(passing.get(key), map.get(key))
      assert.equal(passing.size, map.size)
      if (at % 400 === 0) {
        assert.deepEqual([...passing.keys()], [...map.keys()])
        assert.deepEqual([...passing.values()], [...map.values()])
      }
    }
    passing.clear()
    assert.equal(passing.size, 0)
    assert.deepEqual([...passing.values()], [])
  })

  test('does not keep removed values alive', () => {
    const passing = new TransientMap<number, object>()
    const most = grownBy((at, value) => {
      passing.set(at, value)
      passing.delete(at - WAITING)
    })
    assert.ok(most < LEFT_BYTES_MAX, `${most} bytes`)
  })
})

suite('what is known of objects', () => {
  test('transient entries are kept for some hundred insertions, and permanent ones always', () => {
    const known = new WeakCache<object, number>()
    const [kept, ...noted] = Array.from({ length: 1001 }, (_, at) => ({ at }))
    assert.ok(kept)
    known.keep(kept, -1)
    for (const [at, each] of noted.entries()) {
      known.note(each, at)
      for (const back of [0, 100, 255]) {
        const before = noted[at - back]
        if (before) assert.equal(known.get(before), at - back)
      }
    }
    assert.equal(known.get(kept), -1)
    assert.equal(known.get(noted[0] ?? {}), undefined)
  })
})
