/**
 * The login of an agent: one session at a time, its token in a file for programs of this host. Changed settings start
 * a new session; until its login has succeeded the previous one continues, so that a mistake does no harm.
 */
import { isDeepStrictEqual } from 'node:util'
import { messageOf } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import type { LoginRole } from './credentials.ts'
import { type StoredLogin, type LoginAddress, readLogin, removeLogin, writeLogin } from './login-file.ts'
import { retryUntilSuccess } from './retry.ts'
import { type LoginTransport, LoginSession } from './session.ts'

export interface LoginSettings {
  readonly role: LoginRole
  /** Absent: over NATS. */
  readonly address?: LoginAddress
}

export interface AgentLoginOptions {
  readonly file: string
  readonly logger: Logger
  /** Sends requests to the core. */
  readonly send: (settings: LoginSettings) => LoginTransport
}

/** For the readiness check of the process. */
export interface LoginState {
  /** False until the first attempt has ended. */
  readonly isKnown: boolean
  /** Why programs of this host have no valid token, or will soon have none; without paths and secrets. Undefined: they have one. */
  readonly fault: string | undefined
  /** Undefined without a token; infinite for one that does not expire. */
  readonly secondsLeft: number | undefined
  readonly failures: { readonly login: number; readonly renewal: number; readonly file: number }
}

/** Timeout when the agent stops. */
const REVOKE_MS = 2000

interface ActiveSession {
  readonly session: LoginSession
  readonly settings: LoginSettings
  readonly ends: AbortController
}

export class AgentLogin {
  readonly #options: AgentLoginOptions
  #active: ActiveSession | undefined
  /** The previous session: kept until the login of the new one has succeeded. */
  #replaced: ActiveSession | undefined
  #saveAbort = new AbortController()
  #fileFault: unknown
  /** Of ended sessions. */
  readonly #failures = { login: 0, renewal: 0, file: 0 }

  constructor(options: AgentLoginOptions) {
    this.#options = options
  }

  /** Undefined without a configured login. */
  get state(): LoginState | undefined {
    const session = this.#active?.session
    if (!session) return undefined
    const { login, renewal, file } = this.#failures
    const { endsAtMs, fault, failures, token } = session
    const secondsLeft = Math.max(0, endsAtMs - performance.now()) / 1000
    return {
      isKnown: token !== undefined || fault !== undefined,
      fault: this.#faultOf(session),
      secondsLeft: token === undefined ? undefined : secondsLeft,
      failures: { login: login + failures.login, renewal: renewal + failures.renewal, file },
    }
  }

  #faultOf({ endsAtMs, fault, token }: LoginSession): string | undefined {
    const isIn = token !== undefined && endsAtMs > performance.now()
    if (fault !== undefined) return `${isIn ? 'the token is not renewed' : 'not logged in'}: ${publicTextOf(fault)}`
    if (this.#fileFault !== undefined) return 'logged in, but the token cannot be written to its file, see the log'
    return undefined
  }

  /** Starts a session or replaces its settings. Undefined ends it. */
  set(settings: LoginSettings | undefined): void {
    const { file } = this.#options
    if (!settings) {
      if (!this.#active) removeLogin(file)
      void this.stop()
      return
    }
    if (isDeepStrictEqual(settings, this.#active?.settings)) return
    const previous = this.#active ? undefined : this.#previousLogin(settings)
    const replaced = this.#active
    if (replaced) {
      this.#addFailures(replaced.session)
      // A session without a token is dropped at once.
      if (replaced.session.token === undefined) replaced.ends.abort()
      else this.#replaced = replaced
    }
    this.#start(settings, previous)
  }

  #start(settings: LoginSettings, previous: StoredLogin | undefined): void {
    const { send, logger } = this.#options
    const ends = new AbortController()
    const session = new LoginSession({
      role: settings.role,
      send: send(settings),
      warn: (message) => logger.warn(message),
      previous,
      onToken: (token, role) => {
        logger.info(token === previous?.token ? 'renewed the token of the previous run' : 'logged in', {
          mount: settings.role.mount,
        })
        this.#save({ token, role, ...(settings.address && { address: settings.address }) })
        const before = this.#replaced
        this.#replaced = undefined
        if (before) void this.#revoke(before)
      },
    })
    this.#active = { session, settings, ends }
    void keep(session, ends.signal).catch((error: unknown) =>
      logger.error('agent login stopped', { error: messageOf(error) }),
    )
  }

  /** The token of an agent that was killed, if it is for the same address: another server must not get it. */
  #previousLogin({ address }: LoginSettings): StoredLogin | undefined {
    const { file, logger } = this.#options
    try {
      const previous = readLogin(file)
      if (!previous || previous.address?.url === address?.url) return previous
      logger.warn('stored login is for another address, its token is not used and will expire')
      return undefined
    } catch (error) {
      logger.warn('the stored login is not used', { error: messageOf(error) })
      return undefined
    }
  }

  /** Retries on a full disk; meanwhile the file is removed, so that programs do not get an old token. */
  #save(login: StoredLogin): void {
    this.#saveAbort.abort()
    this.#saveAbort = new AbortController()
    const { file, logger } = this.#options
    void retryUntilSuccess(async () => writeLogin(file, login), {
      signal: this.#saveAbort.signal,
      warn: (message) => logger.warn(message),
      what: `writing ${file}`,
      meanwhile: 'programs on this host get no token',
      onAttempt: (error) => {
        this.#fileFault = error
        if (error === undefined) return
        this.#failures.file++
        removeLogin(file)
      },
    })
  }

  #addFailures({ failures }: LoginSession): void {
    this.#failures.login += failures.login
    this.#failures.renewal += failures.renewal
  }

  async #revoke({ ends, session }: ActiveSession): Promise<void> {
    ends.abort()
    try {
      await session.revoke(AbortSignal.timeout(REVOKE_MS))
    } catch (error) {
      this.#options.logger.warn('token revocation failed, the token will expire', { error: messageOf(error) })
    }
  }

  /** Removes the file, then revokes the token. */
  async stop(): Promise<void> {
    const runs = [this.#active, this.#replaced].filter((run) => run !== undefined)
    if (this.#active) this.#addFailures(this.#active.session)
    this.#active = undefined
    this.#replaced = undefined
    this.#saveAbort.abort()
    this.#fileFault = undefined
    if (runs.length > 0) removeLogin(this.#options.file)
    await Promise.all(runs.map((run) => this.#revoke(run)))
  }
}

async function keep(session: LoginSession, signal: AbortSignal): Promise<void> {
  await session.begin(signal)
  await session.keep(signal)
}

/** The public text of an error; a generic text for errors without one. */
function publicTextOf(error: unknown): string {
  const shown: unknown = error instanceof Error && 'shown' in error ? error.shown : undefined
  return typeof shown === 'string' ? shown : 'no server responds, see the log'
}
