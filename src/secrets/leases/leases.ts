/**
 * Leases: what an engine gave out for a time, and the core takes back.
 *
 * A reply that has a `lease` is committed together with the lease (`lease-store.ts`); its ID goes out with the answer. A lease
 * ends when its time is over (`lease-expiry.ts`), when its token is revoked, when its mount is disabled, or when it is
 * revoked; then its engine takes back what it stands for (`lease-revocation.ts`).
 *
 * Promises. A lease that was told is there, whenever the process is killed. One that was revoked is gone for good, and its
 * engine has been asked before it went. No lease outlives its token, its mount or its time by more than the seconds of a
 * round, as long as its engine can take it back; one that cannot be is seen, and tried again for ever.
 *
 * Assumes that an engine can be asked twice to take back the same thing, and that its clock is the core's.
 *
 * What can go wrong. The engine fails or hangs: the attempt is written down and repeated later, other mounts go on. The disk is
 * full: nothing is taken back, as its removal could not be written; it is tried again each second. The clock jumps: see
 * `core-clock.ts`.
 */
import { Rejection } from '../../engines/framework/engine.ts'
import { inTurns } from '../../engines/framework/time-slices.ts'
import type { Mount } from '../mounts/mounts.ts'
import { ttlLimitsOf } from '../mounts/mount-ttl.ts'
import type { Lease } from './lease-entry.ts'
import { ENGINE_MS, type LeaseRevocation, tooLong } from './lease-revocation.ts'
import { type Issue, LeaseStore } from './lease-store.ts'
import type { LeaseSweeper } from './lease-expiry.ts'
import { eachPage, inPages, readPages } from './pages.ts'

/** Taken back at a time by one request. */
const AT_ONCE = 64
const COUNTED_EVERY_MS = 10_000

export interface LeaseParts {
  readonly store: LeaseStore
  readonly revocation: LeaseRevocation
  readonly sweeper: LeaseSweeper
  readonly mountOf: (uuid: string) => Mount | undefined
  readonly now: () => number
}

export class Leases {
  readonly #parts: LeaseParts
  #counted: { readonly atMs: number; readonly counts: Promise<{ leases: number; irrevocable: number }> } | undefined

  constructor(parts: LeaseParts) {
    this.#parts = parts
  }

  get store(): LeaseStore {
    return this.#parts.store
  }

  get sweeper(): LeaseSweeper {
    return this.#parts.sweeper
  }

  get revocation(): LeaseRevocation {
    return this.#parts.revocation
  }

  /** A lease that is to be committed with the reply that gives it out; `done` is to be called when that is over. */
  prepare(mount: Mount, issue: Omit<Issue, 'mount' | 'ttlLimits' | 'nowMs'>): ReturnType<LeaseStore['issue']> {
    const { now, store } = this.#parts
    const { config, uuid } = mount.record
    return store.issue({ ...issue, mount: uuid, ttlLimits: ttlLimitsOf(config), nowMs: now() })
  }

  /** Throws a Rejection (400) for an ID of no lease. */
  find(id: string): Lease {
    const lease = this.#parts.store.find(id)
    if (!lease) throw new Rejection(400, 'invalid lease')
    return lease
  }

  /** Lets a lease last longer, by what is asked or by what it was given. Throws a Rejection (400) where it cannot. */
  async renew(id: string, incrementSeconds: number): Promise<{ readonly lease: Lease; readonly seconds: number }> {
    const { mountOf, now, revocation, store } = this.#parts
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
      signal: AbortSignal.timeout(ENGINE_MS),
    }
    const allowed = mount.engine.renew?.(call)
    if (allowed) await Promise.race([allowed, tooLong(call.signal)])
    // The engine may have taken its time: what is decided upon is what is pending now.
    const lease = store.pendingByHash(hash)
    if (!lease || revocation.isUnderWay(hash)) throw new Rejection(400, 'lease not found')
    checkRenewable(lease, now())
    const wished = (incrementSeconds > 0 ? incrementSeconds : lease.ttlSeconds) * 1000
    const expiresAtMs = Math.min(now() + wished, lease.maxAtMs)
    const seconds = Math.max(0, Math.round((expiresAtMs - now()) / 1000))
    const renewed = { ...lease, expiresAtMs, renewedAtMs: now() }
    await store.change(lease, renewed)
    return { lease: renewed, seconds }
  }

  /** Takes a lease back. Resolves with what is wrong where its engine cannot now; undefined when it is gone. */
  async revoke(id: string): Promise<string | undefined> {
    const { revocation, store } = this.#parts
    const hash = store.hashOf(id)
    if (await revocation.revoke(hash)) return undefined
    return store.pendingByHash(hash)?.revocation?.error ?? 'the engine cannot take it back now'
  }

  /**
   * Takes back all leases whose ID begins with a prefix of whole names: `app` is not `app2`. A prefix may be the ID of a lease, too.
   * Resolves with how many could not be.
   */
  async revokePrefix(given: string, isForced: boolean): Promise<number> {
    const { revocation, store } = this.#parts
    const prefix = given.endsWith('/') || store.find(given) ? given : `${given}/`
    const failures: number[] = []
    await eachPage(inPages(store.under(prefix), AT_ONCE), async (hashes) => {
      if (isForced) await Promise.all(hashes.map((hash) => revocation.force(hash)))
      else failures.push(await this.#failures(hashes))
      return true
    })
    return sum(failures)
  }

  /** Takes back all leases of a mount; resolves with how many could not be. */
  async revokeOfMount(uuid: string): Promise<number> {
    const { store } = this.#parts
    const failures: number[] = []
    type Found = ReturnType<LeaseStore['ofMount']>[number]
    const pages = readPages<Found>((last) => store.ofMount(uuid, last?.path ?? '', AT_ONCE))
    await eachPage(pages, async (page) => {
      failures.push(await this.#failures(page.map(({ hash }) => hash)))
      return true
    })
    return sum(failures)
  }

  /** Takes leases back; resolves with how many could not be. */
  async #failures(hashes: readonly string[]): Promise<number> {
    const outcomes = await Promise.all(hashes.map((hash) => this.#parts.revocation.revoke(hash)))
    return outcomes.filter((isGone) => !isGone).length
  }

  /** How many leases there are, as it was some seconds ago at most. */
  counts(): Promise<{ leases: number; irrevocable: number }> {
    const nowMs = performance.now()
    if (!this.#counted || nowMs - this.#counted.atMs > COUNTED_EVERY_MS) {
      const counts = Promise.resolve(inTurns(this.#parts.store.counts(), { signal: new AbortController().signal }))
      this.#counted = { atMs: nowMs, counts }
    }
    return this.#counted.counts
  }

  close(): void {
    this.#parts.sweeper.close()
    this.#parts.revocation.close()
    this.#parts.store.close()
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, each) => total + each, 0)
}

function checkRenewable(lease: Lease, nowMs: number): void {
  if (lease.expiresAtMs <= nowMs || lease.revocation) throw new Rejection(400, 'lease expired')
  if (!lease.renewable) throw new Rejection(400, 'lease is not renewable')
}

/** What keeps a mount from being disabled. */
export function leasesLeft(path: string, count: number): string {
  return `leases of ${path} that cannot be taken back now: ${count}; mend what they name (sys/leases/lookup), or forget them with sys/leases/revoke-force/${path}`
}
