/**
 * The entry set: the newest state of every entry. It distinguishes a current ciphertext from an older one, and entries that another
 * program removed or restored below the barrier from those that this program deleted or wrote.
 *
 * Promises. Each entry has a *mark*: 8 bytes of the tag of its ciphertext, which cannot be chosen without the key. The set has the mark of
 * every entry in memory, 16 bytes per entry, under an ID that is a keyed hash of the path. `check` compares what the database returns
 * for a path and throws RollbackError. Every batch contains the *head* of the set: the number of batches and a sum over all pairs of path
 * and mark, encrypted and authenticated. The sum is a keyed multiset hash: pseudo-random terms, added in a group of 2^256 elements, so a
 * change of one entry takes two terms. The head is in the same transaction as the entries, so it matches them after a crash, in a
 * snapshot and on a secondary.
 *
 * Assumes that the sum stays secret. The terms cannot be computed without the key, so a different state that matches a head can only be
 * guessed (docs/decisions/033).
 *
 * What can go wrong. The database as a whole may be an earlier one, which matches its own head. That is indistinguishable from a
 * restore. Not in the set: the head itself, local entries (`local/`), and entries that the seal writes while the barrier is sealed.
 */
import { hash, timingSafeEqual } from 'node:crypto'
import { Fault, Refusal } from '../../platform/errors.ts'
import { TransientMap } from '../../platform/transient-map.ts'
import { type Batch, HEAD_PATH, LOCAL_PREFIX } from '../sqlite/batch.ts'
import { type EntryMark, MarkTable } from './mark-table.ts'
import { freshNonce } from './cipher.ts'
import { SEAL_PATHS } from './seal-entries.ts'

export const SET_KEY_BYTES = 32
const SUM_WORDS = 8
export const SHARDS = 64
const SHARD_SHIFT = 26
const SUM_BYTES = SUM_WORDS * 4
const TAG_BYTES = 16
const HEAD_FORMAT = 1
const NONCE_BYTES = 12
const COUNTER_BYTES = 6
const MAC_BYTES = 16
const NONCE_AT = 1
const COUNTER_AT = NONCE_AT + NONCE_BYTES
const SUM_AT = COUNTER_AT + COUNTER_BYTES
const MAC_AT = SUM_AT + SUM_BYTES
const HEAD_BYTES = MAC_AT + MAC_BYTES
/** Domain separation: the byte between the key and the hashed input. */
const OF_PATH = 1
const OF_TERM = 2
const OF_PAD = 3
const OF_MAC = 4
/** The key and the byte after it. */
const PREFIX_BYTES = SET_KEY_BYTES + 1
const PATH_BYTES = 4096
/** Bytes of UTF-8 per UTF-16 code unit. */
const BYTES_PER_CODE_UNIT_MAX = 3
/** Cached IDs; the cache is cleared when it is full. */
const IDS_MAX = 128

export const WHAT_TO_DO = 'Move the database away and restore a snapshot'

export type EntryRollback = 'replaced' | 'removed' | 'put back'

const DESCRIPTIONS: Readonly<Record<EntryRollback, string>> = {
  replaced: 'is not in its newest state: another program replaced it with an older version',
  removed: 'is missing: another program removed it',
  'put back': 'was deleted before: another program put it back',
}

/** The state of an entry in the database is not the last written one. A Refusal, because clients get the instructions; the path is for the log. */
export class RollbackError extends Refusal {
  readonly kind: EntryRollback
  readonly path: string

  constructor(path: string, kind: EntryRollback) {
    super('host_error', `the database was changed: a required entry ${DESCRIPTIONS[kind]}. ${WHAT_TO_DO}`)
    this.kind = kind
    this.path = path
  }
}

/** The entries do not match their head. */
export class EntrySetMismatch extends Refusal {
  /** `next`: instructions for the operator. */
  constructor(next = WHAT_TO_DO) {
    super(
      'host_error',
      `the database was changed by another program: some entries are older than others, were removed or put back. ${next}`,
    )
  }
}

