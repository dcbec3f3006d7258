/**
 * Routing of requests for secrets between the members: the active server serves them, a standby forwards them to it over NATS. While there
 * is no active server, or it is not known, requests wait.
 *
 * An answer of the active server is sent only if its lease was valid after the answer was computed: until then no other server can have been
 * active, so the answer is current. A read that was interrupted by a change of the active server is repeated. A write is repeated only
 * if it certainly was not executed; otherwise its caller is told that the outcome is unknown.
 */
import { Refusal } from '../platform/errors.ts'
import { type AnyOperation, type Call, WholeAnswer } from '../platform/operation.ts'
import type { HaServer } from './ha-server.ts'

/** A request waits this long for an active server. */
const HELD_MS = 30_000
/** Time for the next attempt when nothing is reported meanwhile. */
const RETRY_MS = 100
/** A request that was forwarded so often is not forwarded again. */
const FORWARDED_MAX = 2
const READS = new Set(['secrets.read', 'secrets.list', 'secrets.scan'])
/** Served by each server for itself. */
const OWN_PATHS = /^sys\/(?:health|leader|seal-status|seal|unseal|init)$/

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
  /** Sends a call to the server with this ID, until `signal` aborts. Rejects with a Refusal. */
  readonly forward: (operation: AnyOperation, call: Call, to: ForwardTarget) => Promise<WholeAnswer>
}

export class HaRouting {
  readonly #options: HaRoutingOptions

  constructor(options: HaRoutingOptions) {
    this.#options = options
  }

  /** The operation for any member. */
  routed(operation: AnyOperation): AnyOperation {
    const run = (input: unknown, call: Call, about: unknown) => this.#serve(operation, input, call, about)
    const { takesLongBody } = operation
    // A standby knows no token, and forwards the body.
    const takes = (token: string | undefined, remote: string | undefined) =>
      !this.#options.server.isServing || takesLongBody === undefined || takesLongBody(token, remote)
    return { ...operation, takesLongBody: takes, run }
  }

  async #serve(operation: AnyOperation, input: unknown, call: Call, about: unknown): Promise<unknown> {
    const { coreState, server } = this.#options
    const { raw } = call
    const path = (raw.params['path'] ?? '').replace(/\/+$/, '')
    const isRead = READS.has(operation.name)
    const runHere = async () => await operation.run(input, call, about)
    if (path === 'sys/init' && !isRead && coreState() === 'uninitialized') return this.#initialize(runHere)
    const endMs = performance.now() + HELD_MS
    for (;;) {
      if (OWN_PATHS.test(path) || coreState() !== 'unsealed') return runHere()
      const outcome = server.isServing
        ? await this.#serveHere(runHere, isRead)
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
    // The caller is told after the effect.
    await server.stepDownIfRequested()
    if (isSameTerm) return { answer }
    if (isRead) return undefined
    // Committed: the stream has acknowledged it. Other outcomes are unknown to the caller.
    const isRefused = answer instanceof WholeAnswer && answer.status >= 500
    return { answer: isRefused ? unknownOutcome() : answer }
  }

  /** Undefined when the request must be repeated. */
  async #forward(operation: AnyOperation, call: Call, isRead: boolean): Promise<{ answer: unknown } | undefined> {
    const { forward, serverId, server } = this.#options
    const target = server.lease?.holder?.serverId
    if (target === undefined || target === serverId()) return undefined
    if (call.hops >= FORWARDED_MAX) throw notActive()
    const moved = new AbortController()
    const stopWatching = server.onChange(() => {
      if (server.lease?.holder?.serverId !== target) moved.abort()
    })
    const signal = AbortSignal.any([call.signal, moved.signal])
    try {
      return { answer: await forward(operation, call, { serverId: target, signal }) }
    } catch (error) {
      if (!(error instanceof Refusal) || call.signal.aborted) throw error
      const wasNotSent = error.code === 'not_active' || error.code === 'not_connected'
      if (wasNotSent || (isRead && isLost(error))) return undefined
      if (isLost(error)) return { answer: unknownOutcome() }
      throw error
    } finally {
      stopWatching()
    }
  }

  #noActive(): Refusal {
    const { trouble } = this.#options.server
    const why =
      trouble === undefined ? 'no server of the cluster is active' : `no server of the cluster is active: ${trouble}`
    return new Refusal('unavailable', `${why}; sys/ha-status lists the servers`, { 'Retry-After': '1' })
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

function unknownOutcome(): WholeAnswer {
  const text =
    'the active server changed while the request was executed: it is unknown whether it had an effect, read before you repeat it'
  const headers = { 'Content-Type': 'application/json', 'Retry-After': '1' }
  return new WholeAnswer(503, headers, `${JSON.stringify({ errors: [text] })}\n`)
}
