/**
 * Revoking tokens, and what belongs to them. One commit removes the token's entry and leaves a *mark*: from then on the
 * token and everything below it is refused, for ever. The rest is removal of what nobody can use any more, in small
 * pages: descendants (each of which gets a mark of its own), then what hangs on the token (its cubbyhole, its leases),
 * then the mark. A process that is killed anywhere in between finds the marks at its next start and goes on.
 *
 * A token that has its last use is marked with it, and revoked when the request is over.
 *
 * A token that is revoked without its children is first marked as *leaving*: from that commit on it is refused and its
 * children have no parent. Then their entries are changed, page by page, and it is revoked like any other.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type CommitPart, Storage } from '../../storage/barrier/storage.ts'
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import { nextTurn } from '../../platform/scheduler.ts'
import { encodeEntry, type TokenEntry, tokenPaths } from './token-entry.ts'
import type { TokenStore } from './token-store.ts'

/** Entries are read, and so decrypted, that many at a time: about a millisecond. */
const PAGE = 16
/** Of a large tree a caller does not see the end. */
const AWAITED_MS = 1000
const RESUMED_AT_ONCE = 100
const TOLD_EVERY_MS = 60_000
/** What the mark says of a token that is there still: it leaves its children behind, or has had its last use. */
const LEAVING = 'leaving'
const SPENT = 'spent'

/** What says that a token was made with another one. */
interface Link {
  readonly parent: string
  readonly hash: string
  readonly path: string
}

/** Removes what hangs on a token. Called with the hash of a token that is gone; perhaps more than once. */
export type OnRevoke = (hash: string) => Promise<void>

export class TokenRevocation {
  readonly #tokens: TokenStore
  readonly #logger: Logger
  readonly #hooks: readonly OnRevoke[]
  /** Removals until they are durable, so that who asks for one again is not answered sooner. */
  readonly #underWay = new Map<string, Promise<unknown>>()
  /** Whose remains are being removed. */
  readonly #cleaned = new Set<string>()
  #isClosed = false
  /** The last call of `resume`; never rejects. */
  #lastRound: Promise<void> = Promise.resolve()
  readonly #failures = new LogOnce({ everyMs: TOLD_EVERY_MS })

  constructor(tokens: TokenStore, logger: Logger, hooks: readonly OnRevoke[]) {
    this.#tokens = tokens
    this.#logger = logger
    this.#hooks = hooks
  }

