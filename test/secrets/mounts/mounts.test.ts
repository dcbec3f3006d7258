/** Mounts: enabling, listing, tuning, moving, disabling, as HTTP asks for them. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import type { Engine } from '../../../src/engines/framework/engine.ts'
import { kv } from '../../../src/engines/kv/kv.ts'
import { userpass } from '../../../src/auth/userpass/userpass.ts'
import { ttlLimitsOf } from '../../../src/secrets/mounts/mount-ttl.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { MountTestEngine } from '../../helpers/mount-test-engine.ts'

async function open(t: TestContext, engines: readonly Engine[] = []) {
  const shelf = new MountTestEngine()
  const world = await CoreWorld.open(t, { engines: [shelf.engine, kv, ...engines] })
  const ok = async (method: string, path: string, body?: unknown) => {
    const answer = await world.ask(method, path, body)
    assert.ok(answer.status < 300, `${method} ${path}: ${answer.status} ${answer.text}`)
    return answer
  }
  const refused = async (method: string, path: string, body: unknown, status: number, ...errors: string[]) => {
    const answer = await world.ask(method, path, body)
    assert.deepEqual([answer.status, answer.body.errors], [status, errors], `${method} ${path}`)
  }
  return { world, shelf, ok, refused }
}

/** How many entries lie below the barrier for mounts' data and their records. */
function entries({ store }: CoreWorld): { data: number; records: number } {
  return { data: store.paths('logical/').length, records: store.paths('core/mounts/').length }
}

test('a mount is enabled, used and removed with all its data when it is disabled', async (t) => {
  const { ok, refused, world } = await open(t)
  const before = entries(world)
  await ok('POST', 'sys/mounts/team/a/things', { type: 'shelf', description: 'd', config: { max_lease_ttl: '2h' } })
  for (let at = 0; at < 1100; at += 100) {
    await Promise.all(Array.from({ length: 100 }, (_, n) => ok('POST', `team/a/things/f/${at + n}`, { thing: at + n })))
  }
  assert.equal((await ok('GET', 'team/a/things/f/7')).body.data['thing'], '{"thing":7}')
  const info = (await ok('GET', 'sys/mounts/team/a/things/')).body
  assert.equal(info.data['type'], 'shelf')
  assert.equal(info['description'], 'd', 'also beside the envelope, for old clients')
  assert.match(String(info.data['accessor']), /^shelf_[0-9a-f]{8}$/)
  assert.deepEqual(info.data['config'], { default_lease_ttl: 0, force_no_cache: false, max_lease_ttl: 7200 })
  const { secret } = { secret: world.core.open.mounts.get('team/a/things/')?.record.secret ?? 'none' }
  assert.ok(!JSON.stringify([info, (await ok('GET', 'sys/mounts')).body]).includes(secret))
  await ok('DELETE', 'sys/mounts/team/a/things')
  await refused(
    'GET',
    'team/a/things/f/7',
    undefined,
    404,
    'no handler for route "team/a/things/f/7". route entry not found.',
  )
  assert.deepEqual(entries(world), before)
  await ok('DELETE', 'sys/mounts/team/a/things')
  await ok('POST', 'sys/mounts/team/a/things', { type: 'shelf' })
  assert.equal((await world.ask('GET', 'team/a/things/f/7')).status, 404, 'nothing of its forerunner')
})

