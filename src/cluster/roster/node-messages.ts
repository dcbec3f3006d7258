/**
 * Messages between nodes and servers about the roster. A node sends a small *heartbeat* every few seconds (kind `beat`), and its
 * complete *state* after a change or on request. A state is never a difference, so a lost message is repaired by the next one.
 *
 * Each message of a node is signed with the node's Ed25519 key over subject and bytes, so a process cannot send for another
 * node even if NATS permits it. A server stores the first key of a node ID; so a node authenticates in the same way before and
 * after a restart of either side.
 *
 *     1 byte format · 32 bytes public key · 64 bytes signature · MessagePack
 *
 * Two processes may have the same node ID: a state directory was copied, or an ID was assigned twice. A server accepts one of
 * them, with the key that it stored first and the latest run. It sends the `NodeOwner` to the other one, which then serves no
 * calls, so that only one process answers.
 */
import { createHash, createPublicKey, type KeyObject, sign, verify } from 'node:crypto'
import * as v from 'valibot'
import { isNodeId } from '../../platform/schema.ts'
import { packr, unpack, unpackAs } from '../nats/message-pack.ts'
import { WIRE_VERSION } from '../rpc/call-wire.ts'

const FORMAT = 2
const KEY_BYTES = 32
const SIGNATURE_BYTES = 64
const HEAD_BYTES = 1 + KEY_BYTES + SIGNATURE_BYTES
/** DER prefix of a raw Ed25519 public key (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b6570032100', 'hex')

/** Largest state message: the largest sensible max_payload of a NATS server. */
export const STATE_BYTES_MAX = 8 << 20
/** Largest message of another kind. */
export const HEARTBEAT_BYTES_MAX = 8192
/** Allocations in a state. A host with more omits the oldest ended ones. */
export const ALLOCATIONS_MAX = 10_000
/** Tasks of an allocation, which are parsed without yielding. */
export const TASKS_MAX = 1000

const name = v.pipe(v.string(), v.maxLength(1024))
const text = v.pipe(v.string(), v.maxLength(65_536))
const number = v.pipe(v.number(), v.finite())
const count = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
/** In nanoseconds it fits into the 64-bit integers of clients. */
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
  /** Optional: earlier versions do not send it. */
  exitCode: v.optional(count),
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
  /** Number of this run of the node's process; it orders the node's messages together with `sequence`. */
  run: number,
  sequence: count,
  /** Wall clock of the node. Older versions do not send it. */
  sentAtMs: v.optional(timeMs),
  /** Of the latest state. A server with another digest requests the state. */
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
  /** The node stops. */
  v.object({ kind: v.literal('leave'), ...common }),
])

export type TaskDescription = v.InferOutput<typeof taskSchema>
export type AllocationDescription = v.InferOutput<typeof allocationSchema>
export type NodeDescription = v.InferOutput<typeof nodeSchema>
export type NodeMessage = v.InferOutput<typeof messageSchema>

/** The complete state of a node. */
export interface NodeState {
  readonly node: NodeDescription
  readonly allocations: readonly AllocationDescription[]
}

/** Identifies a state. */
export function digestOf(state: NodeState): string {
  return createHash('sha256').update(packr.pack(state)).digest('base64url').slice(0, 22)
}

/** Signs a message for this subject. `publicKey` is the raw key of 32 bytes. */
export function signNodeMessage(
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

/** A message whose signature was verified. */
export interface SignedMessage {
  readonly message: NodeMessage
  /** Raw key of the signer. */
  readonly publicKey: Buffer
}

/** The reason why a message is rejected. `allocations`: too many of them. */
export type MessageRejection = 'malformed' | 'newer' | 'forged' | 'allocations'

/** Verifies and parses a message in slices: the state of a large host has ten thousand allocations. */
export function* verifyInSlices(
  payload: Uint8Array,
  subject: string,
): Generator<undefined, SignedMessage | MessageRejection> {
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

/** Verifies and parses a message without yielding. */
export function verifyNodeMessage(payload: Uint8Array, subject: string): SignedMessage | MessageRejection {
  return runSlices(verifyInSlices(payload, subject))
}

/** Runs sliced work to its end without yielding; returns its result. */
export function runSlices<T>(slices: Iterator<undefined, T>): T {
  for (;;) {
    const { done, value } = slices.next()
    if (done) return value
  }
}

/** Creating a key object costs more than a verification with it. */
const CACHED_KEYS_MAX = 20_000
const cachedKeys = new Map<string, KeyObject>()

function keyOf(publicKey: Buffer): KeyObject {
  const id = publicKey.toString('latin1')
  const cached = cachedKeys.get(id)
  if (cached) return cached
  const key = createPublicKey({ key: Buffer.concat([SPKI_PREFIX, publicKey]), format: 'der', type: 'spki' })
  if (cachedKeys.size >= CACHED_KEYS_MAX) cachedKeys.clear()
  cachedKeys.set(id, key)
  return key
}

interface MessageOrder {
  readonly run: number
  readonly sequence: number
}

/** False for a replayed message, and for one that was overtaken. */
export function isNewer(message: MessageOrder, known: MessageOrder): boolean {
  if (message.run !== known.run) return message.run > known.run
  return message.sequence > known.sequence
}

/** True for equal descriptions; their keys have the same order. */
export function isSameDescription<T extends NodeDescription | AllocationDescription>(a: T, b: T): boolean {
  return JSON.stringify(a) === JSON.stringify(b)
}

/** The process that a server accepts for a node ID. */
export interface NodeOwner {
  /** Raw key. */
  readonly publicKey: Uint8Array
  readonly run: number
  /** False after it has left or missed its heartbeats. */
  readonly isAlive: boolean
}

const ownerSchema = v.object({
  publicKey: v.instance(Uint8Array),
  run: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  isThere: v.boolean(),
})

export function encodeNodeOwner({ publicKey, run, isAlive }: NodeOwner): Uint8Array {
  return packr.pack({ publicKey, run, isThere: isAlive })
}

/** Undefined for a malformed message. */
export function decodeNodeOwner(payload: Uint8Array): NodeOwner | undefined {
  const decoded = unpackAs(ownerSchema, payload)
  return decoded && { publicKey: decoded.publicKey, run: decoded.run, isAlive: decoded.isThere }
}
