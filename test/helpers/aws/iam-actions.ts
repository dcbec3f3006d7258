/** IAM actions of the test endpoint, with the limits of AWS. */
import { type Account, randomId, type Session, type User } from './account.ts'
import { AwsError, type Form, noSuchEntity, validation, type Xml } from './wire.ts'

export interface Caller {
  readonly keyId: string
  readonly user: User | undefined
  readonly session: Session | undefined
}

export interface ActionCall {
  readonly account: Account
  readonly form: Form
  readonly caller: Caller
  readonly pageSize: number
  readonly nowMs: number
  /** Keys created later are not listed yet. */
  readonly keysUntilMs: number
}

export type Action = (call: ActionCall) => Xml | Promise<Xml>

const USER_NAME = /^[\w+=,.@-]{1,64}$/
const PATH = /^\/([\x21-\x7f]{0,510}\/)?$/
const POLICY_ARN = /^arn:[\w-]+:iam::(\d{12}|aws):policy\/.+$/

export function checkPolicy(text: string, most: number): void {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    throw new AwsError('MalformedPolicyDocument', 'Syntax errors in policy.')
  }
  if (typeof value !== 'object' || value === null || !('Statement' in value)) {
    throw new AwsError('MalformedPolicyDocument', 'Syntax errors in policy.')
  }
  if (text.replace(/\s/g, '').length > most) {
    throw new AwsError('LimitExceeded', `Maximum policy size of ${most} bytes exceeded`, 409)
  }
}

function named(call: ActionCall): User {
  const name = call.form.optional('UserName')
  if (name !== undefined) return call.account.user(name)
  if (!call.caller.user) throw validation('Must specify userName when calling with non-User credentials')
  return call.caller.user
}

/** One page of names according to `Marker` and `MaxItems`. */
function page<T>({ form, pageSize }: ActionCall, all: readonly T[], name: string, shown: (each: T) => Xml): Xml {
  const most = Math.min(form.integer('MaxItems') ?? pageSize, pageSize)
  if (most < 1) throw validation("Value at 'maxItems' must be at least 1")
  const begin = Number(form.optional('Marker') ?? 0)
  const end = begin + most
  const rest = end < all.length ? { IsTruncated: true, Marker: String(end) } : { IsTruncated: false }
  return { [name]: all.slice(begin, end).map(shown), ...rest }
}

function shownUser(account: Account, user: User, isWhole: boolean): Xml {
  const { boundary, createdAtMs, id, name, path, tags } = user
  const tagged = [...tags].map(([Key, Value]) => ({ Key, Value }))
  return {
    Path: path,
    UserName: name,
    UserId: id,
    Arn: account.arn('user', path, name),
    CreateDate: new Date(createdAtMs),
    ...(isWhole && tagged.length > 0 && { Tags: tagged }),
    ...(isWhole &&
      boundary !== undefined && {
        PermissionsBoundary: { PermissionsBoundaryType: 'Policy', PermissionsBoundaryArn: boundary },
      }),
  }
}

function createUser({ account, form }: ActionCall): Xml {
  const name = form.required('UserName')
  const path = form.optional('Path') ?? '/'
  const boundary = form.optional('PermissionsBoundary')
  if (!USER_NAME.test(name)) throw validation(`1 validation error detected: Value '${name}' at 'userName' is invalid`)
  if (!PATH.test(path)) throw validation(`1 validation error detected: Value '${path}' at 'path' is invalid`)
  const tags = form.tags()
  for (const other of account.users.keys()) {
    if (other.toLowerCase() === name.toLowerCase()) {
      throw new AwsError('EntityAlreadyExists', `User with name ${name} already exists.`, 409)
    }
  }
  if (boundary !== undefined && !(POLICY_ARN.test(boundary) && account.policies.has(boundary))) {
    throw new AwsError('NoSuchEntity', `Scope ARN: ${boundary} does not exist or is not attachable.`, 404)
  }
  const user = account.addUser(name, { path, boundary })
  for (const [key, value] of tags) user.tags.set(key, value)
  return { User: shownUser(account, user, true) }
}

