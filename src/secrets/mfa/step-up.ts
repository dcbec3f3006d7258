/** A second factor with the request itself: what a policy rule with `mfa_methods` asks for. */
import { Rejection } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'
import type { MfaCredentials } from './mfa-header.ts'
import type { Method } from './mfa-method.ts'
import { codeFor, nameOf, whyRefused } from './mfa-refusal.ts'
import type { Mfa } from './mfa.ts'

/**
 * Resolves once a right code of each of the methods was given, and is used up, durably. Rejects with a Rejection (403) that says
 * what is missing (`mfa-refusal.ts`), and with a Refusal (429) while the entity is locked out of one of them.
 */
export async function stepUp(
  mfa: Mfa,
  { entityId: givenId }: { readonly entityId: string },
  methodNames: readonly string[],
  credentials: MfaCredentials | undefined,
): Promise<void> {
  const entityId = mfa.entityOf(givenId)
  if (entityId === undefined) throw denied(methodNames, 'this token belongs to no entity that could have an MFA secret')
  const methods = methodsOf(mfa, methodNames)
  const demands = methods.map((method) => ({ method, code: codeFor(credentials, method) }))
  const { retryMs, verdicts } = await mfa.judgeTogether(entityId, demands)
  if (retryMs > 0) throw lockedOut(retryMs)
  if (methods.every(({ id }) => verdicts.get(id) === 'right')) return
  throw denied(methods.map(nameOf), whyRefused(mfa, { entityId, methods, credentials }))
}

/** Each method once. Throws a Rejection where one of them is not there: then no caller has what is asked for. */
function methodsOf(mfa: Mfa, methodNames: readonly string[]): Method[] {
  const methods = new Map<string, Method>()
  for (const name of methodNames) {
    const method = mfa.method(name)
    if (!method) throw new Rejection(403, `permission denied: the policy names the unknown MFA method ${name}`)
    methods.set(method.id, method)
  }
  return [...methods.values()]
}

/** Commands look for the words between "second factor" and the header, and show `why` in their own. */
function denied(methodNames: readonly string[], why: string): Rejection {
  const names = methodNames.join(', ')
  return new Rejection(
    403,
    `permission denied: ${why}. A policy asks for a second factor here: send an unused code of each of the MFA methods ${names} as X-Vault-MFA: METHOD:CODE`,
  )
}

/** While an entity is locked out of a method. */
export function lockedOut(retryMs: number): Refusal {
  const seconds = Math.max(1, Math.ceil(retryMs / 1000))
  return new Refusal('too_many', `maximum TOTP validation attempts exceeded. Please try again in ${seconds} seconds`, {
    'Retry-After': String(seconds),
  })
}
