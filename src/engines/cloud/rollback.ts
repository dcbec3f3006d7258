/**
 * Undoes what was begun and has no lease: users of intents that no request works on any more, because it failed or its
 * process was killed. An intent stays until AWS says that there is no such user. Where that was said of a user that was
 * never seen, it is asked again later: an answer that was lost, or a part of AWS that has not heard of the user yet,
 * may hide one.
 */
import type { Storage } from '../../barrier/storage.ts'
import { messageOf } from '../../kit/errors.ts'
import type { Logger } from '../../kit/log.ts'
import type { WorkCall } from '../engine.ts'
import type { IamClient } from './aws.ts'
import { AwsFailure } from './aws-failure.ts'
import { INTENT_TAG, type Intent, intentOf, intentPath, intentPaths, users } from './intent-record.ts'
import { isCode, removeUser } from './user-removal.ts'

/** For so long a user that is not found may come to light. */
const SETTLED_MS = 30_000
const FIRST_PAUSE_MS = 1000
const PAUSE_MAX_MS = 15_000
const AT_ONCE = 8
/** What one attempt may take. */
const ATTEMPT_MS = 30_000

interface Attempts {
  /** No request has worked on it since, as far as this process knows. */
  readonly sinceMs: number
  count: number
  nextAtMs: number
  error: string
}

type Where = Pick<WorkCall, 'mount' | 'nowMs' | 'signal' | 'logger'> & { readonly storage: Storage }

export class Rollback {
  /** Intents that requests work on. */
  readonly #active = new Set<string>()
  /** Intents whose user AWS has said to be made, by an answer to this process. */
  readonly #made = new Set<string>()
  readonly #attempts = new Map<string, Attempts>()

  begin({ id }: Intent): void {
    this.#active.add(id)
  }

  made({ id }: Intent): void {
    this.#made.add(id)
  }

  /** The request is over: the intent is either gone or to be rolled back. */
  end({ id }: Intent): void {
    this.#active.delete(id)
  }

  /** Attempts what is due, all of it where `isUrgent`. Resolves with how many intents are left. Rejects only when sealed. */
  async run(where: Where, iam: () => IamClient, isUrgent = false): Promise<number> {
    const { storage } = where
    const paths = intentPaths(storage)
    this.#forget(paths)
    const due = paths.flatMap((each) => {
      const intent = intentOf((entry) => storage.pending(entry), each)
      return intent && this.#isDue(intent, where.nowMs, isUrgent) ? [intent] : []
    })
    for (let begin = 0; begin < due.length; begin += AT_ONCE) {
      await Promise.all(due.slice(begin, begin + AT_ONCE).map((intent) => this.#attempt(intent, where, iam)))
    }
    return intentPaths(storage).length
  }

  /** What is wrong with the intents that are left. */
  errors(): string[] {
    return [...this.#attempts.values()].flatMap(({ error }) => (error === '' ? [] : [error]))
  }

  #forget(paths: readonly string[]): void {
    if (this.#attempts.size === 0 && this.#made.size === 0) return
    const ids = new Set(paths)
    for (const known of [this.#attempts.keys(), this.#made.keys()]) {
      for (const id of known) {
        if (ids.has(intentPath({ id })) || this.#active.has(id)) continue
        this.#attempts.delete(id)
        this.#made.delete(id)
      }
    }
  }

  #isDue({ id }: Intent, nowMs: number, isUrgent: boolean): boolean {
    if (this.#active.has(id)) return false
    const attempts = this.#attempts.get(id) ?? { sinceMs: nowMs, count: 0, nextAtMs: 0, error: '' }
    this.#attempts.set(id, attempts)
    return isUrgent || attempts.nextAtMs <= nowMs
  }

  async #attempt(intent: Intent, where: Where, iam: () => IamClient): Promise<void> {
    const attempts = this.#attempts.get(intent.id)
    if (!attempts) return
    const { logger, nowMs } = where
    attempts.count++
    attempts.nextAtMs = nowMs + Math.min(PAUSE_MAX_MS, FIRST_PAUSE_MS * 2 ** Math.min(attempts.count - 1, 10))
    try {
      attempts.error = ''
      if (await this.#isUndone(intent, attempts, where, iam)) await this.#clear(intent, where)
    } catch (error) {
      if (!(error instanceof AwsFailure)) throw error
      attempts.error = `user ${intent.username}: ${error.text}`
      if (attempts.count === 1) this.#tell(logger, intent, error.text)
    }
  }

  #tell(logger: Logger, { role, username }: Intent, error: string): void {
    logger.warn('a user of AWS that has no lease cannot be removed yet; it is tried again', { role, username, error })
  }

  async #isUndone(intent: Intent, attempts: Attempts, where: Where, iam: () => IamClient): Promise<boolean> {
    const { mount, nowMs, storage } = where
    // A lease stands for the user of this name: it is not of this intent, which only wanted the same name.
    if (users.read((each) => storage.pending(each), mount, intent.username)) return true
    const options = { signal: AbortSignal.any([where.signal, AbortSignal.timeout(ATTEMPT_MS)]) }
    const client = iam()
    if (!this.#made.has(intent.id) && intent.isTagged) {
      const whose = await ownerOf(client, intent, options)
      if (whose === 'other') return true
      if (whose === 'absent') return nowMs - attempts.sinceMs >= SETTLED_MS
    }
    const outcome = await removeUser(client, intent.username, options)
    if (outcome === 'absent') return nowMs - attempts.sinceMs >= SETTLED_MS
    where.logger.info('a user of AWS that had no lease was removed', { role: intent.role, username: intent.username })
    return true
  }

  async #clear(intent: Intent, { logger, storage }: Where): Promise<void> {
    try {
      await storage.commit({ puts: [], deletes: [intentPath(intent)] })
    } catch (error) {
      logger.warn('an intent could not be removed; it is tried again', { error: messageOf(error) })
    }
  }
}

/** Whether a user is that of an intent: its tag says so. */
async function ownerOf(iam: IamClient, intent: Intent, options: { signal: AbortSignal }) {
  try {
    const { User } = await iam.call((client, each) => client.getUser({ UserName: intent.username }, each), options)
    const tag = User?.Tags?.find(({ Key }) => Key === INTENT_TAG)
    return tag?.Value === intent.id ? 'own' : 'other'
  } catch (error) {
    if (isCode(error, 'NoSuchEntity')) return 'absent'
    throw error
  }
}
