/**
 * One request and its answer, from the parsed head to the last byte: find the operation, parse, identify, authorise,
 * run, write. It reads as that list; each step lives elsewhere.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { Fault, Refusal } from '../kit/errors.ts'
import type { Logger } from '../kit/log.ts'
import {
  type AnyOperation,
  type Call,
  type Chunk,
  type Identity,
  JsonText,
  NOBODY,
  StreamedAnswer,
  WholeAnswer,
} from '../kit/operation.ts'
import type { Rights } from './rights.ts'
import type { RawInput } from '../kit/schema.ts'
import { LINGER_MS, plainAddress } from './connections.ts'
import {
  asksToSendToken,
  type CrossOrigin,
  originHeaders,
  preflightHeaders,
  refuseForeignChange,
} from './cross-origin.ts'
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
import type { PathLog } from './path-log.ts'
import type { Match, Router } from './router.ts'
import type { ServedHosts } from './served-hosts.ts'
import { headed, ResponseSink, sendStream } from './stream.ts'
import { type Acceptor, type Upgrade, WebSocketAnswer } from './websocket.ts'

/** What an exchange needs from outside; the daemon gives it. */
export interface Services {
  readonly router: Router
  readonly logger: Logger
  /** Who a token names. Throws a Refusal when it names nobody. */
  readonly resolve: (token: string | undefined, remote?: string) => Promise<Identity> | Identity
  /** Checks the callers of endless answers again. */
  readonly rights: Rights
  /** What pages of other origins may do at operations that answer in their own form; nothing is said where it is absent. */
  readonly crossOrigin?: () => CrossOrigin | undefined
  /** Host names that are served on loopback; absent where all are. */
  readonly servedHosts?: ServedHosts
  /** True where calls need no token. Absent means that they do. */
  readonly isOpen?: () => boolean
  /** How the access log shows paths. */
  readonly pathLog: PathLog
  /** Who counts requests; nobody when absent. */
  readonly meter?: Meter
  /** Headers of every answer, names and values in turn. */
  readonly headers: HeaderList
  /** Largest request body of any endpoint; most allow less, or none. */
  readonly bodyBytesMax: () => number
  /** True once the process is going down: nothing endless begins any more. */
  readonly stopping: () => boolean
}

/** Request IDs are this run's name and a count: unique without asking for randomness each time. */
const RUN = randomUUID().slice(0, 8)
let requests = 0

/** Why signals abort. One object for all: an abort without a reason makes one each time, with a stack. */
const GONE = new Error('the caller is gone, or the exchange was cut')

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

export class Exchange implements Outlet {
  readonly requestId = `${RUN}-${(++requests).toString(36)}`
  readonly startedAtMs = performance.now()
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly headers: HeaderList
  readonly bodyOnDemand: boolean
  /** Since when a write has been waiting for the caller to take it. */
  waitingSinceMs: number | undefined
  /** True once it is known to be a stream that may stay open for as long as the caller likes. */
  endless = false
  readonly #services: Services
  /** Taken at the start: a connection that broke has none any more. */
  readonly remote: string | undefined
  readonly #socket: Socket
  readonly #webSocket: WebSocketAnswer | undefined
  #abort: AbortController | undefined
  #leaveRights: (() => void) | undefined
  #gone = false
  /** True once an error was answered with a status. */
  #isRefused = false
  #operation = 'none'
  #meter: OperationMeter
  #format: 'plain' | 'errors' = 'errors'
  #accessor = ''
  #path = ''
  /** An operation of the table was found, whose paths hold no names of secrets. */
  #isKnownPath = false
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
    const hooks = { headers: this.headers, onWaiting: this.#onWaiting, onLeft: () => this.cancel() }
    this.#webSocket = upgrade && new WebSocketAnswer(upgrade.of, upgrade.acceptor, hooks)
    this.#meter = this.#countAs('none')
    response.once('close', () => this.cancel())
  }

  /** True once the caller has been answered, with an error or with the head of what it asked for. */
  get begun(): boolean {
    return this.#webSocket?.begun ?? this.response.headersSent
  }

  /** True when all was said and only a WebSocket's caller keeps it from ending. */
  get over(): boolean {
    return this.#webSocket?.over ?? false
  }

