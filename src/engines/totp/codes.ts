/**
 * One-time codes: HOTP (RFC 4226) and TOTP (RFC 6238), and the otpauth URL from which authenticator applications read a key.
 * Used by the TOTP engine and by multi-factor methods. All of it is synchronous, so that a handler can check a code and return
 * the batch that marks it as used in one step (docs/decisions/048).
 *
 * Keys are bytes here; their text form is base32 without padding (RFC 4648). Nothing of a key or a code is in an error.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import { base32Of } from './base32.ts'

export type Algorithm = 'SHA1' | 'SHA256' | 'SHA512'

export const ALGORITHMS: readonly Algorithm[] = ['SHA1', 'SHA256', 'SHA512']

/** What a code is computed with, besides the key. */
export interface CodeForm {
  readonly algorithm: Algorithm
  readonly digits: 6 | 8
  readonly periodSeconds: number
}

const HMAC_NAME = { SHA1: 'sha1', SHA256: 'sha256', SHA512: 'sha512' } as const

/** A key of the system's cryptographic random numbers. */
export function newKey(bytes: number): Buffer {
  return randomBytes(bytes)
}

/** The HOTP value of RFC 4226 §5.3 at a counter, with leading zeros; TOTP is the one at `stepAt` (RFC 6238 §4). */
export function codeAt(key: Uint8Array, { algorithm, digits }: CodeForm, step: number): string {
  const counter = Buffer.alloc(8)
  counter.writeBigUInt64BE(BigInt(step))
  const mac = createHmac(HMAC_NAME[algorithm], key).update(counter).digest()
  const offset = mac.readUInt8(mac.length - 1) & 0x0f
  const value = mac.readUInt32BE(offset) & 0x7f_ff_ff_ff
  return String(value % 10 ** digits).padStart(digits, '0')
}

/** The number of the time step that a time belongs to, counted from 1970 (RFC 6238 §4.2). */
export function stepAt({ periodSeconds }: CodeForm, timeMs: number): number {
  return Math.floor(timeMs / (periodSeconds * 1000))
}

/**
 * The step that `code` belongs to within `skew` steps of now; undefined when none. All candidates are computed and compared in
 * constant time, so the time of an answer does not tell which one came near. A code that belongs to two of them (one in a
 * million) is always said to be of the same one: the current, then the previous, then the next.
 */
export function matchCode(
  key: Uint8Array,
  form: CodeForm,
  code: string,
  timeMs: number,
  skew: 0 | 1,
): number | undefined {
  const given = Buffer.from(code)
  const now = stepAt(form, timeMs)
  let found: number | undefined
  for (const step of skew === 0 ? [now] : [now + 1, now - 1, now]) {
    if (step < 0) continue
    const wanted = Buffer.from(codeAt(key, form, step))
    if (given.length === wanted.length && timingSafeEqual(given, wanted)) found = step
  }
  return found
}

export interface OtpauthOptions {
  /** Empty: the label is the account alone. */
  readonly issuer: string
  readonly account: string
  readonly key: Uint8Array
  readonly form: CodeForm
}

/** The key as a URL for authenticator applications, in Google's "Key URI Format". The URL is as secret as the key. */
export function otpauthUrl({ account, form, issuer, key }: OtpauthOptions): string {
  const label = issuer === '' ? escaped(account) : `${escaped(issuer)}:${escaped(account)}`
  const query = [
    `algorithm=${form.algorithm}`,
    `digits=${form.digits}`,
    ...(issuer === '' ? [] : [`issuer=${escaped(issuer)}`]),
    `period=${form.periodSeconds}`,
    `secret=${base32Of(key)}`,
  ]
  return `otpauth://totp/${label}?${query.join('&')}`
}

/** Spaces as `%20`, because applications do not agree on `+`. */
function escaped(text: string): string {
  return encodeURIComponent(text.toWellFormed()).replaceAll('%40', '@')
}
