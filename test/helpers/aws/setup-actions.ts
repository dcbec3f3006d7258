/** IAM actions with which a test creates the resources of its roles through the API. */
import type { Action } from './iam-actions.ts'
import { AwsError, noSuchEntity } from './wire.ts'

const EPOCH = new Date(0)

interface Statement {
  readonly Principal?: { readonly AWS?: string | readonly string[] }
  readonly Action?: string | readonly string[]
  readonly Condition?: { readonly StringEquals?: Readonly<Record<string, string>> }
}

/** The principals of a trust policy. */
function trustOf(text: string) {
  const { Statement: statements = [] } = JSON.parse(text) as { Statement?: readonly Statement[] }
  const principals = statements.flatMap(({ Principal }) => Principal?.AWS ?? [])
  const actions = statements.flatMap(({ Action: action }) => action ?? [])
  const externalId = statements
    .map(({ Condition }) => Condition?.StringEquals?.['sts:ExternalId'])
    .find((each) => each !== undefined)
  return {
    principals,
    allowsTags: actions.includes('sts:TagSession'),
    ...(externalId !== undefined && { externalId }),
  }
}

export const SETUP_ACTIONS: Readonly<Record<string, Action>> = {
  CreateGroup: ({ account, form }) => {
    const GroupName = form.required('GroupName')
    if (account.groups.has(GroupName)) throw new AwsError('EntityAlreadyExists', `${GroupName} already exists.`, 409)
    account.addGroup(GroupName)
    const Arn = account.arn('group', '/', GroupName)
    return { Group: { Path: '/', GroupName, GroupId: 'AGPAEXAMPLE', Arn, CreateDate: EPOCH } }
  },
  PutGroupPolicy: ({ account, form }) => {
    account.group(form.required('GroupName')).inline.set(form.required('PolicyName'), form.required('PolicyDocument'))
    return undefined
  },
  CreatePolicy: ({ account, form }) => {
    const PolicyName = form.required('PolicyName')
    return { Policy: { PolicyName, Arn: account.addPolicy(PolicyName), CreateDate: EPOCH } }
  },
  CreateRole: ({ account, form }) => {
    const RoleName = form.required('RoleName')
    const maxSeconds = form.integer('MaxSessionDuration') ?? 3600
    const Arn = account.addRole(RoleName, { ...trustOf(form.required('AssumeRolePolicyDocument')), maxSeconds })
    return { Role: { Path: '/', RoleName, RoleId: 'AROAEXAMPLE', Arn, CreateDate: EPOCH } }
  },
  CreateLoginProfile: ({ account, form }) => {
    const user = account.user(form.required('UserName'))
    form.required('Password')
    user.hasLogin = true
    return { LoginProfile: { UserName: user.name, CreateDate: EPOCH } }
  },
  GetLoginProfile: ({ account, form }) => {
    const user = account.user(form.required('UserName'))
    if (!user.hasLogin) throw noSuchEntity('Login Profile for User', user.name)
    return { LoginProfile: { UserName: user.name, CreateDate: EPOCH } }
  },
  UploadSSHPublicKey: ({ account, form }) => {
    const user = account.user(form.required('UserName'))
    const SSHPublicKeyId = `APKA${user.sshKeys.size}EXAMPLE0000000`
    user.sshKeys.add(SSHPublicKeyId)
    return {
      SSHPublicKey: { UserName: user.name, SSHPublicKeyId, Fingerprint: 'x', SSHPublicKeyBody: 'x', Status: 'Active' },
    }
  },
}
