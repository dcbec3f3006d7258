/**
 * Secrets that a code of a request has changed, on their way to the disk. A commit has a price of its own, whatever is in it: so while
 * one is under way, those that come wait for each other, and go as one batch behind it. Where none is under way, one goes at once.
 *
 * What waits holds already: `pending` gives it to the judgement of the next code, and `flush` queues it ahead of whatever else is done
 * to the entries. No caller is answered before the commit with its secret is durable; where that fails, or the process is killed, none was.
 *
 * What became durable is kept at hand for the next code of the same entity, as long as it is the newest: `forget` is for everything
 * else that writes an entry.
 */
import { LRUCache } from 'lru-cache'
import type { MfaSecret } from './mfa-secret.ts'

/** In one commit: some hundred KiB. */
const GATHERED_MAX = 256
/** At hand: a secret has a kilobyte. */
const KNOWN_MAX = 1000

type Secrets = ReadonlyMap<string, MfaSecret>

export class GatheredSecrets {
  /** Queues these before it returns, and resolves once they are durable. */
  readonly #commit: (secrets: Secrets) => Promise<unknown>
  #waiting = new Map<string, MfaSecret>()
  /** Of those that wait; undefined where none does. */
  #done: PromiseWithResolvers<void> | undefined
  #underWay = 0
  /** The newest that is queued for a path. */
  readonly #queued = new Map<string, MfaSecret>()
  /** Durable, and nothing is queued or waits for the path. */
  readonly #known = new LRUCache<string, MfaSecret>({ max: KNOWN_MAX })

  constructor(commit: (secrets: Secrets) => Promise<unknown>) {
    this.#commit = commit
  }

  /** What will be at a path once all that waits is durable; undefined where the entries tell that. */
  pending(path: string): MfaSecret | undefined {
    return this.#waiting.get(path) ?? this.#known.get(path)
  }

  /** All of the changes, or none, become durable; resolves then. Each was computed upon what is pending. */
  add(changes: Secrets): Promise<void> {
    for (const [path, secret] of changes) {
      this.#known.delete(path)
      this.#waiting.set(path, secret)
    }
    this.#done ??= Promise.withResolvers<void>()
    const { promise } = this.#done
    if (this.#underWay === 0 || this.#waiting.size >= GATHERED_MAX) this.flush()
    return promise
  }

  /** Queues what waits, before it returns. */
  flush(): void {
    const done = this.#done
    if (!done) return
    const waiting = this.#waiting
    this.#waiting = new Map()
    this.#done = undefined
    this.#underWay++
    for (const [path, secret] of waiting) this.#queued.set(path, secret)
    void this.#queue(waiting, done)
  }

  async #queue(waiting: Secrets, done: PromiseWithResolvers<void>): Promise<void> {
    try {
      await this.#commit(waiting)
    } catch (error) {
      this.#settle(waiting, false)
      return done.reject(error)
    }
    this.#settle(waiting, true)
    done.resolve()
  }

  #settle(secrets: Secrets, isDurable: boolean): void {
    for (const [path, secret] of secrets) {
      if (this.#queued.get(path) !== secret) continue
      this.#queued.delete(path)
      if (isDurable && !this.#waiting.has(path)) this.#known.set(path, secret)
    }
    this.#underWay--
    if (this.#underWay === 0) this.flush()
  }

  /** Something else is about to write, or to remove, these entries: what waits is queued ahead of it. */
  forget(paths: Iterable<string>): void {
    this.flush()
    for (const path of paths) {
      this.#queued.delete(path)
      this.#known.delete(path)
    }
  }

  /** The same for all entries. */
  forgetAll(): void {
    this.flush()
    this.#queued.clear()
    this.#known.clear()
  }
}
