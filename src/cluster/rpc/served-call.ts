/**
 * One call under way, at the process that serves it: says what comes of it, never more ahead of the caller than that has
 * allowed, and ends when the caller is done, or silent for too long.
 */
import { Fault, type Refusal } from '../../platform/errors.ts'
import {
  type CallResponder,
  type IncomingCall,
  type Chunk,
  type Identity,
  isStreamHead,
  JsonText,
  NOBODY,
  WholeAnswer,
} from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import type { CallMessage } from './call-message.ts'
import type { Link } from '../nats/link.ts'
import { TIMINGS } from '../nats/timings.ts'
import { ALLOWED_MAX } from './window.ts'
import { type AnswerMessage, DATA_BYTES_MAX, dataHead, decodeControl, encode } from './wire.ts'

/** A value above this goes as data does, under the caller's credit. */
const VALUE_BYTES_MAX = 128 * 1024
/** What a message needs besides its data. */
const ROOM_BYTES = 64

/** Of one object for all: an abort without a reason makes one each time, with a stack. */
const OVER = new Error('the call is over')
const DRAINING = new Error('a process on the way of the call stops')

/** A fault that a node reported about itself; its detail is in that node's log. */
export class NodeFault extends Fault {}

export function refusalMessage({ code, message, headers }: Refusal): AnswerMessage {
  return { kind: 'refusal', code, message, headers: { ...headers } }
}

/** The way back to the caller. */
export interface AnswerChannel {
  /** The message is `payload` with `rest` behind it; both are the caller's again when it returns. */
  send(payload: Uint8Array, rest?: Uint8Array): void
  /** A message of the caller about the call; undefined for what is none. */
  openControl(payload: Uint8Array): Uint8Array | undefined
  /** Largest message in bytes. */
  readonly payloadBytesMax: number
}

/** Messages as they are, for a call to a node. */
export class PlainChannel implements AnswerChannel {
  readonly #link: Link
  readonly #reply: string

  constructor(link: Link, reply: string) {
    this.#link = link
    this.#reply = reply
  }

  send(payload: Uint8Array, rest?: Uint8Array): void {
    this.#link.publish(this.#reply, payload, '', rest)
  }

  openControl(payload: Uint8Array): Uint8Array {
    return payload
  }

  get payloadBytesMax(): number {
    return this.#link.payloadBytesMax
  }
}

export interface ServedCallOptions {
  readonly channel: AnswerChannel
  readonly remote: string | undefined
}

export class ServedCall implements CallResponder {
  readonly message: CallMessage
  /** Address of the first caller, where a server has seen it; what an agent says of it is not believed. */
  readonly remote: string | undefined
  readonly #channel: AnswerChannel
  #abort: AbortController | undefined
  #drain: AbortController | undefined
  #isDraining = false
  #isOver = false
  readonly #dataBytesMax: number
  #sequence = 0
  #sent = 0
  /** Bytes that the caller allows in all; never more than a window beyond what was sent, as the rest would stand before the answers of others. */
  #allowed: number
  #wake: (() => void) | undefined
  #spokeAtMs = performance.now()
  #heardAtMs = performance.now()
  #isStream = false
  #hasHead = false
  #bytesExpected: number | undefined
  #hasSaidEnd = false

  constructor(message: CallMessage, { channel, remote }: ServedCallOptions) {
    this.message = message
    this.remote = remote
    this.#channel = channel
    this.#allowed = Math.min(message.window, ALLOWED_MAX)
    this.#dataBytesMax = Math.max(1, Math.min(DATA_BYTES_MAX, channel.payloadBytesMax - ROOM_BYTES))
  }

  get isOver(): boolean {
    return this.#isOver
  }

  call(): IncomingCall {
    return new OperationCall(this)
  }

  admitted(): void {
    // What is endless here ends with its caller's silence.
  }

  rightsLost(refusal: Refusal): void {
    this.abandon(refusal)
  }

