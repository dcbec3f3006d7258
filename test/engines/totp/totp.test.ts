/** The TOTP engine, through the whole of the core. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { TOTP, URI } from 'otpauth'
import { ALGORITHMS, base32Of } from '../../../src/engines/totp/codes.ts'
import { totp } from '../../../src/engines/totp/totp.ts'
import { CoreWorld, type WorldOptions } from '../../helpers/core-world.ts'
import { readPng } from '../../helpers/qr-reader.ts'
import { RFC4226_CODES, RFC6238_KEYS, RFC6238_TIMES } from './rfc-vectors.ts'

const START_MS = 1_790_000_010_000

async function opened(t: Parameters<typeof CoreWorld.open>[0], options: WorldOptions = {}): Promise<CoreWorld> {
  const world = await CoreWorld.open(t, { nowMs: START_MS, engines: [totp], ...options })
  assert.equal((await world.ask('POST', 'sys/mounts/totp', { type: 'totp' })).status, 204)
  return world
}

/** An authenticator application with the key of a URL. */
function application(url: unknown): (timestamp: number) => string {
  const parsed = URI.parse(String(url))
  assert.ok(parsed instanceof TOTP)
  return (timestamp) => parsed.generate({ timestamp })
}

const GENERATED = { generate: true, issuer: 'ACME & Co', account_name: 'ann@example.com' }

/** What an answer says, in short: its status, and its errors or its data. */
function short({ body, status }: Awaited<ReturnType<CoreWorld['ask']>>): unknown[] {
  return [status, ...(status < 400 ? [body.data] : body.errors)]
}

test('returns and accepts the codes of RFC 6238 and RFC 4226 through the API', async (t) => {
  const world = await opened(t)
  for (const algorithm of ALGORITHMS) {
    const key = { key: base32Of(RFC6238_KEYS[algorithm]), algorithm, digits: 8 }
    assert.equal((await world.ask('POST', `totp/keys/${algorithm}`, key)).status, 204)
  }
  for (const [seconds, codes] of RFC6238_TIMES) {
    world.nowMs = seconds * 1000
    for (const algorithm of ALGORITHMS) {
      assert.deepEqual((await world.ask('GET', `totp/code/${algorithm}`)).body.data, { code: codes[algorithm] })
      const checked = await world.ask('POST', `totp/code/${algorithm}`, { code: codes[algorithm] })
      assert.deepEqual(short(checked), [200, { valid: true }], `${algorithm} at ${seconds}`)
    }
  }
  await world.ask('POST', 'totp/keys/hotp', { key: base32Of(RFC6238_KEYS.SHA1), skew: 0 })
  for (const [counter, code] of RFC4226_CODES.entries()) {
    world.nowMs = counter * 30_000
    assert.deepEqual((await world.ask('GET', 'totp/code/hotp')).body.data, { code })
    assert.deepEqual(short(await world.ask('POST', 'totp/code/hotp', { code })), [200, { valid: true }])
  }
})

test('generates a key whose QR code gives an authenticator application the right codes', async (t) => {
  const world = await opened(t)
  for (const [name, more] of Object.entries({
    usual: {},
    other: { algorithm: 'SHA512', digits: '8', period: '1m', key_size: 64, qr_size: '400' },
    short: { key_size: 10, qr_size: 128, skew: 0 },
  })) {
    const { body } = await world.ask('POST', `totp/keys/${name}`, { ...GENERATED, ...more })
    const size = Number({ qr_size: 200, ...more }.qr_size)
    const picture = readPng(Buffer.from(String(body.data['barcode']), 'base64'))
    assert.deepEqual(picture, { width: size, height: size, text: body.data['url'] })
    const code = application(body.data['url'])(world.nowMs)
    assert.deepEqual((await world.ask('GET', `totp/code/${name}`)).body.data, { code })
    assert.deepEqual(short(await world.ask('POST', `totp/code/${name}`, { code })), [200, { valid: true }])
  }
  assert.deepEqual((await world.ask('GET', 'totp/keys/other')).body.data, {
    account_name: 'ann@example.com',
    algorithm: 'SHA512',
    digits: 8,
    issuer: 'ACME & Co',
    period: 60,
  })
  const noCode = await world.ask('POST', 'totp/keys/no-code', { ...GENERATED, qr_size: 0 })
  assert.deepEqual(Object.keys(noCode.body.data), ['url'])
  assert.equal((await world.ask('POST', 'totp/keys/hidden', { ...GENERATED, exported: false })).status, 204)
  assert.equal((await world.ask('GET', 'totp/code/hidden')).status, 200)
  assert.deepEqual((await world.ask('LIST', 'totp/keys')).body.data, {
    keys: ['hidden', 'no-code', 'other', 'short', 'usual'],
  })
  assert.equal((await world.ask('DELETE', 'totp/keys/other')).status, 204)
  assert.equal((await world.ask('GET', 'totp/keys/other')).status, 404)
  assert.deepEqual(short(await world.ask('GET', 'totp/code/other')), [400, 'unknown key: other'])
})

