/** Sends the entries of a snapshot to the members of an HA cluster, which keep them until the restore (`staged-snapshot.ts`). */
import { readSync } from 'node:fs'
import type { ReplicaOrder } from '../replica-writer.ts'

/** Part of a snapshot that is sent to the members. */
const STAGED_BYTES = 4 << 20
export const NOTHING_STAGED: ReplicaOrder = { do: 'stage', at: 0, bytes: new Uint8Array() }

export async function stageSnapshot(
  fd: number,
  bytes: number,
  replicate: (order: ReplicaOrder) => Promise<unknown>,
): Promise<void> {
  const chunk = Buffer.alloc(Math.min(bytes, STAGED_BYTES))
  for (let at = 0; at === 0 || at < bytes; ) {
    const length = readSync(fd, chunk, 0, Math.min(chunk.length, bytes - at), at)
    await replicate({ do: 'stage', at, bytes: chunk.subarray(0, length) })
    if (length === 0) break
    at += length
  }
}
