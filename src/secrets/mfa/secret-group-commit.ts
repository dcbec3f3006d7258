/**
 * Group commit of secrets that were changed by the codes of requests. A commit has a fixed cost, so changes that arrive during a commit
 * are committed together after it. A change that arrives while no commit is in progress is committed immediately.
 *
 * Pending changes are effective: `pending` returns them for the verification of the next code, and `flush` queues them before any
 * other write to the entries. A caller is answered after the commit of its secret is durable. If the commit fails, no caller of the
 * group has been answered.
 *
 * The newest durable secrets are cached. Every other writer of an entry must call `forget`.
 */
import { LRUCache } from 'lru-cache'
import type { MfaSecret } from './mfa-secret.ts'

/** Secrets in one commit: some hundred KiB */
const GROUP_MAX = 256
/** Cached secrets of about 1 kB each */
const CACHED_MAX = 1000

type SecretsByPath = ReadonlyMap<string, MfaSecret>

export class SecretGroupCommit {
  /** Queues the secrets before it returns, and resolves when they are durable. */
  readonly #commit: (secrets: SecretsByPath) => Promise<unknown>
  #waiting = new Map<string, MfaSecret>()
  /** The result of the waiting group; undefined if none waits. */
  #done: PromiseWithResolvers<void> | undefined
  #activeCommits = 0
  /** The newest queued secret by path. */
  readonly #queued = new Map<string, MfaSecret>()
  /** Durable secrets without a queued or waiting change. */
  readonly #cache = new LRUCache<string, MfaSecret>({ max: CACHED_MAX })

  constructor(commit: (secrets: SecretsByPath) => Promise<unknown>) {
    this.#commit = commit
  }

  /** The pending or cached secret at a path; undefined if the storage has the newest one. */
  pending(path: string): MfaSecret | undefined {
    return this.#waiting.get(path) ?? this.#cache.get(path)
  }

  /** Resolves when all changes are durable; rejects if none is. Each change must be based on `pending`. */
  add(changes: SecretsByPath): Promise<void> {
    for (const [path, secret] of changes) {
      this.#cache.delete(path)
      this.#waiting.set(path, secret)
    }
    this.#done ??= Promise.withResolvers<void>()
    const { promise } = this.#done
    if (this.#activeCommits === 0 || this.#waiting.size >= GROUP_MAX) this.flush()
    return promise
  }

  /** Queues the waiting group before it returns. */
  flush(): void {
    const done = this.#done
    if (!done) return
    const waiting = this.#waiting
    this.#waiting = new Map()
    this.#done = undefined
    this.#activeCommits++
    for (const [path, secret] of waiting) this.#queued.set(path, secret)
    void this.#queue(waiting, done)
  }

  async #queue(waiting: SecretsByPath, done: PromiseWithResolvers<void>): Promise<void> {
    try {
      await this.#commit(waiting)
    } catch (error) {
      this.#settle(waiting, false)
      return done.reject(error)
    }
    this.#settle(waiting, true)
    done.resolve()
  }

  #settle(secrets: SecretsByPath, isDurable: boolean): void {
    for (const [path, secret] of secrets) {
      if (this.#queued.get(path) !== secret) continue
      this.#queued.delete(path)
      if (isDurable && !this.#waiting.has(path)) this.#cache.set(path, secret)
    }
    this.#activeCommits--
    if (this.#activeCommits === 0) this.flush()
  }

  /** Must be called before another write to these entries. Queues the waiting group first. */
  forget(paths: Iterable<string>): void {
    this.flush()
    for (const path of paths) {
      this.#queued.delete(path)
      this.#cache.delete(path)
    }
  }

  /** As `forget`, for all entries. */
  forgetAll(): void {
    this.flush()
    this.#queued.clear()
    this.#cache.clear()
  }
}
