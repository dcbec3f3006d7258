/**
 * One request and its answer, from the parsed head to the last byte: find the operation, parse, identify, authorise,
 * run, write. It reads as that list; each step lives elsewhere.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Refusal } from '../kit/errors.ts'
import type { Logger } from '../kit/log.ts'
import type { AnyOperation, Call, Identity } from '../kit/operation.ts'
import { errorAnswer, logFault } from './errors.ts'
import { parseTarget, rawInput, readRawInput, type Target, tokenOf, wantsBody } from './request.ts'
import { type HeaderList, jsonText, type Outlet, sendEmpty, sendError, sendJson } from './respond.ts'
import type { Router } from './router.ts'
import { sendStream } from './stream.ts'

/** What an exchange needs from outside; the daemon gives it. */
export interface Services {
  readonly router: Router
  readonly logger: Logger
  /** Who a token names. Throws a Refusal when it names nobody. */
  readonly resolve: (token: string | undefined) => Promise<Identity> | Identity
  /** Headers of every answer, names and values in turn. */
  readonly headers: HeaderList
  /** Told of every finished exchange, for metrics. */
  readonly finished?: (record: { operation: string; status: number; ms: number; bytes: number }) => void
}

/** Request IDs are this run's name and a count: unique without asking for randomness each time. */
const RUN = randomUUID().slice(0, 8)
let requests = 0

export class Exchange implements Omit<Call, 'identity'>, Outlet {
  readonly requestId = `${RUN}-${(++requests).toString(36)}`
  readonly startedAtMs = performance.now()
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly headers: HeaderList
  /** Since when a write has been waiting for the caller to take it. */
  waitingSinceMs: number | undefined
  /** True once it is known to be a stream that may stay open for as long as the caller likes. */
  endless = false
  readonly #services: Services
  #abort: AbortController | undefined
  #gone = false
  #operation = 'none'
  #format: 'plain' | 'errors' = 'errors'
  #accessor = ''
  #bytes = 0

  constructor(request: IncomingMessage, response: ServerResponse, services: Services) {
    this.request = request
    this.headers = [...services.headers]
    this.response = response
    this.#services = services
    response.once('close', () => this.cancel())
  }

  /** Aborts when the caller is gone or the exchange is cut. Made only for operations that look at it. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController()
    if (this.#gone) this.#abort.abort()
    return this.#abort.signal
  }

  cancel(): void {
    this.#gone = true
    this.#abort?.abort()
  }

  /** Ends it so that the caller can tell: a status when nothing was sent yet, a broken answer otherwise. */
  cut(refusal: Refusal): void {
    if (this.response.headersSent) this.response.destroy()
    else this.#fail(refusal)
    this.cancel()
  }

  async serve(): Promise<void> {
    try {
      const target = parseTarget(this.request.url ?? '/')
      this.#format = /^(\/v1)?\/client(\/|$)/.test(target.path) ? 'plain' : 'errors'
      if (this.request.method === 'OPTIONS') this.#preflight(target)
      else await this.#dispatch(target)
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#record()
    }
  }

