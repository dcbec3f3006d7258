/**
 * A minimal HTTP/1.1 client that still reads every byte: one request at a time on one socket. All sockets share one read
 * buffer, so the data that a handler gets is valid only during the call.
 */
import { connect, type Socket } from 'node:net'

const shared = Buffer.allocUnsafeSlow(256 * 1024)
const HEAD_END = Buffer.from('\r\n\r\n')

export interface Handler {
  readonly onHead?: (status: number, head: string) => void
  readonly onBody: (bytes: Buffer) => void
  readonly onEnd: () => void
  readonly onFail: (error: Error) => void
}

type State = 'idle' | 'head' | 'length' | 'close' | 'chunk size' | 'chunk' | 'chunk end' | 'last line'

export class HttpSocket {
  readonly #socket: Socket
  readonly #port: number
  #state: State = 'idle'
  #handler: Handler | undefined
  #head = Buffer.alloc(0)
  /** Remaining bytes of the current part. */
  #left = 0

  constructor(port: number) {
    this.#port = port
    const callback = (length: number) => {
      this.#feed(shared.subarray(0, length))
      return true
    }
    this.#socket = connect({ host: '127.0.0.1', port, onread: { buffer: shared, callback }, noDelay: true })
    this.#socket.on('error', (error) => this.#fail(error))
    this.#socket.on('close', () => {
      if (this.#state === 'close') this.#finish()
      else this.#fail(new Error('the connection was closed in the middle of an answer'))
    })
  }

  /** `body` is ASCII, and its length is among the headers. */
  get(path: string, handler: Handler, header = '', verb = 'GET', body = ''): void {
    this.#handler = handler
    this.#state = 'head'
    this.#head = Buffer.alloc(0)
    this.#socket.write(`${verb} ${path} HTTP/1.1\r\nHost: 127.0.0.1:${this.#port}\r\n${header}\r\n${body}`, 'latin1')
  }

  close(): void {
    this.#handler = undefined
    this.#state = 'idle'
    this.#socket.destroy()
  }

  #fail(error: Error): void {
    const handler = this.#handler
    this.#handler = undefined
    handler?.onFail(error)
  }

  #finish(): void {
    const handler = this.#handler
    this.#handler = undefined
    this.#state = 'idle'
    handler?.onEnd()
  }

  #feed(bytes: Buffer): void {
    for (let at = 0; at < bytes.length && this.#handler; ) at = this.#step(bytes, at)
  }

  /** Consumes the rest of the current part. Returns where the next one starts. */
  #step(bytes: Buffer, at: number): number {
    if (this.#state === 'head') return this.#readHead(bytes, at)
    if (this.#state === 'chunk size') return this.#readSize(bytes, at)
    if (this.#state === 'close') {
      this.#handler?.onBody(bytes.subarray(at))
      return bytes.length
    }
    const length = Math.min(this.#left, bytes.length - at)
    this.#left -= length
    if (this.#state === 'length' || this.#state === 'chunk') this.#handler?.onBody(bytes.subarray(at, at + length))
    if (this.#left === 0) this.#nextPart()
    return at + length
  }

  #nextPart(): void {
    if (this.#state === 'length' || this.#state === 'last line') this.#finish()
    else if (this.#state === 'chunk') [this.#state, this.#left] = ['chunk end', 2]
    else [this.#state, this.#left] = ['chunk size', 0]
  }

  #readHead(bytes: Buffer, at: number): number {
    const before = this.#head.length
    this.#head = Buffer.concat([this.#head, bytes.subarray(at)])
    const end = this.#head.indexOf(HEAD_END)
    if (end < 0) return bytes.length
    const head = this.#head.toString('latin1', 0, end)
    const status = Number(head.slice(9, 12))
    const length = status === 204 ? '0' : /^content-length: *(\d+)/im.exec(head)?.[1]
    this.#left = Number(length ?? 0)
    if (/^transfer-encoding: *chunked/im.test(head)) this.#state = 'chunk size'
    else this.#state = length === undefined ? 'close' : 'length'
    this.#handler?.onHead?.(status, head)
    if (this.#state === 'length' && this.#left === 0) this.#finish()
    return at + end + HEAD_END.length - before
  }

  #readSize(bytes: Buffer, from: number): number {
    let at = from
    for (; at < bytes.length; at++) {
      const letter = bytes[at] ?? 0
      if (letter === 10) break
      if (letter !== 13) this.#left = this.#left * 16 + (letter > 57 ? (letter | 32) - 87 : letter - 48)
    }
    if (at === bytes.length) return at
    if (this.#left === 0) [this.#state, this.#left] = ['last line', 2]
    else this.#state = 'chunk'
    return at + 1
  }
}

/** Returns a whole response. Throws if its status is not 200. */
export function fetchWhole(port: number, path: string, header = ''): Promise<{ head: string; body: Buffer }> {
  return new Promise((resolve, reject) => {
    const socket = new HttpSocket(port)
    const parts: Buffer[] = []
    let answer = { status: 0, head: '' }
    const fail = (error: Error) => {
      socket.close()
      reject(error)
    }
    const handler = {
      onHead: (status: number, head: string) => void (answer = { status, head }),
      onBody: (bytes: Buffer) => void parts.push(Buffer.from(bytes)),
      onEnd() {
        socket.close()
        const body = Buffer.concat(parts)
        if (answer.status === 200) resolve({ head: answer.head, body })
        else reject(new Error(`status ${answer.status} for ${path}: ${body.toString().slice(0, 200)}`))
      },
      onFail: fail,
    }
    socket.get(path, handler, header)
  })
}
