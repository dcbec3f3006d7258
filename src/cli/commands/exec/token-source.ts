/**
 * With which token `exec` asks: its own login by AppRole, the one of its environment, or the one that the agent of this host
 * has got and leaves in a file. The agent's is read for each request, because it changes; its renewal is the agent's business.
 */
import { isErrno, messageOf } from '../../../platform/errors.ts'
import type { LoginRole } from '../../../login/credentials.ts'
import { type StoredLogin, type LoginAddress, readLogin } from '../../../login/login-file.ts'
import { pause, type RetryOptions, retryUntilSuccess, RENEW_AFTER_PART } from '../../../login/retry.ts'
import { type LoginTransport, LoginSession } from '../../../login/session.ts'
import { placeOf } from '../../client/agent-target.ts'
import { CommandError } from '../../framework/command-shape.ts'
import { briefly, type CoreAccess, type CoreRequest } from '../../core/core-access.ts'

type Watching = Pick<RetryOptions, 'signal' | 'warn'>

export interface TokenSource {
  /** With the token of this moment. */
  readonly core: CoreAccess
  /** Gets the first token where one is to be got. Throws where it cannot be had by then (monotonic clock). */
  begin(watching: Watching, untilMs: number): Promise<void>
  /** Keeps it. Resolves when the signal aborts, or there is nothing to keep. */
  keep(watching: Watching): Promise<void>
  /** Resolves when there is another token, and when the signal aborts. */
  another(signal: AbortSignal): Promise<void>
  /** Revokes a token of its own. Throws where no server can be reached, or the token is known no more. */
  end(signal: AbortSignal): Promise<void>
}

/** How often the agent's file is looked at while its token is refused. */
const LOOK_MS = 1000
const RENEW_SELF: CoreRequest = { method: 'PUT', path: 'auth/token/renew-self', body: {} }

function withToken(core: CoreAccess, token: string | undefined, tokenFrom?: string): CoreAccess {
  return { ...core, target: { ...core.target, token, tokenFrom } }
}

/** The token that the command was given. */
export function givenToken(core: CoreAccess, isRenewed: boolean): TokenSource {
  return {
    core,
    begin: async () => undefined,
    end: async () => undefined,
    another: never,
    async keep(watching) {
      const { signal } = watching
      if (!isRenewed) return
      while (!signal.aborted) {
        const step = () => briefly(core, RENEW_SELF, signal)
        const auth = (await retryUntilSuccess(step, { ...watching, what: 'renewing the token' }))?.fields.under('auth')
        const seconds = auth?.number('lease_duration') ?? 0
        if (!auth || seconds <= 0 || !auth.boolean('renewable')) return
        await pause(seconds * RENEW_AFTER_PART * 1000, signal)
      }
    },
  }
}

/** A login of this command's own; `warn` tells what goes wrong with it. */
export function ownLogin(base: CoreAccess, role: LoginRole, warn: RetryOptions['warn']): TokenSource {
  const send: LoginTransport = async (question, token, signal) =>
    (await briefly(withToken(base, token, 'the login of this command'), { method: 'PUT', ...question }, signal)).body
  const session = new LoginSession({ role, send, warn })
  return {
    get core() {
      return withToken(base, session.token, 'the login of this command')
    },
    begin: ({ signal }, untilMs) => session.begin(signal, untilMs),
    keep: ({ signal }) => session.keep(signal),
    another: (signal) => session.nextLogin(signal),
    end: (signal) => session.revoke(signal),
  }
}

/**
 * The token of the agent of this host; undefined where the agent has none. `base` gives access to an address: the given one,
 * else the agent's. Throws CommandError for a file that cannot be used, and for an address that is not the agent's.
 */
export function agentToken(
  file: string,
  base: (agents: LoginAddress | undefined) => CoreAccess,
): TokenSource | undefined {
  const first = loginIn(file)
  if (!first) return undefined
  const core = base(first.address)
  const theirs = first.address && URL.parse(first.address.url)
  if (theirs && placeOf(theirs) !== placeOf(core.target.url)) {
    const [given, own] = [core.target.url.origin, theirs.origin]
    throw new CommandError(`no token: that of the agent of this host is for ${own}, and not sent to ${given}`)
  }
  let last = first.token
  const now = () => {
    try {
      return (last = readLogin(file)?.token ?? last)
    } catch {
      return last
    }
  }
  return {
    get core() {
      return withToken(core, now(), file)
    },
    begin: async () => undefined,
    end: async () => undefined,
    keep: async () => undefined,
    async another(signal) {
      const before = now()
      while (!signal.aborted && now() === before) await pause(LOOK_MS, signal)
    },
  }
}

function loginIn(file: string): StoredLogin | undefined {
  try {
    return readLogin(file)
  } catch (error) {
    // Most often it is not there, and its directory is closed. What would open it is nothing to propose.
    if (error instanceof Error && isErrno(error.cause, 'EACCES', 'EPERM')) {
      throw new CommandError(
        `no token: set OUTPOST_TOKEN, or log in; that of the agent of this host is for root and the agent's user only`,
      )
    }
    throw new CommandError(`the token of the agent of this host cannot be used: ${messageOf(error)}`)
  }
}

async function never(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  signal.addEventListener('abort', () => resolve(), { once: true })
  await promise
}
