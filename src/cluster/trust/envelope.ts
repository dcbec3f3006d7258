/**
 * What makes messages between a caller and a server unreadable for everybody else on the bus, and what is cut, changed,
 * swapped or sent again plain to see: X25519, HKDF-SHA256 and AES-256-GCM of node:crypto (docs/decisions/027).
 *
 * Both ends of a session have a key for each direction. A session has numbered calls, a call numbered messages; both
 * numbers are the nonce, so no two messages of a session are sealed alike, and none passes for another.
 *
 *     request   1 byte kind · 32 bytes key of the caller · 6 call · 6 the server's clock · sealed · 16 tag
 *     control   1 byte kind · 6 message · sealed · 16 tag
 *     answer    1 byte kind · 6 message · sealed · 16 tag
 *     refused   1 byte kind · 1 byte reason: the envelope could not be opened, so neither can the answer be sealed
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
/** What precedes the raw key in the DER form of an X25519 public key (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b656e032100', 'hex')

const KINDS = { request: 0x10, control: 0x11, answer: 0x12, refused: 0x13 } as const
const REQUEST_HEAD_BYTES = 1 + KEY_BYTES + 2 * NUMBER_BYTES
const MESSAGE_HEAD_BYTES = 1 + NUMBER_BYTES
/** What an envelope adds to a message, at most. */
export const ENVELOPE_BYTES = REQUEST_HEAD_BYTES + TAG_BYTES

/** Why a server opens no envelope. */
export const REFUSED_REASONS = [
  'malformed',
  'wrong key',
  'too old',
  'sent before',
  'too many callers',
  'no server',
] as const
export type RefusedReason = (typeof REFUSED_REASONS)[number]

export interface SessionKeys {
  readonly toServer: KeyObject
  readonly toCaller: KeyObject
}

/** The X25519 key of a run of this process. */
export class CurveKey {
  /** Raw. */
  readonly publicKey: Uint8Array<ArrayBuffer>
  readonly #privateKey: KeyObject

  constructor() {
    const { privateKey, publicKey } = generateKeyPairSync('x25519')
    this.#privateKey = privateKey
    this.publicKey = Uint8Array.from(publicKey.export({ format: 'der', type: 'spki' }).subarray(-KEY_BYTES))
  }

  /** @throws Error for bytes that are no key to agree with. */
  sessionWithServer(server: Uint8Array): SessionKeys {
    return this.#keys(server, [this.publicKey, server])
  }

  /** @throws Error for bytes that are no key to agree with. */
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

export interface RequestHead {
  /** Raw X25519 key of the caller. */
  readonly callerKey: Uint8Array
  /** Number of the call in its session, from 1. */
  readonly call: number
  /** What the server's own clock shows, as far as the caller knows. */
  readonly clockMs: number
}

/** Subject and reply are part of what is sealed: the message cannot be sent elsewhere, nor its answer. */
export interface Addressed {
  readonly subject: string
  readonly reply: string
}

export function sealRequest(key: KeyObject, head: RequestHead, to: Addressed, payload: Uint8Array): Buffer {
  const bytes = Buffer.alloc(REQUEST_HEAD_BYTES)
  bytes[0] = KINDS.request
  bytes.set(head.callerKey, 1)
  bytes.writeUIntBE(head.call, 1 + KEY_BYTES, NUMBER_BYTES)
  bytes.writeUIntBE(Math.max(0, Math.round(head.clockMs)), 1 + KEY_BYTES + NUMBER_BYTES, NUMBER_BYTES)
  return sealed(key, nonceOf(head.call, 0), [bytes, addressBytes(to)], [payload])
}

/** Undefined for what is no request. Nothing of it is proved before `openRequest` has opened it. */
export function requestHead(bytes: Uint8Array): RequestHead | undefined {
  if (bytes[0] !== KINDS.request || bytes.length < ENVELOPE_BYTES) return undefined
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
  return {
    callerKey: Uint8Array.from(buffer.subarray(1, 1 + KEY_BYTES)),
    call: buffer.readUIntBE(1 + KEY_BYTES, NUMBER_BYTES),
    clockMs: buffer.readUIntBE(1 + KEY_BYTES + NUMBER_BYTES, NUMBER_BYTES),
  }
}

/** Undefined when the key is not that of the message, or anything about it was changed. */
export function openRequest(
  key: KeyObject,
  { call }: RequestHead,
  to: Addressed,
  bytes: Uint8Array,
): Buffer | undefined {
  const head = bytes.subarray(0, REQUEST_HEAD_BYTES)
  return opened(key, nonceOf(call, 0), [head, addressBytes(to)], bytes.subarray(REQUEST_HEAD_BYTES))
}

/** A message of a call that is under way, and its number, from 1. */
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
  return sealed(key, nonceOf(call, message), [head], parts)
}

/** The message with its number; undefined when it is not of this call, or was changed. */
export function openMessage(
  key: KeyObject,
  { kind, call }: Omit<NumberedMessage, 'message'>,
  bytes: Uint8Array,
): { readonly message: number; readonly payload: Buffer } | undefined {
  if (bytes[0] !== KINDS[kind] || bytes.length < MESSAGE_HEAD_BYTES + TAG_BYTES) return undefined
  const head = Buffer.from(bytes.buffer, bytes.byteOffset, MESSAGE_HEAD_BYTES)
  const message = head.readUIntBE(1, NUMBER_BYTES)
  const payload = opened(key, nonceOf(call, message), [head], bytes.subarray(MESSAGE_HEAD_BYTES))
  return payload && { message, payload }
}

export function encodeRefused(reason: RefusedReason): Uint8Array {
  return Uint8Array.of(KINDS.refused, REFUSED_REASONS.indexOf(reason))
}

export function decodeRefused(bytes: Uint8Array): RefusedReason | undefined {
  return bytes[0] === KINDS.refused && bytes.length === 2 ? REFUSED_REASONS[bytes[1] ?? -1] : undefined
}

function addressBytes({ subject, reply }: Addressed): Buffer {
  return Buffer.from(`${subject}\0${reply}`)
}

/** Unique in a session: a call has its number, and so has each of its messages. */
function nonceOf(call: number, message: number): Buffer {
  const nonce = Buffer.alloc(2 * NUMBER_BYTES)
  nonce.writeUIntBE(call, 0, NUMBER_BYTES)
  nonce.writeUIntBE(message, NUMBER_BYTES, NUMBER_BYTES)
  return nonce
}

/** The first of `known` stands before what is sealed; the rest is known to both ends. */
function sealed(key: KeyObject, nonce: Buffer, known: readonly Buffer[], parts: readonly Uint8Array[]): Buffer {
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES })
  cipher.setAAD(known.length === 1 && known[0] ? known[0] : Buffer.concat(known))
  const body = parts.map((part) => cipher.update(part))
  cipher.final()
  return Buffer.concat([...known.slice(0, 1), ...body, cipher.getAuthTag()])
}

function opened(key: KeyObject, nonce: Buffer, known: readonly Uint8Array[], bytes: Uint8Array): Buffer | undefined {
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
