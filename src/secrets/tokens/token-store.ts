/**
 * Tokens, as they are kept. A token is found by its HMAC under a salt that is an entry itself, so neither the database
 * nor a dump of its names gives anybody a token; and it is nowhere in memory longer than its request.
 *
 * What serves a caller is durable. A token is valid while it has not expired, the auth method of its login is mounted and
 * all of its ancestors are valid: so one entry that is removed ends a whole tree at once, and what is left of the tree is
 * only in the way (`token-revocation.ts` removes it). Ancestors are asked in memory; a token has a bounded number of them.
 *
 * Entries are kept decrypted for a while, never before they are durable, and forgotten when a change of them is. Those
 * of tokens with a limited number of uses are not: each use changes them.
 */
import { randomBytes } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import { type Batch, type CommitPart, type Put, Storage } from '../../storage/barrier/storage.ts'
import { type Caller, Rejection } from '../../engines/framework/engine.ts'
import { KeyedHash } from '../../platform/keyed-hash.ts'
import { Fault } from '../../platform/errors.ts'
import { BATCH_KEY_BYTES, isBatch, openBatch, sealBatch } from './token-batch.ts'
import { AddressRanges } from '../../engines/framework/addresses.ts'
import { hasServingRecord } from '../mounts/mount-record.ts'
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
/** Present once every token has its entry in the index of leases (`token-lease-index.ts`). */
const LEASES_INDEXED_PATH = 'core/token-leases-indexed'
const LEASES_INDEXED = Buffer.from('1')
const SALT_BYTES = 32
/** Characters of entries that are kept decrypted: of some twenty thousand tokens. */
const CACHED_CHARACTERS_MAX = 16 << 20
/** Of one entry. Nobody's policies and metadata need more; a hundred thousand such tokens are what a disk takes. */
const ENTRY_BYTES_MAX = 64 << 10
/** Each use of a token asks for all of its ancestors. */
const DEPTH_MAX = 100
/** No token is longer. */
const TOKEN_LENGTH_MAX = 16_384

/** Characters of a root token, all of them ASCII: one-time passwords for it have as many. */
export const ROOT_TOKEN_LENGTH = 26

export interface NewToken {
  /** The only time that it is seen. */
  readonly token: string
  readonly entry: TokenEntry
  readonly puts: readonly Put[]
}

/** A token that was looked up, with what is made of its entry once. */
export class KnownToken {
  readonly entry: TokenEntry
  readonly caller: Caller
  readonly #bound: AddressRanges | undefined

  constructor(entry: TokenEntry) {
    this.entry = entry
    this.caller = callerOf(entry)
    this.#bound = entry.boundCidrs.length > 0 ? new AddressRanges(entry.boundCidrs) : undefined
  }

  mayComeFrom(remote: string | undefined): boolean {
    return this.#bound === undefined || this.#bound.includes(remote)
  }
}

export class TokenStore {
  readonly storage: Storage
  readonly #hash: KeyedHash
  readonly #batchKey: Buffer
  readonly #isMounted: (uuid: string) => boolean
  readonly #cache = new LRUCache<string, KnownToken>({ maxSize: CACHED_CHARACTERS_MAX })
  #areLeasesIndexed: boolean
  /** Tokens whose end is queued and not durable yet. */
  readonly #ending = new Set<string>()

  /**
   * `isMounted`: whether the auth method with a UUID is enabled; by the mount's record in `storage` unless given. Throws a
   * Fault where there is no salt.
   */
  constructor(storage: Storage, isMounted = (uuid: string) => hasServingRecord(storage, uuid)) {
    this.storage = storage
    this.#isMounted = isMounted
    const [salt, batchKey] = [storage.get(SALT_PATH), storage.get(BATCH_KEY_PATH)]
    if (!salt || !batchKey) throw new Fault('the salt of the tokens, or the key of the batch tokens, is missing')
    this.#hash = new KeyedHash(salt)
    this.#areLeasesIndexed = storage.get(LEASES_INDEXED_PATH) !== undefined
    // Overwritten at the end, and what a storage gives is shared.
    this.#batchKey = Buffer.from(batchKey)
  }

  /** What a fresh core has of tokens: a salt, a key, and the root token. */
  static initial(nowMs: number, token = newTokenText()): NewToken {
    const salt = randomBytes(SALT_BYTES)
    const made = rootToken(token, new KeyedHash(salt), nowMs)
    const keys = [
      { path: SALT_PATH, value: salt },
      { path: BATCH_KEY_PATH, value: randomBytes(BATCH_KEY_BYTES) },
      { path: LEASES_INDEXED_PATH, value: LEASES_INDEXED },
    ]
    return { ...made, puts: [...keys, ...made.puts] }
  }

