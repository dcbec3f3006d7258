/** `SHA256SUMS` in the format of `sha256sum`, and its Ed25519 signature, which `openssl pkeyutl` verifies. */
import { createHash, createPrivateKey, sign } from 'node:crypto'
import { readFileSync } from 'node:fs'

export interface NamedContent {
  readonly name: string
  readonly content: Buffer
}

export function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}

export function checksums(files: readonly NamedContent[]): string {
  return files
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .map(({ name, content }) => `${sha256(content)}  ${name}\n`)
    .join('')
}

/** The key file is PEM, made by `openssl genpkey -algorithm ed25519`. */
export function signatureOf(text: string, keyFile: string): Buffer {
  let key
  try {
    key = createPrivateKey(readFileSync(keyFile))
  } catch (error) {
    // The message of OpenSSL could quote the file.
    throw new Error(`${keyFile} is not a private key in PEM format without a passphrase`, { cause: error })
  }
  if (key.asymmetricKeyType !== 'ed25519') throw new Error(`${keyFile} is not an Ed25519 key`)
  return sign(null, Buffer.from(text), key)
}
