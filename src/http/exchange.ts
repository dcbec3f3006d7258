/**
 * One request and its response, from the parsed head to the last byte: finds the operation, reads its input, invokes it
 * (platform/operation.ts), and writes the result. The steps are in other files.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Fault, Refusal } from '../platform/errors.ts'
import {
  type AnyEndpoint,
  type CallResponder,
  type Chunk,
  type Identity,
  type IncomingCall,
  invoke,
  JsonText,
  ANONYMOUS,
  StreamedAnswer,
  WholeAnswer,
} from '../platform/operation.ts'
import type { RawInput } from '../platform/schema.ts'
import { LINGER_MS, plainAddress } from './connections.ts'
import { originHeadersFor, preflightHeadersFor } from './cross-origin.ts'
import { requestsWebSocket, handshakeFault, offeredToken } from './handshake.ts'
import {
  declaredBytes,
  headFault,
  parseTarget,
  rawInput,
  readRawInput,
  type RequestTarget,
  tokenOf,
  tooLarge,
  wantsBody,
} from './request.ts'
import {
  errorResponse,
  type HeaderList,
  jsonText,
  logFault,
  type ResponseOutlet,
  sendEmpty,
  sendError,
  sendJson,
  sendWhole,
  mergeHeaders,
} from './respond.ts'
import type { RouteMatch } from './router.ts'
import { NO_METER, type OperationMeter, type HttpServices } from './services.ts'
import { withHead, ResponseSink, sendStream } from './stream.ts'
import { UploadBody } from './upload.ts'
import { type Acceptor, type UpgradeRequest, WebSocketAnswer } from './websocket.ts'

/** Shared abort reason: an abort without a reason creates one with a stack. */
const GONE = new Error('the caller disconnected, or the connection was cut')

const DRAINING = new Error('the listener is draining')

/** Close codes of a WebSocket (RFC 6455 §7.4.1). */
const GOING_AWAY = 1001
const INTERNAL_ERROR = 1011

/** For a stream that ends, or does not begin, because the process stops. */
export function stoppingRefusal(): Refusal {
  return new Refusal('unavailable', 'the agent is stopping, try again')
}

export interface ExchangeOptions {
  /** The client sent `Expect: 100-continue`. */
  readonly bodyOnDemand?: boolean
  /** Set for a WebSocket. The response then represents the connection and is never written. */
  readonly upgrade?: { readonly of: UpgradeRequest; readonly acceptor: Acceptor }
}

export class Exchange implements ResponseOutlet, CallResponder {
  /** Random: a counter would reveal the number of requests of other callers. */
  readonly requestId = randomUUID()
  readonly startedAtMs = performance.now()
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly headers: HeaderList
  readonly bodyOnDemand: boolean
  /** When the client stopped reading: start of the write in flight. */
  blockedSinceMs: number | undefined
  /** True for a stream without an end. */
  endless = false
  /** Index in the list of running exchanges (`pipeline-queue.ts`). */
  activeIndex = 0
  readonly #services: HttpServices
  /** Read at the start: a closed socket has no address. */
  readonly remote: string | undefined
  readonly #socket: Socket
  readonly #webSocket: WebSocketAnswer | undefined
  #abort: AbortController | undefined
  #drain: AbortController | undefined
  #gone = false
  #isLongPoll = false
  /** The operation has returned its complete result. */
  #isComplete = false
  #isRefused = false
  #meter: OperationMeter
  #path = ''
  #target: RequestTarget | undefined
  #match: RouteMatch | undefined
  #call: OperationCall | undefined
  /** Accessor of the caller, from the response. */
  #responseAccessor: string | undefined
  #bytes = 0

  constructor(
    request: IncomingMessage,
    response: ServerResponse,
    services: HttpServices,
    options: ExchangeOptions = {},
  ) {
    this.request = request
    this.bodyOnDemand = options.bodyOnDemand ?? false
    this.remote = request.socket.remoteAddress
    this.#socket = request.socket
    this.headers = [...services.headers]
    this.response = response
    this.#services = services
    const { upgrade } = options
    if (upgrade) {
      const hooks = { headers: this.headers, onBlocked: this.#onBlocked, onLeft: () => this.cancel() }
      this.#webSocket = new WebSocketAnswer(upgrade.of, upgrade.acceptor, hooks)
    }
    // A client that polls again must not keep the connection open.
    if (services.stopping()) response.shouldKeepAlive = false
    this.#meter = this.#meterFor('none')
  }

  /** Whether the head of the response was sent. */
  get begun(): boolean {
    return this.#webSocket?.begun ?? this.response.headersSent
  }

  /** Whether everything was sent and only the client's close frame is missing. */
  get over(): boolean {
    return this.#webSocket?.over ?? false
  }

  /** Whether a complete error response was sent: the connection closes after it if the request has not ended. */
  get isRefused(): boolean {
    return this.#isRefused
  }

  get #operation(): string {
    return this.#match?.operation.name ?? 'none'
  }