  /** Revokes a token and all that descend from it. Resolves when that is durable; what is no token is passed over. */
  async revoke(hash: string): Promise<void> {
    const entry = this.#tokens.pending(hash)
    if (!entry || entry.isLeaving) return void (await this.#underWay.get(hash))
    await this.#noted(hash, this.#remove([entry]))
    await shortly(this.#clean([hash]))
  }

  /** Revokes a token and makes its children orphans. Resolves when that is durable. */
  async revokeOrphan(hash: string): Promise<void> {
    const entry = this.#tokens.pending(hash)
    if (!entry || entry.isLeaving) return void (await this.#underWay.get(hash))
    const puts = [
      { path: tokenPaths.id(hash), value: encodeEntry({ ...entry, isLeaving: true }) },
      { path: tokenPaths.revoking(hash), value: Buffer.from(LEAVING) },
    ]
    await this.#noted(hash, this.#tokens.end([hash], { puts, deletes: [] }))
    await shortly(this.#cleanLeaving(hash))
  }

  /** Revokes some tokens with all that descend from them, in one commit. Resolves when nothing of them is left. */
  async revokeAll(entries: readonly TokenEntry[]): Promise<void> {
    const own = entries.filter(({ isLeaving }) => !isLeaving)
    await this.end(own)
    await this.#clean(own.map(({ hash }) => hash))
  }

  /**
   * Revokes some tokens with all that descend from them, in one commit. Resolves when that is durable; `resume` removes what
   * is left of them.
   */
  async end(entries: readonly TokenEntry[]): Promise<void> {
    const own = entries.filter(({ isLeaving }) => !isLeaving)
    if (own.length > 0) await this.#remove(own)
  }

  /**
   * Takes the last use of a token, and commits `beside` with it; `spent` is to be called when the request that it was for is
   * over.
   */
  lastUse(
    entry: TokenEntry,
    beside: readonly CommitPart[] = [],
  ): { readonly used: Promise<unknown>; readonly spent: () => Promise<void> } {
    const { hash } = entry
    // Nobody else is to finish with it while the request goes on.
    this.#cleaned.add(hash)
    const puts = [
      { path: tokenPaths.id(hash), value: encodeEntry({ ...entry, usesLeft: -1 }) },
      { path: tokenPaths.revoking(hash), value: Buffer.from(SPENT) },
    ]
    const own = { storage: this.#tokens.storage, batch: { puts, deletes: [] } }
    const used = Storage.commitAll([own, ...beside]).catch((error: unknown) => {
      this.#cleaned.delete(hash)
      throw error
    })
    const spent = async () => {
      this.#cleaned.delete(hash)
      await this.revoke(hash)
    }
    return { used, spent }
  }

  /**
   * Removes what is left of revoked tokens: of a process that ended, of a commit that failed, of `end`. One call follows the
   * other, so what was marked before a call is removed when it resolves. Stops at the first failure, which is logged.
   */
  async resume(): Promise<void> {
    const round = this.#lastRound.then(() => this.#resumeAll())
    this.#lastRound = round.catch(() => undefined)
    await round
  }

  /** As `resume`; resolves after a second at most. */
  async resumeShortly(): Promise<void> {
    await shortly(this.resume())
  }

  async #resumeAll(): Promise<void> {
    const { storage } = this.#tokens
    for (let after = ''; !this.#isClosed; await nextTurn()) {
      const names = storage.list(tokenPaths.revokings, { after, limit: RESUMED_AT_ONCE })
      const last = names.at(-1)
      if (last === undefined || !(await this.#resumePage(names))) return
      after = last
    }
  }

  /** Resolves to false where something of it is left. */
  async #resumePage(names: readonly string[]): Promise<boolean> {
    const removed: string[] = []
    const there: TokenEntry[] = []
    for (const hash of names.filter((name) => !this.#cleaned.has(name))) {
      const entry = this.#tokens.pending(hash)
      if (entry?.isLeaving) await this.#cleanLeaving(hash)
      else if (entry) there.push(entry)
      else removed.push(hash)
    }
    await this.end(there)
    return this.#clean([...there.map(({ hash }) => hash), ...removed])
  }

  close(): void {
    this.#isClosed = true
  }

  async #noted(hash: string, removal: Promise<unknown>): Promise<void> {
    this.#underWay.set(hash, removal)
    try {
      await removal
    } finally {
      this.#underWay.delete(hash)
    }
  }

  /** The one commit after which tokens are none. `links` are what else goes. */
  async #remove(entries: readonly TokenEntry[], links: readonly string[] = []): Promise<void> {
    const marks = entries.map(({ hash }) => ({ path: tokenPaths.revoking(hash), value: Buffer.alloc(0) }))
    const deletes = new Set([...entries.flatMap((entry) => this.#tokens.pathsOf(entry)), ...links])
    await this.#tokens.end(
      entries.map(({ hash }) => hash),
      { puts: marks, deletes: [...deletes] },
    )
  }

  /** Removes everything below revoked tokens, then what hangs on them, then their marks. Never rejects; false after a failure. */
  async #clean(hashes: readonly string[]): Promise<boolean> {
    const stack = [...hashes]
    for (const hash of stack) this.#cleaned.add(hash)
    try {
      while (stack.length > 0 && !this.#isClosed) {
        const page = stack.slice(-PAGE)
        const links = this.#linksOf(page)
        if (links.length > 0) {
          const children = this.#childrenAt(links)
          // One that is leaving has no parent and its children none: only the link to it is left.
          const revoked = children.filter(({ isLeaving }) => !isLeaving)
          await this.#remove(
            revoked,
            links.map(({ path }) => path),
          )
          for (const { hash } of revoked) this.#cleaned.add(hash)
          stack.push(...revoked.map(({ hash }) => hash))
          continue
        }
        await Promise.all(page.flatMap((hash) => this.#hooks.map((hook) => hook(hash))))
        await this.#tokens.storage.commit({ puts: [], deletes: page.map(tokenPaths.revoking) })
        stack.length -= page.length
        for (const hash of page) this.#cleaned.delete(hash)
      }
      return stack.length === 0
    } catch (error) {
      this.#failed(error)
      return false
    } finally {
      for (const hash of stack) this.#cleaned.delete(hash)
    }
  }

  /** Makes orphans of the children of a token that is leaving, then removes it. Never rejects. */
  async #cleanLeaving(hash: string): Promise<void> {
    if (this.#cleaned.has(hash)) return
    this.#cleaned.add(hash)
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
      this.#cleaned.delete(hash)
    }
  }

  /** Children of some tokens, the first few of all. */
  #linksOf(parents: readonly string[]): Link[] {
    const links: Link[] = []
    for (const parent of parents) {
      const folder = tokenPaths.childrenOf(parent)
      const names = this.#tokens.storage.list(folder, { limit: PAGE - links.length })
      links.push(...names.map((hash) => ({ parent, hash, path: folder + hash })))
      if (links.length >= PAGE) break
    }
    return links
  }

  /** Those that say so themselves: a link is a name, which anybody who can write the database could have made. */
  #childrenAt(links: readonly Link[]): TokenEntry[] {
    return links.flatMap(({ hash, parent }) => {
      const entry = this.#tokens.pending(hash)
      return entry?.parent === parent ? [entry] : []
    })
  }

  #failed(error: unknown): void {
    if (this.#isClosed || this.#failures.due() === 0) return
    this.#logger.warn('what was left of revoked tokens could not be removed; it is tried again', {
      error: withoutHashes(messageOf(error)),
    })
  }
}

/** Names of entries are hashes, which are nobody's business either. */
export function withoutHashes(message: string): string {
  return message.replaceAll(/[\da-f]{64}/g, '…')
}

async function shortly(cleaning: Promise<unknown>): Promise<void> {
  const over = new AbortController()
  const { signal } = over
  await Promise.race([cleaning, delay(AWAITED_MS, undefined, { ref: false, signal }).catch(() => undefined)])
  over.abort()
}
