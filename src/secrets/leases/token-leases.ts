/**
 * Tokens as leases. A token is a lease of the path at which it was issued: `auth/userpass/login/alice/h…`,
 * `auth/token/create/h…`. Only the token itself is stored: the last segment of the ID has the keyed hash of the token, so a lookup is
 * one read. Prefixes use an index with a folder for each mount and issuing path (`sys/token/lease/`).
 *
 * Promises. The ID does not reveal the token and is not accepted as one. When `revokePrefix` resolves, every matching token that was
 * issued before the call is revoked. It holds a bounded number of tokens in memory and yields between pages. Its cost depends on the
 * number of issuing paths and of matching tokens, not on the number of all tokens.
 *
 * Failure modes. A commit fails, or the process is killed: the tokens of earlier pages are revoked, and a second call revokes the rest.
 * The next process completes the cleanup (`token-revocation.ts`).
 */
import { RECORD_COST, type SlicedWork } from '../../platform/sliced-work.ts'
import { Fault } from '../../platform/errors.ts'
import { yieldIfDue } from '../../platform/scheduler.ts'
import { isLease, type TokenEntry, tokenPaths } from '../tokens/token-entry.ts'
import type { TokenLeaseIndex } from '../tokens/token-lease-index.ts'
import type { TokenRevocation } from '../tokens/token-revocation.ts'
import type { TokenStore } from '../tokens/token-store.ts'
import { eachPage } from './paged-work.ts'

const AUTH = 'auth/'
/** Prefix of the hash in an ID, as in Vault. */
const HASH_PREFIX = 'h'
const ID = /^(.+)\/h([\da-f]{64})$/
/** Tokens revoked in one commit: a few milliseconds of the event loop and of the writer thread. */
const PAGE_TOKENS = 16
/** Names read in one step. */
const PAGE_NAMES = 256

export interface TokenLeasesOptions {
  readonly tokens: TokenStore
  readonly index: TokenLeaseIndex
  readonly revocation: TokenRevocation
  readonly now: () => number
}

/** A path at which a mount issued tokens. */
interface IssuingPath {
  /** Folder of the lease index. */
  readonly folder: string
  readonly path: string
}

/** Lease ID of a token. */
export function tokenLeaseId({ hash, path }: Pick<TokenEntry, 'hash' | 'path'>): string {
  return `${path}/${HASH_PREFIX}${hash}`
}

export class TokenLeases {
  readonly #options: TokenLeasesOptions

  constructor(options: TokenLeasesOptions) {
    this.#options = options
  }

  /** Whether an ID has the form of a token's lease ID. No lease ID of an engine has it. */
  isTokenLease(id: string): boolean {
    return id.startsWith(AUTH) && ID.test(id)
  }

  /** The token of a lease ID; undefined if there is no valid token. */
  find(id: string): TokenEntry | undefined {
    const [, path, hash] = ID.exec(id) ?? []
    const entry = hash === undefined ? undefined : this.#options.tokens.findByHash(hash, this.#options.now())
    return entry && entry.path === path && isLease(entry) ? entry : undefined
  }

  /** Revokes the token of a lease ID and its descendants. An unknown ID is ignored. */
  async revoke(id: string): Promise<void> {
    const entry = this.find(id)
    if (entry) await this.#options.revocation.revoke(entry.hash)
  }

