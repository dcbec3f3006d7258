/**
 * Rotation of the root access key. One commit stores the new key and an intent to delete the old one: a process that is
 * killed at any step leaves a working key, and the next process deletes the other. The old key is used to delete itself,
 * because the new key may be unknown to AWS for some seconds.
 */
import type { Batch, Storage } from '../../../storage/barrier/storage.ts'
import { messageOf } from '../../../platform/errors.ts'
import { path, type Path, Rejection, type PeriodicCall } from '../../framework/engine.ts'
import { rejectionOf } from '../aws/aws-failure.ts'
import { CloudMount, type MountContext } from '../mount/cloud-mount.ts'
import { ENTRY_PATHS } from '../aws/entries.ts'
import { type AccessKey, deleteKey, keyIntentPath, keyIntentPut, keysOf, newKeyIntent } from '../intents/key-intent.ts'
import { rootOf, roots } from '../aws/root-record.ts'
import { randomInt } from 'node:crypto'
import { isInWindow, nextRotationMs } from './rotation-terms.ts'

export const rotateRootPaths: readonly Path[] = [
  path({
    pattern: 'config/rotate-root',
    summary: 'Rotate the configured access key',
    fields: {},
    async update(_input, call) {
      const { accessKey, warning } = await rotateRootKey(call)
      return { data: { access_key: accessKey }, ...(warning !== undefined && { warnings: [warning] }) }
    },
  }),
]

/** Rejects with a Rejection without a change. */
function rotateRootKey(context: MountContext): Promise<{ accessKey: string; warning?: string }> {
  const mount = CloudMount.of(context)
  return mount.exclusive('root', () => rotation(mount, context))
}

async function rotation(mount: CloudMount, context: MountContext) {
  const { signal, storage } = context
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
  return mount.keys.runExclusive({ username, account: null }, () => replaceKey(mount, username, oldKey, context))
}

async function replaceKey(
  mount: CloudMount,
  username: string,
  oldKey: string,
  { nowMs, signal, storage }: MountContext,
) {
  const { iam } = mount.aws
  await checkSingleKey(mount, username, oldKey, signal)
  const place = await mount.aws.locationOf(iam).catch((error: unknown) => {
    throw rejectionOf('error calling GetCallerIdentity', error)
  })
  const deletion = newKeyIntent({ kind: 'delete', username, keys: [oldKey], account: null, place, createdAtMs: nowMs })
  const user = { username, account: null, keys: [oldKey], nowMs }
  const store = async (key: AccessKey, intentChanges: Batch) => {
    const now = rootOf((each) => storage.pending(each))
    if (now?.accessKey !== oldKey)
      throw new Rejection(400, 'config/root was changed during the rotation: nothing was rotated')
    const next = { ...now, ...key, keyMadeAtMs: nowMs, rotationFromMs: nowMs }
    const puts = [roots.put(ENTRY_PATHS.root, next), keyIntentPut(deletion), ...intentChanges.puts]
    await storage.commit({ puts, deletes: intentChanges.deletes })
    return key.accessKey
  }
  const accessKey = await mount.keys.createKey(iam, user, store, signal).catch((error: unknown) => {
    throw rejectionOf('error calling CreateAccessKey', error)
  })
  try {
    await deleteKey(iam, username, oldKey, signal)
    await storage.commit({ puts: [], deletes: [keyIntentPath(deletion)] })
  } catch (error) {
    return { accessKey, warning: `the old access key ${oldKey} will be deleted later: ${messageOf(error)}` }
  }
  return { accessKey }
}

/** Throws a Rejection (400) if the user has keys other than the configured one. Deletes keys of failed rotations first. */
async function checkSingleKey(mount: CloudMount, username: string, own: string, signal: AbortSignal): Promise<void> {
  const { iam } = mount.aws
  const listOthers = async () => (await keysOf(iam, username, signal)).map(({ id }) => id).filter((id) => id !== own)
  let others: string[]
  try {
    others = await listOthers()
    if (others.length === 0) return
    await mount.keys.rollBack({ username, account: null }, iam, signal)
    others = await listOthers()
  } catch (error) {
    throw rejectionOf('error calling ListAccessKeys', error)
  }
  if (others.length === 0) return
  throw new Rejection(
    400,
    `error calling CreateAccessKey: the configured access key must be the only one of user ${username}: delete ${others.join(', ')} first`,
  )
}

const FIRST_PAUSE_MS = 10_000
const PAUSE_MAX_MS = 300_000
const ROTATION_TIMEOUT_MS = 60_000

/** Automated rotation of the root key of a mount by the terms of its configuration, and retries of rotations that failed. */
export class RootSchedule {
  #failures = 0
  #nextAtMs = 0

  static of({ storage }: { readonly storage: Storage }): RootSchedule {
    let schedule = schedules.get(storage)
    if (!schedule) schedules.set(storage, (schedule = new RootSchedule()))
    return schedule
  }

  async run(call: PeriodicCall): Promise<void> {
    const { logger, nowMs, storage } = call
    const config = rootOf((each) => storage.get(each))
    if (!config || config.isRotationDisabled || nowMs < this.#nextAtMs) return
    const window = config.rotationWindowSeconds * 1000
    // A rotation outside of its window waits for the next one.
    const fromMs = window > 0 ? Math.max(config.rotationFromMs, nowMs - window) : config.rotationFromMs
    const dueMs = nextRotationMs(config, fromMs)
    if (dueMs === undefined || dueMs > nowMs || !isInWindow(config, dueMs, nowMs)) return
    try {
      const signal = AbortSignal.any([call.signal, AbortSignal.timeout(ROTATION_TIMEOUT_MS)])
      await rotateRootKey({ mount: call.mount, storage, nowMs, signal })
      this.#failures = 0
      logger.info('root access key rotated', { mount: call.mount.path })
    } catch (error) {
      const pauseMs = Math.min(PAUSE_MAX_MS, FIRST_PAUSE_MS * 2 ** Math.min(this.#failures++, 10))
      this.#nextAtMs = nowMs + pauseMs * (0.8 + randomInt(400) / 1000)
      logger.warn('root access key rotation failed, will retry', {
        mount: call.mount.path,
        error: messageOf(error),
      })
    }
  }
}

const schedules = new WeakMap<Storage, RootSchedule>()
