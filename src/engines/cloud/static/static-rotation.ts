/**
 * Keys of static roles: made when the role is, and anew after each period. AWS has at most two keys of a user, so the oldest goes
 * first where there are two. When each is due is stored with the role: a start goes on where the last process ended.
 */
import { randomInt } from 'node:crypto'
import type { Batch, Storage } from '../../../storage/barrier/storage.ts'
import { messageOf } from '../../../platform/errors.ts'
import { type MountFacts, Rejection, type WorkCall } from '../../framework/engine.ts'
import { runSliced } from '../../../platform/sliced-work.ts'
import type { IamClient } from '../aws/aws.ts'
import { AwsFailure, rejectionOf } from '../aws/aws-failure.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { type AccessKey, deleteKey, keysOf } from '../intents/key-intent.ts'
import { accountOf, type StaticRole, staticRoles } from '../intents/static-record.ts'
import { isCode } from '../intents/user-removal.ts'

/** Keys that AWS has of a user at most. */
const KEYS_MAX = 2
const FIRST_PAUSE_MS = 10_000
const PAUSE_MAX_MS = 300_000
const ROTATION_MS = 60_000
const AT_ONCE = 4

interface Where {
  readonly mount: MountFacts
  readonly storage: Storage
  readonly nowMs: number
  readonly signal: AbortSignal
}

/** The user's ID. Rejects with a Rejection: 400 where there is no such user, 500 where it is another one or AWS refuses. */
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
 * Gives a role a new key, and stores both in one commit. Rejects with a Rejection: the role is then as it was before. The caller
 * has the role's turn.
 */
export async function rotatedStatic(role: StaticRole, where: Where): Promise<StaticRole> {
  const { signal } = where
  const own = CloudMount.of(where)
  const account = accountOf(role)
  const { username } = role
  try {
    return await own.keys.alone({ username, account }, () =>
      own.withIam(account, signal, (iam) => newKey(role, where, iam)),
    )
  } catch (error) {
    if (!(error instanceof AwsFailure)) throw error
    throw rejectionOf(`unable to create new access keys for user "${username}"`, error, 500)
  }
}

async function newKey(role: StaticRole, where: Where, iam: IamClient): Promise<StaticRole> {
  const { mount, nowMs, signal, storage } = where
  const { username } = role
  const account = accountOf(role)
  const { aws, keys: intents, placeOf } = CloudMount.of(where)
  const place = await placeOf(account, iam)
  const userId = await userIdOf(iam, username, role.userId, signal)
  await intents.settle({ username, account }, iam, signal)
  const keys = await keysOf(iam, username, signal).catch((error: unknown) => {
    throw rejectionOf(`unable to list existing access keys for IAM user "${username}"`, error, 500)
  })
  const { accessKey: rootKey } = aws.config
  if (keys.some(({ id }) => id === rootKey)) {
    throw new Rejection(400, `user "${username}" is that of config/root: its key is rotated by config/rotate-root`)
  }
  while (keys.length >= KEYS_MAX) {
    const oldest = keys.shift()
    await deleteKey(iam, username, oldest?.id ?? '', signal).catch((error: unknown) => {
      throw rejectionOf(`unable to delete oldest access keys for user "${username}"`, error, 500)
    })
  }
  const wanted = { username, account, keys: keys.map(({ id }) => id), nowMs }
  const store = async (key: AccessKey, notes: Batch) => {
    const previousKey = keys.some(({ id }) => id === role.accessKey) ? role.accessKey : ''
    const next = { ...role, ...key, previousKey, place, userId, expiresAtMs: nowMs + role.periodSeconds * 1000 }
    await storage.commit({ puts: [staticRoles.put(mount, next), ...notes.puts], deletes: notes.deletes })
    return next
  }
  return intents.make(iam, wanted, store, signal)
}

/** Rotations that are due, of one mount. */
export class StaticSchedule {
  /** No role is due before; 0: look. */
  #nextAtMs = 0
  /** An entry could not be read when they were last looked at. */
  #isDamaged = false
  readonly #failures = new Map<string, { count: number; nextAtMs: number }>()

  static of({ storage }: { readonly storage: Storage }): StaticSchedule {
    let schedule = schedules.get(storage)
    if (!schedule) schedules.set(storage, (schedule = new StaticSchedule()))
    return schedule
  }

  /** A role was written: it may be due earlier. */
  changed(name: string): void {
    this.#nextAtMs = 0
    this.#failures.delete(name)
  }

  async run(call: WorkCall): Promise<void> {
    const { nowMs } = call
    if (nowMs < this.#nextAtMs) return
    this.#nextAtMs = Number.POSITIVE_INFINITY
    try {
      await this.#rotateDue(call)
    } catch (error) {
      // What could not be read is looked at again; without this the schedule would stand still until a role is written.
      this.#nextAtMs = Math.min(this.#nextAtMs, nowMs + FIRST_PAUSE_MS)
      throw error
    }
  }

  async #rotateDue(call: WorkCall): Promise<void> {
    const { nowMs } = call
    const all = await this.#readable(call)
    const names = new Set(all.map(({ name }) => name))
    for (const name of this.#failures.keys()) if (!names.has(name)) this.#failures.delete(name)
    const due = all.filter((role) => this.#dueAtMs(role) <= nowMs)
    for (let begin = 0; begin < due.length; begin += AT_ONCE) {
      await Promise.all(due.slice(begin, begin + AT_ONCE).map(({ name }) => this.#rotate(name, call)))
    }
    const left = await this.#readable(call)
    this.#nextAtMs = left.reduce((least, role) => Math.min(least, this.#dueAtMs(role)), this.#nextAtMs)
  }

  /** Roles whose entries can be read. One that is damaged keeps the others from nothing; it is looked at again after a pause. */
  async #readable(call: WorkCall): Promise<StaticRole[]> {
    const { logger, mount, nowMs, storage } = call
    const isFirst = !this.#isDamaged
    this.#isDamaged = false
    const onDamaged = (error: unknown) => {
      if (isFirst && !this.#isDamaged) {
        logger.error('a static role cannot be read and is not rotated', { mount: mount.path, error: messageOf(error) })
      }
      this.#isDamaged = true
      this.#nextAtMs = Math.min(this.#nextAtMs, nowMs + PAUSE_MAX_MS)
    }
    return runSliced(staticRoles.all(storage, onDamaged), call)
  }

  #dueAtMs({ expiresAtMs, name }: StaticRole): number {
    return Math.max(expiresAtMs, this.#failures.get(name)?.nextAtMs ?? 0)
  }

  /** One that fails is tried again later; the others go on. */
  async #rotate(name: string, call: WorkCall): Promise<void> {
    const { logger, mount, nowMs, storage } = call
    try {
      await CloudMount.of(call).exclusive(`static/${name}`, async () => {
        const role = staticRoles.read((each) => storage.pending(each), mount, name)
        if (!role || role.expiresAtMs > nowMs) return
        const signal = AbortSignal.any([call.signal, AbortSignal.timeout(ROTATION_MS)])
        await rotatedStatic(role, { mount, storage, nowMs, signal })
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