test('conflicting and reserved paths are refused', async (t) => {
  const { ok, refused } = await open(t)
  await ok('POST', 'sys/mounts/a/b', { type: 'shelf' })
  for (const path of ['a/b', 'a/b/', 'a/b/c', 'a', 'a/b/c/d']) {
    await refused(
      'POST',
      `sys/mounts/${path.replace(/\/$/, '')}`,
      { type: 'shelf' },
      400,
      'path is already in use at a/b/',
    )
  }
  await ok('POST', 'sys/mounts/ab', { type: 'shelf' })
  await ok('POST', 'sys/mounts/a/bc', { type: 'shelf' })
  for (const path of [
    'sys',
    'sys/x',
    'auth',
    'auth/x',
    'audit',
    'cubbyhole',
    'cubbyhole/x',
    'identity',
    'identity/x',
  ]) {
    await refused('POST', `sys/mounts/${path}`, { type: 'shelf' }, 400, `cannot mount "${path}/"`)
    await refused('DELETE', `sys/mounts/${path}`, undefined, 400, `cannot unmount "${path}/"`)
  }
  await refused('POST', 'sys/auth/x', { type: 'shelf' }, 400, 'plugin not found in the catalog: shelf')
  await refused('POST', 'sys/auth/x', { type: 'userpass' }, 400, 'plugin not found in the catalog: userpass')
  await refused('POST', 'sys/auth/x', { type: 'token' }, 400, 'token credential backend cannot be instantiated')
  await refused('DELETE', 'sys/auth/token', undefined, 400, 'token credential backend cannot be disabled')
  await refused('POST', 'sys/mounts/x', { type: 'system' }, 400, 'mount type of "system" is not mountable')
  await ok('DELETE', 'sys/auth/none')
})

test('of many concurrent requests for one path one succeeds', async (t) => {
  const { ok, world } = await open(t)
  const asked = ['x', 'x', 'x/y', 'x', 'x/y/z', 'x'].map((path) => {
    return world.ask('POST', `sys/mounts/${path}`, { type: 'shelf' })
  })
  const statuses = (await Promise.all(asked)).map(({ status }) => status)
  assert.deepEqual([statuses.indexOf(204), statuses.filter((each) => each === 400).length], [0, 5])
  await ok('POST', 'sys/mounts/from1', { type: 'shelf' })
  await ok('POST', 'sys/mounts/from2', { type: 'shelf' })
  const moves = await Promise.all([
    world.ask('POST', 'sys/remount', { from: 'from1', to: 'to' }),
    world.ask('POST', 'sys/remount', { from: 'from2', to: 'to' }),
    world.ask('POST', 'sys/mounts/to', { type: 'shelf' }),
  ])
  assert.deepEqual(
    moves.map(({ status }) => status),
    [200, 400, 400],
  )
  const both = await Promise.all([
    world.ask('POST', 'sys/remount', { from: 'to', to: 'to2' }),
    world.ask('POST', 'sys/remount', { from: 'to', to: 'to3' }),
  ])
  assert.deepEqual(
    both.map(({ status }) => status),
    [200, 400],
  )
  const twice = await Promise.all([world.ask('DELETE', 'sys/mounts/to2'), world.ask('DELETE', 'sys/mounts/to2')])
  assert.deepEqual(
    twice.map(({ status }) => status),
    [204, 204],
  )
})

test('concurrent tunings of a mount do not overwrite each other', async (t) => {
  const { ok, world } = await open(t)
  await ok('POST', 'sys/mounts/x', { type: 'shelf' })
  await Promise.all([
    ok('POST', 'sys/mounts/x/tune', { description: 'one' }),
    ok('POST', 'sys/mounts/x/tune', { max_lease_ttl: 7200 }),
    ok('POST', 'sys/mounts/x/tune', { default_lease_ttl: '1h', listing_visibility: 'unauth' }),
  ])
  const told = async () => (await ok('GET', 'sys/mounts/x/tune')).body.data
  const tuned = {
    description: 'one',
    default_lease_ttl: 3600,
    max_lease_ttl: 7200,
    force_no_cache: false,
    listing_visibility: 'unauth',
    options: { depth: '1' },
  }
  assert.deepEqual(await told(), tuned)
  await world.core.seal()
  world.unseal()
  assert.deepEqual(await told(), tuned, 'and it was written down')
})