  get #plainRemote(): string | undefined {
    return this.remote === undefined ? undefined : plainAddress(this.remote)
  }

  /** The request's body. Who waits for a word before it sends one gets it now. */
  get body(): AsyncIterable<Uint8Array> {
    if (this.bodyOnDemand) this.response.writeContinue()
    // Leaving the loop must not destroy the request: that would cut the connection before it is told why.
    return this.request.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>
  }

  /** Aborts when the caller is gone or the exchange is cut. Made only for operations that look at it. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController()
    if (this.#gone) this.#abort.abort(GONE)
    return this.#abort.signal
  }

  cancel(): void {
    this.#gone = true
    this.#abort?.abort(GONE)
  }

  /** Ends it so that the caller can tell: a status when nothing was sent yet, a broken answer otherwise. */
  cut(refusal: Refusal): void {
    if (this.begun) this.#break(refusal)
    else this.#fail(refusal)
    this.cancel()
  }

  async serve(): Promise<void> {
    try {
      const target = parseTarget(this.request.url ?? '/', (path) => this.#setPath(path))
      const fault = headFault(this.request)
      if (fault) throw fault
      this.#services.servedHosts?.check(this.request)
      if (this.request.method === 'OPTIONS') this.#preflight(target)
      else await this.#dispatch(target)
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#leaveRights?.()
      this.#record()
    }
  }

  #countAs(operation: string): OperationMeter {
    const meter = (this.#services.meter ?? NO_METER).operation(operation)
    meter.underway++
    return meter
  }

  #setPath(path: string): void {
    this.#path = path
    this.#format = /^(\/v1)?\/client(\/|$)/.test(path) ? 'plain' : 'errors'
  }

  async #dispatch(target: Target): Promise<void> {
    const match = this.#services.router.match(this.request.method ?? 'GET', target.path)
    const { operation } = match
    this.#isKnownPath = !match.isFallback
    this.#operation = operation.name
    this.#meter.underway--
    this.#meter = this.#countAs(operation.name)
    this.#format = operation.errorFormat
    if (!this.#webSocket && asksForWebSocket(this.request)) {
      // Node's parser loses what came in one piece with this head, so nothing more is answered here.
      this.#stopSending()
      throw handshakeFault(this.request, operation, this.#isOpen) ?? notAlone()
    }
    this.#allowOrigin(operation)
    const raw = wantsBody(this.request, operation)
      ? await this.#readInput(target, match)
      : this.#inputWithoutBody(target, match)
    const input = operation.input.parse(raw)
    const token = operation.open ? undefined : this.#token()
    const identity = operation.ownToken ? NOBODY : await this.#services.resolve(token, this.#plainRemote)
    this.#accessor = identity.accessor
    operation.authorize(input, identity)
    this.endless = operation.endless?.(input) ?? false
    if (this.endless && this.#services.stopping()) throw stopping()
    this.#leaveBody(operation)
    const call = new OperationCall(this, { identity, raw, token })
    if (this.endless && !operation.ownToken) this.#keepRights(operation, input, call)
    await this.#run(operation, input, call, target)
  }

  /** While an endless answer lasts, its caller is checked again, and the answer breaks once its rights are gone. */
  #keepRights(operation: AnyOperation, input: unknown, call: OperationCall): void {
    this.#leaveRights = this.#services.rights.keep(call.token, call.remote, {
      renew(identity) {
        operation.authorize(input, identity)
        call.identity = identity
      },
      end: (refusal) => {
        this.#leaveRights?.()
        const about = { operation: operation.name, accessor: this.#accessor, request_id: this.requestId }
        const text = 'a stream was cut: its caller has no right to it any more'
        this.#services.logger.info(text, { ...about, reason: refusal.message })
        this.cut(refusal)
      },
    })
  }

  #token(): string | undefined {
    return tokenOf(this.request) ?? (this.#webSocket && offeredToken(this.request))
  }

  #readInput(target: Target, match: Match): Promise<RawInput> {
    return readRawInput(this.request, target, match, {
      bytesMax: this.#services.bodyBytesMax(),
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

  async #run(operation: AnyOperation, input: unknown, call: Call, target: Target): Promise<void> {
    const result = operation.run(input, call)
    if (Symbol.asyncIterator in result) return this.#sendStream(result, this.headers)
    const value = await result
    if (this.response.headersSent) return // it was cut meanwhile
    if (value instanceof StreamedAnswer) {
      this.#accessor = value.accessor ?? this.#accessor
      if (this.#services.stopping()) throw stopping()
      this.endless = true
      return this.#sendStream(headed(value.chunks), withOwn(this.headers, value.headers))
    }
    if (value instanceof WholeAnswer) {
      this.#accessor = value.accessor ?? this.#accessor
      this.#bytes = sendWhole(this, value)
    } else this.#bytes = await this.#sendValue(operation, value, target)
    this.#meter.bytes += this.#bytes
    this.#awaitTaking()
  }

  async #sendStream(chunks: AsyncIterable<Chunk>, headers: HeaderList): Promise<void> {
    const { endless: flushHead, response } = this
    const sink = this.#webSocket ?? new ResponseSink(response, { headers, flushHead, onWaiting: this.#onWaiting })
    this.#bytes = await sendStream(sink, chunks, { headOnly: this.request.method === 'HEAD', meter: this.#meter })
  }

  async #sendValue(operation: AnyOperation, value: unknown, target: Target): Promise<number> {
    if (value instanceof JsonText) this.headers.push(...Object.entries(value.headers).flat())
    if (operation.output !== 'empty') {
      return sendJson(this, operation.produces ?? 'application/json', jsonText(value, target))
    }
    sendEmpty(this, operation.emptyStatus)
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
  #leaveBody(operation: AnyOperation): void {
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

  #allowOrigin(operation: AnyOperation): void {
    const { headers, method = '' } = this.request
    const isOwnForm = operation.output === 'answer'
    const rule = isOwnForm && headers.origin !== undefined ? this.#services.crossOrigin?.() : undefined
    if (rule) {
      this.headers.push(...originHeaders(rule, headers))
      return
    }
    refuseForeignChange(operation, method, headers)
    if (isOwnForm) return
    this.headers.push('Vary', 'Accept-Encoding', 'Vary', 'Origin')
    if (headers.origin === undefined || !operation.crossOrigin) return
    // What is told without a token is not every page's that is open in a browser of this network.
    if (this.#isOpen || this.#token() === undefined) return
    this.headers.push('Access-Control-Allow-Origin', '*', 'Access-Control-Allow-Credentials', 'true')
  }

  #preflight(target: Target): void {
    const { headers } = this.request
    const rule = this.#services.router.hasOwnForm(target.path) ? this.#services.crossOrigin?.() : undefined
    if (rule) return this.#sendPreflight(preflightHeaders(rule, headers))
    const asked = headers['access-control-request-method'] ?? ''
    const depends = 'Origin, Access-Control-Request-Method, Access-Control-Request-Headers'
    const answer = ['Vary', 'Accept-Encoding', 'Vary', depends]
    const isOffered = !this.#isOpen && asksToSendToken(headers)
    if (isOffered && this.#services.router.crossOrigin(asked, target.path).includes(asked)) {
      answer.push('Access-Control-Allow-Origin', '*', 'Access-Control-Allow-Credentials', 'true')
      answer.push('Access-Control-Allow-Methods', asked)
      const wanted = headers['access-control-request-headers']
      if (wanted !== undefined) answer.push('Access-Control-Allow-Headers', wanted)
    }
    this.#sendPreflight(answer)
  }

  #sendPreflight(answer: HeaderList): void {
    this.response.writeHead(204, [...this.headers, ...answer])
    this.response.end()
  }

  #fail(error: unknown): void {
    const { logger } = this.#services
    const context = { format: this.#format, requestId: this.requestId, operation: this.#operation, logger }
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
    const { logger, pathLog } = this.#services
    if (!logger.enabled('info')) return
    logger.info('request', {
      method: this.request.method,
      // The query stays out of the log: it may hold what somebody took for a safe place.
      path: this.#isKnownPath ? pathLog.known(this.#path) : pathLog.unknown(this.#path),
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

/** The call as the operation sees it; the signal is made when it is looked at. */
class OperationCall implements Call {
  /** Of the last check of its rights. */
  identity: Identity
  readonly raw: RawInput
  readonly token: string | undefined
  readonly hops = 0
  readonly #exchange: Exchange

  constructor(exchange: Exchange, from: Pick<Call, 'identity' | 'raw' | 'token'>) {
    this.#exchange = exchange
    this.identity = from.identity
    this.raw = from.raw
    this.token = from.token
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

  get body(): AsyncIterable<Uint8Array> {
    return this.#exchange.body
  }
}
