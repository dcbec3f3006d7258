/**
 * Coalesces what a connection publishes in one iteration of the event loop into one write to the NATS server.
 *
 * Each write is a system call here and a read in the NATS server and in each subscriber, so many small calls cost writes
 * and not bytes. The public `publish` of the NATS client writes once for each task, of which an iteration has one for each
 * socket with data, and copies each message into newly allocated memory. Therefore PUB commands are encoded here, into
 * reused buffers, and written to the client's socket. Measured against the public `publish`: 1.6 times the throughput of forwarded
 * streams and twice that of small calls (docs/decisions/012).
 *
 * The socket is not part of the client's public API. If a version of the client keeps it elsewhere, messages are published with
 * the public `publish`: slower, otherwise the same.
 */
import { Socket } from 'node:net'
import type { NatsConnection } from '@nats-io/transport-node'

/** Publishes the messages of one connection. */
export interface Publisher {
  /** Copies the message: `payload` followed by `rest`. Throws for an invalid subject. */
  publish(subject: string, payload: Uint8Array, reply: string, rest: Uint8Array): void
  /** Keeps what is published from now on behind what the client writes in this iteration. */
  hold(): void
  /** Writes everything now. */
  flush(): void
}

/** The fastest publisher for a connection. */
export function publisherOf(connection: NatsConnection): Publisher {
  const socket = memberOf(memberOf(memberOf(connection, 'protocol'), 'transport'), 'socket')
  return socket instanceof Socket ? new SocketPublisher(socket) : new ClientPublisher(connection)
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined
}

/** Publishes with the public API of the client, which keeps the order of all its commands. */
export class ClientPublisher implements Publisher {
  readonly #connection: Pick<NatsConnection, 'publish'>

  constructor(connection: Pick<NatsConnection, 'publish'>) {
    this.#connection = connection
  }

  publish(subject: string, payload: Uint8Array, reply: string, rest: Uint8Array): void {
    const options = reply === '' ? undefined : { reply: checkedSubject(reply) }
    // The client reads the bytes at the end of the task, when the caller may have reused their memory.
    this.#connection.publish(checkedSubject(subject), Buffer.concat([payload, rest]), options)
  }

  hold(): void {
    // The client keeps the order.
  }

  flush(): void {
    // The client writes at the end of the task.
  }
}

/** Holds an answer of 64 KiB with its commands. Full buffers are written at once, so that NATS works in parallel. */
const BUFFER_BYTES = 72 * 1024
/** Free buffers that are kept. More are in use only while the NATS server is slow. */
const FREE_BUFFERS_MAX = 8
const LINE_END = Buffer.from('\r\n')

export class SocketPublisher implements Publisher {
  readonly #socket: Socket
  readonly #free: Buffer[] = []
  /** Filled buffers that are held. */
  readonly #filled: Buffer[] = []
  #buffer: Buffer | undefined
  #length = 0
  #isHeld = false
  #isScheduled = false

  constructor(socket: Socket) {
    this.#socket = socket
  }

  publish(subject: string, payload: Uint8Array, reply: string, rest: Uint8Array): void {
    const bytes = payload.length + rest.length
    const command = `PUB ${checkedSubject(subject)} ${reply === '' ? '' : `${checkedSubject(reply)} `}${bytes}\r\n`
    const buffer = this.#bufferFor(command.length + bytes + LINE_END.length)
    let at = this.#length
    at += buffer.write(command, at, 'latin1')
    for (const part of [payload, rest, LINE_END]) {
      buffer.set(part, at)
      at += part.length
    }
    this.#length = at
    if (at === buffer.length) this.#endBuffer()
    else this.#schedule()
  }

  /** Writes nothing before the end of this iteration of the event loop. */
  hold(): void {
    this.#isHeld = true
    this.#schedule()
  }

  readonly flush = (): void => {
    this.#isScheduled = false
    this.#isHeld = false
    this.#endBuffer()
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.flush)
  }

  /** The current buffer, with at least this many free bytes. */
  #bufferFor(bytes: number): Buffer {
    if (this.#buffer && this.#buffer.length - this.#length >= bytes) return this.#buffer
    this.#endBuffer()
    const free = bytes <= BUFFER_BYTES ? this.#free.pop() : undefined
    this.#buffer = free ?? Buffer.allocUnsafeSlow(Math.max(bytes, BUFFER_BYTES))
    return this.#buffer
  }

  /** Ends the current buffer, and writes the filled ones unless they are held. */
  #endBuffer(): void {
    if (this.#buffer) this.#filled.push(this.#buffer.subarray(0, this.#length))
    this.#buffer = undefined
    this.#length = 0
    if (this.#isHeld) return
    for (const bytes of this.#filled.splice(0)) this.#socket.write(bytes, () => this.#recycle(bytes))
  }

  /** Called when the kernel has copied the bytes, or the socket has failed. */
  #recycle({ buffer }: Buffer): void {
    if (buffer.byteLength === BUFFER_BYTES && this.#free.length < FREE_BUFFERS_MAX) this.#free.push(Buffer.from(buffer))
  }
}

/** White space in a subject would begin another command. */
function checkedSubject(subject: string): string {
  if (/^[!-~]+$/.test(subject)) return subject
  throw new Error('a subject may hold visible ASCII only')
}
