/** What an initialisation asks for: who gets which shares, and whether that can be. */
import { Fault, Refusal } from '../../platform/errors.ts'
import type { PgpKey } from './pgp.ts'
import { checkSplit, type Split, splitKey } from './shares.ts'

export interface InitialSplit extends Split {
  /** One for each share, or none. */
  readonly pgpKeys: readonly string[]
}

export interface InitRequest {
  /** Of the unseal key: for the shamir seal. 0 where it was not given. */
  readonly unseal: InitialSplit
  /** Of the recovery key: for the static seal. */
  readonly recovery: InitialSplit
  /** Empty: the root token is given as it is. */
  readonly rootTokenPgpKey: string
}

export interface InitialKeys {
  /** Shares, or the PGP messages that hold their hex form. */
  readonly keys: readonly Buffer[]
  readonly recoveryKeys: readonly Buffer[]
  /** The token, or base64 of the PGP message that holds it. */
  readonly rootToken: string
}

/** How the one key that such a seal gives to people is to be divided. Throws a Refusal for what cannot be. */
export function checkInit(type: 'shamir' | 'static', { unseal, recovery }: InitRequest): InitialSplit {
  const isShamir = type === 'shamir'
  const [wanted, other, prefix] = isShamir ? [unseal, recovery, 'recovery'] : [recovery, unseal, 'secret']
  const wrong = [
    ...(other.shares === 0 ? [] : [`${prefix}_shares`]),
    ...(other.threshold === 0 ? [] : [`${prefix}_threshold`]),
    ...(other.pgpKeys.length === 0 ? [] : [isShamir ? 'recovery_pgp_keys' : 'pgp_keys']),
  ]
  if (wrong.length > 0) {
    throw new Refusal('invalid_request', `parameters ${wrong.join(',')} not applicable to seal type ${type}`)
  }
  const what = isShamir ? 'seal configuration' : 'recovery configuration'
  checkSplit(wanted, what)
  if (wanted.pgpKeys.length > 0 && wanted.pgpKeys.length !== wanted.shares) {
    const why = 'count mismatch between number of provided PGP keys and number of shares'
    throw new Refusal('invalid_request', `invalid ${what}: ${why}`)
  }
  return wanted
}

/** The shares of a key, each for its holder where holders gave PGP keys. */
export async function sharesFor(key: Buffer, split: Split, holders: readonly PgpKey[]): Promise<Buffer[]> {
  const parts = await splitKey(key, split)
  if (holders.length === 0) return parts
  try {
    return await Promise.all(
      parts.map((part, at) => {
        const holder = holders[at]
        if (!holder) throw new Fault('there are fewer PGP keys than shares')
        return holder.encrypt(part.toString('hex'))
      }),
    )
  } finally {
    for (const part of parts) part.fill(0)
  }
}
