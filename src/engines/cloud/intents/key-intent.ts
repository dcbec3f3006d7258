/**
 * Intents for access keys of existing users: the root user, and users of static roles. An intent is committed before a key is
 * created, or before an old key is deleted. It is deleted by the commit that stores the new key, or once the key is gone.
 */
import { randomBytes } from 'node:crypto'
import * as v from 'valibot'
import type { Batch, Storage } from '../../../storage/barrier/storage.ts'
import type { PeriodicCall } from '../../framework/engine.ts'
import { runSliced } from '../../../platform/sliced-work.ts'
import type { IamClient } from '../aws/aws.ts'
import { AwsFailure, invalidResponse } from '../aws/aws-failure.ts'
import { RetryBacklog } from './retry-backlog.ts'
import { StoredRecord } from '../../framework/records.ts'
import { ENTRY_PATHS, readable } from '../aws/entries.ts'
import { checkLocation, isSameLocation, type AccountLocation, locationField } from '../aws/account.ts'
import { rootOf } from '../aws/root-record.ts'
import { ATTEMPT_MS, CONSISTENCY_MS } from './rollback.ts'
import { type AssumedAccount, assumedSchema, staticRoles } from './user-records.ts'
import { KeyedMutex } from '../../../platform/mutex.ts'
import { isCode } from './user-removal.ts'

/** Tolerated difference between the clocks of this server and AWS. */
const CLOCK_SKEW_MS = 300_000
const ATTEMPTS = 3

const keyIntentSchema = v.object({
  format: v.literal(1),
  id: v.string(),
  kind: v.picklist(['make', 'delete']),
  username: v.string(),
  /** `make`: the keys that existed before. `delete`: the key. */
  keys: v.array(v.string()),
  account: v.nullable(assumedSchema),
  place: locationField,
  createdAtMs: v.number(),
})

export type KeyIntent = v.InferOutput<typeof keyIntentSchema>

const keyIntents = new StoredRecord(keyIntentSchema, 'an intent of a key')

export function keyIntentPath({ id }: Pick<KeyIntent, 'id'>): string {
  return ENTRY_PATHS.keyIntents + id
}

export function newKeyIntent(intent: Omit<KeyIntent, 'format' | 'id'>): KeyIntent {
  return { ...intent, format: 1, id: randomBytes(12).toString('hex') }
}

export function keyIntentPut(intent: KeyIntent) {
  return keyIntents.put(keyIntentPath(intent), intent)
}

export interface AccessKey {
  readonly accessKey: string
  readonly secretKey: string
}

/** The key in a response of CreateAccessKey. Throws an AwsFailure if there is none. */
export function accessKeyOf(
  response: { AccessKeyId?: string | undefined; SecretAccessKey?: string | undefined } | undefined,
) {
  const { AccessKeyId: accessKey = '', SecretAccessKey: secretKey = '' } = response ?? {}
  if (accessKey === '' || secretKey === '') throw invalidResponse('no access key')
  return { accessKey, secretKey } satisfies AccessKey
}

/** The access keys of a user, oldest first. */
export async function keysOf(iam: IamClient, username: string, signal: AbortSignal) {
  const input = { UserName: username, MaxItems: 100 }
  const { AccessKeyMetadata = [] } = await iam.call((client, options) => client.listAccessKeys(input, options), {
    signal,
  })
  const keys = AccessKeyMetadata.map(({ AccessKeyId = '', CreateDate }) => ({
    id: AccessKeyId,
    createdAtMs: CreateDate?.getTime() ?? 0,
  }))
  return keys.sort((a, b) => a.createdAtMs - b.createdAtMs)
}

/** Resolves to false if the key did not exist. */
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

/** Runs `work` with a client for the users of an account, or of the mount's account if null. */
export type CloudIam = <T>(
  account: AssumedAccount | null,
  signal: AbortSignal,
  work: (iam: IamClient) => Promise<T>,
) => Promise<T>

type LocationLookup = (account: AssumedAccount | null, iam: IamClient) => Promise<AccountLocation>

/** Users of two accounts may have the same name. */
type KeyUser = Pick<KeyIntent, 'account' | 'username'>

const mutexKey = ({ account, username }: KeyUser) => `${account?.arn ?? ''} ${username}`

