/**
 * NKEYs (the Ed25519 keys of NATS users) as keys of node:crypto, which signs and verifies many times faster than the
 * library of the NATS client. Encoded keys are base32: public keys begin with `U`, secret seeds with `SU`.
 *
 * A server signs with the NKEY that it uses to log in to NATS, or otherwise with a generated one that is kept in a file. Key files are
 * read again for each connection, as the login does, so a replaced key takes effect at the next connection.
 */
import { createPrivateKey, createPublicKey, type KeyObject, sign } from 'node:crypto'
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { createUser, fromPublic, fromSeed } from '@nats-io/nkeys'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import { bytesOf, createFile, readTextIfExists } from '../../platform/program-file.ts'
import type { LoginOptions } from './nats-login.ts'

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'
const RAW_BYTES = 32
const PUBLIC_PREFIX_BYTES = 1
const SEED_PREFIX_BYTES = 2
/** First byte of a user's public key; encodes as the letter U. */
const USER_PREFIX = 20 << 3
/** CRC-16/XMODEM, the checksum at the end of a key. */
const CRC_POLYNOMIAL = 0x1021
/** DER prefixes of raw Ed25519 keys (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')
const PKCS8_PREFIX = Buffer.from('302e020100300506032b657004220420', 'hex')
const SERVER_KEY_FILE = 'server.nk'

/** A private key with its public key. */
export interface SigningKey {
  /** NKEY, `U…`. */
  readonly publicKey: string
  sign(bytes: Uint8Array): Uint8Array
}

/** @throws Fault for a text that is not the seed of a user's NKEY; it does not contain the text. */
export function signingKeyOf(seed: string): SigningKey {
  try {
    if (!seed.startsWith('SU')) throw new Error('not the seed of a user nkey')
    fromSeed(new TextEncoder().encode(seed))
  } catch {
    throw new Fault('it does not contain the seed of an nkey (a line SU…)')
  }
  const raw = rawOf(seed, SEED_PREFIX_BYTES)
  const privateKey = createPrivateKey({ key: Buffer.concat([PKCS8_PREFIX, raw]), format: 'der', type: 'pkcs8' })
  raw.fill(0)
  const publicKey = encodePublicKey(createPublicKey(privateKey))
  return { publicKey, sign: (bytes) => sign(null, bytes, privateKey) }
}

/** The library computes the public key from the seed in JavaScript, which takes longer than everything else here. */
function encodePublicKey(key: KeyObject): string {
  const raw = key.export({ format: 'der', type: 'spki' }).subarray(SPKI_PREFIX.length)
  const bytes = Buffer.concat([Buffer.of(USER_PREFIX), raw, Buffer.alloc(2)])
  const end = bytes.length - 2
  bytes.writeUInt16LE(crcOf(bytes.subarray(0, end)), end)
  return encodeBase32(bytes)
}

function crcOf(bytes: Uint8Array): number {
  let crc = 0
  for (const byte of bytes) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = ((crc << 1) ^ (crc & 0x8000 ? CRC_POLYNOMIAL : 0)) & 0xffff
  }
  return crc
}

/** Without padding, so the number of bits must be a multiple of 5. */
function encodeBase32(bytes: Uint8Array): string {
  const bits = Array.from(bytes, (byte) => byte.toString(2).padStart(8, '0')).join('')
  return (bits.match(/.{5}/g) ?? []).map((five) => ALPHABET[Number.parseInt(five, 2)]).join('')
}

/** A new secret seed, `SU…`. */
export function newSeed(): string {
  return Buffer.from(createUser().getSeed()).toString('latin1')
}

/** Undefined for a text that is not the public key of a NATS user. */
export function verifyingKeyOf(publicKey: string): KeyObject | undefined {
  try {
    fromPublic(publicKey)
    const raw = rawOf(publicKey, PUBLIC_PREFIX_BYTES)
    return createPublicKey({ key: Buffer.concat([SPKI_PREFIX, raw]), format: 'der', type: 'spki' })
  } catch {
    return undefined
  }
}

/** The raw key in an encoded one whose checksum was verified. */
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

export interface ServerKeyOptions {
  /** Login of the process at NATS. Undefined without NATS: the key is not stored. */
  readonly login: Pick<LoginOptions, 'credentialsFile' | 'nkeyFile'> | undefined
  /** Directory of a generated key, e.g. `/var/lib/outpost/server`. */
  readonly directory: string
}

/**
 * The key that this server signs with.
 * @throws Fault that names the file which cannot be used; it never contains the content of the file.
 */
export function serverSigningKey({ login, directory }: ServerKeyOptions): SigningKey {
  if (!login) return signingKeyOf(newSeed())
  const { credentialsFile, nkeyFile } = login
  if (nkeyFile !== undefined) return keyIn('nats.nkey_file', nkeyFile, readText)
  if (credentialsFile !== undefined) return keyIn('nats.credentials_file', credentialsFile, readText)
  return keyIn('the signing key of this server', join(directory, SERVER_KEY_FILE), readOrCreateSeed)
}

function readText(file: string): string {
  return bytesOf(file).toString()
}

function keyIn(setting: string, file: string, read: (file: string) => string): SigningKey {
  try {
    // A credentials file also contains a JWT, and marker lines around both.
    const seed = /^SU[A-Z2-7]{56}$/m.exec(read(file).replaceAll('\r', ''))?.[0]
    return signingKeyOf(seed ?? '')
  } catch (error) {
    throw new Fault(`${setting}: ${file}: ${messageOf(error)}`, { cause: error })
  }
}

/** Never replaces a file: one that cannot be read is an error, and one that another process has created meanwhile is used. */
function readOrCreateSeed(file: string): string {
  const existing = readTextIfExists(file)
  if (existing !== undefined) return existing
  mkdirSync(dirname(file), { recursive: true, mode: 0o700 })
  try {
    createFile(file, `${newSeed()}\n`)
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw error
  }
  return readText(file)
}
