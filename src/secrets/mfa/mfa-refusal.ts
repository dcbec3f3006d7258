/**
 * Why a request or a login that needs MFA codes is refused, in words that lead to the remedy. The caller has given a token or
 * the first factor by then, so its own state may be told: whether its entity has a secret, and whether that was confirmed.
 * What would help to guess is not told: a wrong and a used code have one text, and of several codes none is named.
 */
import type { MfaCredentials } from './mfa-header.ts'
import type { Method } from './mfa-method.ts'
import type { Mfa } from './mfa.ts'

/** The standing of an entity with the methods that it needs. */
export interface Needed {
  readonly entityId: string
  readonly methods: readonly Method[]
  readonly credentials: MfaCredentials | undefined
}

/** The first remedy that applies. `methods` has at least one method. */
export function whyRefused(mfa: Mfa, { credentials, entityId, methods }: Needed): string {
  for (const method of methods) {
    const standing = mfa.standing(method.id, entityId)
    const name = nameOf(method)
    if (standing === 'none') {
      return `the entity has no secret for the MFA method ${name}: generate one, or ask an administrator for one`
    }
    if (standing === 'unconfirmed') {
      return `the secret of the entity for the MFA method ${name} is not confirmed: confirm it with its first code`
    }
  }
  const uncovered = methods.filter((method) => codeFor(credentials, method) === undefined)
  if (uncovered.length === 0) {
    const names = methods.map(nameOf).join(' or ')
    const which = methods.length === 1 ? `MFA method ${names}` : `one of the MFA methods ${names}`
    return `the code for ${which} is wrong or was already used`
  }
  const missing = `MFA ${uncovered.length === 1 ? 'method' : 'methods'} ${uncovered.map(nameOf).join(' and ')}`
  return isForOthers(credentials, methods)
    ? `a code was sent for an unknown MFA method, and none for ${missing}`
    : `no code for ${missing} was sent`
}

/** A caller may name a method differently from the rule. */
export function codeFor(credentials: MfaCredentials | undefined, method: Method): string | undefined {
  return credentials?.get(method.name) ?? credentials?.get(method.id)
}

/** As people know it. */
export function nameOf({ id, name }: Method): string {
  return name === '' ? id : name
}

/** The names themselves are not repeated: a caller who forgets the method sends its code as the name. */
function isForOthers(credentials: MfaCredentials | undefined, methods: readonly Method[]): boolean {
  const known = new Set(methods.flatMap(({ id, name }) => [id, name]))
  return [...(credentials?.keys() ?? [])].some((name) => !known.has(name))
}
