/**
 * Stores tokens. A token is found by its HMAC. The key of the HMAC (the salt) is an encrypted entry, so neither the database nor
 * a list of its paths reveals a token. The token itself is in memory for the duration of a request only.
 *
 * Only durable entries are valid. A token is valid while it has not expired, the auth method of its login is mounted and all of its
 * ancestors are valid. So the removal of one entry invalidates a whole tree at once, and the rest of the tree is garbage
 * (`token-revocation.ts` removes it). The number of ancestors is limited, and they are looked up in the cache.
 *
 * Decrypted entries are cached when they are durable, and dropped when a change of them is durable. Entries of tokens with a
 * limited number of uses are not cached, because each use changes them.
 */
import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { type Batch, type CommitPart, type Put, Storage } from '../../storage/barrier/storage.ts'
import { type Caller, Rejection } from '../../engines/framework/engine.ts'
import { KeyedHash } from '../../platform/keyed-hash.ts'
import { Fault } from '../../platform/errors.ts'
import { BATCH_KEY_BYTES, isBatch, openBatch, sealBatch } from './token-batch.ts'
import { CidrRanges } from '../../engines/framework/cidr.ts'
import { isEnabledByRecord } from '../mounts/mount-record.ts'
import {
  callerOf,
  emptyPut,
  encodeEntry,
  hasExpired,
  indexPaths,
  leaseFolderOf,
  parseEntry,
  randomName,
  ROOT_PATH,
  type TokenEntry,
  tokenPaths,
  TOKENS_PREFIX,
} from './token-entry.ts'

const SALT_PATH = `${TOKENS_PREFIX}salt`
const BATCH_KEY_PATH = `${TOKENS_PREFIX}batch-key`
/** Exists when the lease index is complete (`token-lease-index.ts`). */
const LEASES_INDEXED_PATH = 'core/token-leases-indexed'
const LEASES_INDEXED = Buffer.from('1')
const SALT_BYTES = 32
/** Size of the cache of decrypted entries, in characters: about twenty thousand tokens. */
const CACHE_CHARACTERS_MAX = 16 << 20
/** Maximum size of an entry. */
const ENTRY_BYTES_MAX = 64 << 10
/** Maximum number of ancestors: each use of a token looks up all of them. */
const DEPTH_MAX = 100
/** Longer texts are not hashed. */
const TOKEN_LENGTH_MAX = 16_384

/** ASCII characters of a root token. A one-time password that encodes it has the same length. */
export const ROOT_TOKEN_LENGTH = 26

export interface RootToken {
  /** The token itself, which is not stored. */
  readonly token: string
  readonly entry: TokenEntry
  readonly puts: readonly Put[]
}

/** A decrypted entry, with values derived from it once. */
export class CachedToken {
  readonly entry: TokenEntry
  readonly caller: Caller
  /** Undefined for a token that is not bound to addresses. */
  readonly #boundRanges: CidrRanges | undefined

  constructor(entry: TokenEntry) {
    this.entry = entry
    this.caller = callerOf(entry)
    this.#boundRanges = entry.boundCidrs.length > 0 ? new CidrRanges(entry.boundCidrs) : undefined
  }

  isAllowedFrom(remote: string | undefined): boolean {
    return this.#boundRanges === undefined || this.#boundRanges.includes(remote)
  }
}

export class TokenStore {
  readonly storage: Storage
  readonly #hash: KeyedHash
  readonly #batchKey: Buffer
  readonly #isMounted: (uuid: string) => boolean
  readonly #cache = new LRUCache<string, CachedToken>({ maxSize: CACHE_CHARACTERS_MAX })
  #areLeasesIndexed: boolean
  /** Hashes of tokens whose revocation is queued and not durable yet. */
  readonly #ending = new Set<string>()

