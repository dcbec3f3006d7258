/**
 * Catch-up without the log: compares the two Merkle trees and copies only what differs from the primary. An initial sync is
 * a difference against an empty tree, and an interrupted one resumes with the entries that it has.
 *
 * The primary accepts writes meanwhile. The sync begins at a log position that the primary retains; entries are read later, each at
 * its own moment. With the rows of the log since then the copy is complete at the highest position of any of these moments.
 */
import type { ReplicaEntry, CommitPosition, ReplicaStore } from '../../storage/store/replica.ts'
import { LinkError, linkErrorOf } from '../link/link.ts'
import { ChunkAssembler, PATHS_MAX, type RequestOf, type ResponseOf } from '../link/messages.ts'

/** Per transaction. */
const COPIED_BYTES = 4 << 20
const LOCAL_LEAVES = 4096

export interface CopyProgress {
  /** Differing entries found so far. */
  found: number
  /** Entries copied or removed. */
  done: number
  bytes: number
}

/** The other end of a comparison: a primary, or another member of an HA cluster. */
export interface MerkleSource {
  call<M extends 'Pages' | 'Subpages' | 'Leaves' | 'Ping'>(
    method: M,
    request: RequestOf<M>,
    waitMs: number,
  ): Promise<ResponseOf<M>>
  values(request: RequestOf<'Values'>): AsyncIterable<ResponseOf<'Values'>> & { cancel(): void }
}

export interface CatchUpOptions {
  readonly link: MerkleSource
  readonly store: Pick<ReplicaStore, 'tree' | 'copyEntries' | 'beginCopy'>
  readonly from: CommitPosition
  readonly clusterId: string
  readonly progress: CopyProgress
  readonly answerMs: number
  readonly signal: AbortSignal
  /** Entries that the primary cannot read. */
  readonly onDamaged: (paths: readonly string[]) => void
  /** The subpages were compared; entries are fetched from now on. */
  readonly onDifference: () => void
}

type CopyOptions = Pick<CatchUpOptions, 'link' | 'progress' | 'answerMs' | 'signal' | 'onDamaged'> & {
  readonly store: Pick<ReplicaStore, 'tree'>
  /** `asOf`: position of the primary at which these were read. */
  readonly write: (puts: readonly ReplicaEntry[], deletes: readonly string[], asOf: number) => Promise<void>
}

/** Resolves to the sequence at which the copy is complete. */
export async function copyDifference(options: CatchUpOptions): Promise<number> {
  const { store, from, clusterId } = options
  await store.beginCopy(from, clusterId)
  const differing = await differingSubpages(options)
  options.onDifference()
  const write = (puts: readonly ReplicaEntry[], deletes: readonly string[]) => store.copyEntries(puts, deletes)
  if (differing.size > 0) await new EntryCopier({ ...options, write }).run(differing)
  options.signal.throwIfAborted()
  // Everything was compared or read before this position.
  const { position } = await options.link.call('Ping', {}, options.answerMs)
  return Math.max(from.sequence, position.sequence)
}

