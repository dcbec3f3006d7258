/**
 * Sealed messages between a caller and a server: no other process on the bus can read them, and truncated, changed, redirected and
 * replayed messages are detected. X25519, HKDF-SHA256 and AES-256-GCM of node:crypto (docs/decisions/027).
 *
 * Both ends of a session have a key for each direction. The calls of a session and the messages of a call are numbered; both
 * numbers are the nonce, so no nonce is used twice with a key, and no message can replace another.
 *
 *     request   1 byte kind · 32 bytes key of the caller · 6 call · 6 the server's clock · sealed · 16 tag
 *     control   1 byte kind · 6 message · sealed · 16 tag
 *     answer    1 byte kind · 6 message · sealed · 16 tag
 *     refused   1 byte kind · 1 byte reason: the envelope could not be opened, so the answer cannot be sealed
 */
import {
  createCipheriv,
  createDecipheriv,
  createPublicKey,
  createSecretKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
} from 'node:crypto'

const CIPHER = 'aes-256-gcm'
const KEY_BYTES = 32
const TAG_BYTES = 16
const NUMBER_BYTES = 6
const CONTEXT = 'outpost calls to servers 1'
/** DER prefix of a raw X25519 public key (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b656e032100', 'hex')

const KINDS = { request: 0x10, control: 0x11, answer: 0x12, refused: 0x13 } as const
const REQUEST_HEAD_BYTES = 1 + KEY_BYTES + 2 * NUMBER_BYTES
const MESSAGE_HEAD_BYTES = 1 + NUMBER_BYTES
/** Largest overhead of an envelope. */
export const ENVELOPE_BYTES = REQUEST_HEAD_BYTES + TAG_BYTES

/** Reasons why a server does not open an envelope. The index of one is its byte on the wire: append only. */
const ENVELOPE_REFUSALS = ['malformed', 'wrong key', 'too old', 'sent before', 'too many callers', 'no server'] as const
export type EnvelopeRefusal = (typeof ENVELOPE_REFUSALS)[number]

export interface SessionKeys {
  readonly toServer: KeyObject
  readonly toCaller: KeyObject
}

/** The X25519 key of a run of this process, never stored. */
export class CurveKey {
  /** Raw key. */
  readonly publicKey: Uint8Array<ArrayBuffer>
  readonly #privateKey: KeyObject

  constructor() {
    const { privateKey, publicKey } = generateKeyPairSync('x25519')
    this.#privateKey = privateKey
    this.publicKey = Uint8Array.from(publicKey.export({ format: 'der', type: 'spki' }).subarray(-KEY_BYTES))
  }

  /** @throws Error for an invalid public key. */
  sessionWithServer(server: Uint8Array): SessionKeys {
    return this.#keys(server, [this.publicKey, server])
  }

  /** @throws Error for an invalid public key. */
  sessionWithCaller(caller: Uint8Array): SessionKeys {
    return this.#keys(caller, [caller, this.publicKey])
  }

  #keys(peer: Uint8Array, callerAndServer: readonly Uint8Array[]): SessionKeys {
    const publicKey = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, peer]), format: 'der', type: 'spki' })
    const shared = diffieHellman({ privateKey: this.#privateKey, publicKey })
    const derived = Buffer.from(hkdfSync('sha256', shared, Buffer.concat(callerAndServer), CONTEXT, 2 * KEY_BYTES))
    return {
      toServer: createSecretKey(derived.subarray(0, KEY_BYTES)),
      toCaller: createSecretKey(derived.subarray(KEY_BYTES)),
    }
  }
}

export interface SealedRequestHead {
  /** Raw X25519 key of the caller. */
  readonly callerKey: Uint8Array
  /** Number of the call in its session, from 1. */
  readonly call: number
  /** The server's own clock, as the caller knows it from the server's announcement. */
  readonly clockMs: number
}

/** Authenticated with the message, so neither the message nor its answer can be redirected. */
export interface MessageAddress {
  readonly subject: string
  readonly reply: string
}

export function sealRequest(key: KeyObject, head: SealedRequestHead, to: MessageAddress, payload: Uint8Array): Buffer {
  const bytes = Buffer.alloc(REQUEST_HEAD_BYTES)
  bytes[0] = KINDS.request
  bytes.set(head.callerKey, 1)
  bytes.writeUIntBE(head.call, 1 + KEY_BYTES, NUMBER_BYTES)
  bytes.writeUIntBE(Math.max(0, Math.round(head.clockMs)), 1 + KEY_BYTES + NUMBER_BYTES, NUMBER_BYTES)
  return seal(key, nonceOf(head.call, 0), [bytes, addressBytes(to)], [payload])
}