  /**
   * `isMounted`: whether the auth method with a UUID is enabled. Default: by the mount's record in `storage`. Throws a Fault if
   * the salt or the key of batch tokens is missing.
   */
  constructor(storage: Storage, isMounted = (uuid: string) => isEnabledByRecord(storage, uuid)) {
    this.storage = storage
    this.#isMounted = isMounted
    const [salt, batchKey] = [storage.get(SALT_PATH), storage.get(BATCH_KEY_PATH)]
    if (!salt || !batchKey) throw new Fault('the salt of tokens or the key of batch tokens is missing')
    this.#hash = new KeyedHash(salt)
    this.#areLeasesIndexed = storage.get(LEASES_INDEXED_PATH) !== undefined
    // A copy, because `close` overwrites it and the storage shares its buffers.
    this.#batchKey = Buffer.from(batchKey)
  }

  /** The first entries of a new core: salt, key of batch tokens, root token. */
  static initial(nowMs: number, token = newTokenText()): RootToken {
    const salt = randomBytes(SALT_BYTES)
    const root = newRootToken(token, new KeyedHash(salt), nowMs)
    const keys = [
      { path: SALT_PATH, value: salt },
      { path: BATCH_KEY_PATH, value: randomBytes(BATCH_KEY_BYTES) },
      { path: LEASES_INDEXED_PATH, value: LEASES_INDEXED },
    ]
    return { ...root, puts: [...keys, ...root.puts] }
  }

  /** A new root token, valid when its puts are committed. */
  newRoot(nowMs: number): RootToken {
    return newRootToken(newTokenText(), this.#hash, nowMs)
  }

  hashOf(token: string): string {
    return this.#hash.digest(token, 'hex')
  }

  readonly #digest = (text: string) => this.#hash.digest(text, 'hex')

  /** Undefined for a text that is not a valid token. */
  lookup(token: string, nowMs: number): CachedToken | undefined {
    if (token === '' || token.length > TOKEN_LENGTH_MAX) return undefined
    const hash = this.#hash.digest(token, 'hex')
    const known = this.#cache.get(hash) ?? (isBatch(token) ? this.#openBatch(token, hash) : this.#read(hash))
    return known && this.#isValid(known.entry, nowMs) ? known : undefined
  }

  /** Whether a token that was looked up before is still valid. */
  isStillValid({ entry }: CachedToken, nowMs: number): boolean {
    // A batch token has no stored entry; its expiry and its parent decide.
    const current = entry.type === 'batch' ? entry : this.#cachedByHash(entry.hash)?.entry
    return current !== undefined && this.#isValid(current, nowMs)
  }

  find(token: string, nowMs: number): TokenEntry | undefined {
    return this.lookup(token, nowMs)?.entry
  }

  findByHash(hash: string, nowMs: number): TokenEntry | undefined {
    const entry = this.#cachedByHash(hash)?.entry
    return entry && this.#isValid(entry, nowMs) ? entry : undefined
  }

  findByAccessor(accessor: string, nowMs: number): TokenEntry | undefined {
    if (accessor === '' || accessor.length > TOKEN_LENGTH_MAX) return undefined
    const [hash] = this.storage.list(tokenPaths.accessorOf(this.hashOf(accessor)), { limit: 1 })
    const entry = hash === undefined ? undefined : this.findByHash(hash, nowMs)
    // The path of an index entry can be forged by an attacker who writes to the database.
    return entry?.accessor === accessor ? entry : undefined
  }

  /** The entry of a request's token, with this use already counted. */
  entryOf({ tokenHash }: Caller): TokenEntry | undefined {
    return this.#cache.get(tokenHash)?.entry ?? this.pending(tokenHash)
  }

  /** The durable entry, of an invalid token too. Does not change the cache. */
  peek(hash: string): TokenEntry | undefined {
    const known = this.#cache.peek(hash)
    if (known) return known.entry
    const bytes = this.storage.get(tokenPaths.id(hash))
    return bytes && parseEntry(bytes)
  }

  /** The entry with all queued changes, of an invalid token too. A change must start from it. */
  pending(hash: string): TokenEntry | undefined {
    const bytes = this.storage.pending(tokenPaths.id(hash))
    return bytes && parseEntry(bytes)
  }

  #cachedByHash(hash: string): CachedToken | undefined {
    return this.#cache.get(hash) ?? this.#read(hash)
  }

