/** Metrics of the roles of a mount. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { RoleMetrics } from '../../../src/engines/cloud/mount/cloud-mount.ts'
import { throttled } from '../../helpers/aws/endpoint.ts'
import { AwsError } from '../../helpers/aws/wire.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'

test('counts credentials, shared sessions, failures and revocations by role', async (t) => {
  const world = await CloudWorld.open(t)
  await world.userRole()
  const role_arns = world.aws.account.addRole('deploy')
  await world.good('POST', 'cloud/roles/deploy', { credential_type: 'assumed_role', role_arns, cache_ttl: '10m' })
  for (let count = 0; count < 3; count++) await world.good('GET', 'cloud/creds/deploy')
  for (let count = 0; count < 2; count++) await world.good('GET', 'cloud/creds/app?wait=false')
  world.aws.script('CreateUser', { error: throttled() })
  await world.ask('GET', 'cloud/creds/app?wait=false')
  await world.ask('GET', 'cloud/sts/deploy?role_arn=arn:aws:iam::1:role/other')
  await world.ask('GET', 'cloud/creds/none')
  world.aws.script('DeleteAccessKey', { error: new AwsError('AccessDenied', 'no', 403) })
  await world.ask('PUT', 'sys/leases/revoke-prefix/cloud/creds/app')
  const mount = world.world.core.open.mounts.get('cloud/')
  assert.ok(mount)
  const told = mount.engine.metrics?.({ mount: mount.facts, storage: mount.storage }) ?? []
  const rows = told.flatMap(({ name, points }) =>
    points.map(({ labels, value }) => `${name} ${Object.values(labels).join(' ')} ${value}`),
  )
  assert.deepEqual(rows.sort(), [
    'outpost.cloud.credentials cloud/ app 2',
    'outpost.cloud.credentials cloud/ deploy 3',
    'outpost.cloud.failures cloud/ app outside 1',
    'outpost.cloud.failures cloud/ deploy refused 1',
    'outpost.cloud.revocations cloud/ app failed 1',
    'outpost.cloud.revocations cloud/ app revoked 1',
    'outpost.cloud.shared_sessions cloud/ deploy 2',
  ])
})

test('counts roles above the limit as other', () => {
  const counts = new RoleMetrics()
  for (let count = 0; count < 300; count++) counts.add('credentials', `r${count}`)
  counts.add('credentials', 'r7')
  const points = counts.metrics('cloud/').flatMap((each) => each.points)
  assert.equal(points.length, 101)
  assert.deepEqual(
    points.filter(({ value }) => value > 1).map(({ labels, value }) => [labels['role'], value]),
    [
      ['r7', 2],
      ['other', 200],
    ],
  )
})