  /** Another root token, valid once its puts are committed. */
  newRoot(nowMs: number): NewToken {
    return rootToken(newTokenText(), this.#hash, nowMs)
  }

  hashOf(token: string): string {
    return this.#hash.digest(token, 'hex')
  }

  readonly #digest = (text: string) => this.#hash.digest(text, 'hex')

  /** Undefined for what is no token (any more). */
  known(token: string, nowMs: number): KnownToken | undefined {
    if (token === '' || token.length > TOKEN_LENGTH_MAX) return undefined
    const hash = this.#hash.digest(token, 'hex')
    const known = this.#cache.get(hash) ?? (isBatch(token) ? this.#open(token, hash) : this.#read(hash))
    return known && this.#isOne(known.entry, nowMs) ? known : undefined
  }

  /** Whether a token that was looked up is still one. */
  isStill({ entry }: KnownToken, nowMs: number): boolean {
    // A batch token is in no entry; it ends with its time, or with its parent.
    const current = entry.type === 'batch' ? entry : this.#knownByHash(entry.hash)?.entry
    return current !== undefined && this.#isOne(current, nowMs)
  }

  find(token: string, nowMs: number): TokenEntry | undefined {
    return this.known(token, nowMs)?.entry
  }

  findByHash(hash: string, nowMs: number): TokenEntry | undefined {
    const entry = this.#knownByHash(hash)?.entry
    return entry && this.#isOne(entry, nowMs) ? entry : undefined
  }

  findByAccessor(accessor: string, nowMs: number): TokenEntry | undefined {
    if (accessor === '' || accessor.length > TOKEN_LENGTH_MAX) return undefined
    const [hash] = this.storage.list(tokenPaths.accessorOf(this.hashOf(accessor)), { limit: 1 })
    const entry = hash === undefined ? undefined : this.findByHash(hash, nowMs)
    // The index is a path, which anybody who can write the database could have made.
    return entry?.accessor === accessor ? entry : undefined
  }

  /** The entry of the token that a request came with, as it is after this use of it. */
  entryOf({ tokenHash }: Caller): TokenEntry | undefined {
    return this.#cache.get(tokenHash)?.entry ?? this.pending(tokenHash)
  }

  /** An entry of a list, read in passing, whatever has become of the token. */
  glance(hash: string): TokenEntry | undefined {
    const known = this.#cache.peek(hash)
    if (known) return known.entry
    const bytes = this.storage.get(tokenPaths.id(hash))
    return bytes && parseEntry(bytes)
  }

  /** The entry as the next change of it will find it, also of a token that is none any more. */
  pending(hash: string): TokenEntry | undefined {
    const bytes = this.storage.pending(tokenPaths.id(hash))
    return bytes && parseEntry(bytes)
  }

  #knownByHash(hash: string): KnownToken | undefined {
    return this.#cache.get(hash) ?? this.#read(hash)
  }

