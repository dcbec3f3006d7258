/** QR codes, read back by a program that is not ours. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { newKey, otpauthUrl } from '../../../src/engines/totp/codes.ts'
import { qrPng, qrText } from '../../../src/engines/totp/qr.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { readPng as read, readTerminal } from '../../helpers/qr-reader.ts'

const form = { algorithm: 'SHA512', digits: 8, periodSeconds: 30 } as const

test('draws a PNG of the requested size that a reader decodes', async () => {
  for (const [size, bytes] of [
    [200, 20],
    [201, 20],
    [333, 128],
    [1024, 20],
  ] as const) {
    const url = otpauthUrl({
      issuer: 'Ö & Co',
      account: '4746fb81-028c-cd4e-026b-7dd18fe4c2f4',
      key: newKey(bytes),
      form,
    })
    assert.deepEqual(read(await qrPng(url, size)), { width: size, height: size, text: url })
  }
  // A pixel for a module.
  const url = otpauthUrl({ issuer: 'vault', account: '4746fb81-028c-cd4e-026b-7dd18fe4c2f4', key: newKey(20), form })
  assert.deepEqual(read(await qrPng(url, 64)), { width: 64, height: 64, text: url })
})

test('draws concurrent requests without mixing them', async () => {
  const texts = Array.from({ length: 20 }, (_, each) => `otpauth://totp/${each}?secret=GE`)
  const drawn = await Promise.all(texts.map((text) => qrPng(text, 1024)))
  assert.deepEqual(
    drawn.slice(0, 3).map((png) => read(png).text),
    texts.slice(0, 3),
  )
  assert.equal(new Set(drawn.map((png) => png.toString('base64'))).size, 20)
})

test('refuses a text that is too long and draws the next one', async () => {
  await assert.rejects(
    qrPng('x'.repeat(120), 20),
    (error) => error instanceof Refusal && /at least \d+ pixels/.test(error.message),
  )
  await assert.rejects(
    qrPng('x'.repeat(4000), 2048),
    (error) => error instanceof Refusal && error.message.includes('too long'),
  )
  assert.equal(read(await qrPng('otpauth://totp/x', 100)).text, 'otpauth://totp/x')
})

test('draws a code on a terminal that a reader decodes', async () => {
  const text = 'otpauth://totp/vault:me?secret=GEZDGNBV'
  assert.equal(readTerminal(await qrText(text)), text)
})
