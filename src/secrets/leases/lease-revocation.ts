/**
 * Revocation of leases. A lease that has not expired is marked first: from then on it counts as expired and cannot be renewed, and
 * after a kill the next process continues. Then the engine revokes what it issued, and the removal of the lease is committed
 * together with the batch that the engine returns (`lease-commits.ts`). After a kill before that commit the engine is called
 * again. Leases of an engine without `revoke` are only removed.
 *
 * A semaphore limits the concurrent engine calls of a mount, so a mount that hangs does not delay the others. A failed attempt is
 * stored with its error and retried with exponential backoff; after some attempts the lease counts as irrevocable. If the mount no
 * longer exists, the lease is removed and the log reports it.
 */
import type { Batch } from '../../storage/barrier/storage.ts'
import type { LeaseCall } from '../../engines/framework/engine.ts'
import { Fault, messageOf, sealed } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { Mount } from '../mounts/mounts.ts'
import { GroupCommitter, LeaseRemover } from './lease-commits.ts'
import { isIrrevocable, type Lease, markRevoking } from './lease-entry.ts'
import type { LeaseStore } from './lease-store.ts'

/** Concurrent engine calls for one mount, forced revocations included. */
const CONCURRENT_PER_MOUNT = 16
/** Leases of an owner that are revoked concurrently. */
const PAGE_LEASES = 64
/** Timeout of one engine call. */
export const ENGINE_TIMEOUT_MS = 30_000
const FIRST_RETRY_MS = 1000
const RETRY_MAX_MS = 900_000
const ERROR_LENGTH_MAX = 1024

export interface LeaseRevocationOptions {
  readonly leases: LeaseStore
  readonly mountOf: (uuid: string) => Mount | undefined
  readonly now: () => number
  readonly logger: Logger
  /** Timeout of one engine call. */
  readonly engineTimeoutMs?: number
}

export interface RevocationCounts {
  revoked: number
  failed: number
}

export class LeaseRevocation {
  readonly #options: LeaseRevocationOptions
  /** By the hash of the lease. Resolves to false if the attempt failed. */
  readonly #underWay = new Map<string, Promise<boolean>>()
  /** A FIFO semaphore per mount. */
  readonly #slots = new Map<string, { running: number; waiting: (() => void)[] }>()
  readonly #closed = new AbortController()
  readonly #remover: LeaseRemover
  readonly #marks: GroupCommitter<{ readonly before: Lease; readonly marked: Lease }>
  readonly counts: RevocationCounts = { revoked: 0, failed: 0 }

  constructor(options: LeaseRevocationOptions) {
    this.#options = options
    this.#remover = new LeaseRemover(options.leases)
    this.#marks = new GroupCommitter(({ before, marked }) => options.leases.changePart(before, marked))
  }

  isUnderWay(hash: string): boolean {
    return this.#underWay.has(hash)
  }

  /**
   * Revokes a lease. Resolves to true when it is removed or does not exist, to false when the attempt failed and the failure is
   * stored. Rejects if a write fails, and once the core is sealed.
   */
  async revoke(hash: string): Promise<boolean> {
    let attempt = this.#underWay.get(hash)
    if (!attempt) {
      attempt = this.#attempt(hash).finally(() => this.#underWay.delete(hash))
      this.#underWay.set(hash, attempt)
    }
    return attempt
  }

  /** Revokes a lease, and removes it even if its engine fails. */
  async force(hash: string): Promise<void> {
    // Another attempt may have begun while this one waited.
    for (let other = this.#underWay.get(hash); other; other = this.#underWay.get(hash)) await other.catch(() => false)
    const attempt = this.#revokeOrRemove(hash).finally(() => this.#underWay.delete(hash))
    this.#underWay.set(hash, attempt)
    await attempt
  }

  async #revokeOrRemove(hash: string): Promise<boolean> {
    const { leases, logger } = this.#options
    const known = leases.pendingByHash(hash)
    if (!known) return true
    const release = this.#tryAcquire(known.mount) ?? (await this.#acquire(known.mount))
    try {
      // The lease did not change while this call waited: `#underWay` excludes other attempts.
      const lease = await this.#mark(known)
      try {
        const batch = await this.#callEngine(lease)
        await this.#remove(lease, batch)
      } catch (error) {
        logger.warn('lease removed without revocation by its engine', {
          lease_path: lease.path,
          error: messageOf(error),
        })
        await this.#remove(lease, this.#forgetBatch(lease))
      }
      this.counts.revoked++
      return true
    } finally {
      release()
    }
  }

  /** Revokes all leases of an owner (`Lease.tokenHash`). Resolves when each is removed or its failed attempt is stored. */
  async revokeOfOwner(owner: string): Promise<void> {
    let after = ''
    for (;;) {
      const page = this.#options.leases.ofOwner(owner, after, PAGE_LEASES)
      if (page.length === 0) return
      await Promise.all(page.map((hash) => this.revoke(hash)))
      after = page.at(-1) ?? ''
    }
  }

