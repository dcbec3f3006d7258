/**
 * Login with AppRole: how a process of a host gets and renews a token of the secrets core. An agent does it for its
 * host (`agent-login`, configured by its `secrets` block), and `outpost exec` for one program.
 *
 * A *session* is the token of one role. It logs in with the role ID and the secret ID, which `credentials` reads from their files
 * for each login; renews the token after two thirds of its lifetime; and logs in again when a renewal is refused or returns so
 * little that the maximum TTL is near. It retries without limit (`retry`), with longer pauses after a refusal, and a
 * changed credential file ends the pause. The caller provides the transport: HTTP or NATS.
 *
 * Promises. The token is in memory, and in the one file that an agent writes (`login-file`, 0600). Errors, log lines and names
 * contain no credentials and no token. The token of a session that ends regularly is revoked if a server is reachable; else it
 * expires. An unwrapped secret ID stays in memory as long as the file contains the same
 * wrapping token, because it cannot be unwrapped twice.
 *
 * Assumes that the core answers as the compatible systems do: `auth.client_token`, `lease_duration`, `renewable`.
 *
 * Failures. A process is killed after the core has answered and before the token is in the file: the token lives
 * until its TTL ends, and one use of the secret ID is lost. An agent that is killed later finds its token in the file and
 * renews it, without a secret ID. A secret ID that is used up, expired or unwrapped by another process: the session reports
 * it and retries with each new file.
 */
import { type LoginRole, CredentialFault, untilCredentialsChange, roleIdOf, secretOf } from './credentials.ts'
import { roleDigest } from './login-file.ts'
import { randomBetween, isFinal, pause, retryUntilSuccess, RENEW_AFTER_PART, RENEWED_PART_MIN } from './retry.ts'

/** A write request to the core. */
export interface LoginRequest {
  /** Below `/v1/`. */
  readonly path: string
  readonly body: Readonly<Record<string, unknown>>
}

/** Resolves to the parsed response body. Rejects with an error, which is `isFinal` for a refusal. */
export type LoginTransport = (
  question: LoginRequest,
  token: string | undefined,
  signal: AbortSignal,
) => Promise<unknown>

export interface LoginSessionOptions {
  readonly role: LoginRole
  readonly send: LoginTransport
  /** Message for the operator; never contains a secret. */
  readonly warn: (message: string) => void
  /** Token of the previous run: renewed instead of a login if possible. */
  readonly previous?: { readonly token: string; readonly role: string } | undefined
  /** Called with each new token and the `roleDigest` of its role. */
  readonly onToken?: (token: string, role: string) => void
}

interface TokenLifetime {
  readonly seconds: number
  readonly isRenewable: boolean
}

/** Renewals come earlier by a random part. */
const EARLIER_MIN = 0.9
const RENEW_SELF: LoginRequest = { path: 'auth/token/renew-self', body: {} }
const REVOKE_SELF: LoginRequest = { path: 'auth/token/revoke-self', body: {} }

export class LoginSession {
  readonly #options: LoginSessionOptions
  #token: string | undefined
  #previousLogin: LoginSessionOptions['previous']
  #lifetime: TokenLifetime = { seconds: 0, isRenewable: false }
  #unwrapped: { readonly by: string; readonly secretId: string } | undefined
  /** Monotonic expiry time of the token; infinite for one that does not expire. */
  endsAtMs = 0
  /** Error of the last attempt; undefined if it succeeded or there was none. */
  fault: unknown
  readonly failures = { login: 0, renewal: 0 }
  readonly #loginWaiters = new Set<() => void>()

  constructor(options: LoginSessionOptions) {
    this.#options = options
    this.#previousLogin = options.previous
  }

  /** Undefined before the first login. */
  get token(): string | undefined {
    return this.#token
  }

