/**
 * The thread that makes the tree of all entries of one moment (`tree-keeper.ts` says why). It looks at each entry's checksum
 * on the way. It ends with the tree.
 */
import type { DatabaseSync } from 'node:sqlite'
import { parentPort, workerData } from 'node:worker_threads'
import { messageOf } from '../kit/errors.ts'
import { LOCAL_PREFIX } from './batch.ts'
import { openForReading } from './database.ts'
import { entryCrc } from './entry-crc.ts'
import { HASH_BYTES, leafOf, subpageOf, tailOf, TREE_BYTES, xorLeaf } from './tree.ts'

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

const port = parentPort
if (!port) throw new Error('this file is a thread, see store-tree.ts')
const { path } = workerData as { readonly path: string }
const tell = (report: TreeThreadReport) =>
  port.postMessage(report, report.kind === 'tree' ? [report.hashes.buffer] : [])
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
