/** What is kept of a lease, where, and how it is written. */
import * as v from 'valibot'
import { isObject } from '../../engines/framework/fields.ts'
import { Fault } from '../../platform/errors.ts'

export const LEASES_PREFIX = 'sys/lease/'

const leaseSchema = v.object({
  /** Path of the request, a slash, and 24 letters and digits. */
  id: v.string(),
  /** UUID of the mount that gave it. */
  mount: v.string(),
  /** Path of the request, the mount's own included, as it was then. */
  path: v.string(),
  /** Below the mount. */
  rest: v.string(),
  /** Owner: the hash of the token, or the UUID of the auth method, with which the lease ends. Empty for none. */
  tokenHash: v.string(),
  issuedAtMs: v.number(),
  expiresAtMs: v.number(),
  /** No renewal reaches further. */
  maxAtMs: v.number(),
  renewedAtMs: v.optional(v.number()),
  /** That it was given for: what a renewal that asks for nothing else gets. */
  ttlSeconds: v.number(),
  renewable: v.boolean(),
  internal: v.custom<Record<string, unknown>>(isObject),
  /** Set once an attempt to take it back was begun before its end, or has failed: it is never renewed again. */
  revocation: v.optional(
    v.object({
      /** Those that have failed. */
      attempts: v.number(),
      /** It is tried again then. */
      nextAtMs: v.number(),
      error: v.string(),
    }),
  ),
})

export type Lease = v.InferOutput<typeof leaseSchema>

/** After so many failed attempts operators see it among the irrevocable ones; it is still tried again. */
export const ATTEMPTS_MAX = 6

export function isIrrevocable({ revocation }: Lease): boolean {
  return (revocation?.attempts ?? 0) >= ATTEMPTS_MAX
}

/** A lease that is being taken back: it has ended, and whichever process runs next goes on with it at once. */
export function revoking(lease: Lease, nowMs: number): Lease {
  const expiresAtMs = Math.min(lease.expiresAtMs, nowMs)
  return { ...lease, expiresAtMs, revocation: { attempts: 0, nextAtMs: 0, error: '' } }
}

/** When something is to be done about it. */
export function dueAtMs({ expiresAtMs, revocation }: Lease): number {
  return revocation?.nextAtMs ?? expiresAtMs
}

export function encodeLease(lease: Lease): Buffer {
  return Buffer.from(JSON.stringify(lease))
}

/** Throws a Fault for an entry that is damaged. */
export function parseLease(bytes: Buffer): Lease {
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), leaseSchema), bytes.toString('utf8'))
  if (!parsed.success) throw new Fault('the entry of a lease is damaged')
  return parsed.output
}

/** Below `LEASES_PREFIX`. The names in them are hashes, times and UUIDs; what a path says is in values only. */
export const leasePaths = {
  salt: 'salt',
  id: (hash: string) => `id/${hash}`,
  /** The text of a request's path, for what is asked by a prefix of it. */
  texts: 'path/',
  text: (mount: string, pathHash: string) => `path/${mount}/${pathHash}`,
  /** By the path that they were given for. */
  of: (mount: string, pathHash = '') => `of/${mount}/${pathHash === '' ? '' : `${pathHash}/`}`,
  token: (tokenHash: string) => `token/${tokenHash}/`,
  expiries: 'expiry/',
  /** In the order of time as long as there are not more than fifteen digits. */
  expiry: (mount: string) => `expiry/${mount}/`,
  due: (mount: string, atMs: number, hash: string) => `expiry/${mount}/${String(atMs).padStart(15, '0')}/${hash}`,
  irrevocable: 'irrevocable/',
} as const
