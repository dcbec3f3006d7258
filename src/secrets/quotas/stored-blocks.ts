/**
 * Callers that a quota with a block interval has blocked. A block is an entry, so neither a restart nor a change of the active server
 * lifts it. The counts of requests that are not blocked are in memory only (`quota-buckets.ts`).
 *
 * The number of entries is bounded: above it blocks are in memory only. They are read with the first request that needs them.
 */
import * as v from 'valibot'
import type { Storage } from '../../storage/barrier/storage.ts'
import { tryParseRecord } from '../../platform/stored-record.ts'

const PREFIX = 'core/quotas/blocked/'
const BLOCKS_MAX = 10_000
/** Blocks that one commit removes. */
const REMOVED_PER_COMMIT = 100

const blockSchema = v.object({ untilMs: v.number() })

export interface StoredBlocksOptions {
  /** All of the barrier. */
  readonly storage: Storage
  /** The core's clock. */
  readonly now: () => number
  /** Hashes the key of a bucket, which has the address of a caller: paths are not encrypted. */
  readonly digest: (key: string) => string
  readonly blocksMax?: number
}

export class StoredBlocks {
  readonly #options: StoredBlocksOptions
  readonly #storage: Storage
  /** End of each block by the digest of its bucket, the oldest first; undefined until the first use. */
  #blocks: Map<string, number> | undefined

  constructor(options: StoredBlocksOptions) {
    this.#options = options
    this.#storage = options.storage.below(PREFIX)
  }

  get #all(): Map<string, number> {
    if (this.#blocks) return this.#blocks
    const blocks = this.#storage.list().map((name) => {
      const bytes = this.#storage.get(name)
      const block = bytes && tryParseRecord(blockSchema, bytes)
      return [name, block?.untilMs ?? 0] as const
    })
    return (this.#blocks = new Map(blocks.sort(([, a], [, b]) => a - b)))
  }

  /** The remaining time of a block; 0 if there is none. */
  remainingMs(key: string): number {
    if (this.#all.size === 0) return 0
    return Math.max(0, (this.#all.get(this.#options.digest(key)) ?? 0) - this.#options.now())
  }

  /** Stores a block, and removes some that have ended. Resolves when it is durable. */
  async add(key: string, blockMs: number): Promise<void> {
    const nowMs = this.#options.now()
    const blocks = this.#all
    const ended = [...blocks].filter(([, untilMs]) => untilMs <= nowMs).slice(0, REMOVED_PER_COMMIT)
    for (const [name] of ended) blocks.delete(name)
    const name = this.#options.digest(key)
    const isStored = blocks.has(name) || blocks.size < (this.#options.blocksMax ?? BLOCKS_MAX)
    if (isStored) blocks.set(name, nowMs + blockMs)
    const puts = isStored ? [{ path: name, value: Buffer.from(JSON.stringify({ untilMs: nowMs + blockMs })) }] : []
    const deletes = ended.flatMap(([each]) => (each === name ? [] : [each]))
    if (puts.length + deletes.length > 0) await this.#storage.commit({ puts, deletes })
  }
}
