/**
 * The caller's end of calls: sends one to a node and gives what comes back, as if the operation had run here. Data is
 * credited as it is taken, so a slow reader holds back the node and nobody else. A hole in the numbers, silence, or an
 * error breaks the answer, never ends it as if it were whole.
 */
import { randomBytes } from 'node:crypto'
import { Fault, Refusal } from '../../platform/errors.ts'
import type { Chunk, JsonText, WholeAnswer } from '../../platform/operation.ts'
import type { RawInput } from '../../platform/schema.ts'
import type { Link, Message, Subscription } from '../nats/link.ts'
import { Pace } from './pace.ts'
import { PartMemory } from './part-memory.ts'
import { lostPart, PendingCall } from './pending-call.ts'
import { AssertionIssuer, type NodeRecipient } from './call-to-node.ts'
import { ChunkMemory } from './chunk-memory.ts'
import { CallTable } from './call-table.ts'
import { CallToServer } from './call-to-server.ts'
import { ENVELOPE_BYTES } from '../trust/envelope.ts'
import type { ServerCalls } from './server-calls.ts'
import { ANY, type Group, lastParts, nameOf, type Party, type Subjects } from '../nats/subjects.ts'
import { TIMINGS } from '../nats/timings.ts'
import { FIRST_BYTES, WindowStock } from './window.ts'
import type { CallMessage } from './call-message.ts'
import { encode, encodeCall, headOf, type ValueMessage, valueOf, WIRE_VERSION, wholeOf } from './wire.ts'

const NOTHING = new Uint8Array(0)
/** Longest value of a node, which is held whole: statistics and metadata have some kilobytes. */
const NODE_VALUE_BYTES_MAX = 16 << 20

/** Of one object for all: every answer's connection closes in the end. */
const CALLER_GONE = new Refusal('unavailable', 'the caller is gone')

export interface ForwardOptions {
  readonly link: Link
  readonly subjects: Subjects
}

/** Any server, which knows more than this process. It judges the token itself. */
export interface ServerRecipient {
  readonly nodeId?: undefined
  /** Which servers may take it. Absent: any. */
  readonly group?: Group
  readonly token: string | undefined
  /** Where the request came from, as `Call` has it. Believed where a server says it. */
  readonly remote?: string | undefined
  /** Aborts when this process stops: the server is told, and answers a long poll at once. */
  readonly draining?: AbortSignal | undefined
}

/** A node gets no token: what it is told about the caller is the word of this server. */
export type Recipient = NodeRecipient | ServerRecipient

export type ForwardedRequest = Recipient & {
  readonly operation: string
  readonly input: RawInput
  readonly requestId: string
  /** How often it has been forwarded already. */
  readonly hops: number
  readonly signal: AbortSignal
  /** True where the answer may last for as long as the caller likes; otherwise a node has to get on with it (`pace.ts`). */
  readonly isEndless?: boolean
}

/** A call by its name, and where its answers go. */
interface Addressed {
  readonly name: string
  readonly reply: string
}

interface CallUnderWay {
  readonly call: PendingCall
  /** Set for a call to a server. */
  readonly to: CallToServer | undefined
}

/** Calls to other nodes and to servers, from one process. */
export class Forwarder {
  readonly #options: ForwardOptions
  readonly #calls = new CallTable<CallUnderWay>()
  readonly #run = randomBytes(12).toString('hex')
  #subscription: Subscription | undefined
  #sweeper: NodeJS.Timeout | undefined
  #count = 0
  #self: Party | undefined
  /** Bytes of answers that have come from other processes. */
  answerBytes = 0
  #servers: ServerCalls | undefined
  #issuer = new AssertionIssuer({ key: () => undefined })
  readonly #stock = new WindowStock()
  readonly #memory = new PartMemory()
  readonly #chunks = new ChunkMemory()

  constructor(options: ForwardOptions) {
    this.#options = options
  }

  /**
   * `self` names this process on the bus; calls can be made from now on, with `servers` to servers too, and with `issuer` to
   * nodes whose ACL is on.
   */
  start(self: Party, with_: { readonly servers?: ServerCalls; readonly issuer?: AssertionIssuer } = {}): void {
    const { link, subjects } = this.#options
    this.#self = self
    this.#servers = with_.servers
    if (with_.issuer) this.#issuer = with_.issuer
    this.#subscription = link.subscribe(subjects.reply(self, '*', '*'), (message) => this.#take(message))
    this.#sweeper = setInterval(() => this.#sweep(), TIMINGS.aliveMs / 2).unref()
  }

