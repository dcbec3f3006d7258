/** Sessions that callers of one role share. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { unavailable } from '../../helpers/aws/endpoint.ts'
import { SessionCache } from '../../../src/engines/cloud/mount/session-cache.ts'
import { CloudWorld, POLICY } from '../../helpers/cloud-world.ts'

/** Several wait for an answer of AWS, and a defect would make them wait for ever. */
const LIMIT = { timeout: 120_000 }

async function cached(t: TestContext, more: object = {}) {
  const world = await CloudWorld.open(t)
  const arn = world.aws.account.addRole('deploy')
  const role = { credential_type: 'assumed_role', role_arns: arn, cache_ttl: '20m', ...more }
  const write = (body: object = role) => world.ask('POST', 'cloud/roles/deploy', body)
  assert.equal((await write()).status, 204)
  const ask = (query = '') => world.good('GET', `cloud/creds/deploy${query}`)
  const asked = () => world.aws.actions().filter((action) => action === 'AssumeRole').length
  return { world, ask, asked, write, role }
}

test('shares one session between 500 concurrent callers, each with its own lease', LIMIT, async (t) => {
  const { ask, asked, world } = await cached(t)
  const answers = await Promise.all(Array.from({ length: 500 }, () => ask()))
  assert.equal(asked(), 1)
  assert.equal(new Set(answers.map(({ body }) => body['lease_id'])).size, 500)
  assert.equal(new Set(answers.map(({ body }) => body.data['session_token'])).size, 1)
  world.pass(1000)
  const { body } = await ask()
  assert.deepEqual([asked(), body.data['ttl'], body['lease_duration']], [1, 2600, 2600])
  assert.deepEqual((await world.good('GET', 'cloud/roles/deploy')).body.data['cache_ttl'], 1200)
})

test(
  'creates a new session when the old one is old, half expired or revoked, or after a change of role or root',
  LIMIT,
  async (t) => {
    const { ask, asked, role, world, write } = await cached(t)
    const first = await ask()
    world.pass(1201)
    await ask()
    assert.equal(asked(), 2, 'older than cache_ttl')
    await ask('?ttl=900')
    world.pass(451)
    await ask('?ttl=900')
    assert.equal(asked(), 4, 'less than half of it is left')
    await world.good('POST', 'sys/leases/revoke', { lease_id: first.body['lease_id'] })
    const third = await ask()
    assert.equal(asked(), 4, 'that of another session')
    await world.good('POST', 'sys/leases/revoke', { lease_id: third.body['lease_id'] })
    await ask()
    assert.equal(asked(), 5, 'revoked')
    await write({ ...role, policy_document: POLICY })
    await ask()
    assert.equal(asked(), 6, 'the role was written')
    await world.good('POST', 'cloud/config/root', { max_retries: 1 })
    await ask()
    assert.equal(asked(), 7, 'the root was written')
  },
)

test('shares only sessions with equal parameters, and none without cache_ttl', LIMIT, async (t) => {
  const { ask, asked, world, write } = await cached(t)
  await Promise.all([ask('?role_session_name=one'), ask('?role_session_name=two'), ask('?ttl=900'), ask()])
  assert.equal(asked(), 4)
  assert.equal((await write({ cache_ttl: 0 })).status, 204)
  await Promise.all([ask(), ask()])
  assert.equal(asked(), 6)
  assert.equal((await world.good('GET', 'cloud/roles/deploy')).body.data['cache_ttl'], undefined)
  assert.equal((await write()).status, 204)
  await ask()
  assert.equal((await world.ask('POST', 'sys/mounts/cloud/tune', { max_lease_ttl: '30m' })).status, 204)
  const { body } = await ask()
  assert.deepEqual([asked(), body['lease_duration']], [7, 1800], 'a shorter maximum of the mount')
})

test('a session of one ARN is not that of another', LIMIT, async (t) => {
  const { asked, role, world, write } = await cached(t)
  const arns = [role.role_arns, world.aws.account.addRole('other')]
  assert.equal((await write({ ...role, role_arns: arns })).status, 204)
  const made = await Promise.all(arns.map((arn) => world.good('GET', `cloud/creds/deploy?role_arn=${arn}`)))
  assert.equal(asked(), 2)
  for (const [at, { body }] of made.entries()) assert.match(String(body.data['arn']), at === 0 ? /deploy/ : /other/)
})

test('of all roles together so many sessions are kept, and the role with most of them loses its oldest', async () => {
  const cache = new SessionCache()
  let made = 0
  const lease = { ttlSeconds: 3600, maxTtlSeconds: 3600, renewable: false, internal: {} }
  const session = (role: string, at: number) => {
    const by = { role, caller: 'caller', key: [at], cacheSeconds: 3600, now: () => 0 }
    return cache.get(by, async () => ({ data: { access_key: `AKIA${++made}` }, lease }))
  }
  const isKept = async (role: string, at: number) => (await session(role, at)).isShared
  const counts = { one: 199, two: 199, three: 199, four: 199, largest: 200, small: 4 }
  for (const [role, count] of Object.entries(counts)) for (let at = 0; at < count; at++) await session(role, at)
  assert.deepEqual([made, await isKept('largest', 0)], [1000, true])
  await session('one more', 0)
  for (const role of ['one', 'four', 'small', 'one more']) assert.equal(await isKept(role, 0), true, role)
  assert.equal(await isKept('largest', 0), false)
})

