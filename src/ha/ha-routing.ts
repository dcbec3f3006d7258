/**
 * Routing of requests for secrets between the members: the active server serves them, a standby forwards them to it over NATS. While there
 * is no active server, or it is not known, requests wait.
 *
 * An answer of the active server is sent only if its lease was valid after the answer was computed: until then no other server can have been
 * active, so the answer is current. A read that was interrupted by a change of the active server is repeated. A write is repeated only
 * if it certainly was not executed; otherwise its caller receives an error that says that the outcome is unknown.
 */
import { Refusal } from '../platform/errors.ts'
import { type AnyOperation, type Call, WholeAnswer } from '../platform/operation.ts'
import type { HaServer } from './ha-server.ts'

/** A request waits this long for an active server. */
const HELD_MS = 30_000
/** Time for the next attempt when nothing is reported meanwhile. */
const RETRY_MS = 100
/** Time for the answer of a server that is not active any more to a write. */
const LAST_ANSWER_MS = 1000
/** A request that was forwarded so often is not forwarded again. */
const FORWARDED_MAX = 2
const READS = new Set(['secrets.read', 'secrets.list', 'secrets.scan'])
/** Served by each server for itself. */
const OWN_PATHS = /^sys\/(?:health|leader|seal-status|seal|unseal|init)$/

const IDLE_LOOK_MS = 20

interface RoutedRequest {
  /** Runs it on this server. */
  readonly run: () => Promise<unknown>
  readonly path: string
  readonly isRead: boolean
  readonly endMs: number
}

export interface ForwardTarget {
  readonly serverId: string
  readonly signal: AbortSignal
}

export interface HaRoutingOptions {
  readonly server: Pick<
    HaServer,
    'isServing' | 'lead' | 'lease' | 'onChange' | 'phase' | 'release' | 'stepDownIfRequested' | 'trouble'
  >
  /** This server as a member of the cluster. */
  readonly serverId: () => string
  readonly coreState: () => 'uninitialized' | 'sealed' | 'unsealed'
  /** The header `X-Vault-Index` for the newest state. */
  readonly state: () => string
  /** The answer of this standby from its own entries; undefined if the request must be forwarded. Never rejects. */
  readonly answerHere: (operationName: string, call: Call) => Promise<WholeAnswer | undefined>
  /** Sends a call to the server with this ID, until `signal` aborts. Rejects with a Refusal. */
  readonly forward: (operation: AnyOperation, call: Call, to: ForwardTarget) => Promise<WholeAnswer>
}

export class HaRouting {
  readonly #options: HaRoutingOptions
  /** Requests in progress. */
  #held = 0

  constructor(options: HaRoutingOptions) {
    this.#options = options
  }

  /** Resolves when no request is in progress, or after `ms`. */
  async idle(ms: number): Promise<void> {
    const endMs = performance.now() + ms
    while (this.#held > 0 && performance.now() < endMs) await this.#change(IDLE_LOOK_MS)
  }

  /** The operation for any member. */
  routed(operation: AnyOperation): AnyOperation {
    const run = (input: unknown, call: Call, about: unknown) => this.#serve(operation, input, call, about)
    // A standby knows no token, and forwards the body.
    const takesLongBody = (token: string | undefined, remote: string | undefined) =>
      !this.#options.server.isServing || (operation.takesLongBody?.(token, remote) ?? true)
    return { ...operation, takesLongBody, run }
  }

  async #serve(operation: AnyOperation, input: unknown, call: Call, about: unknown): Promise<unknown> {
    const { coreState } = this.#options
    const { raw } = call
    const path = (raw.params['path'] ?? '').replace(/\/+$/, '')
    const isRead = READS.has(operation.name)
    const runHere = async () => await operation.run(input, call, about)
    if (path === 'sys/init' && !isRead && coreState() === 'uninitialized') return this.#initialize(runHere)
    const endMs = performance.now() + HELD_MS
    this.#held++
    try {
      return await this.#untilAnswered(operation, { run: runHere, path, isRead, endMs }, call)
    } finally {
      this.#held--
    }
  }

