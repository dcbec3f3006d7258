/**
 * The last bytes of a request head whose end has not arrived: they show which letters of a verb came in earlier packets.
 *
 * Node's parser reads a connection without JavaScript and keeps no letters of an incomplete verb. It has hooks for the beginning of a
 * message and for a packet read, and the packet is available in them. A packet is copied only if it ends
 * inside a head; every other one costs two short calls.
 *
 * Assumes of Node, undocumented: `parser` of a socket; the parser's hooks `kOnMessageBegin` and `kOnExecute`,
 * whose keys its class has, and which are cleared when the parser is released; `incoming`, the newest message with a complete head, or null;
 * `getCurrentBuffer`. If one of them is missing, earlier packets are unknown, and a LIST that is split is refused:
 * test/http/list-verb.test.ts then fails.
 */
import type { Socket } from 'node:net'

/** Longer than any verb that the parser knows. */
const TAIL_BYTES_MAX = 16

interface PartialHead {
  /** Empty unless the last packet ended inside a head. */
  tail: string
}

/** The used part of Node's parser: its properties, and its hooks by key. */
interface Parser {
  readonly incoming: unknown
  /** A copy of the packet that is being read. */
  getCurrentBuffer(): unknown
  [hook: number]: unknown
}

export class PartialHeads {
  readonly #heads = new WeakMap<Socket, PartialHead>()

  /** The last bytes of an incomplete head, at most 16, as Latin-1. */
  tailOf(socket: Socket): string {
    return this.#heads.get(socket)?.tail ?? ''
  }

  /** Call right after Node has attached a parser. `isRead`: reads go through JavaScript. */
  watch(socket: Socket, isRead: boolean): void {
    const head: PartialHead = { tail: '' }
    this.#heads.set(socket, head)
    const parser: unknown = Reflect.get(socket, 'parser')
    if (!isParser(parser)) return
    const { begin, execute: packetRead } = keys
    let isBegun = false
    let before: unknown
    const onBegin = () => {
      isBegun = true
      before = parser.incoming
    }
    const onPacket = (chunk?: unknown) => {
      // The parser may have been released with this packet.
      if (!isBegun || parser[begin] !== onBegin) return
      const newest = parser.incoming
      // Null once the previous message was answered, which may happen in the middle of this head.
      isBegun = newest === before || newest === null
      head.tail = isBegun ? tailOf(head.tail, chunk ?? parser.getCurrentBuffer()) : ''
      if (!isBegun) before = undefined
    }
    parser[begin] = onBegin
    if (isRead) return void socket.on('data', onPacket)
    const execute = parser[packetRead]
    if (typeof execute !== 'function') return
    parser[packetRead] = (result: unknown) => {
      execute.call(parser, result)
      onPacket()
    }
  }
}

function tailOf(earlier: string, bytes: unknown): string {
  if (!Buffer.isBuffer(bytes)) return ''
  return (earlier + bytes.toString('latin1', Math.max(0, bytes.length - TAIL_BYTES_MAX))).slice(-TAIL_BYTES_MAX)
}

/** Keys of the hooks: the same for all parsers. */
let keys = { begin: -1, execute: -1 }

function isParser(parser: unknown): parser is Parser {
  if (typeof parser !== 'object' || parser === null || !('getCurrentBuffer' in parser)) return false
  if (keys.begin < 0) {
    const begin: unknown = Reflect.get(parser.constructor, 'kOnMessageBegin')
    const execute: unknown = Reflect.get(parser.constructor, 'kOnExecute')
    if (typeof begin === 'number' && typeof execute === 'number') keys = { begin, execute }
  }
  return keys.begin >= 0
}
