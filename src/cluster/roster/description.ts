/**
 * What a node says about itself, as it travels: a *beat* every few seconds, which is small, and a *state*, which is
 * everything, when something has changed or a server asks. Never a difference: a message that is lost heals itself with
 * the next one.
 *
 * Every message is signed with the node's Ed25519 key over its subject and its bytes, so that nobody speaks for another
 * node, even where the bus would let them. A server keeps the key that it first saw for a node ID; how a node proves that
 * it is itself is the same before and after a restart of either side.
 *
 *     1 byte format · 32 bytes public key · 64 bytes signature · MessagePack
 */
import { createHash, createPublicKey, type KeyObject, sign, verify } from 'node:crypto'
import { packr } from '../nats/message-pack.ts'
import * as v from 'valibot'
import { isNodeId } from '../../platform/schema.ts'
import { WIRE_VERSION } from '../rpc/wire.ts'

const FORMAT = 2
const KEY_BYTES = 32
const SIGNATURE_BYTES = 64
const HEAD_BYTES = 1 + KEY_BYTES + SIGNATURE_BYTES
/** What precedes the raw key in the DER form of an Ed25519 public key (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')

/** Largest message with a state, in bytes: as much as a NATS server should ever be set to let through. */
export const STATE_BYTES_MAX = 8 << 20
/** Largest message of any other kind. */
export const BEAT_BYTES_MAX = 8192
/** Allocations that a node may announce. A host that has more leaves out those that ended first. */
export const ALLOCATIONS_MAX = 10_000
/** Tasks of an allocation, which are looked at without a pause. */
export const TASKS_MAX = 1000

const name = v.pipe(v.string(), v.maxLength(1024))
const text = v.pipe(v.string(), v.maxLength(65_536))
const number = v.pipe(v.number(), v.finite())
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** Whole nanoseconds of it fit into 64 bits, as callers read them. */
const TIME_MS_MAX = 9e12
const timeMs = v.pipe(
  number,
  v.transform((ms) => Math.min(Math.max(ms, 0), TIME_MS_MAX)),
)
const size = v.pipe(
  number,
  v.transform((bytes) => Math.min(Math.max(bytes, 0), Number.MAX_SAFE_INTEGER)),
)
const texts = v.record(name, text)
const uuid = v.pipe(v.string(), v.check(isNodeId))

const taskSchema = v.object({
  name,
  state: v.picklist(['pending', 'running', 'dead']),
  failed: v.boolean(),
  startedAtMs: v.optional(timeMs),
  finishedAtMs: v.optional(timeMs),
})

export const allocationSchema = v.object({
  id: uuid,
  name,
  namespace: name,
  jobId: name,
  taskGroup: name,
  desiredStatus: v.picklist(['run', 'stop', 'evict']),
  clientStatus: v.picklist(['pending', 'running', 'complete', 'failed', 'lost']),
  createTimeMs: timeMs,
  tasks: v.pipe(v.array(v.unknown()), v.maxLength(TASKS_MAX), v.array(taskSchema)),
})

export const nodeSchema = v.object({
  id: uuid,
  name,
  datacenter: name,
  nodeClass: name,
  nodePool: name,
  version: name,
  /** `host:port` of the node's own HTTP API. */
  httpAddress: name,
  tls: v.boolean(),
  attributes: texts,
  meta: texts,
  resources: v.object({ cpuMhz: size, cores: count, memoryBytes: size, diskBytes: size }),
})

const common = {
  version: count,
  /** When this run of the node's process began, by its clock; with `sequence` it orders the node's messages. */
  run: number,
  sequence: count,
  /** By the clock of the node; older versions send none. */
  sentAtMs: v.optional(timeMs),
  /** Of the newest state; a server that knows another one asks. */
  digest: name,
}

const messageSchema = v.variant('kind', [
  v.object({ kind: v.literal('beat'), ...common }),
  v.object({
    kind: v.literal('state'),
    ...common,
    node: nodeSchema,
    allocations: v.array(allocationSchema),
  }),
  /** It goes away on purpose. */
  v.object({ kind: v.literal('leave'), ...common }),
])

export type TaskDescription = v.InferOutput<typeof taskSchema>
export type AllocationDescription = v.InferOutput<typeof allocationSchema>
export type NodeDescription = v.InferOutput<typeof nodeSchema>
export type NodeMessage = v.InferOutput<typeof messageSchema>

