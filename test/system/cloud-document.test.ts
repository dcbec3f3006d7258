/**
 * The commands of the section on credentials of AWS in docs/operating/engines.md, as pasted into a shell: a real agent,
 * and an endpoint of AWS that reads the keys of its issuer over HTTP.
 */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { AwsEndpoint } from '../helpers/aws/endpoint.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { POLICY } from '../helpers/cloud-world.ts'
import { runShell, shellBlocks } from '../helpers/document.ts'
import { quietPort } from '../helpers/quiet-port.ts'

const ISSUER = 'https://vault.example.com/v1/identity/oidc/plugins'
const READY = 'until curl -sf "$OUTPOST_ADDR/v1/agent/ready" > /dev/null; do sleep 0.1; done'

test('the documented steps configure root and role, issue credentials in every format, and revoke them', async (t) => {
  const aws = await AwsEndpoint.open(t)
  const { key } = aws.root()
  const directory = workDirectory(t)
  const port = await quietPort()
  aws.account.addRole('ci', { principals: ['*'] })
  aws.account.addRole('outpost', { principals: [ISSUER], audience: 'sts.amazonaws.com' })
  aws.account.oidcProviders.set(ISSUER, {
    issuer: ISSUER,
    audiences: ['sts.amazonaws.com'],
    async read(url) {
      const answer = await fetch(url.replace('https://vault.example.com', `http://127.0.0.1:${port}`))
      assert.equal(answer.status, 200)
      return answer.json()
    },
  })
  writeFileSync(join(directory, 'secret'), key.secret)
  writeFileSync(join(directory, 'policy.json'), POLICY)
  const [users, sessions, federation, ...more] = shellBlocks('docs/operating/engines.md', '## AWS credentials')
  assert.ok(users && sessions && federation && more.length === 0)
  const script = [
    `export AWS_ENDPOINT_URL=${aws.url}`,
    `outpost agent -dev -dev-no-demo -dev-root-token-id root -http-port ${port} -cluster-port 0 > server.log 2>&1 &`,
    READY,
    'printf root | outpost login -no-print -',
    users.replace('AKIA…', key.id),
    'echo "== sessions"',
    sessions,
    'echo "== federation"',
    federation,
  ].join('\n')
  const { code, stderr, stdout } = await runShell(directory, port, script)
  const log = readFileSync(join(directory, 'server.log'), 'utf8')
  assert.equal(code, 0, `${stderr}\n${stdout}\n${log}`)
  const [made = '', printed = '', federated = ''] = stdout.split(/^== .*\n/m)

  assert.match(made, /^access_key +AKIA/m)
  assert.match(made, /^Success! Revoked any leases with prefix: cloud\/creds\/deploy$/m)
  assert.deepEqual([...aws.account.users.keys()], ['root-user'])
  assert.match(printed, /^ok: sts:AssumeRole arn:aws:iam::123456789012:role\/ci$/m)
  const whole = JSON.parse(printed.split('\n').findLast((line) => line.startsWith('{')) ?? '') as Record<string, string>
  assert.equal(aws.account.sessions.get(whole['AccessKeyId'] ?? '')?.token, whole['SessionToken'])
  const env = readFileSync(join(directory, '.env'), 'utf8')
  const session = aws.account.sessions.get(/^AWS_ACCESS_KEY_ID=(\S+)$/m.exec(env)?.[1] ?? '')
  assert.ok(session && env.includes(`AWS_SECRET_ACCESS_KEY=${session.secret}\nAWS_SESSION_TOKEN=${session.token}\n`))
  assert.equal(session.request['DurationSeconds'], '900')
  assert.match(readFileSync(join(directory, 'credentials'), 'utf8'), /^\[ci\]\naws_access_key_id = ASIA/)

  assert.match(federated, /^ok: root credentials: arn:aws:sts::123456789012:assumed-role\/outpost\/vault-aws-secrets-/m)
  assert.ok(aws.actions().includes('AssumeRoleWithWebIdentity'))
  for (const secret of [key.secret, session.secret, session.token]) assert.ok(!log.includes(secret))
})
