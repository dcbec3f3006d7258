/**
 * Failed logins, and who is locked out for a while because of them. They are counted by mount and by the name that was tried,
 * whether it is anybody's or not, so a lock tells nothing of who there is.
 *
 * It is kept in memory and bounded: a restart begins anew, and of more names than are kept the oldest are forgotten. Hashing is
 * what makes guessing slow; a lock is for the guesses at one name (docs/decisions/).
 */
import { LRUCache } from 'lru-cache'
import type { LoginFailures } from '../../engines/login-order.ts'
import { DEFAULT_LOCKOUT } from '../mounts/mount-record.ts'
import type { Mount } from '../mounts/mounts.ts'

const NAMES_MAX = 100_000

interface Count {
  readonly accessor: string
  readonly name: string
  readonly failures: number
  readonly lastMs: number
}

export class LockedUsers {
  readonly #counts = new LRUCache<string, Count>({ max: NAMES_MAX })
  readonly #now: () => number

  constructor(now: () => number) {
    this.#now = now
  }

  of({ record }: Mount): LoginFailures {
    const rules = record.config.userLockout ?? DEFAULT_LOCKOUT
    const { accessor } = record
    if (rules.isDisabled) return NO_FAILURES
    return {
      isLocked: (name) => this.#isLocked(this.#counts.get(keyOf(accessor, name)), rules),
      failed: (name) => {
        const key = keyOf(accessor, name)
        const known = this.#counts.get(key)
        const isRecent = known && this.#now() - known.lastMs < rules.counterResetSeconds * 1000
        const failures = (isRecent ? known.failures : 0) + 1
        this.#counts.set(key, { accessor, name, failures, lastMs: this.#now() })
      },
      succeeded: (name) => void this.#counts.delete(keyOf(accessor, name)),
    }
  }

  #isLocked(count: Count | undefined, { durationSeconds, threshold }: typeof DEFAULT_LOCKOUT): boolean {
    return !!count && count.failures >= threshold && this.#now() - count.lastMs < durationSeconds * 1000
  }

  /** Names that are locked at a mount, in order. */
  locked({ record }: Mount): string[] {
    const rules = record.config.userLockout ?? DEFAULT_LOCKOUT
    if (rules.isDisabled) return []
    return [...this.#counts.values()]
      .filter((count) => count.accessor === record.accessor && this.#isLocked(count, rules))
      .map(({ name }) => name)
      .sort()
  }

  unlock(accessor: string, name: string): void {
    this.#counts.delete(keyOf(accessor, name))
  }
}

function keyOf(accessor: string, name: string): string {
  return `${accessor}\0${name}`
}

const NO_FAILURES: LoginFailures = { isLocked: () => false, failed: () => undefined, succeeded: () => undefined }
