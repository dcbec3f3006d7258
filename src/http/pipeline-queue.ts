/**
 * The requests of one connection take turns.
 *
 * Node's parser hands over pipelined requests as fast as they come in; their answers could only leave one after the
 * other anyway. So an exchange begins when the one before it has been answered: a connection costs one operation at a
 * time, however much it pipelines, and a request behind a stream costs only its head.
 *
 * A message that the parser refuses is answered when its turn has come, so that it never ends up inside the answer to a
 * request before it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { isErrno, Refusal } from '../platform/errors.ts'
import { LINGER_MS } from './connections.ts'
import type { Exchange } from './exchange.ts'

/** Requests that may wait on one connection; no client that means well sends more ahead. */
const WAITING_MAX = 128

interface Line {
  current: Exchange | undefined
  readonly waiting: (() => Exchange)[]
  /** What happens when nothing waits any more: what the parser did not understand is then dealt with. */
  afterwards: (() => void) | undefined
}

/**
 * Not a Set: the tables that V8 makes for one whose members come and go keep each other alive, and so the exchanges that stood in
 * them, until the next full collection (see `platform/passing.ts`).
 */
class UnderWay {
  readonly #exchanges: Exchange[] = []

  all(): readonly Exchange[] {
    return [...this.#exchanges]
  }

  add(exchange: Exchange): void {
    exchange.place = this.#exchanges.push(exchange) - 1
  }

  /** The last takes its place. */
  delete(exchange: Exchange): void {
    const last = this.#exchanges.pop()
    if (!last || last === exchange) return
    this.#exchanges[exchange.place] = last
    last.place = exchange.place
  }
}

export class Turns {
  readonly #onBusy: (socket: Socket, isBusy: boolean) => void
  readonly #lines = new WeakMap<Socket, Line>()
  readonly #refused = new WeakSet<Socket>()
  readonly #active = new UnderWay()

  /** `onBusy` is told when a connection has a request to answer again, and when it has none any more. */
  constructor(onBusy: (socket: Socket, isBusy: boolean) => void) {
    this.#onBusy = onBusy
  }

  /** Exchanges that have begun and whose answers have not left, at this moment. */
  get active(): readonly Exchange[] {
    return this.#active.all()
  }

  /** `begin` makes the exchange and sets it going, now or when its turn has come. */
  take(request: IncomingMessage, response: ServerResponse, begin: () => Exchange): void {
    const { socket } = request
    const line = this.#lineOf(socket)
    const start = () => {
      const exchange = begin()
      this.#active.add(exchange)
      response.once('close', () => {
        exchange.cancel()
        this.#active.delete(exchange)
        this.#next(socket, line)
      })
      return exchange
    }
    if (!line.current) {
      this.#onBusy(socket, true)
      line.current = start()
    } else if (line.waiting.length < WAITING_MAX) line.waiting.push(start)
    else socket.destroy()
  }

  /** True while a request of this connection waits for its answer. */
  busy(socket: Socket): boolean {
    return this.#lines.get(socket)?.current !== undefined
  }

  /** Calls back when no request of this connection waits for its answer: at once, or unless it closes before. */
  whenFree(socket: Socket, callback: () => void): void {
    const line = this.#lines.get(socket)
    if (line?.current) line.afterwards = callback
    else callback()
  }

  /** What the parser cannot read, or has waited for in vain. */
  refuse(error: Error, socket: Socket): void {
    const line = this.#lines.get(socket)
    if (isErrno(error, 'ECONNRESET', 'EPIPE')) socket.destroy()
    else if (!line?.current) this.#answer(error, socket)
    else if (line.current.request.complete) line.afterwards = () => this.#answer(error, socket)
    // What is wrong with the rest of a request that was refused changes nothing about its answer.
    else if (line.current.isRefused) return
    // An upload has a pace instead.
    else if (!line.current.isUpload || !isErrno(error, 'ERR_HTTP_REQUEST_TIMEOUT')) line.current.cut(refusalOf(error))
  }

  #next(socket: Socket, line: Line): void {
    line.current = undefined
    if (!socket.writable) return
    line.current = line.waiting.shift()?.()
    if (line.current) return
    this.#onBusy(socket, false)
    const { afterwards } = line
    line.afterwards = undefined
    afterwards?.()
  }

  #lineOf(socket: Socket): Line {
    const known = this.#lines.get(socket)
    if (known) return known
    const line: Line = { current: undefined, waiting: [], afterwards: undefined }
    this.#lines.set(socket, line)
    return line
  }

  /** Plainly, without a look at what it was. What still comes is thrown away: a reset could overtake the answer. */
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

/** For a request whose head was good and whose body is not. */
function refusalOf(error: Error): Refusal {
  if (isErrno(error, 'ERR_HTTP_REQUEST_TIMEOUT')) return new Refusal('request_timeout', BODY_LATE)
  return new Refusal('invalid_request', 'the request body is not what HTTP allows')
}

export const BODY_LATE = 'the request body did not come in time'
