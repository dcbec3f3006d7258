/**
 * A stream as WebSocket messages (docs/decisions/009): framed streams send each frame as one text message, all others
 * each chunk as one binary message.
 *
 * The handshake is answered once the operation has produced its head, so that the 101 response has its headers. An
 * earlier error is also answered with 101 and then a close code of 4000 + status, because a browser hides a failed handshake
 * from its page.
 *
 * `ws` reads messages of the client and answers its pings and closes; it is loaded on first use. A client can
 * make it hold little: one short message and 60 queued pongs. Messages of the client are ignored, and too many close the connection.
 */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { WebSocket, WebSocketServer } from 'ws'
import { Fault } from '../platform/errors.ts'
import type { StreamHead } from '../platform/operation.ts'
import { LINGER_MS } from './connections.ts'
import { SUBPROTOCOL } from './handshake.ts'
import type { HeaderList } from './respond.ts'
import { PendingWrite, type OnBlocked, type StreamSink } from './stream.ts'

/** Limit of a message of the client; none is needed. */
const RECEIVED_BYTES_MAX = 4096
const RECEIVED_PARTS_MAX = 1024
/** Messages, pings and pongs of the client. */
const RECEIVED_PER_SECOND_MAX = 100
const REASON_BYTES_MAX = 123
const END_OF_FRAME = 0x7d

// Not with `import`: see listener.ts.
const { validateHeaderValue } = process.getBuiltinModule('node:http')

/** A handshake from Node, which no longer handles the connection. */
export interface UpgradeRequest {
  readonly request: IncomingMessage
  readonly socket: Socket
  /** Bytes after the request head. */
  readonly rest: Buffer
}

/** Answers valid handshakes (handshake.ts). */
export class Acceptor {
  readonly #server: WebSocketServer
  readonly #headers = new WeakMap<IncomingMessage, HeaderList>()

