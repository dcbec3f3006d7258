/**
 * What a secondary is activated with: its certificate, the authority of its primary, and where that is. It travels in a
 * token that can be unwrapped once, or sealed to a public key that the secondary has made: then it needs no call to the API
 * of the primary.
 *
 * Sealed: X25519 with a key of its own for each bundle, HKDF with SHA-256, AES-256-GCM; in text `dr1.` and, in base64url, the
 * ephemeral public key, the nonce, the ciphertext and its tag. A public key in text: `drk1.` and its 32 bytes in base64url.
 */
import {
  createCipheriv,
  createDecipheriv,
  createPrivateKey,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
  randomBytes,
} from 'node:crypto'
import * as v from 'valibot'
import { Refusal } from '../../platform/errors.ts'
import type { KnownUpstream } from '../state/state.ts'

/** Of a PEM or an address: far above what any has, and nothing that fills memory. */
const TEXT_MAX = 16_384
const text = v.pipe(v.string(), v.minLength(1), v.maxLength(TEXT_MAX))

const BUNDLE = v.object({
  version: v.literal(1),
  /** Made by the primary; a part of names of files here. */
  set_id: v.pipe(v.string(), v.uuid()),
  id: text,
  /** `https://host:port` or `host:port`. */
  cluster_addr: text,
  api_addr: v.pipe(v.string(), v.maxLength(TEXT_MAX)),
  ca_cert: text,
  client_cert: text,
  client_key: text,
  expires_at_ms: v.pipe(v.number(), v.integer()),
  nonce: text,
})

export type Bundle = v.InferOutput<typeof BUNDLE>

/** What was in a token: the text, or what JSON says of it. Throws a Refusal for anything else than a bundle. */
export function parseBundle(given: unknown): Bundle {
  try {
    return v.parse(BUNDLE, typeof given === 'string' ? JSON.parse(given) : given)
  } catch {
    // What is wrong with it could quote it.
    throw new Refusal('invalid_request', 'the token holds no activation of a secondary: issue a new one on the primary')
  }
}

const SEALED_PREFIX = 'dr1.'
const KEY_PREFIX = 'drk1.'
const KEY_BYTES = 32
const IV_BYTES = 12
const TAG_BYTES = 16
/** What precedes the raw key in DER, RFC 8410. */
const SPKI_HEAD = Buffer.from('302a300506032b656e032100', 'hex')

export interface SealingKeys {
  /** Text for the primary. */
  readonly publicKey: string
  /** PKCS 8, DER. */
  readonly privateKey: Buffer
}

export function makeSealingKeys(): SealingKeys {
  const { publicKey, privateKey } = generateKeyPairSync('x25519')
  const raw = rawOf(publicKey)
  return {
    publicKey: KEY_PREFIX + raw.toString('base64url'),
    privateKey: privateKey.export({ type: 'pkcs8', format: 'der' }),
  }
}

/** True for a token that is sealed to a public key; others are unwrapped at the primary's API. */
export function isSealedBundle(token: string): boolean {
  return token.startsWith(SEALED_PREFIX)
}

/** Throws a Refusal for a key that is none. */
export function sealBundle(bundle: Bundle, publicKey: string): string {
  const recipient = Buffer.from(publicKey.slice(KEY_PREFIX.length), 'base64url')
  if (!publicKey.startsWith(KEY_PREFIX) || recipient.length !== KEY_BYTES) {
    throw new Refusal(
      'invalid_request',
      'secondary_public_key is not a key of sys/replication/dr/secondary/generate-public-key',
    )
  }
  const { publicKey: own, privateKey } = generateKeyPairSync('x25519')
  const ephemeral = rawOf(own)
  const iv = randomBytes(IV_BYTES)
  const cipher = createCipheriv('aes-256-gcm', keyBetween(privateKey, publicOf(recipient), ephemeral, recipient), iv)
  const sealed = Buffer.concat([cipher.update(JSON.stringify(bundle), 'utf8'), cipher.final(), cipher.getAuthTag()])
  return SEALED_PREFIX + Buffer.concat([ephemeral, iv, sealed]).toString('base64url')
}

/** Throws a Refusal for a token that was sealed to another key, changed or cut. */
export function openBundle(token: string, privateKey: Uint8Array): Bundle {
  const bytes = Buffer.from(token.slice(SEALED_PREFIX.length), 'base64url')
  const ephemeral = bytes.subarray(0, KEY_BYTES)
  const iv = bytes.subarray(KEY_BYTES, KEY_BYTES + IV_BYTES)
  const sealed = bytes.subarray(KEY_BYTES + IV_BYTES, -TAG_BYTES)
  let opened: string
  try {
    const own = createPrivateKey({ key: Buffer.from(privateKey), type: 'pkcs8', format: 'der' })
    const key = keyBetween(own, publicOf(ephemeral), ephemeral, rawOf(createPublicKey(own)))
    const decipher = createDecipheriv('aes-256-gcm', key, iv, { authTagLength: TAG_BYTES })
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
    opened = Buffer.concat([decipher.update(sealed), decipher.final()]).toString('utf8')
  } catch {
    throw new Refusal(
      'invalid_request',
      'the token was not sealed to the newest public key of this cluster, or it is cut: ' +
        'make a key with sys/replication/dr/secondary/generate-public-key and issue a token to it',
    )
  }
  return parseBundle(opened)
}

function keyBetween(own: KeyObject, other: KeyObject, ephemeral: Buffer, recipient: Buffer): Buffer {
  const shared = diffieHellman({ privateKey: own, publicKey: other })
  const salt = Buffer.concat([ephemeral, recipient])
  return Buffer.from(hkdfSync('sha256', shared, salt, 'outpost dr bundle 1', 32))
}

function publicOf(raw: Uint8Array): KeyObject {
  return createPublicKey({ key: Buffer.concat([SPKI_HEAD, raw]), type: 'spki', format: 'der' })
}

function rawOf(key: KeyObject): Buffer {
  return key.export({ type: 'spki', format: 'der' }).subarray(-KEY_BYTES)
}

/** The primary that an activation names, before it was joined. */
export function upstreamOf(bundle: Bundle): KnownUpstream {
  return {
    setId: bundle.set_id,
    id: bundle.id,
    nonce: bundle.nonce,
    authority: bundle.ca_cert,
    certificate: bundle.client_cert,
    key: bundle.client_key,
    address: bundle.cluster_addr,
    known: [],
    api: bundle.api_addr,
    hasJoined: false,
  }
}
