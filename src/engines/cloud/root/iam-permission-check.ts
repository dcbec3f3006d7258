/**
 * Which actions of IAM the root credentials lack for a role that gives users. IAM is asked to simulate them; where that is not
 * allowed, each is tried on a user that cannot be there: AWS asks the policies first, so one that is allowed answers that there
 * is no such user. Nothing is made, changed or removed either way.
 */
import { randomBytes } from 'node:crypto'
import type { IAM } from '@aws-sdk/client-iam'
import type { IamClient } from '../aws/aws.ts'
import { AwsFailure, UnreadableAnswer } from '../aws/aws-failure.ts'
import { parseArn } from '../aws/arn.ts'
import { type Finding, failureFinding } from '../mount/finding.ts'
import type { Role } from '../mount/role-record.ts'
import { isCode, isDenied } from '../intents/user-removal.ts'

const NAME_LENGTH_MAX = 64
const PAGES_MAX = 5
/** By which a simulation takes part: SCPs of an organization are not looked at. */
const SIMULATED = 'by simulation; policies of an organization are not part of it'

interface Wanted {
  readonly role: Role
  /** Of the caller. */
  readonly arn: string
  /** A name such as the template gives. */
  readonly username: string
}

type Sending = { readonly abortSignal: AbortSignal }
type Try = (iam: IAM, options: Sending) => Promise<unknown>

export async function actionFindings(iam: IamClient, wanted: Wanted, signal: AbortSignal): Promise<Finding[]> {
  const { account, partition } = partsOf(wanted.arn)
  if (wanted.arn.endsWith(':root'))
    return [{ outcome: 'ok', what: 'actions of IAM', why: 'the account itself may do all' }]
  // Longer than any that a template has made, and random: no user can have it.
  const name = `${wanted.username.slice(0, NAME_LENGTH_MAX - 21)}-${randomBytes(10).toString('hex')}`
  const path = wanted.role.userPath === '' ? '/' : wanted.role.userPath
  const user = `arn:${partition}:iam::${account}:user${path}${name}`
  const tries = triesOf(wanted.role, name)
  try {
    return await simulated(iam, { ...wanted, user, actions: [...tries.keys()] }, signal)
  } catch (error) {
    // An answer, whatever it says: it is not allowed, or this IAM does not have it.
    const hasStatus = error instanceof AwsFailure && error.status > 0 && !error.isThrottle
    const isAnswered = hasStatus || error instanceof UnreadableAnswer
    if (!isAnswered) return [failureFinding('actions of IAM', error)]
  }
  const found: Finding[] = []
  for (const [action, attempt] of tries) found.push(await tried(iam, action, attempt, signal))
  return found
}

/** The caller's account; `aws` where its ARN cannot be read. */
function partsOf(arn: string): { readonly account: string; readonly partition: string } {
  const parsed = parseArn(arn)
  return typeof parsed === 'string' ? { account: '', partition: 'aws' } : parsed
}

/** What a user of this role is made and removed with. Null: what only making a user would show. */
function triesOf(role: Role, UserName: string): ReadonlyMap<string, Try | null> {
  const user = { UserName }
  const Tags = [{ Key: 'outpost:check', Value: 'check' }]
  const tries = new Map<string, Try | null>([
    ['CreateUser', null],
    ['GetUser', (iam, options) => iam.getUser(user, options)],
    ['TagUser', (iam, options) => iam.tagUser({ ...user, Tags }, options)],
    ['DeleteUser', (iam, options) => iam.deleteUser(user, options)],
    ['CreateAccessKey', (iam, options) => iam.createAccessKey(user, options)],
    ['ListAccessKeys', (iam, options) => iam.listAccessKeys(user, options)],
    [
      'DeleteAccessKey',
      (iam, options) => iam.deleteAccessKey({ ...user, AccessKeyId: 'AKIAOUTPOSTCHECK0000' }, options),
    ],
    ['ListUserPolicies', (iam, options) => iam.listUserPolicies(user, options)],
    ['ListAttachedUserPolicies', (iam, options) => iam.listAttachedUserPolicies(user, options)],
    ['ListGroupsForUser', (iam, options) => iam.listGroupsForUser(user, options)],
  ])
  if (role.policyDocument !== '') {
    const policy = { ...user, PolicyName: role.name }
    const whole = { ...policy, PolicyDocument: role.policyDocument }
    tries.set('PutUserPolicy', (iam, options) => iam.putUserPolicy(whole, options))
    tries.set('DeleteUserPolicy', (iam, options) => iam.deleteUserPolicy(policy, options))
  }
  const [PolicyArn] = role.policyArns ?? []
  if (PolicyArn !== undefined) {
    tries.set('AttachUserPolicy', (iam, options) => iam.attachUserPolicy({ ...user, PolicyArn }, options))
    tries.set('DetachUserPolicy', (iam, options) => iam.detachUserPolicy({ ...user, PolicyArn }, options))
  }
  const [GroupName] = role.iamGroups ?? []
  if (GroupName !== undefined) {
    tries.set('AddUserToGroup', (iam, options) => iam.addUserToGroup({ ...user, GroupName }, options))
    tries.set('RemoveUserFromGroup', (iam, options) => iam.removeUserFromGroup({ ...user, GroupName }, options))
  }
  return tries
}

