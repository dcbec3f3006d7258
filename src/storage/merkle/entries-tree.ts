/** Builds the Merkle tree of all entries of one point in time for `tree-updater.ts`, in a worker (`store-worker.ts`), and verifies their checksums. */
import type { DatabaseSync } from 'node:sqlite'
import { messageOf } from '../../platform/errors.ts'
import { LOCAL_PREFIX } from '../sqlite/batch.ts'
import { openForReading } from '../sqlite/database.ts'
import { entryCrc } from '../sqlite/rows.ts'
import { HASH_BYTES, leafOf, subpageOf, tailOf, TREE_BYTES, xorLeaf } from './tree.ts'

export interface TreeTask {
  readonly task: 'tree'
  /** Path of the database. */
  readonly path: string
}

export type TreeThreadReport =
  | { readonly kind: 'progress'; readonly done: number; readonly total: number }
  | ({ readonly kind: 'tree' } & EntriesTree)
  | { readonly kind: 'failure'; readonly message: string }

export interface EntriesTree {
  /** Number of the newest note at that time. */
  readonly change: number
  readonly hashes: Uint8Array<ArrayBuffer>
  readonly entries: number
  /** Paths of the first entries with a wrong checksum. */
  readonly damagedPaths: readonly string[]
  readonly damagedCount: number
  /** Subpages of the damaged entries. */
  readonly damagedSubpages: readonly number[]
}

const DAMAGED_PATHS_MAX = 100
const PROGRESS_ENTRIES = 4096

function buildTree(database: DatabaseSync, report: (message: TreeThreadReport) => void): EntriesTree {
  // One read transaction: all entries are of one point in time.
  database.exec('BEGIN')
  const one = (sql: string) => Number(database.prepare(sql).get()?.['one'] ?? 0)
  const change = Math.max(
    one('SELECT max(change) AS one FROM tree_changes'),
    one('SELECT max(change) AS one FROM tree_pages'),
  )
  const total = one('SELECT max(id) AS one FROM entries')
  const hashes = new Uint8Array(TREE_BYTES)
  const damagedPaths: string[] = []
  const damagedSubpages = new Set<number>()
  let [entries, damagedCount, done] = [0, 0, 0]
  for (const row of database.prepare('SELECT path, sequence, crc, value FROM entries ORDER BY id').iterate()) {
    if (++done % PROGRESS_ENTRIES === 0) report({ kind: 'progress', done, total: Math.max(total, done) })
    const path = String(row['path'])
    if (path.startsWith(LOCAL_PREFIX)) continue
    entries++
    const { crc, value } = row
    const sequence = Number(row['sequence'])
    const bytes = value instanceof Uint8Array ? value : new Uint8Array()
    const subpage = subpageOf(path)
    xorLeaf(hashes, subpage * HASH_BYTES, leafOf(path, { sequence, crc: Number(crc), tail: tailOf(bytes) }))
    if (entryCrc(path, sequence, bytes) === crc) continue
    damagedCount++
    damagedSubpages.add(subpage)
    if (damagedPaths.length < DAMAGED_PATHS_MAX) damagedPaths.push(path)
  }
  return { change, hashes, entries, damagedPaths, damagedCount, damagedSubpages: [...damagedSubpages] }
}

/** The last report is the tree or the failure. */
export function reportEntriesTree({ path }: TreeTask, report: (message: TreeThreadReport) => void): void {
  try {
    const database = openForReading(path)
    try {
      report({ kind: 'tree', ...buildTree(database, report) })
    } finally {
      database.close()
    }
  } catch (error) {
    report({ kind: 'failure', message: messageOf(error) })
  }
}
