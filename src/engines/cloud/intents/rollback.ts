/**
 * Rolls back intents: removes users without a lease, whose request failed or whose process was killed. An intent is deleted
 * once AWS has confirmed that the user does not exist. For a user that was never seen this is checked again later, because a
 * response may have been lost, and AWS is eventually consistent.
 */
import type { Storage } from '../../../storage/barrier/storage.ts'
import type { PeriodicCall } from '../../framework/engine.ts'
import type { IamClient } from '../aws/aws.ts'
import { RetryBacklog } from './retry-backlog.ts'
import { readable } from '../aws/entries.ts'
import { INTENT_TAG, type UserIntent, intentOf, intentPath, intentPaths, users } from './user-records.ts'
import type { AwsClients } from '../aws/aws-clients.ts'
import { checkLocation } from '../aws/account.ts'
import { isCode, removeUser } from './user-removal.ts'

/** A resource that is not found may still appear within this time, because AWS is eventually consistent. */
export const CONSISTENCY_MS = 30_000
/** Timeout of an attempt. */
export const ATTEMPT_MS = 30_000
const AT_ONCE = 8

export class UserRollback {
  readonly #backlog = new RetryBacklog()
  /** Intents whose user was created, by a response to this process. */
  readonly #created = new Set<string>()

  begin(intent: UserIntent): void {
    this.#backlog.begin(intentPath(intent))
  }

  created(intent: UserIntent): void {
    this.#created.add(intentPath(intent))
  }

  end(intent: UserIntent): void {
    this.#backlog.end(intentPath(intent))
  }

  /** Attempts due intents, or all if `isUrgent`. Resolves with the number of remaining intents. Rejects only if sealed. */
  async run(where: PeriodicCall, aws: AwsClients, isUrgent = false): Promise<number> {
    const { nowMs, storage } = where
    const paths = intentPaths(storage)
    for (const path of this.#created)
      if (!paths.includes(path) && !this.#backlog.isActive(path)) this.#created.delete(path)
    const due = this.#backlog.due(paths, nowMs, isUrgent)
    for (let begin = 0; begin < due.length; begin += AT_ONCE) {
      await Promise.all(due.slice(begin, begin + AT_ONCE).map((path) => this.#attempt(path, where, aws)))
    }
    return intentPaths(storage).length
  }

  /** Readable intents that no request uses. */
  idle(storage: Storage): (readonly [path: string, intent: UserIntent])[] {
    return intentPaths(storage).flatMap((path) => {
      const intent = this.#backlog.isActive(path)
        ? undefined
        : readable(() => intentOf((each) => storage.pending(each), path))
      return intent ? [[path, intent] as const] : []
    })
  }

  errors(): string[] {
    return this.#backlog.errors()
  }

  async #attempt(path: string, where: PeriodicCall, aws: AwsClients): Promise<void> {
    const { logger, nowMs, storage } = where
    let intent: UserIntent | undefined
    const isDone = await this.#backlog.attempt(
      path,
      nowMs,
      async (quietMs) => {
        intent = intentOf((each) => storage.pending(each), path)
        return intent !== undefined && (await this.#undo(intent, quietMs, where, aws))
      },
      (error) =>
        logger.warn('removing an AWS user without a lease failed, will retry', {
          role: intent?.role,
          username: intent?.username,
          error,
        }),
    )
    if (isDone) await storage.commit({ puts: [], deletes: [path] })
  }

  async #undo(intent: UserIntent, quietMs: number, where: PeriodicCall, aws: AwsClients): Promise<boolean> {
    const { mount, storage } = where
    // The user of this name has a lease: it is not of this intent, which only had the same name.
    if (users.read((each) => storage.pending(each), mount, intent.username)) return true
    const client = aws.iam
    const signal = AbortSignal.any([where.signal, AbortSignal.timeout(ATTEMPT_MS)])
    // A response of another account says nothing about this user.
    if (intent.place) checkLocation(intent.place, await aws.locationOf(client))
    const options = { signal, checkLocation: async () => undefined }
    if (!this.#created.has(intentPath(intent)) && intent.isTagged) {
      const owner = await ownerOf(client, intent, options)
      if (owner === 'other') return true
      if (owner === 'absent') return quietMs >= CONSISTENCY_MS
    }
    const outcome = await removeUser(client, intent.username, options)
    if (outcome === 'absent') return quietMs >= CONSISTENCY_MS
    where.logger.info('AWS user without a lease removed', { role: intent.role, username: intent.username })
    return true
  }
}

/** Whether a user has the tag of an intent. */
async function ownerOf(iam: IamClient, intent: UserIntent, options: { signal: AbortSignal }) {
  try {
    const { User } = await iam.call((client, each) => client.getUser({ UserName: intent.username }, each), options)
    const tag = User?.Tags?.find(({ Key }) => Key === INTENT_TAG)
    return tag?.Value === intent.id ? 'own' : 'other'
  } catch (error) {
    if (isCode(error, 'NoSuchEntity')) return 'absent'
    throw error
  }
}
