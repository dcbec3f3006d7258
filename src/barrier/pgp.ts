/**
 * PGP keys that key shares and tokens are encrypted to, so that only the key's owner can read them. A key that cannot
 * encrypt, or cannot any more, is refused when it is given: at the end of an attempt it would be too late.
 *
 * The library is large and seldom needed: it is loaded with the first key.
 */
import { Refusal, messageOf } from '../kit/errors.ts'

/** Every name in a key is checked, a millisecond each, and whoever sends it may be anybody. A key has some KiB. */
const KEY_TEXT_MAX = 64 << 10
const KEYS_TEXT_MAX = 1 << 20
/** Above what anybody uses. Larger numbers cost seconds of the processor. */
const RSA_BITS_MAX = 16_384
const SHORTER = 'gpg --export --export-options export-minimal makes a short one'
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

export interface PgpKey {
  /** Of the primary key, in hex. */
  readonly fingerprint: string
  /** A binary OpenPGP message that only the key's owner reads. */
  encrypt(text: string): Promise<Buffer>
}

/** Reads a public key, base64 of its binary form. Throws a Refusal for anything that nothing can be encrypted to now. */
export async function readPgpKey(text: string): Promise<PgpKey> {
  const bytes = decode(text)
  const openpgp = await import('openpgp')
  let key: Awaited<ReturnType<typeof openpgp.readKey>>
  try {
    key = await openpgp.readKey({ binaryKey: bytes })
  } catch (error) {
    throw refused(`error parsing given PGP key: ${firstLine(messageOf(error))}`)
  }
  const fingerprint = key.getFingerprint()
  if (key.isPrivate()) {
    throw refused(
      `the key ${fingerprint} is a private one: send its public part, and regard the private one as exposed`,
    )
  }
  if (key.getKeys().some((each) => (each.getAlgorithmInfo().bits ?? 0) > RSA_BITS_MAX)) {
    throw refused(`the key ${fingerprint} is larger than ${RSA_BITS_MAX} bits`)
  }
  const encrypt = async (plain: string): Promise<Buffer> => {
    const message = await openpgp.createMessage({ binary: Buffer.from(plain) })
    const encrypted = await openpgp.encrypt({ message, encryptionKeys: key, format: 'binary' })
    if (!(encrypted instanceof Uint8Array)) throw new TypeError('an encrypted message is not bytes')
    return Buffer.from(encrypted)
  }
  try {
    await encrypt('whether it can')
  } catch (error) {
    throw refused(`the key ${fingerprint} cannot encrypt: ${firstLine(messageOf(error))}`)
  }
  return { fingerprint, encrypt }
}

/** Reads several, one after another; the refusal says which one is meant. */
export async function readPgpKeys(texts: readonly string[]): Promise<PgpKey[]> {
  const length = texts.reduce((sum, text) => sum + text.length, 0)
  if (length > KEYS_TEXT_MAX) throw refused(`the keys together are longer than ${KEYS_TEXT_MAX} characters; ${SHORTER}`)
  const keys: PgpKey[] = []
  for (const [at, text] of texts.entries()) {
    try {
      keys.push(await readPgpKey(text))
    } catch (error) {
      if (error instanceof Refusal) throw new Refusal('invalid_request', `PGP key ${at + 1}: ${error.message}`)
      throw error
    }
  }
  return keys
}

function decode(text: string): Buffer {
  const trimmed = text.replaceAll(/\s/g, '')
  if (text.length > KEY_TEXT_MAX)
    throw refused(`error decoding given PGP key: longer than ${KEY_TEXT_MAX} characters; ${SHORTER}`)
  if (trimmed === '' || !BASE64.test(trimmed)) {
    throw refused('error decoding given PGP key: illegal base64 data: send base64 of the binary (not armored) key')
  }
  return Buffer.from(trimmed, 'base64')
}

function refused(why: string): Refusal {
  return new Refusal('invalid_request', `error parsing PGP key: ${why}`)
}

function firstLine(text: string): string {
  return text.split('\n', 1)[0] ?? ''
}
