/**
 * Keeps the tree of hashes (`tree.ts`) in the thread that writes, with each transaction.
 *
 * The subpages lie in memory. A transaction notes what it changes of them, as pairs of subpage and XOR, and that note is
 * written in the transaction itself, as one row (`tree_changes`): 22 bytes for each entry, where writing subpages in
 * their places would change a page of the file for each. Once the notes are long, the pages that they have changed are written
 * (`tree_pages`) and the notes go. So what lies on the disk is the tree of exactly the entries that lie there, at every
 * moment, and a start reads 1.3 MB and the notes since.
 *
 * To look at everything another thread makes the tree of all entries of one moment, which is named by the number of the
 * newest note in it. Here the notes since then are taken back out of a copy of the tree that is kept, and what is left
 * must be the same. What is not is one XOR, which can be put right now as well as then: commits go on all the while.
 */
import { crc32 } from 'node:zlib'
import type { DatabaseSync, StatementSync } from 'node:sqlite'
import { LOCAL_PREFIX } from '../sqlite/batch.ts'
import { factIn, writeFact } from '../sqlite/facts.ts'
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
/** Of all notes together: then the pages are written. About 48,000 changes. */
const NOTES_BYTES_MAX = 1 << 20
/** Leaves of entries that were written lately: those that are written again and again, such as the head, need not be read. */
const LEAVES_MAX = 8192

/** `made`: it is that of the entries. `making`: what is kept lacks the entries that were there before. */
export type TreeState = 'off' | 'making' | 'made'

/** In the database, for `made`: of leaves as `tree.ts` makes them now. */
const MADE = 'made 2'
/** Likewise of other leaves, by an older version: what is wrong with such a tree is found as in one that is being made. */
const MADE_BEFORE = 'made'

export function treeStateIn(database: DatabaseSync): TreeState {
  const state = factIn(database, 'tree')
  if (state === MADE) return 'made'
  return state === 'making' || state === MADE_BEFORE ? 'making' : 'off'
}

/** Of everything that is wrong with the tree. */
export interface Comparison {
  /** Subpages that are not what the entries say. */
  readonly wrong: readonly number[]
  /** Pages whose row in the database cannot be read. */
  readonly damagedPages: readonly number[]
}

export class TreeKeeper {
  readonly #database: DatabaseSync
  readonly #old: StatementSync
  readonly #note: StatementSync
  readonly #save: StatementSync
  readonly #tree = Buffer.alloc(TREE_BYTES)
  readonly #pageHashes: (Buffer | undefined)[] = Array.from({ length: PAGES }, () => undefined)
  readonly #unsaved = new Set<number>()
  readonly #known = new Map<string, LeafHash>()
  /** Of the transaction that is open. */
  #notes: Buffer = Buffer.alloc(64 * NOTE_BYTES)
  #notesEnd = 0
  /** Number of the newest note. */
  #change = 0
  #notesBytes = 0
  /** A look at everything is under way and needs the notes since it began. */
  #isLookedAt = false
  /** Notes cannot be read: what is kept has to be made anew. */
  #isSuspect = false
  /** The open transaction has written more than notes. */
  #isRewritten = false

