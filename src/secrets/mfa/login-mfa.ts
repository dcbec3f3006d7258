/**
 * A second factor for logins. A login that matches an enforcement receives a token only with an MFA code: in `X-Vault-MFA` of the login
 * itself, or in a second step (`sys/mfa/validate`) that has the ID of the *pending login* and the code.
 *
 * Pending logins are in memory, limited in number and time. After a restart, or when they were evicted, the caller must log in
 * again. The second step evaluates the enforcements, the codes and (`logins/login.ts`) the user, mount and entity of that time. An ID
 * is secret, useless without a code, and valid for one token.
 */
import { randomUUID } from 'node:crypto'
import type { CommitPart } from '../../storage/barrier/storage.ts'
import { type MfaRequirement, Rejection } from '../../engines/framework/engine.ts'
import { type LoginGrant, PENDING_LOGIN_MS } from '../../engines/framework/login-grant.ts'
import type { Refusal } from '../../platform/errors.ts'
import type { Enforcement, Enforcements, LoginFacts } from './enforcement.ts'
import type { MfaCredentials } from './mfa-header.ts'
import type { CodeRequirement, CodeVerdicts, Mfa } from './mfa.ts'
import { codeFor, lockedOut, refusalReason } from './step-up.ts'

/** A login with valid credentials that still needs an MFA code. */
export interface PendingLogin {
  readonly mountUuid: string
  /** Path of the login request. */
  readonly path: string
  readonly order: Omit<LoginGrant, 'accepted' | 'refusal'>
  readonly entityId: string
}

interface ExpiringLogin extends PendingLogin {
  readonly expiresAtMs: number
}

const PENDING_MAX = 20_000
const PENDING_PER_ENTITY_MAX = 16

export interface EnforcementOutcome {
  /** Must be committed before the caller is answered. */
  readonly parts: readonly CommitPart[]
  /** Set if the login is refused. */
  readonly refusal: Refusal | undefined
}

export class LoginMfa {
  readonly #mfa: Mfa
  readonly #enforcements: Enforcements
  readonly #now: () => number
  /** By ID, in order of expiry. */
  readonly #pending = new Map<string, ExpiringLogin>()
  readonly #byEntity = new Map<string, Set<string>>()

  constructor(mfa: Mfa, enforcements: Enforcements, now: () => number) {
    this.#mfa = mfa
    this.#enforcements = enforcements
    this.#now = now
  }

  enforcementsFor(facts: LoginFacts): Enforcement[] {
    return this.#enforcements.matching(facts)
  }

  /** Stores a login for its second step and returns the requirement. */
  begin(login: PendingLogin, enforcements: readonly Enforcement[]): MfaRequirement {
    this.#evict(login.entityId)
    const id = randomUUID()
    this.#pending.set(id, { ...login, expiresAtMs: this.#now() + PENDING_LOGIN_MS })
    const ids = this.#byEntity.get(login.entityId) ?? new Set()
    this.#byEntity.set(login.entityId, ids.add(id))
    const constraints = enforcements.map(({ methodIds, name }) => {
      const methods = methodIds.flatMap((methodId) => this.#mfa.method(methodId) ?? [])
      const any = methods.map((method) => ({
        type: 'totp',
        id: method.id,
        uses_passcode: true,
        ...(method.name !== '' && { name: method.name }),
      }))
      return [name, { any }] as const
    })
    return { mfa_request_id: id, mfa_constraints: Object.fromEntries(constraints) }
  }

  #evict(entityId: string): void {
    const nowMs = this.#now()
    for (const [id, { expiresAtMs }] of this.#pending) {
      if (expiresAtMs > nowMs && this.#pending.size < PENDING_MAX) break
      this.drop(id)
    }
    const ids = this.#byEntity.get(entityId)
    const [oldest] = ids ?? []
    if (ids && oldest !== undefined && ids.size >= PENDING_PER_ENTITY_MAX) this.drop(oldest)
  }

  get pendingCount(): number {
    return this.#pending.size
  }

  find(id: string): PendingLogin | undefined {
    const login = this.#pending.get(id)
    return login && login.expiresAtMs > this.#now() ? login : undefined
  }

  drop(id: string): void {
    const entityId = this.#pending.get(id)?.entityId
    this.#pending.delete(id)
    if (entityId === undefined) return
    const ids = this.#byEntity.get(entityId)
    ids?.delete(id)
    if (ids?.size === 0) this.#byEntity.delete(entityId)
  }

  /**
   * Verifies the codes of a login synchronously. The parts must be queued before the next `await`. Each enforcement needs one valid
   * code. `refused` makes the Rejection of the first enforcement without one, from the reason.
   */
  satisfy(
    entityId: string,
    enforcements: readonly Enforcement[],
    credentials: MfaCredentials,
    refused: (enforcement: Enforcement, reason: string) => Rejection,
  ): EnforcementOutcome {
    const requirements = this.#requirementsOf(enforcements, credentials)
    const { parts, retryMs, verdicts } = this.#mfa.verify(entityId, requirements)
    const failed = enforcements.find((each) => !isSatisfied(each, verdicts))
    if (!failed) return { parts, refusal: undefined }
    const isLocked = failed.methodIds.some((id) => verdicts.get(id) === 'locked')
    const refusal = isLocked ? lockedOut(retryMs) : refused(failed, this.#reason(failed, entityId, credentials))
    return { parts, refusal }
  }

  /** One method is sufficient, so the reason is that of the methods with a code, or else with a secret. */
  #reason({ methodIds }: Enforcement, entityId: string, credentials: MfaCredentials): string {
    const methods = methodIds.flatMap((id) => this.#mfa.method(id) ?? [])
    const [first] = methods
    if (!first) return 'none of its MFA methods exists'
    const withCode = methods.filter((method) => codeFor(credentials, method) !== undefined)
    const active = methods.filter(({ id }) => this.#mfa.secretState(id, entityId) === 'active')
    const chosen = [withCode, active, [first]].find((each) => each.length > 0) ?? []
    return refusalReason(this.#mfa, { entityId, methods: chosen, credentials })
  }

  #requirementsOf(enforcements: readonly Enforcement[], credentials: MfaCredentials): CodeRequirement[] {
    const ids = new Set(enforcements.flatMap(({ methodIds }) => methodIds))
    return [...ids].flatMap((id) => {
      const method = this.#mfa.method(id)
      const code = method && codeFor(credentials, method)
      return method && code !== undefined ? [{ method, code }] : []
    })
  }

  close(): void {
    this.#pending.clear()
    this.#byEntity.clear()
  }
}

function isSatisfied({ methodIds }: Enforcement, verdicts: CodeVerdicts['verdicts']): boolean {
  return methodIds.some((id) => verdicts.get(id) === 'right')
}

/** The error of the second step in Vault's format. */
export function unsatisfied({ methodIds, name }: Enforcement, reason: string): Rejection {
  const errors = `\t* ${reason}\n\t* login MFA validation failed for methodID: [${methodIds.join(' ')}]`
  return new Rejection(403, `failed to satisfy enforcement ${name}. error: 2 errors occurred:\n${errors}\n\n`)
}
