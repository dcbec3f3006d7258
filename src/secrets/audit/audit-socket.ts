/**
 * A device that sends its lines over a socket (TCP, UDP or a Unix socket): each line with an end of line. A line counts as
 * recorded when the system has taken it. A receiver that does not read makes a write fail after `timeoutMs`; then the
 * connection is closed, and the next write makes a new one. Of lines that may have arrived the numbers are not used again:
 * a receiver that has the lines sees one chain, and one that has not sees a gap instead of two lines with one number.
 */
import { createSocket } from 'node:dgram'
import { connect, type Socket } from 'node:net'
import { Fault } from '../../platform/errors.ts'
import type { LineSink } from './audit-file.ts'
import type { DeviceChain } from './device-chain.ts'

/** Bytes of one datagram: what does not fit is refused, as a cut line would be worth nothing. */
const DATAGRAM_BYTES_MAX = 65_000

export interface AuditSocketOptions {
  readonly type: 'tcp' | 'udp' | 'unix'
  /** `host:port`, or the path of a Unix socket. */
  readonly address: string
  readonly timeoutMs: number
  readonly prefix: string
}

export class AuditSocket implements LineSink {
  readonly isOneByOne: boolean
  readonly #options: AuditSocketOptions
  #socket: Socket | undefined
  /** Those that somebody has accepted: what was given to another one went nowhere. */
  readonly #accepted = new WeakSet<Socket>()
  #isWriting = false
  #isClosed = false
  /** The connection is to be given up before the next write. */
  #isStale = false

  constructor(options: AuditSocketOptions) {
    this.#options = options
    // A datagram that is too long is the fault of its own request.
    this.isOneByOne = options.type === 'udp'
  }

  async write(lines: readonly string[], chain: DeviceChain): Promise<void> {
    if (this.#isClosed) throw new Fault('the audit device is closed')
    if (this.#isStale) this.#drop()
    const { heads, text } = chain.append(lines, this.#options.prefix)
    const last = heads.at(-1)
    if (!last) return
    if (this.#options.type === 'udp') await this.#datagram(text)
    else await this.#sent(text, () => chain.advance(last))
    chain.advance(last)
  }

  /** What is being sent is sent to its end. */
  reopen(): void {
    this.#isStale = true
    if (!this.#isWriting) this.#drop()
  }

  close(): void {
    this.#isClosed = true
    if (!this.#isWriting) this.#drop()
  }

  #drop(): void {
    this.#isStale = false
    this.#socket?.end()
    this.#socket = undefined
  }

  /** `unsure` is called where it fails and lines may have arrived. */
  async #sent(text: string, unsure: () => void): Promise<void> {
    this.#isWriting = true
    const socket = (this.#socket ??= this.#connected())
    try {
      await this.#send(socket, text)
    } catch (error) {
      if (this.#accepted.has(socket)) unsure()
      throw error
    } finally {
      this.#isWriting = false
      if (this.#isClosed) this.#drop()
    }
  }

  async #send(socket: Socket, text: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const give = (error?: Error | null) => {
        clearTimeout(timer)
        socket.off('error', give)
        socket.off('close', closed)
        if (!error) return resolve()
        socket.destroy()
        if (this.#socket === socket) this.#socket = undefined
        reject(error)
      }
      const closed = () => give(new Fault(`${this.#options.address} has closed the connection`))
      const timer = setTimeout(() => {
        give(new Fault(`${this.#options.address} took nothing for ${this.#options.timeoutMs} ms`))
      }, this.#options.timeoutMs)
      socket.once('error', give)
      socket.once('close', closed)
      // Why it fails, the events tell: to the write it is only a stream that was destroyed.
      socket.write(text, (error) => {
        if (!error) give()
      })
    })
  }

  #connected(): Socket {
    const { address, type } = this.#options
    const socket = type === 'unix' ? connect({ path: address }) : connect(endpoint(address))
    socket.unref()
    socket.once('connect', () => this.#accepted.add(socket))
    // What the receiver says is of no interest; unread it would hold the connection up.
    socket.resume()
    // Between two writes: the next one makes a new connection.
    socket.on('error', () => undefined)
    socket.on('close', () => {
      if (this.#socket === socket) this.#socket = undefined
    })
    return socket
  }

  async #datagram(line: string): Promise<void> {
    const bytes = Buffer.from(line)
    if (bytes.length > DATAGRAM_BYTES_MAX) throw new Fault(`a line of ${bytes.length} bytes does not fit a datagram`)
    const { host, port } = endpoint(this.#options.address)
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4')
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once('error', reject)
        socket.send(bytes, port, host, (error) => (error ? reject(error) : resolve()))
      })
    } finally {
      socket.close()
    }
  }
}

/** Host and port of `host:port` or `[address]:port`. Throws a Fault for anything else. */
export function endpoint(address: string): { host: string; port: number } {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(address) ?? []
  const [host, port] = [bracketed ?? plain, Number(digits)]
  if (host === undefined || !(port >= 1 && port <= 65_535)) throw new Fault(`"${address}" is no address: host:port`)
  return { host, port }
}
