/** What goes wrong with AWS for a while, or for good: throttling, two servers with one root user, a region that is not its endpoint's. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import { throttled } from '../../helpers/aws/endpoint.ts'
import { AwsError } from '../../helpers/aws/wire.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'
import { CoreWorld } from '../../helpers/core-world.ts'

test('reports throttling to callers and completes the revocations after it', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const lease = String((await world.good('GET', 'cloud/creds/app?wait=false')).body['lease_id'])
  await world.good('POST', 'cloud/roles/half', {
    credential_type: 'iam_user',
    policy_arns: 'arn:aws:iam::aws:policy/ReadOnlyAccess',
  })
  let made = 0
  world.aws.chaos = (action) => (action === 'CreateUser' && made++ === 0 ? undefined : { error: throttled() })
  assert.equal((await world.ask('GET', 'cloud/creds/half?wait=false')).status, 502, 'one is half made')
  const told = await world.ask('GET', 'cloud/creds/app?wait=false')
  assert.deepEqual([told.status, told.body.errors], [502, ['Error creating IAM user: Throttling: Rate exceeded']])
  const revoked = await world.ask('POST', 'sys/leases/revoke', { lease_id: lease })
  assert.equal(revoked.status, 400)
  assert.match(revoked.body.errors[0] ?? '', /will retry: user \S+: Throttling: Rate exceeded/)
  for (let seconds = 0; seconds < 60; seconds += 5) {
    world.pass(5)
    await world.work()
    await world.sweep()
  }
  assert.equal(world.users().length, 2)
  world.aws.unscript()
  // Within the longest pauses between two attempts.
  for (let seconds = 0; seconds < 60 && world.users().length > 0; seconds += 5) {
    world.pass(5)
    await world.work()
    await world.sweep()
  }
  assert.deepEqual(world.users(), [])
  assert.equal((await world.world.core.leases.counts()).leases, 0)
})

test('leaves one key when two servers rotate the same root key, and reports the failure to the other', async (t) => {
  const world = await CloudWorld.open(t)
  const second = await CoreWorld.open(t, { engines: [cloud] })
  await second.ask('POST', 'sys/mounts/cloud', { type: 'cloud' })
  await second.ask('POST', 'cloud/config/root', {
    access_key: world.rootKey.id,
    secret_key: world.rootKey.secret,
    iam_endpoint: world.aws.url,
    sts_endpoint: world.aws.url,
    max_retries: 0,
  })
  const both = await Promise.all([
    world.ask('POST', 'cloud/config/rotate-root'),
    second.ask('POST', 'cloud/config/rotate-root'),
  ])
  const good = both.filter(({ status }) => status === 200)
  assert.equal(good.length, 1, both.map(({ text }) => text).join())
  const refused = both.find(({ status }) => status !== 200)
  assert.equal(refused?.status, 400)
  assert.match(refused?.body.errors[0] ?? '', /LimitExceeded|must be the only one|InvalidClientTokenId/)
  assert.deepEqual(
    world.rootUser.keys.map(({ id }) => id),
    [good[0]?.body.data['access_key']],
  )
  // The loser says what to do, and works on with the key that it is given.
  const loser = both[0]?.status === 200 ? second : world.world
  const { id, secret } = world.rootUser.keys[0] ?? { id: '', secret: '' }
  const wrong = await loser.ask('POST', 'cloud/config/rotate-root')
  assert.match(wrong.body.errors[0] ?? '', /the access key of config\/root is wrong, deleted, or not active yet/)
  assert.equal((await loser.ask('POST', 'cloud/config/root', { access_key: id, secret_key: secret })).status, 204)
  assert.equal((await loser.ask('POST', 'cloud/config/rotate-root')).status, 200)
})

test('names a region that does not match the endpoint', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const text = "Credential should be scoped to a valid region, not 'eu-west-1'."
  world.aws.script('CreateUser', { error: new AwsError('SignatureDoesNotMatch', text, 403) })
  const { body } = await world.ask('GET', 'cloud/creds/app')
  assert.match(body.errors[0] ?? '', /SignatureDoesNotMatch: Credential should be scoped.*\(the region is not that of/)
})
