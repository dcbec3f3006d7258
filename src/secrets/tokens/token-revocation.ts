/**
 * Revocation of tokens and of the data that belongs to them. One commit removes the token's entry and writes a *mark*: from then
 * on the token and all its descendants are invalid. Cleanup follows in small pages: descendants (each gets its own mark), then
 * the token's cubbyhole and leases, then the mark. If the process is killed, the next one finds the marks and continues.
 *
 * The last use of a token writes a mark, and the token is revoked at the end of the request.
 *
 * A token that is revoked without its children is first marked as *leaving*: from that commit on it is invalid and its children
 * count as orphans. Then the children's entries are changed, page by page, and the token is revoked like any other.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import { nextTurn } from '../../platform/scheduler.ts'
import { Mutex } from '../../platform/mutex.ts'
import { encodeEntry, type TokenEntry, tokenPaths } from './token-entry.ts'
import type { TokenStore } from './token-store.ts'

/** Entries read and decrypted in one step: about a millisecond. */
const PAGE_TOKENS = 16
/** Maximum time that a caller waits for the cleanup of a large tree. */
const CLEANUP_WAIT_MS = 1000
const RESUME_PAGE_MARKS = 100
const LOG_INTERVAL_MS = 60_000
/** Values of the mark of a token whose entry still exists: it is revoked without its children, or its last use has begun. */
const LEAVING = 'leaving'
const SPENT = 'spent'

/** An entry of the index of children. */
interface ChildLink {
  readonly parent: string
  readonly hash: string
  readonly path: string
}

/** Removes data that belongs to a revoked token, given by its hash. Must be idempotent. */
export type TokenCleanup = (hash: string) => Promise<void>

/** One use of a token whose number of uses is limited. */
export interface TokenUse {
  /** Resolves when the use is durable. */
  readonly written: Promise<unknown>
  /** Present for the last use: to be called at the end of the request. */
  readonly revokeSpent?: () => Promise<void>
}

export class TokenRevocation {
  readonly #tokens: TokenStore
  readonly #logger: Logger
  readonly #cleanups: readonly TokenCleanup[]
  /** Revocations that are not durable yet, so that a second call for the same token waits for the first. */
  readonly #underWay = new Map<string, Promise<unknown>>()
  /** Hashes of tokens whose cleanup is under way, or must wait for the end of a request. */
  readonly #cleaning = new Set<string>()
  #isClosed = false
  readonly #resumes = new Mutex()
  readonly #failures = new LogOnce({ everyMs: LOG_INTERVAL_MS })

  constructor(tokens: TokenStore, logger: Logger, cleanups: readonly TokenCleanup[]) {
    this.#tokens = tokens
    this.#logger = logger
    this.#cleanups = cleanups
  }

