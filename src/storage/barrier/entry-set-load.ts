/**
 * How an entry set comes into memory when the barrier opens, in a time that does not grow with the entries: from copies of its parts
 * (*shards*, `local/entry-set/NN`, in the database and in no log and no snapshot) and the rows of the log since. Neither is
 * believed: what comes out must have the sum that the head says. Where a shard or a row is missing, or an attacker has
 * changed some, the set is made from the entries themselves, and then those must have that sum.
 */
import { Fault } from '../../platform/errors.ts'
import { HEAD_PATH, LOCAL_PREFIX } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { EntriesChanged, EntrySet, type Head, LoggedEntries, SHARDS } from './entry-set.ts'

const ROWS_AT_ONCE = 256
/** Entries that are gathered from rows before the set is changed: an entry that many rows change costs once. */
const LOGGED_MAX = 20_000
export const ENTRIES_AT_ONCE = 1000

export function shardPath(at: number): string {
  return `${LOCAL_PREFIX}entry-set/${String(at).padStart(2, '0')}`
}

/** Opens a shard; throws for a damaged one. */
type Open = (path: string, value: Uint8Array) => Buffer

/**
 * `newest` is the newest head, queued or durable. `isQuick`: made from shards. Throws EntriesChanged when there are other entries
 * than the head stands for, and for a head that is none.
 */
export function loadEntrySet(
  store: Store,
  key: Buffer,
  newest: Uint8Array | undefined,
  open: Open,
): { set: EntrySet; isQuick: boolean } {
  const opener = new EntrySet(key)
  const head = newest && opener.openHead(newest)
  opener.close()
  if (!head) throw new EntriesChanged()
  const quick = fromShards(store, key, head, open)
  if (quick) return { set: quick, isQuick: true }
  const set = durableEntries(store, key)
  addQueued(store, set, head.counter)
  if (set.fits(head)) return { set, isQuick: false }
  set.close()
  throw new EntriesChanged()
}

/** What is queued becomes part of the set, as the barrier before this one was sealed while it was under way. */
function addQueued(store: Store, set: EntrySet, counter: number): void {
  const queued = (store.queued?.() ?? []).filter(({ puts }) => puts.some(({ path }) => path === HEAD_PATH))
  set.goOn(counter - queued.length)
  for (const batch of queued) set.bind(batch)
}

function fromShards(store: Store, key: Buffer, head: Head, open: Open): EntrySet | undefined {
  const set = new EntrySet(key)
  const sequences: number[] = []
  try {
    for (let at = 0; at < SHARDS; at++) {
      const entry = store.get(shardPath(at))
      if (!entry || !set.decodeShard(at, open(shardPath(at), entry.value))) throw new Fault('a shard is missing')
      sequences.push(entry.sequence)
    }
    replay(store, set, sequences)
    addQueued(store, set, head.counter)
    if (set.fits(head)) return set
  } catch {
    // Whatever is wrong with them, the entries themselves tell.
  }
  set.close()
  return undefined
}

/** Throws where rows are missing. */
function replay(store: Store, set: EntrySet, sequences: readonly number[]): void {
  const isOlder = (shard: number, sequence: number) => (sequences[shard] ?? 0) < sequence
  let logged = new LoggedEntries()
  for (let after = Math.min(...sequences); ; ) {
    const { newest, oldest, rows } = store.history?.(after, ROWS_AT_ONCE) ?? { oldest: 0, newest: 0, rows: [] }
    if (after < oldest) throw new Fault('the log does not go back so far')
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

/** The set of the entries that are there, and of what is queued. It costs a look at each of them. */
export function fromEntries(store: Store, key: Buffer): EntrySet {
  const set = durableEntries(store, key)
  for (const batch of store.queued?.() ?? []) set.bind(batch)
  return set
}

function durableEntries(store: Store, key: Buffer): EntrySet {
  const set = new EntrySet(key)
  for (let after = ''; ; ) {
    const tails = tailsOf(store, after, ENTRIES_AT_ONCE)
    for (const { path, tail } of tails) set.take(path, tail)
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
