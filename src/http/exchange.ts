/**
 * One request and its answer, from the parsed head to the last byte: find the operation, read its input, have it invoked
 * (platform/operation.ts), write what it gives. It reads as that list; each step lives elsewhere.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Fault, Refusal } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import {
  type CallResponder,
  type AnyEndpoint,
  type Callers,
  type Chunk,
  invoke,
  JsonText,
  StreamedAnswer,
  WholeAnswer,
} from '../platform/operation.ts'
import type { RawInput } from '../platform/schema.ts'
import { LINGER_MS, plainAddress } from './connections.ts'
import { type CrossOrigin, originAnswer, preflightAnswer } from './cross-origin.ts'
import { errorAnswer, logFault } from './errors.ts'
import { asksForWebSocket, handshakeFault, offeredToken } from './handshake.ts'
import { type Meter, NO_METER, type OperationMeter } from './meter.ts'
import {
  declaredBytes,
  headFault,
  parseTarget,
  rawInput,
  readRawInput,
  type Target,
  tokenOf,
  tooLarge,
  wantsBody,
} from './request.ts'
import {
  type HeaderList,
  jsonText,
  type Outlet,
  sendEmpty,
  sendError,
  sendJson,
  sendWhole,
  withOwn,
} from './respond.ts'
import { OperationCall } from './operation-call.ts'
import type { PathLog } from './path-log.ts'
import type { Match, Router } from './router.ts'
import type { ServedHosts } from './served-hosts.ts'
import { headed, ResponseSink, sendStream } from './stream.ts'
import { Upload, type UploadPace } from './upload.ts'
import { type Acceptor, type Upgrade, WebSocketAnswer } from './websocket.ts'

/** What an exchange needs from outside; the daemon gives it. */
export interface Services extends Callers {
  readonly router: Router
  readonly logger: Logger
  /** What pages of other origins may do at endpoints that leave it to this; nothing is said where it is absent. */
  readonly crossOrigin?: () => CrossOrigin | undefined
  /** Host names that are served on loopback; absent where all are. */
  readonly servedHosts?: ServedHosts
  /** True where calls need no token. Absent means that they do. */
  readonly isOpen?: () => boolean
  /** How the access log shows paths. */
  readonly pathLog: PathLog
  /** True for paths that monitoring requests over and over: they are logged at debug. */
  readonly isProbe?: (path: string) => boolean
  /** Who counts requests; nobody when absent. */
  readonly meter?: Meter
  /** Headers of every answer, names and values in turn. */
  readonly headers: HeaderList
  /** Largest request body of any endpoint; most allow less, or none. */
  readonly bodyBytesMax: () => number
  /** How fast the callers of operations that take a stream have to send it. */
  readonly uploadPace: () => UploadPace
  /** True once the process is going down: nothing endless begins any more. */
  readonly stopping: () => boolean
}

/** Why signals abort. One object for all: an abort without a reason makes one each time, with a stack. */
const GONE = new Error('the caller is gone, or the exchange was cut')

const DRAINING = new Error('the listener drains')

/** Close codes of a WebSocket (RFC 6455 §7.4.1). */
const GOING_AWAY = 1001
const INTERNAL_ERROR = 1011

/** What a caller is told whose stream ends, or does not begin, because the process goes down. */
export function stopping(): Refusal {
  return new Refusal('unavailable', 'the agent is stopping, try again')
}

/** What the request asks for beyond an ordinary answer. */
export interface ExchangeOptions {
  /** Set when the caller waits for a word before it sends the body (`Expect: 100-continue`). */
  readonly bodyOnDemand?: boolean
  /** Set when the answer is a WebSocket. The response then only stands for the connection and is never written to. */
  readonly upgrade?: { readonly of: Upgrade; readonly acceptor: Acceptor }
}

export class Exchange implements Outlet, CallResponder {
  /** Random, as callers see it: a count would tell each how many requests the others make. */
  readonly requestId = randomUUID()
  readonly startedAtMs = performance.now()
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly headers: HeaderList
  readonly bodyOnDemand: boolean
  /** Since when a write has been waiting for the caller to take it. */
  waitingSinceMs: number | undefined
  /** True once it is known to be a stream that may stay open for as long as the caller likes. */
  endless = false
  /** Where it stands among the exchanges under way: `pipeline-queue.ts`. */
  place = 0
  readonly #services: Services
  /** Taken at the start: a connection that broke has none any more. */
  readonly remote: string | undefined
  readonly #socket: Socket
  readonly #webSocket: WebSocketAnswer | undefined
  #abort: AbortController | undefined
  #drain: AbortController | undefined
  #gone = false
  #isLongPoll = false
  /** The operation has given its whole answer. */
  #isMade = false
  /** True once an error was answered with a status. */
  #isRefused = false
  #meter: OperationMeter
  #path = ''
  #target: Target | undefined
  /** What was asked for, once it is found. */
  #match: Match | undefined
  #call: OperationCall | undefined
  /** What the answer itself says of its caller. */
  #toldAccessor: string | undefined
  #bytes = 0