  /**
   * Revokes every token whose lease ID begins with `prefix`, which ends with a slash, and the descendants of these tokens. Resolves
   * when that is durable and, with `isSync`, the cleanup is complete. Rejects if a write fails.
   */
  async revokePrefix(prefix: string, isSync: boolean): Promise<void> {
    const { index, revocation } = this.#options
    await index.ready()
    let hasRevoked = false
    await eachPage(this.#pagesUnder(prefix), async (hashes) => {
      hasRevoked = true
      await revocation.revokeWithoutCleanup(hashes.flatMap((hash) => this.#pending(hash, prefix)))
      return true
    })
    if (hasRevoked) await (isSync ? revocation.resume() : revocation.resumeBriefly())
  }

  /** Names directly below a prefix of lease IDs, which ends with a slash or is empty. Folders end with a slash. */
  *names(prefix: string): SlicedWork<Set<string>> {
    const { storage } = this.#options.tokens
    const names = new Set<string>()
    if (prefix === '') return storage.paths(tokenPaths.leases, { limit: 1 }).length > 0 ? names.add(AUTH) : names
    if (!prefix.startsWith(AUTH)) return names
    for (const issuing of this.#issuingPaths()) {
      yield RECORD_COST
      const path = issuing && `${issuing.path}/`
      if (!issuing || !path?.startsWith(prefix)) continue
      if (path !== prefix) {
        names.add(`${path.slice(prefix.length).split('/')[0] ?? ''}/`)
        continue
      }
      for (const page of this.#hashesIn(issuing.folder)) {
        for (const hash of page) names.add(HASH_PREFIX + hash)
        yield page.length
      }
    }
    return names
  }

  /** Resolves when the lease index is complete, so that lists and prefixes find every token. */
  async ready(): Promise<void> {
    await this.#options.index.ready()
  }

  /** The pending entry of a token whose lease ID begins with the prefix, to be revoked without an `await` in between. */
  #pending(hash: string, prefix: string): TokenEntry[] {
    const { tokens } = this.#options
    const entry = unlessDamaged(() => tokens.pending(hash))
    return entry && isLease(entry) && `${entry.path}/`.startsWith(prefix) ? [entry] : []
  }

  async *#pagesUnder(prefix: string): AsyncGenerator<string[]> {
    const page: string[] = []
    for (const issuing of prefix.startsWith(AUTH) ? this.#issuingPaths() : []) {
      await yieldIfDue()
      if (!issuing || !`${issuing.path}/`.startsWith(prefix)) continue
      for (const hashes of this.#hashesIn(issuing.folder)) {
        for (let at = 0; at < hashes.length; at += PAGE_TOKENS) {
          page.push(...hashes.slice(at, at + PAGE_TOKENS))
          if (page.length < PAGE_TOKENS) continue
          yield page.splice(0)
        }
      }
    }
    if (page.length > 0) yield page
  }

  /** Every issuing path. Yields undefined after a page without one, so that the caller can yield to the event loop. */
  *#issuingPaths(): Generator<IssuingPath | undefined> {
    const { storage } = this.#options.tokens
    for (const mount of storage.list(tokenPaths.leases)) {
      const parent = tokenPaths.leases + mount
      for (let after = ''; ; ) {
        const names = storage.list(parent, { after, limit: PAGE_NAMES })
        for (const name of names) yield* this.#issuingPathOf(parent + name)
        const last = names.at(-1)
        if (last === undefined) break
        after = last
      }
    }
  }

  /** The issuing path of a folder, which is read from its first readable token. Yields undefined for each page without one. */
  *#issuingPathOf(folder: string): Generator<IssuingPath | undefined> {
    const { tokens } = this.#options
    for (const hashes of this.#hashesIn(folder)) {
      for (const hash of hashes) {
        const entry = unlessDamaged(() => tokens.peek(hash))
        // An attacker who writes to the database can forge index entries.
        if (!entry || tokens.leaseFolderOf(entry) !== folder) continue
        yield { folder, path: entry.path }
        return
      }
      yield undefined
    }
  }

  *#hashesIn(folder: string): Generator<string[]> {
    const { storage } = this.#options.tokens
    for (let after = ''; ; ) {
      const hashes = storage.list(folder, { after, limit: PAGE_NAMES })
      const last = hashes.at(-1)
      if (last === undefined) return
      yield hashes
      after = last
    }
  }
}

/** Undefined for a damaged entry: the token is unusable and must not block the others. */
function unlessDamaged(read: () => TokenEntry | undefined): TokenEntry | undefined {
  try {
    return read()
  } catch (error) {
    if (error instanceof Fault) return undefined
    throw error
  }
}
