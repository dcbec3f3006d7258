/**
 * `config/root` is pointed at another account, or another endpoint, while something that was made in the first one is there: nothing
 * that is not found in the second one counts as gone, and nothing of the second one is touched.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { AwsClients } from '../../../src/engines/cloud/aws/aws-clients.ts'
import { checkLocation, locationOf } from '../../../src/engines/cloud/aws/account.ts'
import { AwsEndpoint, unavailable } from '../../helpers/aws/endpoint.ts'
import { AwsError } from '../../helpers/aws/wire.ts'
import { CloudWorld } from '../../helpers/cloud-world.ts'

const [FIRST, SECOND] = ['123456789012', '222222222222']
const ELSEWHERE =
  /it was created in account 123456789012 at http:\S+, but config\/root is for account 222222222222 at http:\S+: write/

function rootOf(aws: AwsEndpoint, key: { readonly id: string; readonly secret: string }): object {
  return { access_key: key.id, secret_key: key.secret, iam_endpoint: aws.url, sts_endpoint: aws.url }
}

/** A world with a second account, and how config/root gets from one to the other. */
async function twoAccounts(t: TestContext, account = SECOND) {
  const world = await CloudWorld.open(t)
  const other = await AwsEndpoint.open(t, account)
  other.nowMs = () => world.world.nowMs
  const { key } = other.root()
  await world.userRole()
  return {
    world,
    other,
    away: () => world.good('POST', 'cloud/config/root', rootOf(other, key)),
    back: () => world.good('POST', 'cloud/config/root', rootOf(world.aws, world.rootKey)),
  }
}

const errorsOf = ({ body }: { body: { errors: readonly string[] } }) => body.errors.join('; ')

test('an account that could not be determined is looked up again', async (t) => {
  const world = await CloudWorld.open(t, { root: { max_retries: 0 } })
  await world.userRole()
  world.aws.script('GetCallerIdentity', { error: unavailable() })
  world.aws.script('GetUser', { error: unavailable() })
  assert.equal((await world.ask('GET', 'cloud/creds/app?wait=false')).status, 502)
  await world.good('GET', 'cloud/creds/app?wait=false')
})

test('keeps a lease while config/root is for another account and revokes it afterwards', async (t) => {
  const { away, back, other, world } = await twoAccounts(t)
  const { body } = await world.good('GET', 'cloud/creds/app?wait=false')
  const lease = { lease_id: body['lease_id'] }
  // A user of the other account that happens to have the same name is not that of the lease.
  const [name = ''] = world.users()
  other.account.addKey(other.account.addUser(name))
  await away()
  other.journal.length = 0
  const refused = await world.ask('POST', 'sys/leases/revoke', lease)
  assert.equal(refused.status, 400)
  assert.match(errorsOf(refused), ELSEWHERE)
  assert.equal(other.account.user(name).keys.length, 1)
  assert.deepEqual(world.users(), [name])
  assert.equal((await world.good('POST', 'sys/leases/lookup', lease)).body.data['ttl'], 0)
  world.pass(3600)
  await world.sweep()
  assert.deepEqual(world.users(), [name])
  await back()
  await world.good('POST', 'sys/leases/revoke', lease)
  assert.deepEqual(world.users(), [])
})

test('treats the same account at another endpoint as another location', async (t) => {
  const { away, other, world } = await twoAccounts(t, FIRST)
  const leases: unknown[] = []
  for (let count = 0; count < 2; count++) {
    leases.push((await world.good('GET', 'cloud/creds/app?wait=false')).body['lease_id'])
    if (count === 0) for (const name of world.users()) other.account.users.set(name, world.aws.account.user(name))
  }
  await away()
  await world.good('POST', 'sys/leases/revoke', { lease_id: leases[0] })
  assert.equal(other.account.users.size, 1)
  const refused = await world.ask('POST', 'sys/leases/revoke', { lease_id: leases[1] })
  const [first, second] = [world.aws.url, other.url]
  assert.match(errorsOf(refused), new RegExp(`account ${FIRST} at ${first}/, but .* account ${FIRST} at ${second}/`))
})

test('removes a user whose creation had no response only in its own account', async (t) => {
  const { away, back, other, world } = await twoAccounts(t)
  world.aws.script('CreateUser', { isCut: true, when: 'after' })
  world.aws.script('CreateUser', { isCut: true })
  assert.equal((await world.ask('GET', 'cloud/creds/app?wait=false')).status, 502)
  await away()
  other.journal.length = 0
  for (let count = 0; count < 3; count++) {
    world.pass(60)
    await world.work()
  }
  assert.equal(world.users().length, 1)
  assert.deepEqual(new Set(other.actions()), new Set(['GetCallerIdentity']))
  assert.match(errorsOf(await world.ask('DELETE', 'sys/mounts/cloud')), ELSEWHERE)
  await back()
  world.pass(60)
  await world.work()
  assert.deepEqual(world.users(), [])
})

