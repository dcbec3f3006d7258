/**
 * One-time codes: HOTP (RFC 4226) and TOTP (RFC 6238), the base32 form of keys, and the otpauth URL for authenticator
 * applications. Used by the TOTP engine and by MFA methods. `code-check.ts` decides whether a code is accepted.
 *
 * No error contains a part of a key or a code.
 */
import { createHmac, randomBytes } from 'node:crypto'

export type Algorithm = 'SHA1' | 'SHA256' | 'SHA512'

export const ALGORITHMS: readonly Algorithm[] = ['SHA1', 'SHA256', 'SHA512']

/** The parameters of a code, except the key. */
export interface CodeForm {
  readonly algorithm: Algorithm
  readonly digits: 6 | 8
  readonly periodSeconds: number
}

const HASHES: Readonly<Record<Algorithm, string>> = { SHA1: 'sha1', SHA256: 'sha256', SHA512: 'sha512' }
const COUNTER_BYTES = 8

export function newKey(bytes: number): Buffer {
  return randomBytes(bytes)
}

/** The HOTP value (RFC 4226 §5.3) of a counter, with leading zeros. TOTP is the value of the counter `stepAt` (RFC 6238 §4). */
export function codeAt(key: Uint8Array, { algorithm, digits }: CodeForm, step: number): string {
  const counter = Buffer.alloc(COUNTER_BYTES)
  counter.writeBigUInt64BE(BigInt(step))
  const mac = createHmac(HASHES[algorithm], key).update(counter).digest()
  // Dynamic truncation.
  const offset = mac.readUInt8(mac.length - 1) & 0x0f
  const value = mac.readUInt32BE(offset) & 0x7f_ff_ff_ff
  return String(value % 10 ** digits).padStart(digits, '0')
}

/** Time steps since 1970 (RFC 6238 §4.2). */
export function stepAt({ periodSeconds }: CodeForm, timeMs: number): number {
  return Math.floor(timeMs / (periodSeconds * 1000))
}

export interface OtpauthOptions {
  /** Empty: the label is only the account. */
  readonly issuer: string
  readonly account: string
  readonly key: Uint8Array
  readonly form: CodeForm
}

/** The key in Google's "Key URI Format". The URL is as secret as the key. */
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

/** Spaces are `%20`, because some applications do not decode `+`. */
function escaped(text: string): string {
  return encodeURIComponent(text.toWellFormed()).replaceAll('%40', '@')
}

const BASE32_ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

/** Base32 (RFC 4648 §6) in upper case without padding, as authenticator applications expect it. */
export function base32Of(bytes: Uint8Array): string {
  let out = ''
  let bits = 0
  let held = 0
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xfff
    for (bits += 8; bits >= 5; bits -= 5) out += BASE32_ALPHABET[(held >> (bits - 5)) & 31]
  }
  return bits > 0 ? out + BASE32_ALPHABET[(held << (5 - bits)) & 31] : out
}

/**
 * Decodes base32 in either case, with or without padding. Undefined for an invalid character or an impossible length. Leftover
 * bits are ignored.
 */
export function bytesOfBase32(text: string): Buffer | undefined {
  const characters = text.replace(/={1,6}$/, '').toUpperCase()
  if ([1, 3, 6].includes(characters.length % 8)) return undefined
  const out = Buffer.alloc(Math.floor((characters.length * 5) / 8))
  let bits = 0
  let held = 0
  let at = 0
  for (const character of characters) {
    const value = BASE32_ALPHABET.indexOf(character)
    if (value < 0) return undefined
    held = ((held << 5) | value) & 0xfff
    bits += 5
    if (bits >= 8) {
      bits -= 8
      out[at++] = (held >> bits) & 0xff
    }
  }
  return out
}
