/** The public key of a NATS user in its text form: base32 of a prefix byte, 32 bytes and a CRC-16 (XMODEM). */

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

/** True for `U` and 55 more characters whose checksum is right. */
export function isUserKey(text: string): boolean {
  if (!/^U[A-Z2-7]{55}$/.test(text)) return false
  const bytes = Buffer.alloc(35)
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
  return crc16(bytes.subarray(0, 33)) === bytes.readUInt16LE(33)
}

function crc16(bytes: Uint8Array): number {
  let crc = 0
  for (const byte of bytes) {
    crc ^= byte << 8
    for (let bit = 0; bit < 8; bit++) crc = ((crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021) & 0xffff
  }
  return crc
}
