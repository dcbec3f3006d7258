/**
 * A test endpoint of IAM and STS. It verifies signatures, stores the state of one account, enforces the limits of AWS,
 * and fails on demand. Tests compare its state with that of the engine.
 */
import { randomUUID } from 'node:crypto'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'
import { Account, type AccessKey, type User } from './account.ts'
import { type Action, type Caller, IAM_ACTIONS } from './iam-actions.ts'
import { type Scope, verified } from './sigv4.ts'
import { SETUP_ACTIONS } from './setup-actions.ts'
import { STS_ACTIONS } from './sts-actions.ts'
import { answerXml, AwsError, errorXml, Form, type Xml } from './wire.ts'

export interface EndpointFault {
  /** Whether the action takes effect before the failure. */
  readonly when?: 'before' | 'after'
  /** The error response, if any. */
  readonly error?: AwsError
  /** No response: the connection is reset. */
  readonly isCut?: boolean
  readonly delayMs?: number
  /** Awaited before the action. */
  readonly gate?: Promise<void>
  /** Awaited before the response. */
  readonly answerGate?: Promise<void>
  /** Lists omit keys created within this number of milliseconds. */
  readonly hidesKeysMs?: number
  /** Number of affected calls; one by default. */
  readonly times?: number
}

export function throttled(): AwsError {
  return new AwsError('Throttling', 'Rate exceeded', 400)
}

export function unavailable(): AwsError {
  return new AwsError('ServiceUnavailable', 'Service is unable to handle the request.', 503)
}

export interface Journalled {
  readonly action: string
  readonly service: string
  readonly region: string
  readonly keyId: string
  readonly form: Form
  /** The AWS error code of a refused call. */
  outcome: string
}

const ALL_OF_IAM: Readonly<Record<string, Action>> = { ...IAM_ACTIONS, ...SETUP_ACTIONS }
/** Actions that need no signature. */
const UNSIGNED: ReadonlySet<string> = new Set(['AssumeRoleWithWebIdentity'])

export class AwsEndpoint {
  readonly account: Account
  readonly journal: Journalled[] = []
  /** Time of keys, users and sessions; signatures use the machine clock. */
  nowMs: () => number = Date.now
  /** Delay in milliseconds until new keys are accepted. */
  newKeyMs = 0
  /** Delay in milliseconds until new users are visible. */
  newUserMs = 0
  /** Offset of the clock that verifies signatures. */
  clockAheadMs = 0
  pageSize = 100
  /** Selects a fault for calls without a scripted one. */
  chaos: ((action: string, form: Form) => EndpointFault | undefined) | undefined
  readonly #scripts = new Map<string, { fault: EndpointFault; left: number }[]>()
  readonly #server: Server

  private constructor(account: string) {
    this.account = new Account(() => this.nowMs(), account)
    this.#server = createServer((request, response) => void this.#serve(request, response))
    this.#server.keepAliveTimeout = 60_000
  }

  /** `account`: its ID. */
  static async open(t: Pick<TestContext, 'after'>, account = '123456789012'): Promise<AwsEndpoint> {
    const endpoint = new AwsEndpoint(account)
    await endpoint.listen()
    t.after(() => endpoint.close())
    return endpoint
  }

