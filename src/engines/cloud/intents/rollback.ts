/**
 * Undoes what was begun and has no lease: users of intents that no request works on any more, because it failed or its
 * process was killed. An intent stays until AWS says that there is no such user. Where that was said of a user that was
 * never seen, it is asked again later: an answer that was lost, or a part of AWS that has not heard of the user yet,
 * may hide one.
 */
import type { Storage } from '../../../storage/barrier/storage.ts'
import type { WorkCall } from '../../framework/engine.ts'
import type { IamClient } from '../aws/aws.ts'
import { Backlog } from './revocation-backlog.ts'
import { whole } from '../aws/entries.ts'
import { INTENT_TAG, type Intent, intentOf, intentPath, intentPaths, users } from './intent-record.ts'
import type { MountAws } from '../aws/mount-aws.ts'
import { checkPlace } from '../aws/record-place.ts'
import { isCode, removeUser } from './user-removal.ts'

/** For so long what is not found may come to light. */
export const SETTLED_MS = 30_000
/** What one attempt may take. */
export const ATTEMPT_MS = 30_000
const AT_ONCE = 8

export class Rollback {
  readonly #backlog = new Backlog()
  /** Intents whose user AWS has said to be made, by an answer to this process. */
  readonly #made = new Set<string>()

  begin(intent: Intent): void {
    this.#backlog.begin(intentPath(intent))
  }

  made(intent: Intent): void {
    this.#made.add(intentPath(intent))
  }

  end(intent: Intent): void {
    this.#backlog.end(intentPath(intent))
  }

  /** Attempts what is due, all of it where `isUrgent`. Resolves with how many intents are left. Rejects only when sealed. */
  async run(where: WorkCall, aws: MountAws, isUrgent = false): Promise<number> {
    const { nowMs, storage } = where
    const paths = intentPaths(storage)
    for (const path of this.#made) if (!paths.includes(path) && !this.#backlog.isActive(path)) this.#made.delete(path)
    const due = this.#backlog.due(paths, nowMs, isUrgent)
    for (let begin = 0; begin < due.length; begin += AT_ONCE) {
      await Promise.all(due.slice(begin, begin + AT_ONCE).map((path) => this.#attempt(path, where, aws)))
    }
    return intentPaths(storage).length
  }

  /** Intents that no request works on, but for those that cannot be read. */
  idle(storage: Storage): (readonly [path: string, intent: Intent])[] {
    return intentPaths(storage).flatMap((path) => {
      const intent = this.#backlog.isActive(path)
        ? undefined
        : whole(() => intentOf((each) => storage.pending(each), path))
      return intent ? [[path, intent] as const] : []
    })
  }

  errors(): string[] {
    return this.#backlog.errors()
  }

  async #attempt(path: string, where: WorkCall, aws: MountAws): Promise<void> {
    const { logger, nowMs, storage } = where
    let intent: Intent | undefined
    const isDone = await this.#backlog.attempt(
      path,
      nowMs,
      async (quietMs) => {
        intent = intentOf((each) => storage.pending(each), path)
        return intent !== undefined && (await this.#undo(intent, quietMs, where, aws))
      },
      (error) =>
        logger.warn('a user of AWS that has no lease cannot be removed yet; it is tried again', {
          role: intent?.role,
          username: intent?.username,
          error,
        }),
    )
    if (isDone) await storage.commit({ puts: [], deletes: [path] })
  }

  async #undo(intent: Intent, quietMs: number, where: WorkCall, aws: MountAws): Promise<boolean> {
    const { mount, storage } = where
    // A lease stands for the user of this name: it is not of this intent, which only wanted the same name.
    if (users.read((each) => storage.pending(each), mount, intent.username)) return true
    const client = aws.iam
    const signal = AbortSignal.any([where.signal, AbortSignal.timeout(ATTEMPT_MS)])
    // What is said of another account says nothing of this user.
    if (intent.place) checkPlace(intent.place, await aws.placeOf(client))
    const options = { signal, checkPlace: async () => undefined }
    if (!this.#made.has(intentPath(intent)) && intent.isTagged) {
      const whose = await ownerOf(client, intent, options)
      if (whose === 'other') return true
      if (whose === 'absent') return quietMs >= SETTLED_MS
    }
    const outcome = await removeUser(client, intent.username, options)
    if (outcome === 'absent') return quietMs >= SETTLED_MS
    where.logger.info('a user of AWS that had no lease was removed', { role: intent.role, username: intent.username })
    return true
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
