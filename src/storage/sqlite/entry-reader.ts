/**
 * Reads of entries through a connection beside the writer's: single entries with their checksum, listings, a cache of entries, and the
 * read transaction that all reads of one turn of the event loop share.
 */
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { LRUCache } from 'lru-cache'
import { Fault } from '../../platform/errors.ts'
import type { Batch } from './batch.ts'
import { entryCrc } from './rows.ts'

export interface PageOptions {
  readonly after?: string
  readonly limit?: number
}

/** The character after `/` (0x2f): sorts after everything below a prefix. */
const AFTER_SLASH = '0'
const TAIL_BYTES = 16

export class EntryReader {
  readonly #get: StatementSync
  readonly #next: StatementSync
  readonly #paths: StatementSync
  readonly #tails: StatementSync

  constructor(database: DatabaseSync) {
    this.#get = database.prepare('SELECT value, sequence, crc FROM entries WHERE path = ?')
    this.#next = database.prepare('SELECT path FROM entries WHERE path >= ? AND path < ? ORDER BY path LIMIT 1')
    this.#paths = database.prepare('SELECT path FROM entries WHERE path >= ? AND path < ? ORDER BY path LIMIT ?')
    this.#tails = database.prepare(
      `SELECT path, substr(value, -${TAIL_BYTES}) AS tail FROM entries WHERE path > ? ORDER BY path LIMIT ?`,
    )
  }

  /** Undefined for a missing entry. */
  get(path: string): StoredEntry | 'damaged' | undefined {
    const row = this.#get.get(path)
    if (!row) return undefined
    const { value, crc } = row
    const sequence = Number(row['sequence'])
    if (!(value instanceof Uint8Array) || entryCrc(path, sequence, value) !== crc) return 'damaged'
    return { value, sequence }
  }

  list(prefix: string, { after = '', limit = Number.MAX_SAFE_INTEGER }: PageOptions): string[] {
    checkPrefix(prefix)
    const names: string[] = []
    const end = upperBound(prefix)
    let from = after === '' ? prefix : upperBound(prefix + after)
    while (names.length < limit) {
      const found = this.#next.get(from, end)?.['path']
      if (typeof found !== 'string') break
      const rest = found.slice(prefix.length)
      const slash = rest.indexOf('/')
      const name = slash < 0 ? rest : rest.slice(0, slash + 1)
      names.push(name)
      from = upperBound(prefix + name)
    }
    return names
  }

  paths(prefix: string, { after = '', limit = Number.MAX_SAFE_INTEGER }: PageOptions): string[] {
    checkPrefix(prefix)
    const from = after === '' ? prefix : `${after}\0`
    return this.#paths.all(from, upperBound(prefix), limit).map(({ path }) => String(path))
  }

  tails(after: string, limit: number): { path: string; tail: Uint8Array }[] {
    return this.#tails.all(after, limit).map(({ path, tail }) => {
      return { path: String(path), tail: tail instanceof Uint8Array ? tail : new Uint8Array() }
    })
  }
}

function checkPrefix(prefix: string): void {
  if (prefix !== '' && !prefix.endsWith('/')) throw new Fault('the prefix of a listing must end with a slash')
}

/** The first string that sorts after a name, and for a folder after everything in it. */
function upperBound(path: string): string {
  if (path === '') return '\u{10ffff}'
  return path.endsWith('/') ? `${path.slice(0, -1)}${AFTER_SLASH}` : `${path}\0`
}

export interface StoredEntry {
  readonly value: Uint8Array
  /** Sequence of the log row that wrote it. A local entry has the sequence of the newest row at its commit. */
  readonly sequence: number
}

/** Values and paths: about 4,000 secrets of 1 KiB. */
const CACHE_BYTES_MAX = 8 << 20
/** A larger entry is not cached: it would evict many others. */
const ENTRY_BYTES_MAX = 64 << 10
/** Approximate memory of an entry without its value and path. */
const OVERHEAD_BYTES = 128

const MISSING = Symbol('no entry')

/**
 * LRU cache of entries, including the fact that a path has none. All content is durable: a batch is applied after its commit
 * succeeded and before the caller gets the result. The cache is cleared when a commit failed or a snapshot was restored.
 */
export class EntryCache {
  readonly #entries = new LRUCache<string, StoredEntry | typeof MISSING>({
    maxSize: CACHE_BYTES_MAX,
    maxEntrySize: ENTRY_BYTES_MAX,
    sizeCalculation: (entry, path) => OVERHEAD_BYTES + path.length + (entry === MISSING ? 0 : entry.value.length),
  })

  /** Calls `read` on a cache miss only. */
  get(path: string, read: () => StoredEntry | undefined): StoredEntry | undefined {
    const known = this.#entries.get(path)
    if (known !== undefined) return known === MISSING ? undefined : known
    const entry = read()
    this.#entries.set(path, entry ?? MISSING)
    return entry
  }

  /** `found`, read from the database; the cached object where that is the same state. */
  canonical(path: string, found: StoredEntry | undefined): StoredEntry | undefined {
    const known = this.#entries.peek(path)
    return known && known !== MISSING && known.sequence === found?.sequence ? known : found
  }

  /**
   * Applies a durable batch. It updates cached entries only, so bulk writes do not evict entries that are read. A cached entry may
   * already be of a later batch whose result has not arrived: such an entry stays.
   */
  applyBatch({ puts, deletes }: Batch, sequence: number): void {
    for (const { path, value } of puts) {
      const known = this.#entries.peek(path)
      if (known === undefined) continue
      if (known !== MISSING && known.sequence < sequence) this.#entries.set(path, { value, sequence })
      else this.#invalidate(path, known, sequence)
    }
    for (const path of deletes) {
      const known = this.#entries.peek(path)
      if (known !== undefined) this.#invalidate(path, known, sequence)
    }
  }

  /** Removes what a durable batch has changed. */
  remove({ puts, deletes }: Batch): void {
    for (const { path } of puts) this.#entries.delete(path)
    for (const path of deletes) this.#entries.delete(path)
  }

  get isEmpty(): boolean {
    return this.#entries.size === 0
  }

  #invalidate(path: string, known: StoredEntry | typeof MISSING, sequence: number): void {
    if (known === MISSING || known.sequence <= sequence) this.#entries.delete(path)
  }

  clear(): void {
    this.#entries.clear()
  }
}

/**
 * One read transaction for all reads of one turn of the event loop: they see one state, and a read takes no lock by itself. It ends
 * with the turn, and before the result of a commit is delivered, so it neither hides new state nor blocks a checkpoint.
 */
export class ReadSnapshot {
  readonly #database: DatabaseSync
  readonly #begin: StatementSync
  readonly #commit: StatementSync
  readonly #rollback: StatementSync
  readonly #endOfTurn = () => this.end()
  #isHeld = false

  constructor(database: DatabaseSync) {
    this.#database = database
    this.#begin = database.prepare('BEGIN')
    this.#commit = database.prepare('COMMIT')
    this.#rollback = database.prepare('ROLLBACK')
  }

  /** The state is that of the first read after this call. */
  begin(): void {
    if (this.#isHeld && this.#database.isTransaction) return
    this.#begin.run()
    this.#isHeld = true
    setImmediate(this.#endOfTurn)
  }

  end(): void {
    if (!this.#isHeld) return
    this.#isHeld = false
    // SQLite rolls back after a disk error; the failed read has reported it.
    if (!this.#database.isTransaction) return
    try {
      this.#commit.run()
    } catch {
      // A damaged file can fail the commit too. Nothing was written, and the next read reports the damage.
      if (this.#database.isTransaction) this.#rollback.run()
    }
  }
}