  async listen(port = 0): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(port, '127.0.0.1', resolve))
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections()
    await new Promise((resolve) => this.#server.close(resolve))
  }

  /** Resets every connection, so that requests in progress get no response. */
  cut(): void {
    this.#server.closeAllConnections()
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`
  }

  /** Sets the fault of the next calls of an action; `*` is any action. */
  script(action: string, fault: EndpointFault): void {
    const scripts = this.#scripts.get(action) ?? []
    scripts.push({ fault, left: fault.times ?? 1 })
    this.#scripts.set(action, scripts)
  }

  unscript(): void {
    this.#scripts.clear()
    this.chaos = undefined
  }

  /** Creates a user with a key, for a root configuration. */
  root(name = 'root-user'): { readonly user: User; readonly key: AccessKey } {
    const user = this.account.addUser(name)
    return { user, key: this.account.addKey(user) }
  }

  actions(): string[] {
    return this.journal.map(({ action }) => action)
  }

  #fault(action: string, form: Form): EndpointFault | undefined {
    for (const name of [action, '*']) {
      const script = this.#scripts.get(name)?.find(({ left }) => left > 0)
      if (!script) continue
      script.left--
      return script.fault
    }
    return this.chaos?.(action, form)
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = []
    request.on('error', () => undefined)
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const body = Buffer.concat(chunks).toString('utf8')
    const requestId = randomUUID()
    const form = new Form(body)
    const action = form.optional('Action') ?? ''
    const fault = this.#fault(action, form)
    if (fault?.gate) await fault.gate
    if (fault?.delayMs !== undefined) await new Promise((resolve) => setTimeout(resolve, fault.delayMs))
    const isBefore = fault !== undefined && (fault.when ?? 'before') === 'before'
    const failing = fault?.error !== undefined || fault?.isCut === true
    const answer =
      failing && isBefore
        ? { status: 0, xml: '', service: '' }
        : await this.#answered(request, { action, body, form, hidesKeysMs: fault?.hidesKeysMs ?? 0 }, requestId)
    if (fault?.answerGate) await fault.answerGate
    if (fault?.isCut) {
      request.socket.destroy()
      return
    }
    const error = fault?.error
    const [status, xml] = error ? [error.status, errorXml(error, requestId)] : [answer.status, answer.xml]
    if (error && isBefore) this.#note(action, '', form, undefined, error.code)
    response.writeHead(status, { 'content-type': 'text/xml', 'x-amzn-requestid': requestId })
    response.end(xml)
  }

  #note(action: string, service: string, form: Form, scope: Scope | undefined, outcome: string): void {
    this.journal.push({ action, service, region: scope?.region ?? '', keyId: scope?.keyId ?? '', form, outcome })
  }

  async #answered(
    { headers, method = '', url = '' }: IncomingMessage,
    { action, body, form, hidesKeysMs }: { action: string; body: string; form: Form; hidesKeysMs: number },
    requestId: string,
  ): Promise<{ status: number; xml: string }> {
    const service = Object.hasOwn(STS_ACTIONS, action) ? 'sts' : 'iam'
    let scope: Scope | undefined
    try {
      scope = verified({ method, url, headers, body }, (keyId) => this.#secretOf(keyId), Date.now() + this.clockAheadMs)
      const run = this.#run({ action, service, form, scope, hidesKeysMs })
      // An effect is recorded at once, before any delay.
      const result = run instanceof Promise ? await run : run
      this.#note(action, service, form, scope, '')
      return { status: 200, xml: answerXml(service, action, result, requestId) }
    } catch (error) {
      if (!(error instanceof AwsError)) throw error
      this.#note(action, service, form, scope, error.code)
      return { status: error.status, xml: errorXml(error, requestId) }
    }
  }

  #run(of: {
    action: string
    service: string
    form: Form
    scope: Scope | undefined
    hidesKeysMs: number
  }): Xml | Promise<Xml> {
    const { action, form, scope, service } = of
    const table: Readonly<Record<string, Action>> = service === 'sts' ? STS_ACTIONS : ALL_OF_IAM
    const run = Object.hasOwn(table, action) ? table[action] : undefined
    const version = service === 'sts' ? '2011-06-15' : '2010-05-08'
    if (!run || form.optional('Version') !== version) {
      throw new AwsError('InvalidAction', `Could not find operation ${action} for version ${form.optional('Version')}`)
    }
    if (!scope && !UNSIGNED.has(action)) throw new AwsError('MissingAuthenticationToken', 'no signature', 403)
    if (scope && scope.service !== service) {
      throw new AwsError('SignatureDoesNotMatch', `Credential should be scoped to correct service: '${service}'.`, 403)
    }
    const caller = this.#caller(scope)
    const denied = caller.user?.denied.has(action) === true
    if (denied) {
      const who = this.account.arn('user', '/', caller.user?.name ?? '')
      throw new AwsError('AccessDenied', `User: ${who} is not authorized to perform: ${service}:${action}`, 403)
    }
    this.#checkSeen(action, form)
    const nowMs = this.nowMs()
    const keysUntilMs = of.hidesKeysMs > 0 ? nowMs - of.hidesKeysMs : Number.POSITIVE_INFINITY
    return run({ account: this.account, form, caller, pageSize: this.pageSize, nowMs, keysUntilMs })
  }

  /** A new user is not visible everywhere at once. */
  #checkSeen(action: string, form: Form): void {
    const name = form.optional('UserName')
    const user = name === undefined ? undefined : this.account.users.get(name)
    if (!user || action === 'CreateUser' || this.nowMs() - user.createdAtMs >= this.newUserMs) return
    throw new AwsError('NoSuchEntity', `The user with name ${user.name} cannot be found.`, 404)
  }

  #secretOf(keyId: string): string {
    const unknown = new AwsError('InvalidClientTokenId', 'The security token included in the request is invalid.', 403)
    const session = this.account.sessions.get(keyId)
    if (session) return session.secret
    const owner = this.account.keyOwner(keyId)
    if (!owner || owner.key.status !== 'Active') throw unknown
    if (this.nowMs() - owner.key.createdAtMs < this.newKeyMs) throw unknown
    return owner.key.secret
  }

  #caller(scope: Scope | undefined): Caller {
    if (!scope) return { keyId: '', user: undefined, session: undefined }
    const { keyId, sessionToken } = scope
    const session = this.account.sessions.get(keyId)
    if (!session) return { keyId, user: this.account.keyOwner(keyId)?.user, session }
    if (session.token !== sessionToken) {
      throw new AwsError('InvalidClientTokenId', 'The security token included in the request is invalid.', 403)
    }
    if (session.expiresAtMs <= this.nowMs()) {
      throw new AwsError('ExpiredToken', 'The security token included in the request is expired', 403)
    }
    return { keyId, user: session.user === undefined ? undefined : this.account.users.get(session.user), session }
  }
}