  constructor(request: IncomingMessage, response: ServerResponse, services: Services, options: ExchangeOptions = {}) {
    this.request = request
    this.bodyOnDemand = options.bodyOnDemand ?? false
    this.remote = request.socket.remoteAddress
    this.#socket = request.socket
    this.headers = [...services.headers]
    this.response = response
    this.#services = services
    const { upgrade } = options
    if (upgrade) {
      const hooks = { headers: this.headers, onWaiting: this.#onWaiting, onLeft: () => this.cancel() }
      this.#webSocket = new WebSocketAnswer(upgrade.of, upgrade.acceptor, hooks)
    }
    // A client that polls again at once must not keep the connection from closing.
    if (services.stopping()) response.shouldKeepAlive = false
    this.#meter = this.#countAs('none')
  }

  /** True once the caller has been answered, with an error or with the head of what it asked for. */
  get begun(): boolean {
    return this.#webSocket?.begun ?? this.response.headersSent
  }

  /** True when all was said and only a WebSocket's caller keeps it from ending. */
  get over(): boolean {
    return this.#webSocket?.over ?? false
  }

  /** True once it was answered with an error, whole: the connection closes behind it where the request has not ended. */
  get isRefused(): boolean {
    return this.#isRefused
  }

  get #operation(): string {
    return this.#match?.operation.name ?? 'none'
  }

