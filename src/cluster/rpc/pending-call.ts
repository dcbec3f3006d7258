/**
 * One call in progress, at its caller: queues what was received and not yet taken. The window bounds its bytes; missing, excess or
 * malformed messages break the call.
 *
 * Data is sent in small messages, and a reader should not run once for each of them: queued data is coalesced, up to complete
 * chunks where these are frames, in two alternating buffers (a consumer writes one chunk while it requests the next one). An
 * answer that fits into the first credit is returned in one piece.
 */
import { Fault, Refusal } from '../../platform/errors.ts'
import { TIMINGS } from '../nats/timings.ts'
import { CreditWindow, FIRST_BYTES, type CreditPool } from './credit-window.ts'
import { type MinimumRate, restrictAnswer, tooSlow, type UnfinishedChunks } from './node-limits.ts'
import { NodeFault } from './served-call.ts'
import {
  type AnswerMessage,
  type ControlMessage,
  DATA_BYTES_MAX,
  type DataMessage,
  decodeAnswer,
  decodeData,
  type HeadMessage,
  type ValueMessage,
} from './call-wire.ts'

export type AnswerPart = HeadMessage | ValueMessage | Uint8Array

/** Size up to which queued data is coalesced. */
const COALESCED_BYTES = 128 * 1024
/** Number of queued messages above which small ones are coalesced on arrival. */
const COALESCE_ABOVE = 32
/** Sixteen times a full window of messages of `DATA_BYTES_MAX`. */
const QUEUED_MAX = 4096
/** Largest chunk of frames: more than one read of a host in base64. */
const CHUNK_BYTES_MAX = 4 << 20

/** The caller may retry, and can usually resume. */
export function lostPart(): Refusal {
  return new Refusal('no_answer', 'part of the response was lost between node and server, try again')
}

/** Buffers kept by a pool: 2 MiB. */
const POOLED_BUFFERS_MAX = 32
/** Node allocates smaller buffers from a shared one, which is fast. */
const POOLED_BYTES_MIN = 4096

/**
 * Reused buffers for answers that are returned in one piece. Newly allocated ones live until their caller has read them, so they
 * become garbage of the old generation: without the pool, forwarded reads of 64 KiB cost a quarter more processor time.
 */
export class BufferPool {
  readonly #free: Buffer[] = []

  /** A buffer of `FIRST_BYTES`; undefined for a size that is not pooled. */
  acquire(bytes: number): Buffer | undefined {
    if (bytes < POOLED_BYTES_MIN || bytes > FIRST_BYTES) return undefined
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(FIRST_BYTES)
  }

  release(buffer: Buffer): void {
    if (this.#free.length < POOLED_BUFFERS_MAX) this.#free.push(buffer)
  }
}

export interface PendingCallOptions {
  /** Sends credit and cancel. */
  readonly send: (message: ControlMessage) => void
  /** Called when the other side was silent until the timeout. */
  readonly onSilent?: () => void
  /** Names the other side in texts. Default: the node. */
  readonly peer?: () => string
  /** Sends the call again, for this run of the node's process. */
  readonly onStaleRun?: (run: string) => void
  /** The server takes the body of the request up to this number of bytes. */
  readonly onBodyCredit?: (allowed: number) => void
  readonly credit: CreditPool
  readonly buffers: BufferPool
  readonly chunks: UnfinishedChunks
  /** The node that answers; undefined for a server, which has no such limits. */
  readonly nodeId?: string | undefined
  /** Undefined for an answer that may last as long as its caller waits. */
  readonly minimumRate?: MinimumRate | undefined
}

export class PendingCall {
  readonly #options: PendingCallOptions
  readonly #window: CreditWindow
  readonly #queue: (HeadMessage | ValueMessage | DataMessage)[] = []
  #wake: (() => void) | undefined
  #error: Error | undefined
  #isEnded = false
  #sequence = 0
  #hasHead = false
  #isSentAgain = false
  #hasFrames = false
  /** Content-Length of the answer, if known. */
  #expectedBytes: number | undefined
  /** The buffer that is being filled, and the one that was returned last. */
  #buffer: Buffer | undefined
  #spare: Buffer | undefined
  #filled = 0
  /** Reservation of an unfinished chunk in `UnfinishedChunks`. */
  #reserved = 0
  /** From the buffer pool. */
  #pooled: Buffer | undefined
  #receivedAtMs = performance.now()
  #sentAtMs = performance.now()

