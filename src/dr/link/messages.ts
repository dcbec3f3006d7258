/**
 * Messages of the link, as MessagePack. Everything that arrives is parsed here, once, and every part has an upper limit: a peer with
 * a valid certificate may be hostile.
 */
import { constants, zstdCompressSync, zstdDecompressSync } from 'node:zlib'
import * as v from 'valibot'
import { packr } from '../../cluster/nats/message-pack.ts'
import { BATCH_BYTES_MAX, LOCAL_PREFIX, PATH_BYTES_MAX } from '../../storage/sqlite/batch.ts'

/** Version of these messages; ends of different versions refuse each other. */
export const PROTOCOL = 3

/** One message to a secondary. Larger values are split into chunks, which bounds the bytes in flight. */
export const MESSAGE_BYTES_MAX = 3 << 20
/** One message to a primary. */
export const REQUEST_BYTES_MAX = 1 << 20
export const CHUNK_BYTES = 1 << 20
/** Per message. */
export const ROWS_MAX = 4096
export const PATHS_MAX = 1024
export const LEAVES_MAX = 4096
const COMPRESSED_BYTES_MIN = 1024
/** The fastest level already gets most of the saving. */
const ZSTD = { [constants.ZSTD_c_compressionLevel]: 1 }
/** Limits memory, independent of what the message declares. */
const OPENING = { maxOutputLength: MESSAGE_BYTES_MAX, params: { [constants.ZSTD_d_windowLogMax]: 22 } }
/** RFC 8878. Unambiguous: MessagePack would start with a number, and messages are maps. */
const ZSTD_MAGIC = Buffer.from([0x28, 0xb5, 0x2f, 0xfd])
const ADDRESSES_MAX = 64
const FORKS_MAX = 4096

const whole = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(Number.MAX_SAFE_INTEGER))
/** Far above any number of promotions, and far below the largest safe integer, so the store can still increment it. */
const epoch = v.pipe(whole, v.maxValue(2 ** 48))
const text = v.pipe(v.string(), v.maxLength(4096))
const octets = v.custom<Uint8Array>((value) => value instanceof Uint8Array)
const checksum = v.pipe(
  octets,
  v.check(({ length }) => length === 32),
)
/** HMAC-SHA-256, see `proofs.ts`; a sealed secondary has none. */
const proof = v.pipe(
  octets,
  v.check(({ length }) => length === 32),
)
const nonce = v.pipe(
  octets,
  v.check(({ length }) => length === 16),
)
const hash = v.pipe(
  octets,
  v.check(({ length }) => length === 20),
)
const path = v.pipe(
  v.string(),
  v.minLength(1),
  v.maxLength(PATH_BYTES_MAX),
  // Local entries are not replicated: they include the keys of the link.
  v.check((name) => !name.startsWith(LOCAL_PREFIX)),
)
const position = v.object({ sequence: whole, epoch, checksum })
const addresses = v.pipe(v.array(text), v.maxLength(ADDRESSES_MAX))

/** First call of a secondary, also for a preflight check. */
const JOIN = v.object({
  protocol: whole,
  version: text,
  /** Preflight: nothing changes on the primary. */
  isTrial: v.boolean(),
  nonce: text,
  position,
  epoch,
  api: text,
  cluster: text,
  atMs: whole,
  proof: v.optional(proof),
})

const JOINED = v.object({
  protocol: whole,
  version: text,
  setId: text,
  /** Of the primary's store; a copy adopts it. */
  clusterId: text,
  position,
  epoch,
  /** Where each epoch of this history began, oldest first. */
  forks: v.pipe(v.array(position), v.maxLength(FORKS_MAX)),
  addresses,
  api: text,
  /** Size of the primary's database. */
  bytes: whole,
  atMs: whole,
})

/** From a secondary, in the `Follow` stream. The first one is `from`. */
const FOLLOWING = v.variant('kind', [
  v.object({
    kind: v.literal('from'),
    position,
    epoch,
    windowBytes: whole,
    api: text,
    cluster: text,
    proof: v.optional(proof),
  }),
  v.object({ kind: v.literal('ack'), position, isWhole: v.boolean(), proof: v.optional(proof) }),
  /** Reply to a heartbeat. */
  v.object({
    kind: v.literal('echo'),
    beat: whole,
    atMs: whole,
    position,
    isWhole: v.boolean(),
    proof: v.optional(proof),
  }),
])

const row = v.strictTuple([whole, epoch, whole, checksum, octets])

/** Chunk of a batch or value that exceeds the message limit; the last chunk comes with its row or entry. */
const PART = v.object({ kind: v.literal('part'), bytes: octets })

/** From the primary, in the `Follow` stream. Chunks belong to the batch of the first row of the next `rows`. */
const FOLLOWED = v.variant('kind', [
  PART,
  v.object({ kind: v.literal('rows'), rows: v.pipe(v.array(row), v.minLength(1), v.maxLength(ROWS_MAX)) }),
  v.object({
    kind: v.literal('beat'),
    beat: whole,
    position,
    epoch,
    atMs: whole,
    addresses,
    api: text,
    /** As measured by the primary at the previous heartbeat: clock of the secondary minus its own. */
    skewMs: v.pipe(v.number(), v.finite()),
    durationMs: v.pipe(v.number(), v.finite()),
    sync: v.picklist(['off', 'on', 'degraded']),
    isSealed: v.boolean(),
  }),
  /** The log does not contain the requested position: compare trees. */
  v.object({ kind: v.literal('diverged'), position, why: text }),
])