test('settings are validated, an empty value keeps the current one, and `system` resets it', async (t) => {
  const { ok, refused, world } = await open(t)
  const set = (body: object) => ok('POST', 'sys/mounts/x/tune', body)
  await ok('POST', 'sys/mounts/x', { type: 'shelf', options: null, config: { default_lease_ttl: '0s', options: null } })
  await set({ default_lease_ttl: '90', max_lease_ttl: '1d', passthrough_request_headers: 'X-A, X-B' })
  await set({ default_lease_ttl: '', max_lease_ttl: '', force_no_cache: false })
  const config = { default_lease_ttl: 90, max_lease_ttl: 86_400, force_no_cache: false }
  const told = (await ok('GET', 'sys/mounts/x')).body.data['config']
  assert.deepEqual(told, { ...config, passthrough_request_headers: ['X-A', 'X-B'] })
  const tune = (body: object, text: string) => refused('POST', 'sys/mounts/x/tune', body, 400, text)
  await tune({ default_lease_ttl: '2d' }, 'given default lease TTL greater than given max lease TTL')
  const badTerm = 'expected seconds or a duration such as "90s", "5m" or "1h30m"'
  await tune({ max_lease_ttl: 'abc' }, `unable to parse max TTL of abc: ${badTerm}`)
  await tune({ max_lease_ttl: '-1' }, "unable to parse max TTL of -1: cannot provide negative value '-1'")
  await tune({ listing_visibility: 'x' }, 'invalid listing_visibility, expected "unauth", "hidden" or empty')
  await tune({ token_type: 'batch' }, '"token_type" can be set for auth methods only')
  await tune(
    { max_lease_ttl: 0, default_lease_ttl: '800h' },
    'given default lease TTL greater than system max lease TTL of 2764800',
  )
  await refused('POST', 'sys/mounts/none/tune', {}, 400, 'tune of path "none/" failed: no mount entry found')
  await set({ default_lease_ttl: 'system', max_lease_ttl: 'system' })
  const mount = world.core.open.mounts.get('x/')
  assert.deepEqual(mount && ttlLimitsOf(mount.record.config), {
    defaultTtlSeconds: 2_764_800,
    maxTtlSeconds: 2_764_800,
  })
  await ok('POST', 'sys/auth/token/tune', { max_lease_ttl: '1h', token_type: 'default-batch' })
  const token = world.core.open.mounts.get('auth/token/')
  assert.deepEqual(token && ttlLimitsOf(token.record.config), { defaultTtlSeconds: 3600, maxTtlSeconds: 3600 })
  const made = await ok('POST', 'auth/token/create', { policies: ['default'] })
  assert.equal(made.body.auth['lease_duration'], 3600, 'tokens live by it')
  const auth = { description: 'token based credentials', default_lease_ttl: 2_764_800, max_lease_ttl: 3600 }
  const expected = { ...auth, force_no_cache: false, token_type: 'default-batch' }
  assert.deepEqual((await ok('GET', 'sys/auth/token/tune')).body.data, expected)
  assert.deepEqual((await ok('GET', 'sys/mounts/auth/token/tune')).body.data, expected)
})

test('types, aliases and options of engines are validated', async (t) => {
  const { ok, refused } = await open(t)
  await ok('POST', 'sys/mounts/deep', { type: 'shelf-deep' })
  await ok('POST', 'sys/mounts/old', { type: 'plugin', plugin_name: 'shelf' })
  const info = (await ok('GET', 'sys/mounts/deep')).body.data
  assert.deepEqual([info['type'], info['options']], ['shelf', { depth: '2' }])
  const warned = await ok('POST', 'sys/mounts/old/tune', { options: { depth: 2 } })
  assert.deepEqual([warned.status, warned.body.warnings], [200, ['the shelf becomes deeper']])
  await refused('POST', 'sys/mounts/deep/tune', { options: { depth: '1' } }, 400, 'a shelf does not become less deep')
  await refused('POST', 'sys/mounts/y', { type: 'shelf', options: { depth: '9' } }, 400, 'depth is 1 or 2')
  await refused(
    'POST',
    'sys/mounts/y',
    { type: 'zzz' },
    400,
    'plugin not found in the catalog: zzz; supported: kv, shelf',
  )
  await refused('POST', 'sys/mounts/y', {}, 400, 'backend type must be specified as a string')
  await ok('POST', 'sys/mounts/kv', { type: 'kv-v2' })
  assert.deepEqual((await ok('GET', 'sys/mounts/kv')).body.data['options'], { version: '2' })
  await refused('POST', 'sys/mounts/kv/tune', { options: { version: 1 } }, 400, 'cannot downgrade mount from version 2')
})

