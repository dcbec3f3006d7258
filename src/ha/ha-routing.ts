/**
 * Routing of requests for secrets between the members: the active server serves them, a standby forwards them to it over NATS. While there
 * is no active server, or it is not known, requests wait. A standby first tries to serve reads itself (`answerHere`, see
 * `daemon/standby/standby-reads.ts`).
 *
 * A response of the active server is sent only if its lease was valid after the response was computed: until then no other server can have been
 * active, so the response is current. A read that was interrupted by a change of the active server is repeated. A write is repeated only
 * if it certainly was not executed; otherwise its caller receives an error that says that the outcome is unknown. A watch continues from its cursor.
 */
import { Fault, notActive, Refusal } from '../platform/errors.ts'
import { type AnyOperation, type Call, type Chunk, StreamedAnswer, WholeAnswer } from '../platform/operation.ts'
import type { HaServer } from './ha-server.ts'
import type { ActiveLease } from './lease/lease.ts'
import { type LastingRequests, type MoveWatch, resumedStream, type ServedStream } from './resumed-stream.ts'

/** A request waits this long for an active server. */
const HELD_MS = 30_000
/** Delay before the next attempt if no change is reported. */
const RETRY_MS = 100
/** Time in which a server that has stepped down responds to a write. */
const LAST_ANSWER_MS = 1000
/** Maximum number of times that a request is forwarded. */
const FORWARDED_MAX = 2
const READS = new Set(['secrets.read', 'secrets.list', 'secrets.scan'])
const IDLE_POLL_MS = 20
/** Served by the server that receives them. */
const OWN_PATHS = /^sys\/(?:health|leader|seal-status|seal|unseal|init)$/

export interface ForwardTarget {
  readonly serverId: string
  readonly signal: AbortSignal
}

/** The role of this server, and the active one. */
export interface RoleState
  extends Pick<
    HaServer,
    'isServing' | 'acquireForInitialization' | 'onChange' | 'phase' | 'release' | 'stepDownIfRequested' | 'trouble'
  > {
  readonly lease: Pick<ActiveLease, 'holder' | 'term'> | undefined
}

export interface HaRoutingOptions {
  readonly server: RoleState
  /** This server as a member of the cluster. */
  readonly serverId: () => string
  readonly coreState: () => 'uninitialized' | 'sealed' | 'unsealed'
  /** Whether the token may have a limited number of uses. True for one that this server does not know. */
  readonly usesAreLimited: (token: string | undefined) => boolean
  /** Whether a standby accepts a long body from a caller, according to its own state. */
  readonly takesLongBody: (token: string | undefined, remote: string | undefined) => boolean
  /** The header `X-Vault-Index` for the newest state. */
  readonly state: () => string
  /** The response of this standby from its own entries; undefined if the request must be forwarded. Never rejects. */
  readonly answerHere: (operationName: string, call: Call) => Promise<WholeAnswer | undefined>
  /** Sends a call to the server with this ID, until `signal` aborts. Rejects with a Refusal. */
  readonly forward: (operation: AnyOperation, call: Call, to: ForwardTarget) => Promise<unknown>
  readonly lasting: LastingRequests
}

interface RoutedRequest {
  readonly operation: AnyOperation
  readonly call: Call
  /** Executes it here. */
  readonly run: (call: Call) => Promise<unknown>
  readonly path: string
  readonly isRead: boolean
  /** It waits for changes. */
  readonly isLasting: boolean
}

/** A response of the active server; with `moved` and `confirm` if it is a stream that lasts. */
interface Attempt extends Partial<Omit<ServedStream, 'answer'>> {
  readonly answer: unknown
}

/** Shared: an abort without a reason creates an error with a stack each time. */
const MOVED = new Error('another server is active')

export class HaRouting {
  readonly #options: HaRoutingOptions
  /** Requests in progress, without those that wait for changes. */
  #held = 0

  constructor(options: HaRoutingOptions) {
    this.#options = options
  }

