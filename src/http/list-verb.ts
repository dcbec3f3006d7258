/**
 * The verbs LIST and SCAN, which Node's parser refuses.
 *
 * Ordinary requests never come here. A request with one of these verbs makes the parser stop at the letter it does not
 * know, and `clientError` tells which letter of which packet that is. From there on the connection's bytes are held here
 * until all answers that it is owed have left. Then the connection is given to Node once more, as if it were new: its
 * own parser is let go, and a new one is fed a verb that it knows (`LINK`) and everything behind the one that it does
 * not know. When that request comes out, it gets its real verb back.
 *
 * So limits, timeouts, turns, upgrades and the end of a connection are Node's and the listener's as for any other
 * request. What this costs, only connections that use these verbs pay: a new parser for each such request, and reads
 * that pass through JavaScript from the first one on.
 *
 * Assumes of Node, beside documented events: the listener that makes HTTP of a connection is the first one for it; it
 * adds its listeners for `data`, `end`, `close`, `drain` and `timeout` to the socket at once; the one for `close` lets go
 * of the parser; while an answer is being written, it is `_httpMessage`. test/http/list-verb.test.ts fails where that is no longer true.
 *
 * Which letters of the verb came in earlier packets `UnfinishedHeads` knows. A verb of which LIST or SCAN is only the end
 * (`UNLIST`, which begins as UNLINK does) is refused. So is LIST itself, where a body ends in such letters directly before it in
 * one packet: where that body ends the parser's error does not say.
 */
import type { IncomingMessage, Server } from 'node:http'
import type { Socket } from 'node:net'
import { errnoOf } from '../platform/errors.ts'
import type { Turns } from './pipeline-queue.ts'
import { UnfinishedHeads } from './unfinished-heads.ts'

// Not by `import`: see listener.ts.
const { METHODS } = process.getBuiltinModule('node:http')
/** As long as the verbs that it stands for. */
const STAND_IN = 'LINK'
/** With the number of letters in which the parser takes it for the beginning of another. */
const VERBS = [
  { verb: 'LIST', known: 2 },
  { verb: 'SCAN', known: 1 },
] as const
/** For each verb: what the parser may have read where these letters are not the whole beginning, but the end of another verb's. */
const LONGER = VERBS.map(({ verb, known }) => {
  const prefixes = METHODS.flatMap((method) => Array.from(method, (_, at) => method.slice(0, at + 1)))
  return prefixes.filter((prefix) => prefix.length > known && prefix.endsWith(verb.slice(0, known)))
})
/** Longer than any verb. */
const READ_MAX = 16
/** Held of one connection before it is read no more: some hundred requests ahead. */
const HELD_BYTES_MAX = 64 * 1024
/** What a packet costs beside its bytes, generously: one that holds a single byte must not be the cheapest way to fill memory. */
const CHUNK_BYTES = 1024

const EVENTS = ['end', 'close', 'drain', 'timeout'] as const
type Listener = (...args: unknown[]) => void
/** Node's own listeners of a connection, in the order of `EVENTS`. */
type NodeListeners = readonly Listener[]

/** What a connection has sent from an unknown verb on. */
interface Held {
  chunks: Buffer[]
  bytes: number
  /** What is said of it should it turn out to be another verb. */
  readonly error: Error
  readonly collect: (chunk: Buffer) => void
}

export class ListVerb {
  readonly #server: Server
  readonly #turns: Turns
  readonly #listener: Listener
  readonly #nodes = new WeakMap<Socket, NodeListeners>()
  readonly #held = new WeakMap<Socket, Held>()
  readonly #heads = new UnfinishedHeads()
  /** Connections whose next request has this verb. */
  readonly #next = new WeakMap<Socket, string>()

