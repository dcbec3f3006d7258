import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { CoreWorld } from '../../helpers/core-world.ts'
import { eventually } from '../../helpers/eventually.ts'
import { MountTestEngine } from '../../helpers/mount-test-engine.ts'
import { make, reopened, writePolicy } from '../token-world.ts'
import { quickUserpass } from '../../helpers/quick-userpass.ts'

type Data = Readonly<Record<string, unknown>>

async function ok(world: CoreWorld, method: string, path: string, body?: object): Promise<Data> {
  const answer = await world.ask(method, path, body)
  assert.ok(answer.status === 200 || answer.status === 204, `${method} ${path}: ${answer.text}`)
  return answer.status === 204 ? {} : answer.body.data
}

async function refused(world: CoreWorld, path: string, body: object, text: RegExp): Promise<void> {
  const answer = await world.ask('POST', path, body)
  assert.equal(answer.status, 400, answer.text)
  assert.match(String(answer.body.errors[0]), text)
}

async function accessorOf(world: CoreWorld, mount: string): Promise<string> {
  const { body } = await world.ask('GET', 'sys/auth')
  return String((body.data[mount] as Data)['accessor'])
}

/** An entity with a token: by the role `r`, which allows any alias. */
async function withToken(t: TestContext) {
  const world = await CoreWorld.open(t, { engines: [quickUserpass] })
  await ok(world, 'POST', 'auth/token/roles/r', { allowed_entity_aliases: '*', allowed_policies: 'default' })
  const made = await make(world, { entity_alias: 'Alice' }, undefined, 'create/r')
  const entityId = String(made.auth['entity_id'])
  const may = async (path: string) => {
    const { status } = await world.ask('GET', path, undefined, { token: made.token })
    assert.ok([200, 404, 403].includes(status), String(status))
    return status !== 403
  }
  return { world, made, entityId, may }
}

const READ = (path: string) => `path "${path}" { capabilities = ["read", "list"] }`

test('policies of an entity and its groups apply to older tokens, and stop applying at once', async (t) => {
  const { entityId, made, may, world } = await withToken(t)
  await writePolicy(world, 'auths', READ('sys/auth'))
  await writePolicy(world, 'mounts', READ('sys/mounts'))
  assert.deepEqual([await may('sys/auth'), await may('sys/mounts')], [false, false])
  await ok(world, 'POST', `identity/entity/id/${entityId}`, { policies: 'auths' })
  assert.equal(await may('sys/auth'), true)
  const inner = await ok(world, 'POST', 'identity/group', { name: 'inner', member_entity_ids: [entityId] })
  const outer = await ok(world, 'POST', 'identity/group', {
    name: 'outer',
    policies: ['mounts'],
    member_group_ids: [inner['id']],
  })
  assert.equal(await may('sys/mounts'), true)
  const read = await ok(world, 'GET', `identity/entity/id/${entityId}`)
  assert.deepEqual([read['direct_group_ids'], read['inherited_group_ids']], [[inner['id']], [outer['id']]])
  const self = await world.ask('GET', 'auth/token/lookup-self', undefined, { token: made.token })
  assert.deepEqual(self.body.data['identity_policies'], ['auths', 'mounts'])
  assert.deepEqual(self.body.data['policies'], ['default'])
  await ok(world, 'DELETE', `identity/group/id/${String(inner['id'])}`)
  assert.deepEqual([await may('sys/auth'), await may('sys/mounts')], [true, false])
  assert.deepEqual((await ok(world, 'GET', 'identity/group/name/outer'))['member_group_ids'], null)
  await ok(world, 'POST', `identity/entity/id/${entityId}`, { disabled: true })
  assert.equal(await may('auth/token/lookup-self'), false)
  await assert.rejects(async () => world.core.identityOf(made.token, '127.0.0.1'))
  await ok(world, 'POST', `identity/entity/id/${entityId}`, { disabled: false })
  assert.equal(await may('sys/auth'), true)
  await ok(world, 'DELETE', `identity/entity/id/${entityId}`)
  assert.equal(await may('auth/token/lookup-self'), false)
})