const noVersion = (type: string) => `secrets engine "${type}" does not allow setting a version`

test('a mount of type aws or generic reads back with the type it was enabled with, also after a restart', async (t) => {
  const { ok, refused, world } = await open(t, [cloud])
  await ok('POST', 'sys/mounts/aws', { type: 'aws' })
  await ok('POST', 'sys/mounts/cloud', { type: 'cloud' })
  await ok('POST', 'sys/mounts/generic', { type: 'generic' })
  await ok('POST', 'sys/mounts/kv', { type: 'kv' })
  const types = async () => {
    const { data } = (await ok('GET', 'sys/mounts')).body as { data: Record<string, Record<string, unknown>> }
    const of = (path: string) => [data[path]?.['type'], data[path]?.['options']]
    return [of('aws/'), of('cloud/'), of('generic/'), of('kv/')]
  }
  const expected = [
    ['aws', null],
    ['cloud', null],
    ['generic', null],
    ['kv', {}],
  ]
  assert.deepEqual(await types(), expected)
  await ok('POST', 'generic/app', { a: '1' })
  await world.core.seal()
  world.unseal()
  assert.deepEqual(await types(), expected)
  assert.deepEqual((await ok('GET', 'generic/app')).body.data, { a: '1' }, 'a kv mount of version 1')
  assert.deepEqual((await ok('GET', 'sys/mounts/aws')).body.data['type'], 'aws')
  await ok('POST', 'aws/roles/r', { credential_type: 'iam_user', policy_arns: 'arn:aws:iam::aws:policy/x' })
  const versioned = { type: 'generic', options: { version: '2' } }
  await refused('POST', 'sys/mounts/g2', versioned, 400, noVersion('generic'))
  await refused('POST', 'sys/mounts/generic/tune', { options: { version: '2' } }, 400, noVersion('generic'))
  await refused('POST', 'sys/mounts/a2', { type: 'aws', options: { version: '2' } }, 400, noVersion('aws'))
  await ok('POST', 'sys/mounts/kv/tune', { options: { version: '2' } })
  assert.deepEqual((await types())[3], ['kv', { version: '2' }])
})

test('an auth method can be read at sys/mounts/auth/ without sudo', async (t) => {
  const { ok, refused, world } = await open(t, [userpass])
  await ok('POST', 'sys/auth/team/people', { type: 'userpass', description: 'd' })
  await ok('POST', 'sys/policies/acl/reader', { policy: 'path "sys/mounts/auth/*" { capabilities = ["read"] }' })
  const { auth } = (await ok('POST', 'auth/token/create', { policies: ['reader'] })).body
  const token = String(auth['client_token'])
  const seen = await world.ask('GET', 'sys/mounts/auth/team/people', undefined, { token })
  assert.equal(seen.status, 200, seen.text)
  assert.deepEqual(seen.body.data, (await ok('GET', 'sys/auth/team/people')).body.data)
  assert.equal(seen.body.data['type'], 'userpass')
  assert.equal((await world.ask('GET', 'sys/auth/team/people', undefined, { token })).status, 403)
  await refused('GET', 'sys/mounts/auth/none', undefined, 400, 'No secret engine mount at auth/none/')
  await refused('POST', 'sys/mounts/auth/x', { type: 'userpass' }, 400, 'cannot mount "auth/x/"')
})

test('health and seal-status report the level of the API and the version of the program', async (t) => {
  const { ok } = await open(t)
  for (const path of ['sys/health', 'sys/seal-status']) {
    const { body } = await ok('GET', path)
    const [major = 0, minor = 0] = String(body['version']).split('.').map(Number)
    assert.match(String(body['version']), /^\d+\.\d+\.\d+$/, 'a semantic version')
    assert.ok(major === 1 && minor >= 14, 'static roles of the AWS engine')
    assert.equal(body['outpost_version'], '0.0.0-test')
  }
})

