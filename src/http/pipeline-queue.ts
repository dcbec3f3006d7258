/**
 * Serializes the pipelined requests of each connection.
 *
 * Node's parser emits pipelined requests as fast as they arrive; their responses must be sent in order
 * anyway. So an exchange starts when the one before it has ended: a connection costs one operation at a
 * time, and a queued request costs only its head.
 *
 * A message that the parser refuses is answered in order too, so that the error never ends up inside the response to an
 * earlier request.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { isErrno, Refusal } from '../platform/errors.ts'
import { LINGER_MS } from './connections.ts'
import type { Exchange } from './exchange.ts'

/** Queued requests per connection. */
const PENDING_MAX = 128

interface ConnectionQueue {
  current: Exchange | undefined
  readonly pending: (() => Exchange)[]
  /** Called when the queue is empty: handles what the parser refused. */
  onIdle: (() => void) | undefined
}

/**
 * Not a Set: with frequent changes V8's successive tables keep each other alive, and so the exchanges in
 * them, until the next full collection (see `platform/transient-map.ts`).
 */
class ActiveExchanges {
  readonly #exchanges: Exchange[] = []

  all(): readonly Exchange[] {
    return [...this.#exchanges]
  }

  add(exchange: Exchange): void {
    exchange.activeIndex = this.#exchanges.push(exchange) - 1
  }

  /** Moves the last element to the freed index. */
  delete(exchange: Exchange): void {
    const last = this.#exchanges.pop()
    if (!last || last === exchange) return
    this.#exchanges[exchange.activeIndex] = last
    last.activeIndex = exchange.activeIndex
  }
}

export class PipelineQueue {
  readonly #onBusy: (socket: Socket, isBusy: boolean) => void
  readonly #queues = new WeakMap<Socket, ConnectionQueue>()
  readonly #refused = new WeakSet<Socket>()
  readonly #active = new ActiveExchanges()

  /** `onBusy` is called when a connection becomes busy or idle. */
  constructor(onBusy: (socket: Socket, isBusy: boolean) => void) {
    this.#onBusy = onBusy
  }

  /** Snapshot of the running exchanges. */
  get active(): readonly Exchange[] {
    return this.#active.all()
  }

  /** Calls `begin`, which starts the exchange, when the exchanges before it have ended. */
  enqueue(request: IncomingMessage, response: ServerResponse, begin: () => Exchange): void {
    const { socket } = request
    const queue = this.#queueOf(socket)
    const start = () => {
      const exchange = begin()
      this.#active.add(exchange)
      response.once('close', () => {
        exchange.cancel()
        this.#active.delete(exchange)
        this.#next(socket, queue)
      })
      return exchange
    }
    if (!queue.current) {
      this.#onBusy(socket, true)
      queue.current = start()
    } else if (queue.pending.length < PENDING_MAX) queue.pending.push(start)
    else socket.destroy()
  }

  isBusy(socket: Socket): boolean {
    return this.#queues.get(socket)?.current !== undefined
  }

  /** Calls back when the connection has no pending request; never if it closes before. */
  onceIdle(socket: Socket, callback: () => void): void {
    const queue = this.#queues.get(socket)
    if (queue?.current) queue.onIdle = callback
    else callback()
  }

  /** Handles an error of the parser, or its timeout. */
  refuse(error: Error, socket: Socket): void {
    const queue = this.#queues.get(socket)
    if (isErrno(error, 'ECONNRESET', 'EPIPE')) socket.destroy()
    else if (!queue?.current) this.#answer(error, socket)
    else if (queue.current.request.complete) queue.onIdle = () => this.#answer(error, socket)
    // The request was already refused.
    else if (queue.current.isRefused) return
    // An upload has a minimum rate instead of a timeout.
    else if (!queue.current.isUpload || !isErrno(error, 'ERR_HTTP_REQUEST_TIMEOUT')) queue.current.cut(refusalOf(error))
  }

  #next(socket: Socket, queue: ConnectionQueue): void {
    queue.current = undefined
    if (!socket.writable) return
    queue.current = queue.pending.shift()?.()
    if (queue.current) return
    this.#onBusy(socket, false)
    const { onIdle } = queue
    queue.onIdle = undefined
    onIdle?.()
  }

  #queueOf(socket: Socket): ConnectionQueue {
    const known = this.#queues.get(socket)
    if (known) return known
    const queue: ConnectionQueue = { current: undefined, pending: [], onIdle: undefined }
    this.#queues.set(socket, queue)
    return queue
  }

  /** Plain text. Further bytes are discarded: a reset could overtake the response. */
  #answer(error: Error, socket: Socket): void {
    if (this.#refused.has(socket)) return
    this.#refused.add(socket)
    if (!socket.writable) {
      socket.destroy()
      return
    }
    const status = statusLine(error)
    const body = `${status.slice(4)}\n`
    socket.end(
      `HTTP/1.1 ${status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
    )
    setTimeout(() => socket.destroy(), LINGER_MS).unref()
  }
}

function statusLine(error: Error): string {
  if (isErrno(error, 'HPE_HEADER_OVERFLOW')) return '431 Request Header Fields Too Large'
  return isErrno(error, 'ERR_HTTP_REQUEST_TIMEOUT') ? '408 Request Timeout' : '400 Bad Request'
}

/** For an error in the body of a request. */
function refusalOf(error: Error): Refusal {
  if (isErrno(error, 'ERR_HTTP_REQUEST_TIMEOUT')) return new Refusal('request_timeout', BODY_LATE)
  return new Refusal('invalid_request', 'malformed request body')
}

export const BODY_LATE = 'the request body did not arrive in time'
