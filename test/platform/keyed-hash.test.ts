/** The keyed hash against Node's own. */
import assert from 'node:assert/strict'
import { createHmac, randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { KeyedHash } from '../../src/platform/keyed-hash.ts'

test('it is HMAC-SHA-256, for every length of text and key', () => {
  for (const keyBytes of [0, 1, 16, 32, 63, 64]) {
    const key = randomBytes(keyBytes)
    const keyed = new KeyedHash(key)
    for (const length of [0, 1, 24, 340, 341, 342, 343, 1023, 1024, 1025, 5000]) {
      for (const text of ['a'.repeat(length), 'ü€'.repeat(length), '\u{1f600}'.repeat(length)]) {
        const expected = createHmac('sha256', key).update(text)
        assert.equal(keyed.digest(text, 'hex'), expected.digest('hex'))
      }
    }
  }
  assert.throws(() => new KeyedHash(randomBytes(65)), RangeError)
})