const CONFLICTS: readonly (readonly [(user: User) => boolean, string])[] = [
  [({ keys }) => keys.length > 0, 'must delete access keys first.'],
  [({ attached }) => attached.size > 0, 'must detach all policies first.'],
  [({ inline }) => inline.size > 0, 'must delete policies first.'],
  [({ groups }) => groups.size > 0, 'must remove users from group first.'],
  [({ mfa }) => mfa.size > 0, 'must deactivate MFA devices first.'],
  [({ hasLogin }) => hasLogin, 'must delete login profile first.'],
  [({ certificates }) => certificates.size > 0, 'must delete signing certificates first.'],
  [({ sshKeys }) => sshKeys.size > 0, 'must delete SSH public keys first.'],
  [({ serviceCredentials }) => serviceCredentials.size > 0, 'must delete service specific credentials first.'],
]

function deleteUser({ account, form }: ActionCall): Xml {
  const user = account.user(form.required('UserName'))
  const conflict = CONFLICTS.find(([isThere]) => isThere(user))
  if (conflict) throw new AwsError('DeleteConflict', `Cannot delete entity, ${conflict[1]}`, 409)
  account.users.delete(user.name)
  return undefined
}

function deleteAccessKey(call: ActionCall): Xml {
  const user = named(call)
  const id = call.form.required('AccessKeyId')
  const at = user.keys.findIndex((key) => key.id === id)
  if (at < 0) throw noSuchEntity('Access Key', id)
  user.keys.splice(at, 1)
  return undefined
}

function updateAccessKey(call: ActionCall): Xml {
  const id = call.form.required('AccessKeyId')
  const key = named(call).keys.find((each) => each.id === id)
  if (!key) throw noSuchEntity('Access Key', id)
  const status = call.form.required('Status')
  if (status !== 'Active' && status !== 'Inactive') throw validation('Status is Active or Inactive')
  key.status = status
  return undefined
}

function attachUserPolicy({ account, form }: ActionCall): Xml {
  const arn = form.required('PolicyArn')
  const user = account.user(form.required('UserName'))
  if (!POLICY_ARN.test(arn)) throw new AwsError('InvalidInput', `ARN ${arn} is not valid.`)
  if (!arn.startsWith('arn:aws:iam::aws:') && !account.policies.has(arn)) {
    throw new AwsError('NoSuchEntity', `Policy ${arn} does not exist or is not attachable.`, 404)
  }
  if (user.attached.size >= 10 && !user.attached.has(arn)) {
    throw new AwsError('LimitExceeded', 'Cannot exceed quota for PoliciesPerUser: 10', 409)
  }
  user.attached.add(arn)
  return undefined
}

function putUserPolicy({ account, form }: ActionCall): Xml {
  const user = account.user(form.required('UserName'))
  const [name, document] = [form.required('PolicyName'), form.required('PolicyDocument')]
  if (!/^[\w+=,.@-]{1,128}$/.test(name)) throw validation(`Value '${name}' at 'policyName' is invalid`)
  checkPolicy(document, 2048)
  user.inline.set(name, document)
  return undefined
}

function addUserToGroup({ account, form }: ActionCall): Xml {
  const group = form.required('GroupName')
  account.group(group)
  const { groups } = account.user(form.required('UserName'))
  if (groups.size >= 10) throw new AwsError('LimitExceeded', 'Cannot exceed quota for GroupsPerUser: 10', 409)
  groups.add(group)
  return undefined
}

function simulate(call: ActionCall): Xml {
  const { account, form } = call
  const arn = form.required('PolicySourceArn')
  const user = [...account.users.values()].find(({ name, path }) => account.arn('user', path, name) === arn)
  if (!user && !account.roles.has(arn)) throw new AwsError('NoSuchEntity', `${arn} cannot be found.`, 404)
  return page(call, form.list('ActionNames'), 'EvaluationResults', (action) => ({
    EvalActionName: action,
    EvalResourceName: '*',
    EvalDecision: user?.denied.has(action.replace(/^\w+:/, '')) ? 'implicitDeny' : 'allowed',
  }))
}