  async #dispatch(target: Target): Promise<void> {
    const match = this.#services.router.match(this.request.method ?? 'GET', target.path)
    const { operation } = match
    this.#operation = operation.name
    this.#format = operation.errorFormat
    this.headers.push('Vary', 'Accept-Encoding', 'Vary', 'Origin')
    this.#allowOrigin(operation)
    const raw = wantsBody(this.request, operation)
      ? await readRawInput(this.request, target, match)
      : rawInput(this.request, target, match, undefined)
    this.#leaveBody(operation)
    const input = operation.input.parse(raw)
    const identity = await this.#services.resolve(tokenOf(this.request))
    this.#accessor = identity.accessor
    operation.authorize(input, identity)
    this.endless = operation.endless?.(input) ?? false
    await this.#run(operation, input, identity, target)
  }

  async #run(operation: AnyOperation, input: unknown, identity: Identity, target: Target): Promise<void> {
    const call = new OperationCall(this, identity)
    const result = operation.run(input, call)
    if (Symbol.asyncIterator in result) {
      this.#bytes = await sendStream(this.response, result, {
        headers: this.headers,
        headOnly: this.request.method === 'HEAD',
        flushHead: this.endless,
        onWaiting: (waiting) => {
          this.waitingSinceMs = waiting ? performance.now() : undefined
        },
      })
      return
    }
    const value = await result
    if (this.response.headersSent) return // it was cut meanwhile
    if (operation.output === 'empty') return sendEmpty(this)
    const text = jsonText(value, target)
    this.#bytes = text.length
    await sendJson(this, operation.produces ?? 'application/json', text)
  }

  /** A body nobody wants is not read to its end, however long it is: the connection closes behind the answer. */
  #leaveBody(operation: AnyOperation): void {
    if (wantsBody(this.request, operation)) return
    const length = this.request.headers['content-length']
    if (this.request.headers['transfer-encoding'] !== undefined || (length !== undefined && length !== '0')) {
      this.response.shouldKeepAlive = false
    }
  }

  #allowOrigin(operation: AnyOperation): void {
    if (this.request.headers.origin === undefined || !operation.crossOrigin) return
    this.headers.push('Access-Control-Allow-Origin', '*', 'Access-Control-Allow-Credentials', 'true')
  }

  #preflight(target: Target): void {
    const { headers } = this.request
    const asked = headers['access-control-request-method'] ?? ''
    const depends = 'Origin, Access-Control-Request-Method, Access-Control-Request-Headers'
    const answer = ['Vary', 'Accept-Encoding', 'Vary', depends]
    if (this.#services.router.crossOrigin(asked, target.path).includes(asked)) {
      answer.push('Access-Control-Allow-Origin', '*', 'Access-Control-Allow-Credentials', 'true')
      answer.push('Access-Control-Allow-Methods', asked)
      const wanted = headers['access-control-request-headers']
      if (wanted !== undefined) answer.push('Access-Control-Allow-Headers', wanted)
    }
    this.response.writeHead(204, [...this.headers, ...answer])
    this.response.end()
  }

  #fail(error: unknown): void {
    const { logger } = this.#services
    const context = { format: this.#format, requestId: this.requestId, operation: this.#operation, logger }
    if (this.response.headersSent || this.response.destroyed) {
      // Too late for a status. A caller who left is no news; anything else is, and breaks the answer.
      if (!this.#gone) logFault(error, context)
      this.response.destroy()
      return
    }
    if (!this.request.complete) this.response.shouldKeepAlive = false
    sendError(this, errorAnswer(error, context))
  }

  #record(): void {
    const ms = Math.round((performance.now() - this.startedAtMs) * 100) / 100
    const status = this.response.statusCode
    this.#services.finished?.({ operation: this.#operation, status, ms, bytes: this.#bytes })
    if (!this.#services.logger.enabled('info')) return
    const url = this.request.url ?? ''
    const mark = url.indexOf('?')
    this.#services.logger.info('request', {
      method: this.request.method,
      // The query stays out of the log: it may hold what somebody took for a safe place.
      path: (mark < 0 ? url : url.slice(0, mark)).slice(0, 512),
      operation: this.#operation,
      status,
      bytes: this.#bytes,
      ms,
      remote: this.request.socket.remoteAddress,
      accessor: this.#accessor,
      request_id: this.requestId,
    })
  }
}

/** The call as the operation sees it; the signal is made when it is looked at. */
class OperationCall implements Call {
  readonly identity: Identity
  readonly #exchange: Exchange

  constructor(exchange: Exchange, identity: Identity) {
    this.#exchange = exchange
    this.identity = identity
  }

  get requestId(): string {
    return this.#exchange.requestId
  }

  get signal(): AbortSignal {
    return this.#exchange.signal
  }
}
