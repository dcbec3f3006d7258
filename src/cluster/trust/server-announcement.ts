/**
 * Announcement of a server to all processes of the cluster: its keys, whether it has a secrets core, and the cluster ID of
 * that core. Signed with the server's NKEY over subject and bytes, so that a process cannot announce the key of another one.
 *
 *     1 byte format · 64 bytes signature · MessagePack
 */
import * as v from 'valibot'
import { packr, unpackAs } from '../nats/message-pack.ts'
import type { SigningKey } from '../nats/nkey.ts'

const FORMAT = 1
const SIGNATURE_BYTES = 64
const HEAD_BYTES = 1 + SIGNATURE_BYTES
const CURVE_KEY_BYTES = 32
const NAME_LENGTH_MAX = 255
const SHORT_LENGTH_MAX = 64
/** Domain separation: prefix of the signed bytes. */
const CONTEXT = 'outpost server announcement\0'

const announcementSchema = v.object({
  /** The server's NKEY, `U…`. */
  key: v.pipe(v.string(), v.regex(/^U[A-Z2-7]{55}$/)),
  /** ID of this run of the server on the bus. */
  serverId: v.pipe(v.string(), v.regex(/^[\w-]{1,128}$/)),
  /** True for a server with a secrets core. */
  hasCore: v.boolean(),
  /** Name in the configuration. Older versions do not send it. */
  name: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(NAME_LENGTH_MAX), v.regex(/^\P{Cc}*$/u))),
  /** Cluster ID of the initialized core. Absent before the initialization, without a core, and from older versions. */
  clusterId: v.optional(v.pipe(v.string(), v.uuid())),
  /** Of the program. Absent from older versions, as the two below. */
  version: v.optional(v.pipe(v.string(), v.maxLength(SHORT_LENGTH_MAX), v.regex(/^\P{Cc}*$/u))),
  /** Of its API, `host:port`. */
  address: v.optional(v.pipe(v.string(), v.maxLength(NAME_LENGTH_MAX), v.regex(/^\P{Cc}*$/u))),
  /** Of its secrets core, for operators: `active`, `standby`, `sealed` and the like. */
  coreState: v.optional(v.pipe(v.string(), v.maxLength(SHORT_LENGTH_MAX), v.regex(/^\P{Cc}*$/u))),
  /** Raw public X25519 key of this run, to which calls to this server are sealed. */
  curveKey: v.pipe(
    v.instance(Uint8Array),
    v.check((bytes) => bytes.length === CURVE_KEY_BYTES),
  ),
  /** The server's own monotonic clock. Callers return it, so the server detects old requests without comparing clocks. */
  clockMs: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  /** Wall clock of the server when it sent this. Older versions do not send it. */
  sentAtMs: v.optional(v.pipe(v.number(), v.safeInteger(), v.minValue(0))),
  /** Rises with each announcement of the run. */
  sequence: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
})

export type ServerAnnouncement = v.InferOutput<typeof announcementSchema>

export function signAnnouncement(
  announcement: Omit<ServerAnnouncement, 'key'>,
  subject: string,
  own: SigningKey,
): Uint8Array {
  const body = packr.pack({ key: own.publicKey, ...announcement })
  return Buffer.concat([Buffer.of(FORMAT), own.sign(signedBytes(subject, body)), body])
}

/** The announcement, or the reason why it is refused. */
export function openAnnouncement(
  payload: Uint8Array,
  subject: string,
  verify: (publicKey: string, bytes: Uint8Array, signature: Uint8Array) => boolean,
): ServerAnnouncement | 'malformed' | 'wrong signature' {
  if (payload[0] !== FORMAT || payload.length <= HEAD_BYTES) return 'malformed'
  const body = payload.subarray(HEAD_BYTES)
  const announcement = unpackAs(announcementSchema, body)
  if (!announcement) return 'malformed'
  if (!verify(announcement.key, signedBytes(subject, body), payload.subarray(1, HEAD_BYTES))) return 'wrong signature'
  // A copy, because the bus reuses the memory of the payload.
  return { ...announcement, curveKey: Uint8Array.from(announcement.curveKey) }
}

function signedBytes(subject: string, body: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${CONTEXT}${subject}\0`), body])
}
