/**
 * PGP keys that key shares and tokens are encrypted to, so that only the key's owner can read them. A key that cannot
 * encrypt, or has expired, is refused when it is given: at the end of an attempt it would be too late.
 *
 * The sender of a key is not authenticated, and a key can be made to cost minutes of computation. So the length of its text is
 * limited here, and the key is parsed in a worker thread (`pgp-worker.ts`), with limits on its parts (`pgp-key.ts`), time and memory.
 */
import { Refusal } from '../../platform/errors.ts'
import { PgpWorker } from './pgp-worker.ts'

/** A key has some KiB. */
const KEY_TEXT_MAX = 64 << 10
const KEYS_TEXT_MAX = 1 << 20
/** Requests whose keys wait for the thread or are judged there. */
const READERS_MAX = 16
/** Of all keys of one request. */
const KEYS_MS = 60_000
const SHORTER = 'gpg --export --export-options export-minimal makes a short one'
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/

const shared = new PgpWorker()
let readers = 0

export interface PgpKey {
  /** Of the primary key, in hex. */
  readonly fingerprint: string
  /** A binary OpenPGP message that only the key's owner reads. */
  encrypt(text: string): Promise<Buffer>
}

/** Reads a public key, base64 of its binary form. Throws a Refusal for anything that nothing can be encrypted to now. */
export async function readPgpKey(text: string, worker = shared): Promise<PgpKey> {
  const key = decode(text)
  if (readers >= READERS_MAX) throw new Refusal('too_many', 'too many PGP keys are being read: try again later')
  readers++
  try {
    const { fingerprint } = await worker.run({ key })
    return {
      fingerprint,
      async encrypt(plain) {
        const { message } = await worker.run({ key, plain: new TextEncoder().encode(plain) })
        return Buffer.from(message ?? [])
      },
    }
  } finally {
    readers--
  }
}

/** Reads several, one after another; the refusal says which one is meant. */
export async function readPgpKeys(texts: readonly string[]): Promise<PgpKey[]> {
  const length = texts.reduce((sum, text) => sum + text.length, 0)
  if (length > KEYS_TEXT_MAX) throw refused(`the keys together are longer than ${KEYS_TEXT_MAX} characters; ${SHORTER}`)
  const endMs = performance.now() + KEYS_MS
  const keys: PgpKey[] = []
  for (const [at, text] of texts.entries()) {
    if (performance.now() > endMs) throw refused('the keys together take too long to check: send smaller ones')
    try {
      keys.push(await readPgpKey(text))
    } catch (error) {
      if (!(error instanceof Refusal) || error.code !== 'invalid_request') throw error
      throw new Refusal('invalid_request', `PGP key ${at + 1}: ${error.message}`)
    }
  }
  return keys
}

function decode(text: string): Buffer {
  if (text.length > KEY_TEXT_MAX)
    throw refused(`error decoding given PGP key: longer than ${KEY_TEXT_MAX} characters; ${SHORTER}`)
  const trimmed = text.replaceAll(/\s/g, '')
  if (trimmed === '' || !BASE64.test(trimmed)) {
    throw refused('error decoding given PGP key: illegal base64 data: send base64 of the binary (not armored) key')
  }
  return Buffer.from(trimmed, 'base64')
}

function refused(why: string): Refusal {
  return new Refusal('invalid_request', `error parsing PGP key: ${why}`)
}