test('templates use the entity, its metadata and its groups', async (t) => {
  const { entityId, may, world } = await withToken(t)
  await writePolicy(
    world,
    'own',
    `${READ('sys/policies/acl/{{identity.entity.metadata.team}}')}
    ${READ('sys/policies/acl/g-{{identity.groups.names.ops.metadata.site}}')}`,
  )
  await ok(world, 'POST', `identity/entity/id/${entityId}`, { policies: 'own', metadata: { team: 'red' } })
  assert.deepEqual([await may('sys/policies/acl/red'), await may('sys/policies/acl/g-x')], [true, false])
  await ok(world, 'POST', 'identity/group', { name: 'ops', member_entity_ids: entityId, metadata: { site: 'x' } })
  assert.deepEqual([await may('sys/policies/acl/red'), await may('sys/policies/acl/g-x')], [true, true])
  await ok(world, 'POST', `identity/entity/id/${entityId}`, { metadata: { team: 'blue' } })
  assert.deepEqual([await may('sys/policies/acl/red'), await may('sys/policies/acl/blue')], [false, true])
})

test('invalid entities, aliases and groups are refused and change nothing', async (t) => {
  const world = await CoreWorld.open(t)
  const a = String((await ok(world, 'POST', 'identity/entity', { name: 'a' }))['id'])
  await ok(world, 'POST', 'identity/entity', { name: 'b' })
  await refused(world, 'identity/entity', { name: 'c', policies: ['Root'] }, /^policies cannot contain root$/)
  await refused(world, 'identity/entity', { id: a, name: 'B' }, /^entity name is already in use$/)
  await refused(world, 'identity/entity', { id: 'none' }, /^entity not found from id$/)
  await refused(world, 'identity/entity', { name: 'x'.repeat(513) }, /at most 512/)
  const many = Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`k${at}`, 'v']))
  await refused(world, 'identity/entity', { metadata: many }, /at most 64 keys/)
  await refused(world, 'identity/entity-alias', { name: 'x', mount_accessor: 'none' }, /^invalid mount accessor$/)
  const token = await accessorOf(world, 'token/')
  await refused(world, 'identity/entity-alias', { name: 'x', mount_accessor: token, canonical_id: 'q' }, /canonical ID/)
  await ok(world, 'POST', 'identity/entity-alias', { name: 'x', mount_accessor: token, canonical_id: a })
  await refused(world, 'identity/entity-alias', { name: 'y', mount_accessor: token, canonical_id: a }, /already/)
  await refused(world, 'identity/group', { name: 'g', policies: 'root' }, /^policies cannot contain root$/)
  await refused(world, 'identity/group', { name: 'g', type: 'other' }, /expected internal or external$/)
  await refused(world, 'identity/group', { name: 'g', type: 'external', member_entity_ids: [a] }, /set manually/)
  await refused(world, 'identity/group', { name: 'g', type: 'external', member_group_ids: [a] }, /member groups can't/)
  await refused(world, 'identity/group', { name: 'g', member_entity_ids: ['none'] }, /^invalid entity ID/)
  await refused(world, 'identity/group', { name: 'g', member_group_ids: ['none'] }, /^invalid member group ID/)
  assert.equal((await world.ask('LIST', 'identity/group/id')).status, 404)
  const ids: string[] = []
  for (const name of ['g1', 'g2', 'g3']) {
    const body = { name, ...(ids.length > 0 && { member_group_ids: [ids.at(-1)] }) }
    ids.push(String((await ok(world, 'POST', 'identity/group', body))['id']))
  }
  await refused(world, `identity/group/id/${ids[0]}`, { member_group_ids: [ids[2]] }, /^cyclic relationship/)
  await refused(world, `identity/group/id/${ids[0]}`, { member_group_ids: [ids[0]] }, /^cyclic relationship/)
  await refused(world, `identity/group/id/${ids[0]}`, { type: 'external' }, /cannot be changed/)
  await refused(world, 'identity/group-alias', { name: 'x', mount_accessor: token, canonical_id: ids[0] }, /internal/)
  await refused(world, 'identity/lookup/entity', {}, /not supplied/)
  await refused(world, 'identity/lookup/entity', { id: a, name: 'a' }, /conflict/)
  assert.deepEqual((await ok(world, 'LIST', 'identity/entity/name'))['keys'], ['a', 'b'])
})

