/** A refusal that is based on a write of another request is answered after that write is durable, or has failed. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { kv } from '../../../src/engines/kv/kv.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { addKv, openKv, readSecret } from '../../helpers/kv-world.ts'
import { steppedStore } from '../../helpers/stepped-store.ts'

const write = (world: CoreWorld, from: string) =>
  world.ask('POST', 'secret/data/a', { data: { from }, options: { cas: 0 } })

test('a mismatch of a check-and-set is answered after the write that it lost to can be read', async (t) => {
  const world = await openKv(t)
  const won = write(world, 'first')
  assert.equal((await write(world, 'second')).status, 400)
  assert.deepEqual((await readSecret(world, 'a')).data, { from: 'first' })
  assert.equal((await won).status, 200)
})

test('a refusal that is based on a write that fails reports the failure', async (t) => {
  let isFailing = false
  const world = await CoreWorld.open(t, {
    engines: [kv],
    wrap: (real) => ({
      ...steppedStore(real, () => undefined),
      settled: () => (isFailing ? Promise.reject(new Error('the commit failed')) : undefined),
    }),
  })
  await addKv(world)
  assert.equal((await write(world, 'first')).status, 200)
  assert.equal((await write(world, 'second')).status, 400)
  isFailing = true
  await assert.rejects(write(world, 'second'), /the commit failed/)
  assert.equal((await readSecret(world, 'none')).status, 404)
})