/** The content of a head. */
export interface EntrySetHead {
  /** Number of batches since the set was created. */
  readonly counter: number
  readonly sum: Int32Array
}

interface EntryChange {
  readonly path: string
  readonly id: EntryMark
  readonly before: EntryMark | undefined
  readonly after: EntryMark | undefined
  /** The term of `after`, which the next change of the entry subtracts from the sum. */
  readonly term: string | undefined
}

/** A queued batch. */
export interface PendingBatch {
  readonly counter: number
  readonly changes: readonly EntryChange[]
}

interface Shard {
  table: MarkTable
  readonly sum: Int32Array
}

/** The newest state of each entry in a range of log rows. */
export class LoggedEntries {
  readonly newest = new Map<string, { readonly mark: EntryMark | undefined; readonly sequence: number }>()

  add({ puts, deletes }: Batch, sequence: number): void {
    for (const { path, value } of puts) if (isBound(path)) this.newest.set(path, { mark: markOf(value), sequence })
    for (const path of deletes) if (isBound(path)) this.newest.set(path, { mark: undefined, sequence })
  }
}

/** Called when an entry is added or deleted, see `entry-scan.ts`. */
export type EntrySetWatcher = (path: string, step: 1 | -1) => void

export class EntrySet {
  readonly #pathInput = Buffer.alloc(PREFIX_BYTES + PATH_BYTES)
  /** Prefixes of `#pathInput`, by length. */
  readonly #pathViews: (Buffer | undefined)[] = []
  readonly #termInput = Buffer.alloc(PREFIX_BYTES + 16)
  readonly #headInput = Buffer.alloc(PREFIX_BYTES + MAC_AT)
  /** The part of `#headInput` before the sum. */
  readonly #padInput = this.#headInput.subarray(0, PREFIX_BYTES + SUM_AT)
  readonly #shards: Shard[] = Array.from({ length: SHARDS }, () => ({
    table: new MarkTable(),
    sum: new Int32Array(SUM_WORDS),
  }))
  readonly #sum = new Int32Array(SUM_WORDS)
  /** Cached IDs by path. */
  readonly #ids = new Map<string, EntryMark>()
  #counter = 0
  #pendingBatches: PendingBatch[] = []
  /** Queued changes by path, in order: the database may have the state before or after any of them. */
  readonly #queuedChanges = new TransientMap<string, EntryChange[]>()
  watcher: EntrySetWatcher | undefined

  /** `key` is copied; `close` overwrites the copy. */
  constructor(key: Buffer) {
    if (key.length !== SET_KEY_BYTES) throw new Fault('the key of the entry set must have 32 bytes')
    for (const input of [this.#pathInput, this.#termInput, this.#headInput]) key.copy(input)
    this.#pathInput[SET_KEY_BYTES] = OF_PATH
    this.#termInput[SET_KEY_BYTES] = OF_TERM
  }

  close(): void {
    this.#ids.clear()
    this.#pathInput.fill(0)
    this.#termInput.fill(0)
    this.#headInput.fill(0)
  }

  isOf(key: Buffer): boolean {
    return timingSafeEqual(key, this.#pathInput.subarray(0, SET_KEY_BYTES))
  }

  get size(): number {
    return this.#shards.reduce((size, { table }) => size + table.size, 0)
  }

  get counter(): number {
    return this.#counter
  }

  /** Applies a batch to the set. The caller must then queue the batch with the result of `sealHead`. */
  bind({ puts, deletes }: Batch): PendingBatch {
    const changes: EntryChange[] = []
    for (const { path, value } of puts) if (isBound(path)) changes.push(this.#queue(path, markOf(value)))
    for (const path of deletes) if (isBound(path)) changes.push(this.#queue(path, undefined))
    const pending = { counter: ++this.#counter, changes }
    this.#pendingBatches.push(pending)
    return pending
  }

  /** Reuses the ID and the term of an earlier queued change of the same entry. */
  #queue(path: string, after: EntryMark | undefined): EntryChange {
    const queued = this.#queuedChanges.get(path)
    const newest = queued?.at(-1)
    const change = this.#change(path, after, newest?.id, newest?.term)
    if (queued) queued.push(change)
    else this.#queuedChanges.set(path, [change])
    return change
  }

  /** IDs of written paths are not cached: most of them are new and are not read soon. */
  #change(
    path: string,
    after: EntryMark | undefined,
    id = this.#ids.get(path) ?? this.#hashOf(path),
    termBefore?: string,
  ): EntryChange {
    const shard = this.#shardOf(id)
    const before = shard.table.get(id)
    const term = this.#move(shard, id, { mark: before, term: termBefore }, after)
    if (this.watcher && !before !== !after) this.watcher(path, after ? 1 : -1)
    return { path, id, before, after, term }
  }

  /** Returns the term of `after`. */
  #move(
    shard: Shard,
    id: EntryMark,
    before: { readonly mark: EntryMark | undefined; readonly term?: string | undefined },
    after: EntryMark | undefined,
  ): string | undefined {
    if (before.mark) this.#add(shard, before.term ?? this.#termOf(id, before.mark), -1)
    if (!after) {
      shard.table.delete(id)
      return undefined
    }
    const term = this.#termOf(id, after)
    this.#add(shard, term, 1)
    shard.table.set(id, after)
    return term
  }

  #termOf(id: EntryMark, { hi, lo }: EntryMark): string {
    const input = this.#termInput
    input.writeUInt32LE(id.hi, PREFIX_BYTES)
    input.writeUInt32LE(id.lo, PREFIX_BYTES + 4)
    input.writeUInt32LE(hi, PREFIX_BYTES + 8)
    input.writeUInt32LE(lo, PREFIX_BYTES + 12)
    // A binary string: creating a Buffer would cost three times the hash.
    return hash('sha256', input, 'binary')
  }

  #add({ sum }: Shard, term: string, sign: 1 | -1): void {
    const all = this.#sum
    for (let word = 0; word < SUM_WORDS; word++) {
      const unsigned = wordOf(term, word) | 0
      const value = sign === 1 ? unsigned : -unsigned | 0
      sum[word] = ((sum[word] ?? 0) + value) | 0
      all[word] = ((all[word] ?? 0) + value) | 0
    }
  }

  /** All batches up to this one are durable. */
  confirm({ counter }: PendingBatch): void {
    let count = 0
    for (const pending of this.#pendingBatches) {
      if (pending.counter > counter) break
      count++
      for (const { path } of pending.changes) {
        const queued = this.#queuedChanges.get(path)
        if (queued && queued.length > 1) queued.shift()
        else this.#queuedChanges.delete(path)
      }
    }
    if (count === this.#pendingBatches.length) this.#pendingBatches = []
    else if (count > 0) this.#pendingBatches.splice(0, count)
  }

  /** Reverts the newest batch. */
  #undo({ changes, counter }: PendingBatch): void {
    for (const { path, id, before } of changes.toReversed()) this.#change(path, before, id)
    this.#counter = counter - 1
  }

  /** Reverts the last bound batch, which could not be queued. */
  withdraw(pending: PendingBatch): void {
    if (this.#pendingBatches.at(-1) !== pending) throw new Fault('only the newest batch can be withdrawn')
    this.#pendingBatches.pop()
    for (const { path } of pending.changes) {
      const queued = this.#queuedChanges.get(path)
      queued?.pop()
      if (queued?.length === 0) this.#queuedChanges.delete(path)
    }
    this.#undo(pending)
  }

  /** Reverts all batches after the durable head. False when the set does not match that head. */
  fallBack(head: EntrySetHead): boolean {
    const reverted = this.#pendingBatches
    this.#pendingBatches = []
    this.#queuedChanges.clear()
    for (const pending of reverted.toReversed()) if (pending.counter > head.counter) this.#undo(pending)
    return this.fits(head)
  }

  fits({ counter, sum }: EntrySetHead): boolean {
    return counter === this.#counter && sum.every((word, at) => word === this.#sum[at])
  }

  /** Throws RollbackError unless `value` is the last written state of the path, or a queued one. */
  check(path: string, value: Uint8Array | undefined): void {
    if (!isBound(path)) return
    const found = value && markOf(value)
    const id = this.#idOf(path)
    const known = this.#shardOf(id).table.get(id)
    if (isSame(found, known)) return
    const isQueued = ({ before, after }: EntryChange) => isSame(found, before) || isSame(found, after)
    if (this.#queuedChanges.get(path)?.some(isQueued)) return
    throw new RollbackError(path, !found ? 'removed' : known ? 'replaced' : 'put back')
  }

  /** Paths with queued changes. */
  get queuedPaths(): Iterable<string> {
    return this.#queuedChanges.keys()
  }

  has(path: string): boolean {
    const id = this.#idOf(path)
    return this.#shardOf(id).table.get(id) !== undefined
  }

  /** Adds an entry of the database while the set is built. */
  add(path: string, tail: Uint8Array): void {
    if (isBound(path)) this.#change(path, markOf(tail), this.#hashOf(path))
  }

  /** Applies log rows to the shards that are older than the row. */
  replay(rows: LoggedEntries, isOlder: (shard: number, sequence: number) => boolean): void {
    for (const [path, { mark, sequence }] of rows.newest) {
      const id = this.#hashOf(path)
      if (!isOlder(id.hi >>> SHARD_SHIFT, sequence)) continue
      const shard = this.#shardOf(id)
      this.#move(shard, id, { mark: shard.table.get(id) }, mark)
    }
  }

  /** Sets the counter of a set that was built from entries. */
  setCounter(counter: number): void {
    this.#counter = counter
  }

  encodeShard(at: number): Buffer {
    const { table, sum } = this.#shards[at] ?? { table: new MarkTable(), sum: new Int32Array(SUM_WORDS) }
    return Buffer.concat([encodeSum(sum), table.encode()])
  }

  /** Loads a shard into an empty set. False for malformed bytes. */
  decodeShard(at: number, bytes: Buffer): boolean {
    const shard = this.#shards[at]
    const table = bytes.length >= SUM_BYTES ? MarkTable.decode(bytes.subarray(SUM_BYTES)) : undefined
    if (!shard || !table) return false
    shard.table = table
    shard.sum.set(decodeSum(bytes))
    for (let word = 0; word < SUM_WORDS; word++) this.#sum[word] = (this.#sum[word] ?? 0) + (shard.sum[word] ?? 0)
    return true
  }

  /** The head after the last bound batch: format, nonce, counter, the sum encrypted with a one-time pad, and a MAC. */
  sealHead(): Buffer {
    // Built in the hash input, after the key.
    const input = this.#headInput
    input[PREFIX_BYTES] = HEAD_FORMAT
    input.set(freshNonce(), PREFIX_BYTES + NONCE_AT)
    input.writeUIntBE(this.#counter, PREFIX_BYTES + COUNTER_AT, COUNTER_BYTES)
    input[SET_KEY_BYTES] = OF_PAD
    const pad = hash('sha256', this.#padInput, 'binary')
    for (let word = 0; word < SUM_WORDS; word++) {
      input.writeInt32LE((this.#sum[word] ?? 0) ^ wordOf(pad, word), PREFIX_BYTES + SUM_AT + word * 4)
    }
    input[SET_KEY_BYTES] = OF_MAC
    const mac = hash('sha256', input, 'binary')
    // From the pool: each head is replaced by the next batch. Every byte is written below.
    const head = Buffer.allocUnsafe(HEAD_BYTES)
    input.copy(head, 0, PREFIX_BYTES)
    head.write(mac, MAC_AT, MAC_BYTES, 'latin1')
    return head
  }

  /** Undefined for a head that was not made with this key. */
  openHead(head: Uint8Array): EntrySetHead | undefined {
    if (head.length !== HEAD_BYTES || head[0] !== HEAD_FORMAT) return undefined
    const bytes = Buffer.from(head)
    const mac = Buffer.from(this.#headDigest(OF_MAC, bytes.subarray(0, MAC_AT)), 'binary')
    if (!timingSafeEqual(mac.subarray(0, MAC_BYTES), bytes.subarray(MAC_AT))) return undefined
    const pad = this.#headDigest(OF_PAD, bytes.subarray(0, SUM_AT))
    const sum = decodeSum(bytes.subarray(SUM_AT)).map((word, at) => word ^ wordOf(pad, at))
    return { counter: bytes.readUIntBE(COUNTER_AT, COUNTER_BYTES), sum }
  }

  #headDigest(use: number, bytes: Uint8Array): string {
    const input = this.#headInput
    input[SET_KEY_BYTES] = use
    input.set(bytes, PREFIX_BYTES)
    return hash('sha256', input.subarray(0, PREFIX_BYTES + bytes.length), 'binary')
  }

  #shardOf({ hi }: EntryMark): Shard {
    const shard = this.#shards[hi >>> SHARD_SHIFT]
    if (!shard) throw new Fault('invalid shard number')
    return shard
  }

  /** Cached: some paths are read with each write, such as settings and folders of an engine. */
  #idOf(path: string): EntryMark {
    let id = this.#ids.get(path)
    if (id) return id
    id = this.#hashOf(path)
    if (this.#ids.size >= IDS_MAX) this.#ids.clear()
    this.#ids.set(path, id)
    return id
  }

  #hashOf(path: string): EntryMark {
    const digest = hash('sha256', this.#pathInputOf(path), 'binary')
    // 0 marks a free slot of the table.
    return { hi: wordOf(digest, 0) || 1, lo: wordOf(digest, 1) }
  }

  /** Views are cached by length: most paths have one of a few lengths, and creating a view costs a sixth of the hash. */
  #pathInputOf(path: string): Buffer {
    const input = this.#pathInput
    if (path.length * BYTES_PER_CODE_UNIT_MAX > PATH_BYTES) {
      return Buffer.concat([input.subarray(0, PREFIX_BYTES), Buffer.from(path)])
    }
    const length = PREFIX_BYTES + input.write(path, PREFIX_BYTES)
    return (this.#pathViews[length] ??= input.subarray(0, length))
  }
}

function encodeSum(sum: Int32Array): Buffer {
  const out = Buffer.alloc(SUM_BYTES)
  for (let word = 0; word < SUM_WORDS; word++) out.writeInt32LE(sum[word] ?? 0, word * 4)
  return out
}

function decodeSum(bytes: Buffer): Int32Array {
  return Int32Array.from({ length: SUM_WORDS }, (_, word) => bytes.readInt32LE(word * 4))
}

/** Whether the set covers a path. */
export function isBound(path: string): boolean {
  return path !== HEAD_PATH && !path.startsWith(LOCAL_PREFIX) && !SEAL_PATHS.has(path)
}

/** The mark of entries without content. */
const EMPTY_MARK: EntryMark = { hi: 0, lo: 0 }

/** The first 8 bytes of the tag of a ciphertext. */
function markOf(value: Uint8Array): EntryMark {
  // An out-of-bounds read before the first byte costs more than a hash.
  if (value.length === 0) return EMPTY_MARK
  const at = value.length - TAG_BYTES
  return { hi: wordAt(value, at), lo: wordAt(value, at + 4) }
}

function wordAt(value: Uint8Array, at: number): number {
  const high = ((value[at] ?? 0) << 24) | ((value[at + 1] ?? 0) << 16)
  return (high | ((value[at + 2] ?? 0) << 8) | (value[at + 3] ?? 0)) >>> 0
}

function isSame(a: EntryMark | undefined, b: EntryMark | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.hi === b.hi && a.lo === b.lo
}

/** 32 bits of a digest in a binary string. */
function wordOf(digest: string, word: number): number {
  const at = word * 4
  const high = (digest.charCodeAt(at) << 24) | (digest.charCodeAt(at + 1) << 16)
  return (high | (digest.charCodeAt(at + 2) << 8) | digest.charCodeAt(at + 3)) >>> 0
}
