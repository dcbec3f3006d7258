/**
 * Taking leases back. A lease that has not ended yet is marked first: from then on it has ended, is never renewed, and the next process
 * goes on with it should this one be killed. Then the engine undoes what it did, and the removal of the lease is committed
 * together with what the engine returns (`lease-removal.ts`): a process that is killed before that asks the engine again, and one
 * that is killed after it has nothing to do. An engine without `revoke` has nothing to undo: its leases are just removed.
 *
 * A semaphore limits the concurrent engine calls of a mount, so a mount that hangs does not delay the others. What fails
 * is written down with its error and tried again, later each time; after some attempts operators see it (`irrevocable`).
 * Where the mount is gone there is nothing to ask: the lease is removed, and the log tells it.
 */
import type { Batch } from '../../storage/barrier/storage.ts'
import type { LeaseCall } from '../../engines/framework/engine.ts'
import { Fault, messageOf, sealed } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { Mount } from '../mounts/mounts.ts'
import { GroupedCommits } from './grouped-commits.ts'
import { isIrrevocable, type Lease, revoking } from './lease-entry.ts'
import { LeaseRemoval } from './lease-removal.ts'
import type { LeaseStore } from './lease-store.ts'

/** Concurrent calls of the engine for one mount, forced revocations included. */
const CONCURRENT_PER_MOUNT = 16
/** Of a token. */
const PAGE = 64
/** What an engine may take for one. */
export const ENGINE_MS = 30_000
const FIRST_RETRY_MS = 1000
const RETRY_MAX_MS = 900_000
const ERROR_LENGTH_MAX = 1024

export interface LeaseRevocationOptions {
  readonly leases: LeaseStore
  readonly mountOf: (uuid: string) => Mount | undefined
  readonly now: () => number
  readonly logger: Logger
  /** What an engine may take for one, in milliseconds. */
  readonly engineMs?: number
}

export interface RevocationCounts {
  revoked: number
  failed: number
}

export class LeaseRevocation {
  readonly #options: LeaseRevocationOptions
  /** Revocations under way, by the hash of the lease: `false` is that of one that has failed. */
  readonly #underWay = new Map<string, Promise<boolean>>()
  /** A semaphore per mount, in the order of arrival. */
  readonly #slots = new Map<string, { running: number; waiting: (() => void)[] }>()
  readonly #ended = new AbortController()
  readonly #removal: LeaseRemoval
  readonly #marks: GroupedCommits<{ readonly before: Lease; readonly marked: Lease }>
  readonly counts: RevocationCounts = { revoked: 0, failed: 0 }

  constructor(options: LeaseRevocationOptions) {
    this.#options = options
    this.#removal = new LeaseRemoval(options.leases)
    this.#marks = new GroupedCommits(({ before, marked }) => options.leases.changed(before, marked))
  }

  isUnderWay(hash: string): boolean {
    return this.#underWay.has(hash)
  }

  /**
   * Takes a lease back. Resolves with true when it is gone, or was not there, and with false when the attempt has failed and
   * is written down. Rejects when nothing can be written, and once the core is sealed.
   */
  async revoke(hash: string): Promise<boolean> {
    let attempt = this.#underWay.get(hash)
    if (!attempt) {
      attempt = this.#attempt(hash).finally(() => this.#underWay.delete(hash))
      this.#underWay.set(hash, attempt)
    }
    return attempt
  }

  /** Removes a lease whatever its engine says of it. */
  async force(hash: string): Promise<void> {
    // Another one may have begun while this one was waited for.
    for (let other = this.#underWay.get(hash); other; other = this.#underWay.get(hash)) await other.catch(() => false)
    const attempt = this.#forced(hash).finally(() => this.#underWay.delete(hash))
    this.#underWay.set(hash, attempt)
    await attempt
  }

  async #forced(hash: string): Promise<boolean> {
    const { leases, logger } = this.#options
    const known = leases.pendingByHash(hash)
    if (!known) return true
    const release = this.#tryAcquire(known.mount) ?? (await this.#acquire(known.mount))
    try {
      // It was not changed while this call waited: `#underWay` holds off all others.
      const lease = await this.#marked(known)
      try {
        const batch = await this.#askEngine(lease)
        await this.#remove(lease, batch)
      } catch (error) {
        logger.warn('lease removed without revocation by its engine', {
          lease_path: lease.path,
          error: messageOf(error),
        })
        await this.#remove(lease, this.#forgotten(lease))
      }
      this.counts.revoked++
      return true
    } finally {
      release()
    }
  }

  /** Revokes all leases of an owner (`Lease.tokenHash`). Resolves when each is gone or its failed attempt is written down. */
  async revokeOfOwner(owner: string): Promise<void> {
    let after = ''
    for (;;) {
      const page = this.#options.leases.ofOwner(owner, after, PAGE)
      if (page.length === 0) return
      await Promise.all(page.map((hash) => this.revoke(hash)))
      after = page.at(-1) ?? ''
    }
  }

