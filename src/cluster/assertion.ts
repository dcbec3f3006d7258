/**
 * An assertion: what a server vouches for in a call (docs/decisions/028). It takes the place of the caller's token, which
 * never travels to a node.
 *
 * A call that a server makes carries *claims*: for which node, under which number, from when to when, and the rights of the
 * caller. They are part of the call's body, next to the operation, its input and the request ID. The server signs the
 * SHA-256 of that body with its NKEY, so nothing of the call can be changed or used for another call.
 *
 * One signature serves all calls that a server makes in one turn of its event loop: it covers the list of their digests,
 * and each call carries the list. An Ed25519 signature costs more than the rest of a small call.
 *
 * Proof on the wire, MessagePack: `{ key: 'U…', signature: 64 bytes, batch: n × 32 bytes }`.
 */
import { hash, randomBytes } from 'node:crypto'
import { Packr } from 'msgpackr'
import * as v from 'valibot'
import { rightsSchema } from './asserted-rights.ts'

/** How long an assertion is good for, beside the difference of the clocks. */
export const ASSERTION_TTL_MS = 5000
/** Largest difference between the clocks of two hosts. */
export const CLOCK_SKEW_MS = 60_000
export const DIGEST_BYTES = 32
/** Calls that share a signature: each carries all the digests. */
const BATCH_MAX = 32
const SIGNATURE_BYTES = 64
/** No bytes that are signed for another purpose begin so. */
const PURPOSE = Buffer.from('outpost calls 1\0')

const packr = new Packr({ useRecords: false, mapsAsObjects: true })

const name = v.pipe(v.string(), v.maxLength(128))
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))

export const claimsSchema = v.object({
  /** Node ID that the call is for. */
  audience: name,
  /** Run of the node's process, so that no call outlives it; empty while the server does not know it. */
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
  key: name,
  signature: v.pipe(
    v.instance(Uint8Array),
    v.check((bytes) => bytes.length === SIGNATURE_BYTES),
  ),
  batch: v.pipe(
    v.instance(Uint8Array),
    v.check(({ length }) => length > 0 && length % DIGEST_BYTES === 0 && length <= BATCH_MAX * DIGEST_BYTES),
  ),
})

export type Proof = v.InferOutput<typeof proofSchema>

/** Undefined for what is no proof. */
export function decodeProof(bytes: Uint8Array): Proof | undefined {
  try {
    const parsed = v.safeParse(proofSchema, packr.unpack(bytes))
    return parsed.success ? parsed.output : undefined
  } catch {
    return undefined
  }
}

export function signedBytes(batch: Uint8Array): Buffer {
  return Buffer.concat([PURPOSE, batch])
}

export function digestOf(body: Uint8Array): Buffer {
  return hash('sha256', body, 'buffer')
}

/** True when the proof is about this body. Digests are public, so the time that this takes tells nothing. */
export function isAbout(proof: Proof, digest: Buffer): boolean {
  const { batch } = proof
  for (let at = 0; at < batch.length; at += DIGEST_BYTES) {
    if (digest.equals(batch.subarray(at, at + DIGEST_BYTES))) return true
  }
  return false
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

interface Waiting {
  readonly digest: Buffer
  readonly send: (proof: Uint8Array) => void
}

/** Signs calls, those of one turn of the event loop together. */
export class CallSigner {
  readonly #waiting: Waiting[] = []

  /** `send` gets the proof at the end of this turn. */
  sign(key: ServerKey, body: Uint8Array, send: (proof: Uint8Array) => void): void {
    if (this.#waiting.length === 0) setImmediate(() => this.#flush(key))
    this.#waiting.push({ digest: digestOf(body), send })
  }

  #flush(key: ServerKey): void {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, BATCH_MAX)
      const digests = Buffer.concat(batch.map(({ digest }) => digest))
      const proof: Proof = {
        key: key.publicKey,
        signature: Uint8Array.from(key.sign(signedBytes(digests))),
        batch: digests,
      }
      const bytes = packr.pack(proof)
      for (const { send } of batch) send(bytes)
    }
  }
}