test('imports the parameters of a URL with precedence over the fields', async (t) => {
  const world = await opened(t)
  const read = async (url: string, more: object = {}) => {
    assert.equal((await world.ask('POST', 'totp/keys/k', { url, ...more })).status, 204, url)
    const {
      account_name: account,
      algorithm,
      digits,
      issuer,
      period,
    } = (await world.ask('GET', 'totp/keys/k')).body.data
    return [issuer, account, algorithm, digits, period]
  }
  const secret = 'secret=JBSWY3DPEHPK3PXP'
  const example = `otpauth://totp/Example:alice@google.com?${secret}&issuer=Example`
  assert.deepEqual(await read(example), ['Example', 'alice@google.com', 'SHA1', 6, 30])
  assert.deepEqual(await read(`otpauth://totp/A%26B:%20x?${secret}&algorithm=SHA256&digits=8&period=60`), [
    'A&B',
    'x',
    'SHA256',
    8,
    60,
  ])
  assert.deepEqual(
    await read(`otpauth://totp/me?issuer=Big+Corp&${secret}`, { algorithm: 'SHA512', key: 'ignored!' }),
    ['Big Corp', 'me', 'SHA512', 6, 30],
  )
  await world.ask('POST', 'totp/keys/k', { url: example })
  assert.deepEqual((await world.ask('GET', 'totp/code/k')).body.data, { code: application(example)(world.nowMs) })
})

