/** The keyring as an entry: encrypted with the root key, which is not of the ring. */
import { Fault } from '../../platform/errors.ts'
import type { Put } from '../sqlite/batch.ts'
import { decrypt, encrypt } from './cipher.ts'
import { KEY_BYTES, Keyring } from './keyring.ts'

export const KEYRING_PATH = 'core/keyring'
/** Of the root key, which is not of the ring. */
const ROOT_TERM = 0

/** The key does not open this barrier. Says nothing more. */
export class WrongKey extends Fault {}

/** The ring, or undefined when the key does not open it. Throws for a ring that opens and is damaged. */
export function openRing(value: Uint8Array, rootKey: Buffer): Keyring | undefined {
  if (rootKey.length !== KEY_BYTES) return undefined
  let plaintext: Buffer
  try {
    plaintext = decrypt(KEYRING_PATH, value, (term) => (term === ROOT_TERM ? rootKey : undefined))
  } catch {
    return undefined
  }
  const ring = Keyring.decode(plaintext)
  plaintext.fill(0)
  return ring
}

export function ringEntry(ring: Keyring, rootKey: Buffer): Put {
  if (rootKey.length !== KEY_BYTES) throw new Fault('a root key has 32 bytes')
  const plaintext = ring.encode()
  const value = encrypt(KEYRING_PATH, plaintext, { term: ROOT_TERM, key: rootKey })
  plaintext.fill(0)
  return { path: KEYRING_PATH, value }
}
