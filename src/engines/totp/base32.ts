/** Base32 of RFC 4648 §6, the text form of keys. */

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567'

/** In capitals and without padding, as authenticator applications take it. */
export function base32Of(bytes: Uint8Array): string {
  let out = ''
  let bits = 0
  let held = 0
  for (const byte of bytes) {
    held = ((held << 8) | byte) & 0xfff
    for (bits += 8; bits >= 5; bits -= 5) out += ALPHABET[(held >> (bits - 5)) & 31]
  }
  return bits > 0 ? out + ALPHABET[(held << (5 - bits)) & 31] : out
}

/**
 * The bytes of a text in base32, of either case, with or without padding at its end; undefined where it is none: another
 * character, or a length that no number of bytes has. Bits that are left over are dropped.
 */
export function bytesOfBase32(text: string): Buffer | undefined {
  const characters = text.replace(/={1,6}$/, '').toUpperCase()
  if ([1, 3, 6].includes(characters.length % 8)) return undefined
  const out = Buffer.alloc(Math.floor((characters.length * 5) / 8))
  let bits = 0
  let held = 0
  let at = 0
  for (const character of characters) {
    const value = ALPHABET.indexOf(character)
    if (value < 0) return undefined
    held = ((held << 5) | value) & 0xfff
    bits += 5
    if (bits >= 8) {
      bits -= 8
      out[at++] = (held >> bits) & 0xff
    }
  }
  return out
}