  /** Stops new attempts, and ends those under way with an error. */
  close(): void {
    this.#closed.abort()
    for (const { waiting } of this.#slots.values()) for (const resume of waiting) resume()
  }

  async #attempt(hash: string): Promise<boolean> {
    const { leases } = this.#options
    let lease = leases.pendingByHash(hash)
    if (!lease) return true
    const release = this.#tryAcquire(lease.mount) ?? (await this.#acquire(lease.mount))
    let isHeld = true
    const releaseOnce = () => {
      if (isHeld) release()
      isHeld = false
    }
    try {
      if (this.#closed.signal.aborted) throw sealed()
      lease = leases.pendingByHash(hash)
      if (!lease) return true
      lease = await this.#mark(lease)
      try {
        const answer = this.#callEngine(lease)
        const batch = answer instanceof Promise ? await answer : answer
        // The semaphore covers the engine call only, so that removals of several leases share a commit.
        releaseOnce()
        await this.#remove(lease, batch)
        this.counts.revoked++
        return true
      } catch (error) {
        // Once the core is sealed, the error says nothing about the engine.
        if (this.#closed.signal.aborted) throw sealed()
        await this.#failed(lease, error)
        return false
      }
    } finally {
      releaseOnce()
    }
  }

  /** Returns the function that releases the slot; undefined if no slot is free. */
  #tryAcquire(mount: string): (() => void) | undefined {
    const slots = this.#slots.get(mount) ?? { running: 0, waiting: [] }
    if (slots.running >= CONCURRENT_PER_MOUNT) return undefined
    this.#slots.set(mount, slots)
    slots.running++
    return () => {
      slots.running--
      const next = slots.waiting.shift()
      if (next) next()
      else if (slots.running === 0) this.#slots.delete(mount)
    }
  }

  /** Waits for a free slot. After `close` it resolves at once, without a slot. */
  async #acquire(mount: string): Promise<() => void> {
    for (;;) {
      const release = this.#tryAcquire(mount)
      if (release) return release
      const slots = this.#slots.get(mount)
      if (this.#closed.signal.aborted) return () => undefined
      await new Promise<void>((resolve) => slots?.waiting.push(resolve))
    }
  }

  /**
   * Resolves with the marked lease when the mark is durable. Nothing else changes the lease meanwhile, because a lease whose
   * revocation is under way is not renewed. An expired lease needs no mark: the next process finds it in the expiry index.
   */
  async #mark(lease: Lease): Promise<Lease> {
    const nowMs = this.#options.now()
    if (lease.revocation || lease.expiresAtMs <= nowMs) return lease
    const engine = this.#options.mountOf(lease.mount)?.engine
    if (!engine?.revoke || engine.isRevokedInside?.(lease.internal)) return lease
    const marked = markRevoking(lease, nowMs)
    await this.#marks.add({ before: lease, marked })
    if (this.#closed.signal.aborted) throw sealed()
    return marked
  }

  #callEngine(lease: Lease): Promise<Batch | undefined> | Batch | undefined {
    const mount = this.#options.mountOf(lease.mount)
    if (!mount) {
      this.#options.logger.warn('lease removed, its mount no longer exists', { lease_path: lease.path })
      return undefined
    }
    const timeout = new LazyTimeout(this.#closed.signal, this.#options.engineTimeoutMs ?? ENGINE_TIMEOUT_MS)
    const answer = mount.engine.revoke?.(this.#call(lease, mount, timeout))
    return answer instanceof Promise ? Promise.race([answer, rejectOnAbort(timeout.signal)]) : answer
  }

  /** The batch with which the engine records that a lease was removed without revocation. */
  #forgetBatch(lease: Lease): Batch | undefined {
    const mount = this.#options.mountOf(lease.mount)
    return mount?.engine.forget?.(this.#call(lease, mount, { signal: this.#closed.signal }))
  }

  #call(lease: Lease, mount: Mount, timeout: { readonly signal: AbortSignal }): LeaseCall {
    return {
      mount: mount.facts,
      storage: mount.storage,
      leaseId: lease.id,
      path: lease.rest,
      internal: lease.internal,
      issuedAtMs: lease.issuedAtMs,
      nowMs: this.#options.now(),
      get signal() {
        return timeout.signal
      },
    }
  }

  #remove(lease: Lease, batch: Batch | undefined): Promise<void> {
    const storage = this.#options.mountOf(lease.mount)?.storage
    return batch && storage ? this.#remover.removeWithBatch(lease, storage, batch) : this.#remover.remove(lease)
  }

  async #failed(lease: Lease, error: unknown): Promise<void> {
    const { leases, logger, now } = this.#options
    this.counts.failed++
    // A change must start from the pending entry: a renewal may be queued.
    const pending = leases.pendingByHash(leases.hashOf(lease.id))
    if (!pending) return
    const attempts = (pending.revocation?.attempts ?? 0) + 1
    const waitMs = Math.min(RETRY_MAX_MS, FIRST_RETRY_MS * 2 ** (attempts - 1))
    const text = messageOf(error).slice(0, ERROR_LENGTH_MAX)
    const changed = { ...pending, revocation: { attempts, nextAtMs: now() + waitMs, error: text } }
    await leases.change(pending, changed)
    if (isIrrevocable(changed) !== isIrrevocable(pending) || attempts === 1) {
      const message = isIrrevocable(changed)
        ? 'lease revocation failed, marked irrevocable'
        : 'lease revocation failed, will retry'
      logger.warn(message, {
        lease_path: lease.path,
        attempts,
        retry_ms: waitMs,
        error: text,
      })
    }
  }
}

/** A timeout signal that is created when it is first read: most engines never read it. */
class LazyTimeout {
  readonly #closed: AbortSignal
  readonly #timeoutMs: number
  #signal: AbortSignal | undefined

  constructor(closed: AbortSignal, timeoutMs: number) {
    this.#closed = closed
    this.#timeoutMs = timeoutMs
  }

  get signal(): AbortSignal {
    this.#signal ??= AbortSignal.any([this.#closed, AbortSignal.timeout(this.#timeoutMs)])
    return this.#signal
  }
}

/** Rejects when the signal aborts. */
export function rejectOnAbort(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(new Fault('the engine of the lease timed out')), { once: true })
  })
}
