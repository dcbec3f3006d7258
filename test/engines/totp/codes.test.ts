/** One-time codes, against the published vectors and an implementation that is not ours. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Secret, TOTP, URI } from 'otpauth'
import { matchCode } from '../../../src/engines/totp/code-check.ts'
import {
  ALGORITHMS,
  base32Of,
  bytesOfBase32,
  codeAt,
  type CodeForm,
  newKey,
  otpauthUrl,
  stepAt,
} from '../../../src/engines/totp/codes.ts'
import { RFC4226_CODES, RFC6238_KEYS, RFC6238_TIMES } from './rfc-vectors.ts'

const FORM: CodeForm = { algorithm: 'SHA1', digits: 6, periodSeconds: 30 }

test('computes the values of RFC 4226, appendix D', () => {
  assert.deepEqual(
    RFC4226_CODES.map((_, counter) => codeAt(RFC6238_KEYS.SHA1, FORM, counter)),
    RFC4226_CODES,
  )
})

test('computes the values of RFC 6238, appendix B', () => {
  for (const [seconds, codes] of RFC6238_TIMES) {
    for (const algorithm of ALGORITHMS) {
      const form: CodeForm = { algorithm, digits: 8, periodSeconds: 30 }
      const step = stepAt(form, seconds * 1000)
      assert.equal(codeAt(RFC6238_KEYS[algorithm], form, step), codes[algorithm], `${algorithm} at ${seconds}`)
      assert.equal(matchCode(RFC6238_KEYS[algorithm], form, codes[algorithm], seconds * 1000, 0), step)
    }
  }
})

test('matches a code to its step, and with a skew of one also to the adjacent steps', () => {
  const key = newKey(20)
  const now = 1_790_000_000_000
  const step = stepAt(FORM, now)
  const matched = (at: number, skew: 0 | 1) => matchCode(key, FORM, codeAt(key, FORM, at), now, skew)
  assert.deepEqual(
    [-2, -1, 0, 1, 2].map((by) => matched(step + by, 1)),
    [undefined, step - 1, step, step + 1, undefined],
  )
  assert.deepEqual(
    [-1, 0, 1].map((by) => matched(step + by, 0)),
    [undefined, step, undefined],
  )
  // The first step has none before it.
  assert.equal(matchCode(key, FORM, codeAt(key, FORM, 0), 5000, 1), 0)
  const code = codeAt(key, FORM, step)
  for (const wrong of [
    '',
    ` ${code}`,
    `${code} `,
    `${code}0`,
    code.slice(1),
    `０${code.slice(1)}`,
    '12345é',
    'abcdef',
  ]) {
    assert.equal(matchCode(key, FORM, wrong, now, 1), undefined, JSON.stringify(wrong))
  }
})

test('agrees with another implementation for random keys, parameters and times', () => {
  for (let round = 0; round < 300; round++) {
    const algorithm = ALGORITHMS[round % 3] ?? 'SHA1'
    const form: CodeForm = { algorithm, digits: round % 2 === 0 ? 6 : 8, periodSeconds: 1 + ((round * 7) % 3600) }
    const key = newKey(10 + (round % 119))
    const timestamp = Math.floor(round * 7_654_321_012.5)
    const url = otpauthUrl({ issuer: 'Öl & Gas: 50%', account: 'a/b?c#d@example', key, form })
    const other = URI.parse(url)
    assert.ok(other instanceof TOTP)
    assert.equal(other.generate({ timestamp }), codeAt(key, form, stepAt(form, timestamp)), url)
  }
})

test('writes issuer, account and parameters to the URL, and omits an empty issuer', () => {
  const url = new URL(
    otpauthUrl({ issuer: 'ACME & Söhne', account: 'x y@z', key: Buffer.from('12345678901234567890'), form: FORM }),
  )
  assert.equal(url.href.includes('+'), false)
  assert.equal(decodeURIComponent(url.pathname), '/ACME & Söhne:x y@z')
  assert.deepEqual(Object.fromEntries(url.searchParams), {
    algorithm: 'SHA1',
    digits: '6',
    issuer: 'ACME & Söhne',
    period: '30',
    secret: 'GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ',
  })
  const bare = otpauthUrl({
    issuer: '',
    account: 'me',
    key: Buffer.from('1'),
    form: { ...FORM, digits: 8, periodSeconds: 60 },
  })
  assert.equal(bare, 'otpauth://totp/me?algorithm=SHA1&digits=8&period=60&secret=GE')
  // Half of a character does not throw.
  assert.ok(otpauthUrl({ issuer: '\uD800', account: 'me', key: Buffer.from('1'), form: FORM }))
})

test('encodes and decodes base32 as RFC 4648 and another implementation do', () => {
  const known = ['', 'f', 'fo', 'foo', 'foob', 'fooba', 'foobar']
  const texts = ['', 'MY', 'MZXQ', 'MZXW6', 'MZXW6YQ', 'MZXW6YTB', 'MZXW6YTBOI']
  assert.deepEqual(
    known.map((text) => base32Of(Buffer.from(text))),
    texts,
  )
  assert.deepEqual(
    texts.map((text) => bytesOfBase32(text)?.toString()),
    known,
  )
  for (let bytes = 1; bytes < 140; bytes++) {
    const key = newKey(bytes)
    const text = base32Of(key)
    assert.equal(text, new Secret({ buffer: new Uint8Array(key).buffer }).base32)
    assert.deepEqual(bytesOfBase32(text.toLowerCase().padEnd(Math.ceil(text.length / 8) * 8, '=')), key)
  }
  for (const wrong of ['A', 'ABC', 'ABCDEF', 'AB=CD', 'AB CD', 'AB1D', 'ÄBCD', '======', '=']) {
    const read = bytesOfBase32(wrong)
    assert.ok(read === undefined || read.length === 0, wrong)
  }
})
