/** External groups: who their members are is what the auth method of their alias reports at logins and renewals. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { approle } from '../../src/auth/approle/approle.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { reopened, writePolicy } from './token-world.ts'
import { quickUserpass } from '../helpers/quick-userpass.ts'

type Data = Readonly<Record<string, unknown>>
const ENGINES = { engines: [quickUserpass, approle] }

async function ok(world: CoreWorld, method: string, path: string, body?: object): Promise<Data> {
  const answer = await world.ask(method, path, body)
  assert.ok(answer.status === 200 || answer.status === 204, `${method} ${path}: ${answer.text}`)
  return answer.status === 204 ? {} : answer.body.data
}

/** An external group `ops` that may read `sys/auth`, with the alias `Ops` of the userpass mount, of which alice is a user. */
async function open(t: TestContext, user: object = { groups: 'ops, Ops,other' }) {
  const world = await CoreWorld.open(t, ENGINES)
  await writePolicy(world, 'auths', 'path "sys/auth" { capabilities = ["read"] }')
  await ok(world, 'POST', 'sys/auth/userpass', { type: 'userpass' })
  const accessor = await accessorOf(world, 'userpass/')
  await ok(world, 'POST', 'auth/userpass/users/alice', { password: 'right', token_ttl: '1h', ...user })
  const group = String(
    (await ok(world, 'POST', 'identity/group', { name: 'ops', type: 'external', policies: 'auths' }))['id'],
  )
  const alias = { name: 'Ops', mount_accessor: accessor, canonical_id: group }
  const aliasId = String((await ok(world, 'POST', 'identity/group-alias', alias))['id'])
  return { world, accessor, group, aliasId, alias }
}

async function accessorOf(world: CoreWorld, mount: string): Promise<string> {
  return String(((await ok(world, 'GET', 'sys/auth'))[mount] as Data)['accessor'])
}

async function login(world: CoreWorld) {
  const { auth } = (await world.ask('POST', 'auth/userpass/login/alice', { password: 'right' }, { token: null })).body
  const token = String(auth['client_token'])
  const may = async (path = 'sys/auth') => (await world.ask('GET', path, undefined, { token })).status === 200
  return { auth, token, entity: String(auth['entity_id']), may }
}

const membersOf = async (world: CoreWorld, group: string) =>
  (await ok(world, 'GET', `identity/group/id/${group}`))['member_entity_ids']

test('a login makes its entity a member of the reported groups from its first answer on', async (t) => {
  const { group, world } = await open(t)
  assert.deepEqual((await ok(world, 'GET', 'auth/userpass/users/alice'))['groups'], ['Ops', 'other'])
  const { auth, entity, may, token } = await login(world)
  assert.deepEqual([auth['policies'], auth['identity_policies']], [['auths', 'default'], ['auths']])
  assert.equal(await may(), true)
  assert.deepEqual(await membersOf(world, group), [entity])
  const read = await ok(world, 'GET', `identity/entity/id/${entity}`)
  assert.deepEqual([read['direct_group_ids'], read['group_ids']], [[group], [group]])
  assert.deepEqual((read['aliases'] as Data[])[0]?.['groups'], ['Ops', 'other'])
  const listed = (await ok(world, 'LIST', 'identity/group/id'))['key_info'] as Record<string, Data>
  assert.equal(listed[group]?.['num_member_entities'], 1)
  await world.close()
  const again = await reopened(t, world, ENGINES)
  assert.equal((await again.ask('GET', 'sys/auth', undefined, { token })).status, 200)
  assert.doesNotMatch(again.core.barrier.paths('').join('\n'), /(^|\/)ops($|\/)/im)
})

