/**
 * `orphans`: users that this mount created and that have no lease. They exist only if leases were removed by force, or if an older
 * database was restored. They are found by the tag of the mount, and removed on request only. The response also lists
 * unfinished intents of other accounts (`elsewhere`), which cannot be completed without credentials for that account.
 */
import type { User } from '@aws-sdk/client-iam'
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { boolean, textList } from '../../framework/fields.ts'
import { AwsFailure, rejectionOf } from '../aws/aws-failure.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { intentOf, intentPaths, MOUNT_TAG, users } from '../intents/user-records.ts'
import { isSameLocation } from '../aws/account.ts'
import { isCode, removeUser } from '../intents/user-removal.ts'

const PAGES_MAX = 100
const CONCURRENT_REMOVALS = 8

interface Orphan {
  readonly username: string
  readonly created_time: string
}

export const orphanPaths: readonly Path[] = [
  path({
    pattern: 'orphans',
    summary: 'List or remove AWS users of this mount without a lease',
    fields: {
      remove: boolean('Remove the users', { fallback: false }),
      usernames: textList('Limit to these users'),
      forget_elsewhere: boolean('Forget unfinished intents of other accounts', {
        fallback: false,
      }),
    },
    async read(_input, call): Promise<Reply> {
      const others = (await otherAccountIntents(call)).map(({ path: _path, ...shown }) => shown)
      return { data: { orphans: await orphans(call), ...(others.length > 0 && { elsewhere: others }) } }
    },
    async update({ forget_elsewhere: isForgetting, remove, usernames }, call): Promise<Reply> {
      if (isForgetting) return { data: await forgetOtherAccountIntents(call) }
      const all = await orphans(call)
      const selected = usernames ? all.filter(({ username }) => usernames.includes(username)) : all
      if (!remove) return { data: { orphans: selected } }
      return { data: await removeOrphans(selected, call) }
    },
  }),
]

async function orphans(call: EngineCall): Promise<Orphan[]> {
  const { mount, storage } = call
  const intended = new Set(
    intentPaths(storage).flatMap((each) => intentOf((entry) => storage.pending(entry), each)?.username ?? []),
  )
  const found: Orphan[] = []
  for (const { CreateDate, UserName: username } of await allUsers(call)) {
    if (username === undefined || intended.has(username)) continue
    const known = users.read((each) => storage.pending(each), mount, username)
    if (known && !known.isForgotten) continue
    if (!(await isOfMount(username, call))) continue
    // It may have been created, with a lease, during the request to AWS.
    const now = users.read((each) => storage.pending(each), mount, username)
    if (!now || now.isForgotten) found.push({ username, created_time: CreateDate?.toISOString() ?? '' })
  }
  return found
}

/** Intents of other accounts than that of the root configuration. */
async function otherAccountIntents(call: EngineCall) {
  const { aws, keys, rollback } = CloudMount.of(call)
  const all = [...rollback.idle(call.storage), ...keys.idle()]
  if (all.every(([, { place }]) => !place)) return []
  const now = await aws.locationOf(aws.iam).catch((error: unknown) => {
    throw rejectionOf('error calling GetCallerIdentity', error)
  })
  return all.flatMap(([at, { place, username }]) => {
    if (!place || isSameLocation(place, now)) return []
    const { account, endpoint } = place
    return [{ path: at, username, account, ...(endpoint !== '' && { endpoint }) }]
  })
}

async function forgetOtherAccountIntents(call: EngineCall): Promise<Record<string, unknown>> {
  const others = await otherAccountIntents(call)
  const deletes = others.map((each) => each.path)
  if (deletes.length > 0) await call.storage.commit({ puts: [], deletes })
  return { forgotten: [...new Set(others.map(({ username }) => username))].sort() }
}

async function allUsers(call: EngineCall): Promise<User[]> {
  const { signal } = call
  const { iam } = CloudMount.of(call).aws
  const found: User[] = []
  let Marker: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const input = { ...(Marker !== undefined && { Marker }) }
    const answer = await iam
      .call((client, options) => client.listUsers(input, options), { signal })
      .catch((error: unknown) => {
        throw rejectionOf('error calling ListUsers', error)
      })
    found.push(...(answer.Users ?? []))
    Marker = answer.IsTruncated === true ? answer.Marker : undefined
    if (Marker === undefined) return found
  }
  throw new Rejection(400, `the account has more than ${found.length} users: too many to search for orphans`)
}

async function isOfMount(username: string, call: EngineCall): Promise<boolean> {
  const { mount, signal } = call
  const { iam } = CloudMount.of(call).aws
  try {
    const input = { UserName: username }
    const { Tags } = await iam.call((client, options) => client.listUserTags(input, options), { signal })
    return Tags?.some(({ Key, Value }) => Key === MOUNT_TAG && Value === mount.uuid) ?? false
  } catch (error) {
    if (isCode(error, 'NoSuchEntity')) return false
    throw rejectionOf('error calling ListUserTags', error)
  }
}

/** A failure does not prevent the removal of the others. */
async function removeOrphans(selected: readonly Orphan[], call: EngineCall): Promise<Record<string, unknown>> {
  const { mount, signal, storage } = call
  const { iam } = CloudMount.of(call).aws
  const gone: string[] = []
  const failed: Record<string, string> = {}
  const remove = async (username: string) => {
    try {
      await removeUser(iam, username, { signal, checkLocation: async () => undefined })
      gone.push(username)
    } catch (error) {
      if (!(error instanceof AwsFailure)) throw error
      failed[username] = error.text
    }
  }
  for (let begin = 0; begin < selected.length; begin += CONCURRENT_REMOVALS) {
    await Promise.all(selected.slice(begin, begin + CONCURRENT_REMOVALS).map(({ username }) => remove(username)))
  }
  if (gone.length > 0) {
    await storage.commit({ puts: [], deletes: gone.map((username) => users.path(mount, username)) })
  }
  return { removed: gone.sort(), failed }
}
