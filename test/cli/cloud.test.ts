/** `outpost cloud`: what it asks, and the forms in which credentials are printed. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { test, type TestContext } from 'node:test'
import { credentialsOf } from '../../src/cli/commands/cloud/credential-formats.ts'
import { fieldsOf } from '../../src/cli/output/json.ts'
import { recordingCore, runAt } from './recording-core.ts'

const SESSION = {
  lease_id: 'cloud/creds/a/x',
  lease_duration: 3600,
  renewable: false,
  warnings: ['soon'],
  data: {
    access_key: 'ASIAEXAMPLE',
    secret_key: 'sEcret/+key',
    session_token: 'tok/en+==',
    security_token: 'tok/en+==',
    arn: 'arn:aws:sts::1:assumed-role/r/s',
    ttl: 3600,
  },
}
const USER = { ...SESSION, warnings: null, data: { ...SESSION.data, session_token: null, security_token: null } }

async function world(t: TestContext) {
  const core = await recordingCore(t)
  core.answers = {
    'GET cloud/creds/a': [200, SESSION],
    'GET cloud/creds/u': [200, USER],
    'PUT cloud/creds/a': [200, SESSION],
    'GET aws-eu/creds/a?ttl=15m&role_arn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr&role_session_name=me': [200, SESSION],
    'GET cloud/creds/odd': [200, { data: { access_key: 'A\nB=c', secret_key: 'x' } }],
    'GET cloud/creds/kv': [200, { data: { value: 'x' } }],
    'GET cloud/creds/none': [400, { errors: ['Role "none" not found'] }],
  }
  return core
}

test('credentials as credential_process, variables and a profile', async (t) => {
  const core = await world(t)
  const printed = async (...args: string[]) => {
    const { code, err, out } = await runAt(core, ['cloud', 'creds', ...args])
    assert.equal(code, 0, err)
    return { err, out }
  }
  await t.test('credential_process', async () => {
    const beforeMs = Date.now()
    const { err, out } = await printed('-format=credential_process', 'a')
    const { Expiration, ...rest } = JSON.parse(out) as Record<string, unknown>
    assert.deepEqual(rest, {
      Version: 1,
      AccessKeyId: 'ASIAEXAMPLE',
      SecretAccessKey: 'sEcret/+key',
      SessionToken: 'tok/en+==',
    })
    assert.match(String(Expiration), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/)
    const lastsMs = Date.parse(String(Expiration)) - beforeMs
    assert.ok(lastsMs > 3_598_000 && lastsMs < 3_720_000)
    assert.match(err, /^warning: soon$/m)
    const user = JSON.parse((await printed('-format', 'credential_process', 'u')).out) as object
    assert.deepEqual(Object.keys(user), ['Version', 'AccessKeyId', 'SecretAccessKey', 'Expiration'])
  })
  await t.test('env, also as a shell reads it', async () => {
    const { out } = await printed('-format', 'env', 'a')
    assert.match(
      out,
      /^AWS_ACCESS_KEY_ID=ASIAEXAMPLE\nAWS_SECRET_ACCESS_KEY=sEcret\/\+key\nAWS_SESSION_TOKEN=tok\/en\+==\nAWS_CREDENTIAL_EXPIRATION=\S+Z\n$/,
    )
    const read = spawnSync('sh', ['-c', `${out}echo "$AWS_SESSION_TOKEN"`], { encoding: 'utf8' })
    assert.equal(read.stdout, 'tok/en+==\n')
    const user = (await printed('-format=env', 'u')).out
    assert.equal(user, 'AWS_ACCESS_KEY_ID=ASIAEXAMPLE\nAWS_SECRET_ACCESS_KEY=sEcret/+key\n')
  })
  await t.test('aws-profile', async () => {
    const text = 'aws_access_key_id = ASIAEXAMPLE\naws_secret_access_key = sEcret/+key\naws_session_token = tok/en+==\n'
    assert.equal((await printed('-format=aws-profile', 'a')).out, `[a]\n${text}`)
    assert.equal((await printed('-format=aws-profile', '-profile=ci', 'a')).out, `[ci]\n${text}`)
    assert.equal((await runAt(core, ['cloud', 'creds', '-profile=a]', 'a'])).code, 2)
  })
  await t.test('table and JSON, as any secret', async () => {
    assert.match((await printed('a')).out, /^secret_key +sEcret\/\+key$/m)
    const whole = JSON.parse((await printed('-format=json', 'a')).out) as typeof SESSION
    assert.deepEqual(whole.data, SESSION.data)
  })
})

test('creds sends the options with the read, and an MFA code in the body', async (t) => {
  const core = await world(t)
  const wishes = ['-ttl=15m', '-role-arn=arn:aws:iam::1:role/r', '-session-name=me']
  const { code, err } = await runAt(core, ['cloud', 'creds', '-mount=aws-eu/', ...wishes, 'a'])
  assert.equal(code, 0, err)
  const title = process.title
  t.after(() => (process.title = title))
  assert.equal((await runAt(core, ['cloud', 'creds', '-mfa-code=123456', '-ttl=1h', 'a'])).code, 0)
  const { body, line } = core.asked.at(-1) ?? {}
  assert.deepEqual([line, body], ['PUT cloud/creds/a', { mfa_code: '123456', ttl: '1h' }])
})

test('a response without credentials is an error in each format', async (t) => {
  const core = await world(t)
  for (const role of ['odd', 'kv']) {
    for (const format of ['env', 'credential_process', 'aws-profile']) {
      const { code, err, out } = await runAt(core, ['cloud', 'creds', `-format=${format}`, role])
      assert.deepEqual([code, out], [1, ''])
      assert.match(err, /contains no AWS credentials/)
    }
  }
  const none = await runAt(core, ['cloud', 'creds', '-format=env', 'none'])
  assert.deepEqual([none.code, none.out], [1, ''])
  assert.match(none.err, /Role "none" not found/)
  for (const args of [[], ['a', 'b'], ['-format=ini', 'a'], ['../x']]) {
    assert.equal((await runAt(core, ['cloud', 'creds', ...args])).code, 2)
  }
  assert.equal(credentialsOf(fieldsOf({ data: USER.data }), 'x', 0).expiration, '', 'without a lease it is not known')
})

test('cloud role check prints a line for each finding and exits by the result', async (t) => {
  const core = await recordingCore(t)
  const data = { result: 'failed', missing_actions: ['iam:CreateUser'], findings: ['ok: x', 'failed: \u001b[31my'] }
  core.answers = {
    'GET cloud/roles/a/check': [200, { data }],
    'GET aws/roles/b/check': [200, { data: { ...data, result: 'unknown' } }],
    'GET cloud/roles/c/check': [404, { errors: [] }],
  }
  const failed = await runAt(core, ['cloud', 'role', 'check', 'a'])
  assert.deepEqual([failed.code, failed.out], [1, 'ok: x\nfailed: \\x1b[31my\n'])
  const json = await runAt(core, ['cloud', 'role', 'check', '-mount=aws', '-format=json', 'b'])
  assert.equal(json.code, 0)
  assert.deepEqual((JSON.parse(json.out) as { data: typeof data }).data.missing_actions, ['iam:CreateUser'])
  const none = await runAt(core, ['cloud', 'role', 'check', 'c'])
  assert.deepEqual([none.code, /no value found/.test(none.err)], [1, true])
})

test('creds prints the lease ID on stderr, and refuses -ttl for IAM users', async (t) => {
  const core = await world(t)
  core.answers = {
    ...core.answers,
    'GET cloud/roles/u': [200, { data: { credential_type: 'iam_user' } }],
    'GET cloud/roles/a': [403, { errors: ['permission denied'] }],
    'GET cloud/creds/a?ttl=15m': [200, SESSION],
  }
  const user = await runAt(core, ['cloud', 'creds', '-format=env', 'u'])
  assert.match(user.err, /^Lease ID: cloud\/creds\/a\/x$/m)
  assert.ok(!user.out.includes('Lease ID'))
  const before = core.asked.length
  const refused = await runAt(core, ['cloud', 'creds', '-format=env', '-ttl=15m', 'u'])
  assert.deepEqual([refused.code, refused.out], [1, ''])
  assert.match(refused.err, /option -ttl has no effect on role u: it creates IAM users/)
  assert.deepEqual(
    core.asked.slice(before).map(({ line }) => line),
    ['GET cloud/roles/u'],
  )
  assert.equal(
    (await runAt(core, ['cloud', 'creds', '-format=env', '-ttl=15m', 'a'])).code,
    0,
    'the role may not be read',
  )
})
