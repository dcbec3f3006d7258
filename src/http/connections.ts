/**
 * Limit of connections per client address. Above it, the connection of this address that has been idle longest is closed: a client
 * behind a proxy must not be refused because others keep connections open. If none is idle, the new connection gets a plain 429
 * response and is closed; above a rate of responses it is closed without one, so that refusing stays cheap.
 */
import type { Socket } from 'node:net'

const BODY = 'Your IP is issuing too many concurrent connections, please rate limit your calls\n'
const RESPONSE_429 = `HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: ${BODY.length}\r\nConnection: close\r\n\r\n${BODY}`
const ANSWERS_PER_SECOND = 10
const ANSWERS_BURST = 100
/** How long a refused client may take to read the response. */
export const LINGER_MS = 1000

interface TrackedConnection {
  readonly socket: Socket
  readonly address: string
  /** Bytes received when the last request was answered: more means that the next request is arriving. */
  answeredBytes: number
  /** Value of `#idleCount` when it became idle; 0 while it has a request. */
  idleSince: number
}

export class Connections {
  /** By address. */
  readonly #callers = new Map<string, Set<TrackedConnection>>()
  readonly #tracked = new WeakMap<Socket, TrackedConnection>()
  #limit: number
  /** Incremented each time a connection becomes idle. */
  #idleCount = 0
  #tokens = ANSWERS_BURST
  #tokensAtMs = performance.now()
  /** Refused connections since the start. */
  exceeded = 0

  constructor(limit: number) {
    this.#limit = limit
  }

  /** 0 switches the limit off. */
  setLimit(limit: number): void {
    this.#limit = limit
  }

  get open(): number {
    let sum = 0
    for (const { size } of this.#callers.values()) sum += size
    return sum
  }

  /** False if the connection was refused. */
  admit(socket: Socket, options: { answer: boolean } = { answer: true }): boolean {
    const address = plainAddress(socket.remoteAddress ?? '')
    const caller = this.#callers.get(address) ?? new Set()
    if (this.#limit > 0 && caller.size >= this.#limit && !this.#evictIdle(caller)) {
      this.exceeded++
      this.#refuse(socket, options.answer)
      return false
    }
    const tracked: TrackedConnection = { socket, address, answeredBytes: 0, idleSince: ++this.#idleCount }
    caller.add(tracked)
    this.#callers.set(address, caller)
    this.#tracked.set(socket, tracked)
    socket.once('close', () => this.#leave(tracked))
    return true
  }

  /** After the TLS handshake: requests come from this socket, not from that of the connection. */
  secured(socket: Socket): void {
    const caller = this.#callers.get(plainAddress(socket.remoteAddress ?? ''))
    for (const tracked of caller ?? []) {
      if (tracked.socket.remotePort !== socket.remotePort || tracked.socket.localAddress !== socket.localAddress)
        continue
      this.#tracked.set(socket, tracked)
      tracked.answeredBytes = tracked.socket.bytesRead
      return
    }
  }

  mark(socket: Socket, isBusy: boolean): void {
    const tracked = this.#tracked.get(socket)
    if (!tracked) return
    tracked.idleSince = isBusy ? 0 : ++this.#idleCount
    if (!isBusy) tracked.answeredBytes = tracked.socket.bytesRead
  }

  /** Closes the connection that has been idle longest. One with an arriving request is not idle. */
  #evictIdle(caller: Iterable<TrackedConnection>): boolean {
    let oldest: TrackedConnection | undefined
    for (const tracked of caller) {
      if (tracked.idleSince === 0 || tracked.socket.bytesRead > tracked.answeredBytes) continue
      if (!oldest || tracked.idleSince < oldest.idleSince) oldest = tracked
    }
    if (!oldest) return false
    this.#leave(oldest)
    oldest.socket.destroy()
    return true
  }

  #leave(tracked: TrackedConnection): void {
    const caller = this.#callers.get(tracked.address)
    if (caller?.delete(tracked) && caller.size === 0) this.#callers.delete(tracked.address)
  }

  #refuse(socket: Socket, answer: boolean): void {
    const nowMs = performance.now()
    this.#tokens = Math.min(ANSWERS_BURST, this.#tokens + ((nowMs - this.#tokensAtMs) / 1000) * ANSWERS_PER_SECOND)
    this.#tokensAtMs = nowMs
    socket.on('error', () => socket.destroy())
    if (!answer || this.#tokens < 1) {
      socket.destroy()
      return
    }
    this.#tokens--
    // Unread bytes would make the kernel send a reset, which can discard the response.
    socket.resume()
    socket.end(RESPONSE_429)
    setTimeout(() => socket.destroy(), LINGER_MS).unref()
  }
}

/** Strips the prefix of IPv4-mapped IPv6 addresses. */
export function plainAddress(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address
}
