/**
 * Leases: what an engine issued for a limited time and the core revokes.
 *
 * A reply with a `lease` is committed together with the lease (`lease-store.ts`), and the answer has its ID. A lease ends when it
 * expires (`lease-expiry.ts`), when its owner is revoked, when its mount is disabled, or when it is revoked. Then its engine revokes
 * what it issued (`lease-revocation.ts`).
 *
 * Promises. A lease in an answer exists, whenever the process is killed. A lease is removed only after its engine has revoked it,
 * except by a forced revocation or after its mount is gone. A lease outlives its token, its mount and its expiry by a few seconds at
 * most, as long as its engine can revoke it. Otherwise it is reported and retried without limit.
 *
 * Assumes that an engine can revoke the same lease twice, and that the engine's clock is the core's.
 *
 * Failure modes. The engine fails or hangs: the failed attempt is stored and retried; other mounts are not affected. The disk is full:
 * no lease is revoked, because its removal could not be written; it is retried each second. The clock jumps: see `core-clock.ts`.
 */
import { Rejection } from '../../engines/framework/engine.ts'
import { runSliced } from '../../platform/sliced-work.ts'
import type { Mount } from '../mounts/mounts.ts'
import { ttlLimitsOf } from '../mounts/mount-ttl.ts'
import type { Lease } from './lease-entry.ts'
import type { LeaseExpiry } from './lease-expiry.ts'
import { ENGINE_TIMEOUT_MS, type LeaseRevocation, rejectOnAbort } from './lease-revocation.ts'
import type { LeaseIssue, LeaseLink, LeaseStore } from './lease-store.ts'
import { eachPage, inPages, readPages } from './paged-work.ts'

/** Leases that one request revokes concurrently. */
const PAGE_LEASES = 64
const COUNT_INTERVAL_MS = 10_000

export interface LeasesOptions {
  readonly store: LeaseStore
  readonly revocation: LeaseRevocation
  readonly expiry: LeaseExpiry
  readonly mountOf: (uuid: string) => Mount | undefined
  readonly now: () => number
}

export class Leases {
  readonly #options: LeasesOptions
  #counted: { readonly atMs: number; readonly counts: Promise<{ leases: number; irrevocable: number }> } | undefined

  constructor(options: LeasesOptions) {
    this.#options = options
  }

  get store(): LeaseStore {
    return this.#options.store
  }

  get expiry(): LeaseExpiry {
    return this.#options.expiry
  }

  get revocation(): LeaseRevocation {
    return this.#options.revocation
  }

  /** A new lease, to be committed with the reply that contains it. `done` must be called after the commit. */
  prepare(mount: Mount, issue: Omit<LeaseIssue, 'mount' | 'ttlLimits' | 'nowMs'>): ReturnType<LeaseStore['issue']> {
    const { now, store } = this.#options
    const { config, uuid } = mount.record
    return store.issue({ ...issue, mount: uuid, ttlLimits: ttlLimitsOf(config), nowMs: now() })
  }

  /** Throws a Rejection (400) for an unknown ID. */
  find(id: string): Lease {
    const lease = this.#options.store.find(id)
    if (!lease) throw new Rejection(400, 'invalid lease')
    return lease
  }

