/** The keyed hash against Node's HMAC and the vectors of RFC 4231. */
import assert from 'node:assert/strict'
import { createHmac, randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { KeyedHash } from '../../src/platform/keyed-hash.ts'

test('equals HMAC-SHA-256 of Node for all lengths of text and key', () => {
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

/** RFC 4231, test cases 1 and 2: key in hex, text, HMAC-SHA-256. The data of the other cases is not UTF-8, or their keys are too long. */
const RFC_4231 = [
  ['0b'.repeat(20), 'Hi There', 'b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7'],
  ['4a656665', 'what do ya want for nothing?', '5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843'],
] as const

test('matches the vectors of RFC 4231', () => {
  for (const [key, text, expected] of RFC_4231) {
    assert.equal(new KeyedHash(Buffer.from(key, 'hex')).digest(text, 'hex'), expected)
  }
})
