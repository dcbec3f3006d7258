/** PGP keys from files, as base64 of their packets, which the server accepts. */
import { readFileSync } from 'node:fs'
import { messageOf } from '../../platform/errors.ts'
import { UsageError } from '../framework/options.ts'

const ARMOUR = /-----BEGIN PGP (PUBLIC|PRIVATE) KEY BLOCK-----\r?\n([\s\S]*?)-----END PGP/
const PACKET_BIT = 0x80

/** From a comma-separated list of files. Throws UsageError. */
export function pgpKeys(list: string): string[] {
  return list.split(',').map((file) => pgpKey(file.trim()))
}

/** From an armored, binary or base64 file. Throws UsageError. */
export function pgpKey(file: string): string {
  if (file.startsWith('keybase:')) {
    throw new UsageError(`${file}: keybase is not supported, use a file (gpg --export --armor NAME > FILE)`)
  }
  const bytes = bytesOf(file)
  const text = bytes.toString('latin1')
  const [, kind, block] = ARMOUR.exec(text) ?? []
  if (kind === 'PRIVATE') throw new UsageError(`${file} contains a private key, use the public key`)
  if (block !== undefined) return armoured(block)
  const packed = text.replaceAll(/\s/g, '')
  if (/^[A-Za-z0-9+/]+={0,2}$/.test(packed)) return packed
  if (((bytes[0] ?? 0) & PACKET_BIT) === 0) throw new UsageError(`${file} does not contain a PGP key`)
  return bytes.toString('base64')
}

/** Removes headers and checksum. */
function armoured(block: string): string {
  const lines = block.split(/\r?\n/)
  const blank = lines.findIndex((line) => line.trim() === '')
  return lines
    .slice(blank + 1)
    .filter((line) => !line.startsWith('='))
    .join('')
    .replaceAll(/\s/g, '')
}

function bytesOf(file: string): Buffer {
  try {
    return readFileSync(file.replace(/^@/, ''))
  } catch (error) {
    throw new UsageError(`cannot read the PGP key: ${messageOf(error)}`, { cause: error })
  }
}
