/** The dry run of a role: what it finds, and that nothing is made, changed or removed by it. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { documentFault } from '../../../src/engines/cloud/aws/policy-document.ts'
import { throttled } from '../../helpers/aws/endpoint.ts'
import { CloudWorld, POLICY, storeInvalidRole } from '../../helpers/cloud-world.ts'

interface Checked {
  readonly result: string
  readonly missing_actions: readonly string[]
  readonly findings: readonly string[]
}

async function check(own: CloudWorld, name: string): Promise<Checked> {
  return (await own.good('GET', `cloud/roles/${name}/check`)).body.data as unknown as Checked
}

/** All that the endpoint knows of users. */
function stateOf({ aws }: CloudWorld): string {
  const users = [...aws.account.users.values()].map(({ attached, groups, inline, keys, name, tags }) => ({
    name,
    all: [...attached, ...groups, ...inline, ...keys, ...tags],
  }))
  return JSON.stringify(users)
}

const failed = ({ findings }: Checked) => findings.filter((line) => !line.startsWith('ok: '))

async function userWorld(t: TestContext) {
  const own = await CloudWorld.open(t)
  const { account } = own.aws
  account.addGroup('ops')
  const managed = account.addPolicy('read')
  await own.userRole('app', { policy_arns: [managed], iam_groups: 'ops', permissions_boundary_arn: managed })
  own.aws.journal.length = 0
  return { own, managed }
}

test('dry run of a user role without faults', async (t) => {
  const { own } = await userWorld(t)
  const before = stateOf(own)
  const found = await check(own, 'app')
  assert.deepEqual([found.result, found.missing_actions, failed(found)], ['ok', [], []])
  assert.match(found.findings[0] ?? '', /^ok: root credentials: arn:aws:iam::123456789012:user\/root-user$/)
  for (const action of ['CreateUser', 'TagUser', 'PutUserPolicy', 'AttachUserPolicy', 'AddUserToGroup', 'DeleteUser']) {
    assert.ok(found.findings.includes(`ok: iam:${action}`), action)
  }
  assert.equal(stateOf(own), before)
  assert.deepEqual(
    new Set(own.aws.actions()),
    new Set(['GetCallerIdentity', 'GetPolicy', 'GetGroup', 'SimulatePrincipalPolicy']),
  )
  const form = own.aws.journal.at(-1)?.form
  assert.match(form?.required('ResourceArns.member.1') ?? '', /^arn:aws:iam::123456789012:user\/vault-root-app-/)
  assert.ok(form?.names.some((name) => name.startsWith('ContextEntries.member.2')))
  const leases = await own.ask('LIST', 'sys/leases/lookup/cloud')
  assert.equal(leases.status, 404)
})

test('dry run of a user role with missing permissions, by simulation and without it', async (t) => {
  const { own } = await userWorld(t)
  const { denied } = own.rootUser
  for (const action of ['PutUserPolicy', 'DeleteAccessKey', 'CreateUser']) denied.add(action)
  const simulated = await check(own, 'app')
  assert.equal(simulated.result, 'failed')
  assert.deepEqual(simulated.missing_actions, ['iam:CreateUser', 'iam:DeleteAccessKey', 'iam:PutUserPolicy'])
  assert.match(failed(simulated)[0] ?? '', /^failed: iam:CreateUser: implicitDeny on arn:.*organization/)

  denied.add('SimulatePrincipalPolicy')
  const before = stateOf(own)
  const tried = await check(own, 'app')
  assert.deepEqual(tried.missing_actions, ['iam:DeleteAccessKey', 'iam:PutUserPolicy'])
  assert.match(failed(tried)[0] ?? '', /^unknown: iam:CreateUser: .*allow iam:SimulatePrincipalPolicy$/)
  for (const action of ['DeleteUser', 'TagUser', 'AttachUserPolicy', 'AddUserToGroup', 'CreateAccessKey']) {
    assert.ok(tried.findings.includes(`ok: iam:${action}`), action)
  }
  assert.equal(stateOf(own), before)
  assert.ok(!own.aws.actions().includes('CreateUser'))
  // What each was tried on cannot be anybody.
  const names = own.aws.journal.map(({ form }) => form.optional('UserName')).filter((name) => name !== undefined)
  assert.ok(names.length > 8 && names.every((name) => /^vault-.*-[0-9a-f]{20}$/.test(name) && name.length <= 64))
})

