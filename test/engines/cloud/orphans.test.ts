/** Users in AWS that no lease stands for: told, and removed on request. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { AwsError } from '../../helpers/aws/wire.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'

test('lists the user of a lease removed by force as orphan', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  for (let count = 0; count < 3; count++) await world.good('GET', 'cloud/creds/app?wait=false')
  assert.deepEqual((await world.good('GET', 'cloud/orphans')).body.data, { orphans: [] })
  world.aws.script('DeleteAccessKey', { error: new AwsError('AccessDenied', 'no', 403), times: 2 })
  await world.good('POST', 'sys/leases/revoke-force/cloud/creds/app')
  const [one = '', two = ''] = world.users()
  assert.equal(world.users().length, 2)
  // Users of others, and of other mounts, are none of ours.
  world.aws.account.addUser('somebody')
  world.aws.account.addUser('other').tags.set('outpost:mount', 'another')
  world.aws.pageSize = 2
  const told = (await world.good('GET', 'cloud/orphans')).body.data['orphans'] as { username: string }[]
  assert.deepEqual(told.map(({ username }) => username).sort(), [one, two])
  await world.good('POST', 'cloud/orphans', {})
  assert.equal(world.users().length, 4)
  const first = await world.good('POST', 'cloud/orphans', { remove: true, usernames: [one, 'somebody'] })
  assert.deepEqual(first.body.data, { removed: [one], failed: {} })
  world.aws.script('DeleteUser', { error: new AwsError('AccessDenied', 'no', 403) })
  const second = await world.good('POST', 'cloud/orphans', { remove: true })
  assert.deepEqual(second.body.data, { removed: [], failed: { [two]: 'AccessDenied: no' } })
  await world.good('POST', 'cloud/orphans', { remove: true })
  assert.deepEqual(world.users(), ['other', 'somebody'])
  assert.deepEqual((await world.good('GET', 'cloud/orphans')).body.data, { orphans: [] })
})

test('refuses to disable a mount while AWS may have users of it', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  world.aws.script('CreateAccessKey', { error: new AwsError('LimitExceeded', 'no', 409) })
  world.aws.script('DeleteUser', { error: new AwsError('AccessDenied', 'no', 403), times: 1000 })
  await world.ask('GET', 'cloud/creds/app?wait=false')
  const answer = await world.ask('DELETE', 'sys/mounts/cloud')
  assert.equal(answer.status, 400)
  const text = 'AWS users and keys that may have no lease and cannot be removed yet: 1; AccessDenied: no'
  assert.deepEqual(answer.body.errors, [text])
  world.aws.unscript()
  await world.good('DELETE', 'sys/mounts/cloud')
  assert.deepEqual(world.users(), [])
})