  /** Revokes a token and its descendants. Resolves when that is durable. The hash of no token is ignored. */
  async revoke(hash: string): Promise<void> {
    const entry = this.#tokens.pending(hash)
    if (!entry || entry.isLeaving) return void (await this.#underWay.get(hash))
    await this.#track(hash, this.#remove([entry]))
    await waitBriefly(this.#clean([hash]))
  }

  /** Revokes a token and makes its children orphans. Resolves when that is durable. */
  async revokeOrphan(hash: string): Promise<void> {
    const entry = this.#tokens.pending(hash)
    if (!entry || entry.isLeaving) return void (await this.#underWay.get(hash))
    const puts = [
      { path: tokenPaths.id(hash), value: encodeEntry({ ...entry, isLeaving: true }) },
      { path: tokenPaths.revoking(hash), value: Buffer.from(LEAVING) },
    ]
    await this.#track(hash, this.#tokens.commitRevocation([hash], { puts, deletes: [] }))
    await waitBriefly(this.#cleanLeaving(hash))
  }

  /** Revokes tokens and their descendants in one commit. Resolves when the cleanup is complete. */
  async revokeAll(entries: readonly TokenEntry[]): Promise<void> {
    const present = entries.filter(({ isLeaving }) => !isLeaving)
    await this.revokeWithoutCleanup(present)
    await this.#clean(present.map(({ hash }) => hash))
  }

  /** Revokes tokens and their descendants in one commit. Resolves when that is durable; `resume` does the cleanup. */
  async revokeWithoutCleanup(entries: readonly TokenEntry[]): Promise<void> {
    const present = entries.filter(({ isLeaving }) => !isLeaving)
    if (present.length > 0) await this.#remove(present)
  }

  /** Takes the last use of a token in one commit with `more`. */
  takeLastUse(entry: TokenEntry, more: readonly CommitPart[] = []): TokenUse & Required<Pick<TokenUse, 'revokeSpent'>> {
    const { hash } = entry
    // `resume` must not revoke the token before the end of the request.
    this.#cleaning.add(hash)
    const puts = [
      { path: tokenPaths.id(hash), value: encodeEntry({ ...entry, usesLeft: -1 }) },
      { path: tokenPaths.revoking(hash), value: Buffer.from(SPENT) },
    ]
    const part = { storage: this.#tokens.storage, batch: { puts, deletes: [] } }
    const written = Storage.commitAll([part, ...more]).catch((error: unknown) => {
      this.#cleaning.delete(hash)
      throw error
    })
    const revokeSpent = async () => {
      this.#cleaning.delete(hash)
      await this.revoke(hash)
    }
    return { written, revokeSpent }
  }

  /**
   * Completes revocations that left a mark: after a restart, after a failed commit, after `revokeWithoutCleanup`. Calls run one after the other, so
   * all marks from before a call are gone when it resolves. Stops at the first failure, which is logged.
   */
  resume(): Promise<void> {
    return this.#resumes.runExclusive(() => this.#resumeAll())
  }

  /** As `resume`, but resolves after a second at most. */
  async resumeBriefly(): Promise<void> {
    await waitBriefly(this.resume())
  }

  async #resumeAll(): Promise<void> {
    const { storage } = this.#tokens
    for (let after = ''; !this.#isClosed; await nextTurn()) {
      const names = storage.list(tokenPaths.revokings, { after, limit: RESUME_PAGE_MARKS })
      const last = names.at(-1)
      if (last === undefined || !(await this.#resumePage(names))) return
      after = last
    }
  }

  /** Resolves to false if the cleanup failed. */
  async #resumePage(names: readonly string[]): Promise<boolean> {
    const removed: string[] = []
    const present: TokenEntry[] = []
    for (const hash of names.filter((name) => !this.#cleaning.has(name))) {
      const entry = this.#tokens.pending(hash)
      if (entry?.isLeaving) await this.#cleanLeaving(hash)
      else if (entry) present.push(entry)
      else removed.push(hash)
    }
    await this.revokeWithoutCleanup(present)
    return this.#clean([...present.map(({ hash }) => hash), ...removed])
  }

  close(): void {
    this.#isClosed = true
  }

  async #track(hash: string, revocation: Promise<unknown>): Promise<void> {
    this.#underWay.set(hash, revocation)
    try {
      await revocation
    } finally {
      this.#underWay.delete(hash)
    }
  }

  /** Commits the revocation of tokens: removes their entries and `links`, and writes their marks. */
  async #remove(entries: readonly TokenEntry[], links: readonly string[] = []): Promise<void> {
    const marks = entries.map(({ hash }) => ({ path: tokenPaths.revoking(hash), value: Buffer.alloc(0) }))
    const deletes = new Set([...entries.flatMap((entry) => this.#tokens.pathsOf(entry)), ...links])
    await this.#tokens.commitRevocation(
      entries.map(({ hash }) => hash),
      { puts: marks, deletes: [...deletes] },
    )
  }

  /** Removes the descendants of revoked tokens, then the data that belongs to them, then the marks. Never rejects; resolves to false after a failure. */
  async #clean(hashes: readonly string[]): Promise<boolean> {
    const stack = [...hashes]
    for (const hash of stack) this.#cleaning.add(hash)
    try {
      while (stack.length > 0 && !this.#isClosed) {
        const page = stack.slice(-PAGE_TOKENS)
        const links = this.#linksOf(page)
        if (links.length > 0) {
          const children = this.#childrenAt(links)
          // A leaving child is an orphan already, and so are its children: only the link remains.
          const revoked = children.filter(({ isLeaving }) => !isLeaving)
          await this.#remove(
            revoked,
            links.map(({ path }) => path),
          )
          for (const { hash } of revoked) this.#cleaning.add(hash)
          stack.push(...revoked.map(({ hash }) => hash))
          continue
        }
        await Promise.all(page.flatMap((hash) => this.#cleanups.map((cleanup) => cleanup(hash))))
        await this.#tokens.storage.commit({ puts: [], deletes: page.map(tokenPaths.revoking) })
        stack.length -= page.length
        for (const hash of page) this.#cleaning.delete(hash)
      }
      return stack.length === 0
    } catch (error) {
      this.#failed(error)
      return false
    } finally {
      for (const hash of stack) this.#cleaning.delete(hash)
    }
  }

  /** Makes the children of a leaving token orphans, then removes the token. Never rejects. */
  async #cleanLeaving(hash: string): Promise<void> {
    if (this.#cleaning.has(hash)) return
    this.#cleaning.add(hash)
    try {
      for (let links = this.#linksOf([hash]); links.length > 0; links = this.#linksOf([hash])) {
        if (this.#isClosed) return
        const children = this.#childrenAt(links)
        const puts = children.map((child) => ({
          path: tokenPaths.id(child.hash),
          value: encodeEntry({ ...child, parent: '' }),
        }))
        await this.#tokens.storage.commit({ puts, deletes: links.map(({ path }) => path) })
        for (const child of children) this.#tokens.forget(child.hash)
      }
      const entry = this.#tokens.pending(hash)
      if (entry) await this.#remove([entry])
      await this.#clean([hash])
    } catch (error) {
      this.#failed(error)
    } finally {
      this.#cleaning.delete(hash)
    }
  }

  /** The first links to children of these tokens, at most one page. */
  #linksOf(parents: readonly string[]): ChildLink[] {
    const links: ChildLink[] = []
    for (const parent of parents) {
      const folder = tokenPaths.childrenOf(parent)
      const names = this.#tokens.storage.list(folder, { limit: PAGE_TOKENS - links.length })
      links.push(...names.map((hash) => ({ parent, hash, path: folder + hash })))
      if (links.length >= PAGE_TOKENS) break
    }
    return links
  }

  /** Trusts the encrypted entry of a child only: the path of a link can be forged by an attacker who writes to the database. */
  #childrenAt(links: readonly ChildLink[]): TokenEntry[] {
    return links.flatMap(({ hash, parent }) => {
      const entry = this.#tokens.pending(hash)
      return entry?.parent === parent ? [entry] : []
    })
  }

  #failed(error: unknown): void {
    if (this.#isClosed || this.#failures.due() === 0) return
    this.#logger.warn('token cleanup failed, will retry', {
      error: withoutHashes(messageOf(error)),
    })
  }
}

/** Replaces hashes of tokens, which are names of entries and must not be logged. */
export function withoutHashes(message: string): string {
  return message.replaceAll(/[\da-f]{64}/g, '…')
}

async function waitBriefly(cleanup: Promise<unknown>): Promise<void> {
  const done = new AbortController()
  const { signal } = done
  await Promise.race([cleanup, delay(CLEANUP_WAIT_MS, undefined, { ref: false, signal }).catch(() => undefined)])
  done.abort()
}
