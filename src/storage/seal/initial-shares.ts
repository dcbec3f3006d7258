/** The shares of an initialization: validation of the request, and creation of the shares. */
import { Fault, Refusal } from '../../platform/errors.ts'
import type { PgpKey } from './pgp.ts'
import { checkSplit, type ShareSplit, splitKey } from './shares.ts'

export interface InitialSplit extends ShareSplit {
  /** One per share, or empty. */
  readonly pgpKeys: readonly string[]
}

export interface InitRequest {
  /** Shares of the unseal key, for the shamir seal. 0 when not given. */
  readonly unseal: InitialSplit
  /** Shares of the recovery key, for the static seal. */
  readonly recovery: InitialSplit
  /** Empty: the root token is returned in plaintext. */
  readonly rootTokenPgpKey: string
}

export interface InitialKeys {
  /** Shares, or PGP messages with their hex form. */
  readonly keys: readonly Buffer[]
  readonly recoveryKeys: readonly Buffer[]
  /** The token, or a PGP message with it in base64. */
  readonly rootToken: string
}

/** Returns the requested split for this type of seal. Throws a Refusal for an invalid request. */
export function checkInit(type: 'shamir' | 'static', { unseal, recovery }: InitRequest): InitialSplit {
  const isShamir = type === 'shamir'
  const [requested, other, prefix] = isShamir ? [unseal, recovery, 'recovery'] : [recovery, unseal, 'secret']
  const inapplicable = [
    ...(other.shares === 0 ? [] : [`${prefix}_shares`]),
    ...(other.threshold === 0 ? [] : [`${prefix}_threshold`]),
    ...(other.pgpKeys.length === 0 ? [] : [isShamir ? 'recovery_pgp_keys' : 'pgp_keys']),
  ]
  if (inapplicable.length > 0) {
    throw new Refusal('invalid_request', `parameters ${inapplicable.join(',')} not applicable to seal type ${type}`)
  }
  const what = isShamir ? 'seal configuration' : 'recovery configuration'
  checkSplit(requested, what)
  if (requested.pgpKeys.length > 0 && requested.pgpKeys.length !== requested.shares) {
    const why = 'count mismatch between number of provided PGP keys and number of shares'
    throw new Refusal('invalid_request', `invalid ${what}: ${why}`)
  }
  return requested
}

/** Splits a key. Each share is encrypted to the PGP key of its holder, if there are PGP keys. */
export async function sharesFor(key: Buffer, split: ShareSplit, holders: readonly PgpKey[]): Promise<Buffer[]> {
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