  /** Resolves when no request is in progress, or after `ms`. */
  async idle(ms: number): Promise<void> {
    const endMs = performance.now() + ms
    while (this.#held > 0 && performance.now() < endMs) await this.#change(IDLE_POLL_MS)
  }

  /** The operation for any member. */
  routed(operation: AnyOperation): AnyOperation {
    const run = (input: unknown, call: Call, about: unknown) => this.#serve(operation, input, call, about)
    const takes = (token: string | undefined, remote: string | undefined) => {
      const { coreState, server, takesLongBody } = this.#options
      const isForwarded = !server.isServing && coreState() === 'unsealed'
      return isForwarded ? takesLongBody(token, remote) : (operation.takesLongBody?.(token, remote) ?? true)
    }
    if (operation.output !== 'stream') return { ...operation, takesLongBody: takes, run }
    return { ...operation, run: (input, call, about) => streamOf(run(input, call, about)) }
  }

  async #serve(operation: AnyOperation, input: unknown, call: Call, about: unknown): Promise<unknown> {
    const { coreState, lasting } = this.#options
    const { raw } = call
    const path = (raw.params['path'] ?? '').replace(/\/+$/, '')
    const isRead = READS.has(operation.name) || operation.output === 'stream'
    const run = async (now: Call) =>
      begun(await operation.run(now.raw === raw ? input : operation.input.parse(now.raw), now, about))
    const request = { operation, call, run, path, isRead, isLasting: isRead && lasting.isLasting(raw) }
    if (path === 'sys/init' && !isRead && coreState() === 'uninitialized') return this.#initialize(() => run(call))
    const first = await this.#answered(request)
    const { answer } = first
    if (!(answer instanceof StreamedAnswer) || !first.moved) return answer
    const chunks = this.#resumed(request, { ...first, answer, moved: first.moved })
    return new StreamedAnswer(answer.headers, chunks, answer.accessor)
  }

