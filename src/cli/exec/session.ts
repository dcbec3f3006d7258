/**
 * With which token `exec` asks: the one of its environment, or one that it gets by AppRole and keeps in memory alone. Such a
 * one is renewed after two thirds of its life; where that does not go on for long enough, it logs in anew, for ever.
 */
import { statSync } from 'node:fs'
import { messageOf } from '../../kit/errors.ts'
import { bytesOf } from '../../kit/own-file.ts'
import { CommandError } from '../command-shape.ts'
import { briefly, type CoreAccess, type CoreRequest } from '../secrets/core-access.ts'
import { FinalFault, pause, type Persistence, persistently, RENEWED_AFTER, TERM_LEFT_MIN } from './persistence.ts'

export interface AppRole {
  /** Of the auth method, as `auth/approle`. */
  readonly mount: string
  readonly roleId: string
  readonly secretIdFile: string
}

type Watching = Pick<Persistence, 'signal' | 'warn'>

interface Term {
  readonly seconds: number
  readonly isRenewable: boolean
}

export class Session {
  readonly #base: CoreAccess
  readonly #role: AppRole | undefined
  #token: string | undefined
  #term: Term = { seconds: 0, isRenewable: false }
  readonly #waiting: (() => void)[] = []

  constructor(base: CoreAccess, role: AppRole | undefined) {
    this.#base = base
    this.#role = role
  }

  /** With the token of this moment. */
  get core(): CoreAccess {
    const token = this.#token
    if (token === undefined) return this.#base
    return { ...this.#base, target: { ...this.#base.target, token, tokenFrom: 'the login of this command' } }
  }

  /** Gets the first token where one is to be got. Throws CommandError when it cannot be had by then. */
  async begin(watching: Watching, untilMs: number): Promise<void> {
    if (this.#role) await persistently(() => this.#login(watching.signal), { ...watching, what: 'login', untilMs })
  }

  async #login(signal: AbortSignal): Promise<void> {
    if (!this.#role) return
    const { mount, roleId, secretIdFile } = this.#role
    const body = { role_id: roleId, secret_id: secretIn(secretIdFile) }
    // Whatever token there is, a login takes none.
    const bare = { ...this.#base, target: { ...this.#base.target, token: undefined, tokenFrom: undefined } }
    const { fields } = await briefly(bare, { method: 'POST', path: `${mount}/login`, body }, signal)
    const auth = fields.under('auth')
    const token = auth.text('client_token')
    if (token === '') throw new CommandError(`${mount}/login gave no token`)
    this.#token = token
    this.#term = { seconds: auth.number('lease_duration'), isRenewable: auth.boolean('renewable') }
    for (const tell of this.#waiting.splice(0)) tell()
  }

  /** Resolves with the next login. */
  nextLogin(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve))
  }

  /** Keeps the token that `begin` got. Resolves when the signal aborts, or the token does not end. */
  async keepLogin(watching: Watching): Promise<void> {
    const { signal } = watching
    while (!signal.aborted && this.#role && this.#term.seconds > 0) {
      const first = this.#term
      for (let { seconds } = first; !signal.aborted && seconds >= first.seconds * TERM_LEFT_MIN; ) {
        await pause(seconds * RENEWED_AFTER * 1000, signal)
        seconds = first.isRenewable ? await this.#renewed(watching, seconds) : 0
      }
      await persistently(() => this.#login(signal), { ...watching, what: 'login' })
    }
  }

  /** Seconds that the token lives on; 0 where it cannot be renewed. */
  async #renewed({ signal, warn }: Watching, seconds: number): Promise<number> {
    const untilMs = performance.now() + seconds * (1 - RENEWED_AFTER) * 1000
    try {
      const step = () => briefly(this.core, RENEW_SELF, signal)
      const answer = await persistently(step, { signal, warn, what: 'renewing the token', untilMs })
      return answer?.fields.under('auth').number('lease_duration') ?? 0
    } catch (error) {
      if (error instanceof CommandError) return 0
      throw error
    }
  }

  /** Renews a token that was given, as long as it can be. Resolves when the signal aborts or there is nothing to renew. */
  async keepGiven(watching: Watching): Promise<void> {
    const { signal } = watching
    while (!signal.aborted) {
      const step = () => briefly(this.core, RENEW_SELF, signal)
      const answer = await persistently(step, { ...watching, what: 'renewing the token' })
      const auth = answer?.fields.under('auth')
      const seconds = auth?.number('lease_duration') ?? 0
      if (!auth || seconds <= 0 || !auth.boolean('renewable')) return
      await pause(seconds * RENEWED_AFTER * 1000, signal)
    }
  }
}

const RENEW_SELF: CoreRequest = { method: 'PUT', path: 'auth/token/renew-self', body: {} }

/** Read again for each login: it may have been replaced. Throws CommandError. */
function secretIn(file: string): string {
  try {
    const wide = (statSync(file).mode & 0o077) !== 0
    if (wide) throw new FinalFault(`others can read ${file}: chmod 600 ${file}`)
    return bytesOf(file).toString('utf8').trim()
  } catch (error) {
    if (error instanceof CommandError) throw error
    throw new FinalFault(`the secret ID cannot be read: ${messageOf(error)}`)
  }
}
