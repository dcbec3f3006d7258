/**
 * A WebSocket client that sends arbitrary bytes, for protocol violations, and verifies every received byte against the
 * protocol.
 */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { connect, type Socket } from 'node:net'
import { connect as connectTls, type ConnectionOptions } from 'node:tls'
import { eventually } from './eventually.ts'

const KEY = 'dGhlIHNhbXBsZSBub25jZQ=='
const ACCEPT = createHash('sha1').update(`${KEY}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64')

export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const

export interface Message {
  readonly kind: 'text' | 'binary' | 'ping' | 'pong'
  readonly bytes: Buffer
}

export interface MessageClientOptions {
  readonly port: number
  readonly path: string
  /** Further header lines of the request. */
  readonly lines?: readonly string[]
  readonly tls?: ConnectionOptions
  /** Reads nothing until the socket is resumed. */
  readonly paused?: boolean
  /** Does not close the connection when the server does. */
  readonly stays?: boolean
}

const nameOf = (line: string) => line.slice(0, line.indexOf(':')).toLowerCase()

/** The head of a handshake; a header in `lines` replaces the default one, and removes it if it has no value. */
export function handshake(path: string, lines: readonly string[] = []): string {
  const usual = ['Host: localhost', 'Connection: Upgrade', 'Upgrade: websocket', 'Sec-WebSocket-Version: 13']
  const given = new Set(lines.map(nameOf))
  const kept = [...usual, `Sec-WebSocket-Key: ${KEY}`].filter((line) => !given.has(nameOf(line)))
  return [`GET ${path} HTTP/1.1`, ...kept, ...lines.filter((line) => !line.endsWith(':')), '', ''].join('\r\n')
}

/** A frame as a client sends it. */
export function clientFrame(
  opcode: number,
  payload: Uint8Array | string,
  { masked = true, fin = true }: { masked?: boolean; fin?: boolean } = {},
): Buffer {
  const bytes = Buffer.from(payload)
  const mask = masked ? Buffer.from([1, 2, 3, 4]) : Buffer.alloc(0)
  const length = bytes.length < 126 ? Buffer.from([bytes.length]) : Buffer.from([126, bytes.length >> 8, bytes.length])
  length[0] = (length[0] ?? 0) | (masked ? 0x80 : 0)
  if (masked) bytes.forEach((byte, at) => (bytes[at] = byte ^ (mask[at % 4] ?? 0)))
  return Buffer.concat([Buffer.from([(fin ? 0x80 : 0) | opcode]), length, mask, bytes])
}

export class MessageClient {
  readonly socket: Socket
  readonly messages: Message[] = []
  /** The head of the response, once received. */
  head: string | undefined
  closed: { readonly code: number; readonly reason: string } | undefined
  /** How the connection ended. */
  ended: 'end' | 'reset' | undefined
  #rest: Buffer = Buffer.alloc(0)

  constructor({ port, path, lines, tls, paused = false, stays = false }: MessageClientOptions) {
    const to = { port, host: '127.0.0.1', allowHalfOpen: stays }
    this.socket = tls ? connectTls({ ...to, ...tls }) : connect(to)
    this.socket.on('error', () => (this.ended ??= 'reset'))
    this.socket.on('end', () => (this.ended ??= 'end'))
    this.socket.on('close', () => (this.ended ??= 'reset'))
    this.socket.on('data', (bytes) => this.#take(bytes))
    if (paused) this.socket.pause()
    this.socket.write(handshake(path, lines))
  }

  #take(bytes: Buffer): void {
    this.#rest = Buffer.concat([this.#rest, bytes])
    if (this.head === undefined) {
      const end = this.#rest.indexOf('\r\n\r\n')
      if (end < 0) return
      this.head = this.#rest.toString('latin1', 0, end)
      this.#rest = this.#rest.subarray(end + 4)
    }
    if (!this.head.startsWith('HTTP/1.1 101 ')) return
    assert.equal(this.header('sec-websocket-accept'), ACCEPT)
    while (this.#takeFrame());
  }

  /** Parses one complete frame, if received. */
  #takeFrame(): boolean {
    const [first, second] = this.#rest
    if (first === undefined || second === undefined || this.closed) return false
    assert.equal(second & 0x80, 0, 'a server does not mask')
    const lengthBytes = second < 126 ? 0 : second === 126 ? 2 : 8
    const start = 2 + lengthBytes
    if (this.#rest.length < start) return false
    const length =
      lengthBytes === 0 ? second : lengthBytes === 2 ? this.#rest.readUInt16BE(2) : this.#rest.readUIntBE(4, 6)
    if (this.#rest.length < start + length) return false
    this.#frame(first, Buffer.from(this.#rest.subarray(start, start + length)))
    this.#rest = this.#rest.subarray(start + length)
    return true
  }

  #frame(first: number, bytes: Buffer): void {
    assert.equal(first & 0xf0, 0x80, 'each message is one frame, with no extension')
    const opcode = first & 15
    if (opcode === OPCODE.close) {
      assert.ok(bytes.length === 0 || bytes.length >= 2)
      const reason = new TextDecoder('utf-8', { fatal: true }).decode(bytes.subarray(2))
      this.closed = { code: bytes.length === 0 ? 1005 : bytes.readUInt16BE(), reason }
      return
    }
    const kind = (['', 'text', 'binary', '', '', '', '', '', '', 'ping', 'pong'] as const)[opcode]
    if (kind === undefined || kind === '') throw new Error(`opcode ${opcode}`)
    this.messages.push({ kind, bytes })
  }

  /** The last value of a response header. */
  header(name: string): string | undefined {
    const lines = (this.head ?? '').split('\r\n').filter((line) => line.toLowerCase().startsWith(`${name}:`))
    return lines
      .at(-1)
      ?.slice(name.length + 1)
      .trim()
  }

  /** Texts of all received messages. */
  get texts(): string[] {
    return this.messages.flatMap(({ kind, bytes }) => (kind === 'text' ? [bytes.toString()] : []))
  }

  get data(): Buffer {
    return Buffer.concat(this.messages.flatMap(({ kind, bytes }) => (kind === 'binary' ? [bytes] : [])))
  }

  send(opcode: number, payload: Uint8Array | string = '', how: { masked?: boolean; fin?: boolean } = {}): void {
    this.socket.write(clientFrame(opcode, payload, how))
  }

  /** Answers the close frame of the server and closes, as clients should. */
  farewell(): void {
    this.send(OPCODE.close, Buffer.from([3, 232]))
    this.socket.end()
  }

  async until(what: string, check: (client: this) => unknown): Promise<void> {
    try {
      await eventually(() => Boolean(check(this)), what)
    } catch (error) {
      const last = this.messages.slice(-3).map(({ bytes }) => bytes.toString('latin1', 0, 80))
      const state = { head: this.head, closed: this.closed, ended: this.ended, count: this.messages.length, last }
      throw new Error(`${String(error)}; ${JSON.stringify(state)}`, { cause: error })
    }
  }

  /** Waits for the close frame of the server. */
  async close(): Promise<{ code: number; reason: string }> {
    await this.until('it is closed', ({ closed }) => closed)
    return this.closed ?? { code: 0, reason: '' }
  }
}