test('dry run of a user role with missing policies and groups', async (t) => {
  const { own, managed } = await userWorld(t)
  own.aws.account.policies.delete(managed)
  own.aws.account.groups.delete('ops')
  const found = failed(await check(own, 'app'))
  assert.deepEqual(
    found.map((line) => line.slice(0, 40)),
    [`failed: policy ${managed}`, `failed: policy ${managed}`, 'failed: group ops: NoSuchEntity: The group'].map(
      (line) => line.slice(0, 40),
    ),
  )
  own.rootUser.denied.add('GetPolicy').add('GetGroup')
  const unseen = await check(own, 'app')
  assert.equal(unseen.result, 'unknown')
  assert.match(failed(unseen).join('\n'), /^unknown: policy .*: cannot be checked: allow iam:GetPolicy$/m)
  assert.deepEqual(unseen.missing_actions, [])
})

test('dry run of an assumed role checks each ARN', async (t) => {
  const own = await CloudWorld.open(t)
  const { account } = own.aws
  const good = account.addRole('good')
  const strict = account.addRole('strict', { principals: ['*'], externalId: 'other' })
  const arns = [good, strict, 'arn:aws:iam::123456789012:role/none']
  await own.good('POST', 'cloud/roles/a', { credential_type: 'assumed_role', role_arns: arns, policy_document: POLICY })
  const found = await check(own, 'a')
  assert.equal(found.result, 'failed')
  assert.ok(found.findings.includes(`ok: sts:AssumeRole ${good}`))
  assert.match(
    failed(found).join('\n'),
    /^failed: sts:AssumeRole .*role\/strict: AccessDenied: .*\nfailed: .*role\/none: /,
  )
  assert.deepEqual(found.missing_actions, ['sts:AssumeRole'])
  assert.ok(!JSON.stringify(found).includes([...account.sessions.values()][0]?.secret ?? 'none'))
  await own.good('POST', 'cloud/roles/long', {
    credential_type: 'assumed_role',
    role_arns: [good],
    default_sts_ttl: '12h',
  })
  assert.match(failed(await check(own, 'long'))[0] ?? '', /MaxSessionDuration/)
  await own.good('POST', 'cloud/roles/g', { credential_type: 'assumed_role', role_arns: [good], iam_groups: 'none' })
  assert.match(failed(await check(own, 'g'))[0] ?? '', /^failed: sts:AssumeRole .*NoSuchEntity/)
})

test('dry run of federation and session tokens', async (t) => {
  const own = await CloudWorld.open(t)
  await own.good('POST', 'cloud/roles/f', { credential_type: 'federation_token', policy_document: POLICY })
  assert.equal((await check(own, 'f')).result, 'ok')
  await own.good('POST', 'cloud/roles/s', { credential_type: 'session_token' })
  assert.equal((await check(own, 's')).result, 'ok')
  await own.good('POST', 'cloud/roles/s', { mfa_serial_number: 'arn:aws:iam::1:mfa/d' })
  const found = await check(own, 's')
  assert.deepEqual(
    [found.result, failed(found)],
    ['unknown', ['unknown: sts:GetSessionToken: requires a code of the MFA device']],
  )
  await own.good('POST', 'cloud/roles/old', { policy: POLICY })
  const both = await check(own, 'old')
  assert.ok(both.findings.includes('ok: iam:CreateUser') && both.findings.includes('ok: sts:GetFederationToken'))
})

test('dry run with refused credentials, throttling, no response, and an invalid role', async (t) => {
  const own = await CloudWorld.open(t)
  await own.userRole()
  own.aws.script('GetCallerIdentity', { error: throttled() })
  const late = await check(own, 'app')
  assert.deepEqual([late.result, late.findings.length], ['unknown', 2])
  assert.match(late.findings[0] ?? '', /^unknown: root credentials: Throttling/)
  own.rootUser.keys.length = 0
  const refused = await check(own, 'app')
  assert.match(failed(refused)[0] ?? '', /^failed: root credentials: InvalidClientTokenId: .*config\/root is wrong/)
  await own.good('POST', 'cloud/config/root', { sts_endpoint: 'http://127.0.0.1:9' })
  assert.match(
    failed(await check(own, 'app'))[0] ?? '',
    /^unknown: root credentials: no response from http:\/\/127\.0\.0\.1:9/,
  )
  assert.equal((await own.ask('GET', 'cloud/roles/none/check')).status, 404)
  await storeInvalidRole(own.world, 'odd')
  assert.deepEqual((await check(own, 'odd')).findings, ['failed: role: its data is invalid: write the role again'])
})