  get #accessor(): string {
    return this.#responseAccessor ?? this.#call?.identity.accessor ?? ''
  }

  /** The request body. Sends `100 Continue` if the client waits for it. */
  get body(): AsyncIterable<Uint8Array> {
    if (this.bodyOnDemand) this.response.writeContinue()
    // Leaving the loop must not destroy the request: the response could not be sent.
    const bytes = this.request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
    return new UploadBody(bytes, this.#services.uploadPace())
  }

  /** Whether the operation reads the body itself: it has a minimum rate instead of a timeout. */
  get isUpload(): boolean {
    return this.#match?.operation.takesStream ?? false
  }

  /** Whether the call waits for a change: its `wait` parameter limits it. */
  get isLongPoll(): boolean {
    return this.#isLongPoll
  }

  /** Aborts when the client has gone or the exchange is cut. Created on first use. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController()
    if (this.#gone) this.#abort.abort(GONE)
    return this.#abort.signal
  }

  /** Aborts when the listener drains. Created on first use. */
  get draining(): AbortSignal {
    this.#drain ??= new AbortController()
    if (this.#services.stopping()) this.#drain.abort(DRAINING)
    return this.#drain.signal
  }

  /** The listener drains: aborts an endless response, and makes a long poll answer at once. */
  drain(): void {
    this.response.shouldKeepAlive = false
    if (this.endless && !this.#isLongPoll) this.cut(stoppingRefusal())
    else this.#drain?.abort(DRAINING)
  }

  /** The response was sent, or the client has gone. */
  cancel(): void {
    this.#gone = true
    // Every connection closes eventually: a finished operation needs no abort.
    if (!this.#isComplete) this.#abort?.abort(GONE)
  }

  /** Ends it visibly for the client: with a status before the head was sent, else by aborting the response. */
  cut(refusal: Refusal): void {
    if (this.begun) this.#abortResponse(refusal)
    else this.#fail(refusal)
    this.cancel()
  }

  async serve(): Promise<void> {
    try {
      const target = parseTarget(this.request.url ?? '/', (path) => (this.#path = path))
      const fault = headFault(this.request)
      if (fault) {
        // The start of the next request is unknown.
        if (this.request.headers['transfer-encoding'] !== undefined) this.#closeAfterResponse()
        throw fault
      }
      this.#services.servedHosts?.check(this.request)
      if (this.#services.router.isLoadedLater(target.path)) await this.#services.router.complete()
      if (this.request.method === 'OPTIONS') this.#preflight(target)
      else await this.#dispatch(target)
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#record()
    }
  }

  #meterFor(operation: string): OperationMeter {
    const meter = (this.#services.meter ?? NO_METER).operation(operation)
    meter.underway++
    return meter
  }

  async #dispatch(target: RequestTarget): Promise<void> {
    const match = this.#services.router.match(this.request.method ?? 'GET', target.path)
    const { operation } = match
    this.#match = match
    this.#target = target
    this.#meter.underway--
    this.#meter = this.#meterFor(operation.name)
    if (requestsWebSocket(this.request)) {
      const fault = handshakeFault(this.request, operation, this.#isOpen)
      if (fault || !this.#webSocket) {
        // Node's parser drops the bytes after this head, so no further request can be served.
        this.#closeAfterResponse()
        throw fault ?? pipelinedUpgradeRefusal()
      }
    }
    const token = this.#token()
    this.#addOriginHeaders(operation, token !== undefined)
    const raw = wantsBody(this.request, operation)
      ? await this.#readInput(target, match, token)
      : this.#inputWithoutBody(target, match)
    if (raw.isBodyLeft) this.#closeAfterResponse()
    this.#call = new OperationCall(this, raw, operation.open ? undefined : token)
    await invoke(operation, this.#call, this, this.#services)
  }

  admitted(isEndless: boolean, isLongPoll: boolean): void {
    this.endless = isEndless
    this.#isLongPoll = isLongPoll
    if (isEndless && !isLongPoll && this.#services.stopping()) throw stoppingRefusal()
    if (this.#match) this.#discardBody(this.#match.operation)
  }

  rightsLost(refusal: Refusal): void {
    const about = { operation: this.#operation, accessor: this.#accessor, request_id: this.requestId }
    const text = 'stream closed, the caller lost its permission'
    this.#services.logger.info(text, { ...about, reason: refusal.message })
    this.cut(refusal)
  }

  #token(): string | undefined {
    return tokenOf(this.request) ?? (this.#webSocket && offeredToken(this.request))
  }

  #readInput(target: RequestTarget, match: RouteMatch, token: string | undefined): Promise<RawInput> {
    const remote = this.remote === undefined ? undefined : plainAddress(this.remote)
    const { operation } = match
    return readRawInput(this.request, target, match, {
      bytesMax: this.#services.bodyBytesMax(),
      mayBeLong: () => operation.takesLongBody?.(token, remote) ?? true,
      onBodyStart: () => {
        if (this.bodyOnDemand) this.response.writeContinue()
      },
    })
  }

  #inputWithoutBody(target: RequestTarget, match: RouteMatch): RawInput {
    if (match.operation.takesStream) return rawInput(this.request, target, match, undefined)
    const limit = this.#services.bodyBytesMax()
    if (declaredBytes(this.request) > limit) throw tooLarge(limit, match.operation)
    return rawInput(this.request, target, match, undefined)
  }

  async value(value: unknown): Promise<void> {
    const { response } = this
    if (response.headersSent) return // it was cut meanwhile
    this.#isComplete = !(value instanceof StreamedAnswer)
    if (value instanceof StreamedAnswer) {
      this.#responseAccessor = value.accessor
      if (this.#services.stopping()) throw stoppingRefusal()
      this.endless = true
      return this.#sendStream(withHead(value.chunks), mergeHeaders(this.headers, value.headers))
    }
    if (value instanceof WholeAnswer) {
      this.#responseAccessor = value.accessor
      this.#bytes = sendWhole(this, value)
    } else this.#bytes = await this.#sendValue(value)
    this.#meter.bytes += this.#bytes
    this.#markBlocked()
  }

  stream(chunks: AsyncIterable<Chunk>): Promise<void> {
    return this.#sendStream(chunks, this.headers)
  }

  async #sendStream(chunks: AsyncIterable<Chunk>, headers: HeaderList): Promise<void> {
    const { endless: flushHead, response } = this
    const sink = this.#webSocket ?? new ResponseSink(response, { headers, flushHead, onBlocked: this.#onBlocked })
    this.#bytes = await sendStream(sink, chunks, { headOnly: this.request.method === 'HEAD', meter: this.#meter })
  }

  #sendValue(value: unknown): Promise<number> | number {
    if (value instanceof JsonText) this.headers.push(...Object.entries(value.headers).flat())
    const { emptyStatus, output, produces = 'application/json' } = this.#match?.operation ?? { output: 'json' }
    if (output !== 'empty') return sendJson(this, produces, jsonText(value, this.#target))
    sendEmpty(this, emptyStatus)
    return 0
  }

  readonly #onBlocked = (isBlocked: boolean): void => {
    this.blockedSinceMs = isBlocked ? performance.now() : undefined
  }

  /** A complete response counts as blocked until the client has read it, like a write of a stream. */
  #markBlocked(): void {
    if (!this.response.writableFinished) this.blockedSinceMs = performance.now()
  }

  /** A body that the operation does not use is not read: the connection closes after the response. */
  #discardBody(operation: AnyEndpoint): void {
    const { request } = this
    if (wantsBody(request, operation) || operation.takesStream) return
    if (request.headers['transfer-encoding'] === undefined && declaredBytes(request) === 0) return
    this.#closeAfterResponse()
    if (!this.endless) return
    // A connection that is not read does not report that its client has gone, so the body is discarded up to a limit.
    let left = this.#services.bodyBytesMax()
    request.on('data', (bytes: Buffer) => {
      left -= bytes.length
      if (left < 0) this.response.destroy()
    })
  }

  get #isOpen(): boolean {
    return this.#services.isOpen?.() ?? false
  }

  #addOriginHeaders(endpoint: AnyEndpoint, hasToken: boolean): void {
    const isSetting = endpoint.crossOrigin === 'configured' && this.request.headers.origin !== undefined
    const rule = isSetting ? this.#services.crossOrigin?.() : undefined
    this.headers.push(...originHeadersFor(endpoint, this.request, rule, hasToken && !this.#isOpen))
  }

  #preflight(target: RequestTarget): void {
    const { crossOrigin, router } = this.#services
    const rule = router.isCrossOriginConfigured(target.path) ? crossOrigin?.() : undefined
    const offered = (verb: string) => !this.#isOpen && router.crossOrigin(verb, target.path).includes(verb)
    this.response.writeHead(204, [...this.headers, ...preflightHeadersFor(this.request.headers, rule, offered)])
    this.response.end()
  }

  #fail(error: unknown): void {
    const { logger } = this.#services
    const format =
      this.#match?.operation.errorFormat ??
      this.#services.router.errorFormatOf(this.request.method ?? 'GET', this.#path)
    const context = { format, requestId: this.requestId, operation: this.#operation, logger }
    if (this.begun || this.response.destroyed) {
      // Too late for a status. A client that has gone is not logged.
      const left = this.#gone || (this.#socket.destroyed && !(error instanceof Fault))
      if (!left) logFault(error, context)
      // An error response is complete and may still be in flight.
      if (!this.#isRefused) this.#abortResponse(error)
      return
    }
    if (this.#webSocket) {
      const { status, text, headers } = errorResponse(error, context)
      this.#webSocket.refuse(status, text, { headers, ...(this.#isStopping(error) ? { code: GOING_AWAY } : {}) })
      return
    }
    if (!this.request.complete) this.#closeAfterResponse()
    this.#isRefused = true
    this.#bytes = sendError(this, errorResponse(error, context))
    this.#meter.bytes += this.#bytes
    this.#markBlocked()
  }

  /** Aborts a response that has begun, so that the client can tell it from a complete one. */
  #abortResponse(error: unknown): void {
    if (!this.#webSocket) this.response.destroy()
    else if (this.#isStopping(error)) this.#webSocket.break(GOING_AWAY, error.message)
    else if (error instanceof Refusal) this.#webSocket.break(4000 + error.status, error.message)
    else this.#webSocket.break(INTERNAL_ERROR, `internal error, request ${this.requestId}`)
  }

  #isStopping(error: unknown): error is Refusal {
    return error instanceof Refusal && error.code === 'unavailable' && this.#services.stopping()
  }

  /**
   * Closes the connection after a response that does not wait for the rest of the request. Node would close it at once;
   * later bytes cause a reset, which can overtake the response. So only the sending side is closed first,
   * and received bytes are discarded for a while.
   */
  #closeAfterResponse(): void {
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
      // The query is not logged: it may contain secrets.
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

/** For a valid handshake on a connection with a pending request. */
function pipelinedUpgradeRefusal(): Refusal {
  return new Refusal('invalid_request', 'a WebSocket handshake must wait for the response to the previous request')
}

/** The fields of an exchange that a call reads on demand. */
interface CallSource {
  readonly requestId: string
  readonly remote: string | undefined
  /** Both are created on first use. */
  readonly signal: AbortSignal
  readonly draining: AbortSignal
  readonly body: AsyncIterable<Uint8Array>
}

class OperationCall implements IncomingCall {
  /** From the last permission check. */
  identity: Identity = ANONYMOUS
  readonly raw: RawInput
  readonly token: string | undefined
  readonly hops = 0
  readonly #exchange: CallSource

  constructor(exchange: CallSource, raw: RawInput, token: string | undefined) {
    this.#exchange = exchange
    this.raw = raw
    this.token = token
  }

  get requestId(): string {
    return this.#exchange.requestId
  }

  get remote(): string | undefined {
    const { remote } = this.#exchange
    return remote === undefined ? undefined : plainAddress(remote)
  }

  get signal(): AbortSignal {
    return this.#exchange.signal
  }

  get draining(): AbortSignal {
    return this.#exchange.draining
  }

  get body(): AsyncIterable<Uint8Array> {
    return this.#exchange.body
  }
}