test('lists intents of a lost account, forgets them on request and then allows disabling the mount', async (t) => {
  const { away, world } = await twoAccounts(t)
  world.aws.script('CreateAccessKey', { error: new AwsError('LimitExceeded', 'no', 409) })
  assert.equal((await world.ask('GET', 'cloud/creds/app?wait=false')).status, 400)
  assert.equal((await world.good('GET', 'cloud/orphans')).body.data['elsewhere'], undefined)
  await away()
  const [username] = world.users()
  const endpoint = `${world.aws.url}/`
  const told = (await world.good('GET', 'cloud/orphans')).body.data['elsewhere']
  assert.deepEqual(told, [{ username, account: FIRST, endpoint }])
  const forgotten = await world.good('POST', 'cloud/orphans', { forget_elsewhere: true })
  assert.deepEqual(forgotten.body.data, { forgotten: [username] })
  await world.good('DELETE', 'sys/mounts/cloud')
})

test('deletes an old root key only in its own account', async (t) => {
  const { away, other, world } = await twoAccounts(t)
  world.aws.script('DeleteAccessKey', { error: new AwsError('AccessDenied', 'no', 403), times: 1 })
  await world.good('POST', 'cloud/config/rotate-root')
  assert.equal(world.rootUser.keys.length, 2)
  const fresh = world.rootUser.keys.find(({ id }) => id !== world.rootKey.id)
  assert.ok(fresh)
  await away()
  world.pass(60)
  await world.work()
  assert.equal(other.account.user('root-user').keys.length, 1)
  // The other account rotates its own key meanwhile.
  await world.good('POST', 'cloud/config/rotate-root')
  await world.good('POST', 'cloud/config/root', rootOf(world.aws, fresh))
  world.pass(60)
  await world.work()
  assert.deepEqual(world.rootUser.keys, [fresh])
})

test('does not remove a static role with credentials of another account', async (t) => {
  const { away, back, other, world } = await twoAccounts(t)
  for (const { account } of [world.aws, other]) account.addUser('adopted')
  await world.good('POST', 'cloud/static-roles/one', { username: 'adopted', rotation_period: '1h' })
  await away()
  const refused = await world.ask('DELETE', 'cloud/static-roles/one')
  assert.equal(refused.status, 500)
  assert.match(errorsOf(refused), ELSEWHERE)
  await world.good('GET', 'cloud/static-creds/one')
  await back()
  await world.good('DELETE', 'cloud/static-roles/one')
  assert.equal(world.aws.account.user('adopted').keys.length, 0)
})

test('creates no user if the account is unknown', async (t) => {
  const { back, world } = await twoAccounts(t)
  await back()
  world.aws.script('GetCallerIdentity', { error: unavailable() })
  await world.good('GET', 'cloud/creds/app?wait=false')
  assert.deepEqual(world.aws.actions().slice(-4, -2), ['GetUser', 'CreateUser'])
  await back()
  for (const action of ['GetCallerIdentity', 'GetUser']) world.aws.script(action, { error: unavailable() })
  const refused = await world.ask('GET', 'cloud/creds/app?wait=false')
  assert.equal(refused.status, 502)
  assert.match(errorsOf(refused), /^Error creating IAM user: ServiceUnavailable/)
  assert.equal(world.users().length, 1)
})

test('looks up the account at IAM if STS does not respond', async (t) => {
  const world = await CloudWorld.open(t)
  const mount = world.world.core.open.mounts.get('cloud/')
  assert.ok(mount)
  const silent = Promise.withResolvers<void>()
  world.aws.script('GetCallerIdentity', { gate: silent.promise, times: 9 })
  const aws = new AwsClients(mount.storage, mount.facts.identityToken, 2000)
  t.after(() => {
    silent.resolve()
    aws.close()
  })
  const { account } = await aws.locationOf(aws.iam)
  assert.equal(account, FIRST)
  assert.equal(world.aws.actions().at(-1), 'GetUser')
})

test('treats endpoints of AWS as one location, but not other endpoints and partitions', () => {
  const arn = `arn:aws:iam::${FIRST}:user/x`
  const plain = locationOf(arn, undefined)
  for (const url of ['https://iam.amazonaws.com', 'https://iam.eu-west-1.api.aws/', 'https://x.vpce.amazonaws.com']) {
    checkLocation(plain, locationOf(arn, url))
  }
  checkLocation(undefined, plain)
  const others = [
    locationOf(arn, 'https://amazonaws.com.example'),
    locationOf(`arn:aws-cn:iam::${FIRST}:user/x`, undefined),
  ]
  for (const other of others)
    assert.throws(() => checkLocation(plain, other), /it was created in account 123456789012, but/)
  assert.throws(() => locationOf('arn:aws:iam', undefined), /no account/)
})
