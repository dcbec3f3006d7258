/**
 * Builds the lease index of tokens in a database of an older version, which had an index of logins only. Reads every token once,
 * one page per turn of the event loop. After a kill the next process starts over; entries that exist are written again.
 *
 * Tokens are created, changed and removed meanwhile. A page is read and its index entries are queued in one step, so a
 * later removal of a token also removes its index entry.
 */
import { Fault, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { nextTurn } from '../../platform/scheduler.ts'
import { emptyPut, isLease, tokenPaths } from './token-entry.ts'
import { withoutHashes } from './token-revocation.ts'
import type { TokenStore } from './token-store.ts'

/** Tokens read and decrypted in one turn of the event loop. */
const PAGE_TOKENS = 32

export class TokenLeaseIndex {
  readonly #tokens: TokenStore
  readonly #logger: Logger
  #building: Promise<void> | undefined
  #isClosed = false

  constructor(tokens: TokenStore, logger: Logger) {
    this.#tokens = tokens
    this.#logger = logger
  }

  /** Starts the build if the index is not complete. Never throws: a failure is logged, and `ready` retries. */
  begin(): void {
    this.ready().catch((error: unknown) => {
      if (!this.#isClosed)
        this.#logger.warn('token lease index failed, will retry', { error: withoutHashes(messageOf(error)) })
    })
  }

  /** Resolves when the index is complete. Rejects if a write fails, and once the core is sealed. */
  async ready(): Promise<void> {
    if (this.#tokens.areLeasesIndexed) return
    this.#building ??= this.#build().finally(() => (this.#building = undefined))
    await this.#building
  }

  close(): void {
    this.#isClosed = true
  }

  async #build(): Promise<void> {
    const { storage } = this.#tokens
    let indexed = 0
    for (const page of storage.pages(tokenPaths.accessors, PAGE_TOKENS)) {
      const raw = page.flatMap((path) => this.#indexEntryOf(path.slice(path.lastIndexOf('/') + 1)))
      if (raw.length > 0) await storage.commit({ puts: [], deletes: [] }, raw)
      indexed += raw.length
      await nextTurn()
    }
    await storage.removeAll(tokenPaths.oldLogins)
    await this.#tokens.setLeasesIndexed()
    this.#logger.info('token lease index complete', { tokens: indexed })
  }

  #indexEntryOf(hash: string) {
    try {
      const entry = this.#tokens.pending(hash)
      return entry && isLease(entry) ? [emptyPut(this.#tokens.leaseFolderOf(entry) + hash)] : []
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      // A damaged token is unusable and must not block the others.
      this.#logger.warn('token not indexed as a lease', { error: withoutHashes(messageOf(error)) })
      return []
    }
  }
}
