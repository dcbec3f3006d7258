/**
 * User lockout: counts failed logins and locks names after too many: user names of userpass, role IDs of AppRole. Failures are
 * counted per mount and name, whether the name exists or not, so a lockout does not reveal which users or roles exist. Names are
 * compared exactly; userpass folds its names before.
 *
 * The counts are in memory, so a restart resets them. The table is bounded, in names and in characters. An evicted count moves to a
 * sketch (`failure-sketch.ts`) until it expires, so failures with 100,000 other names unlock no name. A name in the sketch is locked
 * like any other, but not in the list of locked names.
 */
import { LRUCache } from 'lru-cache'
import type { LoginFailures } from '../../engines/framework/login-grant.ts'
import { DEFAULT_LOCKOUT } from '../mounts/mount-record.ts'
import type { Mount } from '../mounts/mounts.ts'
import { type FailureCount, FailureSketch } from './failure-sketch.ts'

const NAMES_MAX = 100_000
/** Of all names together. A generated role ID has 36. */
const CHARACTERS_MAX = 10_000_000

interface NamedCount extends FailureCount {
  readonly accessor: string
  readonly name: string
  /** The count expires this long after its last failure. */
  readonly windowMs: number
}

export class UserLockout {
  /** Undefined until a login fails: the table allocates all of its 3 MB at once, which takes tens of milliseconds. */
  #counts: LRUCache<string, NamedCount> | undefined
  readonly #namesMax: number
  readonly #sketch = new FailureSketch()
  readonly #now: () => number

  constructor(now: () => number, namesMax = NAMES_MAX) {
    this.#now = now
    this.#namesMax = namesMax
  }

  get #table(): LRUCache<string, NamedCount> {
    const dispose = (count: NamedCount, key: string, reason: string) => {
      const { windowMs } = count
      const nowMs = this.#now()
      if (reason === 'evict' && nowMs - count.lastMs < windowMs) this.#sketch.add(key, count, { nowMs, windowMs })
    }
    return (this.#counts ??= new LRUCache({
      max: this.#namesMax,
      maxSize: CHARACTERS_MAX,
      sizeCalculation: ({ name }) => name.length + 1,
      dispose,
    }))
  }

  #countOf(key: string): FailureCount | undefined {
    return this.#counts?.get(key) ?? this.#sketch.of(key)
  }

  of({ record }: Mount): LoginFailures {
    const rules = record.config.userLockout ?? DEFAULT_LOCKOUT
    const { accessor } = record
    if (rules.isDisabled) return NO_FAILURES
    return {
      isLocked: (name) => this.#isLocked(this.#countOf(keyOf(accessor, name)), rules),
      failed: (name) => {
        const key = keyOf(accessor, name)
        const known = this.#countOf(key)
        const isRecent = known && this.#now() - known.lastMs < rules.counterResetSeconds * 1000
        const failures = (isRecent ? known.failures : 0) + 1
        const windowMs = Math.max(rules.counterResetSeconds, rules.durationSeconds) * 1000
        this.#table.set(key, { accessor, name, failures, lastMs: this.#now(), windowMs })
      },
      succeeded: (name) => this.#reset(accessor, name),
    }
  }

  #isLocked(count: FailureCount | undefined, { durationSeconds, threshold }: typeof DEFAULT_LOCKOUT): boolean {
    return !!count && count.failures >= threshold && this.#now() - count.lastMs < durationSeconds * 1000
  }

  /** Locked names of a mount, sorted. */
  locked({ record }: Mount): string[] {
    const rules = record.config.userLockout ?? DEFAULT_LOCKOUT
    if (rules.isDisabled) return []
    return [...(this.#counts?.values() ?? [])]
      .filter((count) => count.accessor === record.accessor && this.#isLocked(count, rules))
      .map(({ name }) => name)
      .sort()
  }

  /** Resets the counts of all names that equal `foldedName` without regard to case. `foldedName` is in lower case. */
  unlock(accessor: string, foldedName: string): void {
    this.#reset(accessor, foldedName)
    const counts = [...(this.#counts?.values() ?? [])].filter((count) => count.accessor === accessor)
    for (const { name } of counts) if (name.toLowerCase() === foldedName) this.#reset(accessor, name)
  }

  #reset(accessor: string, name: string): void {
    const key = keyOf(accessor, name)
    // Cells of the sketch may be shared with other names, so a count of zero in the table overrides it.
    const isInSketch = this.#sketch.of(key) !== undefined
    if (isInSketch) this.#table.set(key, { accessor, name, failures: 0, lastMs: this.#now(), windowMs: 0 })
    else this.#counts?.delete(key)
  }
}

function keyOf(accessor: string, name: string): string {
  return `${accessor}\0${name}`
}

const NO_FAILURES: LoginFailures = { isLocked: () => false, failed: () => undefined, succeeded: () => undefined }
