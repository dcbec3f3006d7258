import assert from 'node:assert/strict'
import { test } from 'node:test'
import { CoreWorld } from '../../helpers/core-world.ts'

const READ_A = 'path "kv/a" { capabilities = ["read"] }'
const HOUR_MS = 3_600_000

test('a policy is written, read, listed and deleted', async (t) => {
  const world = await CoreWorld.open(t)
  assert.equal((await world.ask('PUT', 'sys/policies/acl/app', { policy: READ_A })).status, 204)
  const first = await world.ask('GET', 'sys/policies/acl/app')
  assert.deepEqual(first.body.data, {
    allow_slashes_in_identity_templates: false,
    allow_wildcards_in_identity_templates: false,
    cas_required: false,
    modified: new Date(world.nowMs).toISOString(),
    name: 'app',
    policy: READ_A,
    version: 1,
  })
  assert.equal((await world.ask('POST', 'sys/policies/acl/team/web', { policy: READ_A })).status, 204)
  assert.deepEqual((await world.ask('LIST', 'sys/policies/acl')).body.data, {
    keys: ['app', 'default', 'team/web', 'root'],
  })
  assert.deepEqual((await world.ask('LIST', 'sys/policies/acl/team')).body.data, { keys: ['team/web'] })
  const detailed = await world.ask('LIST', 'sys/policies/detailed/acl/team/')
  assert.match(detailed.text, /"key_info":\{"team\/web":\{.*"policy":"path/)
  assert.equal((await world.ask('DELETE', 'sys/policies/acl/app')).status, 204)
  assert.equal((await world.ask('DELETE', 'sys/policies/acl/app')).status, 204)
  const gone = await world.ask('GET', 'sys/policies/acl/app')
  assert.deepEqual([gone.status, gone.text], [404, '{"errors":[]}\n'])
})

test('an invalid policy is refused with line and column and changes nothing', async (t) => {
  const world = await CoreWorld.open(t)
  await world.ask('PUT', 'sys/policies/acl/app', { policy: READ_A })
  const cases: [string, object, string][] = [
    ['app', {}, "'policy' parameter not supplied or empty"],
    ['app', { policy: '' }, "'policy' parameter not supplied or empty"],
    ['app', { policy: 'path "a" {' }, 'failed to parse policy: 1:11: expected `}` to close what was opened at 1:10'],
    [
      'app',
      { policy: 'path "a" {}\nnode { policy = "x" }' },
      'failed to parse policy: 2:17: node: policy must be one of',
    ],
    [
      'app',
      { policy: 'path "a" {\n capabilities = ["read",\n "wrote"] }' },
      'failed to parse policy: 3:2: path "a": unknown capability "wrote", expected some of create, read,',
    ],
    ['app', { policy: 'path "a/+*" {}' }, "failed to parse policy: 1:6: path: '+*' is not allowed"],
    ['app', { policy: `# ${'x'.repeat(1 << 20)}` }, 'failed to parse policy: longer than'],
    ['root', { policy: READ_A }, 'cannot update "root" policy'],
    ['Root', { policy: READ_A }, 'cannot update "root" policy'],
    ['response-wrapping', { policy: READ_A }, 'cannot update "response-wrapping" policy'],
    [
      'app',
      { policy: READ_A, ttl: '1h', expiration: '2999-01-01T00:00:00Z' },
      'expiration and ttl are mutually exclusive',
    ],
    ['app', { policy: READ_A, expiration: 'tomorrow' }, 'expiration must be a time'],
    ['app', { policy: READ_A, expiration: '2001-01-01T00:00:00Z' }, 'expiration must be in the future'],
    ['x'.repeat(513), { policy: READ_A }, 'policy name is longer than'],
  ]
  for (const [name, body, says] of cases) {
    const { body: answer, status } = await world.ask('PUT', `sys/policies/acl/${name}`, body)
    assert.equal(status, 400, says)
    assert.ok(answer.errors[0]?.startsWith(says), `${answer.errors[0]} should begin with ${says}`)
  }
  for (const [name, says] of [
    ['root', 'cannot delete "root" policy'],
    ['response-wrapping', 'cannot delete "response-wrapping" policy'],
    ['default', 'cannot delete default policy'],
  ]) {
    assert.deepEqual((await world.ask('DELETE', `sys/policies/acl/${name}`)).body.errors, [says])
  }
  assert.equal((await world.ask('GET', 'sys/policies/acl/app')).body.data['version'], 1)
})

test('names are converted to lower case, and base64 is decoded', async (t) => {
  const world = await CoreWorld.open(t)
  const answer = await world.ask('PUT', 'sys/policies/acl/Mixed', { policy: Buffer.from(READ_A).toString('base64') })
  assert.deepEqual([answer.status, answer.body.warnings], [200, ['policy name was converted to mixed']])
  assert.equal((await world.ask('GET', 'sys/policies/acl/MIXED')).body.data['policy'], READ_A)
  assert.equal((await world.ask('DELETE', 'sys/policies/acl/mIxed')).status, 204)
})

test('the older paths of policies work', async (t) => {
  const world = await CoreWorld.open(t)
  const old = await world.ask('PUT', 'sys/policy/old', { rules: READ_A })
  assert.deepEqual([old.status, old.body.warnings], [200, ["'rules' is deprecated, please use 'policy' instead"]])
  assert.equal((await world.ask('PUT', 'sys/policy/new', { policy: READ_A })).status, 204)
  for (const verb of ['GET', 'LIST']) {
    const { body } = await world.ask(verb, 'sys/policy')
    const names = ['default', 'new', 'old', 'root']
    assert.deepEqual([body['keys'], body['policies'], body.data], [names, names, { keys: names, policies: names }])
  }
  const { body } = await world.ask('GET', 'sys/policy/old')
  assert.deepEqual([body['name'], body['rules'], body.data['rules']], ['old', READ_A, READ_A])
  assert.equal((await world.ask('DELETE', 'sys/policy/old')).status, 204)
})

test('check-and-set, patch and settings of a policy work', async (t) => {
  const world = await CoreWorld.open(t)
  const put = async (body: object) => {
    const { status, body: answer } = await world.ask('PUT', 'sys/policies/acl/app', { policy: READ_A, ...body })
    return status === 204 ? 204 : answer.errors[0]
  }
  const version = async () => (await world.ask('GET', 'sys/policies/acl/app')).body.data['version']
  const differs = 'check-and-set parameter did not match the current version'
  assert.equal(await put({ cas: 1 }), differs)
  assert.equal(await put({ cas: -1 }), 204)
  assert.equal(await put({ cas: 0 }), differs)
  assert.equal(await put({ cas: 1, cas_required: true }), 204)
  assert.equal(await put({}), 'check-and-set parameter required for this call')
  assert.equal(await version(), 2)
  const patched = await world.ask('PATCH', 'sys/policies/acl/app', {
    allow_slashes_in_identity_templates: true,
    cas: 2,
  })
  assert.equal(patched.status, 200)
  const { data } = (await world.ask('GET', 'sys/policies/acl/app')).body
  assert.deepEqual(
    [data['version'], data['cas_required'], data['allow_slashes_in_identity_templates'], data['policy']],
    [3, true, true, READ_A],
  )
  assert.equal(await put({ cas: 3 }), 204)
  assert.equal((await world.ask('GET', 'sys/policies/acl/app')).body.data['cas_required'], false)
  assert.equal((await world.ask('PATCH', 'sys/policies/acl/none', { policy: READ_A })).status, 404)
  // Ten writers who all mean the same version: one of them wins.
  const answers = await Promise.all(Array.from({ length: 10 }, () => put({ cas: 4 })))
  assert.equal(answers.filter((each) => each === 204).length, 1)
  assert.equal(await version(), 5)
})

test('an expired policy has no effect, and a later change removes its entries', async (t) => {
  const world = await CoreWorld.open(t)
  await world.ask('PUT', 'sys/policies/acl/short', { policy: READ_A, ttl: '1h' })
  const names = async () => (await world.ask('LIST', 'sys/policies/acl')).body.data['keys']
  const entries = () => world.core.barrier.list('sys/policy/')
  const allowed = () => world.core.open.policies.acl(['short'], world.nowMs).decide({ operation: 'read', path: 'kv/a' })
  assert.ok(allowed().allowed)
  assert.equal(
    (await world.ask('GET', 'sys/policies/acl/short')).body.data['expiration'],
    new Date(world.nowMs + HOUR_MS).toISOString(),
  )
  world.nowMs += HOUR_MS
  assert.ok(!allowed().allowed)
  assert.deepEqual(await names(), ['default', 'root'])
  assert.equal((await world.ask('GET', 'sys/policies/acl/short')).status, 404)
  // A clock that is wrong for an hour has cost nothing.
  await world.ask('PUT', 'sys/policies/acl/other', { policy: READ_A })
  assert.deepEqual(entries(), ['default', 'other', 'response-wrapping', 'short'])
  world.nowMs += 25 * HOUR_MS
  await world.ask('PUT', 'sys/policies/acl/other', { policy: READ_A })
  assert.deepEqual(entries(), ['default', 'other', 'response-wrapping'])
  assert.deepEqual(world.core.barrier.list('sys/policy-expiry/'), [])
})

test('a change applies to the next request, also of a token whose policy did not exist', async (t) => {
  const world = await CoreWorld.open(t)
  const acl = () => world.core.open.policies.acl(['app', 'later'], world.nowMs)
  assert.deepEqual(acl().capabilities('kv/a'), ['deny'])
  await world.ask('PUT', 'sys/policies/acl/later', { policy: READ_A })
  assert.deepEqual(acl().capabilities('kv/a'), ['read'])
  assert.equal(acl(), acl(), 'compiled once')
  await world.ask('PUT', 'sys/policies/acl/other', { policy: READ_A })
  const before = acl()
  await world.ask('PUT', 'sys/policies/acl/app', { policy: 'path "kv/a" { capabilities = ["deny"] }' })
  assert.notEqual(acl(), before)
  assert.deepEqual(acl().capabilities('kv/a'), ['deny'])
  await world.ask('DELETE', 'sys/policies/acl/app')
  assert.deepEqual(acl().capabilities('kv/a'), ['read'])
})