  /** Renews a lease by `incrementSeconds`, or by its TTL if that is 0. Throws a Rejection (400) if it cannot be renewed. */
  async renew(id: string, incrementSeconds: number): Promise<{ readonly lease: Lease; readonly seconds: number }> {
    const { mountOf, now, revocation, store } = this.#options
    const hash = store.hashOf(id)
    const nowMs = now()
    const known = store.pendingByHash(hash)
    if (!known || revocation.isUnderWay(hash)) throw new Rejection(400, 'lease not found')
    const mount = mountOf(known.mount)
    if (!mount) throw new Rejection(400, 'lease not found')
    checkRenewable(known, nowMs)
    const call = {
      mount: mount.facts,
      storage: mount.storage,
      leaseId: known.id,
      path: known.rest,
      internal: known.internal,
      issuedAtMs: known.issuedAtMs,
      nowMs,
      signal: AbortSignal.timeout(ENGINE_TIMEOUT_MS),
    }
    const answer = mount.engine.renew?.(call)
    if (answer) await Promise.race([answer, rejectOnAbort(call.signal)])
    // The lease may have changed while the engine worked.
    const lease = store.pendingByHash(hash)
    if (!lease || revocation.isUnderWay(hash)) throw new Rejection(400, 'lease not found')
    checkRenewable(lease, now())
    const requestedTtlMs = (incrementSeconds > 0 ? incrementSeconds : lease.ttlSeconds) * 1000
    const expiresAtMs = Math.min(now() + requestedTtlMs, lease.maxAtMs)
    const seconds = Math.max(0, Math.round((expiresAtMs - now()) / 1000))
    const renewed = { ...lease, expiresAtMs, renewedAtMs: now() }
    await store.change(lease, renewed)
    return { lease: renewed, seconds }
  }

  /** Revokes a lease. Resolves to the error of its engine, or to undefined when the lease is removed. */
  async revoke(id: string): Promise<string | undefined> {
    const { revocation, store } = this.#options
    const hash = store.hashOf(id)
    if (await revocation.revoke(hash)) return undefined
    return store.pendingByHash(hash)?.revocation?.error ?? 'the engine cannot revoke the lease now'
  }

  /**
   * Revokes all leases whose ID begins with a prefix of whole segments: `app` does not match `app2`. The ID of a lease is a prefix
   * too. Resolves to the number of failures.
   */
  async revokePrefix(given: string, isForced: boolean): Promise<number> {
    const { revocation, store } = this.#options
    const prefix = given.endsWith('/') || store.find(given) ? given : `${given}/`
    let failures = 0
    await eachPage(inPages(store.hashesUnder(prefix), PAGE_LEASES), async (hashes) => {
      if (isForced) {
        await Promise.all(hashes.map((hash) => revocation.force(hash)))
        return true
      }
      const failed = await this.#revokeEach(hashes)
      failures += failed
      return true
    })
    return failures
  }

  /** Revokes all leases of a mount. Resolves to the number of failures. */
  async revokeOfMount(uuid: string): Promise<number> {
    const { store } = this.#options
    let failures = 0
    const pages = readPages<LeaseLink>((last) => store.ofMount(uuid, last?.path ?? '', PAGE_LEASES))
    await eachPage(pages, async (page) => {
      const failed = await this.#revokeEach(page.map(({ hash }) => hash))
      failures += failed
      return true
    })
    return failures
  }

  /** Resolves to the number of failures. */
  async #revokeEach(hashes: readonly string[]): Promise<number> {
    const outcomes = await Promise.all(hashes.map((hash) => this.#options.revocation.revoke(hash)))
    return outcomes.filter((isRevoked) => !isRevoked).length
  }

  /** Numbers of leases, counted every ten seconds at most. */
  counts(): Promise<{ leases: number; irrevocable: number }> {
    const nowMs = performance.now()
    if (!this.#counted || nowMs - this.#counted.atMs > COUNT_INTERVAL_MS) {
      const counts = Promise.resolve(runSliced(this.#options.store.counts(), { signal: new AbortController().signal }))
      this.#counted = { atMs: nowMs, counts }
    }
    return this.#counted.counts
  }

  close(): void {
    this.#options.expiry.close()
    this.#options.revocation.close()
    this.#options.store.close()
  }
}

function checkRenewable(lease: Lease, nowMs: number): void {
  if (lease.expiresAtMs <= nowMs || lease.revocation) throw new Rejection(400, 'lease expired')
  if (!lease.renewable) throw new Rejection(400, 'lease is not renewable')
}

/** The error of a mount that cannot be disabled because of its leases. */
export function leasesLeftError(path: string, count: number): string {
  return `cannot revoke ${count} leases of ${path}: fix the errors that sys/leases/lookup shows, or remove the leases with sys/leases/revoke-force/${path}`
}
