/**
 * The serving end of calls: a message comes in, the same operation runs that HTTP would run, with the same parsing and the
 * same permission, and what it gives goes back piece by piece, never more than the caller's window ahead of the caller.
 */
import { Fault, messageOf, Refusal } from '../kit/errors.ts'
import type { Logger } from '../kit/log.ts'
import { type AnyOperation, type Call, type Chunk, type Identity, isStreamHead, JsonText } from '../kit/operation.ts'
import type { Link, Message, Subscription } from './link.ts'
import { ANY, lastParts, type Subjects } from './subjects.ts'
import { type AnswerMessage, type CallMessage, decodeCall, decodeControl, encode } from './wire.ts'
import { DATA_HEAD_BYTES, dataMessage } from './wire.ts'

/** Silence after which the other side says that it is there. */
export const ALIVE_MS = 2000
/** Silence after which the other side is given up: three words missed, and a little. */
export const GIVE_UP_MS = 7000
/** Data of one message; with its head it fits a server that was never configured. */
const DATA_BYTES_MAX = 512 * 1024

export interface ServeOptions {
  readonly link: Link
  readonly subjects: Subjects
  /** As a node, which gets its own calls, or as one of several servers. */
  readonly as: { readonly nodeId: string } | { readonly serverId: string }
  readonly operations: readonly AnyOperation[]
  readonly resolve: (token: string | undefined) => Identity | Promise<Identity>
  readonly logger: Logger
  /** Calls under way at once; more are told to come back. */
  readonly callsMax: number
}

/** Serves operations to whoever may publish on the subjects. */
export class CallServer {
  readonly #options: ServeOptions
  readonly #operations: ReadonlyMap<string, AnyOperation>
  readonly #calls = new Map<string, ServedCall>()
  readonly #subscriptions: Subscription[] = []
  #sweeper: NodeJS.Timeout | undefined

  constructor(options: ServeOptions) {
    this.#options = options
    this.#operations = new Map(options.operations.map((operation) => [operation.name, operation]))
  }

  start(): void {
    const { link, subjects, as } = this.#options
    const take = (message: Message) => this.#take(message)
    const calls = 'nodeId' in as ? link.subscribe(subjects.call(as.nodeId), take) : undefined
    this.#subscriptions.push(
      calls ?? link.subscribe(subjects.anyServer('*'), take, 'servers'),
      link.subscribe(this.#flow, (message) => this.#control(message)),
    )
    this.#sweeper = setInterval(() => this.#sweep(), ALIVE_MS / 2).unref()
  }

  get #flow(): string {
    const { subjects, as } = this.#options
    return 'nodeId' in as ? subjects.flow(as.nodeId, '*') : subjects.serverFlow(as.serverId, '*', '*')
  }

  /** Breaks what is under way, so that callers can tell. */
  stop(): void {
    clearInterval(this.#sweeper)
    for (const subscription of this.#subscriptions.splice(0)) subscription.close()
    for (const call of this.#calls.values())
      call.abandon(new Refusal('unavailable', 'the agent is stopping, try again'))
  }

  get calls(): number {
    return this.#calls.size
  }

  /**
   * Whoever calls names a subject for the answers, and nothing keeps him from naming one that he may not send to himself:
   * answers go to the caller that the call's own subject names, and to nobody else.
   */
  #answersTo(subject: string, reply: string, call: string): boolean {
    const { subjects, as } = this.#options
    const end = lastParts(reply, 1)
    if (call !== '' && end !== call) return false
    if ('nodeId' in as) {
      const serverId = lastParts(reply, 4).split('.')[0] ?? ''
      return reply === subjects.reply({ serverId }, as.nodeId, end)
    }
    const id = lastParts(subject, 1)
    return [{ nodeId: id }, { serverId: id }].some((caller) => reply === subjects.reply(caller, ANY, end))
  }

  #take({ subject, payload, reply }: Message): void {
    const { link, logger, callsMax, as } = this.#options
    if (!this.#answersTo(subject, reply, '')) return
    const refuse = (refusal: Refusal) => link.publish(reply, encode(refusalMessage(refusal)))
    const call = decodeCall(payload)
    if (!('operation' in call)) {
      logger.warn('a call was refused', { reason: call.newer ? 'made by a newer version' : 'malformed' })
      const text = call.newer
        ? 'this process runs an older version of outpost and does not understand the call, upgrade it'
        : 'malformed call'
      refuse(new Refusal(call.newer ? 'not_implemented' : 'invalid_request', text))
      return
    }
    // On a server, under the caller's name: nobody can take another's, or steer his call.
    const key = 'serverId' in as ? `${lastParts(subject, 1)}.${call.call}` : call.call
    if (this.#calls.has(key) || !this.#answersTo(subject, reply, call.call)) return
    if (this.#calls.size >= callsMax) {
      refuse(
        new Refusal('too_many', 'as many calls as may be are being served here, try again later', {
          'Retry-After': '2',
        }),
      )
      return
    }
    const served = new ServedCall(call, reply, link)
    this.#calls.set(key, served)
    if ('serverId' in as) served.say({ kind: 'taken', server: as.serverId })
    void this.#run(served).finally(() => this.#calls.delete(key))
  }

  #control({ subject, payload }: Message): void {
    const call = this.#calls.get(lastParts(subject, 'serverId' in this.#options.as ? 2 : 1))
    const message = call && decodeControl(payload)
    if (!call || !message) return
    if (message.kind === 'cancel') call.cancel()
    else call.credit(message.bytes)
  }

  #sweep(): void {
    for (const call of this.#calls.values()) call.sweep()
  }

  /** As `http/exchange` does: find, parse, identify, authorise, run. */
  async #run(served: ServedCall): Promise<void> {
    const { message } = served
    try {
      const operation = this.#operations.get(message.operation)
      if (!operation) {
        throw new Refusal('not_implemented', `this process knows no ${JSON.stringify(message.operation)}, upgrade it`)
      }
      const { params, query, headers, body } = message.input
      const input = operation.input.parse({ params, query, headers, body })
      const identity = await this.#options.resolve(operation.open ? undefined : message.token)
      operation.authorize(input, identity)
      const result = operation.run(input, served.callFor(identity))
      if (Symbol.asyncIterator in result) await served.stream(result)
      else served.value(await result)
    } catch (error) {
      this.#fail(served, error)
    }
  }

  #fail(served: ServedCall, error: unknown): void {
    if (served.isOver) return
    if (error instanceof Refusal) served.say(refusalMessage(error))
    else {
      const { operation, requestId } = served.message
      this.#options.logger.error('a call failed', { operation, request_id: requestId, error: messageOf(error) })
      served.say({ kind: 'fault' })
    }
  }
}

