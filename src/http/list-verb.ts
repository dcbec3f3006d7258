/**
 * The LIST and SCAN verbs, which Node's parser refuses.
 *
 * Ordinary requests never come here. At a request with one of these verbs the parser stops at the first unknown letter,
 * and `clientError` has its packet and offset. From there on the bytes of the connection are held here
 * until all its pending responses were sent. Then the connection is handed to Node again, as if it were new: its
 * parser is released, and a new one receives a verb that it knows (`LINK`) and everything after the unknown
 * verb. The request that it emits gets its real verb back.
 *
 * So limits, timeouts, pipelining, upgrades and the end of a connection are handled by Node and the listener as for any other
 * request. Only connections that use these verbs pay for this: a new parser for each such request, and reads
 * through JavaScript from the first one on.
 *
 * Assumes of Node, beside documented events: the first listener for a connection is the one that parses HTTP on it; it
 * adds its listeners for `data`, `end`, `close`, `drain` and `timeout` to the socket synchronously; the one for `close` releases
 * the parser; while a response is written, it is `_httpMessage`. test/http/list-verb.test.ts fails if this changes.
 *
 * `PartialHeads` knows the letters of the verb that came in earlier packets. A verb that ends in LIST or SCAN
 * (`UNLIST`, which begins like UNLINK) is refused. LIST itself is also refused if a body that ends in such letters directly precedes it in
 * one packet: the parser's error does not say where that body ends.
 */
import type { IncomingMessage, Server } from 'node:http'
import type { Socket } from 'node:net'
import { errnoOf } from '../platform/errors.ts'
import type { PipelineQueue } from './pipeline-queue.ts'
import { PartialHeads } from './partial-heads.ts'

// Not with `import`: see listener.ts.
const { METHODS } = process.getBuiltinModule('node:http')
/** Same length as the verbs that it replaces. */
const STAND_IN = 'LINK'
/** `known`: number of letters that the parser accepts as the start of another verb. */
const VERBS = [
  { verb: 'LIST', known: 2 },
  { verb: 'SCAN', known: 1 },
] as const
/** For each verb: prefixes of other verbs that end in its known letters. */
const LONGER = VERBS.map(({ verb, known }) => {
  const prefixes = METHODS.flatMap((method) => Array.from(method, (_, at) => method.slice(0, at + 1)))
  return prefixes.filter((prefix) => prefix.length > known && prefix.endsWith(verb.slice(0, known)))
})
/** Longer than any verb. */
const VERB_BYTES_MAX = 16
/** Per connection, some hundred requests; then reading pauses. */
const HELD_BYTES_MAX = 64 * 1024
/** Overhead of a packet, so that packets of a single byte count too. */
const CHUNK_BYTES = 1024

const EVENTS = ['end', 'close', 'drain', 'timeout'] as const
type Listener = (...args: unknown[]) => void
/** Node's listeners of a connection, in the order of `EVENTS`. */
type NodeListeners = readonly Listener[]

/** Bytes of a connection from an unknown verb on. */
interface HeldBytes {
  chunks: Buffer[]
  bytes: number
  /** The parser's error, reported if it is another verb. */
  readonly error: Error
  readonly collect: (chunk: Buffer) => void
}

export class ListVerb {
  readonly #server: Server
  readonly #pipeline: PipelineQueue
  readonly #listener: Listener
  readonly #nodeListeners = new WeakMap<Socket, NodeListeners>()
  readonly #held = new WeakMap<Socket, HeldBytes>()
  readonly #heads = new PartialHeads()
  /** Connections whose next request has this verb. */
  readonly #nextVerb = new WeakMap<Socket, string>()

