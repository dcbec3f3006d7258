/**
 * The login room: how a process of a host gets a token of the secrets core by AppRole, and keeps it. An agent does it for its
 * host (`agent-login`, configured by its `secrets` block), and `outpost exec` for one program.
 *
 * A *session* is one role's token. It logs in with the role ID and the secret ID, which `credentials` reads from their files
 * for each login; renews the token after two thirds of its life; and logs in anew where a renewal is refused, or gives so
 * little that the maximum is near. It never gives up: between attempts it pauses (`persistence`), longer after a refusal, and a
 * file that changes ends the pause. How a question reaches the core, over HTTP or NATS, is its caller's business.
 *
 * Promises. The token is in memory, and in the one file that an agent writes (`login-file`, 0600). No credential and no token
 * is in an error, a log line or a name. The token of a session that has ended on purpose is revoked, where a server can be
 * reached; else it ends by itself. A secret ID that was unwrapped is kept in memory as long as the file holds the same
 * wrapping token, because there is no second time to unwrap it.
 *
 * Assumes that the core answers as the compatible systems do: `auth.client_token`, `lease_duration`, `renewable`.
 *
 * What can go wrong. A process is killed after the core has answered and before the token is in the file: the token lives
 * until its TTL ends, and one use of the secret ID is gone. An agent that was killed later finds its token in the file and
 * renews it, which needs no secret ID. A secret ID that is used up, has expired or was unwrapped by another: the session says
 * so and tries again with each new file.
 */
import { type Role, CredentialFault, credentialsChanged, roleIdOf, secretOf } from './credentials.ts'
import { roleMark } from './login-file.ts'
import { between, isFinal, pause, persistently, RENEWED_AFTER, TERM_LEFT_MIN } from './persistence.ts'

/** A request to the core that writes. */
export interface Question {
  /** Below `/v1/`. */
  readonly path: string
  readonly body: Readonly<Record<string, unknown>>
}

/** Resolves with the parsed body of the answer. Rejects with an error, which is `isFinal` where the core said no. */
export type Ask = (question: Question, token: string | undefined, signal: AbortSignal) => Promise<unknown>

export interface SessionOptions {
  readonly role: Role
  readonly ask: Ask
  /** Tells the operator; never holds a secret. */
  readonly warn: (message: string) => void
  /** A token that an earlier run has left: it is renewed instead of a login, where that works. */
  readonly left?: { readonly token: string; readonly role: string } | undefined
  /** Called with each new token, and the mark of the role it was made for. */
  readonly onToken?: (token: string, role: string) => void
}

interface Term {
  readonly seconds: number
  readonly isRenewable: boolean
}

/** Renewals of one token come a little earlier than they need to, each by another part. */
const EARLIER_MIN = 0.9
const RENEW_SELF: Question = { path: 'auth/token/renew-self', body: {} }
const REVOKE_SELF: Question = { path: 'auth/token/revoke-self', body: {} }

export class Session {
  readonly #options: SessionOptions
  #token: string | undefined
  #left: SessionOptions['left']
  #term: Term = { seconds: 0, isRenewable: false }
  #unwrapped: { readonly by: string; readonly secretId: string } | undefined
  /** When the token ends, on the monotonic clock; infinite for one that does not. */
  endsAtMs = 0
  /** Why the last attempt failed; undefined when it succeeded, or there was none. */
  fault: unknown
  /** How often each step has failed. */
  readonly failures = { login: 0, renewal: 0 }
  readonly #waiting = new Set<() => void>()

  constructor(options: SessionOptions) {
    this.#options = options
    this.#left = options.left
  }

  /** The token of this moment; undefined before the first login. */
  get token(): string | undefined {
    return this.#token
  }