/** Undefined for another kind of message. Unauthenticated until `openRequest` has succeeded. */
export function requestHead(bytes: Uint8Array): SealedRequestHead | undefined {
  if (bytes[0] !== KINDS.request || bytes.length < ENVELOPE_BYTES) return undefined
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  return {
    callerKey: Uint8Array.from(buffer.subarray(1, 1 + KEY_BYTES)),
    call: buffer.readUIntBE(1 + KEY_BYTES, NUMBER_BYTES),
    clockMs: buffer.readUIntBE(1 + KEY_BYTES + NUMBER_BYTES, NUMBER_BYTES),
  }
}

/** Undefined for another key, and for a message that was changed. */
export function openRequest(
  key: KeyObject,
  { call }: SealedRequestHead,
  to: MessageAddress,
  bytes: Uint8Array,
): Buffer | undefined {
  const head = bytes.subarray(0, REQUEST_HEAD_BYTES)
  return open(key, nonceOf(call, 0), [head, addressBytes(to)], bytes.subarray(REQUEST_HEAD_BYTES))
}

/** A message of a call after the request. Messages of each kind are numbered from 1. */
export interface NumberedMessage {
  readonly kind: 'control' | 'answer'
  readonly call: number
  readonly message: number
}

export function sealMessage(
  key: KeyObject,
  { kind, call, message }: NumberedMessage,
  parts: readonly Uint8Array[],
): Buffer {
  const head = Buffer.alloc(MESSAGE_HEAD_BYTES)
  head[0] = KINDS[kind]
  head.writeUIntBE(message, 1, NUMBER_BYTES)
  return seal(key, nonceOf(call, message), [head], parts)
}

/** Undefined for a message of another call, and for one that was changed. */
export function openMessage(
  key: KeyObject,
  { kind, call }: Omit<NumberedMessage, 'message'>,
  bytes: Uint8Array,
): { readonly message: number; readonly payload: Buffer } | undefined {
  if (bytes[0] !== KINDS[kind] || bytes.length < MESSAGE_HEAD_BYTES + TAG_BYTES) return undefined
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, MESSAGE_HEAD_BYTES)
  const message = head.readUIntBE(1, NUMBER_BYTES)
  const payload = open(key, nonceOf(call, message), [head], bytes.subarray(MESSAGE_HEAD_BYTES))
  return payload && { message, payload }
}

export function encodeRefusal(reason: EnvelopeRefusal): Uint8Array {
  return Uint8Array.of(KINDS.refused, ENVELOPE_REFUSALS.indexOf(reason))
}

export function decodeRefusal(bytes: Uint8Array): EnvelopeRefusal | undefined {
  return bytes[0] === KINDS.refused && bytes.length === 2 ? ENVELOPE_REFUSALS[bytes[1] ?? -1] : undefined
}

function addressBytes({ subject, reply }: MessageAddress): Buffer {
  return Buffer.from(`${subject}\0${reply}`)
}

/** Unique for a key: calls of a session and messages of a call are numbered. */
function nonceOf(call: number, message: number): Buffer {
  const nonce = Buffer.alloc(2 * NUMBER_BYTES)
  nonce.writeUIntBE(call, 0, NUMBER_BYTES)
  nonce.writeUIntBE(message, NUMBER_BYTES, NUMBER_BYTES)
  return nonce
}

/** `known` is authenticated and not encrypted; its first part is sent before the ciphertext, both ends know the others. */
function seal(key: KeyObject, nonce: Buffer, known: readonly Buffer[], parts: readonly Uint8Array[]): Buffer {
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(known.length === 1 && known[0] ? known[0] : Buffer.concat(known))
  const body = parts.map((part) => cipher.update(part))
  cipher.final()
  return Buffer.concat([...known.slice(0, 1), ...body, cipher.getAuthTag()])
}

function open(key: KeyObject, nonce: Buffer, known: readonly Uint8Array[], bytes: Uint8Array): Buffer | undefined {
  if (bytes.length < TAG_BYTES) return undefined
  const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  decipher.setAAD(Buffer.concat(known))
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
  const payload = decipher.update(bytes.subarray(0, -TAG_BYTES))
  try {
    decipher.final()
    return payload
  } catch {
    return undefined
  }
}