test('detects faults of policy documents', () => {
  const allow = { Effect: 'Allow', Action: 's3:Get*', Resource: '*' }
  const documents: readonly (readonly [unknown, RegExp | undefined])[] = [
    [{ Statement: allow }, undefined],
    [
      { Version: '2012-10-17', Statement: [{ ...allow, Action: ['s3:*', '*'], Resource: 'arn:aws:s3:::b/*' }] },
      undefined,
    ],
    [{ Statement: [{ Effect: 'Deny', NotAction: 'iam:*', NotResource: ['*'], Condition: {}, Sid: 'x' }] }, undefined],
    [5, /not a JSON object/],
    [{}, /no Statement/],
    [{ Statement: [] }, /no Statement/],
    [{ Version: '2020-01-01', Statement: allow }, /Version/],
    [{ Statement: [allow, 7] }, /Statement 2: it is not an object/],
    [{ Statement: { ...allow, Effect: 'allow' } }, /Effect must be Allow or Deny/],
    [{ Statement: { ...allow, NotAction: 'x:y' } }, /needs exactly one of Action and NotAction/],
    [{ Statement: { Effect: 'Allow', Action: 's3:*' } }, /needs exactly one of Resource and NotResource/],
    [{ Statement: { ...allow, Action: 'GetObject' } }, /"GetObject" is neither service:Action/],
    [{ Statement: { ...allow, Resource: 'bucket' } }, /"bucket" is neither an ARN/],
    [{ Statement: { ...allow, Action: [] } }, /Action is empty/],
    [{ Statement: { ...allow, Principal: '*' } }, /"Principal" is not allowed/],
    [{ Statement: { ...allow, Resource: `arn:${'x'.repeat(2048)}` } }, /limit of AWS is 2048/],
  ]
  for (const [document, why] of documents) {
    const fault = documentFault(JSON.stringify(document))
    if (why) assert.match(fault ?? '', why)
    else assert.equal(fault, undefined)
  }
  assert.match(documentFault('{') ?? '', /not a JSON object/)
})

/** A role of a hundred ARNs and ten groups, each with three policies of its own. */
async function largeRole(t: TestContext) {
  const own = await CloudWorld.open(t)
  const { account } = own.aws
  const arns = Array.from({ length: 100 }, (_, at) => account.addRole(`r${at}`))
  const groups = Array.from({ length: 10 }, (_, at) => `g${at}`)
  const inline = `{"Version":"2012-10-17","Statement":[{"Effect":"Deny","Action":"s3:Get*","Resource":"*"}]}`
  for (const name of groups) {
    const group = account.addGroup(name)
    for (let at = 0; at < 3; at++) group.inline.set(`p${at}`, inline)
  }
  await own.good('POST', 'cloud/roles/large', { credential_type: 'assumed_role', role_arns: arns, iam_groups: groups })
  own.aws.journal.length = 0
  return own
}

test('reads group policies once for all ARNs of a role', async (t) => {
  const own = await largeRole(t)
  const found = await check(own, 'large')
  assert.equal(found.findings.length, 101)
  const calls = new Map<string, number>()
  for (const action of own.aws.actions()) calls.set(action, (calls.get(action) ?? 0) + 1)
  assert.deepEqual(
    ['AssumeRole', 'GetGroupPolicy', 'ListGroupPolicies', 'ListAttachedGroupPolicies', 'GetCallerIdentity'].map(
      (action) => calls.get(action),
    ),
    [100, 30, 10, 10, 1],
  )
})

test('runs one dry run per mount, which ends when its caller disconnects', async (t) => {
  const own = await largeRole(t)
  const gone = new AbortController()
  const [asked, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  own.aws.chaos = (action) => {
    if (action !== 'AssumeRole') return undefined
    asked.resolve()
    return { gate: answered.promise }
  }
  const left = own.world.ask('GET', 'cloud/roles/large/check', undefined, { signal: gone.signal })
  await asked.promise
  const second = await own.ask('GET', 'cloud/roles/large/check')
  assert.deepEqual(
    [second.status, second.body.errors],
    [429, ['another role of this mount is being checked, try again later']],
  )
  gone.abort()
  assert.equal((await left.catch(() => ({ status: 503 }))).status, 503)
  own.aws.unscript()
  answered.resolve()
  await own.userRole()
  await check(own, 'app')
  // Those of the first four that were under way.
  assert.ok(own.aws.actions().filter((action) => action === 'AssumeRole').length <= 4)
})

test('a dry run that times out lists what was not checked', async (t) => {
  const own = await largeRole(t)
  const late = new AbortController()
  const real = AbortSignal.timeout.bind(AbortSignal)
  t.mock.method(AbortSignal, 'timeout', (ms: number) => (ms === 60_000 ? late.signal : real(ms)))
  own.aws.chaos = (action) => {
    if (action === 'AssumeRole') late.abort()
    return undefined
  }
  const found = await check(own, 'large')
  assert.deepEqual([found.result, found.findings.length], ['unknown', 101])
  assert.match(found.findings.at(-1) ?? '', /^unknown: sts:AssumeRole .*: not checked: the dry run timed out$/)
  assert.ok(own.aws.actions().filter((action) => action === 'AssumeRole').length <= 4)
})
