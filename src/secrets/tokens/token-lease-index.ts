/**
 * Builds the index of tokens as leases in a database that an older version wrote: that had an index of logins only. Reads
 * every token once, page by page, one page per turn of the event loop. A process that is killed starts over at its next
 * start; what is indexed already stays as it is.
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

/** Tokens read and decrypted in one turn. */
const PAGE = 32

export class TokenLeaseIndex {
  readonly #tokens: TokenStore
  readonly #logger: Logger
  #building: Promise<void> | undefined
  #isClosed = false

  constructor(tokens: TokenStore, logger: Logger) {
    this.#tokens = tokens
    this.#logger = logger
  }

  /** Starts the build where the index is not complete. Never throws: a failure is logged, and `ready` tries again. */
  begin(): void {
    this.ready().catch((error: unknown) => {
      if (!this.#isClosed)
        this.#logger.warn('token lease index failed, will retry', { error: withoutHashes(messageOf(error)) })
    })
  }

  /** Resolves when every token is in the index. Rejects where that cannot be written, and once the core is sealed. */
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
    for (let after = ''; ; await nextTurn()) {
      const page = storage.paths(tokenPaths.accessors, { after, limit: PAGE })
      const raw = page.flatMap((path) => this.#indexEntryOf(path.slice(path.lastIndexOf('/') + 1)))
      if (raw.length > 0) await storage.commit({ puts: [], deletes: [] }, raw)
      indexed += raw.length
      const last = page.at(-1)
      if (last === undefined) break
      after = last
    }
    await storage.removeAll(tokenPaths.oldLogins)
    await this.#tokens.noteLeasesIndexed()
    this.#logger.info('token lease index complete', { tokens: indexed })
  }

  #indexEntryOf(hash: string) {
    try {
      const entry = this.#tokens.pending(hash)
      return entry && isLease(entry) ? [emptyPut(this.#tokens.leaseFolderOf(entry) + hash)] : []
    } catch (error) {
      if (!(error instanceof Fault)) throw error
      // No one can use a token whose entry is damaged, and the others must not wait for it.
      this.#logger.warn('token not indexed as a lease', { error: withoutHashes(messageOf(error)) })
      return []
    }
  }
}
