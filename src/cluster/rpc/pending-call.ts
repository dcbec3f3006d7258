/**
 * One call under way, at its caller: what has come and has not been taken. Its bytes are bounded by its window; what is
 * missing, too much or unintelligible breaks it.
 *
 * Data travels in small messages, for which a reader wants no turn each: what has come meanwhile is put together, up to
 * whole chunks where these are frames, in two buffers that are used in turn (a consumer writes one chunk while it asks
 * for the next). An answer that is no larger than what a node may send unasked is handed on in one piece.
 */
import { Fault, Refusal } from '../../platform/errors.ts'
import type { ChunkMemory } from './chunk-memory.ts'
import { answerOfNode } from './node-answer.ts'
import { type Pace, tooSlow } from './pace.ts'
import type { PartMemory } from './part-memory.ts'
import { NodeFault } from './served-call.ts'
import { TIMINGS } from '../nats/timings.ts'
import { FIRST_BYTES, Window, type WindowStock } from './window.ts'
import {
  type AnswerMessage,
  type ControlMessage,
  DATA_BYTES_MAX,
  type DataMessage,
  decodeAnswer,
  decodeData,
  type HeadMessage,
  type ValueMessage,
} from './wire.ts'

export type Answer = HeadMessage | ValueMessage | Uint8Array

/** As much is put together when there is more. */
const GATHER_BYTES = 128 * 1024
/** Queued messages from which on small ones are coalesced. */
const COALESCED_FROM = 32
/** A full window of whole messages is a sixteenth of it. */
const QUEUED_MAX = 4096
/** Largest chunk of frames: what one read gives, in base64, and more. */
const CHUNK_BYTES_MAX = 4 << 20

/** The caller may ask again, and mostly can go on where it was. */
export function lostPart(): Refusal {
  return new Refusal('no_answer', 'a part of the answer was lost between node and server, try again')
}

export interface PendingOptions {
  /** Sends credit and cancel. */
  readonly send: (message: ControlMessage) => void
  /** The other side was silent for so long that it is given up. */
  readonly onSilent?: () => void
  /** Sends the call once more, for this run of the node's process. */
  readonly onAgain?: (run: string) => void
  readonly stock: WindowStock
  readonly memory: PartMemory
  /** The node that answers; absent for a server, which is trusted with more. */
  readonly nodeId?: string | undefined
  /** Shared by the calls of the process. */
  readonly chunks: ChunkMemory
  /** How slow the other side may be; absent where the answer may last. */
  readonly pace?: Pace | undefined
}

export class PendingCall {
  readonly #options: PendingOptions
  readonly #window: Window
  readonly #queue: (HeadMessage | ValueMessage | DataMessage)[] = []
  #wake: (() => void) | undefined
  #error: Error | undefined
  #ended = false
  #sequence = 0
  #hasHead = false
  #isAgain = false
  #hasFrames = false
  /** How much data there will be, where the node has said it. */
  #expectedBytes: number | undefined
  /** What is being put together, and the buffer that was given away last. */
  #buffer: Buffer | undefined
  #spare: Buffer | undefined
  #filled = 0
  /** Of an unfinished chunk, in `ChunkMemory`. */
  #reserved = 0
  #lent: Buffer | undefined
  #heardAtMs = performance.now()
  #spokeAtMs = performance.now()

  constructor(options: PendingOptions) {
    this.#options = options
    this.#window = new Window(options.stock)
  }

