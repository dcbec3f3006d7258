/**
 * The engine against an endpoint that is known by its API alone. Without OUTPOST_AWS_ENDPOINT that is the one of this
 * repository; with it any other one (docs/compatibility.md says which was tried, and what it lacks).
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { POLICY } from '../../helpers/cloud-world.ts'
import { lacks, PortableWorld } from '../../helpers/aws/portable-world.ts'
import { eventually } from '../../helpers/eventually.ts'

const SSH_KEY = 'ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQDJQ user@example'

function leaseOf({ body }: { body: Readonly<Record<string, unknown>> }): string {
  return String(body['lease_id'])
}

const codeOf = (promise: Promise<unknown>) =>
  promise.then(
    () => '',
    (error: { Code?: string; name: string }) => error.Code ?? error.name,
  )

test('creates a user by its role with a working key and removes it on revocation', async (t) => {
  const own = await PortableWorld.open(t)
  const { iam, run } = own
  const [group, policy] = [`ops-${run}`, `read-${run}`]
  await iam.createGroup({ GroupName: group })
  const { Policy } = await iam.createPolicy({ PolicyName: policy, PolicyDocument: POLICY })
  const arn = Policy?.Arn ?? ''
  await own.good('POST', 'cloud/roles/app', {
    credential_type: 'iam_user',
    policy_document: POLICY,
    policy_arns: [arn],
    iam_groups: [group],
    iam_tags: { team: 'red' },
    user_path: '/path/',
    permissions_boundary_arn: arn,
  })
  const made = await own.good('GET', 'cloud/creds/app')
  assert.equal(made.body.warnings, null)
  const [UserName = '', ...others] = await own.users()
  assert.deepEqual(others, [])
  assert.match(await own.whoIs(made.body), new RegExp(`^arn:aws:iam::\\d{12}:user/path/${UserName}$`))
  const { User } = await iam.getUser({ UserName })
  assert.equal(User?.Path, '/path/')
  const { Tags = [] } = await iam.listUserTags({ UserName })
  assert.deepEqual(Tags.map(({ Key = '' }) => Key).toSorted(), ['outpost:intent', 'outpost:mount', 'team'])
  const { AttachedPolicies = [] } = await iam.listAttachedUserPolicies({ UserName })
  assert.deepEqual(
    AttachedPolicies.map(({ PolicyArn }) => PolicyArn),
    [arn],
  )
  assert.deepEqual((await iam.listUserPolicies({ UserName })).PolicyNames, ['app'])
  const { Groups = [] } = await iam.listGroupsForUser({ UserName })
  assert.deepEqual(
    Groups.map(({ GroupName }) => GroupName),
    [group],
  )
  assert.deepEqual(await own.keys(UserName), [made.body.data['access_key']])
  await t.test('its boundary', { skip: lacks('boundary') }, () => {
    assert.equal(User?.PermissionsBoundary?.PermissionsBoundaryArn, arn)
  })
  await own.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(made) })
  assert.equal(await codeOf(iam.getUser({ UserName })), 'NoSuchEntity')
  await t.test('its key is refused', { skip: lacks('keys') }, async () => {
    assert.equal(await codeOf(own.whoIs(made.body)), 'InvalidClientTokenId')
  })
})

test('removes a user with a password and an SSH key; a missing one counts as removed', async (t) => {
  const own = await PortableWorld.open(t)
  const { iam } = own
  await own.good('POST', 'cloud/roles/app', { credential_type: 'iam_user', policy_document: POLICY })
  const made = await own.good('GET', 'cloud/creds/app?wait=false')
  const [UserName = ''] = await own.users()
  await iam.createLoginProfile({ UserName, Password: 'Long-Enough-1234' })
  await iam.uploadSSHPublicKey({ UserName, SSHPublicKeyBody: SSH_KEY }).catch((error: unknown) => {
    // Not every emulator supports it, and a missing resource is no obstacle.
    t.diagnostic(`no key for SSH: ${String(error)}`)
  })
  await t.test('which is in the way of a plain removal', { skip: lacks('conflicts') }, async () => {
    assert.equal(await codeOf(iam.deleteUser({ UserName })), 'DeleteConflict')
  })
  await own.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(made) })
  assert.deepEqual(await own.users(), [])

  const second = await own.good('GET', 'cloud/creds/app?wait=false')
  const [Name = ''] = await own.users()
  for (const AccessKeyId of await own.keys(Name)) await iam.deleteAccessKey({ UserName: Name, AccessKeyId })
  await iam.deleteUserPolicy({ UserName: Name, PolicyName: 'app' })
  await iam.deleteUser({ UserName: Name })
  await own.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(second) })
})

test('leaves no user behind after a refused step', async (t) => {
  const own = await PortableWorld.open(t)
  const roles: readonly (readonly [object, RegExp])[] = [
    [{ iam_groups: ['none'] }, /^Error adding user to group: NoSuchEntity: /],
    [{ policy_arns: ['arn:aws:iam::123456789012:policy/none'] }, /^Error attaching user policy: NoSuchEntity: /],
    [{ policy_document: '{"Version": "2012-10-17"}' }, /^Error putting user policy: MalformedPolicyDocument: /],
  ]
  for (const [at, [fields, why]] of roles.entries()) {
    await own.good('POST', `cloud/roles/r${at}`, { credential_type: 'iam_user', ...fields })
    const answer = await own.ask('GET', `cloud/creds/r${at}`)
    assert.equal(answer.status, 400)
    assert.match(answer.body.errors[0] ?? '', why)
  }
  // Repeated, because a removal that did not get its answer in time is retried by a later tick.
  await eventually(async () => {
    await own.world.core.open.periodicWork.tick()
    return (await own.users()).length === 0
  }, 'no user is left')
})

test('creates and revokes many users concurrently, and removes users of expired leases', async (t) => {
  const own = await PortableWorld.open(t)
  await own.good('POST', 'cloud/roles/app', { credential_type: 'iam_user', policy_document: POLICY })
  await Promise.all(Array.from({ length: 10 }, () => own.good('GET', 'cloud/creds/app?wait=false')))
  assert.equal((await own.users()).length, 10)
  await own.good('POST', 'sys/leases/revoke-prefix/cloud/creds/app')
  assert.deepEqual(await own.users(), [])
  await own.good('POST', 'cloud/config/lease', { lease: '60s', lease_max: '60s' })
  await own.good('GET', 'cloud/creds/app?wait=false')
  own.world.nowMs += 61_000
  await own.world.core.leases.expiry.tick()
  assert.deepEqual(await own.users(), [])
})

test('supports legacy roles', async (t) => {
  const own = await PortableWorld.open(t)
  await own.good('POST', 'cloud/roles/old', { policy: POLICY })
  await own.good('GET', 'cloud/creds/old')
  assert.equal((await own.users()).length, 1)
  const token = await own.good('GET', 'cloud/sts/old')
  assert.match(String(token.body.data['session_token']), /.{10}/)
  await own.good('POST', 'cloud/roles/arn', { arn: await own.role('r') })
  assert.match(await own.whoIs((await own.good('POST', 'cloud/sts/arn')).body), /assumed-role\/r-/)
  assert.equal((await own.ask('GET', 'cloud/creds/arn')).status, 400)
  await own.good('POST', 'sys/leases/revoke-prefix/cloud')
  assert.deepEqual(await own.users(), [])
})

test('issues assumed roles with identity, duration and policies', async (t) => {
  const own = await PortableWorld.open(t)
  const arn = await own.role('r', { actions: ['sts:AssumeRole', 'sts:TagSession'] })
  const group = `ops-${own.run}`
  await own.iam.createGroup({ GroupName: group })
  await own.iam.putGroupPolicy({ GroupName: group, PolicyName: 'one', PolicyDocument: POLICY })
  const more = { policy_document: POLICY, iam_groups: [group], session_tags: { team: 'red' } }
  await own.good('POST', 'cloud/roles/a', { credential_type: 'assumed_role', role_arns: [arn], ...more })
  for (const [method, place] of [
    ['GET', 'creds'],
    ['POST', 'sts'],
  ] as const) {
    const { body } = await own.good(method, `cloud/${place}/a`)
    assert.match(String(body.data['arn']), new RegExp(`:assumed-role/r-${own.run}/u-${own.run}-a-`))
    assert.equal(await own.whoIs(body), body.data['arn'])
    assert.ok(Number(body['lease_duration']) <= 3600 && Number(body['lease_duration']) > 3500)
  }
  const named = await own.good('POST', 'cloud/sts/a', { role_session_name: `a b/${'x'.repeat(80)}`, ttl: '15m' })
  assert.match(String(named.body.data['arn']), new RegExp(`/a_b_${'x'.repeat(60)}$`))
  await t.test('default_sts_ttl', async () => {
    await own.good('POST', 'cloud/roles/a', { default_sts_ttl: 900, max_sts_ttl: 900 })
    const { body } = await own.good('GET', 'cloud/creds/a')
    assert.ok(Number(body['lease_duration']) <= 900, String(body['lease_duration']))
  })
  await t.test('a role that the trust policy does not allow is refused', { skip: lacks('trust') }, async () => {
    const strict = await own.role('strict', { externalId: 'right' })
    await own.good('POST', 'cloud/roles/s', {
      credential_type: 'assumed_role',
      role_arns: [strict],
      external_id: 'wrong',
    })
    assert.match((await own.ask('GET', 'cloud/creds/s')).text, /Error assuming role: AccessDenied: /)
    await own.good('POST', 'cloud/roles/s', { external_id: 'right' })
    await own.good('GET', 'cloud/creds/s')
    const long = await own.ask('POST', 'cloud/sts/s', { ttl: '2h' })
    assert.match(long.text, /MaxSessionDuration/)
  })
})

test('dry run of federation and session tokens', async (t) => {
  const own = await PortableWorld.open(t)
  await own.good('POST', 'cloud/roles/f', { credential_type: 'federation_token', policy_document: POLICY })
  const token = await own.good('GET', 'cloud/creds/f?ttl=1h')
  assert.match(String(token.body.data['session_token']), /.{10}/)
  assert.ok(Number(token.body['lease_duration']) <= 3600)
  await own.good('POST', 'cloud/roles/s', { credential_type: 'session_token' })
  const session = await own.good('POST', 'cloud/sts/s', { ttl: '20m' })
  assert.match(String(session.body.data['session_token']), /.{10}/)
  await t.test('refuses a policy that is too large for a session', { skip: lacks('session-policies') }, async () => {
    const group = `large-${own.run}`
    await own.iam.createGroup({ GroupName: group })
    const Resource = [`arn:aws:s3:::${'x'.repeat(2000)}`]
    const PolicyDocument = JSON.stringify({
      Version: '2012-10-17',
      Statement: [{ Effect: 'Allow', Action: 's3:*', Resource }],
    })
    await own.iam.putGroupPolicy({ GroupName: group, PolicyName: 'one', PolicyDocument })
    await own.good('POST', 'cloud/roles/f', { iam_groups: [group] })
    assert.match((await own.ask('GET', 'cloud/creds/f')).text, /Error generating STS keys: /)
  })
  await t.test('with a second factor', { skip: lacks('mfa') }, async () => {
    await own.good('POST', 'cloud/roles/s', { mfa_serial_number: 'arn:aws:iam::123456789012:mfa/d' })
    const answer = await own.ask('POST', 'cloud/sts/s', { mfa_code: '123456' })
    assert.match(answer.text, /Error generating STS keys: AccessDenied: MultiFactorAuthentication failed/)
  })
})

test('rotate-root keeps one key, and names a second key without deleting it', async (t) => {
  const own = await PortableWorld.open(t)
  const first = await own.good('POST', 'cloud/config/rotate-root')
  assert.deepEqual(first.body.warnings, null)
  assert.notEqual(first.body.data['access_key'], own.rootKey)
  assert.deepEqual(await own.keys(own.rootName), [first.body.data['access_key']])
  await own.good('POST', 'cloud/roles/s', { credential_type: 'session_token' })
  await own.good('GET', 'cloud/creds/s')
  const { AccessKey } = await own.iam.createAccessKey({ UserName: own.rootName })
  const second = await own.ask('POST', 'cloud/config/rotate-root')
  assert.equal(second.status, 400)
  assert.ok(second.text.includes(AccessKey?.AccessKeyId ?? '-'))
  assert.equal((await own.keys(own.rootName)).length, 2)
})

test('creates, rotates and removes a static role', async (t) => {
  const own = await PortableWorld.open(t)
  const username = `app-${own.run}`
  const write = (body: object) => own.ask('POST', 'cloud/static-roles/app', body)
  assert.match((await write({ username, rotation_period: 60 })).text, /unable to validate username .*NoSuchEntity/)
  const { User } = await own.iam.createUser({ UserName: username })
  const made = await write({ username, rotation_period: 60 })
  assert.deepEqual([made.status, made.body.data['id']], [200, User?.UserId])
  const key = async () => String((await own.good('GET', 'cloud/static-creds/app')).body.data['access_key'])
  const keys = [await key()]
  assert.deepEqual(await own.keys(username), keys)
  for (let round = 0; round < 2; round++) {
    own.world.nowMs += 61_000
    await own.world.core.open.periodicWork.tick()
    keys.push(await key())
  }
  assert.equal(new Set(keys).size, 3)
  // AWS reports times in whole seconds, so the order of two keys of one second is unknown.
  const left = await own.keys(username)
  assert.equal(left.length, 2)
  assert.ok(left.includes(keys[2] ?? ''))
  await own.good('DELETE', 'cloud/static-roles/app')
  assert.ok(!(await own.keys(username)).includes(keys[2] ?? ''))
  await own.iam.getUser({ UserName: username })
})

test('lists and removes an orphan', async (t) => {
  const own = await PortableWorld.open(t)
  await own.good('POST', 'cloud/roles/app', { credential_type: 'iam_user', policy_document: POLICY })
  await own.good('GET', 'cloud/creds/app?wait=false')
  const [name = ''] = await own.users()
  // No answer: the lease is forgotten, and its user stays.
  const { iam_endpoint: endpoint } = (await own.good('GET', 'cloud/config/root')).body.data
  await own.good('POST', 'cloud/config/root', { iam_endpoint: 'http://127.0.0.1:9', max_retries: 0 })
  await own.good('POST', 'sys/leases/revoke-force/cloud/creds/app')
  await own.good('POST', 'cloud/config/root', { iam_endpoint: endpoint })
  const told = (await own.good('GET', 'cloud/orphans')).body.data['orphans'] as { username: string }[]
  assert.deepEqual(
    told.map(({ username }) => username),
    [name],
  )
  await own.good('POST', 'cloud/orphans', { remove: true })
  assert.deepEqual(await own.users(), [])
})

test('a dry run creates no user and finds missing resources', async (t) => {
  const own = await PortableWorld.open(t)
  await own.good('POST', 'cloud/roles/app', { credential_type: 'iam_user', policy_document: POLICY })
  const check = async (role: string) => (await own.good('GET', `cloud/roles/${role}/check`)).body.data
  const found = await check('app')
  assert.notEqual(found['result'], 'failed', JSON.stringify(found))
  assert.ok((found['findings'] as string[]).includes('ok: iam:PutUserPolicy'), JSON.stringify(found))
  await t.test('by simulation', { skip: lacks('simulation') }, () => assert.equal(found['result'], 'ok'))
  await own.good('POST', 'cloud/roles/g', { credential_type: 'iam_user', iam_groups: ['none'] })
  assert.equal((await check('g'))['result'], 'failed')
  await own.good('POST', 'cloud/roles/a', { credential_type: 'assumed_role', role_arns: [await own.role('r')] })
  assert.equal((await check('a'))['result'], 'ok')
  assert.deepEqual(await own.users(), [])
})
