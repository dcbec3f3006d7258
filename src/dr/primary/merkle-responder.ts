/** The primary's side of a Merkle comparison: hashes of its tree, and the entries that a secondary then requests. */
import type { Logger } from '../../platform/log.ts'
import type { ReplicaStore } from '../../storage/store/replica.ts'
import type { BandwidthLimiter } from '../../platform/token-bucket.ts'
import { CHUNK_BYTES, splitIntoChunks, LEAVES_MAX, type RequestOf, type ResponseOf } from '../link/messages.ts'

/** Overhead of a leaf in a message. */
const LEAF_BYTES = 24

export class MerkleResponder {
  readonly #store: ReplicaStore
  readonly #bandwidth: Pick<BandwidthLimiter, 'take'>
  readonly #logger: Logger

  constructor(store: ReplicaStore, bandwidth: Pick<BandwidthLimiter, 'take'>, logger: Logger) {
    this.#store = store
    this.#bandwidth = bandwidth
    this.#logger = logger
  }

  async pages(): Promise<ResponseOf<'Pages'>> {
    return { position: this.#store.position(), pages: [...(await this.#store.tree.pages())] }
  }

  async subpages({ pages }: RequestOf<'Subpages'>): Promise<ResponseOf<'Subpages'>> {
    const found = await this.#store.tree.subpages(pages)
    return { pages: [...found].map(([page, hashes]): [number, Buffer[]] => [page, [...hashes]]) }
  }

  async leaves({ subpages, after }: RequestOf<'Leaves'>): Promise<ResponseOf<'Leaves'>> {
    const store = this.#store
    // Avoids a walk over all paths.
    if (subpages.length === 0) return { leaves: [], after: undefined, sequence: store.position().sequence }
    const found = await store.tree.leaves(new Set(subpages), after, LEAVES_MAX)
    const leaves: [string, Buffer][] = []
    let bytes = 0
    for (const { path, leaf } of found.leaves) {
      if (bytes > CHUNK_BYTES) break
      leaves.push([path, leaf])
      bytes += path.length + LEAF_BYTES
    }
    await this.#bandwidth.take(bytes)
    const next = leaves.length < found.leaves.length ? leaves.at(-1)?.[0] : found.after
    return { leaves, after: next, sequence: store.position().sequence }
  }

  async *values({ paths }: RequestOf<'Values'>): AsyncGenerator<ResponseOf<'Values'>> {
    for (let at = 0; at < paths.length; ) {
      const { entries, damaged, sequence, next } = this.#entries(paths, at)
      at = next
      for (const path of damaged) this.#logger.error('damaged entry not copied to a DR secondary', { path })
      await this.#bandwidth.take(entries.reduce((sum, [path, , value]) => sum + path.length + value.length, 0))
      const [first] = entries
      const { chunks, rest } = splitIntoChunks(first?.[2] ?? new Uint8Array())
      for (const chunk of chunks) yield { kind: 'part', bytes: chunk }
      if (first) first[2] = rest
      yield { kind: 'entries', entries, damaged, sequence }
    }
  }

  /** As many entries as fit into a message, at least one, all from the same position. */
  #entries(paths: readonly string[], from: number) {
    const entries: [string, number, Uint8Array][] = []
    const damaged: string[] = []
    let [next, bytes, sequence] = [from, 0, 0]
    for (; next < paths.length && bytes < CHUNK_BYTES; next++) {
      const read = this.#store.entriesAt(paths.slice(next, next + 1))
      const size = read.entries.reduce((sum, { path, value }) => sum + path.length + value.length, 0)
      if (entries.length > 0 && bytes + size > CHUNK_BYTES) break
      bytes += size
      for (const { path, value, ...entry } of read.entries) entries.push([path, entry.sequence, value])
      damaged.push(...read.damaged)
      sequence = read.sequence
    }
    return { entries, damaged, sequence, next }
  }
}
