/**
 * Maintains the Merkle tree (`tree.ts`) in the writer's thread, with each transaction.
 *
 * The subpages are in memory. Each transaction records its changes of subpages as pairs of subpage and XOR, and writes them as one row
 * (`tree_changes`), a *note*: 22 bytes per entry, where an update in place would change a page of the file per entry. When the notes
 * are long, the changed pages are written (`tree_pages`) and the notes are deleted. So the tree on the disk always matches the entries on
 * the disk, and a start reads 1.3 MB and the notes.
 *
 * For a full check, another thread builds the tree of all entries of one point in time, which is identified by the number of the newest
 * note at that time. Here the later notes are undone in a copy of the maintained tree, and the two must be equal. A difference is an XOR,
 * which can be applied at any later time, so commits continue during the check.
 */
import { crc32 } from 'node:zlib'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { LOCAL_PREFIX } from '../sqlite/batch.ts'
import { factIn, writeFact } from '../sqlite/rows.ts'
import {
  HASH_BYTES,
  type LeafHash,
  leafOf,
  PAGE_HASHES_BYTES,
  pageHash,
  PAGES,
  SUBPAGES,
  subpageOf,
  TAIL_BYTES,
  tailOf,
  TREE_BYTES,
  xorBytes,
  xorLeaf,
} from './tree.ts'

const NOTE_BYTES = 2 + HASH_BYTES
/** Size of all notes at which the pages are written: about 48,000 changes. */
const NOTES_BYTES_MAX = 1 << 20
/** Cached leaves of recently written entries, so that the old leaf of a frequently written entry, such as the head, need not be read. */
const LEAVES_MAX = 8192

/** `made`: complete. `making`: the tree lacks entries that existed before it was enabled. */
export type TreeState = 'off' | 'making' | 'made'

/** Fact for `made` with the current format of leaves. */
const MADE = 'made 2'
/** Fact for `made` with the leaves of an older version. Such a tree is handled as `making`. */
const MADE_BEFORE = 'made'

export function treeStateIn(database: DatabaseSync): TreeState {
  const state = factIn(database, 'tree')
  if (state === MADE) return 'made'
  return state === 'making' || state === MADE_BEFORE ? 'making' : 'off'
}

/** Result of a full check. */
export interface TreeComparison {
  /** Subpages that do not match the entries. */
  readonly wrong: readonly number[]
  /** Pages with a damaged or missing row in the database. */
  readonly damagedPages: readonly number[]
}

export class TreeUpdater {
  readonly #database: DatabaseSync
  readonly #selectLeaf: StatementSync
  readonly #insertNote: StatementSync
  readonly #insertPage: StatementSync
  readonly #tree = Buffer.alloc(TREE_BYTES)
  readonly #pageHashes: (Buffer | undefined)[] = Array.from({ length: PAGES }, () => undefined)
  readonly #unsaved = new Set<number>()
  readonly #leaves = new Map<string, LeafHash>()
  /** Notes of the open transaction. */
  #notes: Buffer = Buffer.alloc(64 * NOTE_BYTES)
  #notesEnd = 0
  /** Number of the newest note. */
  #change = 0
  #notesBytes = 0
  /** A full check is in progress, so the notes must be kept. */
  #isChecking = false
  /** Notes are damaged: the tree must be checked. */
  #isSuspect = false
  /** The open transaction has written pages. */
  #isRewritten = false

