/** Two stores on real databases, and functions that replicate one to the other like the link between clusters. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import type { TestContext } from 'node:test'
import { HEAD_PATH, type Batch } from '../../src/storage/sqlite/batch.ts'
import type { ReplicaEntry } from '../../src/storage/store/replica.ts'
import { SqliteStore, type StoreOptions } from '../../src/storage/store/store.ts'
import type { Random } from './frames.ts'
import { temporaryDirectory } from './temporary-directory.ts'

export async function openStore(t: TestContext, name: string, options: StoreOptions = {}): Promise<SqliteStore> {
  const store = await SqliteStore.open(join(temporaryDirectory(t), `${name}.db`), options)
  t.after(() => store.close())
  return store
}

export async function openReplica(t: TestContext): Promise<SqliteStore> {
  const replica = await openStore(t, 'replica')
  await replica.setRole('replica')
  return replica
}

export const put = (path: string, value = path) => ({ path, value: Buffer.from(value) })

/** Every replicated entry with its sequence, checksum and value, read from the database. */
export function entriesOf({ path }: { readonly path: string }): string[] {
  const database = new DatabaseSync(path, { readOnly: true })
  try {
    const rows = database.prepare("SELECT * FROM entries WHERE path NOT LIKE 'local/%' ORDER BY path").all()
    return rows.map(({ path: name, sequence, crc, value }) => {
      const sum = createHash('sha256')
        .update(value instanceof Uint8Array ? value : '')
        .digest('hex')
      return [name, sequence, crc, sum.slice(0, 16)].join(' ')
    })
  } finally {
    database.close()
  }
}

export function positionOf(store: SqliteStore): string {
  const { sequence, epoch, checksum } = store.position()
  return `${sequence} ${epoch} ${Buffer.from(checksum).toString('hex')}`
}

/** A batch that inserts, updates and deletes, with the header of barrier batches. */
export function randomBatch(random: Random, names = 60): Batch {
  const paths = new Set(Array.from({ length: random.between(1, 6) }, () => `e/${random.between(1, names)}`))
  const [puts, deletes]: [Batch['puts'][number][], string[]] = [[], []]
  for (const path of paths) {
    if (random.chance(0.25)) deletes.push(path)
    else puts.push({ path, value: Buffer.alloc(random.between(0, 3000), random.between(0, 255)) })
  }
  if (random.chance(0.8)) puts.push({ path: HEAD_PATH, value: Buffer.alloc(40, random.between(0, 255)) })
  return { puts, deletes }
}

/** Applies missing log rows of the primary, at most `most` rows at a time. */
export async function ship(from: SqliteStore, to: SqliteStore, most = 7): Promise<void> {
  for (;;) {
    const rows = from.rowsAfter(to.position().sequence, { rows: most, bytes: 1 << 20 })
    if (rows.length === 0) return
    await to.applyRows(rows)
  }
}

/** Differing subpages according to both trees, and the leaves of these and the given subpages. */
export async function differences(primary: SqliteStore, replica: SqliteStore, alsoIn: readonly number[] = []) {
  const [theirs, ours] = [await primary.tree.pages(), await replica.tree.pages()]
  const pages = theirs.flatMap((hash, page) => (hash.equals(ours[page] ?? Buffer.alloc(0)) ? [] : [page]))
  const [theirSubpages, ourSubpages] = [await primary.tree.subpages(pages), await replica.tree.subpages(pages)]
  const subpages = new Set<number>(alsoIn)
  for (const page of pages) {
    theirSubpages.get(page)?.forEach((hash, at) => {
      if (!hash.equals(ourSubpages.get(page)?.[at] ?? Buffer.alloc(0))) subpages.add(page * 256 + at)
    })
  }
  const [there, here] = [await leavesOf(primary, subpages), await leavesOf(replica, subpages)]
  const wanted = [...there].filter(([path, leaf]) => here.get(path) !== leaf).map(([path]) => path)
  return { subpages, wanted, deletes: [...here.keys()].filter((path) => !there.has(path)) }
}

export async function leavesOf(store: SqliteStore, subpages: ReadonlySet<number>): Promise<Map<string, string>> {
  const found = new Map<string, string>()
  for (let after: string | undefined = ''; after !== undefined; ) {
    const page: Awaited<ReturnType<SqliteStore['tree']['leaves']>> = await store.tree.leaves(subpages, after, 50)
    for (const { path, leaf } of page.leaves) found.set(path, leaf.toString('hex'))
    after = page.after
  }
  return found
}

/**
 * Copies the differences in pieces; `between` is called before each piece, and may commit to the primary. Resolves with
 * the copied entries.
 */
export async function copy(
  primary: SqliteStore,
  replica: SqliteStore,
  { between = async () => {}, piece = 10 }: { between?: (step: string) => Promise<void>; piece?: number } = {},
): Promise<ReplicaEntry[]> {
  await primary.tree.enable()
  await replica.tree.enable()
  await replica.beginCopy(primary.position(), primary.clusterId)
  await between('begun')
  const { wanted, deletes } = await differences(primary, replica)
  let end = primary.position().sequence
  await replica.copyEntries([], deletes)
  const copied: ReplicaEntry[] = []
  for (let at = 0; at < wanted.length; at += piece) {
    await between(`piece ${at}`)
    const { sequence, entries, missing } = primary.entriesAt(wanted.slice(at, at + piece))
    await replica.copyEntries(entries, missing)
    copied.push(...entries)
    end = sequence
  }
  await between('copied')
  while (replica.position().sequence < end) {
    await replica.applyRows(primary.rowsAfter(replica.position().sequence, { rows: 5, bytes: 1 << 20 }))
    await between('applied')
  }
  await replica.finishCopy()
  return copied
}
