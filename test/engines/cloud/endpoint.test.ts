/** The test endpoint is judged by the SDK, and by the recorded limits of AWS. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  CreateAccessKeyCommand,
  CreateUserCommand,
  DeleteUserCommand,
  GetGroupPolicyCommand,
  GetUserCommand,
  IAMClient,
  ListUsersCommand,
} from '@aws-sdk/client-iam'
import {
  AssumeRoleCommand,
  GetCallerIdentityCommand,
  GetFederationTokenCommand,
  GetSessionTokenCommand,
  STSClient,
} from '@aws-sdk/client-sts'
import { AwsEndpoint, throttled } from '../../helpers/aws/endpoint.ts'

function clients(
  endpoint: AwsEndpoint,
  credentials: { accessKeyId: string; secretAccessKey: string; sessionToken?: string },
) {
  const options = { endpoint: endpoint.url, region: 'us-east-1', credentials, maxAttempts: 1 }
  return { iam: new IAMClient(options), sts: new STSClient(options) }
}

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => '',
    (error: { Code?: string; name: string }) => error.Code ?? error.name,
  )

test('the test endpoint verifies signatures', async (t) => {
  const endpoint = await AwsEndpoint.open(t)
  const { key } = endpoint.root()
  const good = { accessKeyId: key.id, secretAccessKey: key.secret }
  const { sts } = clients(endpoint, good)
  const { Arn } = await sts.send(new GetCallerIdentityCommand({}))
  assert.equal(Arn, 'arn:aws:iam::123456789012:user/root-user')
  const wrong = clients(endpoint, { ...good, secretAccessKey: 'x'.repeat(40) }).sts
  assert.equal(await codeOf(wrong.send(new GetCallerIdentityCommand({}))), 'SignatureDoesNotMatch')
  const unknown = clients(endpoint, { ...good, accessKeyId: 'AKIAUNKNOWN' }).sts
  assert.equal(await codeOf(unknown.send(new GetCallerIdentityCommand({}))), 'InvalidClientTokenId')
  endpoint.clockAheadMs = 3_600_000
  assert.equal(
    await codeOf(clients(endpoint, good).sts.send(new GetCallerIdentityCommand({}))),
    'SignatureDoesNotMatch',
  )
  endpoint.clockAheadMs = 0
  const session = await clients(endpoint, good).sts.send(new GetSessionTokenCommand({ DurationSeconds: 900 }))
  const { AccessKeyId = '', SecretAccessKey = '', SessionToken = '' } = session.Credentials ?? {}
  const temporary = { accessKeyId: AccessKeyId, secretAccessKey: SecretAccessKey }
  assert.equal(
    await codeOf(clients(endpoint, temporary).sts.send(new GetCallerIdentityCommand({}))),
    'InvalidClientTokenId',
  )
  const whole = clients(endpoint, { ...temporary, sessionToken: SessionToken }).sts
  await whole.send(new GetCallerIdentityCommand({}))
  assert.equal(await codeOf(whole.send(new GetFederationTokenCommand({ Name: 'app' }))), 'AccessDenied')
})

test('the test endpoint behaves like AWS', async (t) => {
  const endpoint = await AwsEndpoint.open(t)
  const { key } = endpoint.root()
  const { iam, sts } = clients(endpoint, { accessKeyId: key.id, secretAccessKey: key.secret })
  const UserName = 'app'
  await iam.send(new CreateUserCommand({ UserName, Tags: [{ Key: 'a', Value: 'b' }], Path: '/team/' }))
  const { User } = await iam.send(new GetUserCommand({ UserName }))
  assert.deepEqual([User?.Path, User?.Tags], ['/team/', [{ Key: 'a', Value: 'b' }]])
  assert.equal(await codeOf(iam.send(new CreateUserCommand({ UserName }))), 'EntityAlreadyExists')
  for (let made = 0; made < 2; made++) await iam.send(new CreateAccessKeyCommand({ UserName }))
  assert.equal(await codeOf(iam.send(new CreateAccessKeyCommand({ UserName }))), 'LimitExceeded')
  assert.equal(await codeOf(iam.send(new DeleteUserCommand({ UserName }))), 'DeleteConflict')
  assert.equal(await codeOf(iam.send(new DeleteUserCommand({ UserName: 'none' }))), 'NoSuchEntity')
  endpoint.pageSize = 1
  const first = await iam.send(new ListUsersCommand({}))
  assert.deepEqual([first.Users?.length, first.IsTruncated], [1, true])
  const { Marker } = first
  assert.equal((await iam.send(new ListUsersCommand({ Marker }))).Users?.[0]?.UserName, UserName)
  endpoint.script('GetUser', { error: throttled() })
  assert.equal(await codeOf(iam.send(new GetUserCommand({ UserName }))), 'Throttling')
  endpoint.script('CreateUser', { isCut: true, when: 'after' })
  assert.notEqual(await codeOf(iam.send(new CreateUserCommand({ UserName: 'cut' }))), '')
  assert.ok(endpoint.account.users.has('cut'))
  endpoint.account.addGroup('ops').inline.set('p', '{"Statement": []}')
  const policy = await iam.send(new GetGroupPolicyCommand({ GroupName: 'ops', PolicyName: 'p' }))
  assert.match(policy.PolicyDocument ?? '', /^%7B%22Statement%22%3A\+/)
  const RoleArn = endpoint.account.addRole('r', { principals: ['arn:aws:iam::1:user/x'] })
  assert.equal(await codeOf(sts.send(new AssumeRoleCommand({ RoleArn, RoleSessionName: 'aa' }))), 'AccessDenied')
})
