/**
 * The conflict report: commits in this cluster's log that the primary it joins never received, after the point at which the two histories
 * diverge.
 * Joining drops them; before that they are written to a file, one line of JSON per commit, as ciphertext.
 */
import { mkdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { FileReplacement, syncDirectory } from '../../platform/program-file.ts'
import { decodeBatch } from '../../storage/sqlite/batch.ts'
import type { LogRow, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'

const READ_LIMITS = { rows: 256, bytes: 4 << 20 }

/** The first fork of the other history that this one does not have. */
function firstForkAfter(
  own: Pick<CommitPosition, 'epoch'>,
  forks: readonly CommitPosition[],
): CommitPosition | undefined {
  return forks.find(({ epoch }) => epoch > own.epoch)
}

/**
 * The last sequence that this cluster and the primary that it joins have in common. `ownSince`: the sequence at which this cluster was
 * promoted before it yielded. The other may have been promoted earlier, in an epoch of the same number: the epoch of the last common
 * row counts, or at least one less than that of this cluster.
 */
export function lastSharedSequence(
  store: Pick<ReplicaStore, 'position' | 'rowsAfter'>,
  forks: readonly CommitPosition[],
  ownSince: number | undefined,
): number {
  const own = store.position()
  const byEpoch = firstForkAfter(own, forks)?.sequence ?? Infinity
  if (ownSince === undefined) return byEpoch
  const [last] = store.rowsAfter(ownSince - 1, { rows: 1, bytes: 1 })
  const sharedEpoch = last?.sequence === ownSince ? last.epoch : own.epoch - 1
  return Math.min(byEpoch, firstForkAfter({ epoch: sharedEpoch }, forks)?.sequence ?? Infinity, ownSince)
}

export interface ConflictReport {
  readonly path: string
  readonly commits: number
}

/**
 * Writes the file durably; undefined, and no file, if there are no such commits. `puts` and `deletes` are paths, `batch` is the batch of
 * the log in base64.
 */
export function writeConflictReport(
  store: ReplicaStore,
  /** Sequence of the last shipped commit. */
  since: number,
  { dataDir, setId, nowMs }: { readonly dataDir: string; readonly setId: string; readonly nowMs: number },
): ConflictReport | undefined {
  let rows = store.rowsAfter(since, READ_LIMITS)
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
      rows = store.rowsAfter(rows.at(-1)?.sequence ?? Number.MAX_SAFE_INTEGER, READ_LIMITS)
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
