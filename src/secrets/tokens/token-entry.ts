/** The stored entry of a token: schema, paths and index entries. */
import { randomFillSync } from 'node:crypto'
import * as v from 'valibot'
import type { Put } from '../../storage/barrier/storage.ts'
import type { Caller } from '../../engines/framework/engine.ts'
import { parseRecord } from '../../platform/stored-record.ts'
import { textRecord } from '../../engines/framework/records.ts'

export const TOKENS_PREFIX = 'sys/token/'
/** Path of the root tokens that the core creates itself. */
export const ROOT_PATH = 'auth/token/root'
const WRAPPING_POLICY = 'response-wrapping'
/** Takes the place of the mount's UUID in the lease index for a token that no login issued. */
const CREATED_MOUNT = 'created'
/** 128 bits of a path's hash, in hexadecimal digits. */
const PATH_HASH_DIGITS = 32

/** The login that issued a token. */
export const loginSchema = v.object({
  /** UUID of the auth method's mount. */
  mount: v.string(),
  /** Identifies the user or role to the auth method. */
  subject: v.string(),
  maxTtlSeconds: v.number(),
})

const entrySchema = v.object({
  hash: v.string(),
  /** Empty for a batch token. */
  accessor: v.string(),
  type: v.picklist(['service', 'batch']),
  policies: v.array(v.string()),
  displayName: v.string(),
  path: v.string(),
  meta: v.nullable(textRecord),
  /** Hash of the token that created it; empty for an orphan. */
  parent: v.string(),
  /** Number of ancestors at creation. */
  depth: v.number(),
  entityId: v.string(),
  role: v.string(),
  /** 0: unlimited; -1: the last use has begun. */
  usesLeft: v.number(),
  createdAtMs: v.number(),
  /** TTL at creation; 0 for a token that does not expire. */
  ttlSeconds: v.number(),
  /** TTL granted last; a renewal without an increment grants it again. */
  leaseSeconds: v.number(),
  explicitMaxTtlSeconds: v.number(),
  periodSeconds: v.number(),
  renewable: v.boolean(),
  renewedAtMs: v.optional(v.number()),
  /** Absent for a token that does not expire. */
  expiresAtMs: v.optional(v.number()),
  boundCidrs: v.array(v.string()),
  /** Set while the token is revoked without its children: it is invalid, and its children count as orphans. */
  isLeaving: v.optional(v.boolean()),
  /** Present for a token that a login issued. */
  login: v.optional(loginSchema),
})

export type TokenEntry = v.InferOutput<typeof entrySchema>

export function encodeEntry(entry: TokenEntry): Buffer {
  return Buffer.from(JSON.stringify(entry))
}

export function parseEntry(bytes: Buffer): TokenEntry {
  return parseRecord(entrySchema, bytes, 'a token')
}

export function hasExpired({ expiresAtMs }: TokenEntry, nowMs: number): boolean {
  return expiresAtMs !== undefined && expiresAtMs <= nowMs
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

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
/** Rejection sampling: larger bytes would favor some characters. */
const FAIR_BELOW = 256 - (256 % ALPHABET.length)
/** Random bytes drawn in advance, because a call costs more than its bytes. Used bytes are overwritten. */
const randomPool = Buffer.alloc(1024)
let poolAt = randomPool.length

/** Random letters and digits; 24 of them have 142 bits. */
export function randomName(length: number): string {
  const letters = Buffer.alloc(length)
  for (let at = 0; at < length; ) {
    if (poolAt === randomPool.length) {
      randomFillSync(randomPool)
      poolAt = 0
    }
    const byte = randomPool[poolAt] ?? 0
    randomPool[poolAt++] = 0
    if (byte < FAIR_BELOW) letters[at++] = ALPHABET.charCodeAt(byte % ALPHABET.length)
  }
  const name = letters.toString('latin1')
  letters.fill(0)
  return name
}

/** Paths of entries. They contain hashes and times only. Index entries have empty values. */
export const tokenPaths = {
  id: (hash: string) => `${TOKENS_PREFIX}id/${hash}`,
  accessors: `${TOKENS_PREFIX}accessor/`,
  accessorOf: (accessorHash: string) => `${TOKENS_PREFIX}accessor/${accessorHash}/`,
  parents: `${TOKENS_PREFIX}parent/`,
  childrenOf: (hash: string) => `${TOKENS_PREFIX}parent/${hash}/`,
  expiries: `${TOKENS_PREFIX}expiry/`,
  /** Sorted by time: fifteen digits are enough for 29,000 years. */
  expiry: (expiresAtMs: number, hash: string) =>
    `${TOKENS_PREFIX}expiry/${String(expiresAtMs).padStart(15, '0')}/${hash}`,
  /** Lease index: by the mount of the login or `created`, then by the hash of the issuing path. */
  leases: `${TOKENS_PREFIX}lease/`,
  leasesOf: (mount: string) => `${TOKENS_PREFIX}lease/${mount}/`,
  /** Index of logins, in databases of older versions. */
  oldLogins: `${TOKENS_PREFIX}login/`,
  oldLoginsOf: (mount: string) => `${TOKENS_PREFIX}login/${mount}/`,
  /** Mark of a revoked token, until everything that belongs to it is removed. */
  revoking: (hash: string) => `${TOKENS_PREFIX}revoking/${hash}`,
  revokings: `${TOKENS_PREFIX}revoking/`,
  role: (name: string) => `${TOKENS_PREFIX}role/${encodeURIComponent(name)}`,
  roles: `${TOKENS_PREFIX}role/`,
} as const

const EMPTY = Buffer.alloc(0)

/** Whether a token counts as a lease (`sys/leases`). Batch tokens, root tokens of the core itself and wrapping tokens do not. */
export function isLease({ path, policies, type }: TokenEntry): boolean {
  return type === 'service' && path.startsWith('auth/') && path !== ROOT_PATH && !policies.includes(WRAPPING_POLICY)
}

/** Folder of the lease index for all tokens with the same mount and issuing path. */
export function leaseFolderOf({ login, path }: TokenEntry, hashOf: (text: string) => string): string {
  return `${tokenPaths.leasesOf(login?.mount ?? CREATED_MOUNT)}${hashOf(path).slice(0, PATH_HASH_DIGITS)}/`
}

/** Index entries of a token. `hashOf` is the keyed hash of tokens. */
export function indexPaths(entry: TokenEntry, hashOf: (text: string) => string): string[] {
  const { accessor, expiresAtMs, hash, parent } = entry
  const paths = [tokenPaths.accessorOf(hashOf(accessor)) + hash]
  if (parent !== '') paths.push(tokenPaths.childrenOf(parent) + hash)
  if (expiresAtMs !== undefined) paths.push(tokenPaths.expiry(expiresAtMs, hash))
  if (isLease(entry)) paths.push(leaseFolderOf(entry, hashOf) + hash)
  return paths
}

/** An index entry: its path contains all the information. */
export function emptyPut(path: string): Put {
  return { path, value: EMPTY }
}
