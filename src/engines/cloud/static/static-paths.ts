/** `static-roles/…` and `static-creds/…`: existing IAM users whose access key the mount rotates. */
import { type EngineCall, path, type Path, Rejection, type Reply } from '../../framework/engine.ts'
import { duration, inPath, type EngineInput, text } from '../../framework/fields.ts'
import { runSliced } from '../../../platform/sliced-work.ts'
import { arnFault, checkLocation } from '../aws/account.ts'
import { rejectionOf } from '../aws/aws-failure.ts'
import { CloudMount } from '../mount/cloud-mount.ts'
import { deleteKey } from '../intents/key-intent.ts'
import { checkName } from '../aws/entries.ts'
import { accountOf, staticRoleResponse, type StaticRole, staticRoles } from '../intents/user-records.ts'
import { rotateStaticRole, StaticSchedule, userIdOf } from './static-rotation.ts'

const PERIOD_MIN_SECONDS = 60

const NAME = { name: inPath('Name of the static role') }
const FIELDS = {
  ...NAME,
  username: text('IAM user'),
  rotation_period: duration('Rotation period of the access key; at least a minute'),
  assume_role_arn: text('ARN of the role to assume for a user of another account'),
  assume_role_session_name: text('Session name for assuming the role'),
  external_id: text('External ID for assuming the role'),
}

type StaticInput = EngineInput<typeof FIELDS>

export const staticPaths: readonly Path[] = [
  path({
    pattern: 'static-roles',
    summary: 'List the static roles',
    fields: {},
    list: async (_input, call) => {
      const all = await runSliced(staticRoles.all(call.storage), call)
      return { data: { keys: all.map(({ name }) => name) } }
    },
  }),
  path({
    pattern: 'static-roles/:name',
    summary: 'Read, write or delete a static role',
    fields: FIELDS,
    exists: ({ name }, call) => pendingRole(name, call) !== undefined,
    read({ name }, { mount, storage }) {
      checkName(name)
      const role = staticRoles.read((each) => storage.get(each), mount, name)
      return role && { data: staticRoleResponse(role) }
    },
    update: (input, call) => exclusively(input.name, call, () => write(input, call)),
    delete: ({ name }, call) => exclusively(name, call, () => remove(name, call)),
  }),
  path({
    pattern: 'static-creds/:name',
    summary: 'Read the access key of a static role',
    fields: NAME,
    read({ name }, { mount, storage }) {
      checkName(name)
      const role = staticRoles.read((each) => storage.get(each), mount, name)
      if (!role) return undefined
      const expiration = new Date(role.expiresAtMs).toISOString()
      return { data: { access_key: role.accessKey, expiration, secret_key: role.secretKey } }
    },
  }),
]

function pendingRole(name: string, { mount, storage }: EngineCall): StaticRole | undefined {
  return staticRoles.read((each) => storage.pending(each), mount, name)
}

/** Serializes the changes of a static role, which wait for AWS between their reads and writes. */
async function exclusively<T>(name: string, call: EngineCall, work: () => Promise<T>): Promise<T> {
  checkName(name)
  try {
    return await CloudMount.of(call).exclusive(`static/${name}`, work)
  } finally {
    StaticSchedule.of(call).changed(name)
  }
}

function changedRole(input: StaticInput, before: StaticRole | undefined): StaticRole {
  const username = input.username ?? before?.username ?? ''
  const periodSeconds = input.rotation_period ?? before?.periodSeconds
  if (username === '') throw new Rejection(400, 'missing "username" parameter')
  if (periodSeconds === undefined) throw new Rejection(400, 'missing "rotation_period" parameter')
  if (!/^[\w+=,.@-]{1,64}$/.test(username)) throw new Rejection(400, 'username is not a valid name of an IAM user')
  const role: StaticRole = {
    format: 1,
    name: input.name,
    username,
    userId: before?.userId ?? '',
    periodSeconds,
    assumeRoleArn: input.assume_role_arn ?? before?.assumeRoleArn ?? '',
    assumeRoleSessionName: input.assume_role_session_name ?? before?.assumeRoleSessionName ?? '',
    externalId: input.external_id ?? before?.externalId ?? '',
    place: before?.place,
    accessKey: before?.accessKey ?? '',
    secretKey: before?.secretKey ?? '',
    previousKey: before?.previousKey ?? '',
    expiresAtMs: before?.expiresAtMs ?? 0,
  }
  checkAccount(role)
  if (periodSeconds < PERIOD_MIN_SECONDS) {
    throw new Rejection(400, 'role rotation period out of range: must be greater than 60.00 seconds')
  }
  return role
}

