/** The stored entry of a lease: schema, paths and states. */
import * as v from 'valibot'
import { isObject } from '../../engines/framework/fields.ts'
import { parseRecord } from '../../platform/stored-record.ts'

export const LEASES_PREFIX = 'sys/lease/'

const leaseSchema = v.object({
  /** Path of the request, a slash, and 24 letters and digits. */
  id: v.string(),
  /** UUID of the mount that issued it. */
  mount: v.string(),
  /** Path of the request at that time, the mount's path included. */
  path: v.string(),
  /** Path of the request below the mount. */
  rest: v.string(),
  /** Owner: hash of the token or UUID of the auth method with which the lease is revoked. Empty for none. */
  tokenHash: v.string(),
  issuedAtMs: v.number(),
  expiresAtMs: v.number(),
  /** Latest expiry that a renewal can set. */
  maxAtMs: v.number(),
  renewedAtMs: v.optional(v.number()),
  /** Granted TTL, which is also the default of a renewal. */
  ttlSeconds: v.number(),
  renewable: v.boolean(),
  internal: v.custom<Record<string, unknown>>(isObject),
  /** Present once a revocation began before the expiry, or has failed. Such a lease cannot be renewed. */
  revocation: v.optional(
    v.object({
      /** Failed attempts. */
      attempts: v.number(),
      /** Time of the next attempt. */
      nextAtMs: v.number(),
      error: v.string(),
    }),
  ),
})

export type Lease = v.InferOutput<typeof leaseSchema>

/** After so many failed attempts a lease counts as irrevocable. It is still retried. */
const ATTEMPTS_MAX = 6

export function isIrrevocable({ revocation }: Lease): boolean {
  return (revocation?.attempts ?? 0) >= ATTEMPTS_MAX
}

/** Marks a lease as being revoked: it has expired, so the next process continues the revocation after a kill. */
export function markRevoking(lease: Lease, nowMs: number): Lease {
  const expiresAtMs = Math.min(lease.expiresAtMs, nowMs)
  return { ...lease, expiresAtMs, revocation: { attempts: 0, nextAtMs: 0, error: '' } }
}

/** Time of the expiry, or of the next attempt to revoke. */
export function dueAtMs({ expiresAtMs, revocation }: Lease): number {
  return revocation?.nextAtMs ?? expiresAtMs
}

export function encodeLease(lease: Lease): Buffer {
  return Buffer.from(JSON.stringify(lease))
}

/** Throws a Fault for a damaged entry. */
export function parseLease(bytes: Buffer): Lease {
  return parseRecord(leaseSchema, bytes, 'a lease')
}

/** Paths below `LEASES_PREFIX`. They contain hashes, times and UUIDs only; the text of a request's path is in a value. */
export const leasePaths = {
  salt: 'salt',
  id: (hash: string) => `id/${hash}`,
  /** Issuing paths, for lists and revocation by prefix. The value is the path. */
  issuingPaths: 'path/',
  issuingPath: (mount: string, pathHash: string) => `path/${mount}/${pathHash}`,
  /** Index by issuing path. */
  of: (mount: string, pathHash = '') => `of/${mount}/${pathHash === '' ? '' : `${pathHash}/`}`,
  owner: (tokenHash: string) => `token/${tokenHash}/`,
  expiries: 'expiry/',
  /** Sorted by time: fifteen digits are enough for 29,000 years. */
  expiry: (mount: string) => `expiry/${mount}/`,
  due: (mount: string, atMs: number, hash: string) => `expiry/${mount}/${String(atMs).padStart(15, '0')}/${hash}`,
  irrevocable: 'irrevocable/',
} as const
