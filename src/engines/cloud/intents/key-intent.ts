/**
 * Access keys that are about to be made for users which are there already (the root user, those of static roles), and old keys
 * that are about to be deleted, noted before. A note goes in the commit that stores the new key, or when AWS has no such key.
 */
import { randomBytes } from 'node:crypto'
import * as v from 'valibot'
import type { Batch, Storage } from '../../../storage/barrier/storage.ts'
import type { WorkCall } from '../../framework/engine.ts'
import { runSliced } from '../../../platform/sliced-work.ts'
import type { IamClient } from '../aws/aws.ts'
import { AwsFailure, strangeAnswer } from '../aws/aws-failure.ts'
import { Backlog } from './revocation-backlog.ts'
import { at, Kept, whole } from '../aws/entries.ts'
import { checkPlace, isSamePlace, type Place, placeField } from '../aws/record-place.ts'
import { rootOf } from '../aws/root-record.ts'
import { ATTEMPT_MS, SETTLED_MS } from './rollback.ts'
import { type AssumedAccount, assumedSchema, staticRoles } from './static-record.ts'
import { KeyedMutex } from '../../../platform/mutex.ts'
import { isCode } from './user-removal.ts'

/** A key whose answer was lost is younger than its note; clocks differ a little. */
const CLOCKS_MS = 300_000
const ATTEMPTS = 3

const keyIntentSchema = v.object({
  format: v.literal(1),
  id: v.string(),
  kind: v.picklist(['make', 'delete']),
  username: v.string(),
  /** To make: the keys that were there before. To delete: the key. */
  keys: v.array(v.string()),
  account: v.nullable(assumedSchema),
  place: placeField,
  createdAtMs: v.number(),
})

export type KeyIntent = v.InferOutput<typeof keyIntentSchema>

const kept = new Kept(keyIntentSchema, 'an intent of a key')

export function keyIntentPath({ id }: Pick<KeyIntent, 'id'>): string {
  return at.keyIntents + id
}

export function newKeyIntent(intent: Omit<KeyIntent, 'format' | 'id'>): KeyIntent {
  return { ...intent, format: 1, id: randomBytes(12).toString('hex') }
}

export function keyIntentPut(intent: KeyIntent) {
  return kept.put(keyIntentPath(intent), intent)
}

export interface AccessKey {
  readonly accessKey: string
  readonly secretKey: string
}

/** Of the answer of CreateAccessKey. Throws an AwsFailure where it has no key. */
export function madeKey(made: { AccessKeyId?: string | undefined; SecretAccessKey?: string | undefined } | undefined) {
  const { AccessKeyId: accessKey = '', SecretAccessKey: secretKey = '' } = made ?? {}
  if (accessKey === '' || secretKey === '') throw strangeAnswer('no access key')
  return { accessKey, secretKey } satisfies AccessKey
}

/** Keys of a user, the oldest first. */
export async function keysOf(iam: IamClient, username: string, signal: AbortSignal) {
  const input = { UserName: username, MaxItems: 100 }
  const { AccessKeyMetadata = [] } = await iam.call((client, options) => client.listAccessKeys(input, options), {
    signal,
  })
  const keys = AccessKeyMetadata.map(({ AccessKeyId = '', CreateDate }) => ({
    id: AccessKeyId,
    madeAtMs: CreateDate?.getTime() ?? 0,
  }))
  return keys.sort((a, b) => a.madeAtMs - b.madeAtMs)
}

/** Deletes a key, which may be gone: resolves with whether it was there. */
export async function deleteKey(iam: IamClient, username: string, id: string, signal: AbortSignal): Promise<boolean> {
  try {
    const input = { UserName: username, AccessKeyId: id }
    await iam.call((client, options) => client.deleteAccessKey(input, options), { signal })
    return true
  } catch (error) {
    if (!isCode(error, 'NoSuchEntity')) throw error
    return false
  }
}

/** Works with a client for the users of an account, null for the mount's own. */
export type CloudIam = <T>(
  account: AssumedAccount | null,
  signal: AbortSignal,
  work: (iam: IamClient) => Promise<T>,
) => Promise<T>

type CloudPlace = (account: AssumedAccount | null, iam: IamClient) => Promise<Place>

