/**
 * Which entries there are, and which state of each is the newest: what tells an old ciphertext from the current one, and an
 * entry that was removed or put back below the barrier from one that the program removed or wrote.
 *
 * Promises. Each entry has a *mark*: 8 bytes of its ciphertext's tag, which nobody can choose without the key. The set keeps
 * the mark of every entry in memory, 16 bytes each under an ID that is a keyed hash of the path. Whatever the database gives
 * for a path is compared with it: `check` throws RolledBack. Every batch carries the *head* of the set, an entry that is
 * encrypted like any other: how many batches there were, and a sum over all pairs of path and mark (a keyed
 * multiset hash: pseudo-random terms, added in a group of 2^256 elements, so a change of one entry costs two terms). The head is
 * in the same transaction as what it stands for, so it is right after a crash, in a snapshot and on a secondary.
 *
 * Assumes that the sum stays secret: the terms are known to nobody without the key, so a state of entries that fits a head
 * of another state is found by guessing alone (see docs/decisions/033).
 *
 * What can go wrong. A database as a whole may be that of another day: each of its states fits its own head. That is a
 * restore; nothing in the file tells it from a rollback. Not in the set: the head itself, what belongs to the machine
 * (`local/`), and what the seal writes while the barrier is closed.
 */
import { hash, timingSafeEqual } from 'node:crypto'
import { Fault, Refusal } from '../../platform/errors.ts'
import { PassingMap } from '../../platform/passing.ts'
import { type Batch, HEAD_PATH, LOCAL_PREFIX } from '../sqlite/batch.ts'
import { type Mark, MarkTable } from './mark-table.ts'
import { freshNonce } from './cipher.ts'
import { SEAL_PATHS } from './seal-entries.ts'

export const SET_KEY_BYTES = 32
export const SUM_WORDS = 8
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
/** Behind the key, in front of what is hashed: inputs of one use all have one length, and are of no other use. */
const OF_PATH = 1
const OF_TERM = 2
const OF_PAD = 3
const OF_MAC = 4
/** Of the key and the byte behind it. */
const PREFIX_BYTES = SET_KEY_BYTES + 1
const PATH_BYTES = 4096
/** In UTF-8. */
const BYTES_OF_CHARACTER_MAX = 3
/** IDs that are remembered; past that, all are forgotten. */
const IDS_MAX = 128

export const WHAT_TO_DO = 'Move the database away and restore a snapshot'

export type Rollback = 'replaced' | 'removed' | 'put back'

const SAID: Readonly<Record<Rollback, string>> = {
  replaced: 'is not in its newest state: an older one was put in its place',
  removed: 'is missing: another program removed it',
  'put back': 'should not be there: another program put it back',
}

/**
 * What the database gives for a path is not what was last written there. A Refusal, as it tells whoever asks what to do;
 * the path is for the log.
 */
export class RolledBack extends Refusal {
  readonly kind: Rollback
  readonly path: string

  constructor(path: string, kind: Rollback) {
    super('host_error', `the database was changed: an entry that is needed here ${SAID[kind]}. ${WHAT_TO_DO}`)
    this.kind = kind
    this.path = path
  }
}

/** The entries as a whole do not fit their head. */
export class EntriesChanged extends Refusal {
  /** `next`: what the operator does about it. */
  constructor(next = WHAT_TO_DO) {
    super(
      'host_error',
      `the database was changed by another program: some entries are older than others, were removed or put back. ${next}`,
    )
  }
}

/** What the head says. */
export interface Head {
  /** Batches since the set began. */
  readonly counter: number
  readonly sum: Int32Array
}

interface Change {
  readonly path: string
  readonly id: Mark
  readonly before: Mark | undefined
  readonly after: Mark | undefined
  /** That of `after`, where there is one: what the next change of the entry takes out of the sum. */
  readonly term: string | undefined
}

/** A batch that is queued. */
export interface Flight {
  readonly counter: number
  readonly changes: readonly Change[]
}

interface Shard {
  table: MarkTable
  readonly sum: Int32Array
}

/** What rows of the log, taken in order, say of entries: the newest word on each is the one that counts. */
export class LoggedEntries {
  readonly newest = new Map<string, { readonly mark: Mark | undefined; readonly sequence: number }>()

  add({ puts, deletes }: Batch, sequence: number): void {
    for (const { path, value } of puts) if (isBound(path)) this.newest.set(path, { mark: markOf(value), sequence })
    for (const path of deletes) if (isBound(path)) this.newest.set(path, { mark: undefined, sequence })
  }
}

/** Told when an entry comes or goes, see `entry-pass.ts`. */
export type Watcher = (path: string, step: 1 | -1) => void

