/**
 * A checksum of each entry, so that damage to one is told where it is read, whatever the bytes are and whoever reads them.
 * It is there for accidents; against intent there is the seal of the ciphertext (`storage/barrier/cipher.ts`).
 */
import { crc32 } from 'node:zlib'

export function entryCrc(path: string, sequence: number, value: Uint8Array): number {
  return crc32(value, crc32(`${sequence} ${path}`))
}
