/**
 * A stream as WebSocket messages (docs/decisions/009): framed streams send each frame as one text message, all others
 * each chunk as one binary message.
 *
 * The handshake is answered when it is known how the operation answers, so that the head's headers stand on the 101. An
 * error before that is still answered with 101 and then a close code of 4000 + status, because a browser shows its page
 * nothing at all of a handshake that failed.
 *
 * `ws` reads what the caller sends, answers its pings and closes; it is loaded when it is first needed. A caller can
 * make it hold little: one short message, 60 pongs that wait to be taken. What it says counts for nothing here, and one
 * that says too much is closed.
 */
import type { IncomingMessage } from 'node:http'
import type { Socket } from 'node:net'
import type { WebSocket, WebSocketServer } from 'ws'
import { Fault } from '../platform/errors.ts'
import type { StreamHead } from '../platform/operation.ts'
import { LINGER_MS } from './connections.ts'
import { SUBPROTOCOL } from './handshake.ts'
import type { HeaderList } from './respond.ts'
import { Delivery, type OnWaiting, type Sink } from './stream.ts'

/** Longest message that a caller may send; nothing here needs any. */
const HEARD_BYTES_MAX = 4096
const HEARD_PARTS_MAX = 1024
/** Messages, pings and pongs that a caller may send within a second. */
const HEARD_PER_SECOND_MAX = 100
const REASON_BYTES_MAX = 123
const END_OF_FRAME = 0x7d

// As in listener.ts: an `import` would evaluate more than is needed.
const { validateHeaderValue } = process.getBuiltinModule('node:http')

/** A request for a WebSocket as Node hands it over: from here on the connection is ours alone. */
export interface Upgrade {
  readonly request: IncomingMessage
  readonly socket: Socket
  /** What came behind the request's head. */
  readonly rest: Buffer
}

/** Answers handshakes that were found good (handshake.ts). */
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
      // Compressing costs more than it saves where base64 of a log is sent to one reader at a time.
      perMessageDeflate: false,
      maxPayload: HEARD_BYTES_MAX,
      maxFragments: HEARD_PARTS_MAX,
      maxBufferedChunks: HEARD_PARTS_MAX,
      handleProtocols: (offered) => offered.has(SUBPROTOCOL) && SUBPROTOCOL,
    })
    return new Acceptor(server)
  }

  /** Answers 101 with these headers, names and values in turn; undefined when nobody is there any more. */
  accept({ request, socket, rest }: Upgrade, headers: HeaderList): WebSocket | undefined {
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

/** What an exchange wants to be told, and the headers that its answer begins with. */
export interface Hooks {
  readonly headers: HeaderList
  readonly onWaiting: OnWaiting
  /** The caller takes no more, though the connection may still be there. */
  readonly onLeft: () => void
}

/** The answer of one exchange as a WebSocket. */
export class WebSocketAnswer implements Sink {
  /** What the access log shows: 101, or the status that stands for the error before the first message. */
  status = 101
  /** True once the handshake has been answered. */
  begun = false
  /** True once everything has been sent and only the caller's word of farewell is missing. */
  over = false
  readonly #upgrade: Upgrade
  readonly #acceptor: Acceptor
  readonly #headers: HeaderList
  readonly #onLeft: () => void
  readonly #delivery: Delivery
  #webSocket: WebSocket | undefined
  #framed = false
  #breaking = false
  #heard = 0
  #heardSinceMs = 0

  constructor(upgrade: Upgrade, acceptor: Acceptor, hooks: Hooks) {
    this.#upgrade = upgrade
    this.#acceptor = acceptor
    this.#headers = hooks.headers
    this.#onLeft = hooks.onLeft
    this.#delivery = new Delivery(hooks.onWaiting)
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

  /** Everything was sent: closes with 1000. */
  end(): void {
    this.over = true
    this.#webSocket?.close(1000)
  }

  /** Answers with an error before anything was sent. */
  refuse(status: number, text: string, options: { code?: number; headers: Readonly<Record<string, string>> }): void {
    this.status = status
    this.#open(options.headers)
    this.break(options.code ?? 4000 + status, text)
  }

  /** Ends it as not whole, for good: a caller that does not answer this is left. */
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
    if (this.begun) throw new Fault('a handshake is answered once')
    this.begun = true
    const webSocket = this.#acceptor.accept(this.#upgrade, [...this.#headers, ...Object.entries(headers).flat()])
    this.#webSocket = webSocket
    if (!webSocket) return
    for (const event of ['message', 'ping', 'pong'] as const) webSocket.on(event, () => this.#hear())
    // What cannot be read has been answered with a close code already.
    webSocket.on('error', () => {
      this.#onLeft()
      this.#leaveSoon()
    })
  }

  /** Together on their way, so that a chunk of many frames costs one call of the system. */
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

  /** Nothing that a caller says is of use; saying it all the time would keep us busy. */
  #hear(): void {
    const nowMs = performance.now()
    if (nowMs - this.#heardSinceMs > 1000) [this.#heard, this.#heardSinceMs] = [0, nowMs]
    if (++this.#heard <= HEARD_PER_SECOND_MAX) return
    this.break(1008, 'too many messages')
    this.#webSocket?.pause()
    this.#onLeft()
  }
}

/** As much of a text as the close frame of a WebSocket has room for, cut at a character. */
function reasonOf(text: string): Buffer {
  const bytes = Buffer.from(text)
  if (bytes.length <= REASON_BYTES_MAX) return bytes
  let end = REASON_BYTES_MAX
  while (((bytes[end] ?? 0) & 0xc0) === 0x80) end--
  return bytes.subarray(0, end)
}
