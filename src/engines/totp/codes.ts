/**
 * One-time codes: HOTP (RFC 4226) and TOTP (RFC 6238), and the otpauth URL from which authenticator applications read a key.
 * Used by the TOTP engine and by multi-factor methods. All of it is synchronous, so that a handler can check a code and return
 * the batch that marks it as used in one step (docs/decisions/048).
 *
 * Keys are bytes here; their text form is base32 without padding (RFC 4648). Nothing of a key or a code is in an error.
 */
import { hash, randomBytes, timingSafeEqual } from 'node:crypto'
import { base32Of } from './base32.ts'

export type Algorithm = 'SHA1' | 'SHA256' | 'SHA512'

export const ALGORITHMS: readonly Algorithm[] = ['SHA1', 'SHA256', 'SHA512']

/** What a code is computed with, besides the key. */
export interface CodeForm {
  readonly algorithm: Algorithm
  readonly digits: 6 | 8
  readonly periodSeconds: number
}

const HASHES = {
  SHA1: { name: 'sha1', blockBytes: 64, digestBytes: 20 },
  SHA256: { name: 'sha256', blockBytes: 64, digestBytes: 32 },
  SHA512: { name: 'sha512', blockBytes: 128, digestBytes: 64 },
} as const
const COUNTER_BYTES = 8
const [INNER, OUTER] = [0x36, 0x5c]

/**
 * HMAC (RFC 2104) of counters with one key, from one-shot hashes: Node's `createHmac` takes ten times as long, and a check needs
 * three of them (bench/totp.ts).
 */
class CounterHmac {
  readonly #hash: (typeof HASHES)[Algorithm]
  /** The padded key, and behind it the counter. */
  readonly #inner: Buffer
  /** The padded key, and behind it the inner hash. */
  readonly #outer: Buffer

  constructor(key: Uint8Array, algorithm: Algorithm) {
    const { blockBytes, digestBytes, name } = HASHES[algorithm]
    this.#hash = HASHES[algorithm]
    const short = key.length > blockBytes ? hash(name, key, 'buffer') : key
    this.#inner = Buffer.alloc(blockBytes + COUNTER_BYTES)
    this.#outer = Buffer.alloc(blockBytes + digestBytes)
    for (let at = 0; at < blockBytes; at++) {
      this.#inner[at] = (short[at] ?? 0) ^ INNER
      this.#outer[at] = (short[at] ?? 0) ^ OUTER
    }
  }

  of(counter: number): Buffer {
    const { blockBytes, name } = this.#hash
    this.#inner.writeBigUInt64BE(BigInt(counter), blockBytes)
    // As text, because a buffer of its own costs more than the hash.
    this.#outer.write(hash(name, this.#inner, 'binary'), blockBytes, 'latin1')
    return Buffer.from(hash(name, this.#outer, 'binary'), 'latin1')
  }

  /** Overwrites the key. */
  close(): void {
    this.#inner.fill(0)
    this.#outer.fill(0)
  }
}

/** A key of the system's cryptographic random numbers. */
export function newKey(bytes: number): Buffer {
  return randomBytes(bytes)
}

/** The HOTP value of RFC 4226 §5.3 at a counter, with leading zeros; TOTP is the one at `stepAt` (RFC 6238 §4). */
export function codeAt(key: Uint8Array, { algorithm, digits }: CodeForm, step: number): string {
  const hmac = new CounterHmac(key, algorithm)
  try {
    return truncated(hmac.of(step), digits)
  } finally {
    hmac.close()
  }
}

/** Dynamic truncation (RFC 4226 §5.3). */
function truncated(mac: Buffer, digits: number): string {
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
  const hmac = new CounterHmac(key, form.algorithm)
  let found: number | undefined
  for (const step of skew === 0 ? [now] : [now + 1, now - 1, now]) {
    if (step < 0) continue
    const wanted = Buffer.from(truncated(hmac.of(step), form.digits))
    if (given.length === wanted.length && timingSafeEqual(given, wanted)) found = step
  }
  hmac.close()
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
