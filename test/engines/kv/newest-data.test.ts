/** The data of the newest version is in the record where it is small; this is not visible through the API. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openKv, readSecret as read, writeSecret as write, expectStatus as expect } from '../../helpers/kv-world.ts'

const SMALL = { x: 'small' }
const LARGE = { x: 'ü'.repeat(5000) }

test('versions of all sizes in sequence are returned unchanged', async (t) => {
  const world = await openKv(t)
  const sizes = [SMALL, LARGE, LARGE, SMALL, SMALL, LARGE, SMALL]
  for (const [at, data] of sizes.entries()) {
    await write(world, 'a', data, at)
    for (const [before, kept] of sizes.slice(0, at + 1).entries()) {
      assert.deepEqual((await read(world, 'a', `?version=${before + 1}`)).data, kept)
    }
    assert.deepEqual((await read(world, 'a')).data, data)
  }
  await expect(world, 204, 'POST', 'secret/metadata/a', { max_versions: 2, custom_metadata: { k: 'v' } })
  assert.deepEqual((await read(world, 'a')).data, SMALL)
  await expect(world, 200, 'POST', 'secret/copy/a', { to: 'b' })
  for (const name of ['a', 'b']) {
    await write(world, name, LARGE, 7)
    assert.deepEqual((await read(world, name, '?version=7')).data, SMALL)
    assert.equal((await read(world, name, '?version=6')).status, 404)
    await expect(world, 204, 'POST', `secret/destroy/${name}`, { versions: [7] })
    assert.equal((await read(world, name, '?version=7')).status, 404)
    assert.deepEqual((await read(world, name)).data, LARGE)
  }
  const mount = world.core.open.mounts.get('secret/')
  await expect(world, 204, 'DELETE', 'secret/metadata/a')
  await expect(world, 204, 'DELETE', 'secret/metadata/b')
  assert.deepEqual(mount?.storage.list('k/'), [], 'nothing is left')
})

test('a secret of version 1 changes its size and survives the upgrade of the mount', async (t) => {
  const world = await openKv(t, '1')
  for (const [at, data] of [SMALL, LARGE, LARGE, LARGE, SMALL, SMALL].entries()) {
    await expect(world, 204, 'POST', `secret/v${at % 2}`, data)
    assert.deepEqual((await expect(world, 200, 'GET', `secret/v${at % 2}`)).data, data)
  }
  const mount = world.core.open.mounts.get('secret/')
  const blobs = mount?.storage.list('k/').filter((each) => each.endsWith('/'))
  assert.deepEqual(blobs, [], 'what was large is gone')
  await expect(world, 200, 'POST', 'sys/mounts/secret/tune', { options: { version: '2' } })
  assert.deepEqual((await read(world, 'v1')).data, SMALL)
  await write(world, 'v1', LARGE, 1)
  assert.deepEqual((await read(world, 'v1', '?version=1')).data, SMALL)
})
