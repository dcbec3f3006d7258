/** Creates an IAM user with an access key. The caller commits the intent before, and rolls it back if the creation fails. */
import { setTimeout as later } from 'node:timers/promises'
import { AwsFailure, rejectionOf } from '../aws/aws-failure.ts'
import { stsTargets } from '../aws/aws-target.ts'
import { type IamClient, stsClient } from '../aws/aws.ts'
import type { RootConfig } from '../aws/root-record.ts'
import { accessKeyOf } from '../intents/key-intent.ts'
import { type UserIntent, INTENT_TAG, MOUNT_TAG } from '../intents/user-records.ts'
import { type UserResources, isCode, isDenied } from '../intents/user-removal.ts'
import type { CloudRole } from '../mount/role-record.ts'

/** A new user may be unknown to other requests for this time, because AWS is eventually consistent. */
const NEW_USER_MS = 10_000
const KEY_ATTEMPTS = 3

export interface CreatedUser {
  readonly accessKey: string
  readonly secretKey: string
  readonly resources: UserResources
}

export interface UserCreation {
  readonly iam: IamClient
  readonly intent: UserIntent
  readonly role: CloudRole
  /** UUID of the mount. */
  readonly mount: string
  readonly signal: AbortSignal
  /** Called once the user is created. */
  readonly onCreated: () => void
  /** Called before the user is created without tags, because the root credentials may not set any. */
  readonly onUntagged: () => Promise<void>
  /** Called if a user of this name exists already. It is not ours, so it must not be removed. */
  readonly onNameTaken: () => Promise<void>
}

/** Rejects with the error for the caller. */
export async function createIamUser(creation: UserCreation): Promise<CreatedUser> {
  const { intent, role, signal } = creation
  const user = { UserName: intent.username }
  const own = {
    signal,
    passes: (failure: AwsFailure) => isNotVisibleYet(failure, intent.username),
    passingMs: NEW_USER_MS,
  }
  await step('Error creating IAM user', createUser(creation))
  creation.onCreated()
  const attached = role.policyArns ?? []
  for (const PolicyArn of attached) {
    const done = creation.iam.call((iam, options) => iam.attachUserPolicy({ ...user, PolicyArn }, options), own)
    await step('Error attaching user policy', done)
  }
  const inline = role.policyDocument === '' ? [] : [role.name]
  for (const PolicyName of inline) {
    const policy = { ...user, PolicyName, PolicyDocument: role.policyDocument }
    await step(
      'Error putting user policy',
      creation.iam.call((iam, options) => iam.putUserPolicy(policy, options), own),
    )
  }
  const groups = role.iamGroups ?? []
  for (const GroupName of groups) {
    const done = creation.iam.call((iam, options) => iam.addUserToGroup({ ...user, GroupName }, options), own)
    await step('Error adding user to group', done)
  }
  const key = await createKey(creation, own).catch((error: unknown) => refuse('Error creating access keys', error))
  return { ...key, resources: { keys: [key.accessKey], inline, attached, groups } }
}

async function step(what: string, done: Promise<unknown>): Promise<void> {
  await done.catch((error: unknown) => refuse(what, error))
}

function refuse(what: string, error: unknown): never {
  throw rejectionOf(what, error)
}

/** The user is not found, and not a policy or group. */
function isNotVisibleYet(failure: AwsFailure, username: string): boolean {
  return failure.code === 'NoSuchEntity' && failure.message.includes(username)
}

function tagsOf({ intent, mount, role }: UserCreation) {
  const own = intent.isTagged ? { [MOUNT_TAG]: mount, [INTENT_TAG]: intent.id } : {}
  return Object.entries({ ...role.iamTags, ...own }).map(([Key, Value]) => ({ Key, Value }))
}

/**
 * Creates the user, with up to `max_retries` retries. An attempt without a response, or with 5xx, may have taken effect: if a later
 * attempt finds the name taken, the user is ours if it has the tag of the intent. If no earlier attempt can have taken effect, the
 * name is that of another user.
 */
