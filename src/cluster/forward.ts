/**
 * The caller's end of calls: sends one to a node and gives what comes back, as if the operation had run here. Data is
 * credited as it is taken, so a slow reader holds back the node and nobody else. A hole in the numbers, silence, or an
 * error breaks the answer, never ends it as if it were whole.
 */
import { randomBytes } from 'node:crypto'
import { Fault, Refusal } from '../kit/errors.ts'
import type { Chunk } from '../kit/operation.ts'
import type { RawInput } from '../kit/schema.ts'
import type { Link, Message, Subscription } from './link.ts'
import { ALIVE_MS, GIVE_UP_MS, NodeFault } from './serve.ts'
import { ANY, lastParts, nameOf, type Party, type Subjects } from './subjects.ts'
import {
  type AnswerMessage,
  type CallMessage,
  type ControlMessage,
  decodeAnswer,
  decodeData,
  encode,
  headOf,
  WIRE_VERSION,
} from './wire.ts'

/** Bytes that may be under way: enough for a fast node over a slow wire, and what one call can make us hold. */
const WINDOW_BYTES = 4 << 20
/** Credit is granted in pieces of this much. */
const CREDIT_BYTES = WINDOW_BYTES / 8

export interface ForwardOptions {
  readonly link: Link
  readonly subjects: Subjects
}

export interface ForwardedRequest {
  /** Undefined: any server, which knows more than this process. */
  readonly nodeId: string | undefined
  readonly operation: string
  readonly input: RawInput
  readonly token: string | undefined
  readonly requestId: string
  /** How often it has been forwarded already. */
  readonly hops: number
  readonly signal: AbortSignal
}

/** Calls to other nodes, from one process. */
export class Forwarder {
  readonly #options: ForwardOptions
  readonly #calls = new Map<string, PendingCall>()
  readonly #run = randomBytes(12).toString('hex')
  #subscription: Subscription | undefined
  #sweeper: NodeJS.Timeout | undefined
  #count = 0
  #self: Party | undefined

  constructor(options: ForwardOptions) {
    this.#options = options
  }

  /** `self` names this process on the bus; calls can be made from now on. */
  start(self: Party): void {
    const { link, subjects } = this.#options
    this.#self = self
    this.#subscription = link.subscribe(subjects.reply(self, '*', '*'), (message) => this.#take(message))
    this.#sweeper = setInterval(() => this.#sweep(), ALIVE_MS / 2).unref()
  }

  stop(): void {
    clearInterval(this.#sweeper)
    this.#subscription?.close()
    for (const call of this.#calls.values()) call.fail(new Refusal('unavailable', 'the server is stopping, try again'))
    this.#calls.clear()
  }

  get calls(): number {
    return this.#calls.size
  }

  /** Resolves with the JSON text of the value; undefined when there is none. Rejects with what the node refused. */
  async value(request: ForwardedRequest): Promise<string | undefined> {
    for await (const answer of this.#answers(request)) {
      if (answer instanceof Uint8Array) throw new Fault('a node sent data where a value was expected')
      if (answer.kind === 'value') return answer.json
    }
    throw new Fault('a node gave no value')
  }

  /** The stream as the node makes it; throws until the head what the node refused, and breaks behind it. */
  async *stream(request: ForwardedRequest): AsyncGenerator<Chunk> {
    for await (const answer of this.#answers(request)) {
      if (answer instanceof Uint8Array) yield answer
      else if (answer.kind === 'head') yield headOf(answer)
    }
  }

  async *#answers(request: ForwardedRequest): AsyncGenerator<AnswerMessage | Uint8Array> {
    const { link, subjects } = this.#options
    const self = this.#self
    if (!self || !link.isConnected) throw new Refusal('unavailable', 'not connected to NATS, try again')
    const name = `${this.#run}${(++this.#count).toString(36)}`
    const { nodeId } = request
    const caller = nameOf(self)
    const call = new PendingCall({
      flow: nodeId === undefined ? undefined : subjects.flow(nodeId, name),
      flowAt: (serverId) => subjects.serverFlow(serverId, caller, name),
      send: (flow, message) => link.publish(flow, encode(message)),
    })
    const onAbort = () => call.fail(new Refusal('unavailable', 'the caller is gone'))
    // Under who may answer as well: what another node sends is not an answer.
    const key = `${nodeId ?? ANY}.${name}`
    this.#calls.set(key, call)
    request.signal.addEventListener('abort', onAbort, { once: true })
    try {
      const subject = nodeId === undefined ? subjects.anyServer(caller) : subjects.call(nodeId)
      link.publish(subject, encode(callMessage(request, name)), subjects.reply(self, nodeId ?? ANY, name))
      yield* call.answers()
    } finally {
      request.signal.removeEventListener('abort', onAbort)
      this.#calls.delete(key)
      call.close()
    }
  }

  #take({ subject, payload, nobody }: Message): void {
    const key = lastParts(subject, 2)
    const call = this.#calls.get(key)
    if (!call) return
    if (nobody && key.startsWith(`${ANY}.`)) call.fail(new Refusal('unavailable', 'no server is connected, try again'))
    else if (nobody) call.fail(new Refusal('not_found', 'No path to node'))
    else call.take(payload)
  }

