/**
 * What this cluster has in its log and the primary that it joins never got: commits behind the point at which that one's epoch began.
 * They are given up by joining; before that they are written to a file, one line of JSON for each commit, with ciphertext as it is.
 */
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { FileReplacement, syncDirectory } from '../../platform/own-file.ts'
import { decodeBatch } from '../../storage/sqlite/batch.ts'
import type { LogRow, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'

const CHUNK = { rows: 256, bytes: 4 << 20 }

/** Where the history of the other began to be another than ours; undefined when it is none that we know of. */
export function forkOf(
  own: Pick<CommitPosition, 'epoch'>,
  forks: readonly CommitPosition[],
): CommitPosition | undefined {
  return forks.find(({ epoch }) => epoch > own.epoch)
}

/**
 * Behind which sequence commits of this cluster are in no history of the primary that it joins. `ownSince`: where this one was promoted
 * that has given way since. The other may have been promoted earlier in the history of both, in an epoch of the same number: what counts
 * is the epoch in which that history was, as the last row of it says, or at least one less than ours.
 */
export function unsharedSince(
  store: Pick<ReplicaStore, 'position' | 'rowsAfter'>,
  forks: readonly CommitPosition[],
  ownSince: number | undefined,
): number {
  const own = store.position()
  const byEpoch = forkOf(own, forks)?.sequence ?? Infinity
  if (ownSince === undefined) return byEpoch
  const [last] = store.rowsAfter(ownSince - 1, { rows: 1, bytes: 1 })
  const sharedEpoch = last?.sequence === ownSince ? last.epoch : own.epoch - 1
  return Math.min(byEpoch, forkOf({ epoch: sharedEpoch }, forks)?.sequence ?? Infinity, ownSince)
}

export interface ConflictReport {
  readonly path: string
  readonly commits: number
}

/**
 * Writes the file, durably. Undefined, and no file, when nothing would be in it.
 * `paths`: of entries that a commit has put or deleted; `batch`: base64, as the log holds it.
 */
export function writeConflicts(
  store: ReplicaStore,
  /** What is behind it was never shipped. */
  since: number,
  { dataDir, setId, nowMs }: { readonly dataDir: string; readonly setId: string; readonly nowMs: number },
): ConflictReport | undefined {
  let rows = store.rowsAfter(since, CHUNK)
  if (rows.length === 0) return undefined
  const directory = join(dataDir, 'server', 'conflicts')
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const path = join(directory, `${setId}-${new Date(nowMs).toISOString().replaceAll(/[:.]/g, '-')}.jsonl`)
  const file = new FileReplacement(path)
  let commits = 0
  try {
    while (rows.length > 0) {
      for (const row of rows) file.write(Buffer.from(`${JSON.stringify(lineOf(row))}\n`))
      commits += rows.length
      rows = store.rowsAfter(rows.at(-1)?.sequence ?? Number.MAX_SAFE_INTEGER, CHUNK)
    }
    file.finish()
  } catch (error) {
    file.discard()
    throw error
  }
  syncDirectory(dirname(path))
  return { path, commits }
}

function lineOf(row: LogRow) {
  const { puts, deletes } = decodeBatch(row.batch)
  return {
    sequence: row.sequence,
    epoch: row.epoch,
    time: new Date(row.atMs).toISOString(),
    puts: puts.map(({ path }) => path),
    deletes,
    batch: Buffer.from(row.batch).toString('base64'),
  }
}
