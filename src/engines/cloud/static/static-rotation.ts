/**
 * Rotation of the access keys of static roles: when the role is created, and after each period. AWS allows two keys per user,
 * so with two the oldest is deleted first. The time of the next rotation is stored with the role, so a restart continues the
 * schedule.
 */
import { randomInt } from 'node:crypto'
import type { Batch, Storage } from '../../../storage/barrier/storage.ts'
import { messageOf } from '../../../platform/errors.ts'
import { Rejection, type PeriodicCall } from '../../framework/engine.ts'
import { runSliced } from '../../../platform/sliced-work.ts'
import type { IamClient } from '../aws/aws.ts'
import { AwsFailure, rejectionOf } from '../aws/aws-failure.ts'
import { CloudMount, type MountContext } from '../mount/cloud-mount.ts'
import { type AccessKey, deleteKey, keysOf } from '../intents/key-intent.ts'
import { accountOf, type StaticRole, staticRoles } from '../intents/user-records.ts'
import { isCode } from '../intents/user-removal.ts'

/** The limit of AWS per user. */
const KEYS_MAX = 2
const FIRST_PAUSE_MS = 10_000
const PAUSE_MAX_MS = 300_000
const ROTATION_MS = 60_000
const CONCURRENT_ROTATIONS = 4

/** The user's ID. Rejects with a Rejection: 400 if the user does not exist, 500 for another ID or an error of AWS. */
export async function userIdOf(iam: IamClient, username: string, id: string, signal: AbortSignal): Promise<string> {
  const { User } = await iam
    .call((client, options) => client.getUser({ UserName: username }, options), { signal })
    .catch((error: unknown) => {
      throw rejectionOf(
        `unable to validate username ${JSON.stringify(username)}`,
        error,
        isCode(error, 'NoSuchEntity') ? 400 : 500,
      )
    })
  const [found, foundId] = [User?.UserName ?? '', User?.UserId ?? '']
  if (found !== username) {
    const text = `AWS GetUser returned a username, but it didn't match: "${username}" was requested, but "${found}" was returned`
    throw new Rejection(500, text)
  }
  if (id !== '' && foundId !== id) {
    const text = `AWS GetUser returned a user, but the ID did not match: "${id}" was requested, but "${foundId}" was returned`
    throw new Rejection(500, text)
  }
  return foundId
}

/**
 * Creates a new key for a role, and stores both in one commit. Rejects with a Rejection without a change. The caller must hold the
 * mutex of the role.
 */
export async function rotateStaticRole(role: StaticRole, context: MountContext): Promise<StaticRole> {
  const { signal } = context
  const cloudMount = CloudMount.of(context)
  const account = accountOf(role)
  const { username } = role
  try {
    return await cloudMount.keys.runExclusive({ username, account }, () =>
      cloudMount.withIam(account, signal, (iam) => newKey(role, context, iam)),
    )
  } catch (error) {
    if (!(error instanceof AwsFailure)) throw error
    throw rejectionOf(`unable to create new access keys for user "${username}"`, error, 500)
  }
}

async function newKey(role: StaticRole, context: MountContext, iam: IamClient): Promise<StaticRole> {
  const { mount, nowMs, signal, storage } = context
  const { username } = role
  const account = accountOf(role)
  const { aws, keys: intents, locationOf } = CloudMount.of(context)
  const place = await locationOf(account, iam)
  const userId = await userIdOf(iam, username, role.userId, signal)
  await intents.rollBack({ username, account }, iam, signal)
  const keys = await keysOf(iam, username, signal).catch((error: unknown) => {
    throw rejectionOf(`unable to list existing access keys for IAM user "${username}"`, error, 500)
  })
  const { accessKey: rootKey } = aws.config
  if (keys.some(({ id }) => id === rootKey)) {
    throw new Rejection(400, `user "${username}" is the user of config/root: use config/rotate-root to rotate its key`)
  }
  while (keys.length >= KEYS_MAX) {
    const oldest = keys.shift()
    await deleteKey(iam, username, oldest?.id ?? '', signal).catch((error: unknown) => {
      throw rejectionOf(`unable to delete oldest access keys for user "${username}"`, error, 500)
    })
  }
  const user = { username, account, keys: keys.map(({ id }) => id), nowMs }
  const store = async (key: AccessKey, intentChanges: Batch) => {
    const previousKey = keys.some(({ id }) => id === role.accessKey) ? role.accessKey : ''
    const next = { ...role, ...key, previousKey, place, userId, expiresAtMs: nowMs + role.periodSeconds * 1000 }
    await storage.commit({
      puts: [staticRoles.put(mount, next), ...intentChanges.puts],
      deletes: intentChanges.deletes,
    })
    return next
  }
  return intents.createKey(iam, user, store, signal)
}

