/** Logins, as auth methods report them to the core. */
import type { Refusal } from '../../platform/errors.ts'

export const TOKEN_TYPES = ['default', 'service', 'batch', 'default-service', 'default-batch'] as const

/** Settings of a role or a user for the tokens of its logins. */
export interface TokenTerms {
  readonly policies: readonly string[]
  readonly noDefaultPolicy: boolean
  /** For this and the other times 0 is the default of the mount. */
  readonly ttlSeconds: number
  readonly maxTtlSeconds: number
  readonly explicitMaxTtlSeconds: number
  readonly periodSeconds: number
  /** 0: unlimited. */
  readonly numUses: number
  readonly boundCidrs: readonly string[]
  readonly type: (typeof TOKEN_TYPES)[number]
}

/** Validity of a login that waits for an MFA code. */
export const PENDING_LOGIN_MS = 300_000

/** A successful login: the core finds the entity, creates the token and responds with it. */
export interface LoginGrant {
  /** Alias of an entity, which is created with the first login. */
  readonly alias: { readonly name: string; readonly metadata: Readonly<Record<string, string>> | null }
  /** For people. The core prepends the mount's path. */
  readonly displayName: string
  /** Shown with the token. */
  readonly metadata: Readonly<Record<string, string>> | null
  readonly terms: TokenTerms
  /** Identifies the user or role for `renewLogin`. */
  readonly subject: string
  /**
   * Identifies the credentials that were used, without being secret, if the method can check later whether they are still valid.
   * A login that waits for an MFA code is completed only if `renewLogin` accepts the mark.
   */
  readonly mark?: string
  /** Groups of the user: external groups with an alias of that name and mount have it as a member. */
  readonly groups: readonly string[]
  /** Called once the token is created. */
  readonly accepted?: () => void
  /** Used if the core denies the token because of the entity: the same error as for wrong credentials. */
  readonly refusal: () => Refusal
}

/** The current terms of a login whose token is renewed. */
export interface LoginRenewal {
  readonly alias: string
  readonly groups: readonly string[]
  readonly terms: TokenTerms
}

/** Failed logins of a mount, counted by name, whether a user has the name or not. */
export interface LoginFailures {
  isLocked(name: string): boolean
  failed(name: string): void
  /** Resets the count. */
  succeeded(name: string): void
}