test('of two concurrent requests that make groups members of each other one is refused', async (t) => {
  const world = await CoreWorld.open(t)
  const [a, b] = await Promise.all(
    ['a', 'b'].map(async (name) => (await ok(world, 'POST', 'identity/group', { name }))['id']),
  )
  const answers = await Promise.all([
    world.ask('POST', 'identity/group', { id: a, member_group_ids: [b] }),
    world.ask('POST', 'identity/group', { id: b, member_group_ids: [a] }),
  ])
  assert.deepEqual(
    answers.map(({ status }) => status).sort((one, other) => one - other),
    [200, 400],
  )
})

test('a merge moves tokens, aliases, policies and groups to the other entity', async (t) => {
  const { entityId, may, world } = await withToken(t)
  await writePolicy(world, 'auths', READ('sys/auth'))
  const group = await ok(world, 'POST', 'identity/group', {
    name: 'g',
    policies: 'auths',
    member_entity_ids: [entityId],
  })
  const to = String((await ok(world, 'POST', 'identity/entity', { name: 'to', policies: 'p2' }))['id'])
  await refused(world, 'identity/entity/merge', { to_entity_id: to, from_entity_ids: [to] }, /should not be present/)
  await refused(world, 'identity/entity/merge', { to_entity_id: 'q', from_entity_ids: [entityId] }, /invalid/)
  await ok(world, 'POST', 'identity/entity/merge', { to_entity_id: to, from_entity_ids: [entityId] })
  assert.equal(await may('sys/auth'), true)
  const read = await ok(world, 'GET', `identity/entity/id/${entityId}`)
  assert.deepEqual([read['id'], read['merged_entity_ids'], read['group_ids']], [to, [entityId], [group['id']]])
  const [alias] = read['aliases'] as Data[]
  assert.deepEqual([alias?.['name'], alias?.['merged_from_canonical_ids']], ['alice', [entityId]])
  await ok(world, 'DELETE', `identity/entity/id/${to}`)
  assert.equal(await may('auth/token/lookup-self'), false)
  assert.deepEqual(
    world.core.barrier.paths('sys/identity/').filter((path) => !/salt|\/group/.test(path)),
    [],
  )
})

test('a merge does not restore the permissions of a disabled entity', async (t) => {
  const { entityId, may, world } = await withToken(t)
  const to = String((await ok(world, 'POST', 'identity/entity', { name: 'to', policies: 'p2' }))['id'])
  await ok(world, 'POST', 'identity/entity', { id: entityId, disabled: true })
  const merge = { to_entity_id: to, from_entity_ids: [entityId] }
  await refused(world, 'identity/entity/merge', merge, /^a disabled entity cannot be merged/)
  assert.equal(await may('auth/token/lookup-self'), false)
  await ok(world, 'POST', 'identity/entity', { id: to, disabled: true })
  await ok(world, 'POST', 'identity/entity/merge', merge)
  assert.equal(await may('auth/token/lookup-self'), false)
})

test('two entities with an alias of one mount are merged only with the alias to keep', async (t) => {
  const { entityId, world } = await withToken(t)
  const other = await make(world, { entity_alias: 'bob' }, undefined, 'create/r')
  const merge = { to_entity_id: entityId, from_entity_ids: [other.auth['entity_id']] }
  await refused(world, 'identity/entity/merge', merge, /conflicting_alias_ids_to_keep/)
  await ok(world, 'POST', 'identity/entity/merge', { ...merge, force: true })
  const read = await ok(world, 'GET', `identity/entity/id/${entityId}`)
  assert.deepEqual(
    (read['aliases'] as Data[]).map(({ name }) => name),
    ['alice'],
  )
})