/** The rotation schedule of a mount. */
export class StaticSchedule {
  /** No role is due before; 0: unknown. */
  #nextAtMs = 0
  /** A record was damaged at the last check. */
  #isDamaged = false
  readonly #failures = new Map<string, { count: number; nextAtMs: number }>()

  static of({ storage }: { readonly storage: Storage }): StaticSchedule {
    let schedule = schedules.get(storage)
    if (!schedule) schedules.set(storage, (schedule = new StaticSchedule()))
    return schedule
  }

  /** Called after a change of a role, which may be due earlier. */
  changed(name: string): void {
    this.#nextAtMs = 0
    this.#failures.delete(name)
  }

  async run(call: PeriodicCall): Promise<void> {
    const { nowMs } = call
    if (nowMs < this.#nextAtMs) return
    this.#nextAtMs = Number.POSITIVE_INFINITY
    try {
      await this.#rotateDue(call)
    } catch (error) {
      // Without this the schedule would stop until the next change of a role.
      this.#nextAtMs = Math.min(this.#nextAtMs, nowMs + FIRST_PAUSE_MS)
      throw error
    }
  }

  async #rotateDue(call: PeriodicCall): Promise<void> {
    const { nowMs } = call
    const all = await this.#readable(call)
    const names = new Set(all.map(({ name }) => name))
    for (const name of this.#failures.keys()) if (!names.has(name)) this.#failures.delete(name)
    const due = all.filter((role) => this.#dueAtMs(role) <= nowMs)
    for (let begin = 0; begin < due.length; begin += CONCURRENT_ROTATIONS) {
      await Promise.all(due.slice(begin, begin + CONCURRENT_ROTATIONS).map(({ name }) => this.#rotate(name, call)))
    }
    const remaining = await this.#readable(call)
    this.#nextAtMs = remaining.reduce((nextAtMs, role) => Math.min(nextAtMs, this.#dueAtMs(role)), this.#nextAtMs)
  }

  /** All roles except damaged ones, which are checked again after a pause. */
  async #readable(call: PeriodicCall): Promise<StaticRole[]> {
    const { logger, mount, nowMs, storage } = call
    const isFirst = !this.#isDamaged
    this.#isDamaged = false
    const onDamaged = (error: unknown) => {
      if (isFirst && !this.#isDamaged) {
        logger.error('static role record unreadable, not rotated', { mount: mount.path, error: messageOf(error) })
      }
      this.#isDamaged = true
      this.#nextAtMs = Math.min(this.#nextAtMs, nowMs + PAUSE_MAX_MS)
    }
    return runSliced(staticRoles.all(storage, onDamaged), call)
  }

  #dueAtMs({ expiresAtMs, name }: StaticRole): number {
    return Math.max(expiresAtMs, this.#failures.get(name)?.nextAtMs ?? 0)
  }

  /** A failure is retried later and does not affect other roles. */
  async #rotate(name: string, call: PeriodicCall): Promise<void> {
    const { logger, mount, nowMs, storage } = call
    try {
      await CloudMount.of(call).exclusive(`static/${name}`, async () => {
        const role = staticRoles.read((each) => storage.pending(each), mount, name)
        if (!role || role.expiresAtMs > nowMs) return
        const signal = AbortSignal.any([call.signal, AbortSignal.timeout(ROTATION_MS)])
        await rotateStaticRole(role, { mount, storage, nowMs, signal })
      })
      this.#failures.delete(name)
    } catch (error) {
      if (call.signal.aborted) throw error
      const count = (this.#failures.get(name)?.count ?? 0) + 1
      const pauseMs = Math.min(PAUSE_MAX_MS, FIRST_PAUSE_MS * 2 ** Math.min(count - 1, 10))
      this.#failures.set(name, { count, nextAtMs: nowMs + pauseMs * (0.8 + randomInt(400) / 1000) })
      if (count === 1) {
        logger.warn('failed to create credential, re-queueing', {
          mount: mount.path,
          role: name,
          error: messageOf(error),
        })
      }
    }
  }
}

const schedules = new WeakMap<Storage, StaticSchedule>()
