/**
 * Removes orphaned data of tokens: links, index entries and cubbyholes of tokens that no longer exist. There should be none. It is
 * for databases of older versions or repaired by hand, and for writes of a request whose token was revoked meanwhile.
 */
import { nextTurn } from '../../platform/scheduler.ts'
import type { Storage } from '../../storage/barrier/storage.ts'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { tokenPaths } from './token-entry.ts'
import { type TokenRevocation, withoutHashes } from './token-revocation.ts'
import type { TokenStore } from './token-store.ts'

const PAGE_ENTRIES = 32

export interface TokenTidyOptions {
  readonly tokens: TokenStore
  readonly revocation: TokenRevocation
  /** All cubbyholes: a folder for each token's hash. */
  readonly cubbyholes: Storage
  readonly logger: Logger
}

export class TokenTidy {
  readonly #options: TokenTidyOptions
  #underWay: Promise<void> | undefined
  #isClosed = false

  constructor(options: TokenTidyOptions) {
    this.#options = options
  }

  /** False if a tidy is running already. */
  begin(): boolean {
    if (this.#underWay) return false
    this.#underWay = this.#run().finally(() => (this.#underWay = undefined))
    return true
  }

  /** Resolves when no tidy is running. */
  async idle(): Promise<void> {
    await this.#underWay
  }

  close(): void {
    this.#isClosed = true
  }

  async #run(): Promise<void> {
    const { logger } = this.#options
    try {
      await this.#options.revocation.resume()
      const links = await this.#tidyLinks()
      const indexes = await this.#tidyIndexes()
      const cubbyholes = await this.#tidyCubbyholes()
      logger.info('token tidy complete', { tokens: links, indexes, cubbyholes })
    } catch (error) {
      if (!this.#isClosed) logger.warn('token tidy failed', { error: withoutHashes(messageOf(error)) })
    }
  }

  /** Pages of paths below a prefix, one in each turn of the event loop. */
  async *#pages(prefix: string): AsyncGenerator<string[]> {
    if (this.#isClosed) return
    for (const page of this.#options.tokens.storage.pages(prefix, PAGE_ENTRIES)) {
      yield page
      await nextTurn()
      if (this.#isClosed) return
    }
  }

  /** Revokes tokens whose parent no longer exists; returns their number. */
  async #tidyLinks(): Promise<number> {
    const { revocation, tokens } = this.#options
    let revoked = 0
    for await (const page of this.#pages(tokenPaths.parents)) {
      const orphaned = page.flatMap((path) => {
        const [parent = '', hash = ''] = path.slice(tokenPaths.parents.length).split('/')
        if (tokens.pending(parent)) return []
        const entry = tokens.pending(hash)
        return entry?.parent === parent ? [entry] : []
      })
      await revocation.revokeAll(orphaned)
      revoked += orphaned.length
    }
    return revoked
  }

  /** Removes index entries that no token has; returns their number. */
  async #tidyIndexes(): Promise<number> {
    const { storage } = this.#options.tokens
    let removed = 0
    for (const prefix of [tokenPaths.parents, tokenPaths.accessors, tokenPaths.expiries, tokenPaths.leases]) {
      for await (const page of this.#pages(prefix)) {
        const deletes = page.filter((path) => !this.#isOfToken(path))
        if (deletes.length > 0) await storage.commit({ puts: [], deletes })
        removed += deletes.length
      }
    }
    return removed
  }

  #isOfToken(path: string): boolean {
    const { tokens } = this.#options
    const entry = tokens.pending(path.slice(path.lastIndexOf('/') + 1))
    return entry !== undefined && tokens.pathsOf(entry).includes(path)
  }

  async #tidyCubbyholes(): Promise<number> {
    const { cubbyholes, tokens } = this.#options
    let [removed, after] = [0, '']
    while (!this.#isClosed) {
      const page = cubbyholes.list('', { after, limit: PAGE_ENTRIES })
      const last = page.at(-1)
      if (last === undefined) break
      for (const folder of page) {
        if (!tokens.pending(folder.slice(0, -1))) removed += await cubbyholes.removeAll(folder)
      }
      after = last
      await nextTurn()
    }
    return removed
  }
}