test('no name of an entity, an alias or a group is in a path of the store', async (t) => {
  const world = await CoreWorld.open(t)
  const mount_accessor = await accessorOf(world, 'token/')
  const { id } = await ok(world, 'POST', 'identity/entity', { name: 'plantedone' })
  await ok(world, 'POST', 'identity/entity-alias', { name: 'plantedtwo', mount_accessor, canonical_id: id })
  const group = await ok(world, 'POST', 'identity/group', { name: 'plantedthree', type: 'external' })
  await ok(world, 'POST', 'identity/group-alias', { name: 'plantedfour', mount_accessor, canonical_id: group['id'] })
  assert.ok(world.core.barrier.paths('').length > 8)
  assert.ok(!world.core.barrier.paths('').join('\n').includes('planted'))
  await world.close()
  const next = await reopened(t, world)
  const found = await ok(next, 'POST', 'identity/lookup/group', {
    alias_name: 'plantedfour',
    alias_mount_accessor: mount_accessor,
  })
  assert.equal(found['name'], 'plantedthree')
  assert.equal((await next.ask('POST', 'identity/lookup/entity', { name: 'none' })).status, 204)
})

test('a core of an older version gets the mount of identity when it is unsealed', async (t) => {
  const world = await CoreWorld.open(t)
  const uuid = world.core.open.mounts.get('identity/')?.record.uuid
  await world.core.open.storage.commit({ puts: [], deletes: [`core/mounts/${uuid}`] })
  await world.core.seal()
  world.unseal()
  await eventually(() => world.core.open.mounts.get('identity/') !== undefined, 'it has its mount')
  await ok(world, 'POST', 'identity/entity', { name: 'a' })
})

test('a start reads no entities', async (t) => {
  const world = await CoreWorld.open(t)
  await Promise.all(Array.from({ length: 100 }, (_, at) => ok(world, 'POST', 'identity/entity', { name: `e${at}` })))
  await world.core.seal()
  const { barrier } = world.core
  const read: string[] = []
  const [shown, pendingShared] = [barrier.getShared.bind(barrier), barrier.pendingShared.bind(barrier)]
  const noted = (path: string) => void (path.startsWith('sys/identity/') && read.push(path))
  barrier.getShared = (path) => (noted(path), shown(path))
  barrier.pendingShared = (path) => (noted(path), pendingShared(path))
  world.unseal()
  assert.deepEqual(read, ['sys/identity/salt'])
  assert.equal(((await ok(world, 'LIST', 'identity/entity/name'))['keys'] as string[]).length, 100)
  assert.ok(read.length > 100)
})

test('an alias belongs to one entity, also after fifty concurrent requests for it', async (t) => {
  const { entityId, world } = await withToken(t)
  const token = await accessorOf(world, 'token/')
  const other = String((await ok(world, 'POST', 'identity/entity', { name: 'other' }))['id'])
  const bob = { name: 'bob', mount_accessor: token, canonical_id: other }
  const { id } = await ok(world, 'POST', 'identity/entity-alias', bob)
  const taken = /^another alias of the mount has this name$/
  await refused(world, `identity/entity-alias/id/${String(id)}`, { name: 'alice' }, taken)
  assert.deepEqual((await ok(world, 'GET', `identity/entity-alias/id/${String(id)}`))['name'], 'bob')
  // Who has it already keeps it: the entity that is to get it has one of that mount.
  await refused(world, 'identity/entity-alias', { ...bob, name: 'alice' }, /already/)
  const lookup = { alias_name: 'alice', alias_mount_accessor: token }
  assert.equal((await ok(world, 'POST', 'identity/lookup/entity', lookup))['id'], entityId)
  const entities = await Promise.all(
    Array.from({ length: 50 }, async () => String((await ok(world, 'POST', 'identity/entity', {}))['id'])),
  )
  const wanted = entities.map((each) => ({ name: 'wanted', mount_accessor: token, canonical_id: each }))
  await Promise.all(wanted.map((body) => world.ask('POST', 'identity/entity-alias', body)))
  const owner = (await ok(world, 'POST', 'identity/lookup/entity', { ...lookup, alias_name: 'wanted' }))['id']
  const having = await Promise.all(entities.map(async (each) => ok(world, 'GET', `identity/entity/id/${each}`)))
  const owners = having.filter(({ aliases }) => (aliases as Data[]).length > 0)
  assert.deepEqual(
    owners.map((entity) => entity['id']),
    [owner],
  )
})

