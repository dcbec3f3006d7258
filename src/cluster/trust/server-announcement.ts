/**
 * What a server says about itself to every process of the cluster: its keys, whether it has the secrets core, and the
 * cluster ID of that core. Signed with the server's NKEY over the subject and the bytes, so that no one can take a key that is not his.
 *
 *     1 byte format · 64 bytes signature · MessagePack
 */
import { packr } from '../nats/message-pack.ts'
import * as v from 'valibot'
import type { SigningKey } from '../nats/nkey.ts'

const FORMAT = 1
const SIGNATURE_BYTES = 64
const HEAD_BYTES = 1 + SIGNATURE_BYTES
const CURVE_KEY_BYTES = 32
const NAME_LENGTH_MAX = 255
const CONTEXT = 'outpost server announcement\0'

const announcementSchema = v.object({
  /** The server's NKEY, `U…`. */
  key: v.pipe(v.string(), v.regex(/^U[A-Z2-7]{55}$/)),
  /** Name of this run of the server on the bus. */
  serverId: v.pipe(v.string(), v.regex(/^[\w-]{1,128}$/)),
  /** True for a server with the secrets core. */
  hasCore: v.boolean(),
  /** Name of the server in the configuration. Older versions do not send it. */
  name: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(NAME_LENGTH_MAX), v.regex(/^\P{Cc}*$/u))),
  /** Of the initialised core. Absent before the initialisation, without a core, and from older versions. */
  clusterId: v.optional(v.pipe(v.string(), v.uuid())),
  /** Public X25519 key of this run, raw: what is meant for this server is encrypted to it. */
  curveKey: v.pipe(
    v.instance(Uint8Array),
    v.check((bytes) => bytes.length === CURVE_KEY_BYTES),
  ),
  /** The server's own clock, of no meaning to others: what they send names it, so that nothing old is taken. */
  clockMs: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  /** Rises with every announcement of the run. */
  sequence: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
})

export type Announcement = v.InferOutput<typeof announcementSchema>

export function signAnnouncement(
  announcement: Omit<Announcement, 'key'>,
  subject: string,
  own: SigningKey,
): Uint8Array {
  const body = packr.pack({ key: own.publicKey, ...announcement })
  return Buffer.concat([Buffer.of(FORMAT), own.sign(signedBytes(subject, body)), body])
}

/** The announcement, or why it is refused. */
export function openAnnouncement(
  payload: Uint8Array,
  subject: string,
  verify: (publicKey: string, bytes: Uint8Array, signature: Uint8Array) => boolean,
): Announcement | 'malformed' | 'wrong signature' {
  if (payload[0] !== FORMAT || payload.length <= HEAD_BYTES) return 'malformed'
  const body = payload.subarray(HEAD_BYTES)
  const parsed = v.safeParse(announcementSchema, unpack(body))
  if (!parsed.success) return 'malformed'
  const isOwn = verify(parsed.output.key, signedBytes(subject, body), payload.subarray(1, HEAD_BYTES))
  // A copy: the payload is the link's again.
  return isOwn ? { ...parsed.output, curveKey: Uint8Array.from(parsed.output.curveKey) } : 'wrong signature'
}

function signedBytes(subject: string, body: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${CONTEXT}${subject}\0`), body])
}

function unpack(bytes: Uint8Array): unknown {
  try {
    return packr.unpack(bytes)
  } catch {
    return undefined
  }
}