async function simulated(
  iam: IamClient,
  { actions, arn, role, user }: Wanted & { readonly user: string; readonly actions: readonly string[] },
  signal: AbortSignal,
): Promise<Finding[]> {
  const context = [
    {
      ContextKeyName: 'iam:PermissionsBoundary',
      ContextKeyType: 'string' as const,
      values: [role.permissionsBoundaryArn],
    },
    { ContextKeyName: 'iam:PolicyARN', ContextKeyType: 'string' as const, values: (role.policyArns ?? []).slice(0, 1) },
  ]
  const input = {
    PolicySourceArn: await principalOf(iam, arn, signal),
    ActionNames: actions.map((action) => `iam:${action}`),
    ResourceArns: [user],
    ContextEntries: context
      .map(({ values, ...rest }) => ({ ...rest, ContextKeyValues: values.filter(Boolean) }))
      .filter(({ ContextKeyValues }) => ContextKeyValues.length > 0),
  }
  const found: Finding[] = []
  let Marker: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const whole = { ...input, ...(Marker !== undefined && { Marker }) }
    const answer = await iam.call((client, options) => client.simulatePrincipalPolicy(whole, options), { signal })
    for (const { EvalActionName: action = '', EvalDecision: decision } of answer.EvaluationResults ?? []) {
      if (decision === 'allowed') found.push({ outcome: 'ok', what: action })
      else found.push({ outcome: 'failed', what: action, why: `${decision} on ${user}, ${SIMULATED}`, missing: action })
    }
    Marker = answer.IsTruncated === true ? answer.Marker : undefined
    if (Marker === undefined) break
  }
  return found
}

/** Whose policies are simulated: of a session those of its role, whose path only IAM knows. */
async function principalOf(iam: IamClient, arn: string, signal: AbortSignal): Promise<string> {
  const [, RoleName] = /:assumed-role\/([^/]+)\//.exec(arn) ?? []
  if (RoleName === undefined) return arn
  const { account, partition } = partsOf(arn)
  const fallback = `arn:${partition}:iam::${account}:role/${RoleName}`
  return iam
    .call((client, options) => client.getRole({ RoleName }, options), { signal })
    .then(
      ({ Role: role }) => role?.Arn ?? fallback,
      () => fallback,
    )
}

async function tried(iam: IamClient, action: string, attempt: Try | null, signal: AbortSignal): Promise<Finding> {
  const what = `iam:${action}`
  if (!attempt) {
    return {
      outcome: 'unknown',
      what,
      why: 'only a user that is made would show it: allow iam:SimulatePrincipalPolicy',
    }
  }
  try {
    await iam.call((client, options) => attempt(client, options), { signal, isOnce: true })
    return { outcome: 'ok', what }
  } catch (error) {
    // It was allowed, and there is no such user.
    if (isCode(error, 'NoSuchEntity')) return { outcome: 'ok', what }
    const finding = failureFinding(what, error)
    return isDenied(error) ? { ...finding, missing: what } : finding
  }
}