/** Whose keys: users of two accounts may have the same name. */
type KeyUser = Pick<KeyIntent, 'account' | 'username'>

const turnOf = ({ account, username }: KeyUser) => `${account?.arn ?? ''} ${username}`

export class KeyIntents {
  readonly #storage: Storage
  readonly #backlog = new Backlog()
  /** Of a user, one at a time makes keys, or deletes those that were lost. */
  readonly #mutex = new KeyedMutex()

  readonly #placeOf: CloudPlace

  constructor(storage: Storage, placeOf: CloudPlace) {
    this.#storage = storage
    this.#placeOf = placeOf
  }

  /** Waits until nothing else makes or deletes keys of a user, and keeps all others from it meanwhile. */
  alone<T>(user: KeyUser, work: () => Promise<T>): Promise<T> {
    return this.#mutex.runExclusive(turnOf(user), work)
  }

  /**
   * Makes a key of a user; the caller is `alone` with it. `store` commits what is kept of it, together with the changes of
   * notes that it is given.
   * Rejects with an AwsFailure, and with what `store` rejects with; then the key is deleted, now or later.
   */
  async make<T>(
    iam: IamClient,
    wanted: Pick<KeyIntent, 'username' | 'account'> & { keys: readonly string[]; nowMs: number },
    store: (key: AccessKey, notes: Batch) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    const { account, keys, nowMs, username } = wanted
    const place = await this.#placeOf(account, iam)
    const intent = newKeyIntent({ kind: 'make', username, keys: [...keys], account, place, createdAtMs: nowMs })
    const path = keyIntentPath(intent)
    this.#backlog.begin(path)
    try {
      await this.#storage.commit({ puts: [keyIntentPut(intent)], deletes: [] })
      const { isLost, key } = await this.#made(iam, intent, signal)
      // A list that does not show a key yet may have hidden the one that was lost.
      const later = newKeyIntent({ ...intent, keys: [...keys, key.accessKey] })
      const notes = [...(isLost ? [later] : []), ...this.#sparing(intent, key)]
      return await store(key, { puts: notes.map(keyIntentPut), deletes: [path] })
    } finally {
      this.#backlog.end(path)
    }
  }

  /** A key whose answer was lost is deleted before another one is made. */
  async #made(iam: IamClient, intent: KeyIntent, signal: AbortSignal) {
    const { createdAtMs, keys, username } = intent
    for (let attempt = 1; ; attempt++) {
      try {
        const input = { UserName: username }
        const { AccessKey: made } = await iam.call((client, options) => client.createAccessKey(input, options), {
          signal,
          isOnce: true,
        })
        return { key: madeKey(made), isLost: attempt > 1 }
      } catch (error) {
        const isRefused = error instanceof AwsFailure && !error.isAmbiguous
        // What AWS has refused was not made. Behind an answer that was lost, a refusal says nothing of the key of before.
        if (isRefused && attempt === 1) await this.#clear(keyIntentPath(intent))
        if (isRefused || !(error instanceof AwsFailure) || signal.aborted || attempt === ATTEMPTS) throw error
      }
      await deleteLost(iam, { createdAtMs, keys, username }, signal)
    }
  }