/** An action that removes one resource of a user, selected by a parameter. */
function removal(parameter: string, what: string, of: (user: User) => Set<string> | Map<string, string>): Action {
  return ({ account, form }) => {
    const name = form.required(parameter)
    const things = of(account.user(form.required('UserName')))
    if (!things.delete(name)) throw noSuchEntity(what, name)
    return undefined
  }
}

/** An action that lists resources of one kind of a user. */
function listing(name: string, of: (user: User) => Iterable<string>, shown: (name: string, user: User) => Xml): Action {
  return (call) => {
    const user = named(call)
    return page(call, [...of(user)], name, (each) => shown(each, user))
  }
}

const shownPolicy = (arn: string): Xml => ({ PolicyName: arn.slice(arn.lastIndexOf('/') + 1), PolicyArn: arn })

function shownGroup(name: string): Xml {
  const Arn = `arn:aws:iam::123456789012:group/${name}`
  return { Path: '/', GroupName: name, GroupId: randomId('AGPA', 17), Arn, CreateDate: new Date(0) }
}

const EPOCH = new Date(0)

export const IAM_ACTIONS: Readonly<Record<string, Action>> = {
  CreateUser: createUser,
  DeleteUser: deleteUser,
  GetUser: (call) => ({ User: shownUser(call.account, named(call), true) }),
  ListUsers: (call) => {
    const prefix = call.form.optional('PathPrefix') ?? '/'
    const users = [...call.account.users.values()].filter(({ path }) => path.startsWith(prefix))
    return page(call, users, 'Users', (user) => shownUser(call.account, user, false))
  },
  ListUserTags: listing(
    'Tags',
    ({ tags }) => tags.keys(),
    (Key, { tags }) => ({ Key, Value: tags.get(Key) }),
  ),
  TagUser: ({ account, form }) => {
    const { tags } = account.user(form.required('UserName'))
    for (const [key, value] of form.tags()) tags.set(key, value)
    if (tags.size > 50) throw new AwsError('LimitExceeded', 'Cannot exceed quota for TagsPerUser: 50', 409)
    return undefined
  },
  CreateAccessKey: (call) => {
    const user = named(call)
    const { createdAtMs, id, secret, status } = call.account.addKey(user)
    const CreateDate = new Date(createdAtMs)
    return {
      AccessKey: { UserName: user.name, AccessKeyId: id, Status: status, SecretAccessKey: secret, CreateDate },
    }
  },
  DeleteAccessKey: deleteAccessKey,
  UpdateAccessKey: updateAccessKey,
  ListAccessKeys: (call) => {
    const user = named(call)
    const listed = user.keys.filter(({ createdAtMs }) => createdAtMs <= call.keysUntilMs)
    return page(call, listed, 'AccessKeyMetadata', ({ createdAtMs, id, status }) => ({
      UserName: user.name,
      AccessKeyId: id,
      Status: status,
      CreateDate: new Date(createdAtMs),
    }))
  },
  PutUserPolicy: putUserPolicy,
  DeleteUserPolicy: removal('PolicyName', 'user policy', ({ inline }) => inline),
  ListUserPolicies: listing(
    'PolicyNames',
    ({ inline }) => inline.keys(),
    (name) => name,
  ),
  AttachUserPolicy: attachUserPolicy,
  DetachUserPolicy: removal('PolicyArn', 'policy', ({ attached }) => attached),
  ListAttachedUserPolicies: listing('AttachedPolicies', ({ attached }) => attached, shownPolicy),
  AddUserToGroup: addUserToGroup,
  RemoveUserFromGroup: removal('GroupName', 'group', ({ groups }) => groups),
  ListGroupsForUser: listing('Groups', ({ groups }) => groups, shownGroup),
  ListMFADevices: listing(
    'MFADevices',
    ({ mfa }) => mfa.keys(),
    (SerialNumber, { name }) => ({ UserName: name, SerialNumber, EnableDate: EPOCH }),
  ),
  DeactivateMFADevice: removal('SerialNumber', 'MFA device', ({ mfa }) => mfa),
  DeleteVirtualMFADevice: ({ form }) => {
    form.required('SerialNumber')
    return undefined
  },
  DeleteLoginProfile: ({ account, form }) => {
    const user = account.user(form.required('UserName'))
    if (!user.hasLogin) throw noSuchEntity('Login Profile for User', user.name)
    user.hasLogin = false
    return undefined
  },
  ListSigningCertificates: listing(
    'Certificates',
    ({ certificates }) => certificates,
    (CertificateId, { name }) => ({ UserName: name, CertificateId, CertificateBody: 'x', Status: 'Active' }),
  ),
  DeleteSigningCertificate: removal('CertificateId', 'certificate', ({ certificates }) => certificates),
  ListSSHPublicKeys: listing(
    'SSHPublicKeys',
    ({ sshKeys }) => sshKeys,
    (SSHPublicKeyId, { name }) => ({ UserName: name, SSHPublicKeyId, Status: 'Active', UploadDate: EPOCH }),
  ),
  DeleteSSHPublicKey: removal('SSHPublicKeyId', 'SSH public key', ({ sshKeys }) => sshKeys),
  ListServiceSpecificCredentials: listing(
    'ServiceSpecificCredentials',
    ({ serviceCredentials }) => serviceCredentials,
    (ServiceSpecificCredentialId, { name }) => ({
      UserName: name,
      Status: 'Active',
      ServiceUserName: name,
      CreateDate: EPOCH,
      ServiceSpecificCredentialId,
      ServiceName: 'codecommit.amazonaws.com',
    }),
  ),
  DeleteServiceSpecificCredential: removal(
    'ServiceSpecificCredentialId',
    'service specific credential',
    ({ serviceCredentials }) => serviceCredentials,
  ),
  ListAttachedGroupPolicies: (call) =>
    page(call, [...call.account.group(call.form.required('GroupName')).attached], 'AttachedPolicies', shownPolicy),
  ListGroupPolicies: (call) => {
    const { inline } = call.account.group(call.form.required('GroupName'))
    return page(call, [...inline.keys()], 'PolicyNames', (name) => name)
  },
  GetGroupPolicy: ({ account, form }) => {
    const [GroupName, PolicyName] = [form.required('GroupName'), form.required('PolicyName')]
    const document = account.group(GroupName).inline.get(PolicyName)
    if (document === undefined) throw noSuchEntity('group policy', PolicyName)
    return { GroupName, PolicyName, PolicyDocument: encodeURIComponent(document).replaceAll('%20', '+') }
  },
  GetPolicy: ({ account, form }) => {
    const arn = form.required('PolicyArn')
    if (!arn.startsWith('arn:aws:iam::aws:') && !account.policies.has(arn)) throw noSuchEntity('policy', arn)
    return { Policy: { ...(shownPolicy(arn) as object), Arn: arn } }
  },
  GetGroup: (call) => {
    const name = call.form.required('GroupName')
    const users = [...call.account.users.values()].filter(({ groups }) => groups.has(name))
    call.account.group(name)
    const members = page(call, users, 'Users', (user) => shownUser(call.account, user, false))
    return { ...(members as object), Group: shownGroup(name) }
  },
  GetRole: ({ account, form }) => {
    const name = form.required('RoleName')
    const arn = [...account.roles.keys()].find((each) => each.endsWith(`/${name}`))
    if (arn === undefined) throw noSuchEntity('role', name)
    return { Role: { Path: '/', RoleName: name, RoleId: 'AROAEXAMPLE', Arn: arn, CreateDate: EPOCH } }
  },
  SimulatePrincipalPolicy: simulate,
}
