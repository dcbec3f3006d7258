/** Reads the metadata of a snapshot file and verifies its checksums, without a store and without keys. */
import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { ArchiveReceiver } from './format/archive-receiver.ts'
import { damagedSnapshot, type SnapshotMeta } from './format/snapshot-archive.ts'

export interface SnapshotInspection {
  readonly meta: SnapshotMeta
  /** SHA-256 of the entries, in hex. */
  readonly sha256: string
}

/** Rejects with a Refusal for a damaged snapshot, a file that is not one, and one of a newer version. */
export async function inspectSnapshot(
  input: Readable,
  { signal }: { readonly signal?: AbortSignal } = {},
): Promise<SnapshotInspection> {
  const hash = createHash('sha256')
  const receiver = new ArchiveReceiver({ write: (piece) => void hash.update(piece) })
  await receiver.receive(input, signal)
  const { meta, sha256 } = receiver.end()
  if (hash.digest('hex') !== sha256) throw damagedSnapshot('the checksum of its entries does not match')
  return { meta, sha256 }
}
