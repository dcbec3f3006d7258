/**
 * Calls of this process to nodes and servers: sends a call and returns the answer as if the operation had run here. Credit
 * follows what the caller takes, so a slow reader slows down its own node only. A gap in the numbers, silence, or an error
 * breaks the answer; an incomplete answer never looks complete.
 */
import { randomBytes } from 'node:crypto'
import { Fault, Refusal } from '../../platform/errors.ts'
import { type Chunk, type JsonText, StreamedAnswer, type WholeAnswer } from '../../platform/operation.ts'
import { TransientMap } from '../../platform/transient-map.ts'
import type { RawInput } from '../../platform/schema.ts'
import type { BusMessage, BusSubscription, MessageBus } from '../nats/message-bus.ts'
import { ANY, type ClusterMember, lastParts, memberId, type ServerGroup, type Subjects } from '../nats/subjects.ts'
import { TIMINGS } from '../nats/timings.ts'
import { ENVELOPE_BYTES } from '../trust/envelope.ts'
import { AssertionIssuer, type NodeRecipient } from './assertion-issuer.ts'
import { BodySender } from './call-body.ts'
import type { CallMessage } from './call-message.ts'
import { CreditPool, FIRST_BYTES } from './credit-window.ts'
import { MinimumRate, UnfinishedChunks } from './node-limits.ts'
import { type AnswerPart, BufferPool, lostPart, PendingCall } from './pending-call.ts'
import { type SealedCallSender, ServerCall } from './sealed-call-sender.ts'
import { encode, encodeCall, headOf, type ValueMessage, valueOf, WIRE_VERSION, wholeOf } from './call-wire.ts'

const EMPTY = new Uint8Array(0)
/** Largest JSON value of a node, which is buffered: statistics and metadata have some kilobytes. */
const NODE_VALUE_BYTES_MAX = 16 << 20

/** Shared, because every answer ends with the disconnection of its caller. */
const CALLER_GONE = new Refusal('unavailable', 'the caller has disconnected')

export interface ForwarderOptions {
  readonly bus: MessageBus
  readonly subjects: Subjects
}

/** Any server of a group. It authorizes the token itself. */
export interface ServerRecipient {
  readonly nodeId?: undefined
  /** Default: all servers. */
  readonly group?: ServerGroup
  /** Only this server; by default any of the group. */
  readonly serverId?: string
  readonly token: string | undefined
  /** Client address, as in `Call`. Accepted from servers only. */
  readonly remote?: string | undefined
  /** Aborts when this process stops: the server is notified, and answers a blocking query at once. */
  readonly draining?: AbortSignal | undefined
  /** Sent while it is read, when the server takes it. */
  readonly body?: AsyncIterable<Uint8Array> | undefined
}

/** A node receives no token, but the caller's identity as this server asserts it. */
export type Recipient = NodeRecipient | ServerRecipient

export type ForwardedRequest = Recipient & {
  readonly operation: string
  readonly input: RawInput
  readonly requestId: string
  /** Number of processes that have forwarded it already. */
  readonly hops: number
  readonly signal: AbortSignal
  /** True if the answer may last as long as the caller waits; otherwise a node has a minimum rate (`node-limits.ts`). */
  readonly isEndless?: boolean
}

/** Name of a call and subject of its answers. */
interface CallAddress {
  readonly name: string
  readonly reply: string
}

interface BegunCall {
  readonly call: PendingCall
  readonly close: () => void
}

interface ForwardedCall {
  readonly call: PendingCall
  /** Present for a call to a server. */
  readonly serverCall: ServerCall | undefined
}

export class Forwarder {
  readonly #options: ForwarderOptions
  readonly #calls = new TransientMap<string, ForwardedCall>()
  readonly #run = randomBytes(12).toString('hex')
  #subscription: BusSubscription | undefined
  #sweeper: NodeJS.Timeout | undefined
  #count = 0
  #self: ClusterMember | undefined
  /** Bytes of answers received from other processes. */
  answerBytes = 0
  #sender: SealedCallSender | undefined
  #issuer = new AssertionIssuer({ key: () => undefined })
  readonly #credit = new CreditPool()
  readonly #buffers = new BufferPool()
  readonly #chunks = new UnfinishedChunks()

  constructor(options: ForwarderOptions) {
    this.#options = options
  }

  /** Calls can be made from now on: to servers with `sender`, to nodes with ACL on with `issuer`. */
  start(
    self: ClusterMember,
    options: { readonly sender?: SealedCallSender; readonly issuer?: AssertionIssuer } = {},
  ): void {
    const { bus, subjects } = this.#options
    this.#self = self
    this.#sender = options.sender
    if (options.issuer) this.#issuer = options.issuer
    this.#subscription = bus.subscribe(subjects.reply(self, '*', '*'), (message) => this.#receive(message))
    this.#sweeper = setInterval(() => this.#sweep(), TIMINGS.keepaliveMs / 2).unref()
  }

