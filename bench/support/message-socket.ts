/**
 * A minimal WebSocket client that still reads every byte: one stream on one socket, message by message. As in
 * `http-socket.ts`, all sockets share one read buffer, so the data that a handler gets is valid only during the call.
 */
import { connect, type Socket } from 'node:net'

const shared = Buffer.allocUnsafeSlow(256 * 1024)
const HEAD_END = Buffer.from('\r\n\r\n')
/** Maximum header of a server message: two bytes, and up to eight bytes of length. */
const HEADER_BYTES_MAX = 10
const CLOSE = 0x8

export interface MessageHandler {
  /** Part of a message. */
  readonly onBytes: (bytes: Buffer) => void
  /** The server has closed, with this code. */
  readonly onClose: (code: number) => void
  readonly onFail: (error: Error) => void
}

export class MessageSocket {
  readonly #socket: Socket
  readonly #port: number
  #handler: MessageHandler | undefined
  readonly #header = Buffer.alloc(HEADER_BYTES_MAX)
  #head: Buffer | undefined = Buffer.alloc(0)
  #headerBytes = 0
  #opcode = 0
  /** Remaining bytes of the current message. */
  #left = 0
  #closed = false

  constructor(port: number) {
    this.#port = port
    const callback = (length: number) => {
      this.#feed(shared.subarray(0, length))
      return true
    }
    this.#socket = connect({ host: '127.0.0.1', port, onread: { buffer: shared, callback }, noDelay: true })
    this.#socket.on('error', (error) => this.#fail(error))
    this.#socket.on('close', () => this.#fail(new Error('the connection ended without a close message')))
  }

  open(path: string, handler: MessageHandler): void {
    this.#handler = handler
    const lines = [`GET ${path} HTTP/1.1`, `Host: 127.0.0.1:${this.#port}`, 'Connection: Upgrade', 'Upgrade: websocket']
    this.#socket.write(
      [...lines, 'Sec-WebSocket-Version: 13', 'Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==', '', ''].join('\r\n'),
    )
  }

  close(): void {
    this.#closed = true
    this.#socket.destroy()
  }

  #fail(error: Error): void {
    if (this.#closed) return
    this.close()
    this.#handler?.onFail(error)
  }

  #feed(bytes: Buffer): void {
    let at = this.#head ? this.#readHead(bytes) : 0
    while (at < bytes.length && !this.#closed) {
      if (this.#left === 0) {
        at = this.#readHeader(bytes, at)
        continue
      }
      const length = Math.min(this.#left, bytes.length - at)
      this.#left -= length
      if (this.#opcode === CLOSE) this.#end(bytes.subarray(at, at + length))
      else this.#handler?.onBytes(bytes.subarray(at, at + length))
      at += length
    }
  }

  /** Close codes arrive in one piece: two bytes before an optional reason. */
  #end(bytes: Buffer): void {
    this.close()
    this.#handler?.onClose(bytes.readUInt16BE())
  }

  #readHead(bytes: Buffer): number {
    const before = this.#head?.length ?? 0
    const head = Buffer.concat([this.#head ?? bytes, bytes])
    this.#head = head
    const end = head.indexOf(HEAD_END)
    if (end < 0) return bytes.length
    this.#head = undefined
    if (!head.subarray(0, 13).equals(Buffer.from('HTTP/1.1 101 '))) this.#fail(new Error(head.toString('latin1')))
    return end + HEAD_END.length - before
  }

  /** Collects the header of the next message. Returns where its payload starts. */
  #readHeader(bytes: Buffer, from: number): number {
    let at = from
    const need = () => (this.#headerBytes < 2 ? 2 : headerBytes(this.#header[1] ?? 0))
    while (this.#headerBytes < need() && at < bytes.length) this.#header[this.#headerBytes++] = bytes[at++] ?? 0
    if (this.#headerBytes < need()) return at
    const [first = 0, second = 0] = this.#header
    this.#opcode = first & 15
    this.#left = second < 126 ? second : second === 126 ? this.#header.readUInt16BE(2) : this.#header.readUIntBE(4, 6)
    this.#headerBytes = 0
    return at
  }
}

function headerBytes(second: number): number {
  return second < 126 ? 2 : second === 126 ? 4 : 10
}