  /** Aborts when the call is over before its operation is. Made only for operations that look at it. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController()
    if (this.#isOver) this.#abort.abort(OVER)
    return this.#abort.signal
  }

  /** Aborts when this process stops, or the caller does. Created only for operations that wait for a change. */
  get draining(): AbortSignal {
    this.#drain ??= new AbortController()
    if (this.#isDraining) this.#drain.abort(DRAINING)
    return this.#drain.signal
  }

  drain(): void {
    this.#isDraining = true
    this.#drain?.abort(DRAINING)
  }

  say(message: AnswerMessage): void {
    this.#spokeAtMs = performance.now()
    this.#channel.send(encode(message))
  }

  async value(value: unknown): Promise<void> {
    if (this.isOver) return
    if (value === undefined) return this.say({ kind: 'value' })
    if (value instanceof WholeAnswer) return this.#whole(value)
    const json = jsonOf(value)
    const headers = value instanceof JsonText ? { headers: { ...value.headers } } : {}
    // No character has more than three bytes for each of its units.
    if (json.length * 3 <= Math.min(VALUE_BYTES_MAX, this.#channel.payloadBytesMax - ROOM_BYTES)) {
      return this.say({ kind: 'value', json, ...headers })
    }
    this.#isStream = true
    await this.#data(Buffer.from(json))
    if (!this.isOver) this.say({ kind: 'sent_value', sequence: this.#sequence, ...headers })
  }

  async #whole({ accessor, body, headers, status }: WholeAnswer): Promise<void> {
    const head = { status, headers: { ...headers }, ...(accessor !== undefined && { accessor }) }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body
    // Its headers need room too.
    if (bytes === undefined || bytes.length <= Math.min(VALUE_BYTES_MAX, this.#channel.payloadBytesMax / 2)) {
      return this.say({ kind: 'whole', ...head, ...(bytes && { body: bytes }) })
    }
    this.#isStream = true
    await this.#data(bytes)
    if (!this.isOver) this.say({ kind: 'sent_whole', sequence: this.#sequence, ...head })
  }

  async stream(chunks: AsyncIterable<Chunk>): Promise<void> {
    this.#isStream = true
    for await (const chunk of chunks) {
      if (this.isOver) return
      if (isStreamHead(chunk)) {
        const { headers, ...rest } = chunk
        this.#hasHead = true
        this.#bytesExpected = rest.contentLength
        this.say({ kind: 'head', ...rest, headers: headers && { ...headers } })
      } else await this.#data(chunk)
    }
    if (!this.isOver && !this.#hasSaidEnd) this.say({ kind: 'end', sequence: this.#sequence })
  }

  /** As much at once as the caller allows. The link copies: the chunk's own bytes are used again. */
  async #data(chunk: Uint8Array): Promise<void> {
    for (let from = 0; from < chunk.length; ) {
      while (this.#sent >= this.#allowed && !this.isOver) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      }
      if (this.isOver) return
      const to = Math.min(from + this.#allowed - this.#sent, chunk.length)
      this.#burst(chunk.subarray(from, to), to === chunk.length)
      from = to
    }
  }

  #burst(data: Uint8Array, isLast: boolean): void {
    const bytesMax = this.#dataBytesMax
    for (let from = 0; from < data.length; from += bytesMax) {
      const isWhole = isLast && from + bytesMax >= data.length
      this.#channel.send(dataHead(this.#sequence++, isWhole), data.subarray(from, from + bytesMax))
    }
    this.#sent += data.length
    this.#spokeAtMs = performance.now()
    if (this.#sent !== this.#bytesExpected) return
    // Nothing can follow, so the end goes along.
    this.#hasSaidEnd = true
    this.say({ kind: 'end', sequence: this.#sequence })
  }

  /** Credit, cancel or drain, as it came. */
  control(payload: Uint8Array): void {
    const opened = this.#channel.openControl(payload)
    const message = opened && decodeControl(opened)
    if (!message) return
    if (message.kind === 'cancel') this.cancel()
    else if (message.kind === 'drain') this.drain()
    else this.credit(message.allowed)
  }

  /** What the caller allows now, which may be less than before. */
  credit(allowed: number): void {
    this.#heardAtMs = performance.now()
    this.#allowed = Math.min(allowed, this.#sent + ALLOWED_MAX)
    this.#wakeUp()
  }

  cancel(): void {
    this.#isOver = true
    this.#abort?.abort(OVER)
    this.#wakeUp()
  }

  /** Ends it from our side, and says so. */
  abandon(refusal: Refusal): void {
    if (this.isOver) return
    this.say(refusalMessage(refusal))
    this.cancel()
  }

  /**
   * Says that it is there when it has nothing else to say, and what it has said: where all that the caller allows was lost
   * on its way, both would wait for each other for ever. Gives up a caller that is silent.
   */
  sweep(): void {
    const nowMs = performance.now()
    if (nowMs - this.#heardAtMs > TIMINGS.giveUpMs && this.#isStream) this.cancel()
    else if (nowMs - this.#spokeAtMs > TIMINGS.aliveMs) {
      this.say({ kind: 'alive', sequence: this.#sequence, head: this.#hasHead })
    }
  }

  #wakeUp(): void {
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}

/** The call as the operation sees it. */
class OperationCall implements IncomingCall {
  /** Of the last check of its rights. */
  identity: Identity = NOBODY
  readonly #served: ServedCall

  constructor(served: ServedCall) {
    this.#served = served
  }

  get raw(): RawInput {
    return this.#served.message.input
  }

  get requestId(): string {
    return this.#served.message.requestId
  }

  get token(): string | undefined {
    return this.#served.message.token
  }

  get hops(): number {
    return this.#served.message.hops
  }

  get remote(): string | undefined {
    return this.#served.remote
  }

  get signal(): AbortSignal {
    return this.#served.signal
  }

  get draining(): AbortSignal {
    return this.#served.draining
  }
}

function jsonOf(value: unknown): string {
  return value instanceof JsonText ? value.text : JSON.stringify(value)
}
