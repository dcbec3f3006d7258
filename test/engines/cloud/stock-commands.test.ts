/**
 * What the stock command line sends for credentials of AWS, to a real server: `vault secrets enable aws`, `vault write` (PUT, every value
 * a text), `vault read`, `vault list` (GET with `list=true`), `vault lease lookup|renew|revoke` (the ID in the path, with `sync`),
 * `vault delete`.
 */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import * as v from 'valibot'
import { cloudAgent } from '../../helpers/cloud-agent.ts'

const POLICY =
  '{\n  "Version": "2012-10-17",\n  "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]\n}\n'

test('serves the stock command line from mount to revocation', async (t) => {
  const { ask, aws, good, key, root, rootUser, users } = await cloudAgent(t)
  const arn = aws.account.addRole('deploy')
  const config = { options: null, default_lease_ttl: '', max_lease_ttl: '', force_no_cache: false }
  const mount = { type: 'aws', description: '', config, local: false, seal_wrap: false, external_entropy_access: false }
  assert.equal((await good('POST', 'sys/mounts/aws', { ...mount, options: null })).status, 204)

  await t.test('vault write and read aws/config/root, config/lease', async () => {
    assert.equal((await good('PUT', 'aws/config/root', root)).status, 204)
    const { data } = (await good('GET', 'aws/config/root')).body
    assert.deepEqual([data?.['access_key'], data?.['secret_key'], data?.['max_retries']], [key.id, undefined, 0])
    assert.equal((await good('PUT', 'aws/config/lease', { lease: '30m', lease_max: '12h' })).status, 204)
    assert.deepEqual((await good('GET', 'aws/config/lease')).body.data, { lease: '30m0s', lease_max: '12h0m0s' })
  })

  await t.test('vault write, read, list and delete aws/roles', async () => {
    const role = { credential_type: 'iam_user', policy_document: POLICY, iam_tags: 'team=red' }
    assert.equal((await good('PUT', 'aws/roles/app', role)).status, 204)
    const assumed = { credential_type: 'assumed_role', role_arns: arn, default_sts_ttl: '900', max_sts_ttl: '1h' }
    await good('PUT', 'aws/roles/deploy', assumed)
    const { data } = (await good('GET', 'aws/roles/app')).body
    const given = [data?.['credential_type'], data?.['iam_tags'], data?.['role_arns'], data?.['default_sts_ttl']]
    assert.deepEqual(given, ['iam_user', { team: 'red' }, null, 0])
    assert.deepEqual(JSON.parse(String(data?.['policy_document'])), JSON.parse(POLICY))
    assert.deepEqual((await good('GET', 'aws/roles?list=true')).body.data, { keys: ['app', 'deploy'] })
    await good('PUT', 'aws/roles/gone', assumed)
    assert.equal((await good('DELETE', 'aws/roles/gone')).status, 204)
    assert.equal((await ask('GET', 'aws/roles/gone')).status, 404)
  })

  await t.test('vault read aws/creds, and vault lease lookup, renew and revoke of it', async () => {
    const { body } = await good('GET', 'aws/creds/app')
    const lease = String(body['lease_id'])
    assert.match(lease, /^aws\/creds\/app\/\w{24}$/)
    assert.deepEqual(
      [body['renewable'], body['lease_duration'], body['wrap_info'], body['auth']],
      [true, 1800, null, null],
    )
    assert.deepEqual(Object.keys(body.data ?? {}).sort(), [
      'access_key',
      'secret_key',
      'security_token',
      'session_token',
    ])
    assert.equal(users().length, 1)
    const found = (await good('PUT', 'sys/leases/lookup', { lease_id: lease })).body.data
    assert.deepEqual([found?.['id'], found?.['renewable']], [lease, true])
    const renewed = (await good('PUT', 'sys/leases/renew', { increment: 3600, lease_id: lease })).body
    assert.deepEqual([renewed['lease_id'], renewed['lease_duration']], [lease, 3600])
    assert.equal((await good('PUT', `sys/leases/revoke/${lease}`, { sync: false })).status, 204)
    assert.deepEqual(users(), [])
    const gone = await ask('PUT', 'sys/leases/lookup', { lease_id: lease })
    assert.deepEqual([gone.status, gone.body.errors], [400, ['invalid lease']])
  })

  await t.test('vault write aws/sts with ttl, and vault read of it', async () => {
    for (const asked of [good('PUT', 'aws/sts/deploy', { ttl: '15m' }), good('GET', 'aws/sts/deploy?ttl=15m')]) {
      const { body } = await asked
      const { data } = body
      assert.match(String(data?.['access_key']), /^ASIA/)
      assert.equal(data?.['session_token'], data?.['security_token'])
      assert.match(String(data?.['arn']), /:assumed-role\/deploy\//)
      assert.ok(body['renewable'] === false && Number(body['lease_duration']) > 890, String(body['lease_duration']))
    }
  })

  await t.test('vault write -f aws/config/rotate-root, whichever body that is', async () => {
    for (const body of [{}, 'null', undefined]) {
      const { body: answer } = await good('PUT', 'aws/config/rotate-root', body)
      assert.deepEqual(
        rootUser.keys.map(({ id }) => id),
        [answer.data?.['access_key']],
      )
    }
  })

  await t.test('vault lease revoke -prefix, and vault secrets disable', async () => {
    for (let count = 0; count < 3; count++) await good('GET', 'aws/creds/app')
    assert.equal((await good('PUT', 'sys/leases/revoke-prefix/aws/creds/app', { sync: false })).status, 204)
    assert.deepEqual(users(), [])
    assert.equal((await good('DELETE', 'sys/mounts/aws')).status, 204)
  })

  await t.test('recorded requests of vault 1.21.4 are accepted', async () => {
    const [rootKey] = rootUser.keys
    let lease = ''
    const replaced = (text: string) =>
      text
        .replaceAll('<ENDPOINT>', aws.url)
        .replaceAll('<ACCESS_KEY>', rootKey?.id ?? '')
        .replaceAll('<SECRET_KEY>', rootKey?.secret ?? '')
        .replaceAll('<ROLE_ARN>', arn)
        .replaceAll('<LEASE>', lease)
    for (const { body, command, method, path, status } of recorded()) {
      const answer = await ask(method, replaced(path), body === '' ? undefined : replaced(body))
      assert.equal(answer.status, status, `${command}: ${answer.text}`)
      const { lease_id: given } = answer.body
      if (path === 'aws/creds/app') lease = String(given)
      if (path.startsWith('sys/leases/revoke/'))
        assert.equal((await ask('PUT', 'sys/leases/lookup', { lease_id: lease })).status, 400)
    }
    assert.deepEqual(users(), [])
  })
})

const recordSchema = v.object({
  command: v.string(),
  method: v.string(),
  path: v.string(),
  body: v.string(),
  status: v.number(),
})

function recorded(): v.InferOutput<typeof recordSchema>[] {
  const file = new URL('../../../fixtures/vault/aws-commands.jsonl', import.meta.url)
  const lines = readFileSync(file, 'utf8').trimEnd().split('\n')
  return lines.map((line) => v.parse(recordSchema, JSON.parse(line)))
}
