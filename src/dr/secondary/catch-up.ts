/**
 * Catch-up beside the log: what differs between the two trees of hashes, and only that, is copied from the primary. A full copy is
 * a difference against nothing, and one that was cut is begun again with what it has.
 *
 * The primary goes on meanwhile. The copy begins at a position of its log that it keeps; entries are read later than that, each at a
 * moment of its own; with the rows of the log since then the copy is whole at the highest position of any of these moments.
 */
import type { ReplicaEntry, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'
import { type LinkClient, LinkError, linkErrorOf } from '../link/link.ts'
import { Parts, PATHS_MAX, type ResponseOf } from '../link/messages.ts'

/** Of one transaction. */
const COPIED_BYTES = 4 << 20
const LOCAL_LEAVES = 4096

export interface Progress {
  /** Entries that differ, as far as the trees were compared. */
  found: number
  /** Of these, entries that were copied or removed. */
  done: number
  bytes: number
}

export interface CatchUpOptions {
  readonly link: LinkClient
  readonly store: ReplicaStore
  readonly from: CommitPosition
  readonly clusterId: string
  readonly progress: Progress
  readonly answerMs: number
  readonly signal: AbortSignal
  /** Entries that the primary cannot read. */
  readonly onDamaged: (paths: readonly string[]) => void
  /** The trees were compared; values are fetched from now on. */
  readonly onDifference: () => void
}

type CopyOptions = Pick<CatchUpOptions, 'link' | 'store' | 'progress' | 'answerMs' | 'signal' | 'onDamaged'> & {
  /** `asOf`: where the primary stood when these were as they are. */
  readonly write: (puts: readonly ReplicaEntry[], deletes: readonly string[], asOf: number) => Promise<void>
}

/** Brings the store to where the primary was. Resolves with the sequence at which the copy is whole. */
export async function copyDifference(options: CatchUpOptions): Promise<number> {
  const { store, from, clusterId } = options
  await store.beginCopy(from, clusterId)
  const differing = await differingSubpages(options)
  options.onDifference()
  const write = (puts: readonly ReplicaEntry[], deletes: readonly string[]) => store.copyEntries(puts, deletes)
  if (differing.size > 0) await new Copy({ ...options, write }).run(differing)
  options.signal.throwIfAborted()
  // Everything that was compared or read is of a moment before this one.
  const { position } = await options.link.call('Ping', {}, options.answerMs)
  return Math.max(from.sequence, position.sequence)
}

/** Numbers of subpages (page × 256 + subpage) that are not the same on both ends. */
export async function differingSubpages({
  link,
  store,
  answerMs,
}: Pick<CatchUpOptions, 'link' | 'store' | 'answerMs'>): Promise<Set<number>> {
  const theirs = await link.call('Pages', {}, answerMs)
  const ours = await store.tree.pages()
  const pages = theirs.pages.flatMap((hash, page) => (ours[page]?.equals(hash) ? [] : [page]))
  const differing = new Set<number>()
  if (pages.length === 0) return differing
  const [{ pages: theirSubpages }, ourSubpages] = await Promise.all([
    link.call('Subpages', { pages, mayCompress: true }, answerMs),
    store.tree.subpages(pages),
  ])
  for (const [page, hashes] of theirSubpages) {
    const own = ourSubpages.get(page)
    for (const [subpage, hash] of hashes.entries()) {
      if (!own?.[subpage]?.equals(hash)) differing.add(page * 256 + subpage)
    }
  }
  return differing
}

/** Brings entries of these subpages from the primary, as `write` takes them. */
export class Copy {
  readonly #options: CopyOptions
  /** Where the primary stood when it last listed. */
  #listedAt = 0
  #wanted: string[] = []
  #deletes: string[] = []

  constructor(options: CopyOptions) {
    this.#options = options
  }

  async run(subpages: ReadonlySet<number>): Promise<void> {
    const { progress } = this.#options
    for await (const { path, kind } of this.#differences(subpages)) {
      progress.found++
      if (kind === 'wanted') this.#wanted.push(path)
      else this.#deletes.push(path)
      if (this.#wanted.length >= PATHS_MAX) await this.#fetch()
      if (this.#deletes.length >= PATHS_MAX) await this.#remove()
    }
    await this.#fetch()
    await this.#remove()
  }

  /** Both listings are in the order of bytes: what only one of them has, or both with different leaves, differs. */
  async *#differences(subpages: ReadonlySet<number>): AsyncGenerator<{ path: string; kind: 'wanted' | 'surplus' }> {
    const [theirs, ours] = [this.#theirs(subpages), this.#ours(subpages)]
    let [their, own] = [await theirs.next(), await ours.next()]
    while (!their.done || !own.done) {
      const order = their.done ? 1 : own.done ? -1 : inBytes(their.value.path, own.value.path)
      if (order < 0 && !their.done) yield { path: their.value.path, kind: 'wanted' }
      else if (order > 0 && !own.done) yield { path: own.value.path, kind: 'surplus' }
      else if (!their.done && !own.done && !own.value.leaf.equals(their.value.leaf)) {
        yield { path: own.value.path, kind: 'wanted' }
      }
      if (order <= 0) their = await theirs.next()
      if (order >= 0) own = await ours.next()
    }
  }

  async *#theirs(subpages: ReadonlySet<number>): AsyncGenerator<{ path: string; leaf: Uint8Array }> {
    const { link, answerMs, signal } = this.#options
    let [after, last]: [string | undefined, string] = ['', '']
    while (after !== undefined) {
      signal.throwIfAborted()
      const request = { subpages: [...subpages], after, mayCompress: true }
      const listed: ResponseOf<'Leaves'> = await link.call('Leaves', request, answerMs)
      this.#listedAt = listed.sequence
      for (const [path, leaf] of listed.leaves) {
        if (inBytes(path, last) <= 0) throw new LinkError('malformed', 'a listing that is not in order')
        last = path
        yield { path, leaf }
      }
      if (listed.after !== undefined && inBytes(listed.after, after) <= 0)
        throw new LinkError('malformed', 'a listing that does not end')
      after = listed.after
    }
  }

  async *#ours(subpages: ReadonlySet<number>): AsyncGenerator<{ path: string; leaf: Buffer }> {
    let after: string | undefined = ''
    while (after !== undefined) {
      const listed: Awaited<ReturnType<ReplicaStore['tree']['leaves']>> = await this.#options.store.tree.leaves(
        subpages,
        after,
        LOCAL_LEAVES,
      )
      yield* listed.leaves
      after = listed.after
    }
  }

  async #fetch(): Promise<void> {
    const { link, progress, signal, onDamaged, write } = this.#options
    if (this.#wanted.length === 0) return
    const asked = new Set(this.#wanted)
    this.#wanted = []
    let entries: ReplicaEntry[] = []
    let [bytes, asOf] = [0, 0]
    const flush = async () => {
      if (entries.length > 0) await write(entries, [], asOf)
      progress.done += entries.length
      progress.bytes += bytes
      entries = []
      bytes = 0
    }
    for await (const read of valuesOf(link, [...asked], signal)) {
      if (bytes >= COPIED_BYTES || read.sequence !== asOf) await flush()
      asOf = read.sequence
      if (read.damaged.length > 0) onDamaged(read.damaged)
      for (const entry of read.entries) {
        if (!asked.delete(entry.path)) throw new LinkError('malformed', 'an entry that was not asked for')
        entries.push(entry)
        bytes += entry.path.length + entry.value.length
      }
    }
    await flush()
    // Those that were removed since they were listed: the log says so.
    progress.done += asked.size
  }

  async #remove(): Promise<void> {
    const { progress, write } = this.#options
    if (this.#deletes.length === 0) return
    await write([], this.#deletes, this.#listedAt)
    progress.done += this.#deletes.length
    this.#deletes = []
  }
}

/** Below 0 when the one path comes before the other in the order of their bytes. */
function inBytes(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other))
}

export interface ValuesRead {
  readonly entries: readonly ReplicaEntry[]
  readonly damaged: readonly string[]
  readonly sequence: number
}

/** Entries of the primary, in messages. Rejects with a LinkError. */
export async function* valuesOf(
  link: LinkClient,
  paths: readonly string[],
  signal: AbortSignal,
): AsyncGenerator<ValuesRead> {
  const call = link.values({ paths: [...paths] })
  const cancel = () => call.cancel()
  signal.addEventListener('abort', cancel, { once: true })
  const parts = new Parts()
  try {
    for await (const message of call as AsyncIterable<ResponseOf<'Values'>>) {
      const read = readOf(message, parts)
      if (read) yield read
    }
  } catch (error) {
    throw linkErrorOf(error)
  } finally {
    signal.removeEventListener('abort', cancel)
    call.cancel()
  }
}

function readOf(message: ResponseOf<'Values'>, parts: Parts): ValuesRead | undefined {
  if (message.kind === 'part') {
    parts.add(message.bytes)
    return undefined
  }
  const { damaged, sequence } = message
  const entries = message.entries.map(([path, at, value], index) => {
    return { path, sequence: at, value: index === 0 ? parts.take(value) : value }
  })
  return { entries, damaged, sequence }
}