export class EntrySet {
  readonly #pathInput = Buffer.alloc(PREFIX_BYTES + PATH_BYTES)
  /** Beginnings of `#pathInput`, by their length. */
  readonly #pathViews: (Buffer | undefined)[] = []
  readonly #termInput = Buffer.alloc(PREFIX_BYTES + 16)
  readonly #headInput = Buffer.alloc(PREFIX_BYTES + MAC_AT)
  /** Of the same bytes, those in front of the sum. */
  readonly #padInput = this.#headInput.subarray(0, PREFIX_BYTES + SUM_AT)
  readonly #shards: Shard[] = Array.from({ length: SHARDS }, () => ({
    table: new MarkTable(),
    sum: new Int32Array(SUM_WORDS),
  }))
  readonly #sum = new Int32Array(SUM_WORDS)
  /** Of paths that were asked for lately. */
  readonly #ids = new Map<string, Mark>()
  #counter = 0
  #flights: Flight[] = []
  /** What is queued for a path, in order: the database may have any of it, or still what was before. */
  readonly #inFlight = new PassingMap<string, Change[]>()
  watcher: Watcher | undefined

  /** `key` is copied; `close` overwrites the copy. */
  constructor(key: Buffer) {
    if (key.length !== SET_KEY_BYTES) throw new Fault('the key of the entry set has 32 bytes')
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

  /** The set as it is once the batch is durable. The caller queues the batch, with `head` in it, right after. */
  bind({ puts, deletes }: Batch): Flight {
    const changes: Change[] = []
    for (const { path, value } of puts) if (isBound(path)) changes.push(this.#queue(path, markOf(value)))
    for (const path of deletes) if (isBound(path)) changes.push(this.#queue(path, undefined))
    const flight = { counter: ++this.#counter, changes }
    this.#flights.push(flight)
    return flight
  }

  /** Where a change of the entry is queued already, its ID and what it stands for in the sum are known. */
  #queue(path: string, after: Mark | undefined): Change {
    const queued = this.#inFlight.get(path)
    const newest = queued?.at(-1)
    const change = this.#change(path, after, newest?.id, newest?.term)
    if (queued) queued.push(change)
    else this.#inFlight.set(path, [change])
    return change
  }

  /** Most paths that are written are new, and are asked for no more: their IDs are not remembered. */
  #change(
    path: string,
    after: Mark | undefined,
    id = this.#ids.get(path) ?? this.#hashOf(path),
    termBefore?: string,
  ): Change {
    const shard = this.#shardOf(id)
    const before = shard.table.get(id)
    const term = this.#move(shard, id, { mark: before, term: termBefore }, after)
    if (this.watcher && !before !== !after) this.watcher(path, after ? 1 : -1)
    return { path, id, before, after, term }
  }

  /** Returns the term of what is there then. */
  #move(
    shard: Shard,
    id: Mark,
    before: { readonly mark: Mark | undefined; readonly term?: string | undefined },
    after: Mark | undefined,
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

  #termOf(id: Mark, { hi, lo }: Mark): string {
    const input = this.#termInput
    input.writeUInt32LE(id.hi, PREFIX_BYTES)
    input.writeUInt32LE(id.lo, PREFIX_BYTES + 4)
    input.writeUInt32LE(hi, PREFIX_BYTES + 8)
    input.writeUInt32LE(lo, PREFIX_BYTES + 12)
    // As text of one byte a character: a Buffer would cost three times the hash.
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

  /** Everything up to this batch is durable. */
  settle({ counter }: Flight): void {
    let settled = 0
    for (const flight of this.#flights) {
      if (flight.counter > counter) break
      settled++
      for (const { path } of flight.changes) {
        const queued = this.#inFlight.get(path)
        if (queued && queued.length > 1) queued.shift()
        else this.#inFlight.delete(path)
      }
    }
    if (settled === this.#flights.length) this.#flights = []
    else if (settled > 0) this.#flights.splice(0, settled)
  }

  /** The newest batch was not queued, or did not become durable. */
  #undo({ changes, counter }: Flight): void {
    for (const { path, id, before } of changes.toReversed()) this.#change(path, before, id)
    this.#counter = counter - 1
  }

  /** The batch that was bound last was not queued. */
  withdraw(flight: Flight): void {
    if (this.#flights.at(-1) !== flight) throw new Fault('a batch is withdrawn that is not the newest')
    this.#flights.pop()
    for (const { path } of flight.changes) {
      const queued = this.#inFlight.get(path)
      queued?.pop()
      if (queued?.length === 0) this.#inFlight.delete(path)
    }
    this.#undo(flight)
  }

  /** What was queued behind the durable head did not come to be. False when the set does not fit that head then. */
  fallBack(head: Head): boolean {
    const flights = this.#flights
    this.#flights = []
    this.#inFlight.clear()
    for (const flight of flights.toReversed()) if (flight.counter > head.counter) this.#undo(flight)
    return this.fits(head)
  }

  fits({ counter, sum }: Head): boolean {
    return counter === this.#counter && sum.every((word, at) => word === this.#sum[at])
  }

  /** Throws RolledBack unless this is what was last written there, or is being written. */
  check(path: string, value: Uint8Array | undefined): void {
    if (!isBound(path)) return
    const found = value && markOf(value)
    const id = this.#idOf(path)
    const known = this.#shardOf(id).table.get(id)
    if (isSame(found, known)) return
    const isQueued = ({ before, after }: Change) => isSame(found, before) || isSame(found, after)
    if (this.#inFlight.get(path)?.some(isQueued)) return
    throw new RolledBack(path, !found ? 'removed' : known ? 'replaced' : 'put back')
  }

  /** Paths that something is queued for. */
  get queuedPaths(): Iterable<string> {
    return this.#inFlight.keys()
  }

  has(path: string): boolean {
    const id = this.#idOf(path)
    return this.#shardOf(id).table.get(id) !== undefined
  }

  /** An entry as the database has it, where the set is made anew. */
  take(path: string, tail: Uint8Array): void {
    if (isBound(path)) this.#change(path, markOf(tail), this.#hashOf(path))
  }

  /** What rows of the log made of entries, for the shards that are older than the newest row of an entry. */
  replay(rows: LoggedEntries, isOlder: (shard: number, sequence: number) => boolean): void {
    for (const [path, { mark, sequence }] of rows.newest) {
      const id = this.#hashOf(path)
      if (!isOlder(id.hi >>> SHARD_SHIFT, sequence)) continue
      const shard = this.#shardOf(id)
      this.#move(shard, id, { mark: shard.table.get(id) }, mark)
    }
  }

  /** The set goes on from what a head says, whose sum it has. */
  goOn(counter: number): void {
    this.#counter = counter
  }

  encodeShard(at: number): Buffer {
    const { table, sum } = this.#shards[at] ?? { table: new MarkTable(), sum: new Int32Array(SUM_WORDS) }
    return Buffer.concat([encodeSum(sum), table.encode()])
  }

  /** Into a set that is empty. False for what is no shard. */
  decodeShard(at: number, bytes: Buffer): boolean {
    const shard = this.#shards[at]
    const table = bytes.length >= SUM_BYTES ? MarkTable.decode(bytes.subarray(SUM_BYTES)) : undefined
    if (!shard || !table) return false
    shard.table = table
    shard.sum.set(decodeSum(bytes))
    for (let word = 0; word < SUM_WORDS; word++) this.#sum[word] = (this.#sum[word] ?? 0) + (shard.sum[word] ?? 0)
    return true
  }

  /** As of the batch that was bound last: format, nonce, counter, the sum under a pad that is used once, and a MAC. */
  sealHead(): Buffer {
    // It is made where it is hashed, behind the key.
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
    // A piece of a shared one: each head is gone with the next batch. Each byte is written here.
    const head = Buffer.allocUnsafe(HEAD_BYTES)
    input.copy(head, 0, PREFIX_BYTES)
    head.write(mac, MAC_AT, MAC_BYTES, 'latin1')
    return head
  }

  /** What a head says; undefined for one that was not made with this key. */
  openHead(head: Uint8Array): Head | undefined {
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

  #shardOf({ hi }: Mark): Shard {
    const shard = this.#shards[hi >>> SHARD_SHIFT]
    if (!shard) throw new Fault('there is no such shard')
    return shard
  }

  /** A few paths are asked for with each write: of an engine's settings, of folders. */
  #idOf(path: string): Mark {
    let id = this.#ids.get(path)
    if (id) return id
    id = this.#hashOf(path)
    if (this.#ids.size >= IDS_MAX) this.#ids.clear()
    this.#ids.set(path, id)
    return id
  }

  #hashOf(path: string): Mark {
    const digest = hash('sha256', this.#pathInputOf(path), 'binary')
    // 0 is a slot that is free.
    return { hi: wordOf(digest, 0) || 1, lo: wordOf(digest, 1) }
  }

  /** What is hashed of a path: most have one of a few lengths, and to make a view costs a sixth of the hash. */
  #pathInputOf(path: string): Buffer {
    const input = this.#pathInput
    if (path.length * BYTES_OF_CHARACTER_MAX > PATH_BYTES) {
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

/** Whether the set holds it. */
export function isBound(path: string): boolean {
  return path !== HEAD_PATH && !path.startsWith(LOCAL_PREFIX) && !SEAL_PATHS.has(path)
}

/** Of entries whose path says everything. */
const MARK_OF_NOTHING: Mark = { hi: 0, lo: 0 }

/** Of a ciphertext: a part of its tag. */
function markOf(value: Uint8Array): Mark {
  // To look for what lies in front of the first byte costs more than a hash.
  if (value.length === 0) return MARK_OF_NOTHING
  const at = value.length - TAG_BYTES
  return { hi: wordAt(value, at), lo: wordAt(value, at + 4) }
}

function wordAt(value: Uint8Array, at: number): number {
  const high = ((value[at] ?? 0) << 24) | ((value[at + 1] ?? 0) << 16)
  return (high | ((value[at + 2] ?? 0) << 8) | (value[at + 3] ?? 0)) >>> 0
}

function isSame(a: Mark | undefined, b: Mark | undefined): boolean {
  return a === undefined || b === undefined ? a === b : a.hi === b.hi && a.lo === b.lo
}

/** 32 bits of a digest that is written as one byte a character. */
function wordOf(digest: string, word: number): number {
  const at = word * 4
  const high = (digest.charCodeAt(at) << 24) | (digest.charCodeAt(at + 1) << 16)
  return (high | (digest.charCodeAt(at + 2) << 8) | digest.charCodeAt(at + 3)) >>> 0
}
