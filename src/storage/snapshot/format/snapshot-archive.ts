/**
 * The container of a snapshot: a tar archive in gzip with these members in this order. Stock clients expect them and discard a download
 * whose last member is missing or empty.
 *
 *     meta.json           format, cluster, position and time
 *     state.bin           the entries, see `snapshot-records.ts`
 *     SHA256SUMS          of both, in the format of `sha256sum -c`
 *     SHA256SUMS.sealed   the SHA-256 of SHA256SUMS
 *
 * The entries are ciphertext, which does not compress, so the gzip stream only stores them.
 */
import * as v from 'valibot'
import { Refusal } from '../../../platform/errors.ts'
import { SIZE_AT, SIZE_BYTES, SUM_AT, SUM_BYTES, tarSumOf } from '../../../platform/tar.ts'

export const MEMBERS = ['meta.json', 'state.bin', 'SHA256SUMS', 'SHA256SUMS.sealed'] as const
export type ArchiveMember = (typeof MEMBERS)[number]

export const SNAPSHOT_FORMAT = 1
/** Limit of every member but the entries. */
export const SMALL_MEMBER_BYTES_MAX = 64 << 10

export const metaSchema = v.object({
  program: v.literal('outpost'),
  format: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
  clusterId: v.pipe(v.string(), v.uuid()),
  sequence: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  epoch: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  checksum: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  takenAtMs: v.number(),
  entries: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  bytes: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
  /** Of the program that took the snapshot. Older versions do not write it. */
  programVersion: v.optional(v.pipe(v.string(), v.maxLength(64))),
})

/** Metadata: cluster and position of the store, number of entries, bytes of `state.bin`. */
export type SnapshotMeta = v.InferOutput<typeof metaSchema>

/** Includes the fields that stock clients show. */
export function encodeMeta(meta: SnapshotMeta): Buffer {
  const { sequence, epoch, bytes } = meta
  const shown = { ID: `outpost-${epoch}-${sequence}`, Index: sequence, Term: epoch, Version: 1, Size: bytes }
  return Buffer.from(`${JSON.stringify({ ...meta, ...shown })}\n`)
}

/** Throws a Refusal for a file that is not a snapshot of outpost, and for one of a newer version. */
export function decodeMeta(bytes: Buffer): SnapshotMeta {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), metaSchema), bytes.toString('utf8'))
  const isNewer = parsed.success && parsed.output.format > SNAPSHOT_FORMAT
  if (isNewer) throw new Refusal('invalid_request', 'the snapshot was taken by a newer version of outpost')
  if (!parsed.success) throw new Refusal('invalid_request', 'not a snapshot of outpost')
  return parsed.output
}

export function damagedSnapshot(what: string): Refusal {
  return new Refusal('invalid_request', `the snapshot is damaged: ${what}`)
}

/** Undefined for the empty block that ends an archive. Throws a Refusal for a malformed header. */
export function readTarHeader(header: Buffer): { readonly name: string; readonly size: number } | undefined {
  if (header.every((byte) => byte === 0)) return undefined
  const sum = Number.parseInt(header.toString('latin1', SUM_AT, SUM_AT + SUM_BYTES), 8)
  if (sum !== tarSumOf(header)) throw damagedSnapshot('a member has a malformed header')
  const isLarge = header[SIZE_AT] === 0x80
  const size = isLarge
    ? Number(header.readBigUInt64BE(SIZE_AT + 4))
    : Number.parseInt(header.toString('latin1', SIZE_AT, SIZE_AT + SIZE_BYTES), 8)
  const end = header.indexOf(0)
  if (!Number.isSafeInteger(size)) throw damagedSnapshot('a member has an invalid size')
  return { name: header.toString('latin1', 0, Math.min(end < 0 ? 100 : end, 100)), size }
}