  async #untilAnswered(
    operation: AnyOperation,
    { endMs, isRead, path, run }: RoutedRequest,
    call: Call,
  ): Promise<unknown> {
    const { coreState, server } = this.#options
    for (;;) {
      if (OWN_PATHS.test(path) || coreState() !== 'unsealed') return run()
      const outcome = server.isServing
        ? await this.#serveHere(run, isRead)
        : await this.#forward(operation, call, isRead)
      if (outcome !== undefined) return outcome.answer
      if (call.signal.aborted) throw new Refusal('unavailable', 'the caller has disconnected')
      if (performance.now() > endMs) throw this.#noActive()
      await this.#change(Math.min(RETRY_MS, endMs - performance.now()), call.signal)
    }
  }

  async #initialize(run: () => Promise<unknown>): Promise<unknown> {
    const { server } = this.#options
    await server.lead()
    try {
      return await run()
    } finally {
      await server.release('initialized')
    }
  }

  /** Undefined when the request must be repeated. */
  async #serveHere(run: () => Promise<unknown>, isRead: boolean): Promise<{ answer: unknown } | undefined> {
    const { server } = this.#options
    const term = server.lease?.term
    const answer = await run()
    // NATS may be late with a renewal of the lease.
    while (!server.isServing && server.phase === 'active' && server.lease?.term === term) {
      await this.#change(RETRY_MS)
    }
    const isSameTerm = server.isServing && server.lease?.term === term
    // The caller receives the answer after the effect.
    await server.stepDownIfRequested()
    if (isSameTerm) return { answer: isRead ? answer : this.#withState(answer) }
    const status = answer instanceof WholeAnswer ? answer.status : 200
    // A refusal may depend on a state that was not the newest.
    if (isRead || (status >= 400 && status < 500)) return undefined
    // Committed: the stream has acknowledged it. Other outcomes are unknown to the caller.
    return { answer: status >= 500 ? unknownOutcome('changed') : answer }
  }

  /** Adds the state that includes the change, which the client may require of a later read. */
  #withState(answer: unknown): unknown {
    if (!(answer instanceof WholeAnswer) || answer.status >= 300) return answer
    const headers = { ...answer.headers, 'X-Vault-Index': this.#options.state() }
    return new WholeAnswer(answer.status, headers, answer.body, answer.accessor)
  }

  /** Undefined when the request must be repeated. */
  async #forward(operation: AnyOperation, call: Call, isRead: boolean): Promise<{ answer: unknown } | undefined> {
    const { forward, serverId, server } = this.#options
    const target = server.lease?.holder?.serverId
    if (target === undefined || target === serverId()) return undefined
    const answer = isRead && call.hops === 0 ? await this.#options.answerHere(operation.name, call) : undefined
    if (answer) return { answer }
    if (call.hops >= FORWARDED_MAX) throw notActive()
    const moved = new AbortController()
    let giveUp: NodeJS.Timeout | undefined
    const stopWatching = server.onChange(() => {
      const holder = server.lease?.holder?.serverId
      if (holder === target) return
      // A server that steps down still answers what it has begun.
      if (isRead) moved.abort()
      else if (holder !== undefined) giveUp ??= setTimeout(() => moved.abort(), LAST_ANSWER_MS)
    })
    const signal = AbortSignal.any([call.signal, moved.signal])
    try {
      return { answer: await forward(operation, call, { serverId: target, signal }) }
    } catch (error) {
      if (!(error instanceof Refusal) || call.signal.aborted) throw error
      const wasNotSent = error.code === 'not_active' || error.code === 'not_connected'
      if (wasNotSent || (isRead && isLost(error))) return undefined
      const isSame = server.lease?.holder?.serverId === target
      if (isLost(error)) return { answer: unknownOutcome(isSame ? 'did not respond' : 'changed') }
      throw error
    } finally {
      stopWatching()
      clearTimeout(giveUp)
    }
  }

  #noActive(): Refusal {
    const { trouble } = this.#options.server
    const why =
      trouble === undefined ? 'no server of the cluster is active' : `no server of the cluster is active: ${trouble}`
    return new Refusal('unavailable', `${why}; "outpost status" on each server shows its state`, { 'Retry-After': '1' })
  }

  /** Resolves when something may have changed, or after `ms`. */
  async #change(ms: number, signal?: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = () => {
        clearTimeout(timer)
        stopListening()
        signal?.removeEventListener('abort', done)
        resolve()
      }
      const timer = setTimeout(done, Math.max(1, ms))
      const stopListening = this.#options.server.onChange(done)
      signal?.addEventListener('abort', done, { once: true })
    })
  }
}

export function notActive(): Refusal {
  return new Refusal('not_active', 'this server is not the active one of its cluster, try again')
}

function isLost({ code }: Refusal): boolean {
  return code === 'unavailable' || code === 'no_answer'
}

function unknownOutcome(what: 'changed' | 'did not respond'): WholeAnswer {
  const text = `the active server ${what} while the request was executed: it is unknown whether it had an effect, read before you repeat it`
  const headers = { 'Content-Type': 'application/json', 'Retry-After': '1' }
  return new WholeAnswer(503, headers, `${JSON.stringify({ errors: [text] })}\n`)
}
