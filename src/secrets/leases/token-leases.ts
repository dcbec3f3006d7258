/**
 * Tokens as leases. A token is a lease of the path at which it was issued: `auth/userpass/login/alice/h…`,
 * `auth/token/create/h…`. Nothing is stored for it but the token: the last part of the ID is the keyed hash under which the
 * token is stored, so a lookup is one read. By prefix, tokens are found through an index with a folder for each mount and
 * issuing path (`sys/token/lease/`).
 *
 * Promises. The ID tells nothing of the token and is accepted nowhere as one. `revokePrefix` has ended every token that was
 * issued before it began when it resolves, holds a bounded number of them in memory, and lets others in between pages.
 * Its cost depends on the number of issuing paths and of tokens that match, not on that of all tokens.
 *
 * What can go wrong. A commit fails: `revokePrefix` rejects, the tokens of earlier pages have ended, and a second call does
 * the rest. The process is killed: the same. What is left of ended tokens is removed by the next process
 * (`token-revocation.ts`).
 */
import { RECORD_COST, type Steps } from '../../engines/framework/time-slices.ts'
import { Fault } from '../../platform/errors.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import { isLease, type TokenEntry, tokenPaths } from '../tokens/token-entry.ts'
import type { TokenLeaseIndex } from '../tokens/token-lease-index.ts'
import type { TokenRevocation } from '../tokens/token-revocation.ts'
import type { TokenStore } from '../tokens/token-store.ts'
import { eachPage } from './pages.ts'

const AUTH = 'auth/'
/** Stands in front of the hash, as in the compatible system. */
const MARK = 'h'
const ID = /^(.+)\/h([\da-f]{64})$/
/** Tokens that end in one commit: some milliseconds of the event loop and of the writer. */
const PAGE = 16
/** Names read at a time. */
const NAMES = 256

export interface TokenLeaseParts {
  readonly tokens: TokenStore
  readonly index: TokenLeaseIndex
  readonly revocation: TokenRevocation
  readonly now: () => number
}

/** Tokens that were issued at one path by one mount. */
interface Folder {
  readonly folder: string
  readonly path: string
}

/** The ID of the lease that a token is. */
export function tokenLeaseId({ hash, path }: Pick<TokenEntry, 'hash' | 'path'>): string {
  return `${path}/${MARK}${hash}`
}

export class TokenLeases {
  readonly #parts: TokenLeaseParts

  constructor(parts: TokenLeaseParts) {
    this.#parts = parts
  }

  /** Whether an ID has the form of a token's lease. No lease of an engine has. */
  isTokenLease(id: string): boolean {
    return id.startsWith(AUTH) && ID.test(id)
  }

  /** The token of a lease; undefined where there is none, or none that is valid. */
  find(id: string): TokenEntry | undefined {
    const [, path, hash] = ID.exec(id) ?? []
    const entry = hash === undefined ? undefined : this.#parts.tokens.findByHash(hash, this.#parts.now())
    return entry && entry.path === path && isLease(entry) ? entry : undefined
  }

  /** Revokes the token of a lease with all that descend from it. An ID of no token is passed over. */
  async revoke(id: string): Promise<void> {
    const entry = this.find(id)
    if (entry) await this.#parts.revocation.revoke(entry.hash)
  }

  /**
   * Revokes every token whose lease ID begins with `prefix`, which ends with a slash, and all that descend from these.
   * Resolves when that is durable; what is left of the tokens is removed then, or, unless `isSync`, up to a second later.
   * Rejects when it cannot be written.
   */
  async revokePrefix(prefix: string, isSync: boolean): Promise<void> {
    const { index, revocation } = this.#parts
    await index.ready()
    let isAny = false
    await eachPage(this.#pagesUnder(prefix), async (hashes) => {
      isAny = true
      await revocation.end(hashes.flatMap((hash) => this.#pending(hash, prefix)))
      return true
    })
    if (isAny) await (isSync ? revocation.resume() : revocation.resumeBriefly())
  }

  /** Names directly below a prefix of lease IDs, which ends with a slash or is empty; folders with a slash. */
  *names(prefix: string): Steps<Set<string>> {
    const { storage } = this.#parts.tokens
    const names = new Set<string>()
    if (prefix === '') return storage.paths(tokenPaths.leases, { limit: 1 }).length > 0 ? names.add(AUTH) : names
    if (!prefix.startsWith(AUTH)) return names
    for (const found of this.#folders()) {
      yield RECORD_COST
      const path = found && `${found.path}/`
      if (!found || !path?.startsWith(prefix)) continue
      if (path !== prefix) {
        names.add(`${path.slice(prefix.length).split('/')[0] ?? ''}/`)
        continue
      }
      for (const page of this.#hashesIn(found.folder)) {
        for (const hash of page) names.add(MARK + hash)
        yield page.length
      }
    }
    return names
  }

  /** Resolves when lists and prefixes find every token. */
  async ready(): Promise<void> {
    await this.#parts.index.ready()
  }

  /** What is pending of a token whose lease ID begins with the prefix, for `revocation.end` in the same step. */
  #pending(hash: string, prefix: string): TokenEntry[] {
    const { tokens } = this.#parts
    const entry = unlessDamaged(() => tokens.pending(hash))
    return entry && isLease(entry) && `${entry.path}/`.startsWith(prefix) ? [entry] : []
  }

  async *#pagesUnder(prefix: string): AsyncGenerator<string[]> {
    const page: string[] = []
    for (const found of prefix.startsWith(AUTH) ? this.#folders() : []) {
      await yieldIfDue()
      if (!found || !`${found.path}/`.startsWith(prefix)) continue
      for (const hashes of this.#hashesIn(found.folder)) {
        for (let at = 0; at < hashes.length; at += PAGE) {
          page.push(...hashes.slice(at, at + PAGE))
          if (page.length < PAGE) continue
          yield page.splice(0)
        }
      }
    }
    if (page.length > 0) yield page
  }

  /** Every issuing path; undefined for a step that found none, so that a caller can give way. */
  *#folders(): Generator<Folder | undefined> {
    const { storage } = this.#parts.tokens
    for (const mount of storage.list(tokenPaths.leases)) {
      const parent = tokenPaths.leases + mount
      for (let after = ''; ; ) {
        const names = storage.list(parent, { after, limit: NAMES })
        for (const name of names) yield* this.#folderAt(parent + name)
        const last = names.at(-1)
        if (last === undefined) break
        after = last
      }
    }
  }

  /** A folder's path is that of its tokens: of the first that can be read. Undefined for each page without one. */
  *#folderAt(folder: string): Generator<Folder | undefined> {
    const { tokens } = this.#parts
    for (const hashes of this.#hashesIn(folder)) {
      for (const hash of hashes) {
        const entry = unlessDamaged(() => tokens.peek(hash))
        // A name in the index is evidence of nothing: who can write the database could have made it.
        if (!entry || tokens.leaseFolderOf(entry) !== folder) continue
        yield { folder, path: entry.path }
        return
      }
      yield undefined
    }
  }

  *#hashesIn(folder: string): Generator<string[]> {
    const { storage } = this.#parts.tokens
    for (let after = ''; ; ) {
      const hashes = storage.list(folder, { after, limit: NAMES })
      const last = hashes.at(-1)
      if (last === undefined) return
      yield hashes
      after = last
    }
  }
}

/** No one can use a token whose entry is damaged, and the others must not wait for it. */
function unlessDamaged(read: () => TokenEntry | undefined): TokenEntry | undefined {
  try {
    return read()
  } catch (error) {
    if (error instanceof Fault) return undefined
    throw error
  }
}
