/**
 * An audit device that sends lines over a TCP, UDP or Unix socket. A line is recorded when the kernel has accepted it. If the
 * receiver does not read, a write fails after `timeoutMs`; then the connection is closed and the next write opens a new one. The
 * numbers of lines that may have arrived are not used again: a receiver that has them sees one chain, and one that has not sees a
 * gap instead of two lines with the same number.
 */
import { createSocket } from 'node:dgram'
import { connect, type Socket } from 'node:net'
import { Fault } from '../../platform/errors.ts'
import type { LineSink } from './audit-file.ts'
import type { DeviceChain } from './device-chain.ts'
import { DeviceFault } from './device-fault.ts'

/** A longer line is refused, because a truncated line is useless. */
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
  /** Connected sockets. Bytes written to any other socket were not sent. */
  readonly #connectedSockets = new WeakSet<Socket>()
  #isWriting = false
  #isClosed = false
  /** The connection must be closed before the next write. */
  #isStale = false

  constructor(options: AuditSocketOptions) {
    this.#options = options
    // A datagram that is too long must fail only its own request.
    this.isOneByOne = options.type === 'udp'
  }

  async write(lines: readonly string[], chain: DeviceChain): Promise<void> {
    if (this.#isClosed) throw new DeviceFault('the audit device', 'is closed')
    if (this.#isStale) this.#disconnect()
    const { heads, text } = chain.append(lines, this.#options.prefix)
    const last = heads.at(-1)
    if (!last) return
    if (this.#options.type === 'udp') await this.#sendDatagram(text)
    else await this.#sendOrReconnect(text, () => chain.advance(last))
    chain.advance(last)
  }

  /** A write in progress is finished first. */
  reopen(): void {
    this.#isStale = true
    if (!this.#isWriting) this.#disconnect()
  }

  close(): void {
    this.#isClosed = true
    if (!this.#isWriting) this.#disconnect()
  }

  #disconnect(): void {
    this.#isStale = false
    this.#socket?.end()
    this.#socket = undefined
  }

  /** `onUncertain` is called if the write fails but lines may have arrived. */
  async #sendOrReconnect(text: string, onUncertain: () => void): Promise<void> {
    this.#isWriting = true
    const socket = (this.#socket ??= this.#connect())
    try {
      await this.#send(socket, text)
    } catch (error) {
      if (this.#connectedSockets.has(socket)) onUncertain()
      throw error
    } finally {
      this.#isWriting = false
      if (this.#isClosed) this.#disconnect()
    }
  }

  async #send(socket: Socket, text: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const settle = (error?: Error | null) => {
        clearTimeout(timer)
        socket.off('error', settle)
        socket.off('close', closed)
        if (!error) return resolve()
        socket.destroy()
        if (this.#socket === socket) this.#socket = undefined
        reject(error)
      }
      const closed = () => settle(new DeviceFault(this.#options.address, 'has closed the connection'))
      const timer = setTimeout(() => {
        settle(new DeviceFault(this.#options.address, `accepted no data for ${this.#options.timeoutMs} ms`))
      }, this.#options.timeoutMs)
      socket.once('error', settle)
      socket.once('close', closed)
      // An error of the callback only states that the stream was destroyed; the events have the cause.
      socket.write(text, (error) => {
        if (!error) settle()
      })
    })
  }

  #connect(): Socket {
    const { address, type } = this.#options
    const socket = type === 'unix' ? connect({ path: address }) : connect(endpoint(address))
    socket.unref()
    socket.once('connect', () => this.#connectedSockets.add(socket))
    // Data from the receiver is discarded; unread data would block the connection.
    socket.resume()
    // An error between writes is ignored, because the next write opens a new connection.
    socket.on('error', () => undefined)
    socket.on('close', () => {
      if (this.#socket === socket) this.#socket = undefined
    })
    return socket
  }

  async #sendDatagram(line: string): Promise<void> {
    const bytes = Buffer.from(line)
    if (bytes.length > DATAGRAM_BYTES_MAX)
      throw new DeviceFault(
        this.#options.address,
        `refused a line above the limit of a datagram (${DATAGRAM_BYTES_MAX} bytes)`,
      )
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

/** Parses `host:port` or `[address]:port`. Throws a Fault for anything else. */
export function endpoint(address: string): { host: string; port: number } {
  const [, bracketed, plain, digits] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(address) ?? []
  const [host, port] = [bracketed ?? plain, Number(digits)]
  if (host === undefined || !(port >= 1 && port <= 65_535))
    throw new Fault(`malformed address "${address}": expected host:port`)
  return { host, port }
}
