/** What the compatible servers' own tests say of patches, deletion, destruction and subkeys, by their numbers. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { expectStatus as expect, openKv, readSecret as read, writeSecret as write } from '../../helpers/kv-world.ts'

test('a patch of a missing secret, or of one with metadata only, is 404; data is required', async (t) => {
  const world = await openKv(t)
  await expect(world, 404, 'PATCH', 'secret/data/a', { data: { x: 1 } })
  await expect(world, 204, 'POST', 'secret/metadata/m', { max_versions: 3 })
  await expect(world, 404, 'PATCH', 'secret/data/m', { data: { x: 1 } })
  await expect(world, 404, 'PATCH', 'secret/data/m', { data: { x: 1 }, options: { cas: 0 } })
  const { errors } = await expect(world, 400, 'PATCH', 'secret/data/a', { options: { cas: 0 } })
  assert.deepEqual(errors, ['no data provided'])
})

test('a patch without cas, or with a stale one, is refused where cas is required', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  await expect(world, 204, 'POST', 'secret/config', { cas_required: true })
  const missing = await expect(world, 400, 'PATCH', 'secret/data/a', { data: { x: 2 } })
  assert.deepEqual(missing.errors, ['check-and-set parameter required for this call'])
  for (const cas of [2, 0, -1]) {
    const wrong = await expect(world, 400, 'PATCH', 'secret/data/a', { data: { x: 2 }, options: { cas } })
    assert.deepEqual(wrong.errors, ['check-and-set parameter did not match the current version'])
  }
  await expect(world, 200, 'PATCH', 'secret/data/a', { data: { x: 2 }, options: { cas: 1 } })
})

test('a patch merges objects, replaces lists, adds and removes members, and creates a version', async (t) => {
  const world = await openKv(t)
  const posted = await write(world, 'a', { keep: 1, nested: { keep: 2, change: 3, gone: 4 }, list: [1, 2], gone: 5 })
  const patch = { nested: { change: 30, added: { deep: true }, gone: null }, list: [3], gone: null, fresh: 'f' }
  const patched = await expect(world, 200, 'PATCH', 'secret/data/a', { data: patch })
  assert.deepEqual(Object.keys(patched.data).sort(), Object.keys(posted).sort())
  assert.equal(patched.data['version'], 2)
  const { data } = await read(world, 'a')
  const nested = { keep: 2, change: 30, added: { deep: true } }
  assert.deepEqual(data, { keep: 1, nested, list: [3], fresh: 'f' })
  assert.deepEqual((await read(world, 'a', '?version=1')).data, {
    keep: 1,
    nested: { keep: 2, change: 3, gone: 4 },
    list: [1, 2],
    gone: 5,
  })
})

test('a patch of a deleted or destroyed version is 404 with its state', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  await expect(world, 204, 'DELETE', 'secret/data/a')
  const deleted = await expect(world, 404, 'PATCH', 'secret/data/a', { data: { x: 2 } })
  assert.deepEqual([deleted.data['version'], deleted.data['destroyed']], [1, false])
  assert.notEqual(deleted.data['deletion_time'], '')
  await expect(world, 204, 'POST', 'secret/destroy/a', { versions: [1] })
  const destroyed = await expect(world, 404, 'PATCH', 'secret/data/a', { data: { x: 2 } })
  assert.deepEqual([destroyed.data['version'], destroyed.data['destroyed']], [1, true])
})

test('a patch with another content type is 415', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  for (const [type, status] of [
    ['application/json', 415],
    ['text/plain', 415],
    ['', 400],
    ['application/merge-patch+json; charset=utf-8', 200],
  ] as const) {
    const headers = { 'content-type': type }
    const answer = await world.ask('PATCH', 'secret/data/a', { data: { x: 2 } }, { headers })
    assert.equal(answer.status, status, type)
  }
})

test('null in a patch removes a member, also for a root token', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { gone: 1, kept: 2 })
  await expect(world, 200, 'PATCH', 'secret/data/a', { data: { gone: null } })
  assert.deepEqual((await read(world, 'a')).data, { kept: 2 })
})

test('versions are accepted as numbers, strings, a comma-separated string, or one number', async (t) => {
  const world = await openKv(t)
  for (const versions of [[1, 2], ['1', '2'], '1,2']) {
    await expect(world, 204, 'DELETE', 'secret/metadata/a')
    for (const x of [1, 2, 3]) await write(world, 'a', { x })
    await expect(world, 204, 'POST', 'secret/delete/a', { versions })
    const statuses = await Promise.all(
      [1, 2, 3].map(async (each) => (await read(world, 'a', `?version=${each}`)).status),
    )
    assert.deepEqual(statuses, [404, 404, 200], JSON.stringify(versions))
  }
  await expect(world, 204, 'POST', 'secret/undelete/a', { versions: 1 })
  assert.equal((await read(world, 'a', '?version=1')).status, 200)
})

test('deleted versions are 404 with a deletion time, others are unchanged, and undelete restores them', async (t) => {
  const world = await openKv(t)
  for (const x of [1, 2, 3]) await write(world, 'a', { x })
  await expect(world, 204, 'POST', 'secret/delete/a', { versions: [1, 3, 99] })
  const metadata = async () => {
    const { data } = await expect(world, 200, 'GET', 'secret/metadata/a')
    return Object.values(data['versions'] as Record<string, { deletion_time: string }>).map(
      (each) => each.deletion_time !== '',
    )
  }
  assert.deepEqual(await metadata(), [true, false, true])
  assert.deepEqual((await read(world, 'a', '?version=2')).data, { x: 2 })
  assert.equal((await read(world, 'a')).status, 404)
  await expect(world, 204, 'POST', 'secret/undelete/a', { versions: [1, 3] })
  assert.deepEqual(await metadata(), [false, false, false])
  assert.deepEqual((await read(world, 'a', '?version=1')).data, { x: 1 })
})

test('a destroyed version has no data, and undelete does not restore it', async (t) => {
  const world = await openKv(t)
  for (const x of [1, 2]) await write(world, 'a', { x })
  await expect(world, 204, 'POST', 'secret/delete/a', { versions: [1] })
  await expect(world, 204, 'POST', 'secret/destroy/a', { versions: [1, 2, 77] })
  for (const version of [1, 2]) {
    const { data, metadata, status } = await read(world, 'a', `?version=${version}`)
    assert.deepEqual([status, data, metadata?.['destroyed']], [404, null, true])
  }
  const mount = world.core.open.mounts.get('secret/')
  assert.ok(mount)
  const [record = '', ...others] = mount.storage.list('k/')
  assert.deepEqual(others, [], 'no data is left in the store')
  assert.equal(mount.storage.get(`k/${record}`)?.includes('"x"'), false, 'nor in the record')
  await expect(world, 204, 'POST', 'secret/undelete/a', { versions: [1, 2] })
  assert.equal((await read(world, 'a', '?version=1')).metadata?.['destroyed'], true)
})

test('delete, undelete and destroy without valid versions are 400, and 204 for a missing secret', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  for (const [verb, text] of [
    ['delete', 'No version number provided'],
    ['undelete', 'No version number provided'],
    ['destroy', 'no version number provided'],
  ] as const) {
    for (const body of [{}, { versions: [] }, { versions: null }, { versions: '' }]) {
      assert.deepEqual((await expect(world, 400, 'POST', `secret/${verb}/a`, body)).errors, [text])
    }
    for (const versions of ['x', [1.5], ['a'], [[1]], { a: 1 }, [null, 'x']]) {
      const { errors } = await expect(world, 400, 'POST', `secret/${verb}/a`, { versions })
      assert.match(errors[0] ?? '', /^Field validation failed: error converting input for field "versions": /)
    }
    await expect(world, 204, 'POST', `secret/${verb}/none`, { versions: [1] })
    await expect(world, 204, 'POST', `secret/${verb}/a`, { versions: [-1, 0, 5] })
    await expect(world, 405, 'GET', `secret/${verb}/a`)
  }
  assert.deepEqual((await read(world, 'a')).data, { x: 1 })
})

test('delete, undelete and destroy require no cas, and a delete overrides a future deletion time', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { x: 1 })
  await expect(world, 204, 'POST', 'secret/config', { cas_required: true, delete_version_after: '1h' })
  await write(world, 'a', { x: 2 }, 1)
  await expect(world, 204, 'DELETE', 'secret/data/a')
  assert.equal((await read(world, 'a')).metadata?.['deletion_time'], new Date(world.core.now()).toISOString())
  await expect(world, 204, 'POST', 'secret/undelete/a', { versions: [2] })
  await expect(world, 204, 'POST', 'secret/destroy/a', { versions: [2] })
  assert.equal((await read(world, 'a')).metadata?.['destroyed'], true)
})

test('subkeys of a missing secret are 404; those of each version have null in place of values', async (t) => {
  const world = await openKv(t)
  await expect(world, 404, 'GET', 'secret/subkeys/a')
  await write(world, 'a', { one: 1, two: { three: [1, 2], four: { five: 'x' } } })
  await write(world, 'a', { other: true })
  await expect(world, 404, 'GET', 'secret/subkeys/a?version=3')
  const first = await expect(world, 200, 'GET', 'secret/subkeys/a?version=1')
  assert.deepEqual(first.data['subkeys'], { one: null, two: { three: null, four: { five: null } } })
  assert.deepEqual((first.data['metadata'] as Record<string, unknown>)['version'], 1)
  assert.deepEqual((await expect(world, 200, 'GET', 'secret/subkeys/a')).data['subkeys'], { other: null })
})

test('depth limits the levels of subkeys', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', { one: { two: { three: 3 } } })
  for (const [query, subkeys] of [
    ['', { one: { two: { three: null } } }],
    ['?depth=0', { one: { two: { three: null } } }],
    ['?depth=1', { one: null }],
    ['?depth=2', { one: { two: null } }],
    ['?depth=99', { one: { two: { three: null } } }],
    ['?depth=-1', { one: null }],
  ] as const) {
    assert.deepEqual((await expect(world, 200, 'GET', `secret/subkeys/a${query}`)).data['subkeys'], subkeys, query)
  }
  const { errors } = await expect(world, 400, 'GET', 'secret/subkeys/a?depth=x')
  assert.match(errors[0] ?? '', /^Field validation failed: error converting input for field "depth": /)
})

test('empty data has no subkeys, an empty object is null, and a deleted or destroyed version is 404', async (t) => {
  const world = await openKv(t)
  await write(world, 'a', {})
  assert.deepEqual((await expect(world, 200, 'GET', 'secret/subkeys/a')).data['subkeys'], {})
  await write(world, 'a', { empty: {}, list: [], nil: null })
  const { data } = await expect(world, 200, 'GET', 'secret/subkeys/a')
  assert.deepEqual(data['subkeys'], { empty: null, list: null, nil: null })
  await expect(world, 204, 'DELETE', 'secret/data/a')
  const deleted = await expect(world, 404, 'GET', 'secret/subkeys/a')
  assert.deepEqual([deleted.data['subkeys'], (deleted.data['metadata'] as { version: number }).version], [null, 2])
  await expect(world, 204, 'POST', 'secret/destroy/a', { versions: [2] })
  const destroyed = await expect(world, 404, 'GET', 'secret/subkeys/a')
  assert.equal((destroyed.data['metadata'] as { destroyed: boolean }).destroyed, true)
})

test('the data of versions that are pruned is removed from the store', async (t) => {
  const world = await openKv(t)
  const blobs = () => world.core.barrier.paths('').filter((path) => /\/k\/[^/]+\/\d+$/.test(path)).length
  await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: 3 })
  const values = Array.from({ length: 9 }, (_, at) => ({ long: `${at}`.repeat(at % 2 === 0 ? 20_000 : 10) }))
  for (const value of values) await write(world, 'a', value)
  assert.ok(blobs() === 2 || blobs() === 3, `${blobs()} for 3 versions`)
  // The newest versions that are kept have theirs, and the settings of the engine count where the secret has none.
  for (const version of [7, 8, 9]) {
    assert.deepEqual((await read(world, 'a', `?version=${version}`)).data, values[version - 1])
  }
  await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: 1 })
  await write(world, 'a', { long: 'x'.repeat(20_000) })
  assert.ok(blobs() <= 1, `${blobs()} for 1 version`)
  assert.equal((await read(world, 'a', '?version=9')).status, 404)
  await expect(world, 204, 'DELETE', 'secret/metadata/a')
  assert.equal(blobs(), 0)
})
