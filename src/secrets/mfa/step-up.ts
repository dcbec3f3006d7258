/** A second factor with the request itself: what a policy rule with `mfa_methods` asks for. */
import { Rejection } from '../../engines/engine.ts'
import { Refusal } from '../../kit/errors.ts'
import type { Credentials } from './mfa-header.ts'
import type { Demand, Mfa } from './mfa.ts'

/**
 * Resolves once a right code of each of the methods was given, and is used up, durably. Rejects with a Rejection (403), whose text
 * is the same for a wrong, a used and a missing code, and with a Refusal (429) while the entity is locked out of one of them.
 */
export async function stepUp(
  mfa: Mfa,
  { entityId: givenId }: { readonly entityId: string },
  methodNames: readonly string[],
  credentials: Credentials | undefined,
): Promise<void> {
  const entityId = mfa.entityOf(givenId)
  const demands = demandsOf(mfa, methodNames, credentials)
  if (entityId === undefined || !demands) throw missing(methodNames)
  const { retryMs, verdicts } = await mfa.judgeTogether(entityId, demands)
  if (retryMs > 0) throw lockedOut(retryMs)
  if (!demands.every(({ method }) => verdicts.get(method.id) === 'right')) throw missing(methodNames)
}

/** Each method once, with its code. Undefined where one of them is not there: then no caller has what is asked for. */
function demandsOf(
  mfa: Mfa,
  methodNames: readonly string[],
  credentials: Credentials | undefined,
): Demand[] | undefined {
  const demands = new Map<string, Demand>()
  for (const name of methodNames) {
    const method = mfa.method(name)
    if (!method) return undefined
    // The caller may name it differently from the policy.
    const code = credentials?.get(method.name) ?? credentials?.get(method.id)
    demands.set(method.id, { method, code })
  }
  return [...demands.values()]
}

function missing(methodNames: readonly string[]): Rejection {
  const names = methodNames.join(', ')
  return new Rejection(
    403,
    `permission denied: a policy asks for a second factor here. Send an unused code of each of the MFA methods ${names} as X-Vault-MFA: METHOD:CODE`,
  )
}

/** While an entity is locked out of a method. */
export function lockedOut(retryMs: number): Refusal {
  const seconds = Math.max(1, Math.ceil(retryMs / 1000))
  return new Refusal('too_many', `maximum TOTP validation attempts exceeded. Please try again in ${seconds} seconds`, {
    'Retry-After': String(seconds),
  })
}