test('refuses an invalid key with the text that stock clients expect and changes nothing', async (t) => {
  const world = await opened(t)
  const key = 'JBSWY3DPEHPK3PXP'
  const url = `otpauth://totp/a:b?secret=${key}`
  const cases: readonly (readonly [object, string])[] = [
    [{ ...GENERATED, key }, 'a key should not be passed if generate is true'],
    [{ ...GENERATED, url }, 'a url should not be passed if generate is true'],
    [{ key, digits: 7 }, 'the digits value can only be 6 or 8'],
    [{ key, algorithm: 'MD5' }, 'the algorithm value is not valid'],
    [{ key, algorithm: 'sha1' }, 'the algorithm value is not valid'],
    [{ key, period: 0 }, 'the period value must be greater than zero'],
    [{ key, period: 86_401 }, 'the period value must be at most 86400 seconds'],
    [{ key, skew: 2 }, 'the skew value must be 0 or 1'],
    [{ key, qr_size: -1 }, 'the qr_size value must be greater than or equal to zero'],
    [{ ...GENERATED, qr_size: 63 }, 'the qr_size value must be 0 or between 64 and 2048'],
    [{ ...GENERATED, qr_size: 2049 }, 'the qr_size value must be 0 or between 64 and 2048'],
    [{ ...GENERATED, key_size: 0 }, 'the key_size value must be greater than zero'],
    [{ ...GENERATED, key_size: 1_000_000 }, 'the key_size value must be between 10 and 128'],
    [{ ...GENERATED, account_name: '' }, 'the account_name value is required for generated keys'],
    [{ ...GENERATED, issuer: '' }, 'the issuer value is required for generated keys'],
    [{ ...GENERATED, issuer: 'a\nb' }, 'the issuer value can have at most 256 printable characters'],
    [
      { ...GENERATED, account_name: 'x'.repeat(257) },
      'the account_name value can have at most 256 printable characters',
    ],
    [{}, 'the key value is required'],
    [{ url: 'otpauth://totp/a:b' }, 'the key value is required'],
    [{ key: 'not base32!' }, 'invalid key value: it must be base32, letters and the digits 2 to 7'],
    [{ key: '========' }, 'invalid key value: it must be base32, letters and the digits 2 to 7'],
    [{ key: 'A'.repeat(208) }, 'invalid key value: a key can have at most 128 bytes'],
    [{ url: 'https://example.com' }, 'the url value must begin with otpauth://totp/'],
    [{ url: `otpauth://hotp/a?secret=${key}` }, 'the url value must begin with otpauth://totp/'],
    [{ url: `otpauth://totp/%E0%A4%A?secret=${key}` }, 'an error occurred while parsing url string'],
    [{ url: `${url}&period=soon` }, 'an error occurred while parsing period value in url'],
    [{ url: `${url}&digits=six` }, 'an error occurred while parsing digits value in url'],
    [{ url: `${url}&digits=7` }, 'the digits value can only be 6 or 8'],
    [{ url: `${url}&period=-30` }, 'the period value must be greater than zero'],
    // Too much for so small a picture.
    [{ ...GENERATED, qr_size: 64, key_size: 128 }, 'the QR code needs at least 65 pixels: use a larger qr_size'],
  ]
  for (const [body, why] of cases) {
    assert.deepEqual(short(await world.ask('POST', 'totp/keys/k', body)), [400, why], JSON.stringify(body))
  }
  const negative = await world.ask('POST', 'totp/keys/k', { key, period: -30 })
  assert.deepEqual([negative.status, /negative/.test(negative.text)], [400, true])
  for (const name of ['-a', 'a b', 'a.', 'ä', 'x'.repeat(257)]) {
    const { status, text } = await world.ask('POST', `totp/keys/${encodeURIComponent(name)}`, { key })
    assert.deepEqual([status, text.includes('a key name can have')], [400, true], name)
  }
  assert.equal((await world.ask('LIST', 'totp/keys')).status, 404)
  assert.deepEqual(short(await world.ask('POST', 'totp/code/none', { code: '123456' })), [400, 'unknown key: none'])
  await world.ask('POST', 'totp/keys/k', { key })
  assert.deepEqual(short(await world.ask('POST', 'totp/code/k', {})), [400, 'the code value is required'])
  assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code: '  ' })), [400, 'the code value is required'])
})

const USED = [400, 'code already used; wait until the next time period']

test('accepts a code once: concurrently, in any order and after a restart', async (t) => {
  const world = await opened(t)
  const { body } = await world.ask('POST', 'totp/keys/k', { ...GENERATED, qr_size: 0 })
  const codeOf = application(body.data['url'])
  const code = codeOf(world.nowMs)
  const answers = await Promise.all(Array.from({ length: 30 }, () => world.ask('POST', 'totp/code/k', { code })))
  assert.equal(answers.filter(({ body: each }) => each.data?.['valid'] === true).length, 1)
  assert.equal(answers.filter(({ status }) => status === 400).length, 29)
  const next = codeOf(world.nowMs + 30_000)
  const previous = codeOf(world.nowMs - 30_000)
  assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code: next })), [200, { valid: true }])
  assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code: previous })), [200, { valid: true }])
  await world.close()
  const again = await CoreWorld.reopen(world.directory, world.keys, { nowMs: START_MS, engines: [totp] })
  t.after(() => again.store.close())
  for (const each of [code, next, previous, ` ${code} `]) {
    assert.deepEqual(short(await again.ask('POST', 'totp/code/k', { code: each })), USED)
  }
  // A clock that is set back lets nothing in again, however many codes were accepted since.
  for (let step = 2; step < 60; step++) {
    again.setClock(30_000)
    if (step > 2) await again.ask('POST', 'totp/code/k', { code: codeOf(again.nowMs) })
  }
  again.setClock(-58 * 30_000)
  assert.deepEqual(short(await again.ask('POST', 'totp/code/k', { code })), USED)
})

test('uses the system clock for codes, also right after it was set', async (t) => {
  const world = await opened(t)
  const { body } = await world.ask('POST', 'totp/keys/k', { ...GENERATED, qr_size: 0 })
  const codeOf = application(body.data['url'])
  world.setClock(3_600_000)
  assert.deepEqual((await world.ask('GET', 'totp/code/k')).body.data, { code: codeOf(world.nowMs) })
  for (const [byMs, valid] of [
    [-600_000, false],
    [-60_000, false],
    [60_000, false],
    [-30_000, true],
  ] as const) {
    const code = codeOf(world.nowMs + byMs)
    assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code })), [200, { valid }], String(byMs))
  }
})