function refusalMessage({ code, message, headers }: Refusal): AnswerMessage {
  return { kind: 'refusal', code, message, headers: { ...headers } }
}

/** One call under way. */
class ServedCall {
  readonly message: CallMessage
  readonly #reply: string
  readonly #link: Link
  readonly #abort = new AbortController()
  #sequence = 0
  #sent = 0
  #taken = 0
  #wake: (() => void) | undefined
  #spokeAtMs = performance.now()
  #heardAtMs = performance.now()
  #isStream = false

  constructor(message: CallMessage, reply: string, link: Link) {
    this.message = message
    this.#reply = reply
    this.#link = link
  }

  get isOver(): boolean {
    return this.#abort.signal.aborted
  }

  callFor(identity: Identity): Call {
    const { requestId, token, hops, input } = this.message
    const raw = { params: input.params, query: input.query, headers: input.headers, body: input.body }
    return { requestId, identity, signal: this.#abort.signal, raw, token, hops }
  }

  say(message: AnswerMessage): void {
    this.#spokeAtMs = performance.now()
    this.#link.publish(this.#reply, encode(message))
  }

  value(value: unknown): void {
    if (this.isOver) return
    if (value === undefined) this.say({ kind: 'value' })
    else this.say({ kind: 'value', json: value instanceof JsonText ? value.text : JSON.stringify(value) })
  }

  async stream(chunks: AsyncIterable<Chunk>): Promise<void> {
    this.#isStream = true
    for await (const chunk of chunks) {
      if (this.isOver) return
      if (isStreamHead(chunk)) {
        const { status, contentType, contentLength, headers, frames } = chunk
        this.say({
          kind: 'head',
          status,
          contentType,
          contentLength,
          headers: headers && { ...headers },
          frames,
        })
      } else await this.#data(chunk)
    }
    if (!this.isOver) this.say({ kind: 'end', sequence: this.#sequence })
  }

  /** Sends a copy: the chunk's own bytes are used again. */
  async #data(chunk: Uint8Array): Promise<void> {
    for (let from = 0; from < chunk.length; from += DATA_BYTES_MAX) {
      while (this.#sent - this.#taken >= this.message.window) {
        if (this.isOver) return
        await new Promise<void>((resolve) => {
          this.#wake = resolve
        })
      }
      if (this.isOver) return
      const to = Math.min(from + DATA_BYTES_MAX, chunk.length)
      const target = Buffer.allocUnsafeSlow(DATA_HEAD_BYTES + to - from)
      target.set(chunk.subarray(from, to), DATA_HEAD_BYTES)
      this.#link.publish(this.#reply, dataMessage(target, this.#sequence++, to - from))
      this.#sent += to - from
      this.#spokeAtMs = performance.now()
    }
  }

  credit(bytes: number): void {
    this.#heardAtMs = performance.now()
    this.#taken = Math.max(this.#taken, Math.min(bytes, this.#sent))
    this.#wakeUp()
  }

  cancel(): void {
    this.#abort.abort()
    this.#wakeUp()
  }

  /** Ends it from our side, and says so. */
  abandon(refusal: Refusal): void {
    if (this.isOver) return
    this.say(refusalMessage(refusal))
    this.cancel()
  }

  /** Says that it is there when it has nothing else to say; gives up a caller that is silent. */
  sweep(): void {
    const nowMs = performance.now()
    if (nowMs - this.#heardAtMs > GIVE_UP_MS && this.#isStream) this.cancel()
    else if (nowMs - this.#spokeAtMs > ALIVE_MS) this.say({ kind: 'alive' })
  }

  #wakeUp(): void {
    const wake = this.#wake
    this.#wake = undefined
    wake?.()
  }
}

/** A fault that a node reported about itself; its detail is in that node's log. */
export class NodeFault extends Fault {}
