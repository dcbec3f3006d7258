/**
 * Identity of a caller, on an agent that has servers: the tokens of its own configuration first, every other token is
 * looked up by a server. The answer is remembered for a short time:
 *
 * - For `freshMs` it is used without another question.
 * - After that a server is asked again. Only while no server answers, the last answer is used, at most `ttlMs` after it was
 *   given: a network that is down must not lock an operator out of a host at once.
 * - Never past the expiry of the token. A token with a limited number of uses is never remembered: each use is a question.
 * - Not after the secrets core was sealed: a server that says so, or `forget`, empties the memory.
 *
 * A caller whose answer lasts is checked again (`recheck`): a server is asked, however fresh the memory is.
 *
 * So a token that is revoked is refused `freshMs` later, or `ttlMs` later while no server answers.
 *
 * Only hashes of tokens are kept. A token that a server refuses is remembered too, for a moment, so that a caller who
 * tries again and again asks the server once.
 */
import { createHash } from 'node:crypto'
import { Refusal, unknownToken } from '../../platform/errors.ts'
import type { Grants, Identity } from '../../platform/operation.ts'
import type { Authorizer, OwnAuthorizer } from './authorizer.ts'
import { TIMINGS } from '../nats/timings.ts'

/** As many as the compatible system keeps. */
const REMEMBERED_MAX = 1024
const RECHECK_MIN_MS = 250

interface Remembered {
  /** Undefined: a server refused it. */
  readonly identity: Identity | undefined
  /** Until then no server is asked. */
  readonly freshUntilMs: number
  /** Until then it may be used while no server answers. */
  readonly usableUntilMs: number
}

interface Told {
  readonly identity: Identity
  /** False for a token with a limited number of uses: the answer is for the call that asked, and for no other. */
  readonly isShared: boolean
}

export interface AskingOptions {
  readonly own: OwnAuthorizer
  /**
   * Asks a server. Rejects with a Refusal: `permission_denied` for an unknown token, `sealed` when the secrets core is
   * sealed, anything else when no server answered. `again`: the caller was admitted before, no use of the token is taken.
   */
  readonly ask: (token: string, remote: string | undefined, again: boolean) => Promise<Grants>
  readonly identityOf: (grants: Grants) => Identity
  /** How long an answer is used without asking again; never longer than `ttlMs`. */
  readonly freshMs: number
  /** How long after it was given an answer may be used while no server answers. 0 remembers nothing. */
  readonly ttlMs: number
  /** Monotonic time in milliseconds; `performance.now` unless given. */
  readonly now?: () => number
}

export interface AskingAuthorizer extends Authorizer {
  /** Forgets every answer: the secrets core was sealed. */
  forget(): void
}

export function createAskingAuthorizer(options: AskingOptions): AskingAuthorizer {
  const { own, now = () => performance.now() } = options
  const memory = new Memory(now)
  const questions = new Questions(options, memory, now)
  return {
    forget: () => memory.forget(),
    resolve(token, remote) {
      const known = own.find(token)
      if (known || token === undefined) return known ?? own.resolve(token)
      const key = keyOf(token, remote)
      const before = memory.get(key)
      if (before && now() < before.freshUntilMs) {
        if (before.identity) return before.identity
        throw unknownToken()
      }
      return questions.identityOf({ token, remote, key, again: false })
    },
    recheck(token, remote) {
      const known = own.find(token)
      if (known || token === undefined) return known ?? own.resolve(token)
      return questions.identityOf({ token, remote, key: keyOf(token, remote), again: true })
    },
    recheckMs: Math.min(TIMINGS.recheckMaxMs, Math.max(RECHECK_MIN_MS, options.ttlMs)),
  }
}

function keyOf(token: string, remote: string | undefined): string {
  return createHash('sha256')
    .update(`${remote ?? ''} ${token}`, 'utf8')
    .digest('base64')
}

interface Question {
  readonly token: string
  readonly remote: string | undefined
  readonly key: string
  readonly again: boolean
}

class Memory {
  readonly #entries = new Map<string, Remembered>()
  readonly #now: () => number
  /** Counts `forget`: an answer to a question that was asked before is not remembered. */
  generation = 0

  constructor(now: () => number) {
    this.#now = now
  }

  get(key: string): Remembered | undefined {
    return this.#entries.get(key)
  }

  set(key: string, entry: Remembered): void {
    this.#entries.delete(key)
    this.#entries.set(key, entry)
    const [oldest] = this.#entries.keys()
    if (this.#entries.size > REMEMBERED_MAX && oldest !== undefined) this.#entries.delete(oldest)
  }

  delete(key: string): void {
    this.#entries.delete(key)
  }

  /** What may still be used while no server answers. */
  usable(key: string): Identity | undefined {
    const entry = this.#entries.get(key)
    if (entry && this.#now() < entry.usableUntilMs) return entry.identity
    this.#entries.delete(key)
    return undefined
  }

  forget(): void {
    this.generation++
    this.#entries.clear()
  }
}

/** Questions to a server; one at a time for each token. */
class Questions {
  readonly #options: AskingOptions
  readonly #memory: Memory
  readonly #now: () => number
  readonly #asking = new Map<string, Promise<Told>>()

  constructor(options: AskingOptions, memory: Memory, now: () => number) {
    this.#options = options
    this.#memory = memory
    this.#now = now
  }

  async identityOf(asked: Question): Promise<Identity> {
    const { key } = asked
    const underway = this.#asking.get(key)
    if (underway) {
      const { identity, isShared } = await underway
      return isShared ? identity : await this.identityOf(asked)
    }
    const question = this.#ask(asked)
    this.#asking.set(key, question)
    return (await question).identity
  }

  async #ask({ token, remote, key, again }: Question): Promise<Told> {
    const [askedAtMs, askedIn] = [this.#now(), this.#memory.generation]
    try {
      const grants = await this.#options.ask(token, remote, again)
      return this.#take(key, grants, askedAtMs, askedIn)
    } catch (error) {
      return this.#withoutGrants(key, error)
    } finally {
      this.#asking.delete(key)
    }
  }

  /** `askedAtMs` is before the question was sent, so the token's expiry is never taken for later than it is. */
  #take(key: string, grants: Grants, askedAtMs: number, askedIn: number): Told {
    const { freshMs, identityOf, ttlMs } = this.#options
    const identity = identityOf(grants)
    const isShared = grants.isUseLimited !== true
    if (isShared && askedIn === this.#memory.generation) {
      const usableUntilMs = askedAtMs + Math.min(ttlMs, grants.expiresInMs ?? Number.POSITIVE_INFINITY)
      const freshUntilMs = Math.min(usableUntilMs, askedAtMs + freshMs)
      this.#memory.set(key, { identity, freshUntilMs, usableUntilMs })
    } else this.#memory.delete(key)
    return { identity, isShared }
  }

  #withoutGrants(key: string, error: unknown): Told {
    const code = error instanceof Refusal ? error.code : undefined
    if (code === 'permission_denied') {
      const untilMs = this.#now() + Math.min(TIMINGS.refusedTokenMs, this.#options.ttlMs)
      this.#memory.set(key, { identity: undefined, freshUntilMs: untilMs, usableUntilMs: untilMs })
      throw error
    }
    if (code === 'sealed') {
      this.#memory.forget()
      throw error
    }
    const identity = this.#memory.usable(key)
    if (identity) return { identity, isShared: true }
    // A server that cannot tell either says why.
    if (code === 'unavailable') throw error
    throw new Refusal('unavailable', 'no server answers who this token belongs to, try again')
  }
}