  /** Nothing is begun any more; what is under way ends with an error. */
  close(): void {
    this.#ended.abort()
    for (const { waiting } of this.#slots.values()) for (const resume of waiting) resume()
  }

  async #attempt(hash: string): Promise<boolean> {
    const { leases } = this.#options
    let lease = leases.pendingByHash(hash)
    if (!lease) return true
    const release = this.#tryAcquire(lease.mount) ?? (await this.#acquire(lease.mount))
    let isHeld = true
    const answered = () => {
      if (isHeld) release()
      isHeld = false
    }
    try {
      if (this.#ended.signal.aborted) throw sealed()
      lease = leases.pendingByHash(hash)
      if (!lease) return true
      lease = await this.#marked(lease)
      try {
        const answer = this.#askEngine(lease)
        const batch = answer instanceof Promise ? await answer : answer
        // The slot limits engine calls only, so that removals of several leases go into one commit.
        answered()
        await this.#remove(lease, batch)
        this.counts.revoked++
        return true
      } catch (error) {
        // What the core itself refuses, sealed or without space, is no failure of the engine.
        if (this.#ended.signal.aborted) throw sealed()
        await this.#failed(lease, error)
        return false
      }
    } finally {
      answered()
    }
  }

  /** Acquires a slot of a mount if one is free; returns the function that releases it. */
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

  /** Waits for a slot of a mount. After `close` it resolves at once, without one. */
  async #acquire(mount: string): Promise<() => void> {
    for (;;) {
      const release = this.#tryAcquire(mount)
      if (release) return release
      const slots = this.#slots.get(mount)
      if (this.#ended.signal.aborted) return () => undefined
      await new Promise<void>((resolve) => slots?.waiting.push(resolve))
    }
  }

  /**
   * Resolves with the lease as it is once it is durable that it is being taken back. Nothing else changes it meanwhile: no
   * lease is renewed whose revocation is under way. One that has ended is found by its end.
   */
  async #marked(lease: Lease): Promise<Lease> {
    const nowMs = this.#options.now()
    if (lease.revocation || lease.expiresAtMs <= nowMs) return lease
    const engine = this.#options.mountOf(lease.mount)?.engine
    if (!engine?.revoke || engine.isRevokedInside?.(lease.internal)) return lease
    const marked = revoking(lease, nowMs)
    await this.#marks.add({ before: lease, marked })
    if (this.#ended.signal.aborted) throw sealed()
    return marked
  }

  #askEngine(lease: Lease): Promise<Batch | undefined> | Batch | undefined {
    const mount = this.#options.mountOf(lease.mount)
    if (!mount) {
      this.#options.logger.warn('the mount of a lease is gone, the lease is removed', { lease_path: lease.path })
      return undefined
    }
    const limit = new LazyLimit(this.#ended.signal, this.#options.engineMs ?? ENGINE_MS)
    const answer = mount.engine.revoke?.(this.#call(lease, mount, limit))
    return answer instanceof Promise ? Promise.race([answer, tooLong(limit.signal)]) : answer
  }

  /** What the engine notes of a lease that it could not take back. */
  #forgotten(lease: Lease): Batch | undefined {
    const mount = this.#options.mountOf(lease.mount)
    return mount?.engine.forget?.(this.#call(lease, mount, { signal: this.#ended.signal }))
  }

  #call(lease: Lease, mount: Mount, limit: { readonly signal: AbortSignal }): LeaseCall {
    return {
      mount: mount.facts,
      storage: mount.storage,
      leaseId: lease.id,
      path: lease.rest,
      internal: lease.internal,
      issuedAtMs: lease.issuedAtMs,
      nowMs: this.#options.now(),
      get signal() {
        return limit.signal
      },
    }
  }

  #remove(lease: Lease, batch: Batch | undefined): Promise<void> {
    const storage = this.#options.mountOf(lease.mount)?.storage
    return batch && storage ? this.#removal.removeWith(lease, storage, batch) : this.#removal.remove(lease)
  }

  async #failed(lease: Lease, error: unknown): Promise<void> {
    const { leases, logger, now } = this.#options
    this.counts.failed++
    // It may have been renewed meanwhile: only what is pending may be changed.
    const pending = leases.pendingByHash(leases.hashOf(lease.id))
    if (!pending) return
    const attempts = (pending.revocation?.attempts ?? 0) + 1
    const waitMs = Math.min(RETRY_MAX_MS, FIRST_RETRY_MS * 2 ** (attempts - 1))
    const text = messageOf(error).slice(0, ERROR_LENGTH_MAX)
    const changed = { ...pending, revocation: { attempts, nextAtMs: now() + waitMs, error: text } }
    await leases.change(pending, changed)
    if (isIrrevocable(changed) !== isIrrevocable(pending) || attempts === 1) {
      logger.warn(isIrrevocable(changed) ? 'a lease cannot be taken back' : 'a lease could not be taken back', {
        lease_path: lease.path,
        attempts,
        retry_ms: waitMs,
        error: text,
      })
    }
  }
}

/** How long an engine may take. Made when it is looked at: an engine with nothing to wait for does not. */
class LazyLimit {
  readonly #ended: AbortSignal
  readonly #ms: number
  #signal: AbortSignal | undefined

  constructor(ended: AbortSignal, ms: number) {
    this.#ended = ended
    this.#ms = ms
  }

  get signal(): AbortSignal {
    this.#signal ??= AbortSignal.any([this.#ended, AbortSignal.timeout(this.#ms)])
    return this.#signal
  }
}

/** Rejects once the signal aborts. */
export function tooLong(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(new Fault('the engine of a lease took too long')), { once: true })
  })
}