test('the groups of a user are updated at each renewal and login', async (t) => {
  const { group, world } = await open(t)
  const { may, token } = await login(world)
  await ok(world, 'POST', 'auth/userpass/users/alice', { groups: 'other' })
  assert.equal(await may(), true)
  const renewed = await world.ask('POST', 'auth/token/renew-self', {}, { token })
  assert.deepEqual(renewed.body.auth['policies'], ['default'])
  assert.equal(await may(), false)
  assert.deepEqual(await membersOf(world, group), [])
  await ok(world, 'POST', 'auth/userpass/users/alice', { groups: ['OPS'] })
  assert.equal(await may(), false)
  await login(world)
  assert.equal(await may(), true)
  await ok(world, 'POST', 'auth/userpass/users/alice', { groups: '' })
  await login(world)
  assert.equal(await may(), false)
})

test('an external group has no members without its alias, its mount or the alias of the user', async (t) => {
  const { alias, aliasId, group, world } = await open(t)
  const { entity, may } = await login(world)
  await ok(world, 'DELETE', `identity/group-alias/id/${aliasId}`)
  assert.equal(await may(), false)
  const other = String((await ok(world, 'POST', 'identity/group-alias', alias))['id'])
  assert.notEqual(other, aliasId)
  assert.equal(await may(), true)
  await ok(world, 'POST', `identity/group-alias/id/${other}`, { name: 'none' })
  assert.equal(await may(), false)
  await ok(world, 'POST', `identity/group-alias/id/${other}`, { name: 'other' })
  assert.equal(await may(), true)
  const [own] = (await ok(world, 'GET', `identity/entity/id/${entity}`))['aliases'] as Data[]
  await ok(world, 'DELETE', `identity/entity-alias/id/${String(own?.['id'])}`)
  assert.equal(await may(), false)
  assert.deepEqual(await membersOf(world, group), [])
})

test('a disabled auth method no longer reports groups, also for users with another login', async (t) => {
  const { group, world } = await open(t)
  const { entity } = await login(world)
  await ok(world, 'POST', 'auth/token/roles/r', { allowed_entity_aliases: '*', allowed_policies: 'default' })
  const tokens = await accessorOf(world, 'token/')
  await ok(world, 'POST', 'identity/entity-alias', { name: 'al', mount_accessor: tokens, canonical_id: entity })
  const { auth } = (await world.ask('POST', 'auth/token/create/r', { entity_alias: 'al' })).body
  const may = async () => {
    const asked = await world.ask('GET', 'sys/auth', undefined, { token: String(auth['client_token']) })
    return asked.status === 200
  }
  assert.equal(await may(), true)
  await ok(world, 'DELETE', 'sys/auth/userpass')
  assert.equal(await may(), false)
  assert.deepEqual(await membersOf(world, group), [])
})

test('external groups have parents, metadata for templates, and members that are merged', async (t) => {
  const { group, world } = await open(t)
  await writePolicy(world, 'above', 'path "sys/mounts" { capabilities = ["read"] }')
  const template = 'path "sys/policies/acl/{{identity.groups.names.ops.metadata.site}}" { capabilities = ["read"] }'
  await writePolicy(world, 'template', template)
  await ok(world, 'POST', 'identity/group', { name: 'all', policies: 'above', member_group_ids: group })
  await ok(world, 'POST', `identity/group/id/${group}`, {
    policies: ['auths', 'template'],
    metadata: { site: 'above' },
  })
  const { entity, may } = await login(world)
  const paths = ['sys/auth', 'sys/mounts', 'sys/policies/acl/above', 'sys/policies/acl/auths']
  const allowed = async () => Promise.all(paths.map(may))
  assert.deepEqual(await allowed(), [true, true, true, false])
  const target = String((await ok(world, 'POST', 'identity/entity', { name: 'target' }))['id'])
  await ok(world, 'POST', 'identity/entity/merge', { to_entity_id: target, from_entity_ids: [entity] })
  assert.deepEqual(await membersOf(world, group), [target])
  assert.deepEqual(await allowed(), [true, true, true, false])
  await ok(world, 'POST', `identity/entity/id/${target}`, { disabled: true })
  assert.deepEqual(await allowed(), [false, false, false, false])
})