  stop(): void {
    clearInterval(this.#sweeper)
    this.#subscription?.close()
    for (const { call } of this.#calls.values()) {
      call.fail(new Refusal('unavailable', 'the server is stopping, try again'))
    }
    this.#calls.clear()
  }

  get calls(): number {
    return this.#calls.size
  }

  /** Resolves to the JSON text of the value; undefined for an empty answer. Rejects with the node's refusal. */
  async value(request: ForwardedRequest): Promise<string | undefined> {
    return (await this.answer(request))?.text
  }

  /** As `value`, with the headers of the answer. */
  answer(request: ForwardedRequest): Promise<JsonText | undefined> {
    return this.#readLast(request, valueOf)
  }

  /** A `WholeAnswer` of a server, byte for byte. */
  whole(request: ForwardedRequest): Promise<WholeAnswer> {
    return this.#readLast(request, wholeOf)
  }

  /** As `whole`, or the `StreamedAnswer` of a server. Its chunks are those of the server; an error breaks it. */
  async wholeOrStreamed(request: ForwardedRequest): Promise<WholeAnswer | StreamedAnswer> {
    const begun = this.#begin(request)
    const { call, close } = begun
    let stream: StreamedAnswer | undefined
    try {
      const first = await call.next()
      if (request.nodeId === undefined && first && 'kind' in first && first.kind === 'head') {
        stream = new StreamedAnswer(first.headers ?? {}, streamOf(begun, request.signal), first.accessor)
      }
      return stream ?? (await readLast(request, call, wholeOf, first))
    } finally {
      if (!stream) close()
    }
  }

  async #readLast<T>(
    request: ForwardedRequest,
    read: (last: ValueMessage, data: readonly Uint8Array[]) => T,
  ): Promise<T> {
    const { call, close } = this.#begin(request)
    try {
      return await readLast(request, call, read, await call.next())
    } finally {
      close()
    }
  }

  /** The stream of a node. Throws the node's refusal before the head; after it, an error breaks the stream. */
  async *stream(request: ForwardedRequest): AsyncGenerator<Chunk> {
    const { call, close } = this.#begin(request)
    let hasHead = false
    try {
      for (let answer = await call.next(); answer !== undefined; answer = await call.next()) {
        if (answer instanceof Uint8Array) {
          if (!hasHead) throw lostPart()
          yield answer
        } else if (answer.kind === 'head') {
          hasHead = true
          yield headOf(answer)
        } else throw new Fault('a node sent a value instead of a stream')
      }
      if (!call.hasPooledBuffer) return
      // When the consumer requests the chunk after this one, it has written the last bytes, so their buffer can be reused.
      yield EMPTY
      call.releaseBuffer()
    } finally {
      close()
    }
  }