  #read(hash: string): KnownToken | undefined {
    const bytes = this.storage.get(tokenPaths.id(hash))
    if (!bytes) return undefined
    const known = new KnownToken(parseEntry(bytes))
    if (known.entry.usesLeft === 0) this.#cache.set(hash, known, { size: bytes.length })
    return known
  }

  #open(token: string, hash: string): KnownToken | undefined {
    const entry = openBatch(token, hash, this.#batchKey)
    const known = entry && new KnownToken(entry)
    if (known) this.#cache.set(hash, known, { size: token.length })
    return known
  }

  #isOne(entry: TokenEntry, nowMs: number): boolean {
    if (entry.isLeaving || entry.usesLeft < 0 || hasExpired(entry, nowMs)) return false
    if (!this.#isLoginValid(entry)) return false
    for (let { parent } = entry; parent !== ''; ) {
      const ancestor = this.#knownByHash(parent)?.entry
      if (!ancestor) return false
      // It leaves its children behind, and whatever comes to it concerns them no more.
      if (ancestor.isLeaving) return true
      if (hasExpired(ancestor, nowMs) || !this.#isLoginValid(ancestor)) return false
      parent = ancestor.parent
    }
    return true
  }

  /** Nothing removes the batch tokens of an auth method that is disabled, so every use of a token checks the method. */
  #isLoginValid({ login, parent, path, type }: TokenEntry): boolean {
    if (login) return this.#isMounted(login.mount)
    // A batch token of a login without the method's UUID was issued by an older version.
    return type !== 'batch' || parent !== '' || path.startsWith('auth/token/')
  }

  /**
   * Writes a new token down; resolves when it is durable. Throws a Rejection (400) for one whose maker is gone or has too
   * many ancestors, for one that is too large, and for one whose name was chosen and is taken.
   */
  async add(entry: TokenEntry, how: { readonly isChosen: boolean }): Promise<void> {
    await Storage.commitAll([this.part(entry, how)])
  }

  /** What is to be committed for a new token. Throws as `add`. */
  part(entry: TokenEntry, { isChosen }: { readonly isChosen: boolean }): CommitPart {
    const { hash, parent } = entry
    if (entry.depth > DEPTH_MAX) throw new Rejection(400, `a token can have at most ${DEPTH_MAX} ancestors`)
    if (parent !== '' && !this.isThere(parent)) throw new Rejection(403, 'permission denied')
    if (isChosen && (this.pending(hash) ?? this.storage.pending(tokenPaths.revoking(hash)))) {
      throw new Rejection(400, 'cannot create a token with a duplicate ID')
    }
    const value = encodeEntry(entry)
    if (value.length > ENTRY_BYTES_MAX) {
      throw new Rejection(400, 'the token would be too large: give it fewer policies and less metadata')
    }
    const puts = [{ path: tokenPaths.id(hash), value }]
    return { storage: this.storage, batch: { puts, deletes: [] }, raw: this.#indexOf(entry).map(emptyPut) }
  }

  /** Hashes of tokens that logins with an auth method issued, at most `limit`. */
  ofMount(uuid: string, limit: number): string[] {
    const found = this.storage.paths(tokenPaths.leasesOf(uuid), { limit })
    if (!this.#areLeasesIndexed && found.length === 0) return this.storage.list(tokenPaths.oldLoginsOf(uuid), { limit })
    return found.map((path) => path.slice(path.lastIndexOf('/') + 1))
  }

  /** Whether every token that is a lease has its entry in the index of leases. */
  get areLeasesIndexed(): boolean {
    return this.#areLeasesIndexed
  }

  /** Notes that the index of leases is complete. Resolves when that is durable. */
  async noteLeasesIndexed(): Promise<void> {
    await this.storage.commit({ puts: [{ path: LEASES_INDEXED_PATH, value: LEASES_INDEXED }], deletes: [] })
    this.#areLeasesIndexed = true
  }

  /** Folder of the index entries of the tokens with the mount and the path of this one. */
  leaseFolderOf(entry: TokenEntry): string {
    return leaseFolderOf(entry, this.#digest)
  }

  /** What writes a new token down that has no parent and a name of its own, to be committed with what it is for. */
  partOf(entry: TokenEntry): CommitPart {
    const puts = [{ path: tokenPaths.id(entry.hash), value: encodeEntry(entry) }]
    return { storage: this.storage, batch: { puts, deletes: [] }, raw: this.#indexOf(entry).map(emptyPut) }
  }

  /** Whether something may be decided upon a token: it is there, and nothing is queued that ends it. */
  isThere(hash: string): boolean {
    return !this.#ending.has(hash) && this.#knownByHash(hash) !== undefined
  }

  /** Commits what ends tokens. From now on nothing is decided upon them. */
  async end(hashes: readonly string[], batch: Batch): Promise<void> {
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

  /** Writes a changed entry down, with `beside`; resolves when it is durable. `before` must be what is pending. */
  async change(before: TokenEntry, entry: TokenEntry, beside: readonly CommitPart[] = []): Promise<void> {
    const [old, index] = [this.#indexOf(before), this.#indexOf(entry)]
    const puts = [{ path: tokenPaths.id(entry.hash), value: encodeEntry(entry) }]
    const deletes = old.filter((path) => !index.includes(path))
    const raw = index.filter((path) => !old.includes(path)).map(emptyPut)
    await Storage.commitAll([{ storage: this.storage, batch: { puts, deletes }, raw }, ...beside])
    this.forget(entry.hash)
  }

  /** Everything by which a token is found, itself included: what goes when it goes. */
  pathsOf(entry: TokenEntry): string[] {
    const paths = [tokenPaths.id(entry.hash), ...this.#indexOf(entry)]
    const { hash, login } = entry
    return login && !this.#areLeasesIndexed ? [...paths, tokenPaths.oldLoginsOf(login.mount) + hash] : paths
  }

  #indexOf(entry: TokenEntry): string[] {
    return indexPaths(entry, this.#digest)
  }

  /** To be called when a change of an entry is durable. */
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

/** A token that may do everything, made for an operator. */
function rootToken(token: string, salted: KeyedHash, nowMs: number): NewToken {
  const entry: TokenEntry = {
    hash: salted.digest(token, 'hex'),
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
  const index = indexPaths(entry, (text) => salted.digest(text, 'hex')).map(emptyPut)
  return { token, entry, puts: [{ path: tokenPaths.id(entry.hash), value: encodeEntry(entry) }, ...index] }
}