  #sweep(): void {
    for (const call of this.#calls.values()) call.sweep()
  }
}

function callMessage(request: ForwardedRequest, call: string): CallMessage {
  const { params, query, headers, body } = request.input
  return {
    version: WIRE_VERSION,
    operation: request.operation,
    input: {
      params: { ...params },
      query: query.map(([name, value]): [string, string] => [name, value]),
      headers: { ...headers },
      ...(body === undefined ? {} : { body }),
    },
    ...(request.token === undefined ? {} : { token: request.token }),
    requestId: request.requestId,
    hops: request.hops + 1,
    window: WINDOW_BYTES,
    call,
  }
}

type Queued = AnswerMessage | Uint8Array

/** What has come of one call and has not been taken. Its bytes are bounded by the window. */
class PendingCall {
  readonly #publish: (flow: string, message: ControlMessage) => void
  readonly #flowAt: (serverId: string) => string
  /** Where credit and cancel go; not known before somebody has taken a call that several might take. */
  #flow: string | undefined
  readonly #queue: Queued[] = []
  #wake: (() => void) | undefined
  #error: Error | undefined
  #ended = false
  #sequence = 0
  #received = 0
  #taken = 0
  #credited = 0
  #heardAtMs = performance.now()
  #spokeAtMs = performance.now()

  constructor(options: {
    flow: string | undefined
    flowAt: (serverId: string) => string
    send: (flow: string, message: ControlMessage) => void
  }) {
    this.#flow = options.flow
    this.#flowAt = options.flowAt
    this.#publish = options.send
  }

  #send(message: ControlMessage): void {
    if (this.#flow !== undefined) this.#publish(this.#flow, message)
  }

  /** In order; a piece of data counts as taken when the next thing is asked for. */
  async *answers(): AsyncGenerator<Queued> {
    for (;;) {
      const next = this.#queue.shift()
      if (next !== undefined) {
        yield next
        if (next instanceof Uint8Array) this.#took(next.length)
        else if (next.kind === 'value') return
      } else if (this.#error) throw this.#error
      else if (this.#ended) return
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
    }
  }

  take(payload: Uint8Array): void {
    this.#heardAtMs = performance.now()
    const data = decodeData(payload)
    if (data) this.#takeData(data.sequence, data.data)
    else this.#takeAnswer(decodeAnswer(payload))
    this.#wakeUp()
  }

  #takeData(sequence: number, data: Uint8Array): void {
    if (this.#error || this.#ended) return
    if (sequence !== this.#sequence % 2 ** 32) {
      this.fail(new Fault('a part of the answer was lost between node and server'))
      return
    }
    this.#sequence++
    this.#received += data.length
    // One that sends more than it was allowed to must not fill our memory.
    if (this.#received - this.#taken > 2 * WINDOW_BYTES) this.fail(new Fault('a node sent more than it may'))
    else this.#queue.push(data)
  }

  #takeAnswer(answer: AnswerMessage | undefined): void {
    if (this.#error || this.#ended) return
    if (!answer) this.fail(new Fault('a node sent what is no answer'))
    else if (answer.kind === 'refusal') this.fail(new Refusal(answer.code, answer.message, answer.headers), 'ended')
    else if (answer.kind === 'fault') this.fail(new NodeFault('the node had an internal error, see its log'), 'ended')
    else if (answer.kind === 'end') this.#end(answer.sequence)
    else if (answer.kind === 'taken') this.#flow = this.#flowAt(answer.server)
    else if (answer.kind !== 'alive') {
      if (answer.kind === 'value') this.#ended = true
      this.#queue.push(answer)
    }
  }

  #end(sequence: number): void {
    if (sequence !== this.#sequence) this.fail(new Fault('the end of the answer was lost between node and server'))
    else this.#ended = true
  }

  /** What has come before is still given; then this is thrown. `ended` when the node knows. */
  fail(error: Error, how?: 'ended'): void {
    if (this.#error || this.#ended) return
    this.#error = error
    if (how === 'ended') this.#ended = true
    this.#wakeUp()
  }

  #took(bytes: number): void {
    this.#taken += bytes
    if (this.#taken - this.#credited >= CREDIT_BYTES) this.#credit()
  }

  #credit(): void {
    this.#credited = this.#taken
    this.#spokeAtMs = performance.now()
    this.#send({ kind: 'credit', bytes: this.#taken })
  }

  /** Says that it is there; gives up a node that is silent. */
  sweep(): void {
    const nowMs = performance.now()
    if (nowMs - this.#heardAtMs > GIVE_UP_MS) this.fail(new Refusal('no_answer', 'the node does not answer, try again'))
    else if (nowMs - this.#spokeAtMs > ALIVE_MS) this.#credit()
  }

  /** The reader is done. A node that does not know yet is told. */
  close(): void {
    if (!this.#ended) this.#send({ kind: 'cancel' })
    this.#ended = true
    this.#queue.length = 0
  }

  #wakeUp(): void {
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}
