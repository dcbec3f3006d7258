/**
 * A second factor for logins. A login that an enforcement is for gets its token with a code only: with the login itself, in
 * `X-Vault-MFA`, or in a second step (`sys/mfa/validate`) that names the *pending login* by an ID and brings the code.
 *
 * Pending logins are in memory, bounded in number and in time: after a restart, or once they are dropped, the caller logs in again.
 * What holds is judged in the second step: enforcements, codes, and (`logins/login.ts`) user, mount and entity. An ID is good for
 * one token; it is a secret, though nothing without a code.
 */
import { randomUUID } from 'node:crypto'
import type { CommitPart } from '../../storage/barrier/storage.ts'
import { type MfaRequirement, Rejection } from '../../engines/framework/engine.ts'
import { type LoginGrant, PENDING_LOGIN_MS } from '../../engines/framework/login-grant.ts'
import type { Refusal } from '../../platform/errors.ts'
import type { Enforcement, Enforcements, LoginFacts } from './enforcement.ts'
import type { Credentials } from './mfa-header.ts'
import { codeFor, whyRefused } from './mfa-refusal.ts'
import type { Demand, Judgement, Mfa } from './mfa.ts'
import { lockedOut } from './step-up.ts'

/** A login whose password or secret ID was right, and whose code is missing. */
export interface PendingLogin {
  readonly mountUuid: string
  /** Of the request that began it. */
  readonly path: string
  readonly order: Omit<LoginGrant, 'accepted' | 'refusal'>
  readonly entityId: string
}

interface Kept extends PendingLogin {
  readonly expiresAtMs: number
}

const PENDING_MAX = 20_000
const PENDING_PER_ENTITY_MAX = 16

export interface Satisfaction {
  /** To be committed before the caller learns anything. */
  readonly parts: readonly CommitPart[]
  /** Set where the login is refused. */
  readonly refusal: Refusal | undefined
}

export class LoginMfa {
  readonly #mfa: Mfa
  readonly #enforcements: Enforcements
  readonly #now: () => number
  /** By ID, in the order in which they end. */
  readonly #pending = new Map<string, Kept>()
  readonly #byEntity = new Map<string, Set<string>>()

  constructor(mfa: Mfa, enforcements: Enforcements, now: () => number) {
    this.#mfa = mfa
    this.#enforcements = enforcements
    this.#now = now
  }

  enforcementsFor(facts: LoginFacts): Enforcement[] {
    return this.#enforcements.for(facts)
  }

  /** Keeps a login for its second step, and says what that needs. */
  begin(login: PendingLogin, enforcements: readonly Enforcement[]): MfaRequirement {
    this.#makeRoom(login.entityId)
    const id = randomUUID()
    this.#pending.set(id, { ...login, expiresAtMs: this.#now() + PENDING_LOGIN_MS })
    const own = this.#byEntity.get(login.entityId) ?? new Set()
    this.#byEntity.set(login.entityId, own.add(id))
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

  #makeRoom(entityId: string): void {
    const nowMs = this.#now()
    for (const [id, { expiresAtMs }] of this.#pending) {
      if (expiresAtMs > nowMs && this.#pending.size < PENDING_MAX) break
      this.drop(id)
    }
    const own = this.#byEntity.get(entityId)
    const [oldest] = own ?? []
    if (own && oldest !== undefined && own.size >= PENDING_PER_ENTITY_MAX) this.drop(oldest)
  }

  get pendingCount(): number {
    return this.#pending.size
  }

  find(id: string): PendingLogin | undefined {
    const found = this.#pending.get(id)
    return found && found.expiresAtMs > this.#now() ? found : undefined
  }

  drop(id: string): void {
    const entityId = this.#pending.get(id)?.entityId
    this.#pending.delete(id)
    if (entityId === undefined) return
    const own = this.#byEntity.get(entityId)
    own?.delete(id)
    if (own?.size === 0) this.#byEntity.delete(entityId)
  }

  /**
   * Judges codes for a login, in this turn: the parts must be queued before the next `await`. Each enforcement needs one right
   * code. `refused` makes the refusal of the first that has none, from what is missing (`mfa-refusal.ts`).
   */
  satisfy(
    entityId: string,
    enforcements: readonly Enforcement[],
    credentials: Credentials,
    refused: (enforcement: Enforcement, why: string) => Rejection,
  ): Satisfaction {
    const demands = this.#demandsOf(enforcements, credentials)
    const { parts, retryMs, verdicts } = this.#mfa.judge(entityId, demands)
    const failed = enforcements.find((each) => !isSatisfied(each, verdicts))
    if (!failed) return { parts, refusal: undefined }
    const isLocked = failed.methodIds.some((id) => verdicts.get(id) === 'locked')
    return { parts, refusal: isLocked ? lockedOut(retryMs) : refused(failed, this.#why(failed, entityId, credentials)) }
  }

  /** One method is enough, so a method that the caller has a code for, or else one with a secret, says what is missing. */
  #why({ methodIds }: Enforcement, entityId: string, credentials: Credentials): string {
    const methods = methodIds.flatMap((id) => this.#mfa.method(id) ?? [])
    const [first] = methods
    if (!first) return 'none of its MFA methods exists'
    const withCode = methods.filter((method) => codeFor(credentials, method) !== undefined)
    const active = methods.filter(({ id }) => this.#mfa.standing(id, entityId) === 'active')
    const chosen = [withCode, active, [first]].find((each) => each.length > 0) ?? []
    return whyRefused(this.#mfa, { entityId, methods: chosen, credentials })
  }

  #demandsOf(enforcements: readonly Enforcement[], credentials: Credentials): Demand[] {
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

function isSatisfied({ methodIds }: Enforcement, verdicts: Judgement['verdicts']): boolean {
  return methodIds.some((id) => verdicts.get(id) === 'right')
}

/** In the second step, in the frame that clients of the compatible system know. */
export function unsatisfied({ methodIds, name }: Enforcement, why: string): Rejection {
  const errors = `\t* ${why}\n\t* login MFA validation failed for methodID: [${methodIds.join(' ')}]`
  return new Rejection(403, `failed to satisfy enforcement ${name}. error: 2 errors occurred:\n${errors}\n\n`)
}
