/**
 * An assertion: what a server vouches for in a call (docs/decisions/028). It takes the place of the caller's token, which
 * never travels to a node.
 *
 * A call that a server makes carries *claims*: for which node, under which number, from when to when, and the rights of the
 * caller. They are part of the call's body, next to the operation, its input and the request ID.
 *
 * A server and a run of a node's process have a *session*: each has an X25519 key, from which both derive a secret that no
 * other process has. The server signs the node, the node's key and its own key with its NKEY: so only a server can begin a
 * session, and the node knows which one. Each call is authenticated with that secret (HMAC-SHA256 over the whole body), so
 * nothing of it can be changed or used for another call. An Ed25519 signature for each call would cost more than the call.
 *
 * Proof on the wire, MessagePack: `{ key: 'U…', signature: 64 bytes, curve: 32 bytes, mac: 32 bytes }`, in this order. All
 * that stands before the MAC is the same for each call of a session: the server makes it once, and the node finds the
 * session by it.
 */
import { hash, type KeyObject, randomBytes, timingSafeEqual } from 'node:crypto'
import * as v from 'valibot'
import { type AssertedRights, partsOfRights, rightsIn } from './asserted-rights.ts'
import { isCount, isText, listOf } from '../nats/decoded.ts'
import { packr } from '../nats/message-pack.ts'

/** How long an assertion is good for, beside the difference of the clocks. */
export const ASSERTION_TTL_MS = 5000
/** Largest difference between the clocks of two hosts. */
export const CLOCK_SKEW_MS = 60_000
const CURVE_KEY_BYTES = 32
const MAC_BYTES = 32
const SIGNATURE_BYTES = 64
/** Of SHA-256. */
const BLOCK_BYTES = 64
/** Of the most calls. */
const SMALL_BODY_BYTES = 4096
/** No bytes that are signed for another purpose begin so. */
const PURPOSE = 'outpost call session 1'

const NAME_MAX = 128
const name = v.pipe(v.string(), v.maxLength(NAME_MAX))
const bytesOf = (length: number) =>
  v.pipe(
    v.instance(Uint8Array),
    v.check((bytes) => bytes.length === length),
  )

export interface Claims {
  /** Node ID that the call is for. */
  readonly audience: string
  /** Run of the node's process: its X25519 key, base64url. Empty while the server does not know it. */
  readonly audienceRun: string
  /** Numbers the calls of one server to one node. A new run begins at 1. */
  readonly issuerRun: string
  readonly sequence: number
  readonly issuedAtMs: number
  readonly expiresAtMs: number
  readonly rights: AssertedRights
}

/** The places are those that `claimsOf` reads. */
export function partsOfClaims(claims: Claims): readonly unknown[] {
  const { audience, audienceRun, expiresAtMs, issuedAtMs, issuerRun, rights, sequence } = claims
  return [audience, audienceRun, issuerRun, sequence, issuedAtMs, expiresAtMs, partsOfRights(rights)]
}

/** Undefined for what is no claims. */
export function claimsOf(value: unknown): Claims | undefined {
  const parts = listOf(value, 7)
  if (!parts) return undefined
  const [audience, audienceRun, issuerRun, sequence, issuedAtMs, expiresAtMs] = parts
  const rights = rightsIn(parts[6])
  if (!isText(audience, NAME_MAX) || !isText(audienceRun, NAME_MAX) || !isText(issuerRun, NAME_MAX)) return undefined
  if (!isCount(sequence) || !isCount(issuedAtMs) || !isCount(expiresAtMs) || !rights) return undefined
  return { audience, audienceRun, issuerRun, sequence, issuedAtMs, expiresAtMs, rights }
}

const proofSchema = v.object({
  /** NKEY of the server, and its signature over `sessionBytes`. */
  key: name,
  signature: bytesOf(SIGNATURE_BYTES),
  /** X25519 key of the server. */
  curve: bytesOf(CURVE_KEY_BYTES),
  mac: bytesOf(MAC_BYTES),
})

export type Proof = v.InferOutput<typeof proofSchema>

/** Name of a session: all of a proof that is the same for each of its calls. The MAC is what stands behind it. */
export function sessionNameIn(proof: Uint8Array): string {
  const length = Math.max(0, proof.length - MAC_BYTES)
  return Buffer.from(proof.buffer, proof.byteOffset, length).toString('latin1')
}

/** The proof of a session's calls, with room for the MAC of one. */
export function proofWithoutMac({ curve, key, signature }: Omit<Proof, 'mac'>): Buffer {
  return Buffer.from(packr.pack({ key, signature, curve, mac: new Uint8Array(MAC_BYTES) }))
}

/** The MAC of a proof that begins as another one which was decoded. */
export function macIn(bytes: Uint8Array): Uint8Array {
  return bytes.subarray(-MAC_BYTES)
}

/** Undefined for what is no proof. */
export function decodeProof(bytes: Uint8Array): Proof | undefined {
  try {
    const parsed = v.safeParse(proofSchema, packr.unpack(bytes))
    return parsed.success ? parsed.output : undefined
  } catch {
    return undefined
  }
}

/** What a server signs to begin a session with a run of a node. */
export function sessionBytes(nodeId: string, run: string, curve: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${PURPOSE}\0${nodeId}\0${run}\0`), curve])
}

/**
 * The secret of a session, ready for HMAC-SHA256 (RFC 2104): the key in blocks of its two pads. Two hashes in one go each
 * cost a fraction of an Hmac object.
 */
export class MacKey {
  readonly #inner = Buffer.alloc(BLOCK_BYTES + SMALL_BODY_BYTES)
  readonly #outer = Buffer.alloc(BLOCK_BYTES + MAC_BYTES)

  /** `secret` has no more bytes than a block of SHA-256. */
  constructor(secret: KeyObject) {
    const key = secret.export()
    for (let at = 0; at < BLOCK_BYTES; at++) {
      this.#inner[at] = (key[at] ?? 0) ^ 0x36
      this.#outer[at] = (key[at] ?? 0) ^ 0x5c
    }
    key.fill(0)
  }

  /** Makes `proof` that of the call: to be encoded before it is made that of another one. */
  prove(body: Uint8Array, proof: Buffer): Buffer {
    proof.write(this.#macOf(body), proof.length - MAC_BYTES, 'binary')
    return proof
  }

  isMacOf(body: Uint8Array, mac: Uint8Array): boolean {
    return mac.length === MAC_BYTES && timingSafeEqual(Buffer.from(this.#macOf(body), 'binary'), mac)
  }

  /** As text of one byte a character: a Buffer would cost three times the hash. */
  #macOf(body: Uint8Array): string {
    let input = this.#inner
    if (body.length <= SMALL_BODY_BYTES) input.set(body, BLOCK_BYTES)
    else input = Buffer.concat([input.subarray(0, BLOCK_BYTES), body])
    this.#outer.write(hash('sha256', input.subarray(0, BLOCK_BYTES + body.length), 'binary'), BLOCK_BYTES, 'binary')
    return hash('sha256', this.#outer, 'binary')
  }
}

export function runOf(curve: Uint8Array): string {
  return Buffer.from(curve).toString('base64url')
}

/** A name for a run of something, that no other run has. */
export function newRun(): string {
  return randomBytes(15).toString('base64url')
}

/** A key that this process signs with as a server. */
export interface ServerKey {
  readonly publicKey: string
  sign(bytes: Uint8Array): Uint8Array
}