  #read(hash: string): CachedToken | undefined {
    const bytes = this.storage.get(tokenPaths.id(hash))
    if (!bytes) return undefined
    const token = new CachedToken(parseEntry(bytes))
    if (token.entry.usesLeft === 0) this.#cache.set(hash, token, { size: bytes.length })
    return token
  }

  #openBatch(token: string, hash: string): CachedToken | undefined {
    const entry = openBatch(token, hash, this.#batchKey)
    const cached = entry && new CachedToken(entry)
    if (cached) this.#cache.set(hash, cached, { size: token.length })
    return cached
  }

  #isValid(entry: TokenEntry, nowMs: number): boolean {
    if (entry.isLeaving || entry.usesLeft < 0 || hasExpired(entry, nowMs)) return false
    if (!this.#isLoginValid(entry)) return false
    for (let { parent } = entry; parent !== ''; ) {
      const ancestor = this.#cachedByHash(parent)?.entry
      if (!ancestor) return false
      // Its children are orphans already.
      if (ancestor.isLeaving) return true
      if (hasExpired(ancestor, nowMs) || !this.#isLoginValid(ancestor)) return false
      parent = ancestor.parent
    }
    return true
  }

  /** Batch tokens of a disabled auth method cannot be removed, so each use of a token checks that the method is mounted. */
  #isLoginValid({ login, parent, path, type }: TokenEntry): boolean {
    if (login) return this.#isMounted(login.mount)
    // Older versions issued batch tokens of logins without the method's UUID: they are invalid.
    return type !== 'batch' || parent !== '' || path.startsWith('auth/token/')
  }

  /** Commits a new token. Throws as `newPart`. */
  async add(entry: TokenEntry, options: { readonly isChosen: boolean }): Promise<void> {
    await Storage.commitAll([this.newPart(entry, options)])
  }

  /**
   * The part of a commit that stores a new token. Throws a Rejection for a token whose parent was revoked (403), that has too many
   * ancestors, is too large, or whose ID was chosen by the caller and exists (400).
   */
  newPart(entry: TokenEntry, { isChosen }: { readonly isChosen: boolean }): CommitPart {
    const { hash, parent } = entry
    if (entry.depth > DEPTH_MAX) throw new Rejection(400, `a token can have at most ${DEPTH_MAX} ancestors`)
    if (parent !== '' && !this.exists(parent)) throw new Rejection(403, 'permission denied')
    if (isChosen && (this.pending(hash) ?? this.storage.pending(tokenPaths.revoking(hash)))) {
      throw new Rejection(400, 'cannot create a token with a duplicate ID')
    }
    const value = encodeEntry(entry)
    if (value.length > ENTRY_BYTES_MAX) {
      throw new Rejection(400, `the token entry exceeds ${ENTRY_BYTES_MAX} bytes: use fewer policies and less metadata`)
    }
    const puts = [{ path: tokenPaths.id(hash), value }]
    return { storage: this.storage, batch: { puts, deletes: [] }, raw: this.#indexOf(entry).map(emptyPut) }
  }

  /** Hashes of tokens that an auth method's logins issued, at most `limit`. */
  ofMount(uuid: string, limit: number): string[] {
    const paths = this.storage.paths(tokenPaths.leasesOf(uuid), { limit })
    if (!this.#areLeasesIndexed && paths.length === 0) return this.storage.list(tokenPaths.oldLoginsOf(uuid), { limit })
    return paths.map((path) => path.slice(path.lastIndexOf('/') + 1))
  }

  /** Whether the lease index is complete. */
  get areLeasesIndexed(): boolean {
    return this.#areLeasesIndexed
  }

  /** Stores that the lease index is complete. Resolves when that is durable. */
  async setLeasesIndexed(): Promise<void> {
    await this.storage.commit({ puts: [{ path: LEASES_INDEXED_PATH, value: LEASES_INDEXED }], deletes: [] })
    this.#areLeasesIndexed = true
  }

  /** Folder of the lease index for the tokens with the same mount and issuing path. */
  leaseFolderOf(entry: TokenEntry): string {
    return leaseFolderOf(entry, this.#digest)
  }

  /** The part of a commit that stores a token without a parent whose ID the server generated. */
  orphanPart(entry: TokenEntry): CommitPart {
    const puts = [{ path: tokenPaths.id(entry.hash), value: encodeEntry(entry) }]
    return { storage: this.storage, batch: { puts, deletes: [] }, raw: this.#indexOf(entry).map(emptyPut) }
  }

  /** Whether an entry is stored and its revocation is not queued. A decision about the token may start from it. */
  exists(hash: string): boolean {
    return !this.#ending.has(hash) && this.#cachedByHash(hash) !== undefined
  }

  /** Commits a batch that revokes tokens. From the call on `exists` is false for them. */
  async commitRevocation(hashes: readonly string[], batch: Batch): Promise<void> {
    for (const hash of hashes) this.#ending.add(hash)
    try {
      await this.storage.commit(batch)
    } finally {
      for (const hash of hashes) {
        this.#ending.delete(hash)
        this.forget(hash)
      }
    }
  }

  /** Commits a changed entry together with `more`. `before` must be the pending entry. */
  async change(before: TokenEntry, entry: TokenEntry, more: readonly CommitPart[] = []): Promise<void> {
    const [old, index] = [this.#indexOf(before), this.#indexOf(entry)]
    const puts = [{ path: tokenPaths.id(entry.hash), value: encodeEntry(entry) }]
    const deletes = old.filter((path) => !index.includes(path))
    const raw = index.filter((path) => !old.includes(path)).map(emptyPut)
    await Storage.commitAll([{ storage: this.storage, batch: { puts, deletes }, raw }, ...more])
    this.forget(entry.hash)
  }

  /** Paths of a token's entry and of all its index entries. */
  pathsOf(entry: TokenEntry): string[] {
    const paths = [tokenPaths.id(entry.hash), ...this.#indexOf(entry)]
    const { hash, login } = entry
    return login && !this.#areLeasesIndexed ? [...paths, tokenPaths.oldLoginsOf(login.mount) + hash] : paths
  }

  #indexOf(entry: TokenEntry): string[] {
    return indexPaths(entry, this.#digest)
  }

  /** Drops an entry from the cache. To be called when a change of the entry is durable. */
  forget(hash: string): void {
    this.#cache.delete(hash)
  }

  sealBatch(entry: TokenEntry): string {
    return sealBatch(entry, this.#batchKey)
  }

  close(): void {
    this.#cache.clear()
    this.#hash.close()
    this.#batchKey.fill(0)
  }
}

export function newTokenText(): string {
  return `s.${randomName(24)}`
}

function newRootToken(token: string, keyedHash: KeyedHash, nowMs: number): RootToken {
  const entry: TokenEntry = {
    hash: keyedHash.digest(token, 'hex'),
    accessor: randomName(24),
    type: 'service',
    policies: ['root'],
    displayName: 'root',
    path: ROOT_PATH,
    meta: null,
    parent: '',
    depth: 0,
    entityId: '',
    role: '',
    usesLeft: 0,
    createdAtMs: nowMs,
    ttlSeconds: 0,
    leaseSeconds: 0,
    explicitMaxTtlSeconds: 0,
    periodSeconds: 0,
    renewable: false,
    boundCidrs: [],
  }
  const index = indexPaths(entry, (text) => keyedHash.digest(text, 'hex')).map(emptyPut)
  return { token, entry, puts: [{ path: tokenPaths.id(entry.hash), value: encodeEntry(entry) }, ...index] }
}