const PAGES = v.object({ position, pages: v.pipe(v.array(hash), v.length(256)) })
/** Whether the response may be compressed: older secondaries cannot decompress it. */
const mayCompress = v.optional(v.boolean(), false)
const SUBPAGES_OF = v.object({ mayCompress, pages: v.pipe(v.array(v.pipe(whole, v.maxValue(255))), v.maxLength(256)) })
const SUBPAGES = v.object({
  pages: v.pipe(v.array(v.strictTuple([whole, v.pipe(v.array(hash), v.length(256))])), v.maxLength(256)),
})
const LEAVES_OF = v.object({
  mayCompress,
  subpages: v.pipe(v.array(v.pipe(whole, v.maxValue(65_535))), v.maxLength(65_536)),
  /** Continues behind this path. */
  after: v.pipe(v.string(), v.maxLength(PATH_BYTES_MAX)),
})
const LEAVES = v.object({
  leaves: v.pipe(v.array(v.strictTuple([path, hash])), v.maxLength(LEAVES_MAX)),
  after: v.optional(path),
  /** CommitPosition of the primary when these were read. */
  sequence: whole,
})
const VALUES_OF = v.object({ paths: v.pipe(v.array(path), v.maxLength(PATHS_MAX)) })
/** Chunks belong to the first of the next `entries`. */
const VALUES = v.variant('kind', [
  PART,
  v.object({
    kind: v.literal('entries'),
    entries: v.pipe(v.array(v.strictTuple([path, whole, octets])), v.maxLength(PATHS_MAX)),
    /** Entries that the primary cannot read. */
    damaged: v.pipe(v.array(path), v.maxLength(PATHS_MAX)),
    /** CommitPosition of the primary when they were read. */
    sequence: whole,
  }),
])
/** `nonce`: for the proof of the reply. */
const FENCE = v.object({ epoch, fork: position, addresses, api: text, nonce, proof: v.optional(proof) })
/** `rival`: another secondary was promoted, and its notice came first: that one is the primary. */
const FENCED = v.object({
  epoch,
  rival: v.optional(v.object({ epoch, addresses, api: text })),
  proof: v.optional(proof),
})
/** `nonce`: for proofs on this connection; a primary of an older version has none. */
const POSITION = v.object({ position, epoch, setId: text, nonce: v.optional(nonce) })
const NOTHING = v.object({})

export const METHODS = {
  Join: { request: JOIN, response: JOINED },
  Follow: { request: FOLLOWING, response: FOLLOWED },
  Pages: { request: NOTHING, response: PAGES },
  Subpages: { request: SUBPAGES_OF, response: SUBPAGES },
  Leaves: { request: LEAVES_OF, response: LEAVES },
  Values: { request: VALUES_OF, response: VALUES },
  Fence: { request: FENCE, response: FENCED },
  Ping: { request: NOTHING, response: POSITION },
} as const

export type LinkMethod = keyof typeof METHODS
export type UnaryMethod = 'Join' | 'Pages' | 'Subpages' | 'Leaves' | 'Fence' | 'Ping'
export type RequestOf<M extends LinkMethod> = v.InferOutput<(typeof METHODS)[M]['request']>
export type ResponseOf<M extends LinkMethod> = v.InferOutput<(typeof METHODS)[M]['response']>

export function pack(message: unknown): Buffer {
  return packr.pack(message)
}

/** Compresses large messages; for data that is not ciphertext (docs/decisions/070). */
export function packSmall(message: unknown): Buffer {
  const bytes = packr.pack(message)
  return bytes.length < COMPRESSED_BYTES_MIN ? bytes : zstdCompressSync(bytes, { params: ZSTD })
}

/** Throws for a malformed message. */
export function unpack<S extends v.GenericSchema>(schema: S, bytes: Buffer): v.InferOutput<S> {
  return v.parse(schema, packr.unpack(bytes))
}

/** `unpack` for messages that may be compressed. Also throws if the decompressed message exceeds the limit. */
export function unpackSmall<S extends v.GenericSchema>(schema: S, bytes: Buffer): v.InferOutput<S> {
  const isCompressed = bytes.subarray(0, ZSTD_MAGIC.length).equals(ZSTD_MAGIC)
  return unpack(schema, isCompressed ? zstdDecompressSync(bytes, OPENING) : bytes)
}

/** All chunks but the last, and the last as `rest`. */
export function splitIntoChunks(bytes: Uint8Array): {
  readonly chunks: readonly Uint8Array[]
  readonly rest: Uint8Array
} {
  const chunks: Uint8Array[] = []
  let at = 0
  for (; bytes.length - at > CHUNK_BYTES; at += CHUNK_BYTES) chunks.push(bytes.subarray(at, at + CHUNK_BYTES))
  return { chunks, rest: bytes.subarray(at) }
}

/** The inverse of `splitIntoChunks`. */
export class ChunkAssembler {
  #chunks: Uint8Array[] = []
  #bytes = 0

  /** Throws above the size limit of a batch. */
  add(chunk: Uint8Array): void {
    this.#bytes += chunk.length
    if (chunk.length === 0 || this.#bytes > BATCH_BYTES_MAX) throw new Error('chunked message exceeds the batch limit')
    this.#chunks.push(chunk)
  }

  /** Returns the assembled bytes and resets. */
  take(rest: Uint8Array): Uint8Array {
    if (this.#chunks.length === 0) return rest
    const bytes = Buffer.concat([...this.#chunks, rest])
    this.#chunks = []
    this.#bytes = 0
    return bytes
  }
}
