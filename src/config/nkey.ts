/** The public key of a NATS user in its text form: base32 of a prefix byte, 32 bytes and a checksum. */
import { fromPublic } from '@nats-io/nkeys'

/** True for `U` and 55 more characters whose checksum is right. */
export function isUserKey(text: string): boolean {
  if (!/^U[A-Z2-7]{55}$/.test(text)) return false
  try {
    fromPublic(text)
    return true
  } catch {
    return false
  }
}
