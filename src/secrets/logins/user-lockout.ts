/**
 * User lockout: counts failed logins and locks names after too many: user names of userpass, role IDs of AppRole. Failures are
 * counted per mount and name, whether the name exists or not, so a lockout does not reveal which users or roles exist. Names are
 * compared exactly; userpass folds its names before.
 *
 * Promises. A failed login counts before it is answered, across restarts and changes of the active server: its count is an entry, which
 * is durable before the answer. A successful login and an unlock remove it. Entries are bounded by the table in memory: they expire with
 * their counts, and an evicted count has none.
 *
 * Failure mode. A client needs no token to fail a login, so the rate of writes is limited: in a flood of failures, counts that exceed it
 * are in memory only. Locks have a limit of their own.
 *
 * The table is bounded, in names and in characters. An evicted count moves to a sketch (`failure-sketch.ts`) until it expires, so
 * failures with 100,000 other names unlock no name of this process. A name in the sketch is locked like any other, but not in the list
 * of locked names.
 *
 * The table is loaded in the background after the core is activated. Until then a name is looked up in its entry.
 */
import { LRUCache } from 'lru-cache'
import * as v from 'valibot'
import type { Put, Storage } from '../../storage/barrier/storage.ts'
import type { LoginFailures } from '../../engines/framework/login-grant.ts'
import { messageOf } from '../../platform/errors.ts'
import { type Logger, LogOnce } from '../../platform/log.ts'
import { nextTurn } from '../../platform/scheduler.ts'
import { tryParseRecord } from '../../platform/stored-record.ts'
import { DEFAULT_LOCKOUT } from '../mounts/mount-record.ts'
import type { Mount } from '../mounts/mounts.ts'
import { type FailureCount, FailureSketch } from './failure-sketch.ts'

const PREFIX = 'core/lockout/'
const NAMES_MAX = 100_000
/** Of all names together. A generated role ID has 36. */
const CHARACTERS_MAX = 10_000_000
/** Entries that are read and decrypted in one turn of the event loop: about a millisecond. */
const PAGE_NAMES = 32
/** Entries that one commit removes. */
const REMOVED_PER_COMMIT = 500
const EXPIRY_INTERVAL_MS = 60_000
/** Counts, and locks, that are stored in a second on average, and at once. */
const WRITES_PER_SECOND = 100
const WRITES_MAX = 1000
const LOG_INTERVAL_MS = 60_000

const countSchema = v.object({
  name: v.string(),
  failures: v.number(),
  lastMs: v.number(),
  /** The count expires this long after its last failure. */
  windowMs: v.number(),
})

interface NamedCount extends v.InferOutput<typeof countSchema> {
  readonly accessor: string
  /** Of its entry; undefined if there is none. */
  readonly path: string | undefined
}

export interface UserLockoutOptions {
  /** All of the barrier. */
  readonly storage: Storage
  readonly logger: Logger
  readonly now: () => number
  readonly namesMax?: number
}

export class UserLockout {
  readonly #options: UserLockoutOptions
  readonly #storage: Storage
  /** Undefined until a login fails: the table allocates all of its 3 MB at once, which takes tens of milliseconds. */
  #counts: LRUCache<string, NamedCount> | undefined
  readonly #sketch = new FailureSketch()
  /** Paths of entries whose counts were evicted. */
  #evicted: string[] = []
  #isLoaded = false
  #loading: Promise<void> | undefined
  /** Resolves when all counts so far are durable; undefined while none is queued. */
  #recorded: Promise<unknown> | undefined
  #timer: NodeJS.Timeout | undefined
  #isClosed = false
  readonly #failures = new LogOnce({ everyMs: LOG_INTERVAL_MS })
  readonly #countWrites: WriteBudget
  readonly #lockWrites: WriteBudget

  constructor(options: UserLockoutOptions) {
    this.#options = options
    this.#storage = options.storage.below(PREFIX)
    this.#countWrites = new WriteBudget(options.now)
    this.#lockWrites = new WriteBudget(options.now)
  }

  /** Starts to load the table and to remove expired counts. */
  begin(): void {
    void this.ready()
    this.#timer = setInterval(() => void this.#removeExpired(), EXPIRY_INTERVAL_MS)
    this.#timer.unref()
  }