test('keeps the used codes of a key that is imported again, but not of a different key', async (t) => {
  const world = await opened(t)
  const key = base32Of(RFC6238_KEYS.SHA1)
  await world.ask('POST', 'totp/keys/k', { key })
  const { code } = (await world.ask('GET', 'totp/code/k')).body.data
  assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code })), [200, { valid: true }])
  await world.ask('POST', 'totp/keys/k', { key, issuer: 'changed' })
  assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code })), USED)
  await world.ask('POST', 'totp/keys/k', { ...GENERATED, qr_size: 0 })
  await world.ask('POST', 'totp/keys/k', { key })
  assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code })), [200, { valid: true }])
})

test('the codes of a key that is imported again with another period are not those of used time steps', async (t) => {
  const world = await opened(t)
  const key = base32Of(RFC6238_KEYS.SHA1)
  const accept = async () => {
    const { code } = (await world.ask('GET', 'totp/code/k')).body.data
    assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code })), [200, { valid: true }])
  }
  await world.ask('POST', 'totp/keys/k', { key })
  // More steps than are listed: the steps before them count as used.
  for (let step = 0; step < 10; step++) {
    await accept()
    world.setClock(30_000)
  }
  await world.ask('POST', 'totp/keys/k', { key, period: 60 })
  await accept()
})

test('limits wrong codes per key and half minute', async (t) => {
  const world = await opened(t)
  const key = base32Of(RFC6238_KEYS.SHA1)
  await world.ask('POST', 'totp/keys/k', { key })
  await world.ask('POST', 'totp/keys/other', { key })
  const { code } = (await world.ask('GET', 'totp/code/k')).body.data
  for (const wrong of ['000000', 'abcdef', '1', '9'.repeat(10_000), '00000é']) {
    assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code: wrong })), [200, { valid: false }])
  }
  const stopped = await world.ask('POST', 'totp/code/k', { code })
  assert.deepEqual(short(stopped), [429, 'too many wrong codes for this key, try again in 30 seconds'])
  assert.equal(stopped.headers['Retry-After'], '30')
  assert.deepEqual(short(await world.ask('POST', 'totp/code/other', { code })), [200, { valid: true }])
  world.nowMs += 30_000
  assert.deepEqual(short(await world.ask('POST', 'totp/code/k', { code })), [200, { valid: true }])
})

test('isolates mounts, enforces policies and stores no key in clear text', async (t) => {
  const world = await opened(t)
  await world.ask('POST', 'sys/mounts/teams/totp', { type: 'totp' })
  const { body } = await world.ask('POST', 'totp/keys/sensitive-name', GENERATED)
  assert.equal((await world.ask('GET', 'teams/totp/code/sensitive-name')).status, 400)
  const policy = 'path "totp/code/*" { capabilities = ["update"] }'
  await world.ask('POST', 'sys/policies/acl/checker', { policy })
  const { auth } = (await world.ask('POST', 'auth/token/create', { policies: ['checker'] })).body
  const token = String(auth['client_token'])
  const code = application(body.data['url'])(world.nowMs)
  assert.equal((await world.ask('GET', 'totp/code/sensitive-name', undefined, { token })).status, 403)
  assert.equal((await world.ask('POST', 'totp/keys/sensitive-name', GENERATED, { token })).status, 403)
  assert.deepEqual(short(await world.ask('POST', 'totp/code/sensitive-name', { code }, { token })), [
    200,
    { valid: true },
  ])
  await world.core.seal()
  const secret = new URL(String(body.data['url'])).searchParams.get('secret') ?? ''
  const key = Buffer.from(URI.parse(String(body.data['url'])).secret.bytes)
  assert.equal(key.length, 20)
  const forms = [secret, key.toString('base64'), key.toString('latin1'), 'sensitive-name']
  const files = readdirSync(world.directory).map((file) => readFileSync(join(world.directory, file), 'latin1'))
  for (const form of forms) {
    assert.equal(
      files.some((file) => file.includes(form)),
      false,
    )
    assert.equal(JSON.stringify(world.lines).includes(form), false)
  }
})
