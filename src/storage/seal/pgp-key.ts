/**
 * What the PGP thread does with a key: judges it and encrypts to it. Runs in that thread only (`pgp-thread.ts`): some of
 * it is arithmetic of the library that lasts as long as the key's author likes. What costs time by the number of its parts
 * or the size of its numbers is counted before anything is verified.
 */
import * as openpgp from 'openpgp'
import { messageOf } from '../../platform/errors.ts'

/** Larger RSA numbers cost seconds of the processor, and people do not use them. */
const RSA_BITS_MAX = 16_384
/** Each user ID, subkey and signature is verified, a millisecond or more. */
const USER_IDS_MAX = 32
const SUBKEYS_MAX = 32
const SIGNATURES_MAX = 256
const SHORTER = 'gpg --export --export-options export-minimal makes a smaller one'

/** Why nothing can be encrypted to a key, in words for who sent it. */
export class UnfitKey extends Error {}

/** Reads a public key in its binary form. Throws UnfitKey for anything that nothing can be encrypted to now. */
export async function judgedKey(binaryKey: Uint8Array): Promise<openpgp.Key> {
  let key: openpgp.Key
  try {
    key = await openpgp.readKey({ binaryKey })
  } catch (error) {
    throw new UnfitKey(`error parsing given PGP key: ${firstLine(messageOf(error))}`)
  }
  checkParts(key)
  try {
    await encryptedTo(key, new TextEncoder().encode('whether it can'))
  } catch (error) {
    throw new UnfitKey(`the key ${key.getFingerprint()} cannot encrypt: ${firstLine(messageOf(error))}`)
  }
  return key
}

/** A binary OpenPGP message that only the key's owner reads. */
export async function encryptedTo(key: openpgp.Key, plain: Uint8Array): Promise<Uint8Array> {
  const message = await openpgp.createMessage({ binary: plain })
  const encrypted = await openpgp.encrypt({ message, encryptionKeys: key, format: 'binary' })
  if (!(encrypted instanceof Uint8Array)) throw new TypeError('an encrypted message is not bytes')
  return encrypted
}

function checkParts(key: openpgp.Key): void {
  const fingerprint = key.getFingerprint()
  const refuse = (why: string) => {
    throw new UnfitKey(`the key ${fingerprint} ${why}`)
  }
  if (key.isPrivate()) refuse('is a private one: send its public part, and regard the private one as exposed')
  if (key.users.length > USER_IDS_MAX) refuse(`has more than ${USER_IDS_MAX} user IDs; ${SHORTER}`)
  if (key.subkeys.length > SUBKEYS_MAX) refuse(`has more than ${SUBKEYS_MAX} subkeys; ${SHORTER}`)
  if (key.toPacketList().filterByTag(openpgp.enums.packet.signature).length > SIGNATURES_MAX)
    refuse(`has more than ${SIGNATURES_MAX} signatures; ${SHORTER}`)
  // Verifying its signatures is arithmetic of the library with numbers of any size: minutes for a key made for it.
  if (key.getAlgorithmInfo().algorithm === 'dsa') refuse('is a DSA key, which is not supported: use RSA or a curve')
  if (key.getKeys().some((each) => (each.getAlgorithmInfo().bits ?? 0) > RSA_BITS_MAX)) {
    refuse(`is larger than ${RSA_BITS_MAX} bits`)
  }
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? ''
}
