/**
 * Messages of the commit stream, as MessagePack. Everything that is read from the stream is parsed here. A message larger than NATS
 * carries is stored as several parts, one message each; they count once the last one is stored, because only their sender publishes to
 * the stream meanwhile.
 */
import { randomUUID } from 'node:crypto'
import * as v from 'valibot'
import { isCount, isMap, packr, unpack, unpackAs } from '../../cluster/nats/message-pack.ts'
import type { CommitPosition } from '../../storage/sqlite/rows.ts'
import { metaSchema } from '../../storage/snapshot/format/snapshot-archive.ts'
import type { ReplicaOrder } from '../../storage/store/replica-writer.ts'

/** Version of these messages; a server refuses to read another one. */
const COMMIT_FORMAT = 1

const whole = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER))
const octets = v.custom<Uint8Array>((value) => value instanceof Uint8Array)
const name = v.pipe(v.string(), v.maxLength(256))
const position = v.object({
  sequence: whole,
  epoch: whole,
  checksum: v.pipe(
    octets,
    v.check(({ length }) => length === 32),
  ),
})

/** Entries of the primary of this cluster. */
const entries = v.array(v.object({ path: v.string(), sequence: whole, value: octets }))
const row = v.object({ sequence: whole, epoch: whole, atMs: whole, checksum: octets, batch: octets })

/** Orders of replication (`storage/store/replica-writer.ts`). */
const ORDER = v.variant('do', [
  v.object({
    do: v.literal('set role'),
    role: v.picklist(['own', 'replica', 'fenced']),
    epoch: v.optional(whole),
  }),
  v.object({ do: v.literal('apply'), rows: v.array(row) }),
  v.object({ do: v.literal('begin copy'), from: position, clusterId: v.optional(name) }),
  v.object({ do: v.literal('copy'), puts: entries, deletes: v.array(v.string()) }),
  v.object({ do: v.literal('repair'), asOf: whole, puts: entries, deletes: v.array(v.string()) }),
  v.object({ do: v.literal('finish copy') }),
  v.object({ do: v.literal('wipe') }),
  v.object({ do: v.literal('stage'), at: whole, bytes: octets }),
  v.object({
    do: v.literal('restore'),
    received: v.object({ meta: metaSchema, sha256: name, requires: v.array(v.string()) }),
  }),
])

const MESSAGE = v.variant('kind', [
  /**
   * First message: where the history of the stream begins. The server that writes it has this position. `role`: digest of its role and its
   * state of replication.
   */
  v.object({ kind: v.literal('base'), clusterId: name, position, role: name }),
  /** A server became active. No message of an earlier term follows. */
  v.object({ kind: v.literal('term'), term: whole, server: name, position }),
  /**
   * A group of batches. `position`: a position of the active server before the group, by which a member detects a different history.
   */
  v.object({
    kind: v.literal('group'),
    term: whole,
    epoch: whole,
    firstSequence: whole,
    atMs: whole,
    lengths: v.array(whole),
    bytes: octets,
    position,
  }),
  /** An order of replication, which the active server has verified. `position`: that of the active server before the order. */
  v.object({ kind: v.literal('order'), term: whole, position, order: ORDER }),
])

export type CommitMessage = v.InferOutput<typeof MESSAGE>
export type OrderMessage = Extract<CommitMessage, { kind: 'order' }>

const PART = v.object({
  format: v.literal(COMMIT_FORMAT),
  /** Random for each message: an active server recognizes its own message by it. */
  id: v.pipe(v.string(), v.maxLength(64)),
  part: whole,
  parts: whole,
  bytes: octets,
})

/** One message of NATS. */
export interface StreamPart {
  readonly id: string
  readonly payload: Uint8Array
}

/** Overhead of a part. */
const PART_BYTES = 256

/** The parts of a message, at least one, each with at most `bytesMax` bytes. */
export function encodeMessage(message: CommitMessage, bytesMax: number): StreamPart[] {
  const bytes = packr.pack(message)
  const size = bytesMax - PART_BYTES
  const parts = Math.max(1, Math.ceil(bytes.length / size))
  const id = randomUUID()
  return Array.from({ length: parts }, (_, part) => {
    const chunk = bytes.subarray(part * size, (part + 1) * size)
    return { id: `${id}.${part}`, payload: packr.pack({ format: COMMIT_FORMAT, id, part, parts, bytes: chunk }) }
  })
}

/** The ID of a part; undefined for a payload that is not one. */
export function partId(payload: Uint8Array): string | undefined {
  const part = unpackAs(PART, payload)
  return part && `${part.id}.${part.part}`
}

/** Puts the parts together. Parts of an unfinished message are dropped when another message begins. */
export class MessageAssembler {
  #id = ''
  #chunks: Uint8Array[] = []

  /**
   * The message that this part completes. Every member ignores a payload that is not a part, which no server publishes. Throws an Error for a
   * part of another version.
   */
  add(payload: Uint8Array): CommitMessage | undefined {
    const read = unpackAs(PART, payload)
    if (!read && isOfVersion(payload)) throw new Error('the commit stream has a message of another version')
    if (!read) return undefined
    const { id, part, parts, bytes } = read
    if (part === 0) {
      this.#id = id
      this.#chunks = []
    }
    // The rest of a message whose first part is not here.
    if (id !== this.#id || part !== this.#chunks.length) return undefined
    this.#chunks.push(bytes)
    if (this.#chunks.length < parts) return undefined
    const message = unpackAs(MESSAGE, parts === 1 ? bytes : Buffer.concat(this.#chunks))
    this.#chunks = []
    this.#id = ''
    if (!message) throw new Error('the commit stream has a malformed message')
    return message
  }

  /** True between the parts of one message. */
  get isWaiting(): boolean {
    return this.#chunks.length > 0
  }
}

/** The order as a message has it. */
export function orderOf(order: ReplicaOrder): OrderMessage['order'] {
  if (order.do === 'apply') return { do: 'apply', rows: [...order.rows] }
  if (order.do === 'copy' || order.do === 'repair') {
    return { ...order, puts: [...order.puts], deletes: [...order.deletes] }
  }
  if (order.do === 'restore') {
    return { do: 'restore', received: { ...order.received, requires: [...order.received.requires] } }
  }
  return order
}

/** Whether a payload names a version of the messages. */
function isOfVersion(payload: Uint8Array): boolean {
  const value = unpack(payload)
  return isMap(value) && isCount(value['format'])
}

export function samePosition(one: CommitPosition, other: CommitPosition): boolean {
  return one.sequence === other.sequence && Buffer.compare(one.checksum, other.checksum) === 0
}
