/**
 * Checks which IAM actions the root credentials may not perform, for a role that issues users. IAM simulates the actions. If the
 * simulation is not permitted, each action is sent for a user that cannot exist: AWS evaluates policies first, so a permitted
 * action fails because the user does not exist. Nothing is created, changed or removed either way.
 */
import { randomBytes } from 'node:crypto'
import type { IAM } from '@aws-sdk/client-iam'
import type { IamClient } from '../aws/aws.ts'
import { AwsFailure, UnreadableResponse } from '../aws/aws-failure.ts'
import { parseArn } from '../aws/account.ts'
import { type Finding, failureFinding } from './dry-run.ts'
import type { CloudRole } from '../mount/role-record.ts'
import { isCode, isDenied } from '../intents/user-removal.ts'

const NAME_LENGTH_MAX = 64
const PAGES_MAX = 5
/** A simulation ignores service control policies. */
const SIMULATED = 'by simulation, which ignores policies of the organization'

interface PermissionCheck {
  readonly role: CloudRole
  /** ARN of the root credentials. */
  readonly arn: string
  /** A name of the username template. */
  readonly username: string
}

type SendOptions = { readonly abortSignal: AbortSignal }
type IamRequest = (iam: IAM, options: SendOptions) => Promise<unknown>

export async function permissionFindings(
  iam: IamClient,
  check: PermissionCheck,
  signal: AbortSignal,
): Promise<Finding[]> {
  const { account, partition } = partsOf(check.arn)
  if (check.arn.endsWith(':root'))
    return [{ outcome: 'ok', what: 'actions of IAM', why: 'the root user of the account has all permissions' }]
  // Random, so that no user has it.
  const name = `${check.username.slice(0, NAME_LENGTH_MAX - 21)}-${randomBytes(10).toString('hex')}`
  const path = check.role.userPath === '' ? '/' : check.role.userPath
  const user = `arn:${partition}:iam::${account}:user${path}${name}`
  const requests = requestsOf(check.role, name)
  try {
    return await simulated(iam, { ...check, user, actions: [...requests.keys()] }, signal)
  } catch (error) {
    // Not permitted, or not supported by this IAM.
    const hasStatus = error instanceof AwsFailure && error.status > 0 && !error.isThrottle
    const isAnswered = hasStatus || error instanceof UnreadableResponse
    if (!isAnswered) return [failureFinding('actions of IAM', error)]
  }
  const findings: Finding[] = []
  for (const [action, request] of requests) findings.push(await requestFinding(iam, action, request, signal))
  return findings
}

/** Account and partition of an ARN; partition `aws` if it is invalid. */
function partsOf(arn: string): { readonly account: string; readonly partition: string } {
  const parsed = parseArn(arn)
  return typeof parsed === 'string' ? { account: '', partition: 'aws' } : parsed
}

/** The actions that create and remove a user of this role. Null: only the creation of a user can check it. */
function requestsOf(role: CloudRole, UserName: string): ReadonlyMap<string, IamRequest | null> {
  const user = { UserName }
  const Tags = [{ Key: 'outpost:check', Value: 'check' }]
  const requests = new Map<string, IamRequest | null>([
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
    requests.set('PutUserPolicy', (iam, options) => iam.putUserPolicy(whole, options))
    requests.set('DeleteUserPolicy', (iam, options) => iam.deleteUserPolicy(policy, options))
  }
  const [PolicyArn] = role.policyArns ?? []
  if (PolicyArn !== undefined) {
    requests.set('AttachUserPolicy', (iam, options) => iam.attachUserPolicy({ ...user, PolicyArn }, options))
    requests.set('DetachUserPolicy', (iam, options) => iam.detachUserPolicy({ ...user, PolicyArn }, options))
  }
  const [GroupName] = role.iamGroups ?? []
  if (GroupName !== undefined) {
    requests.set('AddUserToGroup', (iam, options) => iam.addUserToGroup({ ...user, GroupName }, options))
    requests.set('RemoveUserFromGroup', (iam, options) => iam.removeUserFromGroup({ ...user, GroupName }, options))
  }
  return requests
}

async function simulated(
  iam: IamClient,
  { actions, arn, role, user }: PermissionCheck & { readonly user: string; readonly actions: readonly string[] },
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
  const findings: Finding[] = []
  let Marker: string | undefined
  for (let page = 0; page < PAGES_MAX; page++) {
    const whole = { ...input, ...(Marker !== undefined && { Marker }) }
    const answer = await iam.call((client, options) => client.simulatePrincipalPolicy(whole, options), { signal })
    for (const { EvalActionName: action = '', EvalDecision: decision } of answer.EvaluationResults ?? []) {
      if (decision === 'allowed') findings.push({ outcome: 'ok', what: action })
      else
        findings.push({ outcome: 'failed', what: action, why: `${decision} on ${user}, ${SIMULATED}`, missing: action })
    }
    Marker = answer.IsTruncated === true ? answer.Marker : undefined
    if (Marker === undefined) break
  }
  return findings
}

/** The principal to simulate. For a session it is its role, whose path only IAM knows. */
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

async function requestFinding(
  iam: IamClient,
  action: string,
  request: IamRequest | null,
  signal: AbortSignal,
): Promise<Finding> {
  const what = `iam:${action}`
  if (!request) {
    return {
      outcome: 'unknown',
      what,
      why: 'cannot be checked without creating a user: allow iam:SimulatePrincipalPolicy',
    }
  }
  try {
    await iam.call((client, options) => request(client, options), { signal, isOnce: true })
    return { outcome: 'ok', what }
  } catch (error) {
    // Permitted, and the user does not exist.
    if (isCode(error, 'NoSuchEntity')) return { outcome: 'ok', what }
    const finding = failureFinding(what, error)
    return isDenied(error) ? { ...finding, missing: what } : finding
  }
}