  /** Before anybody else listens for the server's connections; `event` is the one that makes HTTP of them. */
  constructor(server: Server, event: 'connection' | 'secureConnection', turns: Turns) {
    this.#server = server
    this.#turns = turns
    const [listener] = server.listeners(event) as Listener[]
    if (!listener) throw new Error(`Node listens for ${event} no more`)
    this.#listener = listener
    server.on(event, (socket: Socket) => this.#remember(socket, false))
  }

  /** Gives a request that came out of the parser its real verb. */
  name(request: IncomingMessage): void {
    if (request.method !== STAND_IN) return
    const verb = this.#next.get(request.socket)
    if (verb === undefined) return
    this.#next.delete(request.socket)
    request.method = verb
  }

  /** What the parser refuses: true when it is one of the verbs, or may be, and will come out of it as a request. */
  recovers(error: Error, socket: Socket): boolean {
    // The parser that was left behind still counts the time of a request that now waits for its turn.
    if (this.#held.has(socket)) return errnoOf(error) === 'ERR_HTTP_REQUEST_TIMEOUT' && this.#turns.busy(socket)
    const begin = unknownVerb(error, this.#heads.tailOf(socket))
    if (!begin || !this.#nodes.has(socket) || socket.destroyed) return false
    this.#hold(socket, begin, error)
    return true
  }

  #remember(socket: Socket, isRead: boolean): void {
    this.#heads.watch(socket, isRead)
    this.#nodes.set(
      socket,
      EVENTS.map((event) => socket.listeners(event).at(-1) as Listener),
    )
  }

  #hold(socket: Socket, begin: Buffer, error: Error): void {
    const collect = (chunk: Buffer) => {
      held.chunks.push(chunk)
      held.bytes += chunk.length + CHUNK_BYTES
      if (!this.#turns.busy(socket)) this.#proceed(socket, held)
      else if (held.bytes > HELD_BYTES_MAX) socket.pause()
    }
    const held: Held = { chunks: [begin], bytes: begin.length, error, collect }
    this.#held.set(socket, held)
    socket.removeAllListeners('data')
    // Has the effect that Node gives the reads back where its parser does them by itself.
    socket.on('data', collect)
    if (held.bytes > HELD_BYTES_MAX) socket.pause()
    this.#turns.whenFree(socket, () => this.#proceed(socket, held))
  }

  #proceed(socket: Socket, held: Held): void {
    const bytes = held.chunks.length === 1 ? held.chunks[0] : Buffer.concat(held.chunks)
    if (!bytes || socket.destroyed) return
    held.chunks = [bytes]
    const verb = VERBS.find((one) => looksLike(bytes, one.verb))?.verb
    if (verb !== undefined && bytes.length < verb.length) return // the rest is still to come
    this.#held.delete(socket)
    socket.off('data', held.collect)
    // Node answers some requests itself, for instance one without Host. They have no turn, and would lose their answer.
    const owesAnswer: unknown = Reflect.get(socket, '_httpMessage')
    if (verb === undefined || owesAnswer) {
      socket.resume()
      this.#turns.refuse(held.error, socket)
      return
    }
    this.#renew(socket)
    this.#next.set(socket, verb)
    socket.emit('data', Buffer.from(STAND_IN))
    if (bytes.length > verb.length) socket.emit('data', bytes.subarray(verb.length))
  }

  /** The same connection with a new parser. */
  #renew(socket: Socket): void {
    const listeners = this.#nodes.get(socket) ?? []
    for (const [index, event] of EVENTS.entries()) {
      const listener = listeners[index]
      if (!listener) continue
      socket.off(event, listener)
      if (event === 'close') listener.call(socket)
    }
    // It was set for the silence behind the last answer, by a state that is gone.
    socket.setTimeout(0)
    this.#listener.call(this.#server, socket)
    this.#remember(socket, true)
    socket.resume()
  }
}

/**
 * What a connection has sent from the verb on where it may be one of ours; undefined for any other fault. `earlier`: the end
 * of what came in the packets before.
 */
function unknownVerb(error: Error, earlier: string): Buffer | undefined {
  if (errnoOf(error) !== 'HPE_INVALID_METHOD' || !('rawPacket' in error) || !('bytesParsed' in error)) return undefined
  const { rawPacket, bytesParsed } = error
  if (!Buffer.isBuffer(rawPacket) || typeof bytesParsed !== 'number') return undefined
  const read = earlier + rawPacket.toString('latin1', Math.max(0, bytesParsed - READ_MAX), bytesParsed)
  for (const [index, { verb, known }] of VERBS.entries()) {
    const letters = verb.slice(0, known)
    if (!read.endsWith(letters) || LONGER[index]?.some((prefix) => read.endsWith(prefix))) continue
    const isWhole = bytesParsed >= known
    const bytes = isWhole
      ? rawPacket.subarray(bytesParsed - known)
      : Buffer.concat([Buffer.from(letters), rawPacket.subarray(bytesParsed)])
    if (bytes.length > known && looksLike(bytes, verb)) return bytes
  }
  return undefined
}

/** True when the first bytes are the verb's letters, as many as there are of both. */
function looksLike(bytes: Buffer, verb: string): boolean {
  const letters = Math.min(bytes.length, verb.length)
  return bytes.toString('latin1', 0, letters) === verb.slice(0, letters)
}
