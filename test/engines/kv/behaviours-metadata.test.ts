/** What the compatible servers' own tests say of metadata and lists, by their numbers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  expectStatus as expect,
  openKv,
  readSecret as read,
  tokenWith,
  writeSecret as write,
} from '../../helpers/kv-world.ts'

test('metadata without versions has version 0 and the given settings', async (t) => {
  const world = await openKv(t)
  const given = { max_versions: 3, cas_required: true, custom_metadata: { a: 'b' } }
  await expect(world, 204, 'POST', 'secret/metadata/a', { ...given, delete_version_after: '90s' })
  const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
  assert.deepEqual(data, {
    ...given,
    delete_version_after: '1m30s',
    created_time: new Date(world.core.now()).toISOString(),
    updated_time: new Date(world.core.now()).toISOString(),
    current_metadata_version: 1,
    current_version: 0,
    last_updated_by: { actor: 'root', operation: 'create' },
    metadata_cas_required: false,
    oldest_version: 0,
    versions: {},
  })
})

test('max_versions and cas_required of a key apply from the next write on', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: 2, cas_required: true })
  await expect(world, 400, 'POST', 'secret/data/a', { data: {} })
  for (const cas of [0, 1, 2]) await write(world, 'a', { cas }, cas)
  const shown = async () => {
    const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
    return [Object.keys(data['versions'] as object), data['current_version'], data['oldest_version']]
  }
  assert.deepEqual(await shown(), [['2', '3'], 3, 2])
  await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: 1, cas_required: false })
  assert.deepEqual(await shown(), [['2', '3'], 3, 2])
  await write(world, 'a', {})
  assert.deepEqual(await shown(), [['4'], 4, 4])
})

test('deleting the metadata deletes everything, and versions restart at 1', async (t) => {
  const world = await openKv(t)
  for (const x of [1, 2, 3]) await write(world, 'f/a', { x })
  await expect(world, 204, 'DELETE', 'secret/metadata/f/a')
  await expect(world, 404, 'GET', 'secret/metadata/f/a')
  await expect(world, 404, 'GET', 'secret/data/f/a?version=2')
  await expect(world, 404, 'LIST', 'secret/metadata/f')
  const view = world.core.open.mounts.get('secret/')?.storage
  assert.deepEqual([view?.list('k/'), view?.list('f/')], [[], []], 'nothing is left in the store')
  assert.equal((await write(world, 'f/a', {}))['version'], 1)
})

test('all faults of custom metadata are reported together, and too many keys alone', async (t) => {
  const world = await openKv(t)
  const long = 'k'.repeat(129)
  const given = { '': 'empty key', [long]: 'long key', e: '', v: 'v'.repeat(513), 'a\u0001': 'x', u: '\u0007' }
  const { errors } = await expect(world, 400, 'POST', 'secret/metadata/a', { custom_metadata: given })
  const text = errors[0] ?? ''
  for (const part of [
    '6 errors occurred:',
    'length of key "" is 0 but must be 0 < len(key) <= 128',
    `length of key "${long}" is 129 but must be 0 < len(key) <= 128`,
    'length of value for key "e" is 0 but must be 0 < len(value) <= 512',
    'length of value for key "v" is 513 but must be 0 < len(value) <= 512',
    'contains unprintable characters',
    'value for key "u" contains unprintable characters',
  ]) {
    assert.ok(text.includes(part), part)
  }
  const many = Object.fromEntries(Array.from({ length: 65 }, (_, at) => [`k${at}`, '']))
  const counted = await expect(world, 400, 'POST', 'secret/metadata/a', { custom_metadata: many })
  assert.match(
    counted.errors[0] ?? '',
    /^1 error occurred:\n\t\* .*payload must contain at most 64 keys, provided 65\n\n$/,
  )
  await expect(world, 404, 'GET', 'secret/metadata/a')
})

test('empty custom metadata reads as null; a partial write keeps other settings and replaces the map', async (t) => {
  const world = await openKv(t)
  const custom = async () => (await expect(world, 200, 'GET', 'secret/metadata/a')).data['custom_metadata']
  await expect(world, 204, 'POST', 'secret/metadata/a', { custom_metadata: {} })
  assert.equal(await custom(), null)
  await expect(world, 204, 'POST', 'secret/metadata/a', { custom_metadata: { a: '1', b: '2' }, max_versions: 4 })
  await expect(world, 204, 'POST', 'secret/metadata/a', { cas_required: true })
  assert.deepEqual(await custom(), { a: '1', b: '2' })
  await expect(world, 204, 'POST', 'secret/metadata/a', { custom_metadata: { c: 3, d: true } })
  assert.deepEqual(await custom(), { c: '3', d: '1' })
  const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
  assert.deepEqual([data['max_versions'], data['cas_required']], [4, true])
})

for (const [number, method] of [
  [45, 'POST'],
  [55, 'PATCH'],
] as const) {
  test(`${number}: ${method} with cas_required false warns if the engine requires it`, async (t) => {
    const world = await openKv(t)
    await write(world, 'a', {})
    await expect(world, 204, 'POST', 'secret/config', { cas_required: true })
    const { warnings } = await expect(world, 200, method, 'secret/metadata/a', { cas_required: false })
    assert.deepEqual(warnings, [
      '"cas_required" set to false, but is mandated by backend config. This value will be ignored.',
    ])
    await expect(world, 400, 'POST', 'secret/data/a', { data: {} })
  })
}

test('lists are sorted, folders end in a slash, and nested names are relative to the listed path', async (t) => {
  const world = await openKv(t)
  for (const name of ['b', 'a', 'Z', 'a/x', 'ü', 'd/e/f', 'd/e/g']) await write(world, name, {})
  const keys = async (path: string) => (await expect(world, 200, 'LIST', `secret/metadata${path}`)).data['keys']
  assert.deepEqual(await keys(''), ['Z', 'a', 'a/', 'b', 'd/', 'ü'])
  assert.deepEqual(await keys('/'), ['Z', 'a', 'a/', 'b', 'd/', 'ü'])
  assert.deepEqual(await keys('/d'), ['e/'])
  assert.deepEqual(await keys('/d/e/'), ['f', 'g'])
  for (const path of ['/b', '/d/e/f', '/none']) {
    assert.deepEqual((await expect(world, 404, 'LIST', `secret/metadata${path}`)).errors, [], path)
  }
})

test('a detailed list has the fields of a read of each key; lists and scans support pages', async (t) => {
  const world = await openKv(t)
  for (const name of ['a', 'b', 'c/d', 'c/e/f', 'g']) await write(world, name, {})
  const { data } = await expect(world, 200, 'LIST', 'secret/detailed-metadata')
  const infos = data['key_info'] as Record<string, unknown>
  assert.deepEqual(data['keys'], ['a', 'b', 'c/', 'g'])
  assert.deepEqual(infos['c/'], {})
  for (const key of ['a', 'b', 'g']) {
    assert.deepEqual(infos[key], (await expect(world, 200, 'GET', `secret/metadata/${key}`)).data)
  }
  for (const [method, all] of [
    ['LIST', ['a', 'b', 'c/', 'g']],
    ['SCAN', ['a', 'b', 'g', 'c/d', 'c/e/f']],
  ] as const) {
    const paged: unknown[] = []
    for (let after = ''; ; after = String(paged.at(-1))) {
      const page = await world.ask(method, `secret/metadata?limit=2&after=${encodeURIComponent(after)}`)
      const keys = (page.body.data?.['keys'] ?? []) as string[]
      assert.ok(keys.length <= 2)
      if (keys.length === 0) break
      paged.push(...keys)
    }
    assert.deepEqual(paged, all, method)
  }
})

test('the version of the metadata can be a precondition', async (t) => {
  const world = await openKv(t)
  const post = (status: number, body: object) => expect(world, status, 'POST', 'secret/metadata/a', body)
  const wrong = await post(400, { max_versions: 1, metadata_cas: 1 })
  assert.deepEqual(wrong.errors, ['metadata_cas must be 0 when creating new metadata'])
  await post(204, { max_versions: 1, metadata_cas: 0 })
  const stale = await post(400, { max_versions: 2, metadata_cas: 0 })
  assert.deepEqual(stale.errors, ['metadata check-and-set parameter does not match the current version'])
  await post(204, { max_versions: 2, metadata_cas: 1, metadata_cas_required: true })
  const missing = await post(400, { max_versions: 3 })
  assert.deepEqual(missing.errors, ['metadata check-and-set parameter required for this call'])
  await post(204, { max_versions: 3, metadata_cas: 2, metadata_cas_required: false })
  await expect(world, 204, 'POST', 'secret/config', { metadata_cas_required: true })
  await post(400, { max_versions: 4 })
  await expect(world, 400, 'PATCH', 'secret/metadata/a', { max_versions: 4 })
  await expect(world, 204, 'PATCH', 'secret/metadata/a', { max_versions: 4, metadata_cas: 3 })
  const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
  assert.deepEqual([data['current_metadata_version'], data['max_versions']], [4, 4])
})

test('exclude_deleted leaves out secrets whose newest version is deleted', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/metadata/only', { max_versions: 1 })
  await write(world, 'folder/x', {})
  for (const name of ['active', 'deleted', 'older', 'expiring']) await write(world, name, {})
  await expect(world, 204, 'DELETE', 'secret/data/deleted')
  await write(world, 'older', {})
  await expect(world, 204, 'POST', 'secret/delete/older', { versions: [1] })
  await expect(world, 204, 'POST', 'secret/metadata/expiring', { delete_version_after: '1h' })
  await write(world, 'expiring', {})
  const list = await expect(world, 200, 'LIST', 'secret/metadata?exclude_deleted=true')
  assert.deepEqual(list.data['keys'], ['active', 'folder/', 'older', 'only'])
  assert.equal((await read(world, 'deleted', '?exclude_deleted=true')).status, 404)
  await expect(world, 200, 'GET', 'secret/metadata/deleted?exclude_deleted=true')
  await expect(world, 204, 'DELETE', 'secret/data/folder/x')
  await expect(world, 404, 'LIST', 'secret/metadata/folder?exclude_deleted=true')
})

test('metadata names the author of each change, and undelete clears that of the deletion', async (t) => {
  const world = await openKv(t)
  const policies = { policies: ['root'], display_name: 'deployer' }
  const token = String((await world.ask('POST', 'auth/token/create', policies)).body.auth['client_token'])
  await world.ask('POST', 'secret/data/a', { data: {} }, { token })
  await expect(world, 200, 'PATCH', 'secret/data/a', { data: {} })
  await world.ask('POST', 'secret/delete/a', { versions: [1, 2] }, { token })
  await expect(world, 204, 'POST', 'secret/undelete/a', { versions: [2] })
  const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
  const versions = data['versions'] as Record<string, { created_by: unknown; deleted_by: unknown }>
  assert.deepEqual(versions['1']?.created_by, { actor: 'token-deployer', operation: 'create' })
  assert.deepEqual(versions['1']?.deleted_by, { actor: 'token-deployer', operation: 'delete' })
  assert.deepEqual(versions['2']?.created_by, { actor: 'root', operation: 'patch' })
  assert.equal(versions['2']?.deleted_by, null)
  assert.deepEqual(data['last_updated_by'], { actor: 'root', operation: 'undelete' })
})

test('a read from a loaded snapshot is refused; at= reads the version of that time', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  const then = new Date(world.nowMs).toISOString()
  world.nowMs += 60_000
  await write(world, 'a', { x: 2 })
  await expect(world, 400, 'GET', 'secret/data/a?read_snapshot_id=1')
  const earlier = await read(world, 'a', `?at=${encodeURIComponent(then)}`)
  assert.deepEqual([earlier.data, earlier.metadata?.['version']], [{ x: 1 }, 1])
  assert.equal((await read(world, 'a')).metadata?.['version'], 2)
})

test('a metadata patch without a change, with bad types or of a missing key is refused', async (t) => {
  const world = await openKv(t)
  await expect(world, 404, 'PATCH', 'secret/metadata', { max_versions: 1 })
  await write(world, 'a', {})
  for (const bad of [
    { max_versions: 'x' },
    { max_versions: -1 },
    { max_versions: 2 ** 32 },
    { max_versions: 1.5 },
    { cas_required: 'perhaps' },
    { delete_version_after: '-5s' },
    { delete_version_after: 'soon' },
    { delete_version_after: [] },
    { custom_metadata: 'x' },
    { custom_metadata: [1] },
    { custom_metadata: { a: {} } },
    { custom_metadata: { ['k'.repeat(129)]: 'v' } },
    { custom_metadata: { k: 'v'.repeat(513) } },
    { custom_metadata: { k: '\u0001' } },
    { metadata_cas: 'x' },
  ]) {
    for (const method of ['PATCH', 'POST']) await expect(world, 400, method, 'secret/metadata/a', bad)
  }
  await expect(world, 404, 'PATCH', 'secret/metadata/none', { max_versions: 1 })
  await expect(world, 204, 'PATCH', 'secret/metadata/none', { unknown: 1 })
  assert.equal((await expect(world, 200, 'GET', 'secret/metadata/a')).data['current_metadata_version'], 0)
})

test('a patch adds, removes and replaces custom metadata in one request', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/metadata/a', { custom_metadata: { keep: '1', change: '2', gone: '3' } })
  const patch = { custom_metadata: { change: '20', gone: null, added: '4', never: null } }
  await expect(world, 204, 'PATCH', 'secret/metadata/a', patch)
  const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
  assert.deepEqual(data['custom_metadata'], { keep: '1', change: '20', added: '4' })
})

test('each setting can be patched alone or with others without a new version, and read-only fields are ignored', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  const settings = { max_versions: 4, cas_required: true, delete_version_after: '1h0m0s', custom_metadata: { a: 'b' } }
  const before: Record<string, unknown> = { ...(await expect(world, 200, 'GET', 'secret/metadata/a')).data }
  const changing = new Set(['current_metadata_version', 'updated_time', 'last_updated_by'])
  const check = async (patch: object) => {
    await expect(world, 204, 'PATCH', 'secret/metadata/a', patch)
    Object.assign(before, patch)
    const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
    for (const [name, value] of Object.entries(before))
      if (!changing.has(name)) assert.deepEqual(data[name], value, name)
  }
  for (const [name, value] of Object.entries(settings)) await check({ [name]: value })
  await check({ ...settings, max_versions: 6 })
  const managed = { versions: {}, current_version: 9, oldest_version: 9, created_time: 'x', updated_time: 'y' }
  await expect(world, 204, 'PATCH', 'secret/metadata/a', managed)
  await check({})
})

test('null resets a setting', async (t) => {
  const world = await openKv(t)
  const settings = { max_versions: 4, cas_required: true, delete_version_after: '1h', custom_metadata: { a: 'b' } }
  await expect(world, 204, 'POST', 'secret/metadata/a', settings)
  const nulls = { max_versions: null, cas_required: null, custom_metadata: null, delete_version_after: null }
  await expect(world, 204, 'PATCH', 'secret/metadata/a', nulls)
  const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
  assert.deepEqual(
    [data['max_versions'], data['cas_required'], data['custom_metadata'], data['delete_version_after']],
    [0, false, null, '1h0m0s'],
  )
})

test('with list_filter a list has only names that the caller has permissions on', async (t) => {
  const world = await openKv(t)
  for (const name of ['mine/a', 'mine/b', 'theirs/c', 'x', 'y']) await write(world, name, {})
  const token = await tokenWith(
    world,
    `path "secret/metadata/*" { capabilities = ["list", "scan"] }
     path "secret/data/mine/a" { capabilities = ["read"] }
     path "secret/data/x" { capabilities = ["update"] }`,
  )
  const keys = async (method: string, path: string, query = '') => {
    const { body } = await world.ask(method, `secret/metadata${path}${query}`, undefined, { token })
    return body.data?.['keys'] ?? []
  }
  assert.deepEqual(await keys('LIST', ''), ['mine/', 'theirs/', 'x', 'y'])
  await expect(world, 204, 'POST', 'secret/config', { list_filter: true })
  assert.equal((await expect(world, 200, 'GET', 'secret/config')).data['list_filter'], true)
  assert.deepEqual(await keys('LIST', ''), ['mine/', 'x'])
  assert.deepEqual(await keys('LIST', '/mine'), ['a'])
  assert.deepEqual(await keys('LIST', '/theirs'), [])
  assert.deepEqual(await keys('SCAN', ''), ['x', 'mine/a'])
  assert.deepEqual(await keys('LIST', '', '?limit=1&after=mine/'), ['x'], 'pages are of what is seen')
  assert.deepEqual((await expect(world, 200, 'LIST', 'secret/metadata')).data['keys'], ['mine/', 'theirs/', 'x', 'y'])
})

test('thousands of nested folders are scanned', async (t) => {
  const world = await openKv(t)
  const deep = `${'a/'.repeat(3900)}x`
  for (const name of [deep, 'a/y', 'b']) await write(world, name, {})
  assert.deepEqual((await expect(world, 200, 'SCAN', 'secret/metadata')).data['keys'], ['b', 'a/y', deep])
  const behind = await expect(world, 200, 'SCAN', 'secret/metadata?after=a/y')
  assert.deepEqual(behind.data['keys'], [deep])
  await expect(world, 204, 'DELETE', `secret/metadata/${deep}`)
  assert.deepEqual((await expect(world, 200, 'SCAN', 'secret/metadata')).data['keys'], ['b', 'a/y'])
})
