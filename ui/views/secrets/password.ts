const CHARACTERS = 'ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz23456789-_'
const LENGTH = 32
/** Larger bytes are ignored, so that all characters are equally likely. */
const LIMIT = 256 - (256 % CHARACTERS.length)

/** 32 random characters, without those that look alike: more than 180 bits. */
export function generatePassword(): string {
  let password = ''
  while (password.length < LENGTH) {
    for (const byte of crypto.getRandomValues(new Uint8Array(LENGTH))) {
      if (byte < LIMIT && password.length < LENGTH) password += CHARACTERS[byte % CHARACTERS.length]
    }
  }
  return password
}
