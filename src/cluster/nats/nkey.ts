/**
 * NKEYs (the Ed25519 keys of NATS users) as keys of node:crypto, which signs and verifies many times faster than the
 * library that NATS clients use. Texts are base32: of a public key `U…`, of a secret seed `SU…`.
 */
import { createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto'
import { createUser, fromPublic, fromSeed } from '@nats-io/nkeys'
import { Fault } from '../../platform/errors.ts'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'
const RAW_BYTES = 32
const PUBLIC_PREFIX_BYTES = 1
const SEED_PREFIX_BYTES = 2
/** What a public key of a user begins with: the letter U in base32. */
const USER_PREFIX = 20 << 3
/** Of the checksum at its end, CRC-16/XMODEM. */
const CRC_POLYNOMIAL = 0x1021
/** What precedes the raw key in the DER form of an Ed25519 key (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')

/** A key that this process signs with. */
export interface SigningKey {
  /** `U…` */
  readonly publicKey: string
  sign(bytes: Uint8Array): Uint8Array
}

/** @throws Fault for a text that is no seed of a user's NKEY; the text is not shown. */
export function signingKeyOf(seed: string): SigningKey {
  try {
    if (!seed.startsWith('SU')) throw new Error('the seed of something else')
    fromSeed(new TextEncoder().encode(seed))
  } catch {
    throw new Fault('it does not hold the seed of an nkey (a line SU…)')
  }
  const raw = rawOf(seed, SEED_PREFIX_BYTES)
  const privateKey = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, raw]), format: 'der', type: 'pkcs8' })
  raw.fill(0)
  const publicKey = publicTextOf(createPublicKey(privateKey))
  return { publicKey, sign: (bytes) => sign(null, bytes, privateKey) }
}

/** `U…`. The library reckons the key from the seed in JavaScript, which takes longer than all else that a key needs. */
function publicTextOf(key: KeyObject): string {
  const raw = key.export({ format: 'der', type: 'spki' }).subarray(SPKI_PREFIX.length)
  const bytes = Buffer.concat([Buffer.of(USER_PREFIX), raw, Buffer.alloc(2)])
  const end = bytes.length - 2
  bytes.writeUInt16LE(crcOf(bytes.subarray(0, end)), end)
  return base32Of(bytes)
}

function crcOf(bytes: Uint8Array): number {
  let crc = 0
  for (const byte of bytes) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? CRC_POLYNOMIAL : 0)) & 0xffff
  }
  return crc
}

/** Without padding: 35 bytes are 56 letters. */
function base32Of(bytes: Uint8Array): string {
  const bits = Array.from(bytes, (byte) => byte.toString(2).padStart(8, '0')).join('')
  return (bits.match(/.{5}/g) ?? []).map((five) => ALPHABET[Number.parseInt(five, 2)]).join('')
}

/** A new secret seed, `SU…`. */
export function newSeed(): string {
  return Buffer.from(createUser().getSeed()).toString('latin1')
}

/** The key that verifies signatures; undefined for a text that is no public key of a NATS user. */
export function verifyingKeyOf(publicKey: string): KeyObject | undefined {
  try {
    fromPublic(publicKey)
    const raw = rawOf(publicKey, PUBLIC_PREFIX_BYTES)
    return createPublicKey({ key: Buffer.concat([SPKI_PREFIX, raw]), format: 'der', type: 'spki' })
  } catch {
    return undefined
  }
}

/** The 32 bytes of a key whose checksum has been checked. */
function rawOf(text: string, prefixBytes: number): Buffer {
  const bytes = Buffer.alloc(Math.floor((text.length * 5) / 8))
  let bits = 0
  let value = 0
  let at = 0
  for (const character of text) {
    value = ((value << 5) | ALPHABET.indexOf(character)) & 0xfff
    bits += 5
    if (bits < 8) continue
    bits -= 8
    bytes[at++] = value >> bits
  }
  return bytes.subarray(prefixBytes, prefixBytes + RAW_BYTES)
}