  stop(): void {
    clearInterval(this.#sweeper)
    this.#subscription?.close()
    for (const { call } of this.#calls.values())
      call.fail(new Refusal('unavailable', 'the server is stopping, try again'))
    this.#calls.clear()
  }

  get calls(): number {
    return this.#calls.size
  }

  /** Resolves with the JSON text of the value; undefined when there is none. Rejects with what the node refused. */
  async value(request: ForwardedRequest): Promise<string | undefined> {
    return (await this.answer(request))?.text
  }

  /** The same with the headers that belong to the value. */
  answer(request: ForwardedRequest): Promise<JsonText | undefined> {
    return this.#last(request, valueOf)
  }

  /** What an operation of a server has made whole, byte for byte. */
  whole(request: ForwardedRequest): Promise<WholeAnswer> {
    return this.#last(request, wholeOf)
  }

  /** What `read` makes of the last word and of the bytes that came before it. */
  async #last<T>(request: ForwardedRequest, read: (last: ValueMessage, sent: readonly Uint8Array[]) => T): Promise<T> {
    const { call, close } = this.#begin(request)
    try {
      const parts: Buffer[] = []
      let bytes = 0
      for (;;) {
        const answer = await call.next()
        if (answer === undefined || (!(answer instanceof Uint8Array) && answer.kind === 'head')) {
          throw new Fault('a node gave no value')
        }
        if (!(answer instanceof Uint8Array)) return read(answer, parts)
        bytes += answer.length
        if (request.nodeId !== undefined && bytes > NODE_VALUE_BYTES_MAX)
          throw new Fault('a node gave too long a value')
        parts.push(Buffer.from(answer))
      }
    } finally {
      close()
    }
  }

  /** The stream as the node makes it; throws until the head what the node refused, and breaks behind it. */
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
        } else throw new Fault('a node gave a value where a stream was expected')
      }
      if (!call.isLent) return
      // Once the chunk behind this one is asked for, the last bytes are written and their memory is free.
      yield NOTHING
      call.giveBack()
    } finally {
      close()
    }
  }

  #begin(request: ForwardedRequest): { readonly call: PendingCall; readonly close: () => void } {
    const { link, subjects } = this.#options
    const { nodeId, signal } = request
    const self = this.#self
    if (!self || !link.isConnected) throw new Refusal('unavailable', 'not connected to NATS, try again')
    const name = `${this.#run}${(++this.#count).toString(36)}`
    const reply = subjects.reply(self, nodeId ?? ANY, name)
    const to = this.#toServer(self, request, { name, reply })
    const toNode = nodeId === undefined ? undefined : () => this.#sendToNode(request, { name, reply })
    const call = new PendingCall({
      send(message) {
        if (nodeId !== undefined) link.publish(subjects.flow(nodeId, name), encode(message))
        else to?.control(encode(message))
      },
      onSilent: () => to?.forget(),
      onAgain: (run) => {
        if (nodeId !== undefined) this.#issuer.learn(nodeId, run)
        toNode?.()
      },
      stock: this.#stock,
      memory: this.#memory,
      chunks: this.#chunks,
      nodeId,
      pace: nodeId === undefined || request.isEndless ? undefined : new Pace(),
    })
    const onAbort = () => call.fail(CALLER_GONE)
    const draining = request.nodeId === undefined ? request.draining : undefined
    const onDrain = () => to?.control(encode({ kind: 'drain' }))
    // Under who may answer as well: what another node sends is not an answer.
    const key = `${nodeId ?? ANY}.${name}`
    this.#calls.add(key, { call, to })
    const close = () => {
      signal.removeEventListener('abort', onAbort)
      draining?.removeEventListener('abort', onDrain)
      this.#calls.delete(key)
      call.close()
      to?.close()
    }
    if (signal.aborted) onAbort()
    else {
      signal.addEventListener('abort', onAbort, { once: true })
      toNode?.()
      draining?.addEventListener('abort', onDrain, { once: true })
      void this.#sendToServer(to, call, () => draining?.aborted && onDrain())
    }
    return { call, close }
  }

  #toServer(self: Party, request: ForwardedRequest, to: Addressed): CallToServer | undefined {
    if (request.nodeId !== undefined) return undefined
    const { group = ANY, remote, token } = request
    const bytes = encodeCall(
      encode({
        ...callMessage(request, to.name),
        ...(token !== undefined && { token }),
        ...(remote !== undefined && { remote }),
      }),
    )
    const messageBytes = bytes.length + ENVELOPE_BYTES
    const { payloadBytesMax } = this.#options.link
    if (messageBytes > payloadBytesMax) throw tooLarge(messageBytes, payloadBytesMax)
    if (!this.#servers) throw new Refusal('unavailable', 'no server is connected, try again')
    return new CallToServer({ ...this.#options, servers: this.#servers, caller: nameOf(self), group }, { ...to, bytes })
  }

  async #sendToServer(to: CallToServer | undefined, call: PendingCall, onSent: () => void): Promise<void> {
    await to?.send((error) => call.fail(error))
    onSent()
  }

  #sendToNode(request: ForwardedRequest, { name, reply }: Addressed): void {
    if (request.nodeId === undefined) return
    const { link, subjects } = this.#options
    const { nodeId } = request
    const bytes = this.#issuer.message(request, callMessage(request, name))
    if (bytes.length <= link.payloadBytesMax) link.publish(subjects.call(nodeId), bytes, reply)
    else this.#calls.get(`${nodeId}.${name}`)?.call.fail(tooLarge(bytes.length, link.payloadBytesMax))
  }

  #take({ subject, payload, nobody }: Message): void {
    const key = lastParts(subject, 2)
    const underWay = this.#calls.get(key)
    if (!underWay) return
    this.answerBytes += payload.length
    const { call, to } = underWay
    if (nobody && to) void to.sendToAnother((error) => call.fail(error))
    else if (nobody) call.fail(new Refusal('not_found', 'No path to node'))
    else if (to) {
      const opened = to.open(payload)
      if (opened instanceof Uint8Array) call.take(opened)
      else if (opened) call.fail(opened === 'lost' ? lostPart() : opened)
    } else call.take(payload)
  }

  #sweep(): void {
    for (const { call } of this.#calls.values()) call.sweep()
  }
}

/** A request is one message: it is whole or it is not there. */
function tooLarge(bytes: number, bytesMax: number): Refusal {
  const limit = `NATS carries at most ${bytesMax} (max_payload of the NATS server)`
  return new Refusal(
    'body_too_large',
    `the request makes a message of ${bytes} bytes and ${limit}: send less, or raise the limit`,
  )
}

function callMessage(request: ForwardedRequest, call: string): CallMessage {
  const { hops, input, operation, requestId } = request
  return { version: WIRE_VERSION, operation, input, requestId, hops: hops + 1, window: FIRST_BYTES, call }
}
