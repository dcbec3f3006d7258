/** What an auth method tells the core of a login. */
import type { Refusal } from '../../platform/errors.ts'

export const TOKEN_TYPES = ['default', 'service', 'batch', 'default-service', 'default-batch'] as const

/** What a role or a user says about the tokens that logins get. */
export interface TokenTerms {
  readonly policies: readonly string[]
  readonly noDefaultPolicy: boolean
  /** 0: what the mount gives; so are the other times. */
  readonly ttlSeconds: number
  readonly maxTtlSeconds: number
  readonly explicitMaxTtlSeconds: number
  readonly periodSeconds: number
  /** 0: as often as one likes. */
  readonly numUses: number
  readonly boundCidrs: readonly string[]
  readonly type: (typeof TOKEN_TYPES)[number]
}

/** For so long a login that waits for a code may be finished. */
export const PENDING_LOGIN_MS = 300_000

/** What a login is good for: the core finds the entity, makes the token and answers with it. */
export interface LoginOrder {
  /** What the auth method calls the one who logs in: the alias of an entity, which is made with the first login. */
  readonly alias: { readonly name: string; readonly metadata: Readonly<Record<string, string>> | null }
  /** For people; the mount's path is put before it. */
  readonly displayName: string
  /** Shown with the token. */
  readonly metadata: Readonly<Record<string, string>> | null
  readonly terms: TokenTerms
  /** By which `renewLogin` finds what the token was given for. */
  readonly subject: string
  /**
   * Of the credentials that were right, where the method can tell later whether they still are: no secret. A login that waits for
   * a code is finished only where `renewLogin` takes it.
   */
  readonly mark?: string
  /** Names of the groups that it belongs to: external groups with an alias of that name and mount have it as a member. */
  readonly groups: readonly string[]
  /** Called where the login gives a token. */
  readonly accepted?: () => void
  /** What the caller is told where the core gives no token because of the entity: the same as for wrong credentials. */
  readonly refusal: () => Refusal
}

/** What a login is good for at its renewal. */
export interface LoginStanding {
  readonly alias: string
  readonly groups: readonly string[]
  readonly terms: TokenTerms
}

/** Failed logins of a mount, counted by the name that was tried, whether it is anybody's or not. */
export interface LoginFailures {
  isLocked(name: string): boolean
  failed(name: string): void
  /** The count begins anew. */
  succeeded(name: string): void
}
