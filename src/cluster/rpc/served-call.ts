/**
 * One call in progress, at the process that serves it: sends the answer, never more than the caller's allowance ahead, and ends
 * when the caller has canceled or is silent for too long.
 */
import { Fault, type Refusal } from '../../platform/errors.ts'
import {
  type CallResponder,
  type IncomingCall,
  type Chunk,
  type Identity,
  isStreamHead,
  JsonText,
  ANONYMOUS,
  StreamedAnswer,
  WholeAnswer,
} from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import type { MessageBus } from '../nats/message-bus.ts'
import { TIMINGS } from '../nats/timings.ts'
import { type BodyMessage, ReceivedBody } from './call-body.ts'
import type { CallMessage } from './call-message.ts'
import { ALLOWED_MAX } from './credit-window.ts'
import { type AnswerMessage, DATA_BYTES_MAX, dataHead, decodeControl, encode } from './call-wire.ts'

/** Larger values are sent as data, under the caller's credit. */
const VALUE_BYTES_MAX = 128 * 1024
/** Largest size of a message besides its data. */
const MESSAGE_OVERHEAD_BYTES = 64

/** Shared: an abort without a reason creates an error with a stack each time. */
const CALL_ENDED = new Error('the call has ended')
const DRAINING = new Error('a process on the path of the call is stopping')

/** A fault that a node reported; the detail is in the node's log. */
export class NodeFault extends Fault {}

export function refusalMessage({ code, message, headers }: Refusal): AnswerMessage {
  return { kind: 'refusal', code, message, headers: { ...headers } }
}

/** Sends the answer of one call to its caller. */
export interface AnswerChannel {
  /** Sends `payload` followed by `rest`; copies both. */
  send(payload: Uint8Array, rest?: Uint8Array): void
  /** Opens a control message of the caller; undefined for an invalid one. */
  openControl(payload: Uint8Array): Uint8Array | undefined
  /** Largest message in bytes. */
  readonly payloadBytesMax: number
}

/** Unsealed messages, for a call to a node. */
export class PlainChannel implements AnswerChannel {
  readonly #bus: MessageBus
  readonly #reply: string

  constructor(bus: MessageBus, reply: string) {
    this.#bus = bus
    this.#reply = reply
  }

  send(payload: Uint8Array, rest?: Uint8Array): void {
    this.#bus.publish(this.#reply, payload, '', rest)
  }

  openControl(payload: Uint8Array): Uint8Array {
    return payload
  }

  get payloadBytesMax(): number {
    return this.#bus.payloadBytesMax
  }
}

export interface ServedCallOptions {
  readonly channel: AnswerChannel
  readonly remote: string | undefined
}

export class ServedCall implements CallResponder {
  readonly message: CallMessage
  /** Client address, if a server reported it. */
  readonly remote: string | undefined
  readonly #channel: AnswerChannel
  #abort: AbortController | undefined
  #drain: AbortController | undefined
  #isDraining = false
  #hasEnded = false
  readonly #dataBytesMax: number
  #sequence = 0
  #sent = 0
  /** Total bytes that the caller allows; at most a window beyond what was sent, so that the answers of other calls are not delayed. */
  #allowed: number
  #wake: (() => void) | undefined
  #sentAtMs = performance.now()
  #receivedAtMs = performance.now()
  #isStream = false
  #hasHead = false
  #bytesExpected: number | undefined
  #isEndSent = false
  #body: ReceivedBody | undefined

  constructor(message: CallMessage, { channel, remote }: ServedCallOptions) {
    this.message = message
    this.remote = remote
    this.#channel = channel
    this.#allowed = Math.min(message.window, ALLOWED_MAX)
    this.#dataBytesMax = Math.max(1, Math.min(DATA_BYTES_MAX, channel.payloadBytesMax - MESSAGE_OVERHEAD_BYTES))
  }

  get hasEnded(): boolean {
    return this.#hasEnded
  }

  call(): IncomingCall {
    return new OperationCall(this)
  }

  admitted(): void {
    // An endless call ends with the silence of its caller.
  }

  rightsLost(refusal: Refusal): void {
    this.abandon(refusal)
  }

