/** Sessions of STS, against the endpoint of AWS. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AwsEndpoint } from '../../helpers/aws/endpoint.ts'
import { AwsError } from '../../helpers/aws/wire.ts'
import { CloudWorld, POLICY } from '../../helpers/cloud-world.ts'

function lastForm(world: CloudWorld) {
  const form = world.aws.journal.at(-1)?.form
  assert.ok(form)
  return form
}

async function withRole(t: Parameters<typeof CloudWorld.open>[0], more: object = {}, trust = {}) {
  const world = await CloudWorld.open(t)
  const arn = world.aws.account.addRole('r', { principals: ['*'], ...trust })
  await world.good('POST', 'cloud/roles/a', { credential_type: 'assumed_role', role_arns: [arn], ...more })
  return { world, arn }
}

test('issues an assumed role at creds and sts with a lease', async (t) => {
  const { world } = await withRole(t)
  for (const [method, path] of [
    ['GET', 'creds'],
    ['POST', 'sts'],
    ['GET', 'sts'],
    ['POST', 'creds'],
  ] as const) {
    const { body } = await world.good(method, `cloud/${path}/a`)
    const { access_key: id, arn, secret_key: secret, security_token: old, session_token: token, ttl } = body.data
    const kept = world.aws.account.sessions.get(String(id))
    assert.deepEqual([secret, token, old, arn], [kept?.secret, kept?.token, kept?.token, kept?.arn])
    assert.deepEqual([ttl, body['lease_duration'], body['renewable']], [3600, 3600, false])
    assert.match(String(body['lease_id']), new RegExp(`^cloud/${path}/a/`))
    assert.match(lastForm(world).required('RoleSessionName'), /^vault-root-a-\d{10}-/)
  }
  const [lease] = (await world.ask('LIST', 'sys/leases/lookup/cloud/creds/a')).body.data['keys'] as string[]
  const renewal = await world.ask('POST', 'sys/leases/renew', { lease_id: `cloud/creds/a/${lease}` })
  assert.deepEqual([renewal.status, renewal.body.errors], [400, ['lease is not renewable']])
  await world.good('POST', 'sys/leases/revoke', { lease_id: `cloud/creds/a/${lease}` })
})

test('no lease exceeds its session after a slow response', async (t) => {
  const { world } = await withRole(t, { default_sts_ttl: 900, max_sts_ttl: 900 })
  world.aws.nowMs = () => world.world.nowMs + 2000
  const { body } = await world.good('GET', 'cloud/creds/a')
  assert.deepEqual([body.data['ttl'], body['lease_duration']], [900, 900])
})

test('replaces invalid characters of session names and truncates to 64', async (t) => {
  const { world } = await withRole(t)
  await world.good('POST', 'cloud/sts/a', { role_session_name: `a b/${'x'.repeat(80)}` })
  assert.equal(lastForm(world).required('RoleSessionName'), `a_b_${'x'.repeat(60)}`)
})

test('sends policies, groups, tags and the external ID', async (t) => {
  const policy_arns = ['arn:aws:iam::aws:policy/ReadOnlyAccess']
  const more = { policy_document: POLICY, policy_arns, iam_groups: 'ops', session_tags: { a: 'b' }, external_id: 'ext' }
  const { world } = await withRole(t, more, { allowsTags: true, externalId: 'ext' })
  const group = world.aws.account.addGroup('ops')
  group.attached.add('arn:aws:iam::1:policy/g')
  group.inline.set('one', '{"Statement": {"Effect": "Allow", "NotAction": "x"}}')
  await world.good('GET', 'cloud/creds/a')
  const form = lastForm(world)
  assert.deepEqual(form.list('PolicyArns', 'arn'), [...policy_arns, 'arn:aws:iam::1:policy/g'])
  const { Statement } = JSON.parse(POLICY) as { Statement: object[] }
  assert.equal(
    form.optional('Policy'),
    JSON.stringify({ Version: '2012-10-17', Statement: [{ Effect: 'Allow', NotAction: 'x' }, ...Statement] }),
  )
  assert.deepEqual([[...form.tags()], form.optional('ExternalId')], [[['a', 'b']], 'ext'])
  group.inline.set('two', 'no JSON')
  const answer = await world.ask('GET', 'cloud/creds/a')
  assert.deepEqual([answer.status, answer.body.errors], [400, ['a policy document is not JSON']])
  world.aws.account.groups.delete('ops')
  assert.match((await world.ask('GET', 'cloud/creds/a')).body.errors[0] ?? '', /^NoSuchEntity: The group/)
})

test('computes the duration of sessions', async (t) => {
  const { world } = await withRole(t, { default_sts_ttl: 900, max_sts_ttl: 1800 }, { maxSeconds: 43_200 })
  for (const [query, seconds] of [
    ['', 900],
    ['?ttl=1000s', 1000],
    ['?ttl=2h', 1800],
  ] as const) {
    const { body } = await world.good('GET', `cloud/creds/a${query}`)
    assert.deepEqual([body.data['ttl'], body['lease_duration']], [seconds, seconds])
  }
  const short = await world.ask('GET', 'cloud/creds/a?ttl=60')
  assert.match(short.body.errors[0] ?? '', /^Error assuming role: ValidationError: .*between 900 and 43200/)
  await world.good('POST', 'sys/mounts/cloud/tune', { max_lease_ttl: '1000s' })
  const { body } = await world.good('GET', 'cloud/creds/a?ttl=2h')
  assert.equal(body['lease_duration'], 1000)
})

test('requires an allowed role_arn for a role with several ARNs', async (t) => {
  const { arn, world } = await withRole(t)
  const other = world.aws.account.addRole('other', { principals: ['*'] })
  await world.good('POST', 'cloud/roles/a', { role_arns: [arn, other] })
  const errorOf = async (query: string) => (await world.ask('GET', `cloud/creds/a${query}`)).body.errors[0]
  assert.equal(await errorOf(''), 'did not supply a role_arn parameter and unable to determine one')
  const text = `role_arn "${arn}x" not in allowed role arns for Vault role "a"`
  assert.equal(await errorOf(`?role_arn=${arn}x`), text)
  await world.good('GET', `cloud/creds/a?role_arn=${other}`)
  assert.equal(await errorOf('x'), 'Role "ax" not found')
})

test('requests federation tokens with name, policies and groups', async (t) => {
  const world = await CloudWorld.open(t)
  const group = world.aws.account.addGroup('ops')
  await world.good('POST', 'cloud/roles/f', { credential_type: 'federation_token', iam_groups: 'ops' })
  const empty = await world.ask('GET', 'cloud/creds/f')
  assert.match(
    empty.body.errors[0] ?? '',
    /^must specify at least one of policy_arns or policy_document with federation_token/,
  )
  group.attached.add('arn:aws:iam::aws:policy/ReadOnlyAccess')
  await world.good('POST', 'cloud/roles/f', { policy_document: POLICY })
  const { body } = await world.good('POST', 'cloud/sts/f', { ttl: '1h' })
  assert.deepEqual(Object.keys(body.data).sort(), [
    'access_key',
    'secret_key',
    'security_token',
    'session_token',
    'ttl',
  ])
  const form = lastForm(world)
  assert.match(form.required('Name'), /^vault-\d{10}-\w{15}$/)
  assert.deepEqual([form.optional('Policy'), form.list('PolicyArns', 'arn').length], [POLICY, 1])
})

test('requests session tokens with and without MFA', async (t) => {
  const world = await CloudWorld.open(t)
  await world.good('POST', 'cloud/roles/s', { credential_type: 'session_token' })
  for (const path of ['cloud/creds/s', 'cloud/sts/s']) await world.good('GET', path)
  const serial = 'arn:aws:iam::123456789012:mfa/root'
  world.rootUser.mfa.set(serial, '123456')
  await world.good('POST', 'cloud/roles/s', { mfa_serial_number: serial })
  const missing = await world.ask('GET', 'cloud/creds/s')
  assert.deepEqual(missing.body.errors, ['mfa_code is required: the role has an mfa_serial_number'])
  const wrong = await world.ask('GET', 'cloud/creds/s?mfa_code=000000')
  assert.match(wrong.body.errors[0] ?? '', /^Error generating STS keys: AccessDenied: MultiFactorAuthentication failed/)
  await world.good('GET', 'cloud/creds/s?mfa_code=123456')
})

test('legacy roles issue users at creds and sessions at sts only', async (t) => {
  const world = await CloudWorld.open(t)
  const arn = world.aws.account.addRole('r')
  const errorOf = async (path: string) => (await world.ask('GET', path)).body.errors[0]
  await world.good('POST', 'cloud/roles/p', { policy: POLICY })
  await world.good('GET', 'cloud/sts/p')
  assert.equal(lastForm(world).required('Action'), 'GetFederationToken')
  await world.good('GET', 'cloud/creds/p?wait=false')
  assert.equal(world.users().length, 1)
  await world.good('POST', 'cloud/roles/arn', { arn: 'arn:aws:iam::aws:policy/ReadOnlyAccess' })
  const text = 'attempted to retrieve iam_user credentials through the sts path; this is not allowed for legacy roles'
  assert.equal(await errorOf('cloud/sts/arn'), text)
  await world.good('POST', 'cloud/roles/role', { arn })
  await world.good('GET', 'cloud/sts/role')
  const other =
    'attempted to retrieve assumed_role credentials through the creds path; this is not allowed for legacy roles'
  assert.equal(await errorOf('cloud/creds/role'), other)
})

test('falls back to the next STS endpoint', async (t) => {
  const second = await AwsEndpoint.open(t)
  const { world } = await withRole(t)
  second.account.users.set('root-user', world.rootUser)
  const arn = second.account.addRole('r')
  await world.good('POST', 'cloud/roles/a', { role_arns: arn })
  const fallback = { sts_fallback_endpoints: second.url, sts_fallback_regions: 'eu-west-1' }
  await world.good('POST', 'cloud/config/root', { ...fallback, sts_endpoint: 'http://127.0.0.1:1' })
  for (let count = 0; count < 2; count++) await world.good('GET', 'cloud/creds/a')
  const asked = second.journal.map(({ action, region }) => `${action} ${region}`)
  assert.deepEqual(asked, ['GetCallerIdentity eu-west-1', 'AssumeRole eu-west-1', 'AssumeRole eu-west-1'])
})

test('explains missing responses, clock skew, and expired or unknown credentials', async (t) => {
  const { world } = await withRole(t)
  const failed = async () => {
    const { body, status } = await world.ask('GET', 'cloud/creds/a')
    return [status, body.errors[0] ?? ''] as const
  }
  world.aws.clockAheadMs = 3_600_000
  assert.match(
    (await failed())[1],
    /SignatureDoesNotMatch: Signature expired.*this server's clock differs from that of AWS/,
  )
  world.aws.clockAheadMs = 0
  world.aws.script('AssumeRole', { error: new AwsError('ExpiredToken', 'The security token is expired', 403) })
  assert.match((await failed())[1], /ExpiredToken: .*the root credentials have expired/)
  world.aws.script('AssumeRole', { error: new AwsError('Throttling', 'Rate exceeded', 400) })
  assert.deepEqual(await failed(), [502, 'Error assuming role: Throttling: Rate exceeded'])
  for (const key of world.rootUser.keys) key.status = 'Inactive'
  assert.match((await failed())[1], /InvalidClientTokenId: .*AWS does not accept the root credentials/)
  await world.good('POST', 'cloud/config/root', { sts_endpoint: 'http://127.0.0.1:1' })
  assert.deepEqual(await failed(), [502, 'Error assuming role: no response from http://127.0.0.1:1: ECONNREFUSED'])
})
