/** An audit line is bounded: data of very many values or fields has one HMAC in place of many. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KeyedHash } from '../../../src/platform/keyed-hash.ts'
import { hmacOf, hmacData, VALUES_MAX } from '../../../src/secrets/audit/audit-hmac.ts'

const key = new KeyedHash(Buffer.alloc(32, 1))

test('each text has its HMAC up to 10,000 values, beyond that each field has one, of its JSON', () => {
  // The list and the object around it are values, too.
  const few = { name: 'app', list: Array.from({ length: VALUES_MAX - 3 }, () => 'x') }
  const short = hmacData(key, few, [])
  assert.deepEqual(short['name'], hmacOf(key, 'app'))
  assert.deepEqual((short['list'] as string[]).slice(0, 1), [hmacOf(key, 'x')])
  const many = { ...few, list: [...few.list, 'x'] }
  assert.deepEqual(hmacData(key, many, []), {
    name: hmacOf(key, 'app'),
    list: hmacOf(key, JSON.stringify(many.list)),
  })
  assert.deepEqual(hmacData(key, many, ['list'])['list'], many.list, 'a field that is shown stays as it is')
})

function fields(count: number): Record<string, number> {
  return Object.fromEntries(Array.from({ length: count }, (_, at) => [`f${at}`, at]))
}

test('with more than 10,000 fields all of them have one HMAC', () => {
  assert.equal(Object.keys(hmacData(key, fields(VALUES_MAX), [])).length, VALUES_MAX)
  const many = fields(VALUES_MAX + 1)
  assert.deepEqual(hmacData(key, many, ['f0']), { 'hmac-sha256': hmacOf(key, JSON.stringify(many)) })
})

test('values that are nested too deeply have a fixed text, not their value', () => {
  let nested: unknown = 'planted'
  for (let depth = 0; depth < 200; depth++) nested = { inner: nested }
  const shown = JSON.stringify(hmacData(key, { nested }, []))
  assert.match(shown, /hmac-sha256:too-deep/)
  assert.doesNotMatch(shown, /planted/)
})
