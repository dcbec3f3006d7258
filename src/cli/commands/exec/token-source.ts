/**
 * The token of `exec`: its own login with AppRole, the token of its environment, or the token that the agent of this host stores in a
 * file. The agent renews its token, so the file is read for each request.
 *
 * The token is hidden from the program that `exec` runs. A process of the same user can read `/proc/PID/environ`, which shows the
 * initial environment of a process. So the launcher (`bin/outpost`) removes the credentials from the environment before it starts Node
 * and passes them through a pipe, which this file reads and closes before the program starts. Without the launcher, `exec` refuses to
 * start if its environment contains a credential.
 */
import { closeSync, readFileSync } from 'node:fs'
import type { LoginRole } from '../../../login/credentials.ts'
import { type StoredLogin, type LoginAddress, readLogin } from '../../../login/login-file.ts'
import { pause, type RetryOptions, retryUntilSuccess, RENEW_AFTER_PART } from '../../../login/retry.ts'
import { type LoginTransport, LoginSession } from '../../../login/session.ts'
import { isErrno, messageOf } from '../../../platform/errors.ts'
import { canonicalAddress } from '../../client/agent-target.ts'
import { requireQuickResponse, type CoreAccess, type CoreRequest } from '../../core/core-access.ts'
import { CommandError, type CommandIo } from '../../framework/define-command.ts'
import { withoutLauncherVariables } from '../../../supervisor/child-process.ts'

type RetryContext = Pick<RetryOptions, 'signal' | 'warn'>

export interface TokenSource {
  /** With the current token. */
  readonly core: CoreAccess
  /** Logs in if required. Throws after the deadline (monotonic clock). */
  begin(context: RetryContext, untilMs: number): Promise<void>
  /** Renews the token. Resolves when the signal aborts, or without need for renewal. */
  keep(context: RetryContext): Promise<void>
  /** Resolves when the token changes, and when the signal aborts. */
  another(signal: AbortSignal): Promise<void>
  /** Revokes the token of an own login. Throws if no server is reachable or the token is unknown. */
  end(signal: AbortSignal): Promise<void>
}

/** Interval of reads of the agent's file while its token is refused. */
const FILE_POLL_MS = 1000
const RENEW_SELF: CoreRequest = { method: 'PUT', path: 'auth/token/renew-self', body: {} }

function withToken(core: CoreAccess, token: string | undefined, tokenFrom?: string): CoreAccess {
  return { ...core, target: { ...core.target, token, tokenFrom } }
}

/** The token of the environment. */
export function givenToken(core: CoreAccess, isRenewed: boolean): TokenSource {
  return {
    core,
    begin: async () => undefined,
    end: async () => undefined,
    another: untilAborted,
    async keep(context) {
      const { signal } = context
      if (!isRenewed) return
      while (!signal.aborted) {
        const step = () => requireQuickResponse(core, RENEW_SELF, signal)
        const auth = (await retryUntilSuccess(step, { ...context, what: 'renewing the token' }))?.fields.under('auth')
        const seconds = auth?.number('lease_duration') ?? 0
        if (!auth || seconds <= 0 || !auth.boolean('renewable')) return
        await pause(seconds * RENEW_AFTER_PART * 1000, signal)
      }
    },
  }
}

/** A login of this process. */
export function ownLogin(base: CoreAccess, role: LoginRole, warn: RetryOptions['warn']): TokenSource {
  const send: LoginTransport = async (question, token, signal) =>
    (
      await requireQuickResponse(
        withToken(base, token, 'the login of this command'),
        { method: 'PUT', ...question },
        signal,
      )
    ).body
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
 * The token of the agent of this host; undefined if the agent has none. `base` returns the access to the given address, else to that of
 * the agent. Throws CommandError for an unusable file, and for an address that is not that of the agent.
 */
export function agentToken(
  file: string,
  base: (agents: LoginAddress | undefined) => CoreAccess,
): TokenSource | undefined {
  const first = loginIn(file)
  if (!first) return undefined
  const core = base(first.address)
  const agentUrl = first.address && URL.parse(first.address.url)
  if (agentUrl && canonicalAddress(agentUrl) !== canonicalAddress(core.target.url)) {
    throw new CommandError(
      `no token for ${core.target.url.origin}: the token of the agent of this host is for ${agentUrl.origin}, set OUTPOST_TOKEN`,
    )
  }
  let last = first.token
  const currentToken = () => {
    try {
      return (last = readLogin(file)?.token ?? last)
    } catch {
      return last
    }
  }
  return {
    get core() {
      return withToken(core, currentToken(), file)
    },
    begin: async () => undefined,
    end: async () => undefined,
    keep: async () => undefined,
    async another(signal) {
      const before = currentToken()
      while (!signal.aborted && currentToken() === before) await pause(FILE_POLL_MS, signal)
    },
  }
}

function loginIn(file: string): StoredLogin | undefined {
  try {
    return readLogin(file)
  } catch (error) {
    // Usually the file does not exist and its directory is closed. Its permissions should not be changed.
    if (error instanceof Error && isErrno(error.cause, 'EACCES', 'EPERM')) {
      throw new CommandError(
        `no token: set OUTPOST_TOKEN or log in (the token of the agent of this host is readable by root and the agent's user only)`,
      )
    }
    throw new CommandError(`cannot use the token of the agent of this host: ${messageOf(error)}`)
  }
}

async function untilAborted(signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  signal.addEventListener('abort', () => resolve(), { once: true })
  await promise
}

/** Tokens and MFA codes. The launcher has the same list. */
const CREDENTIALS = ['OUTPOST_TOKEN', 'VAULT_TOKEN', 'NOMAD_TOKEN', 'OUTPOST_MFA', 'VAULT_MFA']
/** Variable with the descriptor of the pipe; set by the launcher. */
const DESCRIPTOR = 'OUTPOST_CREDENTIALS_FD'

/** `io` with the credentials in its environment. Throws CommandError. */
export function withCredentials(io: CommandIo): CommandIo {
  const { [DESCRIPTOR]: descriptor, ...env } = io.env
  if (descriptor !== undefined) return { ...io, env: { ...env, ...passedCredentials(Number(descriptor)) } }
  const shown = io.env === process.env ? visibleCredential() : undefined
  if (shown === undefined) return io
  throw new CommandError(
    `${shown} is visible to the command in /proc: start "outpost exec" with bin/outpost, which hides it`,
  )
}

/** The environment of the command: without credentials and without variables of the launcher. */
export function environmentOfCommand(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const rest = withoutLauncherVariables(env)
  for (const name of [...CREDENTIALS, DESCRIPTOR]) delete rest[name]
  return rest
}

function passedCredentials(descriptor: number): NodeJS.ProcessEnv {
  try {
    const lines = readFileSync(descriptor, 'utf8').split('\n').filter(Boolean)
    closeSync(descriptor)
    const given = lines.map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const)
    if (given.some(([name]) => !CREDENTIALS.includes(name))) throw new Error('a value contains a line break')
    return Object.fromEntries(given.filter(([, value]) => value !== ''))
  } catch (error) {
    throw new CommandError(`cannot read the credentials from bin/outpost: ${messageOf(error)}`)
  }
}

/** The name of a credential in the environment of this process; undefined without one. */
function visibleCredential(): string | undefined {
  const variables = readFileSync('/proc/self/environ', 'latin1').split('\0')
  return CREDENTIALS.find((name) => variables.some((each) => each.startsWith(`${name}=`) && each !== `${name}=`))
}
