/**
 * An audit device that sends lines over a TCP, UDP or Unix socket. A line is recorded when the kernel has accepted it. The numbers of
 * lines that may have arrived are not used again: a receiver that has them sees one chain, and one that has not sees a gap instead of two
 * lines with the same number.
 *
 * If the receiver does not read, a write fails after `timeoutMs`, and further lines are refused immediately. A new connection proves
 * nothing: the kernel of a frozen process accepts it, and the lines that fit into its buffers. Therefore the stalled connection is kept.
 * That the kernel accepts the rest of the write shows that the receiver reads again. A connection may also be dead without an error, for
 * example when a firewall has lost its state. Therefore it is replaced after a delay, which doubles each time until a connection has
 * carried more bytes than the buffers hold (decision 118).
 */
import { createSocket } from 'node:dgram'
import { connect, type Socket } from 'node:net'
import { Fault } from '../../platform/errors.ts'
import type { LineSink } from './audit-file.ts'
import type { DeviceChain } from './device-chain.ts'
import { DeviceFault } from './device-fault.ts'

/** A longer line is refused, because a truncated line is useless. */
const DATAGRAM_BYTES_MAX = 65_000
/** Time until a stalled connection is replaced for the first time, and at most */
const RECONNECT_MS = 10_000
const RECONNECT_MS_MAX = 300_000
/** More than the buffers of both kernels hold while the receiver does not read. The default maximum of Linux for sending is 4 MiB. */
const PROVEN_BYTES = 16 << 20

export interface AuditSocketOptions {
  readonly type: 'tcp' | 'udp' | 'unix'
  /** `host:port`, or the path of a Unix socket. */
  readonly address: string
  readonly timeoutMs: number
  readonly prefix: string
  /** Monotonic milliseconds. */
  readonly elapsed: () => number
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
  /** The receiver does not read. The connection is replaced at this time. */
  #stalledUntilMs: number | undefined
  #reconnectMs = RECONNECT_MS

  constructor(options: AuditSocketOptions) {
    this.#options = options
    // A datagram that is too long must fail only its own request.
    this.isOneByOne = options.type === 'udp'
  }

  async write(lines: readonly string[], chain: DeviceChain): Promise<void> {
    if (this.#isClosed) throw new DeviceFault('the audit device', 'is closed')
    if (this.#isStale) this.#disconnect()
    this.#checkStall()
    const { heads, text } = chain.append(lines, this.#options.prefix)
    const last = heads.at(-1)
    if (!last) return
    if (this.#options.type === 'udp') await this.#sendDatagram(text)
    else await this.#sendOrReconnect(text, () => chain.advance(last))
    chain.advance(last)
  }

  get distrustMs(): number {
    const { timeoutMs, type } = this.#options
    if (type === 'udp') return 0
    return this.#reconnectMs === RECONNECT_MS ? timeoutMs : timeoutMs + this.#reconnectMs
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
    if (this.#stalledUntilMs === undefined) this.#socket?.end()
    else {
      // A stalled connection would not end, and the next one is not proven.
      this.#socket?.destroy()
      this.#reconnectMs = Math.min(2 * this.#reconnectMs, RECONNECT_MS_MAX)
    }
    this.#isStale = false
    this.#socket = undefined
    this.#stalledUntilMs = undefined
  }

  /** Throws a DeviceFault while the receiver does not read, until a new connection is due. */
  #checkStall(): void {
    if (this.#stalledUntilMs === undefined) return
    if (this.#options.elapsed() < this.#stalledUntilMs) throw this.#timeoutFault()
    this.#disconnect()
  }

  #timeoutFault(): DeviceFault {
    return new DeviceFault(this.#options.address, `accepted no data for ${this.#options.timeoutMs} ms`)
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
      const end = () => {
        clearTimeout(timer)
        socket.off('error', failed)
        socket.off('close', closed)
      }
      const failed = (error: Error) => {
        end()
        socket.destroy()
        if (this.#socket === socket) this.#socket = undefined
        reject(error)
      }
      const closed = () => failed(new DeviceFault(this.#options.address, 'has closed the connection'))
      const timer = setTimeout(() => {
        if (!this.#connectedSockets.has(socket)) return failed(this.#timeoutFault())
        end()
        this.#stalledUntilMs = this.#options.elapsed() + this.#reconnectMs
        reject(this.#timeoutFault())
      }, this.#options.timeoutMs)
      socket.once('error', failed)
      socket.once('close', closed)
      // An error of the callback only states that the stream was destroyed; the events have the cause.
      socket.write(text, (error) => {
        if (error) return
        end()
        this.#accepted(socket)
        resolve()
      })
    })
  }

  /** The kernel has accepted a write, perhaps after its timeout. */
  #accepted(socket: Socket): void {
    if (this.#socket !== socket) return
    if (this.#stalledUntilMs !== undefined || socket.bytesWritten > PROVEN_BYTES) this.#reconnectMs = RECONNECT_MS
    this.#stalledUntilMs = undefined
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
      if (this.#socket !== socket) return
      this.#socket = undefined
      this.#stalledUntilMs = undefined
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
