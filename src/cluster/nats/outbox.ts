/**
 * What is published in one turn of the event loop goes to the NATS server in one write.
 *
 * Each write costs a call of the system here and a read there, for the NATS server and behind it for everybody who hears
 * the message: many small calls at once are a matter of writes, not of bytes. The client writes at the end of each task,
 * of which a turn has one for every connection with something to read; it also puts its own head and end around a
 * message into memory that it asks for anew each time. So commands to publish are laid out here, in memory that is used
 * again, and handed to the socket below the client; everything else about the connection is the client's
 * (docs/decisions/012).
 *
 * The socket is not part of what the client offers, and an update of it may keep it elsewhere. Then everything is
 * published through the client: more slowly, and otherwise the same.
 */
import { Socket } from 'node:net'
import type { NatsConnection } from '@nats-io/transport-node'

/** How messages of a connection go out. */
export interface Outbox {
  /** Copies the message, which is `payload` with `rest` behind it. Throws for a subject that is none. */
  publish(subject: string, payload: Uint8Array, reply: string, rest: Uint8Array): void
  /** What is published from now on does not overtake what the client has been told to send in this turn. */
  hold(): void
  /** Hands on all there is. */
  flush(): void
}

/** The quickest way for a connection. */
export function outboxOf(connection: NatsConnection): Outbox {
  const socket = member(member(member(connection, 'protocol'), 'transport'), 'socket')
  return socket instanceof Socket ? new SocketOutbox(socket) : new ClientOutbox(connection)
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined
}

/** By what the client offers, which keeps the order of everything that it is told. */
export class ClientOutbox implements Outbox {
  readonly #connection: Pick<NatsConnection, 'publish'>

  constructor(connection: Pick<NatsConnection, 'publish'>) {
    this.#connection = connection
  }

  publish(subject: string, payload: Uint8Array, reply: string, rest: Uint8Array): void {
    const options = reply === '' ? undefined : { reply: checked(reply) }
    // The client reads its bytes at the end of the task; their memory may be used again before.
    this.#connection.publish(checked(subject), Buffer.concat([payload, rest]), options)
  }

  hold(): void {
    // Nothing overtakes anything.
  }

  flush(): void {
    // The client writes at the end of the task.
  }
}

/** An answer of 64 KiB fits into one, with what is around it. More goes out as it fills, so that NATS works meanwhile. */
const BUFFER_BYTES = 72 * 1024
/** Buffers kept for later: more than that are on their way only while the NATS server is slow. */
const KEPT_MAX = 8
const END = Buffer.from('\r\n')

export class SocketOutbox implements Outbox {
  readonly #socket: Socket
  readonly #free: Buffer[] = []
  /** Full ones that have to wait. */
  readonly #waiting: Buffer[] = []
  #buffer: Buffer | undefined
  #filled = 0
  #isHeld = false
  #isScheduled = false

  constructor(socket: Socket) {
    this.#socket = socket
  }

  publish(subject: string, payload: Uint8Array, reply: string, rest: Uint8Array): void {
    const bytes = payload.length + rest.length
    const command = `PUB ${checked(subject)} ${reply === '' ? '' : `${checked(reply)} `}${bytes}\r\n`
    const buffer = this.#room(command.length + bytes + END.length)
    let at = this.#filled
    at += buffer.write(command, at, 'latin1')
    for (const part of [payload, rest, END]) {
      buffer.set(part, at)
      at += part.length
    }
    this.#filled = at
    if (at === buffer.length) this.#close()
    else this.#schedule()
  }

  /** Nothing goes out before this turn is over. */
  hold(): void {
    this.#isHeld = true
    this.#schedule()
  }

  readonly flush = (): void => {
    this.#isScheduled = false
    this.#isHeld = false
    this.#close()
  }

  #schedule(): void {
    if (this.#isScheduled) return
    this.#isScheduled = true
    setImmediate(this.flush)
  }

  /** The buffer that is being filled, with room for so many bytes more. */
  #room(bytes: number): Buffer {
    if (this.#buffer && this.#buffer.length - this.#filled >= bytes) return this.#buffer
    this.#close()
    this.#buffer = (bytes <= BUFFER_BYTES ? this.#free.pop() : undefined) ?? newBuffer(Math.max(bytes, BUFFER_BYTES))
    return this.#buffer
  }

  /** Ends the buffer that is being filled, and writes what may go out. */
  #close(): void {
    if (this.#buffer) this.#waiting.push(this.#buffer.subarray(0, this.#filled))
    this.#buffer = undefined
    this.#filled = 0
    if (this.#isHeld) return
    for (const bytes of this.#waiting.splice(0)) this.#socket.write(bytes, () => this.#giveBack(bytes))
  }

  /** The kernel has it, or nobody will. */
  #giveBack({ buffer }: Buffer): void {
    if (buffer.byteLength === BUFFER_BYTES && this.#free.length < KEPT_MAX) this.#free.push(Buffer.from(buffer))
  }
}

/** One word: what is behind it would be another command. */
function checked(subject: string): string {
  if (/^[!-~]+$/.test(subject)) return subject
  throw new Error('a subject may hold visible ASCII only')
}

function newBuffer(bytes: number): Buffer {
  return Buffer.allocUnsafeSlow(bytes)
}