  constructor(options: PendingCallOptions) {
    this.#options = options
    this.#window = new CreditWindow(options.credit)
  }

  /** The next part; undefined after the last one. Bytes stay valid until the second call after this one. Throws what broke the call. */
  async next(): Promise<AnswerPart | undefined> {
    for (;;) {
      const [first] = this.#queue
      if (first !== undefined && !('data' in first)) {
        this.#queue.shift()
        return first
      }
      const data = first && this.#coalesce(first)
      if (data) return data
      if (this.#queue.length > 0) continue
      // Bytes that were received are returned before the error.
      if ((this.#error || this.#isEnded) && this.#filled > 0 && !this.#hasFrames) return this.#flush()
      if (this.#error) throw this.#error
      if (this.#isEnded && this.#filled > 0) throw new Fault('the stream of a node ended within a frame')
      if (this.#isEnded) return undefined
      this.#options.minimumRate?.beginWait()
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
      this.#options.minimumRate?.endWait()
    }
  }

  /** Data from the front of the queue; undefined if the end of a chunk of frames was not received yet. */
  #coalesce(first: DataMessage): Uint8Array | undefined {
    if (this.#filled === 0) this.#prepareBuffer()
    for (let piece: DataMessage | undefined = first; piece; piece = this.#dataAt(0)) {
      this.#queue.shift()
      this.#append(piece.data)
      this.#onTaken(piece.data.length)
      if (this.#isWhole(piece) && (this.#filled >= COALESCED_BYTES || !this.#dataAt(0))) return this.#flush()
    }
    return undefined
  }

  #prepareBuffer(): void {
    if (!this.#isOnePiece) return void this.#ensureCapacity(this.#queuedBytes())
    this.#pooled ??= this.#options.buffers.acquire(this.#expectedBytes ?? 0)
    this.#buffer ??= this.#pooled
    this.#ensureCapacity(this.#expectedBytes ?? 0)
  }

  /** True if the call must release its pooled buffer once the bytes are written. */
  get hasPooledBuffer(): boolean {
    return this.#pooled !== undefined
  }

  releaseBuffer(): void {
    if (this.#pooled) this.#options.buffers.release(this.#pooled)
    this.#pooled = undefined
  }

  /** Bytes of data at the front of the queue, counted up to `COALESCED_BYTES`. */
  #queuedBytes(): number {
    let bytes = 0
    for (let index = 0; bytes < COALESCED_BYTES; index++) {
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

  /** True if a chunk may end after this message: frames are never split. */
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
    if (bytes > CHUNK_BYTES_MAX)
      return this.fail(new Fault(`a node sent an unfinished chunk larger than ${CHUNK_BYTES_MAX} bytes`))
    this.#ensureCapacity(bytes).set(data, this.#filled)
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

  /** The buffer that is being filled, with at least this total size. */
  #ensureCapacity(bytes: number): Buffer {
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

  /** Number of messages that were not taken. */
  get queued(): number {
    return this.#queue.length
  }

  receive(payload: Uint8Array): void {
    this.#receivedAtMs = performance.now()
    if (this.#error || this.#isEnded) return
    const data = decodeData(payload)
    if (data) this.#receiveData(data)
    else this.#receiveAnswer(this.#decoded(payload))
    this.#wakeUp()
  }

  #decoded(payload: Uint8Array): AnswerMessage | undefined {
    const answer = decodeAnswer(payload)
    return answer && this.#options.nodeId !== undefined ? restrictAnswer(answer) : answer
  }

  #receiveData(message: DataMessage): void {
    if (!this.#isNext(message.sequence)) return
    this.#sequence++
    this.#options.minimumRate?.received(message.data.length)
    // The window bounds bytes, `QUEUED_MAX` messages: many small ones need far more memory than their bytes.
    if (!this.#window.receive(message.data.length)) this.fail(new Fault('a node sent more than its credit'))
    else if (message.data.length === 0 || !this.#enqueue(message)) {
      this.fail(new Fault('a node split its response into too many messages'))
    }
  }

  /** Coalesces small messages once many are queued, up to ends of chunks. False if the queue is full. */
  #enqueue(message: DataMessage): boolean {
    const last = this.#queue.length < COALESCE_ABOVE ? undefined : this.#queue.at(-1)
    const isCoalesced =
      last &&
      'data' in last &&
      !(last.isLast && !message.isLast) &&
      last.data.length + message.data.length <= DATA_BYTES_MAX
    if (!isCoalesced) return this.#queue.push(message) <= QUEUED_MAX
    this.#queue[this.#queue.length - 1] = { ...message, data: Buffer.concat([last.data, message.data]) }
    return true
  }

  /** True if no data message before this one is missing; breaks the call otherwise. */
  #isNext(sequence: number): boolean {
    if (sequence % 2 ** 32 === this.#sequence % 2 ** 32) return true
    this.fail(lostPart())
    return false
  }

  #receiveAnswer(answer: AnswerMessage | undefined): void {
    if (!answer) this.fail(new Fault('a node sent a malformed response'))
    else if (answer.kind === 'refusal') this.#end(new Refusal(answer.code, answer.message, answer.headers))
    else if (answer.kind === 'fault') this.#end(new NodeFault('internal error of the node, see its log'))
    else if (answer.kind === 'end') {
      if (this.#isNext(answer.sequence)) this.#end()
    } else if (answer.kind === 'again') this.#sendAgain(answer.run)
    else if (answer.kind === 'body_credit') this.#options.onBodyCredit?.(answer.allowed)
    else if (answer.kind === 'alive') {
      if (this.#isNext(answer.sequence) && answer.head && !this.#hasHead) this.fail(lostPart())
    } else this.#receiveHeadOrValue(answer)
  }

  /** Only once, and only as the first message of an answer. */
  #sendAgain(run: string): void {
    const { onStaleRun } = this.#options
    if (!onStaleRun || this.#isSentAgain || this.#hasHead || this.#sequence > 0) {
      return this.fail(new Fault('a node requested a call again that it had already accepted'))
    }
    this.#isSentAgain = true
    onStaleRun(run)
  }

  #receiveHeadOrValue(answer: HeadMessage | ValueMessage): void {
    if (answer.kind === 'head') {
      this.#hasHead = true
      this.#hasFrames = answer.frames === true
      this.#expectedBytes = answer.contentLength
    } else if ('sequence' in answer && !this.#isNext(answer.sequence)) return
    else this.#end()
    this.#queue.push(answer)
  }

  /** The node has sent its last message. */
  #end(error?: Error): void {
    this.#error = error
    this.#isEnded = true
  }

  /** Received parts are still returned, then the error is thrown. */
  fail(error: Error): void {
    if (this.#error || this.#isEnded) return
    this.#error = error
    this.#wakeUp()
  }

  #onTaken(bytes: number): void {
    const isAllAllowed = this.#expectedBytes !== undefined && this.#expectedBytes <= this.#window.allowed
    if (this.#window.take(bytes) && !isAllAllowed && !this.#isEnded && !this.#error) {
      this.#window.grow()
      this.#credit()
    }
  }

  #credit(): void {
    this.#sentAtMs = performance.now()
    const { taken, allowed } = this.#window
    this.#send({ kind: 'credit', taken, allowed })
  }

  #send(message: ControlMessage): void {
    this.#options.send(message)
  }

  /** Sends a keepalive if due; ends the call if the node is silent or too slow. */
  sweep(): void {
    const nowMs = performance.now()
    if (this.#options.minimumRate?.isViolated()) this.fail(tooSlow())
    else if (nowMs - this.#receivedAtMs > TIMINGS.silenceTimeoutMs) {
      this.#options.onSilent?.()
      const peer = this.#options.peer?.() ?? 'the node'
      this.fail(new Refusal('no_answer', `${peer} does not respond, try again`))
    } else if (nowMs - this.#sentAtMs > TIMINGS.keepaliveMs) {
      if (this.#window.shrinkIfIdle() && this.#filled === 0) this.#spare = this.#buffer = undefined
      this.#credit()
    }
  }

  /** Ends the call, and cancels it at the node unless it has ended there. */
  close(): void {
    if (!this.#isEnded) this.#send({ kind: 'cancel' })
    this.#isEnded = true
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