  #paths(): string[] {
    return this.#storage.list(at.keyIntents).map((name) => at.keyIntents + name)
  }

  /**
   * Older notes of the same user, which are not to take the new key for the one that was lost. They stay: a list that did not
   * show the lost key yet is no proof that there is none.
   */
  #sparing(intent: KeyIntent, { accessKey }: AccessKey): KeyIntent[] {
    return this.#of(intent, intent.place).flatMap(([, older]) =>
      older.kind === 'make' ? [{ ...older, keys: [...older.keys, accessKey] }] : [],
    )
  }

  /** Notes that no request works on, but for those that cannot be read. */
  idle(): (readonly [path: string, note: KeyIntent])[] {
    return this.#paths().flatMap((path) => {
      const note = this.#backlog.isActive(path) ? undefined : whole(() => kept.of(this.#storage.pending(path)))
      return note ? [[path, note] as const] : []
    })
  }

  /** Those about the keys of a user. */
  #of({ account, username }: KeyUser, place: Place | undefined): (readonly [path: string, note: KeyIntent])[] {
    return this.idle().filter(
      ([, note]) => note.username === username && note.account?.arn === account?.arn && isSamePlace(note.place, place),
    )
  }

  async #clear(path: string): Promise<void> {
    await this.#storage.commit({ puts: [], deletes: [path] })
  }

  /** Attempts what is due, all of it where `isUrgent`. Resolves with how many are left. Rejects only when sealed. */
  async run(where: WorkCall, withIam: CloudIam, isUrgent = false): Promise<number> {
    for (const path of this.#backlog.due(this.#paths(), where.nowMs, isUrgent)) {
      const user = await this.#readable(path, where)
      // A rotation that is under way looks at it by itself; what is urgent waits for it.
      if (!user || (this.#mutex.isLocked(turnOf(user)) && !isUrgent)) continue
      await this.alone(user, () => this.#attempt(path, where, withIam))
    }
    return this.#paths().length
  }

  /** A note; undefined where it is gone, or cannot be read: then it is tried again later, and the others go on. */
  async #readable(path: string, { logger, nowMs }: WorkCall): Promise<KeyIntent | undefined> {
    try {
      return kept.of(this.#storage.pending(path))
    } catch (damage) {
      const onFirst = (error: string) => logger.error('the note of an access key cannot be read', { error })
      await this.#backlog.attempt(path, nowMs, () => Promise.reject(damage), onFirst)
      return undefined
    }
  }

  async #attempt(path: string, where: WorkCall, withIam: CloudIam): Promise<void> {
    const intent = kept.of(this.#storage.pending(path))
    if (!intent) return
    const { account, username } = intent
    const isDone = await this.#backlog.attempt(
      path,
      where.nowMs,
      async (quietMs) => {
        const signal = AbortSignal.any([where.signal, AbortSignal.timeout(ATTEMPT_MS)])
        return withIam(account, signal, (iam) => this.#isUndone(intent, quietMs, iam, signal))
      },
      (error) => where.logger.warn('an access key cannot be deleted yet; it is tried again', { username, error }),
    )
    if (isDone) await this.#clear(path)
  }

  /** Undoes at once what is left of a user. Rejects with an AwsFailure. */
  async settle(user: KeyUser, iam: IamClient, signal: AbortSignal): Promise<void> {
    const place = await this.#placeOf(user.account, iam)
    for (const [path, intent] of this.#of(user, place)) {
      if (await this.#isUndone(intent, 0, iam, signal)) await this.#clear(path)
    }
  }

  errors(): string[] {
    return this.#backlog.errors()
  }

  /** Keys that the mount works with, or gives out. */
  async #stored(signal: AbortSignal): Promise<string[]> {
    const root = rootOf((each) => this.#storage.pending(each))?.accessKey ?? ''
    const roles = await runSliced(staticRoles.all(this.#storage), { signal })
    return [root, ...roles.map(({ accessKey }) => accessKey)]
  }

  async #isUndone(intent: KeyIntent, quietMs: number, iam: IamClient, signal: AbortSignal): Promise<boolean> {
    const { account, keys, kind, place, username } = intent
    if (place) checkPlace(place, await this.#placeOf(account, iam))
    try {
      const stored = await this.#stored(signal)
      if (kind === 'make') {
        const spared = { ...intent, keys: [...keys, ...stored] }
        return (await deleteLost(iam, spared, signal)) > 0 || quietMs >= SETTLED_MS
      }
      for (const id of keys) if (!stored.includes(id)) await deleteKey(iam, username, id, signal)
      return true
    } catch (error) {
      // There is no such user: its keys went with it.
      if (isCode(error, 'NoSuchEntity')) return true
      throw error
    }
  }
}

/** Deletes the keys that came after the note; resolves with how many. */
async function deleteLost(
  iam: IamClient,
  { createdAtMs, keys, username }: Pick<KeyIntent, 'createdAtMs' | 'keys' | 'username'>,
  signal: AbortSignal,
): Promise<number> {
  const all = await keysOf(iam, username, signal)
  const lost = all.filter(({ id, madeAtMs }) => !keys.includes(id) && madeAtMs >= createdAtMs - CLOCKS_MS)
  for (const { id } of lost) await deleteKey(iam, username, id, signal)
  return lost.length
}