  async #answered(request: RoutedRequest): Promise<Attempt> {
    const held = request.isLasting ? 0 : 1
    this.#held += held
    try {
      return await this.#untilAnswered(request)
    } finally {
      this.#held -= held
    }
  }

  /** Executes the request at the active server. While there is none, it waits. */
  async #untilAnswered(request: RoutedRequest): Promise<Attempt> {
    const { lasting, server } = this.#options
    const { signal } = request.call
    const startedAtMs = performance.now()
    let endMs = startedAtMs + HELD_MS
    for (let { call } = request; ; ) {
      if (this.#isOwn(request)) return { answer: await request.run(call) }
      const active = server.lease?.holder?.serverId
      const attempt = server.isServing ? await this.#serveHere(request, call) : await this.#forward(request, call)
      if (attempt) return attempt
      if (signal.aborted) throw new Refusal('unavailable', 'the caller has disconnected')
      // A long poll may have waited for a minute before the active server changed.
      if (active !== undefined && active !== server.lease?.holder?.serverId) endMs = performance.now() + HELD_MS
      if (performance.now() > endMs) throw this.#noActive()
      await this.#change(Math.min(RETRY_MS, endMs - performance.now()), signal)
      if (request.isLasting) {
        const { raw } = request.call
        call = changedCall(request.call, { raw: lasting.shortened(raw, performance.now() - startedAtMs) })
      }
    }
  }

  /** True for a request that this server serves itself, active or not. Throws a Refusal for one that another server must repeat. */
  #isOwn({ call, path }: RoutedRequest): boolean {
    if (OWN_PATHS.test(path)) return true
    const { coreState, server } = this.#options
    // While the role changes, the core is closed and not sealed.
    const isChanging = server.phase === 'stepping down' || server.phase === 'taking over'
    if (coreState() === 'unsealed' || isChanging) return false
    // Sealed by an operator, and another server will be active.
    if (call.hops > 0 && server.phase === 'active') throw notActive()
    return true
  }

  async #initialize(run: () => Promise<unknown>): Promise<unknown> {
    const { server } = this.#options
    await server.acquireForInitialization()
    try {
      return await run()
    } finally {
      await server.release('initialized')
    }
  }

  /** Undefined when the request must be repeated. */
  async #serveHere(
    { call: { hops, signal }, isLasting, isRead, run }: RoutedRequest,
    call: Call,
  ): Promise<Attempt | undefined> {
    const { coreState, server } = this.#options
    const term = server.lease?.term
    const isSameTerm = () => server.phase === 'active' && server.lease?.term === term
    // NATS may be late with a renewal of the lease.
    const confirm = async () => {
      while (!server.isServing && isSameTerm() && !signal.aborted) await this.#change(RETRY_MS, signal)
      // A sealed core ends a stream: for a caller at another server, that one repeats the request.
      return server.isServing && isSameTerm() && (hops === 0 || coreState() === 'unsealed')
    }
    const usesAreLimited = this.#options.usesAreLimited(call.token)
    const moved = isLasting ? this.#watch(signal, () => !isSameTerm()) : undefined
    let isStreamed = false
    try {
      const answer = await run(moved ? changedCall(call, { signal: AbortSignal.any([signal, moved.signal]) }) : call)
      const isConfirmed = await confirm()
      // The caller receives the response after the effect.
      await server.stepDownIfRequested()
      isStreamed = isConfirmed && answer instanceof StreamedAnswer
      if (isStreamed && moved) return { answer, confirm, moved }
      if (isConfirmed) return { answer: isRead ? answer : this.#withState(answer) }
      if (answer instanceof BegunStream) await answer.close()
      const status = answer instanceof WholeAnswer ? answer.status : 200
      // A refusal may depend on a state that was not the newest. The next attempt would take another use of a limited token.
      if (!usesAreLimited && (isRead || (status >= 400 && status < 500))) return undefined
      // Committed: the stream has acknowledged it. Other outcomes are unknown to the caller.
      return { answer: isRead || status >= 400 ? unknownOutcome('changed') : answer }
    } finally {
      if (!isStreamed) moved?.stop()
    }
  }

  /** Adds the state that includes the change, which the client may require of a later read. */
  #withState(answer: unknown): unknown {
    if (!(answer instanceof WholeAnswer) || answer.status >= 300) return answer
    const headers = { ...answer.headers, 'X-Vault-Index': this.#options.state() }
    return new WholeAnswer(answer.status, headers, answer.body, answer.accessor)
  }

  /** Undefined when the request must be repeated. */
  async #forward(
    { call: { signal }, isLasting, isRead, operation }: RoutedRequest,
    call: Call,
  ): Promise<Attempt | undefined> {
    const { forward, serverId, server } = this.#options
    // Without its body, the repeated request would be a different one.
    if (call.raw.isBodyLeft) throw bodyLeft(call.token)
    const target = server.lease?.holder?.serverId
    if (target === undefined || target === serverId()) return undefined
    if (isRead && !isLasting && call.hops === 0 && operation.output === 'answer') {
      const answer = await this.#options.answerHere(operation.name, call)
      if (answer) return { answer }
    }
    if (call.hops >= FORWARDED_MAX) throw notActive()
    const holder = () => server.lease?.holder?.serverId
    // A server that steps down still responds to the requests that it has begun.
    const mayRepeat = isRead && !this.#options.usesAreLimited(call.token)
    const moved = mayRepeat
      ? this.#watch(signal, () => holder() !== target)
      : this.#watch(signal, () => holder() !== undefined && holder() !== target, LAST_ANSWER_MS)
    let isStreamed = false
    try {
      const to = { serverId: target, signal: AbortSignal.any([signal, moved.signal]) }
      const answer = await begun(await forward(operation, call, to))
      isStreamed = answer instanceof StreamedAnswer
      return { answer, moved }
    } catch (error) {
      if (!(error instanceof Refusal) || signal.aborted) throw error
      const wasNotSent = error.code === 'not_active' || error.code === 'not_connected'
      if (wasNotSent || (mayRepeat && isLost(error))) return undefined
      const isSame = holder() === target
      if (isLost(error)) return { answer: unknownOutcome(isSame ? 'did not respond' : 'changed') }
      throw error
    } finally {
      if (!isStreamed) moved.stop()
    }
  }

  /** The chunks of a stream, even after the active server has changed. */
  #resumed(request: RoutedRequest, first: ServedStream): AsyncIterable<Uint8Array> {
    const { lasting } = this.#options
    const { call } = request
    const { signal } = call
    const repeat = async (cursor: string | undefined, isMoved: boolean) => {
      // Without a change of the active server, the reason may last.
      if (!isMoved) await this.#change(RETRY_MS, signal)
      const raw = cursor === undefined ? call.raw : lasting.resumed(call.raw, cursor)
      try {
        const { answer, ...rest } = await this.#answered({ ...request, call: changedCall(call, { raw }) })
        if (answer instanceof StreamedAnswer && rest.moved) return { ...rest, answer, moved: rest.moved }
        if (answer instanceof WholeAnswer) return answer
        throw new Fault('expected a stream as the response to a streaming request')
      } catch (error) {
        // Another server repeats the request for its caller.
        if (signal.aborted || call.hops > 0 || !(error instanceof Refusal)) throw error
        return new WholeAnswer(error.status, {}, JSON.stringify({ errors: error.texts }))
      }
    }
    return resumedStream(first, { signal, requests: lasting, repeat })
  }

  /** Aborts once `hasMoved`, and `delayMs` later, unless the caller has gone. */
  #watch(signal: AbortSignal, hasMoved: () => boolean, delayMs = 0): MoveWatch {
    const moved = new AbortController()
    let timer: NodeJS.Timeout | undefined
    const abort = () => moved.abort(MOVED)
    const stop = () => {
      clearTimeout(timer)
      stopListening()
      signal.removeEventListener('abort', stop)
    }
    const stopListening = this.#options.server.onChange(() => {
      if (!hasMoved()) return
      if (delayMs === 0) abort()
      else timer ??= setTimeout(abort, delayMs)
    })
    signal.addEventListener('abort', stop, { once: true })
    return { signal: moved.signal, stop }
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