  /** Gets the first token. With `untilMs` rejects with the last error if there is no token by then, or at a refusal. */
  async begin(signal: AbortSignal, untilMs?: number): Promise<void> {
    await retryUntilSuccess(() => this.#firstLogin(signal), {
      ...this.#retryOptions(signal, 'login'),
      ...(untilMs !== undefined && { untilMs }),
    })
  }

  /** Resolves at the next login, or when the signal aborts. */
  async nextLogin(signal: AbortSignal): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    const done = () => resolve()
    this.#loginWaiters.add(done)
    signal.addEventListener('abort', done, { once: true })
    await promise
    this.#loginWaiters.delete(done)
    signal.removeEventListener('abort', done)
  }

  /** Renews the token that `begin` got. Resolves when the signal aborts, or if the token does not expire. */
  async keep(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && this.#lifetime.seconds > 0) {
      const first = this.#lifetime
      for (let { seconds } = first; !signal.aborted && seconds >= first.seconds * RENEWED_PART_MIN; ) {
        await pause(seconds * RENEW_AFTER_PART * randomBetween(EARLIER_MIN, 1) * 1000, signal)
        seconds = first.isRenewable && !signal.aborted ? await this.#renewBeforeExpiry(signal) : 0
      }
      await retryUntilSuccess(() => this.#login(signal), this.#retryOptions(signal, 'login'))
    }
  }

  /** Revokes the token. Rejects if no server is reachable or the token is unknown. */
  async revoke(signal: AbortSignal): Promise<void> {
    const token = this.#token
    this.#token = undefined
    if (token !== undefined) await this.#options.send(REVOKE_SELF, token, signal)
  }

  #retryOptions(signal: AbortSignal, step: 'login' | 'renewal') {
    const { role, warn } = this.#options
    return {
      signal,
      warn,
      what: step === 'login' ? 'login' : 'renewing the token',
      ...(this.#token !== undefined && { meanwhile: 'the last token stays in use' }),
      another: (over: AbortSignal) => untilCredentialsChange(role, over),
      onAttempt: (error: unknown) => {
        this.fault = error
        if (error !== undefined) this.failures[step]++
      },
    }
  }

  async #firstLogin(signal: AbortSignal): Promise<void> {
    const { send, role } = this.#options
    const previous = this.#previousLogin
    if (!previous) return this.#login(signal)
    const isOurs = previous.role === roleDigest(role.mount, roleIdOf(role))
    try {
      const answer = await send(isOurs ? RENEW_SELF : REVOKE_SELF, previous.token, signal)
      const term = isOurs ? authIn(answer) : undefined
      if (term) {
        this.#previousLogin = undefined
        return this.#adopt(previous.token, previous.role, term)
      }
    } catch (error) {
      if (!isFinal(error)) throw error
      // It has expired or was revoked.
    }
    this.#previousLogin = undefined
    await this.#login(signal)
  }

  async #login(signal: AbortSignal): Promise<void> {
    const { send, role } = this.#options
    const roleId = roleIdOf(role)
    const body = { role_id: roleId, secret_id: await this.#secretId(signal) }
    const auth = authIn(await send({ path: `${role.mount}/login`, body }, undefined, signal))
    if (auth?.token === undefined) throw new Error(`${role.mount}/login returned no token`)
    this.#adopt(auth.token, roleDigest(role.mount, roleId), auth)
  }

  #adopt(token: string, role: string, { isRenewable, seconds }: TokenLifetime): void {
    this.#token = token
    this.#lifetime = { seconds, isRenewable }
    this.#setExpiry(seconds)
    this.#options.onToken?.(token, role)
    for (const tell of this.#loginWaiters) tell()
  }

  #setExpiry(seconds: number): void {
    this.endsAtMs = seconds > 0 ? performance.now() + seconds * 1000 : Number.POSITIVE_INFINITY
  }

  /** Resolves to the remaining seconds; 0 if it cannot be renewed. */
  async #renewBeforeExpiry(signal: AbortSignal): Promise<number> {
    const token = this.#token ?? ''
    const { another: _, ...retryOptions } = this.#retryOptions(signal, 'renewal')
    try {
      const step = () => this.#renew(token, signal)
      const term = await retryUntilSuccess(step, { ...retryOptions, untilMs: this.endsAtMs })
      if (term) this.#setExpiry(term.seconds)
      return term?.seconds ?? 0
    } catch {
      // Refused, or not renewed before its expiry: a login follows, and reports its own error.
      return 0
    }
  }

  async #renew(token: string, signal: AbortSignal): Promise<TokenLifetime> {
    return authIn(await this.#options.send(RENEW_SELF, token, signal)) ?? { seconds: 0, isRenewable: false }
  }

  /** Throws CredentialFault, and errors of `send`. */
  async #secretId(signal: AbortSignal): Promise<string> {
    const { send, role } = this.#options
    const secret = secretOf(role)
    const { secretIdFile, wrappingPath } = role
    if (wrappingPath === undefined) return secret
    if (this.#unwrapped?.by === secret) return this.#unwrapped.secretId
    const about = (reason: string) =>
      new CredentialFault(`the wrapping token in ${secretIdFile} ${reason}`, 'the wrapped secret ID cannot be used')
    const post = async (path: string) => {
      try {
        return fieldsOf(fieldsOf(await send({ path, body: { token: secret } }, undefined, signal)).get('data'))
      } catch (error) {
        if (!isFinal(error)) throw error
        throw about('has expired or was already used: if not by this agent, destroy its secret ID and write a new one')
      }
    }
    const creationPath = (await post('sys/wrapping/lookup')).get('creation_path')
    if (creationPath !== wrappingPath)
      throw about(`was not created by ${wrappingPath}: another user may have replaced it`)
    const secretId = (await post('sys/wrapping/unwrap')).get('secret_id')
    if (typeof secretId !== 'string' || secretId === '') throw about('wraps no secret ID')
    this.#unwrapped = { by: secret, secretId }
    return secretId
  }
}

function fieldsOf(value: unknown): ReadonlyMap<string, unknown> {
  return new Map(typeof value === 'object' && value !== null ? Object.entries(value) : [])
}

/** The `auth` of a response. */
function authIn(body: unknown): (TokenLifetime & { readonly token: string | undefined }) | undefined {
  const auth = fieldsOf(fieldsOf(body).get('auth'))
  if (auth.size === 0) return undefined
  const [token, seconds] = [auth.get('client_token'), auth.get('lease_duration')]
  return {
    token: typeof token === 'string' && token !== '' ? token : undefined,
    seconds: typeof seconds === 'number' ? seconds : 0,
    isRenewable: auth.get('renewable') === true,
  }
}