test('invalid paths of mounts are refused', async (t) => {
  const { refused, world } = await open(t)
  const dots = 'a mount path cannot have an empty, "." or ".." segment'
  const print = 'a mount path can have printable characters only'
  for (const [to, text] of [
    ['a/../b', dots],
    ['..', dots],
    ['a//b', dots],
    ['a\u0000b', print],
    ['a\nb', print],
    ['a\u200bb', print],
    ['\ud800', print],
    ['a/ b', 'a segment of a mount path cannot begin or end with a space'],
    ['x'.repeat(513), 'a mount path can have at most 512 characters'],
    ['//', 'missing mount path'],
  ] as const) {
    await refused('POST', 'sys/remount', { from: 'x', to }, 400, text)
  }
  const before = entries(world)
  for (const path of ['a/../b', './a', 'a%00b', 'a%0ab', 'a%7fb']) {
    assert.equal((await world.ask('POST', `sys/mounts/${path}`, { type: 'shelf' })).status, 400, path)
  }
  assert.deepEqual(entries(world), before)
  await world.ask('POST', 'sys/mounts/a%2Fb', { type: 'shelf' })
  await world.ask('POST', 'sys/mounts//c//d', { type: 'shelf' })
  const paths = world.core.open.mounts.all().map(({ record }) => record.path)
  assert.deepEqual(paths, ['a/b/', 'auth/token/', 'c/d/', 'cubbyhole/', 'identity/', 'sys/'])
})

test('a mount moves with its data, tokens and leases', async (t) => {
  const { ok, refused, world } = await open(t)
  await ok('POST', 'sys/mounts/from', { type: 'shelf' })
  await ok('POST', 'from/x', { thing: 1 })
  const { data } = (await ok('POST', 'sys/remount', { from: '/from/', to: 'to/there' })).body
  const id = String(data['migration_id'])
  const status = (await ok('GET', `sys/remount/status/${id}`)).body.data
  const info = { source_mount: 'from/', target_mount: 'to/there/', status: 'success' }
  assert.deepEqual(status, { migration_id: id, migration_info: info })
  assert.equal((await ok('GET', 'to/there/x')).body.data['thing'], '{"thing":1}')
  assert.equal((await world.ask('GET', 'from/x')).status, 404)
  await world.core.seal()
  world.unseal()
  assert.equal((await ok('GET', 'to/there/x')).body.data['thing'], '{"thing":1}')
  await refused('POST', 'sys/remount', { from: 'from', to: 'x' }, 400, 'no matching mount at "from/"')
  await refused('POST', 'sys/remount', { from: 'to/there', to: 'to' }, 400, 'path already in use at "to/there/"')
  await refused('POST', 'sys/remount', { from: 'sys', to: 'x' }, 400, 'cannot remount "sys/"')
  await refused('POST', 'sys/remount', { from: 'to/there', to: 'identity/x' }, 400, 'cannot remount "identity/x/"')
  await refused('POST', 'sys/remount', { from: 'auth/token', to: 'auth/x' }, 400, 'cannot remount "auth/token/"')
  await refused(
    'POST',
    'sys/remount',
    { from: 'to/there', to: 'auth/x' },
    400,
    'cannot remount non-auth mount to auth mount "auth/x/"',
  )
  await refused(
    'POST',
    'sys/remount',
    { from: '', to: 'x' },
    400,
    'both "from" and "to" path must be specified as a string',
  )
  assert.equal((await world.ask('GET', 'sys/remount/status/none')).status, 404)
})

test('disabling waits for requests under way, and none of them writes after it', async (t) => {
  const { ok, shelf, world } = await open(t)
  const before = entries(world)
  await ok('POST', 'sys/mounts/x', { type: 'shelf' })
  const slow = world.ask('POST', 'x/slow/thing', { thing: 1 })
  await shelf.arrived
  let isDone = false
  const disabled = world.ask('DELETE', 'sys/mounts/x').then((answer) => {
    isDone = true
    return answer
  })
  while ((await world.ask('GET', 'x/y')).body.errors[0] === undefined) await new Promise(setImmediate)
  assert.equal(isDone, false)
  shelf.release()
  assert.equal((await slow).status, 204)
  assert.equal((await disabled).status, 204)
  assert.deepEqual(entries(world), before)
})