function checkAccount({ assumeRoleArn, assumeRoleSessionName, externalId }: StaticRole): void {
  if (assumeRoleArn !== '' && assumeRoleSessionName === '') {
    throw new Rejection(400, 'assume_role_session_name is required when assume_role_arn is set')
  }
  if (assumeRoleArn === '' && assumeRoleSessionName !== '') {
    throw new Rejection(400, 'assume_role_arn is required when assume_role_session_name is set')
  }
  if (assumeRoleArn === '' && externalId !== '') {
    throw new Rejection(400, 'assume_role_arn is required when external_id is set')
  }
  const fault = assumeRoleArn === '' ? undefined : arnFault(assumeRoleArn, 'role')
  if (fault !== undefined) throw new Rejection(400, `invalid assume_role_arn parameter: ${fault}`)
  if (assumeRoleSessionName !== '' && !/^[\w+=,.@-]{2,64}$/.test(assumeRoleSessionName)) {
    throw new Rejection(400, 'assume_role_session_name must have 2 to 64 characters of a-z A-Z 0-9 _ + = , . @ -')
  }
}

/** Two roles with the same user would delete each other's key. Throws a Rejection (400). */
async function checkSingleRole({ assumeRoleArn, name, username }: StaticRole, call: EngineCall): Promise<void> {
  const all = await runSliced(staticRoles.all(call.storage), call)
  const other = all.find(
    (each) => each.name !== name && each.username === username && each.assumeRoleArn === assumeRoleArn,
  )
  if (other) throw new Rejection(400, `user "${username}" already has the static role "${other.name}"`)
}

/** Rotates the key of a new role. For an existing role the rotation period starts again. */
async function write(input: StaticInput, call: EngineCall): Promise<Reply> {
  const { mount, nowMs, signal, storage } = call
  const before = pendingRole(input.name, call)
  const role = changedRole(input, before)
  if (!before) {
    return CloudMount.of(call).exclusive(`static-user/${role.username}`, async () => {
      await checkSingleRole(role, call)
      return { data: staticRoleResponse(await rotateStaticRole(role, { mount, storage, nowMs, signal })) }
    })
  }
  const isUserChanged = input.username !== undefined || role.assumeRoleArn !== before.assumeRoleArn
  if (isUserChanged) {
    const cloudMount = CloudMount.of(call)
    try {
      await cloudMount.withIam(accountOf(role), signal, (iam) => userIdOf(iam, role.username, role.userId, signal))
    } catch (error) {
      throw rejectionOf('', error, 500)
    }
  }
  const next = { ...role, expiresAtMs: nowMs + role.periodSeconds * 1000 }
  await storage.commit({ puts: [staticRoles.put(mount, next)], deletes: [] })
  return { data: staticRoleResponse(next) }
}

/** Deletes the keys in AWS first: if that fails, the role and its keys are still stored. */
async function remove(name: string, call: EngineCall): Promise<undefined> {
  const { mount, signal, storage } = call
  const role = pendingRole(name, call)
  if (!role) return undefined
  try {
    const cloudMount = CloudMount.of(call)
    const account = accountOf(role)
    await cloudMount.withIam(account, signal, async (iam) => {
      // The current key confirms the account. The previous key was issued too, but may be deleted already.
      const existed = await deleteKey(iam, role.username, role.accessKey, signal)
      if (!existed && role.place) checkLocation(role.place, await cloudMount.locationOf(account, iam))
      if (role.previousKey !== '') await deleteKey(iam, role.username, role.previousKey, signal)
    })
  } catch (error) {
    throw rejectionOf(`failed to clean credentials while deleting role "${name}": couldn't delete from IAM`, error, 500)
  }
  await storage.commit({ puts: [], deletes: [staticRoles.path(mount, name)] })
  return undefined
}
