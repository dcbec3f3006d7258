/** Root credentials of the role of an instance: the metadata service of EC2, as it is asked by the SDK. */
import assert from 'node:assert/strict'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { test } from 'node:test'
import { CloudWorld } from '../../helpers/cloud-world.ts'

const ROLE_PATH = '/latest/meta-data/iam/security-credentials/'

test('uses the role of the instance without keys, with one request', async (t) => {
  const world = await CloudWorld.open(t)
  const arn = world.aws.account.addRole('r')
  const session = world.aws.account.addSession({
    arn: 'arn:aws:sts::123456789012:assumed-role/instance/i-1',
    kind: 'assumed-role',
    user: undefined,
    expiresAtMs: world.world.nowMs + 6 * 3_600_000,
    request: {},
  })
  const asked: string[] = []
  const server = createServer((request, response) => {
    const { headers, method = '', url = '' } = request
    asked.push(`${method} ${url}`)
    const credentials = {
      Code: 'Success',
      AccessKeyId: session.keyId,
      SecretAccessKey: session.secret,
      Token: session.token,
      Expiration: new Date(session.expiresAtMs).toISOString(),
    }
    const isKnown = method === 'PUT' || headers['x-aws-ec2-metadata-token'] === 'imds-token'
    response.writeHead(isKnown ? 200 : 401)
    response.end(method === 'PUT' ? 'imds-token' : url === ROLE_PATH ? 'instance' : JSON.stringify(credentials))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const before = { ...process.env }
  t.after(() => {
    server.closeAllConnections()
    server.close()
    process.env = before
  })
  const { port } = server.address() as AddressInfo
  process.env = {
    PATH: before['PATH'],
    HOME: world.world.directory,
    AWS_EC2_METADATA_SERVICE_ENDPOINT: `http://127.0.0.1:${port}`,
  }
  await world.good('POST', 'cloud/config/root', { access_key: '', secret_key: '' })
  await world.good('POST', 'cloud/roles/r', { credential_type: 'assumed_role', role_arns: arn })
  const made = await Promise.all([world.good('GET', 'cloud/creds/r'), world.good('GET', 'cloud/creds/r')])
  await world.good('GET', 'cloud/creds/r')
  assert.deepEqual(asked.filter((each) => each === `GET ${ROLE_PATH}instance`).length, 1, asked.join())
  assert.notEqual(made[0].body.data['access_key'], made[1].body.data['access_key'], 'issued credentials are not cached')
  assert.ok(world.aws.journal.every(({ keyId }) => keyId === session.keyId))
  await world.good('POST', 'sys/mounts/other', { type: 'cloud' })
  await world.good('POST', 'other/config/root', { region: 'eu-west-1' })
  const refused = await world.ask('POST', 'cloud/config/rotate-root')
  assert.match(refused.body.errors[0] ?? '', /when either access_key or secret_key is empty/)
})