  #begin(request: ForwardedRequest): BegunCall {
    const { bus, subjects } = this.#options
    const { nodeId, signal } = request
    const self = this.#self
    if (!self || !bus.isConnected) throw new Refusal('not_connected', 'not connected to NATS, try again')
    const name = `${this.#run}${(++this.#count).toString(36)}`
    const reply = subjects.reply(self, nodeId ?? ANY, name)
    const serverCall = this.#serverCall(self, request, { name, reply })
    const sendToNode = nodeId === undefined ? undefined : () => this.#sendToNode(request, { name, reply })
    const body = nodeId === undefined ? request.body : undefined
    const sender =
      body &&
      new BodySender({
        body,
        send: (message) => serverCall?.control(encode(message)),
        fail: (error) => call.fail(error),
      })
    const call = new PendingCall({
      send(message) {
        if (nodeId !== undefined) bus.publish(subjects.flow(nodeId, name), encode(message))
        else serverCall?.control(encode(message))
      },
      onSilent: () => serverCall?.removeServer(),
      ...(sender && { onBodyCredit: (allowed: number) => sender.allow(allowed) }),
      ...(serverCall && { peer: () => serverCall.serverName }),
      onStaleRun: (run) => {
        if (nodeId !== undefined) this.#issuer.setRun(nodeId, run)
        sendToNode?.()
      },
      credit: this.#credit,
      buffers: this.#buffers,
      chunks: this.#chunks,
      nodeId,
      minimumRate: nodeId === undefined || request.isEndless ? undefined : new MinimumRate(),
    })
    const onAbort = () => call.fail(CALLER_GONE)
    const draining = request.nodeId === undefined ? request.draining : undefined
    const onDrain = () => serverCall?.control(encode({ kind: 'drain' }))
    // The key contains the process that may answer, so messages of another node are ignored.
    const key = `${nodeId ?? ANY}.${name}`
    this.#calls.set(key, { call, serverCall })
    const close = () => {
      signal.removeEventListener('abort', onAbort)
      draining?.removeEventListener('abort', onDrain)
      this.#calls.delete(key)
      sender?.close()
      call.close()
      serverCall?.close()
    }
    if (signal.aborted) onAbort()
    else {
      signal.addEventListener('abort', onAbort, { once: true })
      sendToNode?.()
      draining?.addEventListener('abort', onDrain, { once: true })
      void this.#sendToServer(serverCall, call, () => draining?.aborted && onDrain())
    }
    return { call, close }
  }

  #serverCall(self: ClusterMember, request: ForwardedRequest, address: CallAddress): ServerCall | undefined {
    if (request.nodeId !== undefined) return undefined
    const { group = ANY, remote, serverId, token } = request
    const bytes = encodeCall(
      encode({
        ...callMessage(request, address.name),
        ...(token !== undefined && { token }),
        ...(remote !== undefined && { remote }),
      }),
    )
    const messageBytes = bytes.length + ENVELOPE_BYTES
    const { payloadBytesMax } = this.#options.bus
    if (messageBytes > payloadBytesMax) throw tooLarge(messageBytes, payloadBytesMax)
    const sender = this.#sender
    if (!sender) throw new Refusal('unavailable', 'no server is connected, try again')
    return new ServerCall({ ...this.#options, sender, caller: memberId(self), group, serverId }, { ...address, bytes })
  }

  async #sendToServer(serverCall: ServerCall | undefined, call: PendingCall, onSent: () => void): Promise<void> {
    await serverCall?.send((error) => call.fail(error))
    onSent()
  }

  #sendToNode(request: ForwardedRequest, { name, reply }: CallAddress): void {
    if (request.nodeId === undefined) return
    const { bus, subjects } = this.#options
    const { nodeId } = request
    const bytes = this.#issuer.message(request, callMessage(request, name))
    if (bytes.length <= bus.payloadBytesMax) bus.publish(subjects.call(nodeId), bytes, reply)
    else this.#calls.get(`${nodeId}.${name}`)?.call.fail(tooLarge(bytes.length, bus.payloadBytesMax))
  }

  #receive({ subject, payload, isNoResponders }: BusMessage): void {
    const key = lastParts(subject, 2)
    const forwarded = this.#calls.get(key)
    if (!forwarded) return
    this.answerBytes += payload.length
    const { call, serverCall } = forwarded
    if (isNoResponders && serverCall) void serverCall.sendToAnother((error) => call.fail(error))
    else if (isNoResponders) call.fail(new Refusal('not_found', 'No path to node'))
    else if (serverCall) {
      const opened = serverCall.open(payload)
      if (opened instanceof Uint8Array) call.receive(opened)
      else if (opened) call.fail(opened === 'lost' ? lostPart() : opened)
    } else call.receive(payload)
  }

  #sweep(): void {
    for (const { call } of this.#calls.values()) call.sweep()
  }
}

/** Calls `read` with the last message and the data before it. */
async function readLast<T>(
  { nodeId }: ForwardedRequest,
  call: PendingCall,
  read: (last: ValueMessage, data: readonly Uint8Array[]) => T,
  first: AnswerPart | undefined,
): Promise<T> {
  const parts: Buffer[] = []
  let bytes = 0
  for (let answer = first; ; answer = await call.next()) {
    if (answer === undefined || (!(answer instanceof Uint8Array) && answer.kind === 'head')) {
      throw new Fault('a node sent no value')
    }
    if (!(answer instanceof Uint8Array)) return read(answer, parts)
    bytes += answer.length
    if (nodeId !== undefined && bytes > NODE_VALUE_BYTES_MAX) {
      throw new Fault(`a node sent a value larger than ${NODE_VALUE_BYTES_MAX} bytes`)
    }
    parts.push(Buffer.from(answer))
  }
}

/** The data after a head. Closes the call at its end, and when `signal` aborts before it was read. */
function streamOf({ call, close }: BegunCall, signal: AbortSignal): AsyncIterable<Uint8Array> {
  if (signal.aborted) close()
  else signal.addEventListener('abort', close, { once: true })
  return read()

  async function* read(): AsyncGenerator<Uint8Array> {
    // From now on an abort ends the call with an error, after the parts that were received.
    signal.removeEventListener('abort', close)
    try {
      for (let part = await call.next(); part !== undefined; part = await call.next()) {
        if (!(part instanceof Uint8Array)) throw new Fault('a server sent a value within a stream')
        yield part
      }
    } finally {
      close()
    }
  }
}

/** A request is always one message. */
function tooLarge(bytes: number, bytesMax: number): Refusal {
  const limit = `NATS carries at most ${bytesMax} (max_payload of the NATS server)`
  return new Refusal(
    'body_too_large',
    `the request needs a message of ${bytes} bytes and ${limit}: send a smaller request, or raise the limit`,
  )
}

function callMessage(request: ForwardedRequest, call: string): CallMessage {
  const { hops, input, operation, requestId } = request
  return { version: WIRE_VERSION, operation, input, requestId, hops: hops + 1, window: FIRST_BYTES, call }
}