/** A stream of an operation whose first chunk has arrived: until then it can be repeated. */
class BegunStream {
  readonly #first: IteratorResult<Chunk>
  readonly #rest: AsyncIterator<Chunk>

  constructor(first: IteratorResult<Chunk>, rest: AsyncIterator<Chunk>) {
    this.#first = first
    this.#rest = rest
  }

  async *chunks(): AsyncGenerator<Chunk> {
    try {
      for (let next = this.#first; !next.done; next = await this.#rest.next()) yield next.value
    } finally {
      await this.close()
    }
  }

  async close(): Promise<void> {
    await this.#rest.return?.()
  }
}

async function begun(answer: unknown): Promise<unknown> {
  if (!isIterable(answer)) return answer
  const rest = answer[Symbol.asyncIterator]()
  return new BegunStream(await rest.next(), rest)
}

function isIterable(answer: unknown): answer is AsyncIterable<Chunk> {
  return typeof answer === 'object' && answer !== null && Symbol.asyncIterator in answer
}

async function* streamOf(answer: Promise<unknown>): AsyncGenerator<Chunk> {
  const stream = await answer
  if (!(stream instanceof BegunStream)) throw new Fault('a request for a stream has another answer')
  yield* stream.chunks()
}

/** The call with another input or signal. */
function changedCall(
  { draining, hops, identity, raw, remote, requestId, signal, token }: Call,
  changes: Partial<Pick<Call, 'raw' | 'signal'>>,
): Call {
  return { draining, hops, identity, raw, remote, requestId, signal, token, ...changes }
}

function isLost({ code }: Refusal): boolean {
  return code === 'unavailable' || code === 'no_answer'
}

/** For a long body of a caller whose token this standby does not know: it may be newer than its state. */
function bodyLeft(token: string | undefined): Refusal {
  if (token === undefined) return new Refusal('body_too_large', 'http: request body too large')
  const text =
    'this standby does not know the token yet, and accepts a body of more than 1 MiB only with a valid token: try again'
  return new Refusal('unavailable', text, { 'Retry-After': '1' })
}

function unknownOutcome(what: 'changed' | 'did not respond'): WholeAnswer {
  const text = `the active server ${what} while the request was executed: it is unknown whether it had an effect, read before you repeat it`
  const headers = { 'Content-Type': 'application/json', 'Retry-After': '1' }
  return new WholeAnswer(503, headers, `${JSON.stringify({ errors: [text] })}\n`)
}
