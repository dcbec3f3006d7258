/**
 * How many connections one address may hold. The one too many gets a plain 429 and is closed; when even those answers
 * come too fast, it is closed without a word, so that refusing cannot be made expensive.
 */
import type { Socket } from 'node:net'

const BODY = 'Your IP is issuing too many concurrent connections, please rate limit your calls\n'
const ANSWER = `HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: ${BODY.length}\r\nConnection: close\r\n\r\n${BODY}`
const ANSWERS_PER_SECOND = 10
const ANSWERS_BURST = 100
/** How long a caller that is turned away, here or later, may take to read its answer. */
export const LINGER_MS = 1000

export class Connections {
  readonly #counts = new Map<string, number>()
  #limit: number
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
    for (const count of this.#counts.values()) sum += count
    return sum
  }

  /** Counts a connection in; false when it was turned away, with or without an answer. */
  admit(socket: Socket, options: { answer: boolean } = { answer: true }): boolean {
    const address = plainAddress(socket.remoteAddress ?? '')
    const count = this.#counts.get(address) ?? 0
    if (this.#limit > 0 && count >= this.#limit) {
      this.exceeded++
      this.#refuse(socket, options.answer)
      return false
    }
    this.#counts.set(address, count + 1)
    socket.once('close', () => this.#leave(address))
    return true
  }

  #leave(address: string): void {
    const count = (this.#counts.get(address) ?? 1) - 1
    if (count > 0) this.#counts.set(address, count)
    else this.#counts.delete(address)
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
