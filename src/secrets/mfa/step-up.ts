/**
 * A second factor with the request itself, for policy rules with `mfa_methods`, and the reasons of refusals for requests and logins.
 * The caller has given a token or the first factor by then, so a reason may state whether its entity has a secret and whether that was
 * confirmed. A reason must not help to guess codes: a wrong and a used code have the same text, and of several codes none is named.
 */
import { Rejection } from '../../engines/framework/engine.ts'
import { Refusal } from '../../platform/errors.ts'
import type { MfaCredentials } from './mfa-header.ts'
import type { TotpMethod } from './mfa-method.ts'
import type { Mfa } from './mfa.ts'

/**
 * Resolves when a valid code of each method was given and its use is durable. Rejects with a Rejection (403) that has the reason, and
 * with a Refusal (429) while the entity is locked out of a method.
 */
export async function stepUp(
  mfa: Mfa,
  { entityId: givenId }: { readonly entityId: string },
  methodNames: readonly string[],
  credentials: MfaCredentials | undefined,
): Promise<void> {
  const entityId = mfa.entityOf(givenId)
  if (entityId === undefined) throw denied(methodNames, 'this token has no entity, and only entities have MFA secrets')
  const methods = requireMethods(mfa, methodNames)
  const requirements = methods.map((method) => ({ method, code: codeFor(credentials, method) }))
  const { retryMs, verdicts } = await mfa.verifyTogether(entityId, requirements)
  if (retryMs > 0) throw lockedOut(retryMs)
  if (methods.every(({ id }) => verdicts.get(id) === 'right')) return
  throw denied(methods.map(nameOf), refusalReason(mfa, { entityId, methods, credentials }))
}

/** Removes duplicates. Throws a Rejection for an unknown method, which no caller can satisfy. */
function requireMethods(mfa: Mfa, methodNames: readonly string[]): TotpMethod[] {
  const methods = new Map<string, TotpMethod>()
  for (const name of methodNames) {
    const method = mfa.method(name)
    if (!method) throw new Rejection(403, `permission denied: the policy names the unknown MFA method ${name}`)
    methods.set(method.id, method)
  }
  return [...methods.values()]
}

/** Commands match the text between "second factor" and the header, and show `reason` in their own text. */
function denied(methodNames: readonly string[], reason: string): Rejection {
  const names = methodNames.join(', ')
  return new Rejection(
    403,
    `permission denied: ${reason}. A policy requires a second factor: send an unused code of each of the MFA methods ${names} as X-Vault-MFA: METHOD:CODE`,
  )
}

/** For an entity that is locked out of a method. */
export function lockedOut(retryMs: number): Refusal {
  const seconds = Math.max(1, Math.ceil(retryMs / 1000))
  return new Refusal('too_many', `maximum TOTP validation attempts exceeded. Please try again in ${seconds} seconds`, {
    'Retry-After': String(seconds),
  })
}

/** The entity and the codes of a refused request or login. */
export interface RefusedFactor {
  readonly entityId: string
  /** At least one method. */
  readonly methods: readonly TotpMethod[]
  readonly credentials: MfaCredentials | undefined
}

/** The reason with the first remedy that applies. */
export function refusalReason(mfa: Mfa, { credentials, entityId, methods }: RefusedFactor): string {
  for (const method of methods) {
    const state = mfa.secretState(method.id, entityId)
    const name = nameOf(method)
    if (state === 'none') {
      return `the entity has no secret for the MFA method ${name}: generate one, or ask an administrator for one`
    }
    if (state === 'unconfirmed') {
      return `the secret of the entity for the MFA method ${name} is not confirmed: confirm it with its first code`
    }
  }
  const uncovered = methods.filter((method) => codeFor(credentials, method) === undefined)
  if (uncovered.length === 0) {
    const names = methods.map(nameOf).join(' or ')
    const noun = methods.length === 1 ? `MFA method ${names}` : `one of the MFA methods ${names}`
    return `the code for ${noun} is wrong or was already used`
  }
  const missing = `MFA ${uncovered.length === 1 ? 'method' : 'methods'} ${uncovered.map(nameOf).join(' and ')}`
  return isForOthers(credentials, methods)
    ? `a code was sent for another or an unknown MFA method, and none for ${missing}`
    : `no code for ${missing} was sent`
}

/** A caller may use the ID of a method that the rule names, or its name. */
export function codeFor(credentials: MfaCredentials | undefined, method: TotpMethod): string | undefined {
  return credentials?.get(method.name) ?? credentials?.get(method.id)
}

function nameOf({ id, name }: TotpMethod): string {
  return name === '' ? id : name
}

/** The given names are not repeated in errors: a caller who forgets the method sends its code as the name. */
function isForOthers(credentials: MfaCredentials | undefined, methods: readonly TotpMethod[]): boolean {
  const known = new Set(methods.flatMap(({ id, name }) => [id, name]))
  return [...(credentials?.keys() ?? [])].some((name) => !known.has(name))
}