export class KeyIntents {
  readonly #storage: Storage
  readonly #backlog = new RetryBacklog()
  /** By user: creation and deletion of keys. */
  readonly #mutex = new KeyedMutex()

  readonly #locationOf: LocationLookup

  constructor(storage: Storage, locationOf: LocationLookup) {
    this.#storage = storage
    this.#locationOf = locationOf
  }

  /** Runs `work` exclusively for the keys of a user. */
  runExclusive<T>(user: KeyUser, work: () => Promise<T>): Promise<T> {
    return this.#mutex.runExclusive(mutexKey(user), work)
  }

  /**
   * Creates a key of a user. The caller must be in `runExclusive`. `store` commits the key together with the given changes of
   * intents. Rejects with an AwsFailure, or as `store` does; then the key is deleted, now or later.
   */
  async createKey<T>(
    iam: IamClient,
    user: Pick<KeyIntent, 'username' | 'account'> & { keys: readonly string[]; nowMs: number },
    store: (key: AccessKey, intents: Batch) => Promise<T>,
    signal: AbortSignal,
  ): Promise<T> {
    const { account, keys, nowMs, username } = user
    const place = await this.#locationOf(account, iam)
    const intent = newKeyIntent({ kind: 'make', username, keys: [...keys], account, place, createdAtMs: nowMs })
    const path = keyIntentPath(intent)
    this.#backlog.begin(path)
    try {
      await this.#storage.commit({ puts: [keyIntentPut(intent)], deletes: [] })
      const { isRetried, key } = await this.#createdKey(iam, intent, signal)
      // A list that did not show a lost key yet may have hidden it.
      const later = newKeyIntent({ ...intent, keys: [...keys, key.accessKey] })
      const intents = [...(isRetried ? [later] : []), ...this.#excluding(intent, key)]
      return await store(key, { puts: intents.map(keyIntentPut), deletes: [path] })
    } finally {
      this.#backlog.end(path)
    }
  }

  /** Before a retry a key whose response was lost is deleted. */
  async #createdKey(iam: IamClient, intent: KeyIntent, signal: AbortSignal) {
    const { createdAtMs, keys, username } = intent
    for (let attempt = 1; ; attempt++) {
      try {
        const input = { UserName: username }
        const { AccessKey: response } = await iam.call((client, options) => client.createAccessKey(input, options), {
          signal,
          isOnce: true,
        })
        return { key: accessKeyOf(response), isRetried: attempt > 1 }
      } catch (error) {
        const isRefused = error instanceof AwsFailure && !error.isAmbiguous
        // A refused key was not created. After a lost response, a refusal says nothing about the first key.
        if (isRefused && attempt === 1) await this.#deleteIntent(keyIntentPath(intent))
        if (isRefused || !(error instanceof AwsFailure) || signal.aborted || attempt === ATTEMPTS) throw error
      }
      await deleteLost(iam, { createdAtMs, keys, username }, signal)
    }
  }