async function createUser(creation: UserCreation): Promise<void> {
  const { iam, intent, role, signal } = creation
  const input = {
    UserName: intent.username,
    Path: role.userPath === '' ? '/' : role.userPath,
    ...(role.permissionsBoundaryArn !== '' && { PermissionsBoundary: role.permissionsBoundaryArn }),
  }
  let mayExist = false
  const onFailure = (failure: AwsFailure) => (mayExist ||= failure.isAmbiguous)
  const send = async (tags: ReturnType<typeof tagsOf>) => {
    const request = { ...input, ...(tags.length > 0 && { Tags: tags }) }
    try {
      await iam.call((client, options) => client.createUser(request, options), { signal, onFailure })
    } catch (error) {
      if (!isCode(error, 'EntityAlreadyExists')) throw error
      if (!mayExist) await creation.onNameTaken()
      if (!mayExist || !(await isOurs(creation))) throw error
    }
  }
  try {
    await send(tagsOf(creation))
  } catch (error) {
    const isTagDenied = isDenied(error) && /TagUser/.test((error as AwsFailure).message)
    if (mayExist || !isTagDenied || Object.keys(role.iamTags ?? {}).length > 0) throw error
    await creation.onUntagged()
    await send([])
  }
}

async function isOurs({ iam, intent, signal }: UserCreation): Promise<boolean> {
  const request = { UserName: intent.username }
  const { User } = await iam.call((client, options) => client.getUser(request, options), { signal })
  return User?.Tags?.some(({ Key, Value }) => Key === INTENT_TAG && Value === intent.id) ?? false
}

/** Before a retry, a key whose response was lost is deleted. */
async function createKey(
  { iam, intent, signal }: UserCreation,
  own: Parameters<IamClient['call']>[1],
): Promise<{ accessKey: string; secretKey: string }> {
  const user = { UserName: intent.username }
  for (let attempt = 1; ; attempt++) {
    try {
      const { AccessKey } = await iam.call((client, options) => client.createAccessKey(user, options), {
        ...own,
        isOnce: true,
      })
      return accessKeyOf(AccessKey)
    } catch (error) {
      const isLost = error instanceof AwsFailure && error.isAmbiguous && !signal.aborted
      if (!isLost || attempt === KEY_ATTEMPTS) throw error
    }
    const { AccessKeyMetadata = [] } = await iam.call((client, options) => client.listAccessKeys(user, options), own)
    for (const { AccessKeyId } of AccessKeyMetadata) {
      await iam.call((client, options) => client.deleteAccessKey({ ...user, AccessKeyId }, options), own)
    }
  }
}

const ACCEPT_TIMEOUT_MS = 20_000
const POLL_INTERVAL_MS = 250
/** Consecutive successes, because the key propagates to the servers of AWS at different times. */
const SUCCESSES_MIN = 2

/** Waits until AWS accepts a new access key. Resolves with the last error at the timeout, with undefined on success. */
export async function waitUntilAccepted(
  config: RootConfig,
  key: { readonly accessKey: string; readonly secretKey: string },
  signal: AbortSignal,
): Promise<string | undefined> {
  const [target] = stsTargets(config)
  if (!target) return undefined
  const credentials = { accessKeyId: key.accessKey, secretAccessKey: key.secretKey }
  const client = stsClient({ target, credentials, attempts: 1 })
  const endAtMs = performance.now() + ACCEPT_TIMEOUT_MS
  let successes = 0
  try {
    for (;;) {
      try {
        await client.call((sts, options) => sts.getCallerIdentity({}, options), { signal })
        if (++successes === SUCCESSES_MIN) return undefined
      } catch (error) {
        if (!(error instanceof AwsFailure)) throw error
        successes = 0
        if (performance.now() >= endAtMs || signal.aborted) return error.code === '' ? error.text : error.code
        await later(POLL_INTERVAL_MS)
      }
    }
  } finally {
    client.close()
  }
}