  /** Gets the first token. With `untilMs` throws what the last attempt threw where it cannot be had by then, or is refused. */
  async begin(signal: AbortSignal, untilMs?: number): Promise<void> {
    await persistently(() => this.#first(signal), {
      ...this.#persistence(signal, 'login'),
      ...(untilMs !== undefined && { untilMs }),
    })
  }

  /** Resolves with the next login, and when the signal aborts. */
  async nextLogin(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const done = () => resolve()
    this.#waiting.add(done)
    signal.addEventListener('abort', done, { once: true })
    await promise
    this.#waiting.delete(done)
    signal.removeEventListener('abort', done)
  }

  /** Keeps the token that `begin` got. Resolves when the signal aborts, or the token does not end. */
  async keep(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && this.#term.seconds > 0) {
      const first = this.#term
      for (let { seconds } = first; !signal.aborted && seconds >= first.seconds * TERM_LEFT_MIN; ) {
        await pause(seconds * RENEWED_AFTER * between(EARLIER_MIN, 1) * 1000, signal)
        seconds = first.isRenewable && !signal.aborted ? await this.#renewedUntilEnd(signal) : 0
      }
      await persistently(() => this.#login(signal), this.#persistence(signal, 'login'))
    }
  }

  /** Revokes the token. Throws where no server can be reached, or the token is known no more. */
  async revoke(signal: AbortSignal): Promise<void> {
    const token = this.#token
    this.#token = undefined
    if (token !== undefined) await this.#options.ask(REVOKE_SELF, token, signal)
  }

  #persistence(signal: AbortSignal, step: 'login' | 'renewal') {
    const { role, warn } = this.#options
    return {
      signal,
      warn,
      what: step === 'login' ? 'login' : 'renewing the token',
      ...(this.#token !== undefined && { meanwhile: 'the last token stays' }),
      another: (over: AbortSignal) => credentialsChanged(role, over),
      onAttempt: (error: unknown) => {
        this.fault = error
        if (error !== undefined) this.failures[step]++
      },
    }
  }

  async #first(signal: AbortSignal): Promise<void> {
    const { ask, role } = this.#options
    const left = this.#left
    if (!left) return this.#login(signal)
    const isOurs = left.role === roleMark(role.mount, roleIdOf(role))
    try {
      const answer = await ask(isOurs ? RENEW_SELF : REVOKE_SELF, left.token, signal)
      const term = isOurs ? authIn(answer) : undefined
      if (term) {
        this.#left = undefined
        return this.#take(left.token, left.role, term)
      }
    } catch (error) {
      if (!isFinal(error)) throw error
      // It has ended, or was revoked.
    }
    this.#left = undefined
    await this.#login(signal)
  }

  async #login(signal: AbortSignal): Promise<void> {
    const { ask, role } = this.#options
    const roleId = roleIdOf(role)
    const body = { role_id: roleId, secret_id: await this.#secretId(signal) }
    const auth = authIn(await ask({ path: `${role.mount}/login`, body }, undefined, signal))
    if (auth?.token === undefined) throw new Error(`${role.mount}/login gave no token`)
    this.#take(auth.token, roleMark(role.mount, roleId), auth)
  }

  #take(token: string, role: string, { isRenewable, seconds }: Term): void {
    this.#token = token
    this.#term = { seconds, isRenewable }
    this.#lives(seconds)
    this.#options.onToken?.(token, role)
    for (const tell of this.#waiting) tell()
  }

  #lives(seconds: number): void {
    this.endsAtMs = seconds > 0 ? performance.now() + seconds * 1000 : Number.POSITIVE_INFINITY
  }

  /** Seconds that the token lives on; 0 where it cannot be renewed. */
  async #renewedUntilEnd(signal: AbortSignal): Promise<number> {
    const token = this.#token ?? ''
    const { another: _, ...persistence } = this.#persistence(signal, 'renewal')
    try {
      const step = () => this.#renewed(token, signal)
      const term = await persistently(step, { ...persistence, untilMs: this.endsAtMs })
      if (term) this.#lives(term.seconds)
      return term?.seconds ?? 0
    } catch {
      // Refused, or not before its end: a login follows, and says why it fails where it does.
      return 0
    }
  }

  async #renewed(token: string, signal: AbortSignal): Promise<Term> {
    return authIn(await this.#options.ask(RENEW_SELF, token, signal)) ?? { seconds: 0, isRenewable: false }
  }

  /** Throws CredentialFault, and what `ask` throws. */
  async #secretId(signal: AbortSignal): Promise<string> {
    const { ask, role } = this.#options
    const secret = secretOf(role)
    const { secretIdFile, wrappingPath } = role
    if (wrappingPath === undefined) return secret
    if (this.#unwrapped?.by === secret) return this.#unwrapped.secretId
    const about = (reason: string) =>
      new CredentialFault(`the wrapping token in ${secretIdFile} ${reason}`, 'the wrapped secret ID cannot be used')
    const asked = async (path: string) => {
      try {
        return fieldsOf(fieldsOf(await ask({ path, body: { token: secret } }, undefined, signal)).get('data'))
      } catch (error) {
        if (!isFinal(error)) throw error
        throw about('has expired or was used before: if not by this agent, destroy its secret ID and write a new one')
      }
    }
    const made = (await asked('sys/wrapping/lookup')).get('creation_path')
    if (made !== wrappingPath)
      throw about(`was not made by ${wrappingPath}: it may have been put there by somebody else`)
    const secretId = (await asked('sys/wrapping/unwrap')).get('secret_id')
    if (typeof secretId !== 'string' || secretId === '') throw about('wraps no secret ID')
    this.#unwrapped = { by: secret, secretId }
    return secretId
  }
}

function fieldsOf(value: unknown): ReadonlyMap<string, unknown> {
  return new Map(typeof value === 'object' && value !== null ? Object.entries(value) : [])
}

/** The `auth` of an answer; undefined where it has none. */
function authIn(body: unknown): (Term & { readonly token: string | undefined }) | undefined {
  const auth = fieldsOf(fieldsOf(body).get('auth'))
  if (auth.size === 0) return undefined
  const [token, seconds] = [auth.get('client_token'), auth.get('lease_duration')]
  return {
    token: typeof token === 'string' && token !== '' ? token : undefined,
    seconds: typeof seconds === 'number' ? seconds : 0,
    isRenewable: auth.get('renewable') === true,
  }
}