  /** In order; undefined behind the last. Bytes stay valid until the second call after. Throws what broke the call. */
  async next(): Promise<Answer | undefined> {
    for (;;) {
      const [first] = this.#queue
      if (first !== undefined && !('data' in first)) {
        this.#queue.shift()
        return first
      }
      const data = first && this.#gather(first)
      if (data) return data
      if (this.#queue.length > 0) continue
      // Of bytes, what has come is given before what broke them.
      if ((this.#error || this.#ended) && this.#filled > 0 && !this.#hasFrames) return this.#flush()
      if (this.#error) throw this.#error
      if (this.#ended && this.#filled > 0) throw new Fault('a node ended in the middle of a frame')
      if (this.#ended) return undefined
      this.#options.pace?.wait()
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
      this.#options.pace?.go()
    }
  }

  /** Data from the front of the queue; undefined when the rest of a chunk of frames is still to come. */
  #gather(first: DataMessage): Uint8Array | undefined {
    if (this.#filled === 0) this.#makeFirstRoom()
    for (let piece: DataMessage | undefined = first; piece; piece = this.#dataAt(0)) {
      this.#queue.shift()
      this.#append(piece.data)
      this.#took(piece.data.length)
      if (this.#isWhole(piece) && (this.#filled >= GATHER_BYTES || !this.#dataAt(0))) return this.#flush()
    }
    return undefined
  }

  #makeFirstRoom(): void {
    if (!this.#isOnePiece) return void this.#makeRoom(this.#queuedBytes())
    this.#lent ??= this.#options.memory.lend(this.#expectedBytes ?? 0)
    this.#buffer ??= this.#lent
    this.#makeRoom(this.#expectedBytes ?? 0)
  }

  /** True when memory is lent to this call: to be given back when its bytes are written. */
  get isLent(): boolean {
    return this.#lent !== undefined
  }

  giveBack(): void {
    if (this.#lent) this.#options.memory.giveBack(this.#lent)
    this.#lent = undefined
  }

  /** Of data at the front of the queue, as much as is put together at most. */
  #queuedBytes(): number {
    let bytes = 0
    for (let index = 0; bytes < GATHER_BYTES; index++) {
      const piece = this.#dataAt(index)
      if (!piece) break
      bytes += piece.data.length
    }
    return bytes
  }

  #dataAt(index: number): DataMessage | undefined {
    const message = this.#queue[index]
    return message && 'data' in message ? message : undefined
  }

  /** True where a chunk may end for the consumer: frames are never torn. */
  #isWhole({ isLast }: DataMessage): boolean {
    if (this.#isOnePiece) return this.#filled >= (this.#expectedBytes ?? 0)
    return isLast || !this.#hasFrames
  }

  get #isOnePiece(): boolean {
    return this.#expectedBytes !== undefined && this.#expectedBytes <= FIRST_BYTES
  }

  #append(data: Uint8Array): void {
    const bytes = this.#filled + data.length
    if (!this.#reserve(bytes)) return this.fail(new Fault('a node has too many unfinished chunks'))
    if (bytes > CHUNK_BYTES_MAX) return this.fail(new Fault('a node sent a chunk without an end'))
    this.#makeRoom(bytes).set(data, this.#filled)
    this.#filled = bytes
  }

  #reserve(bytes: number): boolean {
    const { chunks, nodeId } = this.#options
    if (nodeId === undefined || !this.#hasFrames) return true
    const reserved = chunks.reserve(nodeId, bytes, this.#reserved)
    this.#reserved = reserved ?? this.#reserved
    return reserved !== undefined
  }

  #release(): void {
    const { chunks, nodeId } = this.#options
    if (nodeId !== undefined && this.#reserved > 0) chunks.release(nodeId, this.#reserved)
    this.#reserved = 0
  }

  /** The buffer that is being filled, with room for so many bytes in all. */
  #makeRoom(bytes: number): Buffer {
    const before = this.#buffer
    if (before && before.length >= bytes) return before
    const larger = Buffer.allocUnsafeSlow(before && this.#filled > 0 ? 2 * bytes : bytes)
    if (before) larger.set(before.subarray(0, this.#filled))
    this.#buffer = larger
    return larger
  }

  #flush(): Uint8Array | undefined {
    this.#release()
    const whole = this.#buffer?.subarray(0, this.#filled)
    this.#filled = 0
    const spare = this.#spare
    this.#spare = this.#buffer
    this.#buffer = spare
    return whole
  }

  /** Messages that have come and were not taken. */
  get queued(): number {
    return this.#queue.length
  }

  take(payload: Uint8Array): void {
    this.#heardAtMs = performance.now()
    if (this.#error || this.#ended) return
    const data = decodeData(payload)
    if (data) this.#takeData(data)
    else this.#takeAnswer(this.#decoded(payload))
    this.#wakeUp()
  }

  #decoded(payload: Uint8Array): AnswerMessage | undefined {
    const answer = decodeAnswer(payload)
    return answer && this.#options.nodeId !== undefined ? answerOfNode(answer) : answer
  }

  #takeData(message: DataMessage): void {
    if (!this.#isNext(message.sequence)) return
    this.#sequence++
    this.#options.pace?.came(message.data.length)
    // Bytes are bounded by the window, messages by their count: many small ones cost far more memory than their bytes.
    if (!this.#window.receive(message.data.length)) this.fail(new Fault('a node sent more than it was granted'))
    else if (message.data.length === 0 || !this.#enqueue(message))
      this.fail(new Fault('a node cut its answer into too many messages'))
  }

  /** Coalesces small messages once many are queued, up to the ends of chunks; false for one too many. */
  #enqueue(message: DataMessage): boolean {
    const last = this.#queue.length < COALESCED_FROM ? undefined : this.#queue.at(-1)
    const isCoalesced =
      last &&
      'data' in last &&
      !(last.isLast && !message.isLast) &&
      last.data.length + message.data.length <= DATA_BYTES_MAX
    if (!isCoalesced) return this.#queue.push(message) <= QUEUED_MAX
    this.#queue[this.#queue.length - 1] = { ...message, data: Buffer.concat([last.data, message.data]) }
    return true
  }

  /** The next in the count of data messages, so that none before it is missing; breaks the call otherwise. */
  #isNext(sequence: number): boolean {
    if (sequence % 2 ** 32 === this.#sequence % 2 ** 32) return true
    this.fail(lostPart())
    return false
  }

  #takeAnswer(answer: AnswerMessage | undefined): void {
    if (!answer) this.fail(new Fault('a node sent what is no answer'))
    else if (answer.kind === 'refusal') this.#end(new Refusal(answer.code, answer.message, answer.headers))
    else if (answer.kind === 'fault') this.#end(new NodeFault('the node had an internal error, see its log'))
    else if (answer.kind === 'end') {
      if (this.#isNext(answer.sequence)) this.#end()
    } else if (answer.kind === 'again') this.#again(answer.run)
    else if (answer.kind === 'alive') {
      if (this.#isNext(answer.sequence) && answer.head && !this.#hasHead) this.fail(lostPart())
    } else this.#takeHeadOrValue(answer)
  }

  /** Once, and before anything else was said. */
  #again(run: string): void {
    const { onAgain } = this.#options
    if (!onAgain || this.#isAgain || this.#hasHead || this.#sequence > 0) {
      return this.fail(new Fault('a node asked for a call again that it has had'))
    }
    this.#isAgain = true
    onAgain(run)
  }

  #takeHeadOrValue(answer: HeadMessage | ValueMessage): void {
    if (answer.kind === 'head') {
      this.#hasHead = true
      this.#hasFrames = answer.frames === true
      this.#expectedBytes = answer.contentLength
    } else if ('sequence' in answer && !this.#isNext(answer.sequence)) return
    else this.#end()
    this.#queue.push(answer)
  }

  /** The node has said its last word. */
  #end(error?: Error): void {
    this.#error = error
    this.#ended = true
  }

  /** What has come before is still given; then this is thrown. */
  fail(error: Error): void {
    if (this.#error || this.#ended) return
    this.#error = error
    this.#wakeUp()
  }

  #took(bytes: number): void {
    const isAllAllowed = this.#expectedBytes !== undefined && this.#expectedBytes <= this.#window.allowed
    if (this.#window.take(bytes) && !isAllAllowed && !this.#ended && !this.#error) {
      this.#window.grow()
      this.#credit()
    }
  }

  #credit(): void {
    this.#spokeAtMs = performance.now()
    const { taken, allowed } = this.#window
    this.#send({ kind: 'credit', taken, allowed })
  }

  #send(message: ControlMessage): void {
    this.#options.send(message)
  }

  /** Says that it is there; gives up a node that is silent or too slow. */
  sweep(): void {
    const nowMs = performance.now()
    if (this.#options.pace?.isTooSlow()) this.fail(tooSlow())
    else if (nowMs - this.#heardAtMs > TIMINGS.giveUpMs) {
      this.#options.onSilent?.()
      this.fail(new Refusal('no_answer', 'the node does not answer, try again'))
    } else if (nowMs - this.#spokeAtMs > TIMINGS.aliveMs) {
      if (this.#window.rest() && this.#filled === 0) this.#spare = this.#buffer = undefined
      this.#credit()
    }
  }

  /** The reader is done. A node that does not know yet is told. */
  close(): void {
    if (!this.#ended) this.#send({ kind: 'cancel' })
    this.#ended = true
    this.#queue.length = 0
    this.#release()
    this.#buffer = this.#spare = undefined
    this.#window.close()
  }

  #wakeUp(): void {
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}
