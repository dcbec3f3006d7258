/**
 * The login of an agent: one session at a time, its token in a file for programs of this host. Settings that change are taken
 * over with a login of their own; until that has succeeded the session before goes on, so that a mistake costs nothing.
 */
import { isDeepStrictEqual } from 'node:util'
import { messageOf } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import type { Role } from './credentials.ts'
import { type KeptLogin, type LoginAddress, readLogin, removeLogin, writeLogin } from './login-file.ts'
import { persistently } from './persistence.ts'
import { type Ask, Session } from './session.ts'

export interface LoginSettings {
  readonly role: Role
  /** Absent: over NATS. */
  readonly address?: LoginAddress
}

export interface AgentLoginOptions {
  readonly file: string
  readonly logger: Logger
  /** How a question reaches the core. */
  readonly ask: (settings: LoginSettings) => Ask
}

/** What the readiness of the process has of it. */
export interface LoginState {
  /** False until the first attempt is over. */
  readonly isKnown: boolean
  /** Why programs of this host have no good token, or soon will not, without paths and secrets; undefined: they have one. */
  readonly fault: string | undefined
  /** Undefined where there is no token; infinite for one that does not end. */
  readonly secondsLeft: number | undefined
  readonly failures: { readonly login: number; readonly renewal: number; readonly file: number }
}

/** For a server to answer when the agent stops. */
const REVOKE_MS = 2000

interface Run {
  readonly session: Session
  readonly settings: LoginSettings
  readonly ends: AbortController
}

export class AgentLogin {
  readonly #options: AgentLoginOptions
  #run: Run | undefined
  /** Goes on until the login after it has succeeded. */
  #before: Run | undefined
  #saving = new AbortController()
  #fileFault: unknown
  /** Of sessions that are over. */
  readonly #failures = { login: 0, renewal: 0, file: 0 }

  constructor(options: AgentLoginOptions) {
    this.#options = options
  }

  /** Undefined where the agent is not to log in. */
  get state(): LoginState | undefined {
    const session = this.#run?.session
    if (!session) return undefined
    const { login, renewal, file } = this.#failures
    const { endsAtMs, fault, failures, token } = session
    const left = Math.max(0, endsAtMs - performance.now()) / 1000
    return {
      isKnown: token !== undefined || fault !== undefined,
      fault: this.#faultOf(session),
      secondsLeft: token === undefined ? undefined : left,
      failures: { login: login + failures.login, renewal: renewal + failures.renewal, file },
    }
  }

  #faultOf({ endsAtMs, fault, token }: Session): string | undefined {
    const isIn = token !== undefined && endsAtMs > performance.now()
    if (fault !== undefined) return `${isIn ? 'the token is not renewed' : 'not logged in'}: ${shownOf(fault)}`
    if (this.#fileFault !== undefined) return 'logged in, but the token cannot be written to its file, the log says why'
    return undefined
  }

  /** Begins, or takes over other settings. Undefined ends it. */
  set(settings: LoginSettings | undefined): void {
    const { file } = this.#options
    if (!settings) {
      if (!this.#run) removeLogin(file)
      void this.stop()
      return
    }
    if (isDeepStrictEqual(settings, this.#run?.settings)) return
    const left = this.#run ? undefined : this.#left(settings)
    const replaced = this.#run
    if (replaced) {
      this.#count(replaced.session)
      // One that never had a token is not worth keeping.
      if (replaced.session.token === undefined) replaced.ends.abort()
      else this.#before = replaced
    }
    this.#begin(settings, left)
  }

  #begin(settings: LoginSettings, left: KeptLogin | undefined): void {
    const { ask, logger } = this.#options
    const ends = new AbortController()
    const session = new Session({
      role: settings.role,
      ask: ask(settings),
      warn: (message) => logger.warn(message),
      left,
      onToken: (token, role) => {
        logger.info(token === left?.token ? 'the token of the run before was renewed' : 'logged in', {
          mount: settings.role.mount,
        })
        this.#save({ token, role, ...(settings.address && { address: settings.address }) })
        const before = this.#before
        this.#before = undefined
        if (before) void this.#end(before)
      },
    })
    this.#run = { session, settings, ends }
    void keep(session, ends.signal).catch((error: unknown) => logger.error('login', { error: messageOf(error) }))
  }

  /** What an agent that was killed has left, where it is for the same address: another one must not learn the token. */
  #left({ address }: LoginSettings): KeptLogin | undefined {
    const { file, logger } = this.#options
    try {
      const left = readLogin(file)
      if (!left || left.address?.url === address?.url) return left
      logger.warn('the login of the run before is for another address: its token is not used, and ends by itself')
      return undefined
    } catch (error) {
      logger.warn('the login of the run before is not used', { error: messageOf(error) })
      return undefined
    }
  }

  /** On a full disk it is tried again until there is room, and programs get no token rather than an old one. */
  #save(login: KeptLogin): void {
    this.#saving.abort()
    this.#saving = new AbortController()
    const { file, logger } = this.#options
    void persistently(async () => writeLogin(file, login), {
      signal: this.#saving.signal,
      warn: (message) => logger.warn(message),
      what: `writing ${file}`,
      meanwhile: 'programs of this host get no token',
      onAttempt: (error) => {
        this.#fileFault = error
        if (error === undefined) return
        this.#failures.file++
        removeLogin(file)
      },
    })
  }

  #count({ failures }: Session): void {
    this.#failures.login += failures.login
    this.#failures.renewal += failures.renewal
  }

  async #end({ ends, session }: Run): Promise<void> {
    ends.abort()
    try {
      await session.revoke(AbortSignal.timeout(REVOKE_MS))
    } catch (error) {
      this.#options.logger.warn('the token could not be revoked, it ends by itself', { error: messageOf(error) })
    }
  }

  /** Takes the file away, then revokes the token. */
  async stop(): Promise<void> {
    const runs = [this.#run, this.#before].filter((run) => run !== undefined)
    if (this.#run) this.#count(this.#run.session)
    this.#run = undefined
    this.#before = undefined
    this.#saving.abort()
    this.#fileFault = undefined
    if (runs.length > 0) removeLogin(this.#options.file)
    await Promise.all(runs.map((run) => this.#end(run)))
  }
}

async function keep(session: Session, signal: AbortSignal): Promise<void> {
  await session.begin(signal)
  await session.keep(signal)
}

/** An error says what may be shown to everybody; of what does not, only that it is there. */
function shownOf(error: unknown): string {
  const shown: unknown = error instanceof Error && 'shown' in error ? error.shown : undefined
  return typeof shown === 'string' ? shown : 'no server answers, the log says why'
}
