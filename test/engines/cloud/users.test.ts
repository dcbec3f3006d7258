/** Users of IAM from their making to their removal, against the endpoint of AWS. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { intentPaths, intentPut, newIntent } from '../../../src/engines/cloud/intents/user-records.ts'
import { throttled, unavailable } from '../../helpers/aws/endpoint.ts'
import { AwsError } from '../../helpers/aws/wire.ts'
import { CloudWorld, POLICY } from '../../helpers/cloud-world.ts'

function leaseOf({ body }: { body: Readonly<Record<string, unknown>> }): string {
  return String(body['lease_id'])
}

test('creates a user by its role and removes it with its lease', async (t) => {
  const world = await CloudWorld.open(t)
  const { account } = world.aws
  account.addGroup('ops')
  const [managed, boundary] = [account.addPolicy('read'), account.addPolicy('bound')]
  await world.userRole('app', {
    policy_arns: [managed, 'arn:aws:iam::aws:policy/ReadOnlyAccess'],
    iam_groups: 'ops',
    iam_tags: { team: 'red' },
    user_path: '/path/',
    permissions_boundary_arn: boundary,
  })
  const made = await world.good('GET', 'cloud/creds/app')
  const { access_key: id, secret_key: secret } = made.body.data
  assert.deepEqual(made.body.data, { access_key: id, secret_key: secret, session_token: null, security_token: null })
  assert.match(leaseOf(made), /^cloud\/creds\/app\/[A-Za-z0-9]{24}$/)
  assert.deepEqual([made.body['renewable'], made.body['lease_duration']], [true, 2_764_800])
  const [name = ''] = world.users()
  const user = account.user(name)
  assert.match(name, /^vault-root-app-\d{10}-[A-Za-z0-9]{20}$/)
  assert.deepEqual([user.path, user.boundary, user.tags.get('team')], ['/path/', boundary, 'red'])
  assert.deepEqual([...user.inline], [['app', POLICY]])
  assert.deepEqual([...user.attached], [managed, 'arn:aws:iam::aws:policy/ReadOnlyAccess'])
  assert.deepEqual([[...user.groups], user.keys.map((key) => key.id)], [['ops'], [id]])
  assert.equal(user.keys[0]?.secret, secret)
  await world.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(made) })
  assert.deepEqual(world.users(), [])
})

test('removes users of expired leases and of deleted roles', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  await world.good('POST', 'cloud/config/lease', { lease: '60s', lease_max: '2m' })
  assert.deepEqual((await world.good('GET', 'cloud/config/lease')).body.data, { lease: '1m0s', lease_max: '2m0s' })
  const made = await world.good('GET', 'cloud/creds/app?wait=false')
  assert.equal(made.body['lease_duration'], 60)
  await world.good('DELETE', 'cloud/roles/app')
  const renewed = await world.good('POST', 'sys/leases/renew', { lease_id: leaseOf(made), increment: 600 })
  assert.equal(renewed.body['lease_duration'], 120)
  world.pass(121)
  await world.sweep()
  assert.deepEqual(world.users(), [])
})

test('a revocation that AWS refuses keeps lease and user, and one of the next attempts removes both', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const made = await world.good('GET', 'cloud/creds/app?wait=false')
  world.aws.script('DeleteUser', { error: new AwsError('AccessDenied', 'not allowed to delete', 403), times: 10 })
  const refused = await world.ask('POST', 'sys/leases/revoke', { lease_id: leaseOf(made), sync: true })
  assert.equal(refused.status, 400)
  assert.match(refused.body.errors.join(), /AccessDenied: not allowed to delete/)
  assert.equal(world.users().length, 1)
  await world.good('POST', 'sys/leases/lookup', { lease_id: leaseOf(made) })
  world.aws.unscript()
  world.pass(60)
  await world.sweep()
  assert.deepEqual(world.users(), [])
  assert.equal((await world.ask('POST', 'sys/leases/lookup', { lease_id: leaseOf(made) })).status, 400)
})

test('leaves no user behind after a failed step and returns its error', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole('app', { iam_groups: ['none'] })
  const answer = await world.ask('GET', 'cloud/creds/app')
  assert.equal(answer.status, 400)
  assert.match(answer.body.errors[0] ?? '', /^Error adding user to group: NoSuchEntity: The group with name none/)
  await world.work()
  assert.deepEqual(world.users(), [])
  assert.ok(world.aws.actions().includes('DeleteUser'))
  assert.equal(world.world.core.open.leases.store.mounts().length, 0)
})

test('returns 502 with the text of AWS if CreateUser is throttled', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  world.aws.script('CreateUser', { error: throttled() })
  const answer = await world.ask('GET', 'cloud/creds/app')
  assert.deepEqual([answer.status, answer.body.errors], [502, ['Error creating IAM user: Throttling: Rate exceeded']])
})

test('retries a fault of CreateUser up to max_retries', async (t) => {
  const world = await CloudWorld.open(t, { root: { max_retries: -1 } })
  await world.userRole()
  const created = () => world.aws.actions().filter((action) => action === 'CreateUser').length
  for (const [when, error] of [
    ['before', unavailable()],
    ['before', new AwsError('InternalFailure', 'We encountered an internal error.', 500)],
    ['after', unavailable()],
  ] as const) {
    world.aws.journal.length = 0
    world.aws.script('CreateUser', { error, when, times: 2 })
    const made = await world.good('GET', 'cloud/creds/app?wait=false')
    assert.equal(created(), 3)
    await world.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(made) })
    assert.deepEqual(world.users(), [])
  }
  world.aws.journal.length = 0
  world.aws.script('CreateUser', { error: unavailable(), times: 3 })
  const failed = await world.ask('GET', 'cloud/creds/app?wait=false')
  assert.deepEqual([failed.status, created()], [502, 3])
  await world.good('POST', 'cloud/config/root', { max_retries: 0 })
  world.aws.journal.length = 0
  world.aws.script('CreateUser', { error: unavailable(), when: 'after' })
  assert.equal((await world.ask('GET', 'cloud/creds/app?wait=false')).status, 502)
  assert.deepEqual([created(), world.users().length], [1, 1])
  // A round in progress has the time before.
  await world.work()
  world.pass(60)
  await world.work()
  assert.deepEqual(world.users(), [], 'the intent removes what was made')
})

test('finds or removes the user after a lost response of CreateUser', async (t) => {
  const world = await CloudWorld.open(t, { root: { max_retries: 1 } })
  await world.userRole()
  world.aws.script('CreateUser', { isCut: true, when: 'after' })
  const made = await world.good('GET', 'cloud/creds/app?wait=false')
  assert.equal(world.users().length, 1)
  await world.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(made) })
  world.aws.script('CreateUser', { isCut: true, when: 'after' })
  world.aws.script('CreateUser', { isCut: true })
  world.aws.newUserMs = 20_000
  const answer = await world.ask('GET', 'cloud/creds/app?wait=false')
  assert.equal(answer.status, 502)
  assert.match(answer.body.errors[0] ?? '', /^Error creating IAM user: no response from http:\/\/127\.0\.0\.1:\d+: /)
  // It is not found at first: that is no reason to forget it.
  await world.work()
  assert.equal(world.users().length, 1)
  world.pass(25)
  await world.work()
  assert.deepEqual(world.users(), [])
})

test('replaces an access key whose response was lost', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  world.aws.script('CreateAccessKey', { error: unavailable(), when: 'after' })
  const made = await world.good('GET', 'cloud/creds/app?wait=false')
  const [name = ''] = world.users()
  assert.deepEqual(
    world.aws.account.user(name).keys.map(({ id }) => id),
    [made.body.data['access_key']],
  )
})

test('removes a user with all nine kinds of resources', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const made = await world.good('GET', 'cloud/creds/app?wait=false')
  const { account } = world.aws
  const user = account.user(world.users()[0] ?? '')
  account.addKey(user)
  account.addGroup('late')
  user.groups.add('late')
  user.inline.set('late', POLICY)
  user.attached.add('arn:aws:iam::aws:policy/ReadOnlyAccess')
  user.mfa.set('arn:aws:iam::123456789012:mfa/phone', '123456')
  user.certificates.add('cert')
  user.sshKeys.add('ssh')
  user.serviceCredentials.add('svc')
  user.hasLogin = true
  world.aws.pageSize = 1
  await world.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(made) })
  assert.deepEqual(world.users(), [])
})

test('counts a deleted user as removed, but not a user that is not visible yet', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const first = await world.good('GET', 'cloud/creds/app?wait=false')
  world.aws.account.users.delete(world.users()[0] ?? '')
  await world.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(first) })
  const second = await world.good('GET', 'cloud/creds/app?wait=false')
  world.aws.newUserMs = 20_000
  await world.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(second) })
  assert.equal(world.users().length, 1)
  world.pass(21)
  await world.work()
  assert.deepEqual(world.users(), [])
})

test('refuses the name of a foreign user and keeps that user', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  world.aws.script('CreateUser', {
    error: new AwsError('EntityAlreadyExists', 'User with name x already exists.', 409),
  })
  const before = world.aws.account.addUser('somebody')
  const answer = await world.ask('GET', 'cloud/creds/app')
  assert.match(answer.body.errors[0] ?? '', /^Error creating IAM user: EntityAlreadyExists: /)
  await world.work()
  world.pass(40)
  await world.work()
  assert.deepEqual(world.users(), [before.name])
})

test('the intent of a killed server does not claim a user of that name created by others', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const { storage } = world.world.core.open.mounts.get('cloud/') ?? assert.fail('it is mounted')
  const before = world.aws.account.addUser('somebody')
  before.tags.set('outpost:intent', 'of another mount')
  const intent = newIntent('somebody', 'app', world.world.nowMs, undefined)
  await storage.commit({ puts: [intentPut(intent)], deletes: [] })
  await world.work()
  assert.deepEqual([world.users(), intentPaths(storage)], [['somebody'], []])
})

test('an existing user is kept if AWS does not confirm its creation', async (t) => {
  const world = await CloudWorld.open(t, { root: { username_template: 'taken', max_retries: 1 } })
  await world.userRole()
  world.aws.account.addUser('taken')
  for (let at = 0; at < 2; at++) world.aws.script('CreateUser', { error: unavailable() })
  assert.equal((await world.ask('GET', 'cloud/creds/app?wait=false')).status, 502)
  await world.work()
  world.pass(40)
  await world.work()
  assert.deepEqual(world.users(), ['taken'])
})

test('creates users without the permission to set tags', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const denied = new AwsError('AccessDenied', 'not authorized to perform: iam:TagUser on resource: x', 403)
  world.aws.script('CreateUser', { error: denied })
  world.aws.script('CreateAccessKey', { error: new AwsError('LimitExceeded', 'no more', 409) })
  assert.equal((await world.ask('GET', 'cloud/creds/app?wait=false')).status, 400)
  await world.work()
  assert.deepEqual(world.users(), [])
  world.aws.script('CreateUser', { error: denied })
  const made = await world.good('GET', 'cloud/creds/app?wait=false')
  await world.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(made) })
  assert.deepEqual(world.users(), [])
})

test('does not remove an existing user without the permission to set tags', async (t) => {
  const world = await CloudWorld.open(t, { root: { username_template: 'taken' } })
  await world.userRole()
  const before = world.aws.account.addUser('taken')
  world.aws.account.addKey(before)
  const denied = new AwsError('AccessDenied', 'not authorized to perform: iam:TagUser on resource: x', 403)
  world.aws.script('CreateUser', { error: denied })
  const answer = await world.ask('GET', 'cloud/creds/app?wait=false')
  assert.match(answer.body.errors[0] ?? '', /^Error creating IAM user: EntityAlreadyExists: /)
  await world.work()
  world.pass(40)
  await world.work()
  assert.deepEqual([world.users(), before.keys.length], [['taken'], 1])
})

test('a user with the name but not the tag of an intent is kept', async (t) => {
  const world = await CloudWorld.open(t)
  const storage = world.world.core.open.mounts.get('cloud/')?.storage
  assert.ok(storage)
  // As a process leaves it that was killed before it asked for the user.
  const intent = newIntent('somebody', 'app', 0, undefined)
  await storage.commit({ puts: [intentPut(intent)], deletes: [] })
  const user = world.aws.account.addUser('somebody')
  user.tags.set('outpost:intent', 'of another one')
  for (let round = 0; round < 3; round++) {
    await world.work()
    world.pass(31)
  }
  assert.equal(world.aws.account.user('somebody'), user)
  assert.deepEqual(storage.list('intent/'), [], 'nothing is left to be undone')
})

test('rolls back other intents if one is damaged', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const storage = world.world.core.open.mounts.get('cloud/')?.storage
  assert.ok(storage)
  const damaged = Buffer.from('{')
  await storage.commit({
    puts: ['intent/0', 'key-intent/0'].map((path) => ({ path, value: damaged })),
    deletes: [],
  })
  world.aws.script('CreateAccessKey', { error: new AwsError('LimitExceeded', 'no more', 409) })
  assert.equal((await world.ask('GET', 'cloud/creds/app?wait=false')).status, 400)
  assert.equal(world.users().length, 1)
  await world.work()
  assert.deepEqual(world.users(), [])
  const refused = await world.ask('DELETE', 'sys/mounts/cloud')
  assert.match(refused.body.errors[0] ?? '', /cannot be removed yet: 2; a record cannot be read: see the log/)
})

test('responds with wait once AWS accepts the new key twice, or with a warning', async (t) => {
  const world = await CloudWorld.open(t)
  const { aws } = world
  await world.userRole()
  const asked = () => aws.journal.filter(({ action }) => action === 'GetCallerIdentity')
  const unknown = new AwsError('InvalidClientTokenId', 'The security token included in the request is invalid.', 403)
  await t.test('refused at first, and once more in between', async () => {
    aws.script('GetCallerIdentity', { error: unknown, times: 2 })
    aws.script('GetCallerIdentity', { times: 1 })
    aws.script('GetCallerIdentity', { error: unknown })
    const { body } = await world.good('GET', 'cloud/creds/app')
    assert.equal(body.warnings, null)
    assert.deepEqual(
      asked().map(({ outcome }) => (outcome === '' ? 'taken' : outcome)),
      ['InvalidClientTokenId', 'InvalidClientTokenId', 'taken', 'InvalidClientTokenId', 'taken', 'taken'],
    )
    assert.equal(asked().at(-1)?.keyId, body.data['access_key'])
  })
  await t.test('never taken: the credentials with a warning, and no orphan', async () => {
    aws.newKeyMs = 3_600_000
    world.pass(3600)
    aws.journal.length = 0
    const real = performance.now.bind(performance)
    // Once AWS was asked, the time that is waited has passed.
    t.mock.method(performance, 'now', () => real() + (asked().length > 0 ? 20_000 : 0))
    const { body } = await world.good('GET', 'cloud/creds/app')
    t.mock.restoreAll()
    assert.deepEqual(body.warnings, ['AWS does not accept the new access key yet: InvalidClientTokenId'])
    assert.match(String(body.data['access_key']), /^AKIA/)
    await world.good('POST', 'sys/leases/revoke-prefix/cloud/creds/app')
    assert.deepEqual(world.users(), [])
  })
})

test('accepts groups without a policy and issues users at creds and sts', async (t) => {
  const world = await CloudWorld.open(t)
  world.aws.account.addGroup('ops')
  await world.good('POST', 'cloud/roles/app', { credential_type: 'iam_user', iam_groups: 'ops' })
  for (const place of ['creds', 'sts']) {
    const made = await world.good('GET', `cloud/${place}/app?wait=false`)
    const [name = ''] = world.users()
    assert.deepEqual([...world.aws.account.user(name).groups], ['ops'])
    assert.match(leaseOf(made), new RegExp(`^cloud/${place}/app/`))
    await world.good('POST', 'sys/leases/revoke', { lease_id: leaseOf(made) })
    assert.deepEqual(world.users(), [])
  }
})
