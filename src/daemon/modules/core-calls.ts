/** Calls of this process to a secrets core of another one: to resolve a token, to log in, and those that a server forwards. */
import { randomUUID } from 'node:crypto'
import type { Forwarder } from '../../cluster/rpc/forwarder.ts'
import { FINAL_HOPS, parseGrants, RESOLVE_TOKEN } from '../../cluster/trust/token-operations.ts'
import type { LoginRequest } from '../../login/session.ts'
import { Refusal } from '../../platform/errors.ts'
import type { AnyEndpoint, Call, Grants, WholeAnswer } from '../../platform/operation.ts'
import { AGENT_LOGIN, CORE_READ } from '../../secrets/request/core-endpoints.ts'

/** Timeout for resolving a token by a server. */
const ASK_TIMEOUT_MS = 5000
/** The body has the state; a status of 5xx would count as a failed request of the core. */
const HEALTH_CODES: readonly (readonly [string, string])[] = [
  'sealedcode',
  'uninitcode',
  'drsecondarycode',
  'haunhealthycode',
].map((name) => [name, '200'] as const)

export interface CoreCallsOptions {
  readonly forwarder: Forwarder
  /** An agent calls any server; a server without a core calls one with a core. */
  readonly isServer: boolean
  /** ID of this run on the bus. */
  readonly id: string
}

/** One server with a secrets core. */
export interface CoreTarget {
  readonly serverId: string
  readonly signal: AbortSignal
}

export class CoreCalls {
  readonly #options: CoreCallsOptions
  /** On a member of an HA cluster: ID of the active server. */
  activeServerId: (() => string | undefined) | undefined

  constructor(options: CoreCallsOptions) {
    this.#options = options
  }

  get #group(): 'core' | 'any' {
    return this.#options.isServer ? 'core' : 'any'
  }

  /** The permissions of a token. Rejects with a Refusal. */
  async grantsOf(token: string, remote: string | undefined, again: boolean): Promise<Grants> {
    const { forwarder, isServer } = this.#options
    const query: [string, string][] = again ? [['again', 'true']] : []
    const input = { params: {}, query, headers: {}, body: undefined }
    const signal = AbortSignal.timeout(ASK_TIMEOUT_MS)
    const to = { nodeId: undefined, group: this.#group, ...this.#activeOnly() } as const
    const call = { operation: RESOLVE_TOKEN, input, requestId: 'resolve', token, signal }
    // An address from an agent proves nothing, so agents send none.
    const seen = isServer ? remote : undefined
    try {
      return parseGrants(await forwarder.value({ ...to, ...call, remote: seen }))
    } catch (error) {
      // A member asks again: another server may be active soon.
      if (to.serverId !== undefined && !isAnswered(error)) throw noActive()
      // The timeout of this process, not a caller that disconnected.
      if (signal.aborted) throw new Refusal('no_answer', 'the server does not respond, try again')
      throw error
    }
  }

  /** A member of an HA cluster asks the active one. Throws a Refusal while there is none. */
  #activeOnly(): { readonly serverId?: string; readonly hops: number } {
    if (!this.activeServerId) return { hops: 0 }
    const serverId = this.activeServerId()
    if (serverId === undefined || serverId === this.#options.id) throw noActive()
    return { serverId, hops: FINAL_HOPS }
  }

  /** Sends a request of this agent's own login. Rejects with a Refusal if no server can be reached. */
  async agentLogin(question: LoginRequest, token: string | undefined, signal: AbortSignal): Promise<WholeAnswer> {
    const input = { params: { path: question.path }, query: [], headers: {}, body: JSON.stringify(question.body) }
    const call = { operation: AGENT_LOGIN.name, requestId: randomUUID(), hops: 0, input, token, signal }
    try {
      return await this.#options.forwarder.whole({ nodeId: undefined, group: this.#group, ...call })
    } catch (error) {
      if (signal.aborted) throw new Refusal('no_answer', 'the server does not respond')
      throw error
    }
  }

  /** Sends a call to the secrets core of one server: its answer, or its stream. Rejects with a Refusal. */
  async forwardTo({ serverId, signal }: CoreTarget, endpoint: AnyEndpoint, call: Call): Promise<unknown> {
    const { draining, hops, raw: input, remote, requestId, token } = call
    const { forwarder } = this.#options
    const to = { nodeId: undefined, group: 'core', serverId } as const
    const body = endpoint.takesStream ? { body: bodyOf(call) } : {}
    const request = {
      ...to,
      operation: endpoint.name,
      input,
      requestId,
      hops,
      signal,
      token,
      remote,
      draining,
      ...body,
    }
    if (endpoint.output === 'stream') return forwarder.stream(request)
    return endpoint.output === 'answer' ? forwarder.wholeOrStreamed(request) : forwarder.answer(request)
  }

  /** The health of the secrets core of another server. Rejects with a Refusal if none answers. */
  health(signal: AbortSignal): Promise<WholeAnswer> {
    const input = { params: { path: 'sys/health' }, query: HEALTH_CODES, headers: {}, body: undefined }
    const common = { nodeId: undefined, group: 'core', operation: CORE_READ, requestId: 'health', hops: 0 } as const
    return this.#options.forwarder.whole({ ...common, input, token: undefined, signal })
  }
}

/** The body is requested from the client only once the server takes it. */
async function* bodyOf(call: Call): AsyncGenerator<Uint8Array> {
  if (call.body) yield* call.body
}

function noActive(): Refusal {
  return new Refusal('not_active', 'no server of the cluster is active, try again')
}

/** True for the active server's own answer about a token. A server whose core is sealed has stepped down. */
function isAnswered(error: unknown): boolean {
  return !(error instanceof Refusal) || error.code === 'permission_denied'
}