  /** Must be created before other listeners for connections; `event` is the one on which Node parses HTTP. */
  constructor(server: Server, event: 'connection' | 'secureConnection', pipeline: PipelineQueue) {
    this.#server = server
    this.#pipeline = pipeline
    const [listener] = server.listeners(event) as Listener[]
    if (!listener) throw new Error(`Node no longer listens for ${event}`)
    this.#listener = listener
    server.on(event, (socket: Socket) => this.#track(socket, false))
  }

  /** Restores the verb of a request from the parser. */
  name(request: IncomingMessage): void {
    if (request.method !== STAND_IN) return
    const verb = this.#nextVerb.get(request.socket)
    if (verb === undefined) return
    this.#nextVerb.delete(request.socket)
    request.method = verb
  }

  /** Whether the refused message has, or may have, one of the verbs and will be parsed again. */
  recovers(error: Error, socket: Socket): boolean {
    // The released parser still measures the timeout of a request that is now queued.
    if (this.#held.has(socket)) return errnoOf(error) === 'ERR_HTTP_REQUEST_TIMEOUT' && this.#pipeline.isBusy(socket)
    const begin = unknownVerb(error, this.#heads.tailOf(socket))
    if (!begin || !this.#nodeListeners.has(socket) || socket.destroyed) return false
    this.#hold(socket, begin, error)
    return true
  }

  #track(socket: Socket, isRead: boolean): void {
    this.#heads.watch(socket, isRead)
    this.#nodeListeners.set(
      socket,
      EVENTS.map((event) => socket.listeners(event).at(-1) as Listener),
    )
  }

  #hold(socket: Socket, begin: Buffer, error: Error): void {
    const collect = (chunk: Buffer) => {
      held.chunks.push(chunk)
      held.bytes += chunk.length + CHUNK_BYTES
      if (!this.#pipeline.isBusy(socket)) this.#resume(socket, held)
      else if (held.bytes > HELD_BYTES_MAX) socket.pause()
    }
    const held: HeldBytes = { chunks: [begin], bytes: begin.length, error, collect }
    this.#held.set(socket, held)
    socket.removeAllListeners('data')
    // A `data` listener makes Node read in JavaScript instead of in its parser.
    socket.on('data', collect)
    if (held.bytes > HELD_BYTES_MAX) socket.pause()
    this.#pipeline.onceIdle(socket, () => this.#resume(socket, held))
  }

  #resume(socket: Socket, held: HeldBytes): void {
    const bytes = held.chunks.length === 1 ? held.chunks[0] : Buffer.concat(held.chunks)
    if (!bytes || socket.destroyed) return
    held.chunks = [bytes]
    const verb = VERBS.find((one) => looksLike(bytes, one.verb))?.verb
    if (verb !== undefined && bytes.length < verb.length) return // the rest is still to come
    this.#held.delete(socket)
    socket.off('data', held.collect)
    // Node answers some requests itself, for example one without Host: they are not in the pipeline and would lose their response.
    const owesAnswer: unknown = Reflect.get(socket, '_httpMessage')
    if (verb === undefined || owesAnswer) {
      socket.resume()
      this.#pipeline.refuse(held.error, socket)
      return
    }
    this.#replaceParser(socket)
    this.#nextVerb.set(socket, verb)
    socket.emit('data', Buffer.from(STAND_IN))
    if (bytes.length > verb.length) socket.emit('data', bytes.subarray(verb.length))
  }

  #replaceParser(socket: Socket): void {
    const listeners = this.#nodeListeners.get(socket) ?? []
    for (const [index, event] of EVENTS.entries()) {
      const listener = listeners[index]
      if (!listener) continue
      socket.off(event, listener)
      if (event === 'close') listener.call(socket)
    }
    // The keep-alive timeout of the released parser.
    socket.setTimeout(0)
    this.#listener.call(this.#server, socket)
    this.#track(socket, true)
    socket.resume()
  }
}

/**
 * The bytes from the verb on if it may be LIST or SCAN; undefined for any other error. `earlier`: the end
 * of what came in the packets before.
 */
function unknownVerb(error: Error, earlier: string): Buffer | undefined {
  if (errnoOf(error) !== 'HPE_INVALID_METHOD' || !('rawPacket' in error) || !('bytesParsed' in error)) return undefined
  const { rawPacket, bytesParsed } = error
  if (!Buffer.isBuffer(rawPacket) || typeof bytesParsed !== 'number') return undefined
  const read = earlier + rawPacket.toString('latin1', Math.max(0, bytesParsed - VERB_BYTES_MAX), bytesParsed)
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

/** Whether the bytes are a prefix of the verb, or start with it. */
function looksLike(bytes: Buffer, verb: string): boolean {
  const letters = Math.min(bytes.length, verb.length)
  return bytes.toString('latin1', 0, letters) === verb.slice(0, letters)
}
