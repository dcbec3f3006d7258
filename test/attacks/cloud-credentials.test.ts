/**
 * A token holder with one role of the engine `cloud`, at a real server in front of an endpoint of AWS: it tries to get at another role, at
 * another mount, out of the names that it is given, and at the secrets of the root configuration.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import { cloudAgent } from '../helpers/cloud-agent.ts'

const document = (action: string) =>
  JSON.stringify({ Version: '2012-10-17', Statement: [{ Effect: 'Allow', Action: action, Resource: '*' }] })

const RULES = `
path "cloud/creds/app" { capabilities = ["read", "update"] }
path "cloud/sts/deploy" { capabilities = ["read", "update"] }
path "cloud/roles/mine-*" { capabilities = ["create", "update", "read"] }
path "cloud/creds/mine-*" { capabilities = ["read"] }
path "sys/leases/lookup" { capabilities = ["update"] }
path "other/roles/*" { capabilities = ["read"] }`

/** Every file of a directory, as bytes. */
function filesOf(directory: string): Buffer[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map((name) => join(directory, name))
    .filter((file) => statSync(file).isFile())
    .map((file) => readFileSync(file))
}

test('a token with access to one AWS role cannot get credentials beyond that role', async (t) => {
  const { agent, ask, aws, directory, good, key, log, root, users } = await cloudAgent(t)
  const { account } = aws
  const arn = account.addRole('deploy', { principals: ['*'], allowsTags: true })
  const admin = account.addRole('admin')
  for (const mount of ['cloud', 'other']) {
    await good('POST', `sys/mounts/${mount}`, { type: 'cloud' })
    await good('PUT', `${mount}/config/root`, root)
    await good('PUT', `${mount}/roles/app`, { credential_type: 'iam_user', policy_document: document('s3:*') })
    await good('PUT', `${mount}/roles/admin`, { credential_type: 'iam_user', policy_document: document('*') })
  }
  await good('PUT', 'cloud/roles/deploy', { credential_type: 'assumed_role', role_arns: arn, session_tags: 'team=red' })
  await good('PUT', 'sys/policies/acl/app', { policy: RULES })
  // Its name goes into those of users.
  const evil = `x{{.PolicyName}}\n</UserName>&UserName=admin"'../../${'y'.repeat(200)}`
  const made = await good('POST', 'auth/token/create', {
    policies: ['app'],
    display_name: evil,
    no_default_policy: true,
  })
  const { client_token: token } = made.body['auth'] as { client_token: string }
  const as = (method: string, path: string, body?: unknown) => ask(method, path, body, token)
  const endpoint = (action: string) => aws.journal.filter((each) => each.action === action)

  await t.test('templates and markup in a display name are treated as literal text', async () => {
    assert.equal((await as('GET', 'cloud/creds/app?wait=false')).status, 200)
    const [name = ''] = users()
    assert.match(name, /^vault-token-x-+PolicyName-[\w+=,.@-]+$/)
    assert.ok(name.length <= 64)
    assert.deepEqual([...account.user(name).inline.keys()], ['app'])
    assert.equal(endpoint('CreateUser')[0]?.form.required('UserName'), name)
  })

  await t.test('session names, ARNs and parameters outside the role are refused', async () => {
    const names = ['../../admin', 'a&RoleArn=x', 'b\r\nHost: x', 'c{{random 5}}', 'd\u0000e', `é${'f'.repeat(5000)}`]
    for (const role_session_name of names) {
      const { body, status } = await as('PUT', 'cloud/sts/deploy', { role_session_name })
      assert.equal(status, 200, role_session_name)
      const form = endpoint('AssumeRole').at(-1)?.form
      assert.match(form?.required('RoleSessionName') ?? '', /^[\w+=,.@-]{2,64}$/)
      assert.deepEqual([form?.required('RoleArn'), form?.required('Tags.member.1.Value')], [arn, 'red'])
      assert.match(String(body.data?.['arn']), /:assumed-role\/deploy\/[\w+=,.@-]+$/)
    }
    const calls = endpoint('AssumeRole').length
    for (const role_arn of [admin, `${arn} `, `${arn}/../admin`, [arn, admin], `${arn},${admin}`]) {
      assert.equal((await as('PUT', 'cloud/sts/deploy', { role_arn })).status, 400, JSON.stringify(role_arn))
    }
    assert.equal(endpoint('AssumeRole').length, calls)
    const more = { session_tags: { team: 'admin' }, policy_document: document('*'), external_id: 'x', role_arns: admin }
    await as('PUT', 'cloud/sts/deploy', more)
    const form = endpoint('AssumeRole').at(-1)?.form
    assert.deepEqual(
      [form?.required('RoleArn'), form?.optional('Policy'), form?.optional('ExternalId')],
      [arn, undefined, undefined],
    )
  })

  await t.test('roles, mounts and leases of other callers are refused for every spelling of the path', async () => {
    const { body } = await good('GET', 'cloud/creds/admin?wait=false')
    const lease = String(body['lease_id'])
    const before = users()
    const paths = [
      'cloud/creds/admin',
      'cloud/creds/app%2f..%2fadmin',
      'cloud/creds/app/../admin',
      'cloud/creds//admin',
      'cloud/creds/app%00admin',
      'cloud/sts/app',
      'cloud/sts/admin',
      'other/creds/app',
      'other/creds/admin',
      'cloud/creds/mine-%2e%2e%2fadmin',
      'cloud/config/root',
      'cloud/config/lease',
      'cloud/static-creds/x',
      'cloud/orphans',
      'cloud/roles/admin/check',
      'cloud/roles?list=true',
    ]
    for (const path of paths) {
      const { status } = await as('GET', path)
      assert.ok(status >= 400 && status < 500, `${path}: ${status}`)
    }
    assert.equal((await as('GET', 'other/roles/admin')).status, 200, 'what its policy says it may read')
    for (const path of [
      'sys/leases/revoke',
      'sys/leases/renew',
      `sys/leases/revoke/${lease}`,
      'cloud/config/rotate-root',
    ]) {
      assert.equal((await as('PUT', path, { lease_id: lease })).status, 403, path)
    }
    const shown = await as('PUT', 'sys/leases/lookup', { lease_id: lease })
    for (const secret of [body.data?.['secret_key'], body.data?.['access_key']])
      assert.ok(!shown.text.includes(String(secret)))
    assert.deepEqual(users(), before)
  })

  await t.test('a write of a role with a huge document, an invalid ARN, template or path is refused', async () => {
    const user = { credential_type: 'iam_user' }
    const bodies: readonly object[] = [
      { ...user, policy_document: JSON.stringify({ Statement: 'x'.repeat(15_000) }) },
      { ...user, policy_document: '['.repeat(5000) },
      { ...user, policy_document: '{"Statement":' },
      { ...user, policy_document: `{"a":1${',"a":1'.repeat(2000)}` },
      { ...user, policy_arns: ['arn:aws:iam::aws:policy/A&PolicyArn=B', 'x'] },
      { ...user, policy_arns: Array.from({ length: 50 }, () => 'arn:aws:iam::aws:policy/A') },
      { ...user, policy_document: document('s3:*'), user_path: '/a b/' },
      { ...user, policy_document: document('s3:*'), iam_tags: { 'outpost:mount': 'x' } },
      { ...user, policy_document: document('s3:*'), iam_tags: { 'Outpost:Intent': 'x' } },
      { ...user, policy_document: document('s3:*'), iam_groups: 'a&b' },
      { credential_type: 'assumed_role', role_arns: 'arn:aws:iam::1:user/x' },
    ]
    const calls = aws.journal.length
    for (const body of bodies) {
      const { status, text } = await as('PUT', 'cloud/roles/mine-1', body)
      assert.equal(status, 400, `${JSON.stringify(body).slice(0, 40)}…${JSON.stringify(body).slice(-60)}`)
      assert.ok(text.length < 8000)
    }
    const large = await as('PUT', 'cloud/roles/mine-1', { ...user, policy_document: 'x'.repeat(200_000) })
    assert.ok(large.status === 400 || large.status === 413, String(large.status))
    assert.equal(aws.journal.length, calls)
    assert.equal((await as('GET', 'cloud/creds/mine-1')).status, 400)
  })

  await t.test('root credentials appear in no response, log or file', async () => {
    await good('GET', 'cloud/config/root')
    await ask('PUT', 'cloud/config/root', { access_key: key.id, secret_key: key.secret, iam_endpoint: 'no url ?' })
    aws.account.user('root-user').denied.add('CreateUser')
    assert.equal((await as('GET', 'cloud/creds/app?wait=false')).status, 400)
    // A process of its own copies what a kill would leave: if this one closed another descriptor of a database that it has
    // open, it would drop SQLite's locks.
    const copy = workDirectory(t)
    execFileSync('cp', ['-r', directory, copy])
    // All of the log is written then.
    await agent.stop()
    assert.match(agent.stderr(), /"stopping"/)
    const places = [log.join('\n'), agent.stdout(), agent.stderr()]
    for (const place of places) assert.ok(!place.includes(key.secret))
    const [secret, encoded] = [Buffer.from(key.secret), Buffer.from(Buffer.from(key.secret).toString('base64'))]
    const files = [...filesOf(copy), ...filesOf(directory)]
    for (const file of files) assert.ok(!file.includes(secret) && !file.includes(encoded))
  })
})
