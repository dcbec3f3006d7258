/**
 * Verifies the entries of a server that stands by: all of them are read and must have the sum that their newest head holds
 * (`entry-set.ts`). So an old state of some entries that another program put back is found before any of them gives a right.
 *
 * The entries change meanwhile, as rows of another server's log are applied. Entries are read page by page, so that the event
 * loop goes on; the rows of the log since the first page are then applied to the set, and leave it in the state of the last row.
 *
 * What can go wrong. Entries that change beside the log meanwhile (a copy, a repair) do not fit either: the caller verifies
 * again. The database as a whole may be an older one: it fits (`storage/store/seen-position.ts` tells).
 */
import { setImmediate as nextTurn } from 'node:timers/promises'
import { HEAD_PATH } from '../sqlite/batch.ts'
import type { Store } from '../store/store.ts'
import { EntriesChanged, EntrySet, LoggedEntries } from './entry-set.ts'
import { ENTRIES_AT_ONCE, tailsOf } from './entry-set-load.ts'

const ROWS_AT_ONCE = 256

/**
 * Resolves, in the turn in which the last comparison was made, with the set of the entries of that turn. The caller closes it.
 * Rejects with EntriesChanged.
 */
export async function verifiedSet(store: Store, key: Buffer): Promise<EntrySet> {
  const set = new EntrySet(key)
  try {
    const from = store.history?.(0, 0).newest ?? 0
    for (let after = ''; ; ) {
      const tails = tailsOf(store, after, ENTRIES_AT_ONCE)
      for (const { path, tail } of tails) set.take(path, tail)
      const last = tails.at(-1)
      if (!last) break
      after = last.path
      await nextTurn()
    }
    const value = applyRows(store, set, from) ?? store.get(HEAD_PATH)?.value
    const head = value && set.openHead(value)
    if (!head) throw new EntriesChanged()
    set.goOn(head.counter)
    if (!set.fits(head)) throw new EntriesChanged()
    return set
  } catch (error) {
    set.close()
    throw error
  }
}

/** What the rows behind `from` made of the entries. Returns the newest head among them. */
function applyRows(store: Store, set: EntrySet, from: number): Uint8Array | undefined {
  const logged = new LoggedEntries()
  let head: Uint8Array | undefined
  for (let after = from; ; ) {
    const { oldest, rows } = store.history?.(after, ROWS_AT_ONCE) ?? { oldest: 0, rows: [] }
    if (after < oldest) throw new EntriesChanged()
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