test('an interrupted removal continues after a restart', async (t) => {
  const { ok, world } = await open(t)
  const before = entries(world)
  await ok('POST', 'sys/mounts/x', { type: 'shelf' })
  await Promise.all(Array.from({ length: 700 }, (_, n) => ok('POST', `x/${n}`, { n })))
  // What a process leaves that is killed behind the first step.
  const mount = world.core.open.mounts.get('x/')
  assert.ok(mount)
  const value = Buffer.from(JSON.stringify({ ...mount.record, isLeaving: true }))
  await world.core.barrier.commit({ puts: [{ path: `core/mounts/${mount.record.uuid}`, value }], deletes: [] })
  await world.core.seal()
  world.unseal()
  assert.equal((await world.ask('GET', 'x/1')).status, 404)
  await ok('POST', 'sys/mounts/x', { type: 'shelf' })
  const gone = () => world.lines.some(({ message }) => message === 'mount disabled and its data removed')
  while (!gone()) await new Promise(setImmediate)
  assert.deepEqual(entries(world), { data: before.data, records: before.records + 1 })
})

test('some mount endpoints require sudo, and a token without permissions learns nothing of mounts', async (t) => {
  const { ok, world } = await open(t)
  await ok('POST', 'sys/mounts/team', { type: 'shelf' })
  const all = '["create", "read", "update", "delete", "list"]'
  const policies = {
    plain: `path "sys/*" { capabilities = ${all} }`,
    mighty: `path "sys/*" { capabilities = ${all.replace('"list"', '"list", "sudo"')} }`,
    team: 'path "team/a" { capabilities = ["read"] }',
  }
  const tokens: Record<string, string> = {}
  for (const [name, policy] of Object.entries(policies)) {
    await ok('PUT', `sys/policies/acl/${name}`, { policy })
    const made = await ok('POST', 'auth/token/create', { policies: [name], no_default_policy: true })
    tokens[name] = String(made.body.auth['client_token'])
  }
  const status = async (token: string, method: string, path: string, body?: unknown) =>
    (await world.ask(method, path, body, { token: tokens[token] ?? '' })).status
  for (const [method, path, body] of [
    ['POST', 'sys/auth/x', { type: 'zzz' }],
    ['POST', 'sys/auth/none/tune', {}],
    ['POST', 'sys/remount', { from: 'none', to: 'x' }],
    ['POST', 'sys/config/cors', {}],
    ['GET', 'sys/config/auditing/request-headers/x', undefined],
    ['LIST', 'sys/plugins/catalog/zzz', undefined],
  ] as const) {
    assert.equal(await status('plain', method, path, body), 403, path)
    assert.equal(await status('mighty', method, path, body), 400, path)
  }
  assert.equal(await status('plain', 'POST', 'sys/mounts/x', { type: 'zzz' }), 400)
  assert.equal(await status('plain', 'GET', 'sys/auth'), 200)
  for (const path of ['sys/mounts', 'sys/nope', 'none/x', 'team/b', 'sys/mounts/none']) {
    assert.equal(await status('team', 'GET', path), 403, path)
  }
  assert.equal(await status('team', 'GET', 'sys/internal/ui/mounts/team/zzz'), 200)
  assert.equal(await status('team', 'GET', 'sys/internal/ui/mounts/cubbyhole'), 403)
  assert.equal(await status('unknown', 'GET', 'sys/internal/ui/mounts'), 403)
  const seen = await world.ask('GET', 'sys/internal/ui/mounts', undefined, { token: tokens['team'] })
  assert.deepEqual([seen.body.data['auth'], Object.keys(Object(seen.body.data['secret']))], [{}, ['team/']])
  await ok('POST', 'sys/mounts/team/tune', { listing_visibility: 'unauth' })
  const shown = await world.ask('GET', 'sys/internal/ui/mounts', undefined, { token: null })
  const info = { type: 'shelf', description: '', options: { depth: '1' } }
  assert.deepEqual(shown.body.data, { auth: {}, secret: { 'team/': info } })
})
