/** What the compatible servers' own tests say of config and data; each test has their number and sentence. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { expectStatus as expect, openKv, readSecret as read, writeSecret as write } from '../../helpers/kv-world.ts'

const MISMATCH = 'check-and-set parameter did not match the current version'
const REQUIRED = 'check-and-set parameter required for this call'

test('max_versions, cas_required and delete_version_after are read as written', async (t) => {
  const world = await openKv(t)
  const given = { max_versions: 4, cas_required: true, delete_version_after: '1h' }
  await expect(world, 204, 'POST', 'secret/config', given)
  const { data } = await expect(world, 200, 'GET', 'secret/config')
  assert.deepEqual(data, { ...given, delete_version_after: '1h0m0s', metadata_cas_required: false })
})

test('writing one field of the config keeps the others', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/config', { max_versions: 4, delete_version_after: '2h' })
  await expect(world, 204, 'POST', 'secret/config', { cas_required: true })
  await expect(world, 204, 'POST', 'secret/config', { max_versions: 5 })
  const { data } = await expect(world, 200, 'GET', 'secret/config')
  assert.deepEqual([data['max_versions'], data['cas_required'], data['delete_version_after']], [5, true, '2h0m0s'])
})

test('delete_version_after of the config reads back as Go writes it', async (t) => {
  const world = await openKv(t)
  const shown = async () => (await expect(world, 200, 'GET', 'secret/config')).data['delete_version_after']
  assert.equal(await shown(), '0s')
  for (const [given, back] of [
    ['10s', '10s'],
    ['20s', '20s'],
    ['-5s', '-1s'],
    [-1, '-1s'],
    ['3h', '3h0m0s'],
    [0, '0s'],
  ]) {
    await expect(world, 204, 'POST', 'secret/config', { delete_version_after: given })
    assert.equal(await shown(), back, `given ${given}`)
  }
})

test('the deletion time is the earlier one of engine and key; an engine with -1s has none', async (t) => {
  const world = await openKv(t)
  for (const [engine, key, seconds] of [
    ['0s', '0s', 0],
    ['0s', '20s', 20],
    ['10s', '0s', 10],
    ['10s', '20s', 10],
    ['20s', '10s', 10],
    ['-1s', '10s', 0],
  ] as const) {
    await expect(world, 204, 'POST', 'secret/config', { delete_version_after: engine })
    await expect(world, 204, 'POST', 'secret/metadata/a', { delete_version_after: key })
    const { created_time: created, deletion_time: deletion } = await write(world, 'a', {})
    const expected = seconds === 0 ? '' : new Date(Date.parse(String(created)) + seconds * 1000).toISOString()
    assert.equal(deletion, expected, `engine ${engine}, key ${key}`)
  }
})

test('a version is deleted at its deletion time, and undelete starts a new period', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/config', { delete_version_after: '10s' })
  await write(world, 'a', { x: 1 })
  const first = await read(world, 'a')
  assert.equal(first.status, 200)
  const endMs = Date.parse(String(first.metadata?.['deletion_time']))
  assert.equal(endMs, world.core.now() + 10_000)
  world.nowMs += 9999
  assert.equal((await read(world, 'a')).status, 200, 'one millisecond before')
  world.nowMs += 1
  const gone = await read(world, 'a')
  assert.deepEqual([gone.status, gone.data, gone.metadata?.['version']], [404, null, 1])
  await expect(world, 204, 'POST', 'secret/undelete/a', { versions: [1] })
  const back = await read(world, 'a')
  assert.deepEqual([back.status, back.data], [200, { x: 1 }])
  assert.equal(Date.parse(String(back.metadata?.['deletion_time'])), world.core.now() + 10_000)
})

test('the first write is version 1', async (t) => {
  const world = await openKv(t)
  const { created_time: created, ...rest } = await write(world, 'a', { x: 1 })
  assert.ok(!Number.isNaN(Date.parse(String(created))))
  assert.deepEqual(rest, { custom_metadata: null, deletion_time: '', destroyed: false, version: 1 })
})

test('cas 0 succeeds once; cas of the current version succeeds, and a stale one does not', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 }, 0)
  const again = await expect(world, 400, 'POST', 'secret/data/a', { data: {}, options: { cas: 0 } })
  assert.deepEqual(again.errors, [MISMATCH])
  await write(world, 'a', { x: 2 }, 1)
  for (const cas of [0, 1, 3, -1]) {
    const { errors } = await expect(world, 400, 'POST', 'secret/data/a', { data: {}, options: { cas } })
    assert.deepEqual(errors, [MISMATCH], `cas ${cas}`)
  }
  assert.deepEqual((await read(world, 'a')).data, { x: 2 })
})

test('cas succeeds exactly in the states of the table', async (t) => {
  const world = await openKv(t)
  const passes = async (cas: number) => {
    const { status, text } = await world.ask('POST', 'secret/data/a', { data: {}, options: { cas } })
    assert.ok(status === 200 || text.includes(MISMATCH), text)
    return status === 200
  }
  assert.equal(await passes(1), false, 'absent')
  await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: 5 })
  assert.deepEqual([await passes(1), await passes(0)], [false, true], 'metadata only')
  await expect(world, 204, 'DELETE', 'secret/data/a')
  assert.deepEqual([await passes(0), await passes(1)], [false, true], 'the newest is deleted')
  await expect(world, 204, 'POST', 'secret/destroy/a', { versions: [2] })
  assert.deepEqual([await passes(0), await passes(2)], [false, true], 'the newest is destroyed')
  await expect(world, 204, 'DELETE', 'secret/metadata/a')
  assert.deepEqual([await passes(3), await passes(0)], [false, true], 'removed')
  assert.equal((await read(world, 'a')).metadata?.['version'], 1)
})

test('cas_required applies if set on the engine or on the key', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/metadata/a', { cas_required: true })
  for (const name of ['a', 'b']) {
    if (name === 'b') await expect(world, 204, 'POST', 'secret/config', { cas_required: true })
    const { errors } = await expect(world, 400, 'POST', `secret/data/${name}`, { data: { x: 1 } })
    assert.deepEqual(errors, [REQUIRED])
    await write(world, name, { x: 1 }, 0)
    for (const method of ['POST', 'PATCH']) {
      const refused = await expect(world, 400, method, `secret/data/${name}`, { data: { x: 2 } })
      assert.deepEqual(refused.errors, [REQUIRED], method)
    }
  }
})

test('cas is accepted as 1.0, "1" and 1, and refused if it is not a number', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', {})
  for (const [index, cas] of ['1.0', '"2"', '3', 'true'].entries()) {
    if (cas === 'true') continue
    const body = `{"data":{},"options":{"cas":${cas}}}`
    assert.equal((await expect(world, 200, 'POST', 'secret/data/a', body)).data['version'], index + 2)
  }
  for (const cas of ['"x"', '1.5', '[]', '{}', '"1e3"', '9007199254740993']) {
    const { errors } = await expect(world, 400, 'POST', 'secret/data/a', `{"data":{},"options":{"cas":${cas}}}`)
    assert.deepEqual(errors, ['error parsing check-and-set parameter'], cas)
  }
  assert.equal((await read(world, 'a')).metadata?.['version'], 4)
})

test('data is required and must be an object', async (t) => {
  const world = await openKv(t)
  for (const body of [{}, { x: 1 }, { options: { cas: 0 } }, undefined]) {
    assert.deepEqual((await expect(world, 400, 'POST', 'secret/data/a', body)).errors, ['no data provided'])
  }
  for (const data of ['text', 1, true, ['a']]) {
    const { errors } = await expect(world, 400, 'POST', 'secret/data/a', { data })
    assert.match(errors[0] ?? '', /^error converting input for field "data": /)
  }
  for (const options of ['x', 1, ['a']]) {
    const { errors } = await expect(world, 400, 'POST', 'secret/data/a', { data: {}, options })
    assert.match(errors[0] ?? '', /^error converting input for field "options": /)
  }
  assert.equal((await read(world, 'a')).status, 404)
})

test('a missing secret or version is 404; versions are read by number', async (t) => {
  const world = await openKv(t)
  assert.deepEqual((await expect(world, 404, 'GET', 'secret/data/a')).errors, [])
  for (const x of [1, 2, 3]) await write(world, 'a', { x })
  assert.deepEqual((await read(world, 'a')).data, { x: 3 })
  for (const [query, x] of [
    ['?version=1', 1],
    ['?version=2', 2],
    ['?version=3', 3],
    ['?version=0', 3],
    ['?version=-1', 3],
    ['?version=', 3],
  ]) {
    assert.deepEqual((await read(world, 'a', String(query))).data, { x }, String(query))
  }
  for (const version of [4, 99, '99999999999'])
    assert.equal((await read(world, 'a', `?version=${version}`)).status, 404)
  for (const version of ['abc', '1.5', '1e1', '9'.repeat(40)]) {
    const { errors } = await expect(world, 400, 'GET', `secret/data/a?version=${version}`)
    assert.match(errors[0] ?? '', /^Field validation failed: error converting input for field "version": /)
  }
})

test('a read returns the custom metadata, also without permission on the metadata', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/metadata/a', { custom_metadata: { owner: 'me' } })
  await write(world, 'a', {})
  assert.deepEqual((await read(world, 'a')).metadata?.['custom_metadata'], { owner: 'me' })
  await expect(world, 204, 'PUT', 'sys/policies/acl/data-only', {
    policy: 'path "secret/data/*" { capabilities = ["read"] }',
  })
  const made = await world.ask('POST', 'auth/token/create', { policies: ['data-only'], no_default_policy: true })
  const token = String(made.body.auth['client_token'])
  assert.equal((await world.ask('GET', 'secret/metadata/a', undefined, { token })).status, 403)
  const seen = await world.ask('GET', 'secret/data/a', undefined, { token })
  assert.deepEqual((seen.body.data['metadata'] as Record<string, unknown>)['custom_metadata'], { owner: 'me' })
})

test('a deleted version reads as 404 with metadata and no data; deleting a missing secret is 204', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  await expect(world, 204, 'DELETE', 'secret/data/a')
  const { data, metadata, status } = await read(world, 'a')
  assert.deepEqual([status, data, metadata?.['destroyed'], metadata?.['version']], [404, null, false, 1])
  assert.equal(metadata?.['deletion_time'], new Date(world.core.now()).toISOString())
  await expect(world, 204, 'DELETE', 'secret/data/none')
  assert.equal((await world.ask('GET', 'secret/metadata/none')).status, 404)
})

for (const method of ['POST', 'PATCH']) {
  test(`${method === 'POST' ? 19 : 20}: a lower max_versions prunes versions at the next ${method}`, async (t) => {
    const world = await openKv(t)
    for (let x = 1; x <= 10; x++) await write(world, 'a', { x })
    await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: 2 })
    assert.equal((await read(world, 'a', '?version=1')).status, 200, 'not yet')
    assert.equal((await expect(world, 200, method, 'secret/data/a', { data: { x: 11 } })).data['version'], 11)
    for (let version = 1; version <= 9; version++)
      assert.equal((await read(world, 'a', `?version=${version}`)).status, 404)
    assert.deepEqual((await read(world, 'a', '?version=10')).data, { x: 10 })
    assert.deepEqual((await read(world, 'a')).data, { x: 11 })
    const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
    assert.deepEqual([data['oldest_version'], Object.keys(data['versions'] as object)], [10, ['10', '11']])
    const mount = world.core.open.mounts.get('secret/')
    const [place = ''] = mount?.storage.list('k/').filter((each) => each.endsWith('/')) ?? []
    // That of the newest is in the record itself.
    assert.deepEqual(mount?.storage.list(`k/${place}`), ['10'], 'their data is gone from the store')
  })
}

test('oldest_version is 0 until versions are pruned', async (t) => {
  const world = await openKv(t)
  const oldest = async (name: string) =>
    (await expect(world, 200, 'GET', `secret/metadata/${name}`)).data['oldest_version']
  const seen: unknown[] = []
  for (let x = 1; x <= 12; x++) {
    await write(world, 'a', { x })
    seen.push(await oldest('a'))
  }
  assert.deepEqual(seen, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3])
  await expect(world, 204, 'POST', 'secret/metadata/one', { max_versions: 1 })
  for (const wanted of [1, 2, 3]) {
    await write(world, 'one', {})
    assert.equal(await oldest('one'), wanted)
  }
})

test('max_versions of a key takes precedence over that of the engine', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/config', { max_versions: 5 })
  for (const [name, own, kept] of [
    ['less', 2, 2],
    ['more', 7, 7],
    ['none', 0, 5],
  ] as const) {
    if (own > 0) await expect(world, 204, 'POST', `secret/metadata/${name}`, { max_versions: own })
    for (let x = 0; x < 9; x++) await write(world, name, { x })
    const { data } = await expect(world, 200, 'GET', `secret/metadata/${name}`)
    assert.equal(Object.keys(data['versions'] as object).length, kept, name)
  }
})

test('written data is readable after a seal and an unseal', async (t) => {
  const world = await openKv(t)
  await expect(world, 204, 'POST', 'secret/config', { max_versions: 3 })
  await write(world, 'a/b', { x: 1 })
  await world.core.seal()
  assert.equal((await world.ask('GET', 'secret/data/a/b')).status, 503)
  world.unseal()
  assert.deepEqual((await read(world, 'a/b')).data, { x: 1 })
  assert.equal((await expect(world, 200, 'GET', 'secret/config')).data['max_versions'], 3)
})

test('a name must not end in a slash, and may contain slashes and dots', async (t) => {
  const world = await openKv(t)
  const { errors } = await expect(world, 400, 'POST', 'secret/data/a/', { data: {} })
  assert.deepEqual(errors, ["cannot write to a path ending in '/'"])
  for (const name of ['a/b.c/d', '.hidden', 'a..b', '...', 'a/b.c']) {
    await write(world, name, { name })
    assert.deepEqual((await read(world, name)).data, { name })
  }
  for (const name of ['a/../b', './a', 'a/.', '..']) {
    assert.deepEqual((await expect(world, 400, 'GET', `secret/data/${name}`)).errors, ['relative paths not supported'])
  }
})