test('a login by AppRole makes its entity a member of the groups of the role', async (t) => {
  const { alias, world } = await open(t)
  await ok(world, 'POST', 'sys/auth/approle', { type: 'approle' })
  await ok(world, 'POST', 'auth/approle/role/web', { groups: 'web' })
  const accessor = await accessorOf(world, 'approle/')
  const made = await ok(world, 'POST', 'identity/group-alias', { name: 'web', mount_accessor: accessor })
  const group = String(made['canonical_id'])
  await ok(world, 'POST', `identity/group/id/${group}`, { policies: 'auths' })
  const roleId = (await ok(world, 'GET', 'auth/approle/role/web/role-id'))['role_id']
  const secretId = (await ok(world, 'POST', 'auth/approle/role/web/secret-id'))['secret_id']
  const pair = { role_id: roleId, secret_id: secretId }
  const { auth } = (await world.ask('POST', 'auth/approle/login', pair, { token: null })).body
  assert.deepEqual(auth['identity_policies'], ['auths'])
  assert.deepEqual((await ok(world, 'GET', 'auth/approle/role/web/groups'))['groups'], ['web'])
  await ok(world, 'DELETE', 'auth/approle/role/web/groups')
  const renewed = await world.ask('POST', 'auth/token/renew-self', {}, { token: String(auth['client_token']) })
  assert.deepEqual(renewed.body.auth['policies'], ['default'])
  assert.equal((await world.ask('POST', 'identity/group-alias', { ...alias, canonical_id: group })).status, 400)
})

test('group aliases are created, looked up, changed, listed and removed, and invalid ones are refused', async (t) => {
  const { accessor, alias, aliasId, group, world } = await open(t)
  const refused = async (body: object, text: string, path = 'identity/group-alias') => {
    const answer = await world.ask('POST', path, body)
    assert.deepEqual([answer.status, answer.body.errors[0]], [400, text])
  }
  const read = async () => ok(world, 'GET', `identity/group-alias/id/${aliasId}`)
  const first = await read()
  assert.deepEqual(
    [first['name'], first['canonical_id'], first['mount_path'], first['mount_type'], first['mount_accessor']],
    ['Ops', group, 'auth/userpass/', 'userpass', accessor],
  )
  assert.equal((await world.ask('POST', 'identity/group-alias', alias)).status, 204)
  assert.equal((await world.ask('POST', `identity/group-alias/id/${aliasId}`, alias)).status, 204)
  assert.deepEqual(await read(), first)
  await refused({ ...alias, name: '' }, 'missing name of the alias')
  await refused({ ...alias, mount_accessor: '' }, 'missing mount_accessor')
  await refused({ ...alias, mount_accessor: 'x' }, 'invalid mount accessor')
  await refused({ ...alias, canonical_id: 'x' }, "invalid group ID given in 'canonical_id'")
  await refused({ ...alias, id: 'x' }, 'invalid group alias ID')
  await refused(alias, 'invalid group alias ID', 'identity/group-alias/id/x')
  await refused(
    { name: 'OPS', mount_accessor: accessor },
    'combination of mount and group alias name is already in use',
  )
  const inner = String((await ok(world, 'POST', 'identity/group', { name: 'inner' }))['id'])
  await refused({ ...alias, name: 'x', canonical_id: inner }, "alias can't be set on an internal group")
  const made = await ok(world, 'POST', 'identity/group-alias', { name: 'fresh', mount_accessor: accessor })
  const fresh = await ok(world, 'GET', `identity/group/id/${String(made['canonical_id'])}`)
  assert.deepEqual([fresh['type'], (fresh['alias'] as Data)['name']], ['external', 'fresh'])
  await ok(world, 'POST', `identity/group-alias/id/${aliasId}`, { canonical_id: made['canonical_id'] })
  assert.deepEqual((await ok(world, 'GET', `identity/group/id/${group}`))['alias'], {})
  assert.deepEqual((await ok(world, 'LIST', 'identity/group-alias/id'))['keys'], [aliasId])
  const found = await ok(world, 'POST', 'identity/lookup/group', {
    alias_name: 'ops',
    alias_mount_accessor: accessor,
  })
  assert.equal(found['id'], made['canonical_id'])
  assert.equal((await ok(world, 'POST', 'identity/lookup/group', { alias_id: aliasId }))['id'], made['canonical_id'])
  await ok(world, 'DELETE', `identity/group-alias/id/${aliasId}`)
  await ok(world, 'DELETE', `identity/group-alias/id/${aliasId}`)
  assert.equal((await world.ask('GET', `identity/group-alias/id/${aliasId}`)).status, 404)
  assert.equal((await world.ask('LIST', 'identity/group-alias/id')).status, 404)
})

