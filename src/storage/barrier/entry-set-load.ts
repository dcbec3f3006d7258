/**
 * Loads the entry set when the barrier opens, in a time that does not grow with the number of entries: from stored copies of its parts
 * (*shards*, local entries `local/entry-set/NN`) and the later rows of the log. Neither is trusted: the result must have the sum of the
 * head. If a shard or a row is missing or was changed, the set is built from the entries themselves, which must have that sum.
 *
 * Also verifies the entries of a standby server (`verifiedSet`): all of them are read, and must have the sum of their newest head. So a
 * rollback of some entries is found before any of them grants a right.
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { Fault } from '../../platform/errors.ts'
import { HEAD_PATH, LOCAL_PREFIX } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { EntrySetMismatch, EntrySet, type EntrySetHead, LoggedEntries, SHARDS } from './entry-set.ts'

const ROWS_PER_READ = 256
/** Entries collected from rows before the set is updated, so that an entry with many changes is hashed once. */
const LOGGED_MAX = 20_000
const ENTRIES_PER_READ = 1000

export function shardPath(at: number): string {
  return `${LOCAL_PREFIX}entry-set/${String(at).padStart(2, '0')}`
}

/** Decrypts a shard. Throws for a damaged one. */
type DecryptShard = (path: string, value: Uint8Array) => Buffer

/**
 * `newest`: the newest head, queued or durable. `isQuick`: loaded from shards. Throws EntrySetMismatch when the entries do not match the
 * head, and for a malformed head.
 */
export function loadEntrySet(
  store: Store,
  key: Buffer,
  newest: Uint8Array | undefined,
  decryptShard: DecryptShard,
): { set: EntrySet; isQuick: boolean } {
  const opener = new EntrySet(key)
  const head = newest && opener.openHead(newest)
  opener.close()
  if (!head) throw new EntrySetMismatch()
  const quick = setFromShards(store, key, head, decryptShard)
  if (quick) return { set: quick, isQuick: true }
  const set = durableEntries(store, key)
  addQueued(store, set, head.counter)
  if (set.fits(head)) return { set, isQuick: false }
  set.close()
  throw new EntrySetMismatch()
}

/** Adds batches that were queued before the barrier was sealed and opened again. */
function addQueued(store: Store, set: EntrySet, counter: number): void {
  const queued = (store.queued?.() ?? []).filter(({ puts }) => puts.some(({ path }) => path === HEAD_PATH))
  set.setCounter(counter - queued.length)
  for (const batch of queued) set.bind(batch)
}

function setFromShards(
  store: Store,
  key: Buffer,
  head: EntrySetHead,
  decryptShard: DecryptShard,
): EntrySet | undefined {
  const set = new EntrySet(key)
  const sequences: number[] = []
  try {
    for (let at = 0; at < SHARDS; at++) {
      const entry = store.get(shardPath(at))
      if (!entry || !set.decodeShard(at, decryptShard(shardPath(at), entry.value)))
        throw new Fault('a shard is missing')
      sequences.push(entry.sequence)
    }
    replay(store, set, sequences)
    addQueued(store, set, head.counter)
    if (set.fits(head)) return set
  } catch {
    // The set is then built from the entries.
  }
  set.close()
  return undefined
}

/** Throws when rows are missing. */
function replay(store: Store, set: EntrySet, sequences: readonly number[]): void {
  const isOlder = (shard: number, sequence: number) => (sequences[shard] ?? 0) < sequence
  let logged = new LoggedEntries()
  for (let after = Math.min(...sequences); ; ) {
    const { newest, oldest, rows } = store.history?.(after, ROWS_PER_READ) ?? { oldest: 0, newest: 0, rows: [] }
    if (after < oldest) throw new Fault('the log does not reach back far enough')
    for (const { batch, sequence } of rows) logged.add(batch, sequence)
    const last = rows.at(-1)
    const isOver = !last || last.sequence >= newest
    if (isOver || logged.newest.size > LOGGED_MAX) {
      set.replay(logged, isOlder)
      logged = new LoggedEntries()
    }
    if (isOver) return
    after = last.sequence
  }
}

/** Builds the set from all entries and queued batches. Reads every entry. */
export function setFromEntries(store: Store, key: Buffer): EntrySet {
  const set = durableEntries(store, key)
  for (const batch of store.queued?.() ?? []) set.bind(batch)
  return set
}

function durableEntries(store: Store, key: Buffer): EntrySet {
  const set = new EntrySet(key)
  for (let after = ''; ; ) {
    const tails = tailsOf(store, after, ENTRIES_PER_READ)
    for (const { path, tail } of tails) set.add(path, tail)
    const last = tails.at(-1)
    if (!last) return set
    after = last.path
  }
}

export function tailsOf(store: Store, after: string, limit: number): { path: string; tail: Uint8Array }[] {
  if (store.tails) return store.tails(after, limit)
  const paths = store.paths('', { after, limit })
  return paths.flatMap((path) => {
    const entry = store.get(path)
    return entry ? [{ path, tail: entry.value }] : []
  })
}

/**
 * Verifies all entries of a standby server while rows of another server's log are applied. Entries are read in pages, so that the event
 * loop continues; the rows since the first page are then applied to the set, which results in the state of the last row. Resolves, in
 * the same turn as the comparison, to the set of the current entries, which the caller closes. Rejects with EntrySetMismatch, also
 * when entries changed without the log (a copy, a repair): the caller retries. An older database as a whole passes; it is detected by
 * `storage/store/rollback-check.ts`.
 */
export async function verifiedSet(store: Store, key: Buffer): Promise<EntrySet> {
  const set = new EntrySet(key)
  try {
    const from = store.history?.(0, 0).newest ?? 0
    for (let after = ''; ; ) {
      const tails = tailsOf(store, after, ENTRIES_PER_READ)
      for (const { path, tail } of tails) set.add(path, tail)
      const last = tails.at(-1)
      if (!last) break
      after = last.path
      await nextTurn()
    }
    const value = applyRows(store, set, from) ?? store.get(HEAD_PATH)?.value
    const head = value && set.openHead(value)
    if (!head) throw new EntrySetMismatch()
    set.setCounter(head.counter)
    if (!set.fits(head)) throw new EntrySetMismatch()
    return set
  } catch (error) {
    set.close()
    throw error
  }
}

/** Applies the rows after `from` to the set. Returns the newest head among them. */
function applyRows(store: Store, set: EntrySet, from: number): Uint8Array | undefined {
  const logged = new LoggedEntries()
  let head: Uint8Array | undefined
  for (let after = from; ; ) {
    const { oldest, rows } = store.history?.(after, ROWS_PER_READ) ?? { oldest: 0, rows: [] }
    if (after < oldest) throw new EntrySetMismatch()
    const last = rows.at(-1)
    if (!last) break
    for (const { batch, sequence } of rows) {
      logged.add(batch, sequence)
      head = batch.puts.findLast(({ path }) => path === HEAD_PATH)?.value ?? head
    }
    after = last.sequence
  }
  set.replay(logged, () => true)
  return head
}
