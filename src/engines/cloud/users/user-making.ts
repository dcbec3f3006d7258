/**
 * Makes a user of IAM with an access key. The caller has noted the intent before, and undoes what is there where this
 * rejects.
 */
import type { IamClient } from '../aws/aws.ts'
import { AwsFailure, rejectionOf } from '../aws/aws-failure.ts'
import { INTENT_TAG, type Intent, MOUNT_TAG } from '../intents/intent-record.ts'
import { madeKey } from '../intents/key-intent.ts'
import type { Role } from '../mount/role-record.ts'
import type { Belongings } from '../intents/user-removal.ts'
import { isCode, isDenied } from '../intents/user-removal.ts'

/** For so long a new user may not be found by the calls that follow. */
const UNSEEN_MS = 10_000
const KEY_ATTEMPTS = 3

export interface MadeUser {
  readonly accessKey: string
  readonly secretKey: string
  readonly belongings: Belongings
}

export interface Making {
  readonly iam: IamClient
  readonly intent: Intent
  readonly role: Role
  /** UUID of the mount. */
  readonly mount: string
  readonly signal: AbortSignal
  /** Called once AWS has said that the user is made. */
  readonly onMade: () => void
  /** Called before the user is made without a tag, because the root credentials may not set any. */
  readonly onUntagged: () => Promise<void>
  /** Called where AWS says that a user of this name was there before: it is not ours, and must not be undone. */
  readonly onTaken: () => Promise<void>
}

/** Rejects with what a caller is told. */
export async function makeUser(making: Making): Promise<MadeUser> {
  const { intent, role, signal } = making
  const user = { UserName: intent.username }
  const own = { signal, passes: (failure: AwsFailure) => isUnseen(failure, intent.username), passingMs: UNSEEN_MS }
  await step('Error creating IAM user', createUser(making))
  making.onMade()
  const attached = role.policyArns ?? []
  for (const PolicyArn of attached) {
    const done = making.iam.call((iam, options) => iam.attachUserPolicy({ ...user, PolicyArn }, options), own)
    await step('Error attaching user policy', done)
  }
  const inline = role.policyDocument === '' ? [] : [role.name]
  for (const PolicyName of inline) {
    const policy = { ...user, PolicyName, PolicyDocument: role.policyDocument }
    await step(
      'Error putting user policy',
      making.iam.call((iam, options) => iam.putUserPolicy(policy, options), own),
    )
  }
  const groups = role.iamGroups ?? []
  for (const GroupName of groups) {
    const done = making.iam.call((iam, options) => iam.addUserToGroup({ ...user, GroupName }, options), own)
    await step('Error adding user to group', done)
  }
  const key = await createKey(making, own).catch((error: unknown) => refuse('Error creating access keys', error))
  return { ...key, belongings: { keys: [key.accessKey], inline, attached, groups } }
}

async function step(what: string, done: Promise<unknown>): Promise<void> {
  await done.catch((error: unknown) => refuse(what, error))
}

function refuse(what: string, error: unknown): never {
  throw rejectionOf(what, error)
}

/** It is this user that is not found, and not a policy or a group. */
function isUnseen(failure: AwsFailure, username: string): boolean {
  return failure.code === 'NoSuchEntity' && failure.message.includes(username)
}

function tagsOf({ intent, mount, role }: Making) {
  const own = intent.isTagged ? { [MOUNT_TAG]: mount, [INTENT_TAG]: intent.id } : {}
  return Object.entries({ ...role.iamTags, ...own }).map(([Key, Value]) => ({ Key, Value }))
}

/**
 * Creates the user, with as many attempts as `max_retries` allows. An attempt without an answer (or with 5xx) may have taken effect: if
 * a later one finds the name taken, the user is ours if it has the tag of the intent. If no earlier attempt can have taken effect, a
 * taken name is that of another user.
 */
async function createUser(making: Making): Promise<void> {
  const { iam, intent, role, signal } = making
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
      if (!mayExist) await making.onTaken()
      if (!mayExist || !(await isOurs(making))) throw error
    }
  }
  try {
    await send(tagsOf(making))
  } catch (error) {
    const isTagDenied = isDenied(error) && /TagUser/.test((error as AwsFailure).message)
    if (mayExist || !isTagDenied || Object.keys(role.iamTags ?? {}).length > 0) throw error
    await making.onUntagged()
    await send([])
  }
}

async function isOurs({ iam, intent, signal }: Making): Promise<boolean> {
  const request = { UserName: intent.username }
  const { User } = await iam.call((client, options) => client.getUser(request, options), { signal })
  return User?.Tags?.some(({ Key, Value }) => Key === INTENT_TAG && Value === intent.id) ?? false
}

/** A key whose answer was lost is of no use: it is deleted before another one is made. */
async function createKey(
  { iam, intent, signal }: Making,
  own: Parameters<IamClient['call']>[1],
): Promise<{ accessKey: string; secretKey: string }> {
  const user = { UserName: intent.username }
  for (let attempt = 1; ; attempt++) {
    try {
      const { AccessKey } = await iam.call((client, options) => client.createAccessKey(user, options), {
        ...own,
        isOnce: true,
      })
      return madeKey(AccessKey)
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
