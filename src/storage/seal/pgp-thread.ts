/**
 * The worker thread of `pgp.ts`: checks PGP keys and encrypts to them. It loads the library, which the main thread never does. The
 * computation can take as long as the author of a key wants, so the parts of a key and the size of its numbers are limited before any
 * signature is verified.
 */
import * as openpgp from 'openpgp'
import { messageOf } from '../../platform/errors.ts'
import { serveTasks } from '../../platform/worker-task.ts'

/** Checks a key or, with `plain`, encrypts to a checked key. Both are binary. */
export interface PgpRequest {
  readonly key: Uint8Array
  readonly plain?: Uint8Array
}

export interface PgpResult {
  readonly fingerprint: string
  readonly message?: Uint8Array
}

export type PgpResponse =
  | PgpResult
  /** The key cannot be used; the text is for its sender. */
  | { readonly unusable: string }

/** Larger RSA keys take seconds of CPU and are not in use. */
const RSA_BITS_MAX = 16_384
/** Each user ID, subkey and signature is verified, which takes a millisecond or more. */
const USER_IDS_MAX = 32
const SUBKEYS_MAX = 32
const SIGNATURES_MAX = 256
const EXPORT_HINT = 'gpg --export --export-options export-minimal makes a smaller one'

/** The key cannot be used for encryption; the message is for its sender. */
class UnusableKeyError extends Error {}

serveTasks(async ({ key: binaryKey, plain }: PgpRequest): Promise<PgpResponse> => {
  try {
    const key = await readUsableKey(binaryKey)
    const fingerprint = key.getFingerprint()
    return plain ? { fingerprint, message: await encryptTo(key, plain) } : { fingerprint }
  } catch (error) {
    if (error instanceof UnusableKeyError) return { unusable: error.message }
    throw error
  } finally {
    plain?.fill(0)
  }
})

/** Parses a binary public key. Throws UnusableKeyError for a key that cannot encrypt now. */
async function readUsableKey(binaryKey: Uint8Array): Promise<openpgp.Key> {
  let key: openpgp.Key
  try {
    key = await openpgp.readKey({ binaryKey })
  } catch (error) {
    throw new UnusableKeyError(`error parsing given PGP key: ${firstLine(messageOf(error))}`)
  }
  checkParts(key)
  try {
    await encryptTo(key, new TextEncoder().encode('test message'))
  } catch (error) {
    throw new UnusableKeyError(`the key ${key.getFingerprint()} cannot encrypt: ${firstLine(messageOf(error))}`)
  }
  return key
}

/** Returns a binary OpenPGP message that only the key's owner can decrypt. */
async function encryptTo(key: openpgp.Key, plain: Uint8Array): Promise<Uint8Array> {
  const message = await openpgp.createMessage({ binary: plain })
  const encrypted = await openpgp.encrypt({ message, encryptionKeys: key, format: 'binary' })
  if (!(encrypted instanceof Uint8Array)) throw new TypeError('the encrypted message is not binary')
  return encrypted
}

function checkParts(key: openpgp.Key): void {
  const refuse = (why: string) => {
    throw new UnusableKeyError(`the key ${key.getFingerprint()} ${why}`)
  }
  if (key.isPrivate()) refuse('is a private key: send its public part, and consider the private key exposed')
  if (key.users.length > USER_IDS_MAX) refuse(`has more than ${USER_IDS_MAX} user IDs; ${EXPORT_HINT}`)
  if (key.subkeys.length > SUBKEYS_MAX) refuse(`has more than ${SUBKEYS_MAX} subkeys; ${EXPORT_HINT}`)
  if (key.toPacketList().filterByTag(openpgp.enums.packet.signature).length > SIGNATURES_MAX)
    refuse(`has more than ${SIGNATURES_MAX} signatures; ${EXPORT_HINT}`)
  // The library verifies DSA signatures with numbers of any size: a crafted key takes minutes.
  if (key.getAlgorithmInfo().algorithm === 'dsa') refuse('is a DSA key, which is not supported: use RSA or a curve')
  if (key.getKeys().some((each) => (each.getAlgorithmInfo().bits ?? 0) > RSA_BITS_MAX)) {
    refuse(`is larger than ${RSA_BITS_MAX} bits`)
  }
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? ''
}