/** Numbers of subpages (page × 256 + subpage) that are not the same on both ends. */
export async function differingSubpages({
  link,
  store,
  answerMs,
}: Pick<CatchUpOptions, 'link' | 'answerMs'> & { readonly store: Pick<ReplicaStore, 'tree'> }): Promise<Set<number>> {
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

/** Copies the differing entries of subpages from the primary. */
export class EntryCopier {
  readonly #options: CopyOptions
  /** CommitPosition of the primary at its last listing. */
  #listedAt = 0
  #missing: string[] = []
  #surplus: string[] = []

  constructor(options: CopyOptions) {
    this.#options = options
  }

  async run(subpages: ReadonlySet<number>): Promise<void> {
    const { progress } = this.#options
    for await (const { path, kind } of this.#differences(subpages)) {
      progress.found++
      if (kind === 'wanted') this.#missing.push(path)
      else this.#surplus.push(path)
      if (this.#missing.length >= PATHS_MAX) await this.#fetch()
      if (this.#surplus.length >= PATHS_MAX) await this.#remove()
    }
    await this.#fetch()
    await this.#remove()
  }

  /** Merges the two listings, both in byte order. */
  async *#differences(subpages: ReadonlySet<number>): AsyncGenerator<{ path: string; kind: 'wanted' | 'surplus' }> {
    const [theirs, ours] = [this.#remoteLeaves(subpages), this.#localLeaves(subpages)]
    let [their, own] = [await theirs.next(), await ours.next()]
    while (!their.done || !own.done) {
      const order = their.done ? 1 : own.done ? -1 : compareBytes(their.value.path, own.value.path)
      if (order < 0 && !their.done) yield { path: their.value.path, kind: 'wanted' }
      else if (order > 0 && !own.done) yield { path: own.value.path, kind: 'surplus' }
      else if (!their.done && !own.done && !own.value.leaf.equals(their.value.leaf)) {
        yield { path: own.value.path, kind: 'wanted' }
      }
      if (order <= 0) their = await theirs.next()
      if (order >= 0) own = await ours.next()
    }
  }

  async *#remoteLeaves(subpages: ReadonlySet<number>): AsyncGenerator<{ path: string; leaf: Uint8Array }> {
    const { link, answerMs, signal } = this.#options
    let [after, last]: [string | undefined, string] = ['', '']
    while (after !== undefined) {
      signal.throwIfAborted()
      const request = { subpages: [...subpages], after, mayCompress: true }
      const listed: ResponseOf<'Leaves'> = await link.call('Leaves', request, answerMs)
      this.#listedAt = listed.sequence
      for (const [path, leaf] of listed.leaves) {
        if (compareBytes(path, last) <= 0) throw new LinkError('malformed', 'leaves are not in order')
        last = path
        yield { path, leaf }
      }
      if (listed.after !== undefined && compareBytes(listed.after, after) <= 0)
        throw new LinkError('malformed', 'leaf listing does not advance')
      after = listed.after
    }
  }

  async *#localLeaves(subpages: ReadonlySet<number>): AsyncGenerator<{ path: string; leaf: Buffer }> {
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
    if (this.#missing.length === 0) return
    const requested = new Set(this.#missing)
    this.#missing = []
    let entries: ReplicaEntry[] = []
    let [bytes, asOf] = [0, 0]
    const flush = async () => {
      if (entries.length > 0) await write(entries, [], asOf)
      progress.done += entries.length
      progress.bytes += bytes
      entries = []
      bytes = 0
    }
    for await (const read of fetchEntries(link, [...requested], signal)) {
      if (bytes >= COPIED_BYTES || read.sequence !== asOf) await flush()
      asOf = read.sequence
      if (read.damaged.length > 0) onDamaged(read.damaged)
      for (const entry of read.entries) {
        if (!requested.delete(entry.path)) throw new LinkError('malformed', 'entry was not requested')
        entries.push(entry)
        bytes += entry.path.length + entry.value.length
      }
    }
    await flush()
    // The rest was deleted after the listing; the log has the deletions.
    progress.done += requested.size
  }

  async #remove(): Promise<void> {
    const { progress, write } = this.#options
    if (this.#surplus.length === 0) return
    await write([], this.#surplus, this.#listedAt)
    progress.done += this.#surplus.length
    this.#surplus = []
  }
}

/** Byte order of paths, as `Buffer.compare`. */
function compareBytes(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other))
}

export interface EntryBatch {
  readonly entries: readonly ReplicaEntry[]
  readonly damaged: readonly string[]
  readonly sequence: number
}

/** Rejects with a LinkError. */
async function* fetchEntries(
  link: Pick<MerkleSource, 'values'>,
  paths: readonly string[],
  signal: AbortSignal,
): AsyncGenerator<EntryBatch> {
  const call = link.values({ paths: [...paths] })
  const cancel = () => call.cancel()
  signal.addEventListener('abort', cancel, { once: true })
  const chunks = new ChunkAssembler()
  try {
    for await (const message of call) {
      const read = batchOf(message, chunks)
      if (read) yield read
    }
  } catch (error) {
    throw linkErrorOf(error)
  } finally {
    signal.removeEventListener('abort', cancel)
    call.cancel()
  }
}

function batchOf(message: ResponseOf<'Values'>, chunks: ChunkAssembler): EntryBatch | undefined {
  if (message.kind === 'part') {
    chunks.add(message.bytes)
    return undefined
  }
  const { damaged, sequence } = message
  const entries = message.entries.map(([path, at, value], index) => {
    return { path, sequence: at, value: index === 0 ? chunks.take(value) : value }
  })
  return { entries, damaged, sequence }
}