  /** Loads the tree, or starts one in the state `making`, which must be within a transaction. */
  constructor(database: DatabaseSync) {
    this.#database = database
    this.#selectLeaf = database.prepare(
      `SELECT sequence, crc, substr(value, -${TAIL_BYTES}) AS tail FROM entries WHERE path = ?`,
    )
    this.#insertNote = database.prepare('INSERT INTO tree_changes VALUES (?, ?, ?)')
    this.#insertPage = database.prepare('INSERT OR REPLACE INTO tree_pages VALUES (?, ?, ?, ?)')
    if (treeStateIn(database) === 'off') this.reset('making')
    else this.#load()
  }

  get isMade(): boolean {
    return treeStateIn(this.#database) === 'made' && !this.#isSuspect
  }

  /** Whether the leaf of this path is cached. */
  hasLeaf(path: string): boolean {
    return this.#leaves.has(path)
  }

  /** Must be called within the transaction before an entry is updated, or after it was inserted (`isNew`). */
  put(path: string, entry: { sequence: number; crc: number; value: Uint8Array }, isNew: boolean): void {
    if (path.startsWith(LOCAL_PREFIX)) return
    const { sequence, crc, value } = entry
    const before = isNew ? undefined : this.#before(path)
    const leaf = leafOf(path, { sequence, crc, tail: tailOf(value) })
    // An entry that was written before is likely to be written again; a new one is not.
    if (before !== undefined) this.#cacheLeaf(path, leaf)
    this.#add(path, before, leaf)
  }

  /** Must be called within the transaction before an entry is deleted. */
  remove(path: string): void {
    if (path.startsWith(LOCAL_PREFIX)) return
    const before = this.#before(path)
    this.#leaves.delete(path)
    if (before !== undefined) this.#add(path, before, undefined)
  }

  #before(path: string): LeafHash | undefined {
    const cached = this.#leaves.get(path)
    if (cached !== undefined) return cached
    const row = this.#selectLeaf.get(path)
    return row && leafOf(path, sourceOf(row))
  }

  #cacheLeaf(path: string, leaf: LeafHash): void {
    if (this.#leaves.size >= LEAVES_MAX) this.#leaves.clear()
    this.#leaves.set(path, leaf)
  }

  #add(path: string, before: LeafHash | undefined, now: LeafHash | undefined): void {
    const at = this.#newNote(subpageOf(path))
    if (before !== undefined) xorLeaf(this.#notes, at, before)
    if (now !== undefined) xorLeaf(this.#notes, at, now)
  }

  /** Returns the offset of its XOR. */
  #newNote(subpage: number): number {
    if (this.#notesEnd + NOTE_BYTES > this.#notes.length) {
      this.#notes = Buffer.concat([this.#notes, Buffer.alloc(this.#notes.length)])
    }
    const at = this.#notesEnd
    this.#notesEnd += NOTE_BYTES
    this.#notes.writeUInt16BE(subpage, at)
    this.#notes.fill(0, at + 2, at + NOTE_BYTES)
    return at + 2
  }

  /** Must be called at the end of the transaction. */
  beforeCommit(): void {
    if (this.#notesEnd === 0) return
    const notes = this.#notes.subarray(0, this.#notesEnd)
    this.#insertNote.run(this.#change + 1, crc32(notes), notes)
  }

  afterCommit(): void {
    this.#isRewritten = false
    if (this.#notesEnd === 0) return
    this.#change++
    this.#notesBytes += this.#notesEnd
    for (const page of applyNotes(this.#tree, this.#notes.subarray(0, this.#notesEnd))) this.#markChanged(page)
    this.#notesEnd = 0
  }

  afterRollback(): void {
    this.#notesEnd = 0
    this.#leaves.clear()
    if (!this.#isRewritten) return
    this.#isRewritten = false
    this.#isChecking = false
    this.#load()
  }

  #markChanged(page: number): void {
    this.#unsaved.add(page)
    this.#pageHashes[page] = undefined
  }

  get isSaveDue(): boolean {
    return this.#notesBytes > NOTES_BYTES_MAX && !this.#isChecking
  }

  /** Writes the changed pages. Runs in the caller's transaction. */
  save(): void {
    this.#isRewritten = true
    for (const page of this.#unsaved) this.#savePage(page)
    this.#database.exec('DELETE FROM tree_changes')
    this.#unsaved.clear()
    this.#notesBytes = 0
  }

  #savePage(page: number): void {
    const hashes = this.#pageOf(page)
    this.#insertPage.run(page, this.#change, crc32(hashes), hashes)
  }

  #pageOf(page: number): Buffer {
    return this.#tree.subarray(page * PAGE_HASHES_BYTES, (page + 1) * PAGE_HASHES_BYTES)
  }

  /** Empties the tree. Runs in the caller's transaction. */
  reset(state: TreeState): void {
    this.#isRewritten = true
    this.#isChecking = false
    this.#isSuspect = false
    this.#tree.fill(0)
    this.#leaves.clear()
    for (let page = 0; page < PAGES; page++) this.#markChanged(page)
    this.save()
    writeFact(this.#database, 'tree', state === 'made' ? MADE : state)
  }

  /** Deletes the tree. Runs in the caller's transaction. */
  drop(): void {
    this.#database.exec('DELETE FROM tree_changes; DELETE FROM tree_pages')
    writeFact(this.#database, 'tree', 'off')
  }

  /** 256 hashes, concatenated. */
  pages(): Uint8Array {
    const all = Array.from({ length: PAGES }, (_, page) => (this.#pageHashes[page] ??= pageHash(this.#tree, page)))
    return Uint8Array.from(Buffer.concat(all))
  }

  /** The subpages of these pages, concatenated. */
  subpages(pages: readonly number[]): Uint8Array {
    return Uint8Array.from(Buffer.concat(pages.map((page) => this.#pageOf(page))))
  }

  /** Keeps the notes until `endScan`. */
  beginScan(): void {
    this.#isChecking = true
  }

  endScan(): void {
    this.#isChecking = false
  }

  /** `entries`: the tree of all entries when the note `change` was the newest. `difference` has the XOR of each wrong subpage. */
  compare(change: number, entries: Uint8Array): TreeComparison & { readonly difference: Uint8Array } {
    if (!this.#isChecking) throw new Error('all entries were replaced during the check')
    const difference = Buffer.from(this.#tree)
    for (const notes of this.#notesAfter(change)) {
      if (!notes) throw new Error('the change notes of the Merkle tree are damaged')
      applyNotes(difference, notes)
    }
    const wrong: number[] = []
    for (let page = 0; page < PAGES; page++) {
      const at = page * PAGE_HASHES_BYTES
      if (difference.compare(entries, at, at + PAGE_HASHES_BYTES, at, at + PAGE_HASHES_BYTES) === 0) continue
      for (let subpage = page * SUBPAGES; subpage < (page + 1) * SUBPAGES; subpage++) {
        const from = subpage * HASH_BYTES
        if (difference.compare(entries, from, from + HASH_BYTES, from, from + HASH_BYTES) === 0) continue
        xorBytes(difference, from, entries, from)
        wrong.push(subpage)
      }
    }
    return { wrong, damagedPages: this.#damagedPages(), difference }
  }

  /** Corrects the subpages by notes. The next `save` also writes `pages`. Runs in the caller's transaction. */
  repair({ wrong }: TreeComparison, difference: Uint8Array, pages: readonly number[]): void {
    for (const subpage of wrong) {
      const at = this.#newNote(subpage)
      xorBytes(this.#notes, at, difference, subpage * HASH_BYTES)
    }
    for (const page of pages) this.#unsaved.add(page)
    writeFact(this.#database, 'tree', MADE)
    this.#isSuspect = false
  }

  /** Undefined for damaged notes. */
  #notesAfter(change: number): (Buffer | undefined)[] {
    const rows = this.#database.prepare('SELECT crc, deltas FROM tree_changes WHERE change > ? ORDER BY change')
    return rows.all(change).map(({ crc, deltas }) => {
      if (!(deltas instanceof Uint8Array) || crc32(deltas) !== crc) return undefined
      return Buffer.from(deltas.buffer, deltas.byteOffset, deltas.length)
    })
  }

  #damagedPages(): number[] {
    const whole = new Set(
      savedPages(this.#database)
        .filter(({ isWhole }) => isWhole)
        .map(({ page }) => page),
    )
    return Array.from({ length: PAGES }, (_, page) => page).filter((page) => !whole.has(page))
  }

  #load(): void {
    this.#tree.fill(0)
    this.#pageHashes.fill(undefined)
    this.#unsaved.clear()
    this.#notesBytes = 0
    for (const { page, change, hashes } of savedPages(this.#database)) {
      this.#change = Math.max(this.#change, change)
      // A damaged page is loaded unchanged: a full check reports it.
      if (hashes.length === PAGE_HASHES_BYTES) this.#tree.set(hashes, page * PAGE_HASHES_BYTES)
    }
    const newest = this.#database.prepare('SELECT max(change) AS newest FROM tree_changes').get()
    this.#change = Math.max(this.#change, Number(newest?.['newest'] ?? 0))
    for (const notes of this.#notesAfter(0)) {
      if (!notes) {
        this.#isSuspect = true
        continue
      }
      this.#notesBytes += notes.length
      for (const page of applyNotes(this.#tree, notes)) this.#unsaved.add(page)
    }
  }
}

interface SavedPage {
  readonly page: number
  readonly change: number
  readonly hashes: Uint8Array
  readonly isWhole: boolean
}

function savedPages(database: DatabaseSync): SavedPage[] {
  return database
    .prepare('SELECT page, change, crc, hashes FROM tree_pages WHERE page BETWEEN 0 AND 255')
    .all()
    .map(({ page, change, crc, hashes }) => {
      const bytes = hashes instanceof Uint8Array ? hashes : new Uint8Array()
      const isWhole = bytes.length === PAGE_HASHES_BYTES && crc32(bytes) === crc
      return { page: Number(page), change: Number(change), hashes: bytes, isWhole }
    })
}

function sourceOf(row: Record<string, unknown>): { sequence: number; crc: number; tail: Uint8Array } {
  const { tail } = row
  return {
    sequence: Number(row['sequence']),
    crc: Number(row['crc']),
    tail: tail instanceof Uint8Array ? tail : new Uint8Array(),
  }
}

/** Returns the changed pages. */
function applyNotes(tree: Uint8Array, notes: Buffer): Set<number> {
  const pages = new Set<number>()
  for (let at = 0; at + NOTE_BYTES <= notes.length; at += NOTE_BYTES) {
    const subpage = notes.readUInt16BE(at)
    xorBytes(tree, subpage * HASH_BYTES, notes, at + 2)
    pages.add(subpage >> 8)
  }
  return pages
}