  #paths(): string[] {
    return this.#storage.list(ENTRY_PATHS.keyIntents).map((name) => ENTRY_PATHS.keyIntents + name)
  }

  /**
   * Older intents of the same user, changed so that they do not treat the new key as the lost one. They are kept, because a list
   * without the lost key does not prove that it does not exist.
   */
  #excluding(intent: KeyIntent, { accessKey }: AccessKey): KeyIntent[] {
    return this.#of(intent, intent.place).flatMap(([, older]) =>
      older.kind === 'make' ? [{ ...older, keys: [...older.keys, accessKey] }] : [],
    )
  }

  /** Readable intents that no request uses. */
  idle(): (readonly [path: string, intent: KeyIntent])[] {
    return this.#paths().flatMap((path) => {
      const intent = this.#backlog.isActive(path)
        ? undefined
        : readable(() => keyIntents.of(this.#storage.pending(path)))
      return intent ? [[path, intent] as const] : []
    })
  }

  /** Intents for the keys of a user. */
  #of(
    { account, username }: KeyUser,
    place: AccountLocation | undefined,
  ): (readonly [path: string, intent: KeyIntent])[] {
    return this.idle().filter(
      ([, intent]) =>
        intent.username === username && intent.account?.arn === account?.arn && isSameLocation(intent.place, place),
    )
  }

  async #deleteIntent(path: string): Promise<void> {
    await this.#storage.commit({ puts: [], deletes: [path] })
  }

  /** Attempts due intents, or all if `isUrgent`. Resolves with the number of remaining intents. Rejects only if sealed. */
  async run(where: PeriodicCall, withIam: CloudIam, isUrgent = false): Promise<number> {
    for (const path of this.#backlog.due(this.#paths(), where.nowMs, isUrgent)) {
      const user = await this.#readable(path, where)
      // A rotation in progress handles it.
      if (!user || (this.#mutex.isLocked(mutexKey(user)) && !isUrgent)) continue
      await this.runExclusive(user, () => this.#attempt(path, where, withIam))
    }
    return this.#paths().length
  }

  /** Undefined if the intent is gone or damaged. A damaged one is retried later. */
  async #readable(path: string, { logger, nowMs }: PeriodicCall): Promise<KeyIntent | undefined> {
    try {
      return keyIntents.of(this.#storage.pending(path))
    } catch (damage) {
      const onFirst = (error: string) => logger.error('access key intent unreadable', { error })
      await this.#backlog.attempt(path, nowMs, () => Promise.reject(damage), onFirst)
      return undefined
    }
  }

  async #attempt(path: string, where: PeriodicCall, withIam: CloudIam): Promise<void> {
    const intent = keyIntents.of(this.#storage.pending(path))
    if (!intent) return
    const { account, username } = intent
    const isDone = await this.#backlog.attempt(
      path,
      where.nowMs,
      async (quietMs) => {
        const signal = AbortSignal.any([where.signal, AbortSignal.timeout(ATTEMPT_MS)])
        return withIam(account, signal, (iam) => this.#isUndone(intent, quietMs, iam, signal))
      },
      (error) => where.logger.warn('access key deletion failed, will retry', { username, error }),
    )
    if (isDone) await this.#deleteIntent(path)
  }

  /** Rolls back the intents of a user now. Rejects with an AwsFailure. */
  async rollBack(user: KeyUser, iam: IamClient, signal: AbortSignal): Promise<void> {
    const place = await this.#locationOf(user.account, iam)
    for (const [path, intent] of this.#of(user, place)) {
      if (await this.#isUndone(intent, 0, iam, signal)) await this.#deleteIntent(path)
    }
  }

  errors(): string[] {
    return this.#backlog.errors()
  }

  /** Stored keys: that of the root configuration, and those of static roles. */
  async #storedKeys(signal: AbortSignal): Promise<string[]> {
    const root = rootOf((each) => this.#storage.pending(each))?.accessKey ?? ''
    const roles = await runSliced(staticRoles.all(this.#storage), { signal })
    return [root, ...roles.map(({ accessKey }) => accessKey)]
  }

  async #isUndone(intent: KeyIntent, quietMs: number, iam: IamClient, signal: AbortSignal): Promise<boolean> {
    const { account, keys, kind, place, username } = intent
    if (place) checkLocation(place, await this.#locationOf(account, iam))
    try {
      const stored = await this.#storedKeys(signal)
      if (kind === 'make') {
        const excluding = { ...intent, keys: [...keys, ...stored] }
        return (await deleteLost(iam, excluding, signal)) > 0 || quietMs >= CONSISTENCY_MS
      }
      for (const id of keys) if (!stored.includes(id)) await deleteKey(iam, username, id, signal)
      return true
    } catch (error) {
      // The user does not exist, so neither do its keys.
      if (isCode(error, 'NoSuchEntity')) return true
      throw error
    }
  }
}

/** Deletes keys that were created after the intent. Resolves with their number. */
async function deleteLost(
  iam: IamClient,
  { createdAtMs, keys, username }: Pick<KeyIntent, 'createdAtMs' | 'keys' | 'username'>,
  signal: AbortSignal,
): Promise<number> {
  const all = await keysOf(iam, username, signal)
  const lost = all.filter((key) => !keys.includes(key.id) && key.createdAtMs >= createdAtMs - CLOCK_SKEW_MS)
  for (const { id } of lost) await deleteKey(iam, username, id, signal)
  return lost.length
}
