/**
 * Rotation of the root access key. The new key is stored, and the old one noted for deletion, in one commit: a process that is
 * killed at any step has a key that works, and the next one deletes the other. The old key deletes itself, as the new
 * one is not known to AWS for some seconds.
 */
import { randomInt } from 'node:crypto'
import type { Batch, Storage } from '../../../storage/barrier/storage.ts'
import { messageOf } from '../../../platform/errors.ts'
import { type MountFacts, path, type Path, Rejection, type WorkCall } from '../../framework/engine.ts'
import { rejectionOf } from '../aws/aws-failure.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { at } from '../aws/entries.ts'
import { type AccessKey, deleteKey, keyIntentPath, keyIntentPut, keysOf, newKeyIntent } from '../intents/key-intent.ts'
import { rootOf, roots } from '../aws/root-record.ts'
import { isInWindow, nextRotationMs } from './rotation-schedule.ts'

const FIRST_PAUSE_MS = 10_000
const PAUSE_MAX_MS = 300_000
/** What a scheduled rotation may take. */
const ROTATION_MS = 60_000

interface Where {
  readonly mount: MountFacts
  readonly storage: Storage
  readonly nowMs: number
  readonly signal: AbortSignal
}

export const rotateRootPaths: readonly Path[] = [
  path({
    pattern: 'config/rotate-root',
    summary: 'A new access key in the place of the configured one',
    fields: {},
    async update(_input, call) {
      const { accessKey, warning } = await rotatedRoot(call)
      return { data: { access_key: accessKey }, ...(warning !== undefined && { warnings: [warning] }) }
    },
  }),
]

/** Rejects with a Rejection; nothing has changed then. */
export function rotatedRoot(where: Where): Promise<{ accessKey: string; warning?: string }> {
  const mount = CloudMount.of(where)
  return mount.exclusive('root', () => rotation(mount, where))
}

async function rotation(mount: CloudMount, where: Where) {
  const { signal, storage } = where
  const config = rootOf((each) => storage.pending(each))
  if (!config) throw new Rejection(400, 'no configuration found for config/root')
  const oldKey = config.accessKey
  if (oldKey === '' || config.secretKey === '') {
    throw new Rejection(400, 'Cannot call config/rotate-root when either access_key or secret_key is empty')
  }
  const { iam } = mount.aws
  const { User } = await iam
    .call((client, options) => client.getUser({}, options), { signal })
    .catch((error: unknown) => {
      throw rejectionOf('error calling GetUser', error)
    })
  const username = User?.UserName
  if (username === undefined) throw new Rejection(400, 'nil UserName returned from GetUser')
  return mount.keys.alone({ username, account: null }, () => replaced(mount, username, oldKey, where))
}

async function replaced(mount: CloudMount, username: string, oldKey: string, { nowMs, signal, storage }: Where) {
  const { iam } = mount.aws
  await onlyKey(mount, username, oldKey, signal)
  const place = await mount.aws.placeOf(iam).catch((error: unknown) => {
    throw rejectionOf('error calling GetCallerIdentity', error)
  })
  const deletion = newKeyIntent({ kind: 'delete', username, keys: [oldKey], account: null, place, createdAtMs: nowMs })
  const wanted = { username, account: null, keys: [oldKey], nowMs }
  const store = async (key: AccessKey, notes: Batch) => {
    const now = rootOf((each) => storage.pending(each))
    if (now?.accessKey !== oldKey) throw new Rejection(400, 'config/root was changed meanwhile: nothing was rotated')
    const next = { ...now, ...key, keyMadeAtMs: nowMs, rotationFromMs: nowMs }
    const puts = [roots.put(at.root, next), keyIntentPut(deletion), ...notes.puts]
    await storage.commit({ puts, deletes: notes.deletes })
    return key.accessKey
  }
  const accessKey = await mount.keys.make(iam, wanted, store, signal).catch((error: unknown) => {
    throw rejectionOf('error calling CreateAccessKey', error)
  })
  try {
    await deleteKey(iam, username, oldKey, signal)
    await storage.commit({ puts: [], deletes: [keyIntentPath(deletion)] })
  } catch (error) {
    return { accessKey, warning: `the old access key ${oldKey} is deleted later: ${messageOf(error)}` }
  }
  return { accessKey }
}

/** Throws a Rejection (400) where the user has other keys than the configured one; those that this mount lost are deleted. */
async function onlyKey(mount: CloudMount, username: string, own: string, signal: AbortSignal): Promise<void> {
  const { iam } = mount.aws
  const othersNow = async () => (await keysOf(iam, username, signal)).map(({ id }) => id).filter((id) => id !== own)
  let others: string[]
  try {
    others = await othersNow()
    if (others.length === 0) return
    await mount.keys.settle({ username, account: null }, iam, signal)
    others = await othersNow()
  } catch (error) {
    throw rejectionOf('error calling ListAccessKeys', error)
  }
  if (others.length === 0) return
  throw new Rejection(
    400,
    `error calling CreateAccessKey: the configured access key must be the only one of user ${username}: delete ${others.join(', ')} first`,
  )
}

/** Rotations that are due by themselves, of one mount. */
export class RootSchedule {
  #failures = 0
  #nextAtMs = 0

  static of({ storage }: { readonly storage: Storage }): RootSchedule {
    let schedule = schedules.get(storage)
    if (!schedule) schedules.set(storage, (schedule = new RootSchedule()))
    return schedule
  }

  async run(call: WorkCall): Promise<void> {
    const { logger, nowMs, storage } = call
    const config = rootOf((each) => storage.get(each))
    if (!config || config.isRotationDisabled || nowMs < this.#nextAtMs) return
    const window = config.rotationWindowSeconds * 1000
    // A rotation whose window is over waits for its next time.
    const fromMs = window > 0 ? Math.max(config.rotationFromMs, nowMs - window) : config.rotationFromMs
    const dueMs = nextRotationMs(config, fromMs)
    if (dueMs === undefined || dueMs > nowMs || !isInWindow(config, dueMs, nowMs)) return
    try {
      const signal = AbortSignal.any([call.signal, AbortSignal.timeout(ROTATION_MS)])
      await rotatedRoot({ mount: call.mount, storage, nowMs, signal })
      this.#failures = 0
      logger.info('the root access key was rotated', { mount: call.mount.path })
    } catch (error) {
      const pauseMs = Math.min(PAUSE_MAX_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures++, 10))
      this.#nextAtMs = nowMs + pauseMs * (0.8 + randomInt(400) / 1000)
      logger.warn('the root access key could not be rotated; it is tried again', {
        mount: call.mount.path,
        error: messageOf(error),
      })
    }
  }
}

const schedules = new WeakMap<Storage, RootSchedule>()