  /** Reads what there is, or begins to keep a tree that has yet to be made. Within a transaction in the second case. */
  constructor(database: DatabaseSync) {
    this.#database = database
    this.#old = database.prepare(
      `SELECT sequence, crc, substr(value, -${TAIL_BYTES}) AS tail FROM entries WHERE path = ?`,
    )
    this.#note = database.prepare('INSERT INTO tree_changes VALUES (?, ?, ?)')
    this.#save = database.prepare('INSERT OR REPLACE INTO tree_pages VALUES (?, ?, ?, ?)')
    if (treeStateIn(database) === 'off') this.reset('making')
    else this.#load()
  }

  get isMade(): boolean {
    return treeStateIn(this.#database) === 'made' && !this.#isSuspect
  }

  /** Whether it costs nothing to say what is at a path: an entry was written there lately. */
  knows(path: string): boolean {
    return this.#known.has(path)
  }

  /** An entry is about to be written; within the transaction, before. `isNew`: there was none. */
  put(path: string, entry: { sequence: number; crc: number; value: Uint8Array }, isNew: boolean): void {
    if (path.startsWith(LOCAL_PREFIX)) return
    const { sequence, crc, value } = entry
    const before = isNew ? undefined : this.#before(path)
    const leaf = leafOf(path, { sequence, crc, tail: tailOf(value) })
    // What is new may be the only one of its name for ever; what was there before is likely to be written again.
    if (before !== undefined) this.#remember(path, leaf)
    this.#add(path, before, leaf)
  }

  /** An entry is about to be removed; likewise. */
  remove(path: string): void {
    if (path.startsWith(LOCAL_PREFIX)) return
    const before = this.#before(path)
    this.#known.delete(path)
    if (before !== undefined) this.#add(path, before, undefined)
  }

  #before(path: string): LeafHash | undefined {
    const known = this.#known.get(path)
    if (known !== undefined) return known
    const row = this.#old.get(path)
    return row && leafOf(path, sourceOf(row))
  }

  #remember(path: string, leaf: LeafHash): void {
    if (this.#known.size >= LEAVES_MAX) this.#known.clear()
    this.#known.set(path, leaf)
  }

  #add(path: string, before: LeafHash | undefined, now: LeafHash | undefined): void {
    const at = this.#newNote(subpageOf(path))
    if (before !== undefined) xorLeaf(this.#notes, at, before)
    if (now !== undefined) xorLeaf(this.#notes, at, now)
  }

  /** Returns where its XOR is. */
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

  /** The last that is done in the transaction. */
  beforeCommit(): void {
    if (this.#notesEnd === 0) return
    const notes = this.#notes.subarray(0, this.#notesEnd)
    this.#note.run(this.#change + 1, crc32(notes), notes)
  }

  afterCommit(): void {
    this.#isRewritten = false
    if (this.#notesEnd === 0) return
    this.#change++
    this.#notesBytes += this.#notesEnd
    for (const page of applyNotes(this.#tree, this.#notes.subarray(0, this.#notesEnd))) this.#changed(page)
    this.#notesEnd = 0
  }

  afterRollback(): void {
    this.#notesEnd = 0
    this.#known.clear()
    if (!this.#isRewritten) return
    this.#isRewritten = false
    this.#isLookedAt = false
    this.#load()
  }

  #changed(page: number): void {
    this.#unsaved.add(page)
    this.#pageHashes[page] = undefined
  }

  get isSaveDue(): boolean {
    return this.#notesBytes > NOTES_BYTES_MAX && !this.#isLookedAt
  }

  /** Writes the pages that have changed; within a transaction. */
  save(): void {
    this.#isRewritten = true
    for (const page of this.#unsaved) this.#savePage(page)
    this.#database.exec('DELETE FROM tree_changes')
    this.#unsaved.clear()
    this.#notesBytes = 0
  }

  #savePage(page: number): void {
    const hashes = this.#pageOf(page)
    this.#save.run(page, this.#change, crc32(hashes), hashes)
  }

  #pageOf(page: number): Buffer {
    return this.#tree.subarray(page * PAGE_HASHES_BYTES, (page + 1) * PAGE_HASHES_BYTES)
  }

  /** Of no entries, or of none that were there before; within a transaction. */
  reset(state: TreeState): void {
    this.#isRewritten = true
    this.#isLookedAt = false
    this.#isSuspect = false
    this.#tree.fill(0)
    this.#known.clear()
    for (let page = 0; page < PAGES; page++) this.#changed(page)
    this.save()
    writeFact(this.#database, 'tree', state === 'made' ? MADE : state)
  }

  /** Nothing is kept from now on; within a transaction. */
  drop(): void {
    this.#database.exec('DELETE FROM tree_changes; DELETE FROM tree_pages')
    writeFact(this.#database, 'tree', 'off')
  }

  /** 256 hashes, one behind the other. */
  pages(): Uint8Array {
    const all = Array.from({ length: PAGES }, (_, page) => (this.#pageHashes[page] ??= pageHash(this.#tree, page)))
    return Uint8Array.from(Buffer.concat(all))
  }

  /** The subpages of these pages, one behind the other. */
  subpages(pages: readonly number[]): Uint8Array {
    return Uint8Array.from(Buffer.concat(pages.map((page) => this.#pageOf(page))))
  }

  /** From now on to `endLook` notes stay. */
  beginLook(): void {
    this.#isLookedAt = true
  }

  endLook(): void {
    this.#isLookedAt = false
  }

  /** `entries`: the tree of all entries when the note `change` was the newest, within a look. Differences are of what is wrong. */
  compare(change: number, entries: Uint8Array): Comparison & { readonly difference: Uint8Array } {
    if (!this.#isLookedAt) throw new Error('all entries were replaced meanwhile')
    const difference = Buffer.from(this.#tree)
    for (const notes of this.#notesBehind(change)) {
      if (!notes) throw new Error('the notes of the tree are damaged')
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

  /** Puts right what `compare` found, by notes like any other; within a transaction. `pages`: are to be written with the next `save`. */
  mend({ wrong }: Comparison, difference: Uint8Array, pages: readonly number[]): void {
    for (const subpage of wrong) {
      const at = this.#newNote(subpage)
      xorBytes(this.#notes, at, difference, subpage * HASH_BYTES)
    }
    for (const page of pages) this.#unsaved.add(page)
    writeFact(this.#database, 'tree', MADE)
    this.#isSuspect = false
  }

  /** Undefined for one that is damaged. */
  #notesBehind(change: number): (Buffer | undefined)[] {
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
      // A damaged one is taken as it is: a look at everything names it.
      if (hashes.length === PAGE_HASHES_BYTES) this.#tree.set(hashes, page * PAGE_HASHES_BYTES)
    }
    const newest = this.#database.prepare('SELECT max(change) AS newest FROM tree_changes').get()
    this.#change = Math.max(this.#change, Number(newest?.['newest'] ?? 0))
    for (const notes of this.#notesBehind(0)) {
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

/** Returns the pages that they have changed. */
function applyNotes(tree: Uint8Array, notes: Buffer): Set<number> {
  const pages = new Set<number>()
  for (let at = 0; at + NOTE_BYTES <= notes.length; at += NOTE_BYTES) {
    const subpage = notes.readUInt16BE(at)
    xorBytes(tree, subpage * HASH_BYTES, notes, at + 2)
    pages.add(subpage >> 8)
  }
  return pages
}
