/** What is kept of a token, where, and how it is written. */
import { randomFillSync } from 'node:crypto'
import * as v from 'valibot'
import type { Put } from '../../storage/barrier/storage.ts'
import type { Caller } from '../../engines/framework/engine.ts'
import { Fault } from '../../platform/errors.ts'
import { textRecord } from '../../engines/framework/records.ts'

export const TOKENS_PREFIX = 'sys/token/'
/** Path of the root tokens that the core creates itself. */
export const ROOT_PATH = 'auth/token/root'
const WRAPPING_POLICY = 'response-wrapping'
/** Stands for the mount of a token that no login issued. */
const CREATED = 'created'
/** Hexadecimal digits of a path's hash: 128 bits. */
const PATH_HASH_LENGTH = 32

/** How a login got its token. */
export const loginSchema = v.object({
  /** UUID of the auth method's mount. */
  mount: v.string(),
  /** By which that finds what it gave the token for. */
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
  /** Hash of the token that it was made with; empty for an orphan. */
  parent: v.string(),
  /** How many ancestors it had when it was made. */
  depth: v.number(),
  entityId: v.string(),
  role: v.string(),
  /** 0: as often as one likes; -1: its last use is under way, or over. */
  usesLeft: v.number(),
  createdAtMs: v.number(),
  /** That it was made with; 0 for one without an end. */
  ttlSeconds: v.number(),
  /** That it was last given: what a renewal without a wish gives again. */
  leaseSeconds: v.number(),
  explicitMaxTtlSeconds: v.number(),
  periodSeconds: v.number(),
  renewable: v.boolean(),
  renewedAtMs: v.optional(v.number()),
  /** Absent: it does not expire. */
  expiresAtMs: v.optional(v.number()),
  boundCidrs: v.array(v.string()),
  /** Set while it goes and leaves its children behind as orphans: it is no token any more, and they have no parent. */
  isLeaving: v.optional(v.boolean()),
  /** Of a token that a login gave. */
  login: v.optional(loginSchema),
})

export type TokenEntry = v.InferOutput<typeof entrySchema>

export function encodeEntry(entry: TokenEntry): Buffer {
  return Buffer.from(JSON.stringify(entry))
}

export function parseEntry(bytes: Buffer): TokenEntry {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), entrySchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the entry of a token is damaged')
  return parsed.output
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

const LETTERS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz'
/** Bytes from here on would make some letters likelier than others. */
const FAIR_BELOW = 256 - (256 % LETTERS.length)
/** Random bytes are asked for in advance, as each time costs more than the bytes do. What was used is overwritten. */
const pool = Buffer.alloc(1024)
let poolAt = pool.length

/** Random letters and digits: 24 of them are 142 bits. */
export function randomName(length: number): string {
  const letters = Buffer.alloc(length)
  for (let at = 0; at < length; ) {
    if (poolAt === pool.length) {
      randomFillSync(pool)
      poolAt = 0
    }
    const byte = pool[poolAt] ?? 0
    pool[poolAt++] = 0
    if (byte < FAIR_BELOW) letters[at++] = LETTERS.charCodeAt(byte % LETTERS.length)
  }
  const name = letters.toString('latin1')
  letters.fill(0)
  return name
}

/** Entries by their paths. The names in them are hashes and times: what is found by its path alone has no value. */
export const tokenPaths = {
  id: (hash: string) => `${TOKENS_PREFIX}id/${hash}`,
  accessors: `${TOKENS_PREFIX}accessor/`,
  accessorOf: (accessorHash: string) => `${TOKENS_PREFIX}accessor/${accessorHash}/`,
  parents: `${TOKENS_PREFIX}parent/`,
  childrenOf: (hash: string) => `${TOKENS_PREFIX}parent/${hash}/`,
  expiries: `${TOKENS_PREFIX}expiry/`,
  /** In the order of time as long as there are not more than fifteen digits: 29,000 years. */
  expiry: (expiresAtMs: number, hash: string) =>
    `${TOKENS_PREFIX}expiry/${String(expiresAtMs).padStart(15, '0')}/${hash}`,
  /** Tokens as leases: by the mount of the login or `created`, and by the path at which they were issued. */
  leases: `${TOKENS_PREFIX}lease/`,
  leasesOf: (mount: string) => `${TOKENS_PREFIX}lease/${mount}/`,
  /** Logins of an auth method, in databases of older versions. */
  oldLogins: `${TOKENS_PREFIX}login/`,
  oldLoginsOf: (mount: string) => `${TOKENS_PREFIX}login/${mount}/`,
  /** Of a token that was revoked, until everything that belonged to it is gone. */
  revoking: (hash: string) => `${TOKENS_PREFIX}revoking/${hash}`,
  revokings: `${TOKENS_PREFIX}revoking/`,
  role: (name: string) => `${TOKENS_PREFIX}role/${encodeURIComponent(name)}`,
  roles: `${TOKENS_PREFIX}role/`,
} as const

const NOTHING = Buffer.alloc(0)

/**
 * Whether a token is a lease of its auth path (`sys/leases`). Batch tokens, root tokens of the core itself and wrapping tokens
 * are none.
 */
export function isLease({ path, policies, type }: TokenEntry): boolean {
  return type === 'service' && path.startsWith('auth/') && path !== ROOT_PATH && !policies.includes(WRAPPING_POLICY)
}

/** Folder of the index entries of all tokens with the same mount and path. */
export function leaseFolderOf({ login, path }: TokenEntry, hashOf: (text: string) => string): string {
  return `${tokenPaths.leasesOf(login?.mount ?? CREATED)}${hashOf(path).slice(0, PATH_HASH_LENGTH)}/`
}

/** By what else a token is found: all of it in paths. `hashOf`: the keyed hash of tokens. */
export function indexPaths(entry: TokenEntry, hashOf: (text: string) => string): string[] {
  const { accessor, expiresAtMs, hash, parent } = entry
  const paths = [tokenPaths.accessorOf(hashOf(accessor)) + hash]
  if (parent !== '') paths.push(tokenPaths.childrenOf(parent) + hash)
  if (expiresAtMs !== undefined) paths.push(tokenPaths.expiry(expiresAtMs, hash))
  if (isLease(entry)) paths.push(leaseFolderOf(entry, hashOf) + hash)
  return paths
}

export function emptyPut(path: string): Put {
  return { path, value: NOTHING }
}
