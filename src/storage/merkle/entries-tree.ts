/**
 * Makes the tree of all entries of one moment (`tree-keeper.ts` says why), in a thread (`store-thread.ts`). It looks at each
 * entry's checksum on the way.
 */
import type { DatabaseSync } from 'node:sqlite'
import { messageOf } from '../../platform/errors.ts'
import { LOCAL_PREFIX } from '../sqlite/batch.ts'
import { openForReading } from '../sqlite/database.ts'
import { entryCrc } from '../sqlite/entry-crc.ts'
import { HASH_BYTES, leafOf, subpageOf, tailOf, TREE_BYTES, xorLeaf } from './tree.ts'

export interface TreeTask {
  readonly task: 'tree'
  /** Of the database. */
  readonly path: string
}

export type TreeThreadReport =
  | { readonly kind: 'progress'; readonly done: number; readonly total: number }
  | ({ readonly kind: 'tree' } & EntriesTree)
  | { readonly kind: 'failure'; readonly message: string }

export interface EntriesTree {
  /** Number of the newest note in it. */
  readonly change: number
  readonly hashes: Uint8Array<ArrayBuffer>
  readonly entries: number
  /** Paths of entries whose checksum is wrong, the first of them. */
  readonly damagedPaths: readonly string[]
  readonly damagedCount: number
  /** Subpages in which such entries are. */
  readonly damagedSubpages: readonly number[]
}

const DAMAGED_PATHS_MAX = 100
const PROGRESS_ENTRIES = 4096

function make(database: DatabaseSync, tell: (report: TreeThreadReport) => void): EntriesTree {
  // All that follows is of one moment.
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
    if (++done % PROGRESS_ENTRIES === 0) tell({ kind: 'progress', done, total: Math.max(total, done) })
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

/** The last report is the tree, or why there is none. */
export function tellEntriesTree({ path }: TreeTask, tell: (report: TreeThreadReport) => void): void {
  try {
    const database = openForReading(path)
    try {
      tell({ kind: 'tree', ...make(database, tell) })
    } finally {
      database.close()
    }
  } catch (error) {
    tell({ kind: 'failure', message: messageOf(error) })
  }
}