  close(): void {
    this.#isClosed = true
    clearInterval(this.#timer)
  }

  /** Resolves when the table is loaded, or could not be. Never rejects. */
  ready(): Promise<void> {
    this.#loading ??= this.#load().then(
      () => void (this.#isLoaded = true),
      (error: unknown) => this.#failed('counts of failed logins not loaded, will retry', error),
    )
    return this.#loading
  }

  #failed(message: string, error: unknown): void {
    if (!this.#isClosed && this.#failures.due(message) > 0) {
      this.#options.logger.warn(message, { error: messageOf(error) })
    }
  }

  async #load(): Promise<void> {
    const nowMs = this.#now()
    for (const page of this.#storage.pages('', PAGE_NAMES)) {
      const expired: string[] = []
      for (const path of page) {
        const count = this.#stored(path)
        if (!count || isExpired(count, nowMs)) expired.push(path)
        else if (!this.#counts?.has(keyOf(count.accessor, count.name))) this.#set(count)
      }
      if (expired.length > 0) await this.#storage.commit({ puts: [], deletes: expired })
      await nextTurn()
    }
  }

  #now(): number {
    return this.#options.now()
  }

  #stored(path: string): NamedCount | undefined {
    const bytes = this.#storage.pending(path)
    const count = bytes && tryParseRecord(countSchema, bytes.toString('utf8'))
    return count && { ...count, accessor: path.slice(0, path.indexOf('/')), path }
  }

  get #table(): LRUCache<string, NamedCount> {
    const dispose = (count: NamedCount, key: string, reason: string) => {
      if (reason !== 'evict') return
      const { path, windowMs } = count
      const nowMs = this.#now()
      if (path !== undefined) this.#evicted.push(path)
      if (!isExpired(count, nowMs)) this.#sketch.add(key, count, { nowMs, windowMs })
    }
    return (this.#counts ??= new LRUCache({
      max: this.#options.namesMax ?? NAMES_MAX,
      maxSize: CHARACTERS_MAX,
      sizeCalculation: ({ name }) => name.length + 1,
      dispose,
    }))
  }

  #set(count: NamedCount): void {
    this.#table.set(keyOf(count.accessor, count.name), count)
  }

  #countOf(mount: Mount, name: string): FailureCount | undefined {
    const key = keyOf(mount.record.accessor, name)
    const known = this.#counts?.get(key)
    if (known) return known
    return (this.#isLoaded ? undefined : this.#stored(pathOf(mount, name))) ?? this.#sketch.of(key)
  }

  #storedCount(mount: Mount, name: string): NamedCount | undefined {
    const known = this.#counts?.peek(keyOf(mount.record.accessor, name))
    return this.#isLoaded || known ? known : this.#stored(pathOf(mount, name))
  }

  of(mount: Mount): LoginFailures {
    const { accessor, config } = mount.record
    const rules = config.userLockout ?? DEFAULT_LOCKOUT
    if (rules.isDisabled) return NO_FAILURES
    return {
      isLocked: (name) => this.#isLocked(this.#countOf(mount, name), rules),
      failed: (name) => {
        const known = this.#countOf(mount, name)
        const isRecent = known && this.#now() - known.lastMs < rules.counterResetSeconds * 1000
        const failures = (isRecent ? known.failures : 0) + 1
        const windowMs = Math.max(rules.counterResetSeconds, rules.durationSeconds) * 1000
        const count = { accessor, name, failures, lastMs: this.#now(), windowMs }
        const writes = failures >= rules.threshold ? this.#lockWrites : this.#countWrites
        if (writes.take()) this.#record({ ...count, path: pathOf(mount, name) })
        // An older count of the name may be stored.
        else this.#set({ ...count, path: this.#storedCount(mount, name)?.path })
      },
      succeeded: (name) => {
        const { path } = this.#storedCount(mount, name) ?? {}
        this.#reset(accessor, name)
        // Queued before the commit of the token, so it is durable with it.
        if (path !== undefined) this.#write([], [path])
      },
    }
  }

  #record(count: NamedCount & { readonly path: string }): void {
    this.#set(count)
    const { failures, lastMs, name, path, windowMs } = count
    const value = Buffer.from(JSON.stringify({ name, failures, lastMs, windowMs }))
    this.#write([{ path, value }], this.#evicted.splice(0, REMOVED_PER_COMMIT))
  }

  #write(puts: readonly Put[], deletes: readonly string[]): void {
    const recorded = this.#storage.commit({ puts, deletes })
    this.#recorded = recorded
    const forget = () => {
      if (this.#recorded === recorded) this.#recorded = undefined
    }
    recorded.then(forget, forget)
  }

  /** Resolves when all counts so far are durable. Rejects if the newest one is not. */
  async recorded(): Promise<void> {
    await this.#recorded
  }

  #isLocked(count: FailureCount | undefined, { durationSeconds, threshold }: typeof DEFAULT_LOCKOUT): boolean {
    return !!count && count.failures >= threshold && this.#now() - count.lastMs < durationSeconds * 1000
  }

  /** Locked names of a mount, sorted. Complete once `ready` has resolved. */
  locked({ record }: Mount): string[] {
    const rules = record.config.userLockout ?? DEFAULT_LOCKOUT
    if (rules.isDisabled) return []
    return [...(this.#counts?.values() ?? [])]
      .filter((count) => count.accessor === record.accessor && this.#isLocked(count, rules))
      .map(({ name }) => name)
      .sort()
  }

  /**
   * Resets the counts of all names that equal `foldedName` without regard to case. `foldedName` is in lower case. Resolves when that is
   * durable.
   */
  async unlock(accessor: string, foldedName: string): Promise<void> {
    await this.ready()
    const counts = [...(this.#counts?.values() ?? [])].filter((count) => count.accessor === accessor)
    const same = counts.filter(({ name }) => name.toLowerCase() === foldedName)
    this.#reset(accessor, foldedName)
    for (const { name } of same) this.#reset(accessor, name)
    const deletes = same.flatMap(({ path }) => path ?? [])
    if (deletes.length > 0) await this.#storage.commit({ puts: [], deletes })
  }

  #reset(accessor: string, name: string): void {
    const key = keyOf(accessor, name)
    // Cells of the sketch may be shared with other names, so a count of zero in the table overrides it.
    const isInSketch = this.#sketch.of(key) !== undefined
    if (isInSketch) this.#set({ accessor, name, failures: 0, lastMs: this.#now(), windowMs: 0, path: undefined })
    else this.#counts?.delete(key)
  }

  async #removeExpired(): Promise<void> {
    if (!this.#isLoaded) {
      this.#loading = undefined
      return this.ready()
    }
    const nowMs = this.#now()
    const counts = [...(this.#counts?.entries() ?? [])].filter(([, count]) => count.path && isExpired(count, nowMs))
    for (const [key] of counts) this.#counts?.delete(key)
    const paths = [...counts.flatMap(([, { path }]) => path ?? []), ...this.#evicted.splice(0)]
    try {
      while (paths.length > 0 && !this.#isClosed) {
        await this.#storage.commit({ puts: [], deletes: paths.splice(0, REMOVED_PER_COMMIT) })
      }
    } catch (error) {
      // The next activation finds them.
      this.#failed('expired counts of failed logins not removed', error)
    }
  }
}

function isExpired({ lastMs, windowMs }: Pick<NamedCount, 'lastMs' | 'windowMs'>, nowMs: number): boolean {
  return nowMs - lastMs >= windowMs
}

function keyOf(accessor: string, name: string): string {
  return `${accessor}\0${name}`
}

/** Below `PREFIX`. Paths are not encrypted, so the name is hashed. */
function pathOf({ facts, record }: Mount, name: string): string {
  return `${record.accessor}/${facts.secret.digest(`lockout\0${name}`, 'base64url')}`
}

const NO_FAILURES: LoginFailures = { isLocked: () => false, failed: () => undefined, succeeded: () => undefined }

/** A token bucket. */
class WriteBudget {
  readonly #now: () => number
  #left = WRITES_MAX
  #atMs: number

  constructor(now: () => number) {
    this.#now = now
    this.#atMs = now()
  }

  /** False while the limit is exceeded. */
  take(): boolean {
    const nowMs = this.#now()
    const more = (Math.max(0, nowMs - this.#atMs) / 1000) * WRITES_PER_SECOND
    this.#left = Math.min(WRITES_MAX, this.#left + more)
    this.#atMs = nowMs
    if (this.#left < 1) return false
    this.#left--
    return true
  }
}
