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
 * Proof on the wire, MessagePack: `{ key: 'U…', signature: 64 bytes, curve: 32 bytes, mac: 32 bytes }`.
 */
import { createHmac, type KeyObject, randomBytes, timingSafeEqual } from 'node:crypto'
import { packr } from './message-pack.ts'
import * as v from 'valibot'
import { rightsSchema } from './asserted-rights.ts'

/** How long an assertion is good for, beside the difference of the clocks. */
export const ASSERTION_TTL_MS = 5000
/** Largest difference between the clocks of two hosts. */
export const CLOCK_SKEW_MS = 60_000
const CURVE_KEY_BYTES = 32
const MAC_BYTES = 32
const SIGNATURE_BYTES = 64
/** No bytes that are signed for another purpose begin so. */
const PURPOSE = 'outpost call session 1'

const name = v.pipe(v.string(), v.maxLength(128))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const bytesOf = (length: number) =>
  v.pipe(
    v.instance(Uint8Array),
    v.check((bytes) => bytes.length === length),
  )

export const claimsSchema = v.object({
  /** Node ID that the call is for. */
  audience: name,
  /** Run of the node's process: its X25519 key, base64url. Empty while the server does not know it. */
  audienceRun: name,
  /** Numbers the calls of one server to one node. A new run begins at 1. */
  issuerRun: name,
  sequence: count,
  issuedAtMs: count,
  expiresAtMs: count,
  rights: rightsSchema,
})

export type Claims = v.InferOutput<typeof claimsSchema>

const proofSchema = v.object({
  /** NKEY of the server, and its signature over `sessionBytes`. */
  key: name,
  signature: bytesOf(SIGNATURE_BYTES),
  /** X25519 key of the server. */
  curve: bytesOf(CURVE_KEY_BYTES),
  mac: bytesOf(MAC_BYTES),
})

export type Proof = v.InferOutput<typeof proofSchema>

export function encodeProof(proof: Proof): Uint8Array {
  return packr.pack(proof)
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

export function macOf(secret: KeyObject, body: Uint8Array): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(createHmac('sha256', secret).update(body).digest())
}

export function isMacOf(secret: KeyObject, body: Uint8Array, mac: Uint8Array): boolean {
  return timingSafeEqual(macOf(secret, body), mac)
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