  private constructor(server: WebSocketServer) {
    this.#server = server
    server.on('headers', (lines, request) => {
      const headers = this.#headers.get(request) ?? []
      for (let at = 0; at + 1 < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`)
    })
  }

  static async load(): Promise<Acceptor> {
    const { WebSocketServer } = await import('ws')
    const server = new WebSocketServer({
      noServer: true,
      clientTracking: false,
      // Compression costs more than it saves for base64 of a log to a single reader.
      perMessageDeflate: false,
      maxPayload: RECEIVED_BYTES_MAX,
      maxFragments: RECEIVED_PARTS_MAX,
      maxBufferedChunks: RECEIVED_PARTS_MAX,
      handleProtocols: (offered) => offered.has(SUBPROTOCOL) && SUBPROTOCOL,
    })
    return new Acceptor(server)
  }

  /** Answers 101 with these headers, alternating names and values; undefined when the client has gone. */
  accept({ request, socket, rest }: UpgradeRequest, headers: HeaderList): WebSocket | undefined {
    for (let at = 0; at + 1 < headers.length; at += 2) validateHeaderValue(headers[at] ?? '', headers[at + 1] ?? '')
    this.#headers.set(request, headers)
    let accepted: WebSocket | undefined
    this.#server.handleUpgrade(request, socket, rest, (webSocket) => (accepted = webSocket))
    return accepted
  }
}

let loading: Promise<Acceptor> | undefined

export function loadAcceptor(): Promise<Acceptor> {
  loading ??= Acceptor.load()
  return loading
}

/** Callbacks of an exchange, and the first headers of its response. */
export interface WebSocketHooks {
  readonly headers: HeaderList
  readonly onBlocked: OnBlocked
  /** The client no longer reads, though the connection may still be open. */
  readonly onLeft: () => void
}

/** The response of one exchange as a WebSocket. */
export class WebSocketAnswer implements StreamSink {
  /** For the access log: 101, or the status of an error before the first message. */
  status = 101
  begun = false
  /** True once everything was sent and only the close frame of the client is missing. */
  over = false
  readonly #upgrade: UpgradeRequest
  readonly #acceptor: Acceptor
  readonly #headers: HeaderList
  readonly #onLeft: () => void
  readonly #delivery: PendingWrite
  #webSocket: WebSocket | undefined
  #framed = false
  #breaking = false
  #received = 0
  #receivedSinceMs = 0

  constructor(upgrade: UpgradeRequest, acceptor: Acceptor, hooks: WebSocketHooks) {
    this.#upgrade = upgrade
    this.#acceptor = acceptor
    this.#headers = hooks.headers
    this.#onLeft = hooks.onLeft
    this.#delivery = new PendingWrite(hooks.onBlocked)
    upgrade.socket.once('finish', hooks.onLeft)
    upgrade.socket.once('close', () => this.#delivery.done(new Error('the caller is gone')))
  }

  begin(head: StreamHead): void {
    this.#framed = head.frames === true
    this.#open(head.headers ?? {})
  }

  write(bytes: Uint8Array): Promise<Error | undefined> {
    const taken = this.#delivery.begin()
    if (this.#framed) this.#sendFrames(bytes)
    else this.#webSocket?.send(bytes, { binary: true }, this.#delivery.done)
    return taken
  }

  get gone(): boolean {
    const webSocket = this.#webSocket
    return !webSocket || webSocket.readyState !== webSocket.OPEN
  }

  /** Closes with 1000. */
  end(): void {
    this.over = true
    this.#webSocket?.close(1000)
  }

  /** Sends an error before the first message. */
  refuse(status: number, text: string, options: { code?: number; headers: Readonly<Record<string, string>> }): void {
    this.status = status
    this.#open(options.headers)
    this.break(options.code ?? 4000 + status, text)
  }

  /** Closes it as incomplete; the connection is destroyed if the client does not respond. */
  break(code: number, text: string): void {
    if (this.#breaking) return
    this.#breaking = true
    this.#webSocket?.close(code, reasonOf(text))
    this.#leaveSoon()
  }

  #leaveSoon(): void {
    const { socket } = this.#upgrade
    if (this.#webSocket) setTimeout(() => socket.destroy(), LINGER_MS).unref()
    else socket.destroy()
  }

  #open(headers: Readonly<Record<string, string>>): void {
    if (this.begun) throw new Fault('a handshake gets one response')
    this.begun = true
    const webSocket = this.#acceptor.accept(this.#upgrade, [...this.#headers, ...Object.entries(headers).flat()])
    this.#webSocket = webSocket
    if (!webSocket) return
    for (const event of ['message', 'ping', 'pong'] as const) webSocket.on(event, () => this.#countReceived())
    // `ws` has already answered a malformed frame with a close code.
    webSocket.on('error', () => {
      this.#onLeft()
      this.#leaveSoon()
    })
  }

  /** Corked, so that a chunk of many frames costs one system call. */
  #sendFrames(bytes: Uint8Array): void {
    const { socket } = this.#upgrade
    const frames = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)
    socket.cork()
    for (let from = 0; from < frames.length; ) {
      const end = frames.indexOf(END_OF_FRAME, from) + 1
      const frame = frames.subarray(from, end === 0 ? frames.length : end)
      from += frame.length
      if (from < frames.length) this.#webSocket?.send(frame, { binary: false })
      else this.#webSocket?.send(frame, { binary: false }, this.#delivery.done)
    }
    socket.uncork()
  }

  /** Rate limit of ignored messages. */
  #countReceived(): void {
    const nowMs = performance.now()
    if (nowMs - this.#receivedSinceMs > 1000) [this.#received, this.#receivedSinceMs] = [0, nowMs]
    if (++this.#received <= RECEIVED_PER_SECOND_MAX) return
    this.break(1008, 'too many messages')
    this.#webSocket?.pause()
    this.#onLeft()
  }
}

/** Truncates a text to the size limit of a close frame, at a character. */
function reasonOf(text: string): Buffer {
  const bytes = Buffer.from(text)
  if (bytes.length <= REASON_BYTES_MAX) return bytes
  let end = REASON_BYTES_MAX
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--
  return bytes.subarray(0, end)
}
