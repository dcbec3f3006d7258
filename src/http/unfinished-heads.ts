/**
 * The last bytes of a head that has not come whole: they tell which letters of a verb came in earlier packets.
 *
 * Node's parser reads a connection without JavaScript, and keeps no letter of a verb that is cut. It calls when a message
 * begins and when it has read a packet, and in these calls it still has the packet. So a packet is copied only where it ends
 * inside a head; every other one costs two short calls.
 *
 * Assumes of Node, which documents none of it: `parser` of a socket; the parser's hooks `kOnMessageBegin` and `kOnExecute`,
 * whose keys its class has, and which are cleared when the parser is let go; `incoming`, the newest message whose head is whole, or null;
 * `getCurrentBuffer`. Where one of them is missing, nothing is known of earlier packets, and a LIST that is cut is refused:
 * test/http/list-verb.test.ts fails then.
 */
import type { Socket } from 'node:net'

/** Longer than any verb that the parser knows. */
const TAIL_BYTES_MAX = 16

/** What is kept of a connection. */
interface Head {
  /** Empty unless the newest packet has ended inside a head. */
  tail: string
}

/** What is used of Node's parser: its properties, and its hooks by their keys. */
interface Parser {
  readonly incoming: unknown
  /** A copy of the packet that is being read. */
  getCurrentBuffer(): unknown
  [hook: number]: unknown
}

export class UnfinishedHeads {
  readonly #heads = new WeakMap<Socket, Head>()

  /** The last bytes of the head that earlier packets have begun, at most 16, as Latin-1. */
  tailOf(socket: Socket): string {
    return this.#heads.get(socket)?.tail ?? ''
  }

  /** Right after Node has given the connection a parser. `isRead`: its reads go through JavaScript. */
  watch(socket: Socket, isRead: boolean): void {
    const head: Head = { tail: '' }
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
      // The packet may have been the last one for this parser.
      if (!isBegun || parser[begin] !== onBegin) return
      const newest = parser.incoming
      // Null once the message before has been answered, which may be in the middle of this head.
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

/** The end of `earlier` and these bytes. */
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
