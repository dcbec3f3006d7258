/**
 * How many connections one address may hold. For the one too many, the connection of this address that has been idle for
 * the longest time is closed: a client behind a proxy must not be refused because others keep connections open. Where
 * none is idle, the new one gets a plain 429 and is closed; when even those answers come too fast, it is closed without a
 * word, so that refusing cannot be made expensive.
 */
import type { Socket } from 'node:net'

const BODY = 'Your IP is issuing too many concurrent connections, please rate limit your calls\n'
const ANSWER = `HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: ${BODY.length}\r\nConnection: close\r\n\r\n${BODY}`
const ANSWERS_PER_SECOND = 10
const ANSWERS_BURST = 100
/** How long a caller that is turned away, here or later, may take to read its answer. */
export const LINGER_MS = 1000

/** One connection as it is counted. */
interface Held {
  readonly socket: Socket
  readonly address: string
  /** What had been received when its last request was answered: with more than that, the next one is on its way. */
  answeredBytes: number
  /** Counts when it became idle; 0 while it has a request under way. */
  idleSince: number
}

export class Connections {
  /** By address. */
  readonly #callers = new Map<string, Set<Held>>()
  readonly #held = new WeakMap<Socket, Held>()
  #limit: number
  /** Grows each time that a connection becomes idle. */
  #idleCount = 0
  #tokens = ANSWERS_BURST
  #tokensAtMs = performance.now()
  /** Connections that were turned away since the start. */
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

  /** Counts a connection in; false when it was turned away, with or without an answer. */
  admit(socket: Socket, options: { answer: boolean } = { answer: true }): boolean {
    const address = plainAddress(socket.remoteAddress ?? '')
    const caller = this.#callers.get(address) ?? new Set()
    if (this.#limit > 0 && caller.size >= this.#limit && !this.#makeRoom(caller)) {
      this.exceeded++
      this.#refuse(socket, options.answer)
      return false
    }
    const held: Held = { socket, address, answeredBytes: 0, idleSince: ++this.#idleCount }
    caller.add(held)
    this.#callers.set(address, caller)
    this.#held.set(socket, held)
    socket.once('close', () => this.#leave(held))
    return true
  }

  /** TLS stands now: requests come from this socket, which is another one than that of the connection. */
  secured(socket: Socket): void {
    const caller = this.#callers.get(plainAddress(socket.remoteAddress ?? ''))
    for (const held of caller ?? []) {
      if (held.socket.remotePort !== socket.remotePort || held.socket.localAddress !== socket.localAddress) continue
      this.#held.set(socket, held)
      held.answeredBytes = held.socket.bytesRead
      return
    }
  }

  /** A connection has a request to answer, or none any more. */
  mark(socket: Socket, isBusy: boolean): void {
    const held = this.#held.get(socket)
    if (!held) return
    held.idleSince = isBusy ? 0 : ++this.#idleCount
    if (!isBusy) held.answeredBytes = held.socket.bytesRead
  }

  /** Closes the connection that has been idle for the longest time. A request that is coming in is not idle. */
  #makeRoom(caller: Iterable<Held>): boolean {
    let longest: Held | undefined
    for (const held of caller) {
      if (held.idleSince === 0 || held.socket.bytesRead > held.answeredBytes) continue
      if (!longest || held.idleSince < longest.idleSince) longest = held
    }
    if (!longest) return false
    this.#leave(longest)
    longest.socket.destroy()
    return true
  }

  #leave(held: Held): void {
    const caller = this.#callers.get(held.address)
    if (caller?.delete(held) && caller.size === 0) this.#callers.delete(held.address)
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
    // Reading on keeps the kernel from answering unread bytes with a reset that would swallow the answer.
    socket.resume()
    socket.end(ANSWER)
    setTimeout(() => socket.destroy(), LINGER_MS).unref()
  }
}

/** One caller is one caller, whether its address comes as IPv4 or as IPv4 mapped into IPv6. */
export function plainAddress(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address
}
