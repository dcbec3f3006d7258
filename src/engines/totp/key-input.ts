/** Validates the input for a key, in the order and with the texts of Vault's engine. */
import { Rejection } from '../framework/engine.ts'
import { boolean, duration, inPath, type EngineInput, integer, text, UNPRINTABLE } from '../framework/fields.ts'
import { SKEW_DEFAULT } from './code-check.ts'
import { ALGORITHMS, bytesOfBase32, newKey } from './codes.ts'
import type { TotpKey } from './key-record.ts'

export const KEY_NAME = { name: inPath('Name of the key') }

export const KEY_FIELDS = {
  ...KEY_NAME,
  generate: boolean('Generate the key; otherwise it is imported with key or url', { fallback: false }),
  exported: boolean('Return the URL and the QR code of a generated key', { fallback: true }),
  key_size: integer('Size of a generated key in bytes, 10 to 128', { fallback: 20 }),
  key: text('Key to import, in base32', { fallback: '' }),
  url: text('otpauth URL to import, with all parameters', { fallback: '' }),
  issuer: text('Issuing organization; required for a generated key', { fallback: '' }),
  account_name: text('Account of the key; required for a generated key', { fallback: '' }),
  period: duration('Validity of a code, at most a day', { fallback: 30 }),
  algorithm: text('SHA1, SHA256 or SHA512', { fallback: 'SHA1' }),
  digits: integer('Digits of a code: 6 or 8', { fallback: 6 }),
  skew: integer('Periods before and after the current one whose code is accepted: 0 or 1', { fallback: SKEW_DEFAULT }),
  qr_size: integer('Width and height of the QR code in pixels, 64 to 2048; 0 for none', { fallback: 200 }),
}

export type KeyInput = EngineInput<typeof KEY_FIELDS>

const KEY_BYTES = { min: 10, max: 128 }
const QR_PIXELS = { min: 64, max: 2048 }
const PERIOD_SECONDS_MAX = 86_400
const LABEL_LENGTH_MAX = 256
const SCHEME = 'otpauth://totp/'

function refuse(why: string): never {
  throw new Rejection(400, why)
}

/** The key to store. Throws a Rejection (400) for the first invalid value. */
export function checkedKey(given: KeyInput): TotpKey {
  if (given.generate && given.key !== '') refuse('a key should not be passed if generate is true')
  if (given.generate && given.url !== '') refuse('a url should not be passed if generate is true')
  const input = given.url === '' ? given : fromUrl(given)
  const { account_name: account, issuer, name, period } = input
  const { digits, skew } = input
  if (digits !== 6 && digits !== 8) refuse('the digits value can only be 6 or 8')
  const algorithm = ALGORITHMS.find((each) => each === input.algorithm) ?? refuse('the algorithm value is not valid')
  if (period <= 0) refuse('the period value must be greater than zero')
  if (period > PERIOD_SECONDS_MAX) refuse(`the period value must be at most ${PERIOD_SECONDS_MAX} seconds`)
  if (skew !== 0 && skew !== 1) refuse('the skew value must be 0 or 1')
  checkSizes(input)
  if (input.generate && account === '') refuse('the account_name value is required for generated keys')
  if (input.generate && issuer === '') refuse('the issuer value is required for generated keys')
  checkLabel('issuer', issuer)
  checkLabel('account_name', account)
  const key = input.generate ? newKey(input.key_size) : importedKey(input.key)
  const form = { algorithm, digits, skew, periodSeconds: period } as const
  return { format: 1, name, key: key.toString('base64'), issuer, account, ...form }
}

function checkSizes({ key_size: keySize, qr_size: qrSize }: KeyInput): void {
  if (qrSize < 0) refuse('the qr_size value must be greater than or equal to zero')
  if (qrSize !== 0 && (qrSize < QR_PIXELS.min || qrSize > QR_PIXELS.max)) {
    refuse(`the qr_size value must be 0 or between ${QR_PIXELS.min} and ${QR_PIXELS.max}`)
  }
  if (keySize <= 0) refuse('the key_size value must be greater than zero')
  if (keySize < KEY_BYTES.min || keySize > KEY_BYTES.max) {
    refuse(`the key_size value must be between ${KEY_BYTES.min} and ${KEY_BYTES.max}`)
  }
}

function checkLabel(name: string, value: string): void {
  if (value.length <= LABEL_LENGTH_MAX && value.isWellFormed() && !UNPRINTABLE.test(value)) return
  refuse(`the ${name} value can have at most ${LABEL_LENGTH_MAX} printable characters`)
}

function importedKey(given: string): Buffer {
  if (given === '') refuse('the key value is required')
  const key = bytesOfBase32(given)
  if (!key || key.length === 0) refuse('invalid key value: it must be base32, letters and the digits 2 to 7')
  if (key.length > KEY_BYTES.max) refuse(`invalid key value: a key can have at most ${KEY_BYTES.max} bytes`)
  return key
}

/** Parameters of the URL take precedence over fields. */
function fromUrl(given: KeyInput): KeyInput {
  if (!given.url.startsWith(SCHEME)) refuse(`the url value must begin with ${SCHEME}`)
  const mark = given.url.indexOf('?')
  const label = unescaped(given.url.slice(SCHEME.length, mark < 0 ? undefined : mark))
  const query = new URLSearchParams(mark < 0 ? '' : given.url.slice(mark + 1))
  const colon = label.indexOf(':')
  const labelIssuer = colon < 0 ? given.issuer : label.slice(0, colon)
  return {
    ...given,
    issuer: query.get('issuer') || labelIssuer,
    account_name: label.slice(colon + 1).trimStart(),
    key: query.get('secret') ?? '',
    period: numberIn(query, 'period') ?? given.period,
    digits: numberIn(query, 'digits') ?? given.digits,
    algorithm: query.get('algorithm') || given.algorithm,
  }
}

function unescaped(label: string): string {
  try {
    return decodeURIComponent(label)
  } catch {
    return refuse('an error occurred while parsing url string')
  }
}

function numberIn(query: URLSearchParams, name: string): number | undefined {
  const value = query.get(name) ?? ''
  if (value === '') return undefined
  return /^[+-]?\d{1,9}$/.test(value) ? Number(value) : refuse(`an error occurred while parsing ${name} value in url`)
}
