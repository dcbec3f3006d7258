/**
 * Wrapping tokens as JSON Web Tokens (RFC 7519), signed with ES512 (RFC 7518), for clients that read the server's address from the token.
 * The key is created when it is first needed.
 */
import { createPrivateKey, createPublicKey, generateKeyPairSync, type KeyObject, sign, verify } from 'node:crypto'
import type { CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { isObject } from '../../engines/framework/fields.ts'

const KEY_PATH = 'core/wrapping/jwt-key'
const CURVE = 'P-521'
const HEADER = encodeSegment({ alg: 'ES512', typ: 'JWT' })
/** Tolerated clock skew. */
const SKEW_SECONDS = 5
const TOKEN_LENGTH_MAX = 4096

export class WrappingKey {
  readonly #storage: Storage
  #key: KeyObject | undefined
  /** The key may not be durable yet. */
  #isNew = false

  /** `storage` is all of the barrier. */
  constructor(storage: Storage) {
    this.#storage = storage
  }

  /** The part to commit before the key is used; undefined if the key is durable. */
  unsavedPart(): CommitPart | undefined {
    const key = this.#open() ?? this.#generate()
    if (!this.#isNew || this.#storage.get(KEY_PATH)) return undefined
    const value = key.export({ type: 'pkcs8', format: 'der' })
    return { storage: this.#storage, batch: { puts: [{ path: KEY_PATH, value }], deletes: [] } }
  }

  /** Wraps a token in a signed one. `unsavedPart` must have been called. */
  sign(token: string, address: string, nowMs: number, ttlSeconds: number): string {
    const issued = Math.floor(nowMs / 1000)
    const claims = {
      accessor: '',
      addr: address,
      exp: issued + ttlSeconds,
      iat: issued,
      jti: token,
      nbf: issued - SKEW_SECONDS,
      type: 'wrapping',
    }
    const text = `${HEADER}.${encodeSegment(claims)}`
    const key = { key: this.#open() ?? this.#generate(), dsaEncoding: 'ieee-p1363' as const }
    return `${text}.${sign('sha512', Buffer.from(text), key).toString('base64url')}`
  }

  /** The token in a signed token of this server; undefined for any other text. */
  tokenIn(given: string, nowMs: number): string | undefined {
    const [head, claims, signature, ...more] = given.split('.')
    const isShaped = head === HEADER && claims !== undefined && signature !== undefined && more.length === 0
    const key = isShaped && given.length <= TOKEN_LENGTH_MAX ? this.#open() : undefined
    if (!key || !isShaped) return undefined
    const check = { key: createPublicKey(key), dsaEncoding: 'ieee-p1363' as const }
    const isSigned = verify('sha512', Buffer.from(`${head}.${claims}`), check, Buffer.from(signature, 'base64url'))
    if (!isSigned) return undefined
    const read: unknown = JSON.parse(Buffer.from(claims, 'base64url').toString('utf8'))
    if (!isObject(read) || typeof read['jti'] !== 'string' || typeof read['exp'] !== 'number') return undefined
    return read['exp'] * 1000 > nowMs ? read['jti'] : undefined
  }

  /** Coordinates of the public key, as decimalText numbers. */
  coordinates(): { readonly x: string; readonly y: string; readonly curve: string } {
    const { x = '', y = '' } = createPublicKey(this.#open() ?? this.#generate()).export({ format: 'jwk' })
    return { x: decimalText(x), y: decimalText(y), curve: CURVE }
  }

  close(): void {
    this.#key = undefined
  }

  #open(): KeyObject | undefined {
    if (this.#key) return this.#key
    const stored = this.#storage.pending(KEY_PATH)
    if (stored) this.#key = createPrivateKey({ key: stored, type: 'pkcs8', format: 'der' })
    return this.#key
  }

  #generate(): KeyObject {
    this.#isNew = true
    this.#key = generateKeyPairSync('ec', { namedCurve: CURVE }).privateKey
    return this.#key
  }
}

function encodeSegment(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url')
}

function decimalText(coordinate: string): string {
  return BigInt(`0x${Buffer.from(coordinate, 'base64url').toString('hex')}`).toString()
}
