/**
 * Tokens, as they are kept. A token is found by its HMAC under a salt that is an entry itself, so neither the database
 * nor a dump of its names gives anybody a token; and it is nowhere in memory longer than its request.
 */
import { createHmac, randomBytes, randomInt } from 'node:crypto'
import { LRUCache } from 'lru-cache'
import * as v from 'valibot'
import type { Caller, Storage } from '../engines/engine.ts'
import { Fault } from '../kit/errors.ts'
import type { Put } from '../barrier/view.ts'

export const TOKENS_PREFIX = 'sys/token/'
const SALT_PATH = `${TOKENS_PREFIX}salt`
const SALT_BYTES = 32
/** Tokens whose entries are kept decrypted: a hash and an entry of about a kilobyte each. */
const CACHED_MAX = 10_000

const entrySchema = v.object({
  hash: v.string(),
  accessor: v.string(),
  type: v.picklist(['service', 'batch']),
  policies: v.array(v.string()),
  displayName: v.string(),
  path: v.string(),
  meta: v.nullable(v.record(v.string(), v.string())),
  /** Hash of the token that it was made with; empty for an orphan. */
  parent: v.string(),
  entityId: v.string(),
  role: v.string(),
  /** 0: as often as one likes. */
  usesLeft: v.number(),
  createdAtMs: v.number(),
  ttlSeconds: v.number(),
  explicitMaxTtlSeconds: v.number(),
  periodSeconds: v.number(),
  renewable: v.boolean(),
  renewedAtMs: v.optional(v.number()),
  /** Absent: it does not expire. */
  expiresAtMs: v.optional(v.number()),
  boundCidrs: v.array(v.string()),
})

export type TokenEntry = v.InferOutput<typeof entrySchema>

const accessorSchema = v.object({ accessor: v.string(), hash: v.string() })

const LETTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'

/** Characters of a root token, all of them ASCII: one-time passwords for it have as many. */
export const ROOT_TOKEN_LENGTH = 26

/** Random letters and digits: 24 of them are 142 bits. */
export function randomName(length: number): string {
  return Array.from({ length }, () => LETTERS[randomInt(LETTERS.length)]).join('')
}

export interface NewToken {
  /** The only time that it is seen. */
  readonly token: string
  readonly entry: TokenEntry
  readonly puts: readonly Put[]
}

export class TokenStore {
  readonly #storage: Storage
  readonly #salt: Buffer
  readonly #cache = new LRUCache<string, TokenEntry>({ max: CACHED_MAX })

  /** Throws a Fault where there is no salt. */
  constructor(storage: Storage) {
    this.#storage = storage
    const salt = storage.get(SALT_PATH)
    if (!salt) throw new Fault('the salt of the tokens is missing')
    this.#salt = salt
  }

  /** What a fresh core has of tokens: a salt, and the root token. */
  static initial(nowMs: number, token = `s.${randomName(24)}`): NewToken {
    const salt = randomBytes(SALT_BYTES)
    const made = rootToken(token, salt, nowMs)
    return { ...made, puts: [{ path: SALT_PATH, value: salt }, ...made.puts] }
  }

  /** Another root token, valid once its puts are committed. */
  newRoot(nowMs: number): NewToken {
    return rootToken(`s.${randomName(24)}`, this.#salt, nowMs)
  }

  hashOf(token: string): string {
    return hashOf(token, this.#salt)
  }

  /** The entry of a token; undefined for one that is none, and for one that has expired. */
  find(token: string, nowMs: number): TokenEntry | undefined {
    return this.findByHash(this.hashOf(token), nowMs)
  }

  findByHash(hash: string, nowMs: number): TokenEntry | undefined {
    const entry = this.#cache.get(hash) ?? this.#read(hash)
    return entry?.expiresAtMs !== undefined && entry.expiresAtMs <= nowMs ? undefined : entry
  }

  findByAccessor(accessor: string, nowMs: number): TokenEntry | undefined {
    const kept = this.#storage.get(`${TOKENS_PREFIX}accessor/${this.hashOf(accessor)}`)
    if (!kept) return undefined
    const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), accessorSchema), kept.toString('utf8'))
    if (!parsed.success) throw new Fault('the entry of an accessor is damaged')
    return this.findByHash(parsed.output.hash, nowMs)
  }

  #read(hash: string): TokenEntry | undefined {
    const kept = this.#storage.get(`${TOKENS_PREFIX}id/${hash}`)
    if (!kept) return undefined
    const entry = parseEntry(kept)
    this.#cache.set(hash, entry)
    return entry
  }

  close(): void {
    this.#cache.clear()
    this.#salt.fill(0)
  }
}

function hashOf(token: string, salt: Buffer): string {
  return createHmac('sha256', salt).update(token).digest('hex')
}

function parseEntry(bytes: Buffer): TokenEntry {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), entrySchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the entry of a token is damaged')
  return parsed.output
}

/** A token that may do everything, made for the first operator. */
function rootToken(token: string, salt: Buffer, nowMs: number): NewToken {
  const entry: TokenEntry = {
    hash: hashOf(token, salt),
    accessor: randomName(24),
    type: 'service',
    policies: ['root'],
    displayName: 'root',
    path: 'auth/token/root',
    meta: null,
    parent: '',
    entityId: '',
    role: '',
    usesLeft: 0,
    createdAtMs: nowMs,
    ttlSeconds: 0,
    explicitMaxTtlSeconds: 0,
    periodSeconds: 0,
    renewable: false,
    boundCidrs: [],
  }
  const accessorPath = `${TOKENS_PREFIX}accessor/${hashOf(entry.accessor, salt)}`
  const puts = [
    { path: `${TOKENS_PREFIX}id/${entry.hash}`, value: Buffer.from(JSON.stringify(entry)) },
    { path: accessorPath, value: Buffer.from(JSON.stringify({ accessor: entry.accessor, hash: entry.hash })) },
  ]
  return { token, entry, puts }
}

export function callerOf(entry: TokenEntry): Caller {
  return {
    accessor: entry.accessor,
    tokenHash: entry.hash,
    tokenType: entry.type,
    displayName: entry.displayName,
    policies: entry.policies,
    isRoot: entry.policies.includes('root'),
    entityId: entry.entityId,
  }
}