test('invalid group names are refused and change nothing', async (t) => {
  const { world } = await open(t)
  const many = Array.from({ length: 65 }, (_, at) => `g${at}`)
  for (const [groups, text] of [
    [many, /at most 64 groups/],
    [['x'.repeat(513)], /at most 512 printable characters/],
    [['a\nb'], /printable/],
  ] as const) {
    const answer = await world.ask('POST', 'auth/userpass/users/alice', { groups })
    assert.equal(answer.status, 400)
    assert.match(String(answer.body.errors[0]), text)
  }
  assert.deepEqual((await ok(world, 'GET', 'auth/userpass/users/alice'))['groups'], ['Ops', 'other'])
})

test('generated names are unique', async (t) => {
  const world = await CoreWorld.open(t)
  const made = await ok(world, 'POST', 'identity/entity', {})
  const group = await ok(world, 'POST', 'identity/group', {})
  assert.deepEqual([made['name'], group['name']], [`entity_${String(made['id'])}`, `group_${String(group['id'])}`])
})

const folder = (inner: string) => `path "sys/policies/acl/{{identity.${inner}}}" { capabilities = ["read"] }`

test('templates use the alias, entity and groups of the login, with tokens of every type', async (t) => {
  const { accessor, group, world } = await open(t)
  const templates = [
    folder(`entity.aliases.${accessor}.name`),
    folder('entity.id'),
    folder(`groups.ids.${group}.name`),
    folder('groups.names.none.name'),
  ]
  await writePolicy(world, 'own', templates.join('\n'))
  await ok(world, 'POST', 'auth/userpass/users/alice', { token_policies: 'own' })
  const { auth, entity, token } = await login(world)
  assert.deepEqual(auth['token_policies'], ['default', 'own'])
  const sayChild = { policies: ['own'], no_default_policy: true }
  await writePolicy(world, 'auths', 'path "auth/token/create" { capabilities = ["update"] }')
  const batch = (await world.ask('POST', 'auth/token/create', { ...sayChild, type: 'batch' }, { token })).body.auth
  const service = (await world.ask('POST', 'auth/token/create', sayChild, { token })).body.auth
  for (const each of [token, String(batch['client_token']), String(service['client_token'])]) {
    const answers = ['alice', entity, 'ops', 'none', 'bob', group].map((name) =>
      world.ask('GET', `sys/policies/acl/${name}`, undefined, { token: each }),
    )
    const allowed = (await Promise.all(answers)).map(({ status }) => status !== 403)
    assert.deepEqual(allowed, [true, true, true, false, false, false])
  }
  // A token without an entity has none of it.
  const { client_token: none } = (await world.ask('POST', 'auth/token/create', sayChild)).body.auth
  const without = await world.ask('GET', 'sys/policies/acl/alice', undefined, { token: String(none) })
  assert.equal(without.status, 403)
  await ok(world, 'POST', `identity/entity/id/${entity}`, { disabled: true })
  for (const each of [token, String(batch['client_token']), String(service['client_token'])]) {
    const { status } = await world.ask('GET', 'sys/policies/acl/alice', undefined, { token: each })
    assert.equal(status, 403)
  }
})
