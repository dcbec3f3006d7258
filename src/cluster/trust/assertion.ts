/**
 * Assertions: what a server vouches for in a call to a node (docs/decisions/028). An assertion replaces the caller's token, which
 * is never sent to a node.
 *
 * A call from a server carries *claims*: the node, a sequence number, a validity period, and the permissions of the caller.
 * They are part of the call's body, next to the operation, its input and the request ID.
 *
 * A server and a run of a node's process have a *session*: each has an X25519 key, from which both derive a secret that no
 * other process has. The server signs the node ID, the node's key and its own key with its NKEY, so only a server can open a
 * session, and the node knows which one. Each call is authenticated with that secret (HMAC-SHA256 over the whole body), so no
 * part of it can be changed or used for another call. An Ed25519 signature for each call would cost more than the call.
 *
 * Proof on the wire, MessagePack: `{ key: 'U…', signature: 64 bytes, curve: 32 bytes, mac: 32 bytes }`, in this order.
 * Everything before the MAC is the same for each call of a session: the server encodes it once, and the node finds the session
 * by it.
 */
import { createHmac, type KeyObject, randomBytes, timingSafeEqual } from 'node:crypto'
import * as v from 'valibot'
import { isCount, isText, listOf, packr, unpackAs } from '../nats/message-pack.ts'
import { type AssertedPermissions, decodePermissions, encodePermissions } from './asserted-permissions.ts'

/** Validity of an assertion, in addition to `CLOCK_SKEW_MS` (`clock-skews.ts`). */
export const ASSERTION_TTL_MS = 5000
const CURVE_KEY_BYTES = 32
const MAC_BYTES = 32
const SIGNATURE_BYTES = 64
/** Domain separation: prefix of the signed bytes. */
const CONTEXT = 'outpost call session 1'

const NAME_MAX = 128
const name = v.pipe(v.string(), v.maxLength(NAME_MAX))
const bytesOf = (length: number) =>
  v.pipe(
    v.instance(Uint8Array),
    v.check((bytes) => bytes.length === length),
  )

export interface AssertionClaims {
  /** ID of the node that may serve the call. */
  readonly audience: string
  /** Run of the node's process: its X25519 key in base64url. Empty while the server does not know it. */
  readonly audienceRun: string
  /** ID of a sequence of calls from one server to one node. */
  readonly issuerRun: string
  /** Number of the call in that sequence, from 1. */
  readonly sequence: number
  readonly issuedAtMs: number
  readonly expiresAtMs: number
  readonly permissions: AssertedPermissions
}

/** In the order that `decodeClaims` expects. */
export function encodeClaims(claims: AssertionClaims): readonly unknown[] {
  const { audience, audienceRun, expiresAtMs, issuedAtMs, issuerRun, permissions, sequence } = claims
  return [audience, audienceRun, issuerRun, sequence, issuedAtMs, expiresAtMs, encodePermissions(permissions)]
}

/** Undefined for a malformed value. */
export function decodeClaims(value: unknown): AssertionClaims | undefined {
  const parts = listOf(value, 7)
  if (!parts) return undefined
  const [audience, audienceRun, issuerRun, sequence, issuedAtMs, expiresAtMs] = parts
  const permissions = decodePermissions(parts[6])
  if (!isText(audience, NAME_MAX) || !isText(audienceRun, NAME_MAX) || !isText(issuerRun, NAME_MAX)) return undefined
  if (!isCount(sequence) || !isCount(issuedAtMs) || !isCount(expiresAtMs) || !permissions) return undefined
  return { audience, audienceRun, issuerRun, sequence, issuedAtMs, expiresAtMs, permissions }
}

const proofSchema = v.object({
  /** NKEY of the server. */
  key: name,
  /** Of `sessionBytes`, with that key. */
  signature: bytesOf(SIGNATURE_BYTES),
  /** X25519 key of the server. */
  curve: bytesOf(CURVE_KEY_BYTES),
  mac: bytesOf(MAC_BYTES),
})

export type SessionProof = v.InferOutput<typeof proofSchema>

/** Identifies a session: everything in a proof before the MAC, which authenticates it. */
export function sessionNameIn(proof: Uint8Array): string {
  const length = Math.max(0, proof.length - MAC_BYTES)
  return Buffer.from(proof.buffer, proof.byteOffset, length).toString('latin1')
}

/** The proof of a session, with space for the MAC of a call. */
export function encodeProof({ curve, key, signature }: Omit<SessionProof, 'mac'>): Buffer {
  return Buffer.from(packr.pack({ key, signature, curve, mac: new Uint8Array(MAC_BYTES) }))
}

/** The MAC of an encoded proof. */
export function macIn(proof: Uint8Array): Uint8Array {
  return proof.subarray(-MAC_BYTES)
}

/** Undefined for a malformed proof. */
export function decodeProof(bytes: Uint8Array): SessionProof | undefined {
  return unpackAs(proofSchema, bytes)
}

/** The bytes that a server signs to open a session with a run of a node. */
export function sessionBytes(nodeId: string, run: string, curve: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${CONTEXT}\0${nodeId}\0${run}\0`), curve])
}

/** Writes the MAC of a call into `proof`, which must be sent before it is used for another call. */
export function authenticate(secret: KeyObject, body: Uint8Array, proof: Buffer): Buffer {
  proof.set(macOf(secret, body), proof.length - MAC_BYTES)
  return proof
}

export function isMacOf(secret: KeyObject, body: Uint8Array, mac: Uint8Array): boolean {
  return mac.length === MAC_BYTES && timingSafeEqual(macOf(secret, body), mac)
}

function macOf(secret: KeyObject, body: Uint8Array): Buffer {
  return createHmac('sha256', secret).update(body).digest()
}

/** The X25519 key of a node's process names its run. */
export function runOf(curve: Uint8Array): string {
  return Buffer.from(curve).toString('base64url')
}

/** A random name of a run. */
export function newRun(): string {
  return randomBytes(15).toString('base64url')
}