  get #accessor(): string {
    return this.#toldAccessor ?? this.#call?.identity.accessor ?? ''
  }

  /** The request's body. Who waits for a word before it sends one gets it now. */
  get body(): AsyncIterable<Uint8Array> {
    if (this.bodyOnDemand) this.response.writeContinue()
    // Leaving the loop must not destroy the request: that would cut the connection before it is told why.
    const bytes = this.request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
    return new Upload(bytes, this.#services.uploadPace())
  }

  /** True where the operation reads the body by itself: then it lasts for as long as the body makes progress. */
  get isUpload(): boolean {
    return this.#match?.operation.takesStream ?? false
  }

  /** True for an admitted call that waits for a change: it lasts as long as its own `wait` says. */
  get isLongPoll(): boolean {
    return this.#isLongPoll
  }

  /** Aborts when the caller is gone or the exchange is cut. Made only for operations that look at it. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController()
    if (this.#gone) this.#abort.abort(GONE)
    return this.#abort.signal
  }

  /** Aborts when the listener drains. Created only for operations that wait for a change. */
  get draining(): AbortSignal {
    this.#drain ??= new AbortController()
    if (this.#services.stopping()) this.#drain.abort(DRAINING)
    return this.#drain.signal
  }

  /** The listener drains: an endless answer breaks, an operation that waits for a change answers at once. */
  drain(): void {
    this.response.shouldKeepAlive = false
    if (this.endless && !this.#isLongPoll) this.cut(stopping())
    else this.#drain?.abort(DRAINING)
  }

  /** The answer has left, or its caller has. */
  cancel(): void {
    this.#gone = true
    // Each connection closes in the end: an operation that is done need not be told.
    if (!this.#isMade) this.#abort?.abort(GONE)
  }

  /** Ends it so that the caller can tell: a status when nothing was sent yet, a broken answer otherwise. */
  cut(refusal: Refusal): void {
    if (this.begun) this.#break(refusal)
    else this.#fail(refusal)
    this.cancel()
  }

  async serve(): Promise<void> {
    try {
      const target = parseTarget(this.request.url ?? '/', (path) => (this.#path = path))
      const fault = headFault(this.request)
      if (fault) {
        // Where the next request would begin is not known.
        if (this.request.headers['transfer-encoding'] !== undefined) this.#stopSending()
        throw fault
      }
      this.#services.servedHosts?.check(this.request)
      if (this.request.method === 'OPTIONS') this.#preflight(target)
      else await this.#dispatch(target)
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#record()
    }
  }

  #countAs(operation: string): OperationMeter {
    const meter = (this.#services.meter ?? NO_METER).operation(operation)
    meter.underway++
    return meter
  }

  async #dispatch(target: Target): Promise<void> {
    const match = this.#services.router.match(this.request.method ?? 'GET', target.path)
    const { operation } = match
    this.#match = match
    this.#target = target
    this.#meter.underway--
    this.#meter = this.#countAs(operation.name)
    if (!this.#webSocket && asksForWebSocket(this.request)) {
      // Node's parser loses what came in one piece with this head, so nothing more is answered here.
      this.#stopSending()
      throw handshakeFault(this.request, operation, this.#isOpen) ?? notAlone()
    }
    const token = this.#token()
    this.#allowOrigin(operation, token !== undefined)
    const raw = wantsBody(this.request, operation)
      ? await this.#readInput(target, match, token)
      : this.#inputWithoutBody(target, match)
    if (raw.isBodyLeft) this.#stopSending()
    this.#call = new OperationCall(this, raw, operation.open ? undefined : token)
    await invoke(operation, this.#call, this, this.#services)
  }

  admitted(isEndless: boolean, isLongPoll: boolean): void {
    this.endless = isEndless
    this.#isLongPoll = isLongPoll
    if (isEndless && !isLongPoll && this.#services.stopping()) throw stopping()
    if (this.#match) this.#leaveBody(this.#match.operation)
  }

  rightsLost(refusal: Refusal): void {
    const about = { operation: this.#operation, accessor: this.#accessor, request_id: this.requestId }
    const text = 'a stream was cut: its caller has no right to it any more'
    this.#services.logger.info(text, { ...about, reason: refusal.message })
    this.cut(refusal)
  }

  #token(): string | undefined {
    return tokenOf(this.request) ?? (this.#webSocket && offeredToken(this.request))
  }

  #readInput(target: Target, match: Match, token: string | undefined): Promise<RawInput> {
    const remote = this.remote === undefined ? undefined : plainAddress(this.remote)
    const { operation } = match
    return readRawInput(this.request, target, match, {
      bytesMax: this.#services.bodyBytesMax(),
      takesLong: () => operation.takesLongBody?.(token, remote) ?? true,
      begin: () => {
        if (this.bodyOnDemand) this.response.writeContinue()
      },
    })
  }

  #inputWithoutBody(target: Target, match: Match): RawInput {
    if (match.operation.takesStream) return rawInput(this.request, target, match, undefined)
    const limit = this.#services.bodyBytesMax()
    if (declaredBytes(this.request) > limit) throw tooLarge(limit, match.operation)
    return rawInput(this.request, target, match, undefined)
  }

  async value(value: unknown): Promise<void> {
    const { response } = this
    if (response.headersSent) return // it was cut meanwhile
    this.#isMade = !(value instanceof StreamedAnswer)
    if (value instanceof StreamedAnswer) {
      this.#toldAccessor = value.accessor
      if (this.#services.stopping()) throw stopping()
      this.endless = true
      return this.#sendStream(headed(value.chunks), withOwn(this.headers, value.headers))
    }
    if (value instanceof WholeAnswer) {
      this.#toldAccessor = value.accessor
      this.#bytes = sendWhole(this, value)
    } else this.#bytes = await this.#sendValue(value)
    this.#meter.bytes += this.#bytes
    this.#awaitTaking()
  }

  stream(chunks: AsyncIterable<Chunk>): Promise<void> {
    return this.#sendStream(chunks, this.headers)
  }

  async #sendStream(chunks: AsyncIterable<Chunk>, headers: HeaderList): Promise<void> {
    const { endless: flushHead, response } = this
    const sink = this.#webSocket ?? new ResponseSink(response, { headers, flushHead, onWaiting: this.#onWaiting })
    this.#bytes = await sendStream(sink, chunks, { headOnly: this.request.method === 'HEAD', meter: this.#meter })
  }

  #sendValue(value: unknown): Promise<number> | number {
    if (value instanceof JsonText) this.headers.push(...Object.entries(value.headers).flat())
    const { emptyStatus, output, produces = 'application/json' } = this.#match?.operation ?? { output: 'json' }
    if (output !== 'empty') return sendJson(this, produces, jsonText(value, this.#target))
    sendEmpty(this, emptyStatus)
    return 0
  }

  readonly #onWaiting = (waiting: boolean): void => {
    this.waitingSinceMs = waiting ? performance.now() : undefined
  }

  /** A whole answer has been handed over. Until its caller has taken it, it counts as waiting, as a stream's write does. */
  #awaitTaking(): void {
    if (!this.response.writableFinished) this.waitingSinceMs = performance.now()
  }

  /** A body nobody wants is not read to its end, however long it is: the connection closes behind the answer. */
  #leaveBody(operation: AnyEndpoint): void {
    const { request } = this
    if (wantsBody(request, operation) || operation.takesStream) return
    if (request.headers['transfer-encoding'] === undefined && declaredBytes(request) === 0) return
    this.#stopSending()
    if (!this.endless) return
    // A connection that is not read does not tell that its caller has left, so here the body is read and thrown away.
    let left = this.#services.bodyBytesMax()
    request.on('data', (bytes: Buffer) => {
      left -= bytes.length
      if (left < 0) this.response.destroy()
    })
  }

  get #isOpen(): boolean {
    return this.#services.isOpen?.() ?? false
  }

  #allowOrigin(endpoint: AnyEndpoint, hasToken: boolean): void {
    const isSetting = endpoint.crossOrigin === 'configured' && this.request.headers.origin !== undefined
    const rule = isSetting ? this.#services.crossOrigin?.() : undefined
    this.headers.push(...originAnswer(endpoint, this.request, rule, hasToken && !this.#isOpen))
  }

  #preflight(target: Target): void {
    const { crossOrigin, router } = this.#services
    const rule = router.isCrossOriginConfigured(target.path) ? crossOrigin?.() : undefined
    const offered = (verb: string) => !this.#isOpen && router.crossOrigin(verb, target.path).includes(verb)
    this.response.writeHead(204, [...this.headers, ...preflightAnswer(this.request.headers, rule, offered)])
    this.response.end()
  }

  #fail(error: unknown): void {
    const { logger } = this.#services
    const format = this.#match?.operation.errorFormat ?? this.#services.router.errorFormatOf(this.#path)
    const context = { format, requestId: this.requestId, operation: this.#operation, logger }
    if (this.begun || this.response.destroyed) {
      // Too late for a status. A caller who left is no news; anything else is, and breaks the answer.
      const left = this.#gone || (this.#socket.destroyed && !(error instanceof Fault))
      if (!left) logFault(error, context)
      // An error that was answered with a status is a whole answer, which may still be on its way.
      if (!this.#isRefused) this.#break(error)
      return
    }
    if (this.#webSocket) {
      const { status, text, headers } = errorAnswer(error, context)
      this.#webSocket.refuse(status, text, { headers, ...(this.#isStopping(error) ? { code: GOING_AWAY } : {}) })
      return
    }
    if (!this.request.complete) this.#stopSending()
    this.#isRefused = true
    this.#bytes = sendError(this, errorAnswer(error, context))
    this.#meter.bytes += this.#bytes
    this.#awaitTaking()
  }

  /** Ends an answer that has begun, so that the caller can tell it from a whole one. */
  #break(error: unknown): void {
    if (!this.#webSocket) this.response.destroy()
    else if (this.#isStopping(error)) this.#webSocket.break(GOING_AWAY, error.message)
    else if (error instanceof Refusal) this.#webSocket.break(4000 + error.status, error.message)
    else this.#webSocket.break(INTERNAL_ERROR, `internal error, request ${this.requestId}`)
  }

  #isStopping(error: unknown): error is Refusal {
    return error instanceof Refusal && error.code === 'unavailable' && this.#services.stopping()
  }

  /**
   * Closes the connection behind an answer that does not wait for the rest of the request. Node would close it at once;
   * bytes that arrive after that are met with a reset, which can overtake the answer. So ours only says that it is done
   * and throws away what comes for a while.
   */
  #stopSending(): void {
    const socket = this.#socket
    this.response.shouldKeepAlive = false
    socket.destroySoon = () => {
      socket.end()
      setTimeout(() => socket.destroy(), LINGER_MS).unref()
    }
  }

  #record(): void {
    const ms = Math.round((performance.now() - this.startedAtMs) * 100) / 100
    const status = this.#webSocket?.status ?? this.response.statusCode
    this.#meter.underway--
    this.#meter.answered(status, this.endless ? undefined : ms)
    const { isProbe, logger, pathLog } = this.#services
    const level = isProbe?.(this.#path) === true ? 'debug' : 'info'
    if (!logger.enabled(level)) return
    logger[level]('request', {
      method: this.request.method,
      // The query stays out of the log: it may hold what somebody took for a safe place.
      path: this.#match && !this.#match.isFallback ? pathLog.known(this.#path) : pathLog.unknown(this.#path),
      operation: this.#operation,
      status,
      bytes: this.#bytes,
      ms,
      remote: this.remote,
      accessor: this.#accessor,
      request_id: this.requestId,
    })
  }
}

/** For a handshake that is good, on a connection that is not free. */
function notAlone(): Refusal {
  return new Refusal('invalid_request', 'a WebSocket cannot be asked for before the request ahead of it is answered')
}
