import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CallTable } from '../../../src/cluster/rpc/call-table.ts'

const sorted = (calls: Iterable<number>) => [...calls].toSorted((a, b) => a - b)

test('calls are found by their names, whatever comes and goes', () => {
  const table = new CallTable<number>()
  const expected = new Map<string, number>()
  let random = 7
  for (let at = 0; at < 20_000; at++) {
    random = (Math.imul(random, 1_103_515_245) + 12_345) >>> 0
    // Few enough names that many share a place, one of a single character among them.
    const name = random % 997 === 0 ? 'x' : `n${(random % 997).toString(36)}.call`
    if (expected.has(name)) {
      table.delete(name)
      expected.delete(name)
    } else {
      table.add(name, at)
      expected.set(name, at)
    }
    table.delete(`${name}-unknown`)
    assert.equal(table.get(name), expected.get(name))
    assert.equal(table.size, expected.size)
  }
  for (const [name, call] of expected) assert.equal(table.get(name), call)
  assert.deepEqual(sorted(table.values()), sorted(expected.values()))
  table.clear()
  assert.deepEqual([table.size, table.values()], [0, []])
})