test('leases of a session expire with it, also after a slow response', LIMIT, async (t) => {
  const { ask, asked, world } = await cached(t)
  const [arrived, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  world.aws.chaos = () => {
    arrived.resolve()
    return { answerGate: answered.promise }
  }
  const first = ask()
  await arrived.promise
  // STS has made the session, and its answer is under way for 40 s. Another caller comes in the middle.
  const expiresAtMs = world.world.nowMs + 3600_000
  world.pass(10)
  const second = ask()
  world.pass(30)
  answered.resolve()
  const answers = await Promise.all([first, second])
  assert.equal(asked(), 1)
  for (const { body } of answers) {
    assert.deepEqual([body.data['ttl'], body['lease_duration']], [3560, 3560])
    const lease = await world.good('POST', 'sys/leases/lookup', { lease_id: body['lease_id'] })
    assert.equal(Date.parse(String(lease.body.data['expire_time'])), expiresAtMs)
  }
})

test(
  'reports a failure to all waiting callers and retries for the next; a disconnected caller affects no other',
  LIMIT,
  async (t) => {
    const { ask, asked, world } = await cached(t)
    world.aws.script('AssumeRole', { error: unavailable() })
    const failed = await Promise.all([1, 2, 3].map(() => world.ask('GET', 'cloud/creds/deploy')))
    assert.deepEqual(
      failed.map(({ status }) => status),
      [502, 502, 502],
    )
    const [arrived, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    world.aws.chaos = () => {
      arrived.resolve()
      return { gate: answered.promise }
    }
    const leaver = new AbortController()
    const left = world.world.ask('GET', 'cloud/creds/deploy', undefined, { signal: leaver.signal })
    await arrived.promise
    const stays = ask()
    leaver.abort()
    answered.resolve()
    await Promise.allSettled([left, stays])
    assert.equal((await stays).status, 200)
    assert.equal(asked(), 2)
  },
)

test('refuses cache_ttl for roles whose sessions cannot be shared', LIMIT, async (t) => {
  const { world } = await cached(t)
  const refused: readonly (readonly [object, RegExp])[] = [
    [{ credential_type: 'iam_user', policy_document: POLICY, cache_ttl: 60 }, /cache_ttl parameter only valid for/],
    [
      { credential_type: 'session_token', mfa_serial_number: 'arn:aws:iam::123456789012:mfa/x', cache_ttl: 60 },
      /cannot supply cache_ttl with mfa_serial_number/,
    ],
    [{ policy: POLICY, cache_ttl: 60 }, /cannot supply deprecated role or policy parameters with cache_ttl/],
  ]
  for (const [body, text] of refused) {
    const answer = await world.ask('POST', 'cloud/roles/other', body)
    assert.equal(answer.status, 400)
    assert.match(answer.body.errors[0] ?? '', text)
  }
})

test('evicts only sessions of the caller with most sessions', LIMIT, async (t) => {
  const { ask, asked, role, world } = await cached(t)
  await world.good('POST', 'cloud/roles/other', role)
  await world.good('POST', 'sys/policies/acl/cloud', { policy: 'path "cloud/creds/*" { capabilities = ["read"] }' })
  const { body } = await world.good('POST', 'auth/token/create', { policies: ['cloud'] })
  const token = String(body.auth['client_token'])
  await ask()
  await ask('?role_session_name=mine')
  await world.good('GET', 'cloud/creds/other')
  const flood = async (from: number, count: number) => {
    const names = Array.from({ length: count }, (_, at) => `cloud/creds/deploy?role_session_name=n${from + at}`)
    const answers = await Promise.all(names.map((path) => world.world.ask('GET', path, undefined, { token })))
    return answers.map(({ status }) => status)
  }
  for (let from = 0; from < 240; from += 30) {
    assert.ok((await flood(from, 30)).every((status) => status === 200))
  }
  const before = asked()
  await ask()
  await ask('?role_session_name=mine')
  await world.good('GET', 'cloud/creds/other')
  await flood(230, 10)
  assert.equal(asked(), before, 'those of others, and its own newest, are there')
  await flood(0, 1)
  assert.equal(asked(), before + 1, 'its oldest is not')

  // So many are made at once, and so many wait.
  const [begun, answered] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  let waiting = 0
  world.aws.chaos = () => {
    if (++waiting === 32) begun.resolve()
    return { gate: answered.promise }
  }
  const many = flood(1000, 40)
  await begun.promise
  const others = Array.from({ length: 3 }, (_, at) => ask(`?role_session_name=late${at}`))
  const refused = await world.world.ask('GET', 'cloud/creds/deploy?role_session_name=x', undefined, { token })
  assert.deepEqual(
    [refused.status, refused.body.errors],
    [429, ['too many sessions of this role are being created for this caller, try again later']],
  )
  assert.equal(waiting, 32, 'no more of one role at a time')
  answered.resolve()
  await Promise.all(others)
  const statuses = await many
  assert.deepEqual(
    [statuses.filter((each) => each === 200).length, statuses.filter((each) => each === 429).length],
    [32, 8],
  )
})