  /** Aborts when the call ends before its operation. Created only for operations that use it. */
  get signal(): AbortSignal {
    this.#abort ??= new AbortController()
    if (this.#hasEnded) this.#abort.abort(CALL_ENDED)
    return this.#abort.signal
  }

  /** Aborts when this process or the caller stops. Created only for blocking queries. */
  get draining(): AbortSignal {
    this.#drain ??= new AbortController()
    if (this.#isDraining) this.#drain.abort(DRAINING)
    return this.#drain.signal
  }

  /** The body, which the caller sends once it is read. Created only for operations that read it. */
  get body(): ReceivedBody {
    if (!this.#body) {
      // A caller that disappears is noticed by its silence.
      this.#isStream = true
      this.#body = new ReceivedBody((allowed) => this.send({ kind: 'body_credit', allowed }))
      if (this.#hasEnded) this.#body.fail(CALL_ENDED)
    }
    return this.#body
  }

  drain(): void {
    this.#isDraining = true
    this.#drain?.abort(DRAINING)
  }

  send(message: AnswerMessage): void {
    this.#sentAtMs = performance.now()
    this.#channel.send(encode(message))
  }

  async value(value: unknown): Promise<void> {
    if (this.hasEnded) return
    if (value === undefined) return this.send({ kind: 'value' })
    if (value instanceof WholeAnswer) return this.#whole(value)
    if (value instanceof StreamedAnswer) return this.#streamed(value)
    const json = jsonOf(value)
    const headers = value instanceof JsonText ? { headers: { ...value.headers } } : {}
    // A UTF-16 code unit has at most three bytes of UTF-8.
    if (json.length * 3 <= Math.min(VALUE_BYTES_MAX, this.#channel.payloadBytesMax - MESSAGE_OVERHEAD_BYTES)) {
      return this.send({ kind: 'value', json, ...headers })
    }
    this.#isStream = true
    await this.#data(Buffer.from(json))
    if (!this.hasEnded) this.send({ kind: 'sent_value', sequence: this.#sequence, ...headers })
  }

  async #whole({ accessor, body, headers, status }: WholeAnswer): Promise<void> {
    const head = { status, headers: { ...headers }, ...(accessor !== undefined && { accessor }) }
    const bytes = typeof body === 'string' ? Buffer.from(body) : body
    // The other half is for the headers.
    if (bytes === undefined || bytes.length <= Math.min(VALUE_BYTES_MAX, this.#channel.payloadBytesMax / 2)) {
      return this.send({ kind: 'whole', ...head, ...(bytes && { body: bytes }) })
    }
    this.#isStream = true
    await this.#data(bytes)
    if (!this.hasEnded) this.send({ kind: 'sent_whole', sequence: this.#sequence, ...head })
  }

  /** As frames: a chunk with complete lines arrives whole or not at all. */
  #streamed({ accessor, chunks, headers }: StreamedAnswer): Promise<void> {
    const head = {
      status: 200,
      headers: { ...headers },
      frames: true,
      ...(accessor !== undefined && { accessor }),
    } as const
    this.#hasHead = true
    this.send({ kind: 'head', ...head })
    return this.stream(chunks)
  }

  async stream(chunks: AsyncIterable<Chunk>): Promise<void> {
    this.#isStream = true
    for await (const chunk of chunks) {
      if (this.hasEnded) return
      if (isStreamHead(chunk)) {
        const { headers, ...rest } = chunk
        this.#hasHead = true
        this.#bytesExpected = rest.contentLength
        this.send({ kind: 'head', ...rest, headers: headers && { ...headers } })
      } else await this.#data(chunk)
    }
    if (!this.hasEnded && !this.#isEndSent) this.send({ kind: 'end', sequence: this.#sequence })
  }

  /** Sends as much at once as the caller allows. */
  async #data(chunk: Uint8Array): Promise<void> {
    for (let from = 0; from < chunk.length; ) {
      while (this.#sent >= this.#allowed && !this.hasEnded) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      }
      if (this.hasEnded) return
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
    this.#sentAtMs = performance.now()
    if (this.#sent !== this.#bytesExpected) return
    // All bytes were sent, so the end is sent in the same write.
    this.#isEndSent = true
    this.send({ kind: 'end', sequence: this.#sequence })
  }

  /** Handles a received control message. */
  control(payload: Uint8Array): void {
    const opened = this.#channel.openControl(payload)
    const message = opened && decodeControl(opened)
    if (!message) return
    if (message.kind === 'cancel') this.cancel()
    else if (message.kind === 'drain') this.drain()
    else if (message.kind === 'body') this.#receiveBody(message)
    else this.credit(message.allowed)
  }

  #receiveBody(message: BodyMessage): void {
    this.#receivedAtMs = performance.now()
    this.#body?.receive(message)
  }

  /** Sets the total allowance, which may be less than before. */
  credit(allowed: number): void {
    this.#receivedAtMs = performance.now()
    this.#allowed = Math.min(allowed, this.#sent + ALLOWED_MAX)
    this.#wakeUp()
  }

  cancel(): void {
    this.#hasEnded = true
    this.#abort?.abort(CALL_ENDED)
    this.#body?.fail(CALL_ENDED)
    this.#wakeUp()
  }

  /** Ends the call with a refusal. */
  abandon(refusal: Refusal): void {
    if (this.hasEnded) return
    this.send(refusalMessage(refusal))
    this.cancel()
  }

  /**
   * Sends a keepalive if due, with the number of data messages: if all messages within the allowance were lost, both sides would
   * otherwise wait for ever. Ends the call if the caller is silent.
   */
  sweep(): void {
    const nowMs = performance.now()
    if (nowMs - this.#receivedAtMs > TIMINGS.silenceTimeoutMs && this.#isStream) this.cancel()
    else if (nowMs - this.#sentAtMs > TIMINGS.keepaliveMs) {
      this.send({ kind: 'alive', sequence: this.#sequence, head: this.#hasHead })
    }
  }

  #wakeUp(): void {
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}

/** The call, as the operation receives it. */
class OperationCall implements IncomingCall {
  /** Identity of the last permission check. */
  identity: Identity = ANONYMOUS
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

  get body(): AsyncIterable<Uint8Array> {
    return this.#served.body
  }
}

function jsonOf(value: unknown): string {
  return value instanceof JsonText ? value.text : JSON.stringify(value)
}