test('a request continues while its entity is merged, and the next one has the permissions of both', async (t) => {
  const shelf = new MountTestEngine()
  const world = await CoreWorld.open(t, { engines: [shelf.engine] })
  await ok(world, 'POST', 'sys/mounts/x', { type: 'shelf' })
  await ok(world, 'POST', 'auth/token/roles/r', { allowed_entity_aliases: '*', allowed_policies: 'default' })
  const { auth, token } = await make(world, { entity_alias: 'alice' }, undefined, 'create/r')
  const from = String(auth['entity_id'])
  await writePolicy(world, 'x', 'path "x/*" { capabilities = ["create", "update", "read"] }')
  await writePolicy(world, 'auths', READ('sys/auth'))
  await ok(world, 'POST', `identity/entity/id/${from}`, { policies: ['x'] })
  const to = String((await ok(world, 'POST', 'identity/entity', { name: 'to', policies: ['auths'] }))['id'])
  const slow = world.ask('POST', 'x/slow/thing', { thing: 1 }, { token })
  await shelf.arrived
  const merge = { to_entity_id: to, from_entity_ids: [from] }
  const login = make(world, { entity_alias: 'alice' }, undefined, 'create/r')
  await ok(world, 'POST', 'identity/entity/merge', merge)
  shelf.release()
  assert.ok((await slow).status < 300, 'it was let in before')
  assert.ok([from, to].includes(String((await login).auth['entity_id'])))
  for (const each of [token, (await login).token]) {
    for (const path of ['sys/auth', 'x/slow/thing']) {
      assert.notEqual((await world.ask('GET', path, undefined, { token: each })).status, 403, path)
    }
  }
  // And an entity that is merged and disabled at the same time: where the answer says disabled, no right is left.
  const late = String((await ok(world, 'POST', 'identity/entity', { name: 'late' }))['id'])
  const next = { to_entity_id: late, from_entity_ids: [to] }
  const both = await Promise.all([
    world.ask('POST', `identity/entity/id/${to}`, { disabled: true }),
    world.ask('POST', 'identity/entity/merge', next),
  ])
  const [disabled] = both.map(({ status }) => status < 300)
  const { status } = await world.ask('GET', 'sys/auth', undefined, { token })
  assert.equal(status === 200, !disabled, `${both.map((each) => each.text).join()} ${status}`)
})

test('deleting many members writes their group once', async (t) => {
  const world = await CoreWorld.open(t)
  const ids: string[] = []
  for (let at = 0; at < 8; at++)
    ids.push(String((await ok(world, 'POST', 'identity/entity', { name: `e${at}` }))['id']))
  const { id: group } = await ok(world, 'POST', 'identity/group', { name: 'all', member_entity_ids: ids })
  const encoded = t.mock.method(JSON, 'stringify')
  await ok(world, 'POST', 'identity/entity/batch-delete', { entity_ids: ids.slice(0, 6) })
  const groups = encoded.mock.calls.filter(({ arguments: [value] }) => isGroup(value))
  encoded.mock.restore()
  assert.equal(groups.length, 1)
  const left = await ok(world, 'GET', `identity/group/id/${String(group)}`)
  assert.deepEqual(new Set(left['member_entity_ids'] as string[]), new Set(ids.slice(6)))
  assert.equal((await world.ask('GET', `identity/entity/id/${ids[0]}`)).status, 404)
})

function isGroup(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'memberEntityIds' in value
}