/** Everything there is to say about a node. */
export interface NodeState {
  readonly node: NodeDescription
  readonly allocations: readonly AllocationDescription[]
}

/** Tells two states apart. */
export function digestOf(state: NodeState): string {
  return createHash('sha256').update(packr.pack(state)).digest('base64url').slice(0, 22)
}

/** Signs what a node says on `subject`. `publicKey` is the raw key of 32 bytes. */
export function signMessage(
  message: NodeMessage,
  subject: string,
  key: { readonly privateKey: KeyObject; readonly publicKey: Buffer },
): Buffer {
  const body = packr.pack(message)
  const signature = sign(null, signedBytes(subject, body), key.privateKey)
  return Buffer.concat([Buffer.of(FORMAT), key.publicKey, signature, body])
}

function signedBytes(subject: string, body: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(subject), Buffer.of(0), body])
}

export interface SignedMessage {
  readonly message: NodeMessage
  /** Raw, of whoever signed it. */
  readonly publicKey: Buffer
}

/** What was said and by which key, or why it is refused. */
export type Opened = SignedMessage | 'malformed' | 'newer' | 'forged' | 'allocations'

/** Opens a message in steps, between which other work may be done: the state of a large host has ten thousand allocations. */
export function* openSteps(payload: Uint8Array, subject: string): Generator<undefined, Opened> {
  const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length)
  if (bytes.length <= HEAD_BYTES) return 'malformed'
  if (bytes[0] !== FORMAT) return (bytes[0] ?? 0) > FORMAT ? 'newer' : 'malformed'
  const publicKey = Buffer.from(bytes.subarray(1, 1 + KEY_BYTES))
  const body = bytes.subarray(HEAD_BYTES)
  if (!verify(null, signedBytes(subject, body), keyOf(publicKey), bytes.subarray(1 + KEY_BYTES, HEAD_BYTES))) {
    return 'forged'
  }
  const unpacked = unpack(body)
  const version = v.safeParse(v.object({ version: count }), unpacked)
  if (version.success && version.output.version > WIRE_VERSION) return 'newer'
  yield
  const counted = v.safeParse(v.looseObject({ allocations: v.array(v.unknown()) }), unpacked)
  const { allocations } = counted.success ? counted.output : { allocations: [] }
  if (allocations.length > ALLOCATIONS_MAX) return 'allocations'
  const parsed = v.safeParse(messageSchema, counted.success ? { ...counted.output, allocations: [] } : unpacked)
  if (!parsed.success) return 'malformed'
  const message = parsed.output
  if (message.kind === 'state') {
    for (const allocation of allocations) {
      const one = v.safeParse(allocationSchema, allocation)
      if (!one.success) return 'malformed'
      message.allocations.push(one.output)
      yield
    }
  }
  return { message, publicKey }
}

/** The same at once. */
export function openMessage(payload: Uint8Array, subject: string): Opened {
  return atOnce(openSteps(payload, subject))
}

/** What steps give in the end, without anything between them. */
export function atOnce<T>(steps: Iterator<undefined, T>): T {
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

/** Making a key costs more than using it, so those of nodes that speak often are kept. */
const KEYS_MAX = 20_000
const keys = new Map<string, KeyObject>()

function keyOf(publicKey: Buffer): KeyObject {
  const id = publicKey.toString('latin1')
  const known = keys.get(id)
  if (known) return known
  const key = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, publicKey]), format: 'der', type: 'spki' })
  if (keys.size >= KEYS_MAX) keys.clear()
  keys.set(id, key)
  return key
}

function unpack(body: Uint8Array): unknown {
  try {
    return packr.unpack(body)
  } catch {
    return undefined
  }
}

interface MessageOrder {
  readonly run: number
  readonly sequence: number
}

/** A replayed or overtaken message is old news. */
export function isNewer(message: MessageOrder, known: MessageOrder): boolean {
  if (message.run !== known.run) return message.run > known.run
  return message.sequence > known.sequence
}

export function isSame<T extends NodeDescription | AllocationDescription>(a: T, b: T): boolean {
  return JSON.stringify(a) === JSON.stringify(b)
}
