/** Leases that end while something else happens to them: renewals, failed revocations, others of their path. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { Storage } from '../../src/storage/barrier/storage.ts'
import { type CoreAnswer, CoreWorld } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'
import { leaseTestEngine } from '../helpers/lease-test-engine.ts'

async function lending(t: TestContext) {
  const own = leaseTestEngine()
  const world = await CoreWorld.open(t, { engines: [own.engine] })
  assert.equal((await world.ask('POST', 'sys/mounts/lent', { type: 'lender' })).status, 204)
  return { own, world }
}

const idOf = (answer: CoreAnswer) => String(answer.body['lease_id'])

test('a lease that expires while its engine renews it is not renewed', async (t) => {
  const { own, world } = await lending(t)
  const { revocation, store, expiry } = world.core.open.leases
  const renewing = async () => {
    const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=60'))
    const { promise, resolve } = Promise.withResolvers<void>()
    own.renewing = promise
    const answer = world.ask('PUT', 'sys/leases/renew', { lease_id: id, increment: 600 })
    const refused = async () => {
      resolve()
      const { body, status } = await answer
      return [status, body.errors[0]]
    }
    return { id, hash: store.hashOf(id), answer, resolve, refused }
  }

  const expired = await renewing()
  world.nowMs += 61_000
  assert.deepEqual(await expired.refused(), [400, 'lease expired'])
  await expiry.tick()
  assert.equal(own.leased.size, 0)

  const revoked = await renewing()
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: revoked.id })).status, 204)
  assert.deepEqual(await revoked.refused(), [400, 'lease not found'])

  const swept = await renewing()
  world.nowMs += 61_000
  await expiry.tick()
  assert.deepEqual(await swept.refused(), [400, 'lease not found'])

  const begun = await renewing()
  const gone = revocation.revoke(begun.hash)
  assert.equal(store.pendingByHash(begun.hash)?.revocation, undefined, 'nothing of the revocation is written yet')
  assert.deepEqual(await begun.refused(), [400, 'lease not found'])
  assert.equal(await gone, true)

  const failed = await renewing()
  own.fault = new Error('the cloud is away')
  await world.ask('PUT', 'sys/leases/revoke', { lease_id: failed.id })
  assert.deepEqual(await failed.refused(), [400, 'lease expired'], 'its revocation has failed and is retried')
  own.fault = undefined
  await world.ask('PUT', 'sys/leases/revoke', { lease_id: failed.id })

  const left = world.store.paths('sys/lease/').filter((each) => !each.endsWith('salt'))
  assert.deepEqual(left, [], 'no refused renewal has left an entry')
})

test('a renewal whose engine takes more than 30 s fails and leaves the lease unchanged', async (t) => {
  const { own, world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=60'))
  const { store } = world.core.open.leases
  const before = store.find(id)
  const late = new AbortController()
  const limits: number[] = []
  t.mock.method(AbortSignal, 'timeout', (ms: number) => {
    limits.push(ms)
    return late.signal
  })
  own.renewing = new Promise(() => undefined)
  let fault: unknown
  world.ask('PUT', 'sys/leases/renew', { lease_id: id, increment: 600 }).catch((error: unknown) => (fault = error))
  late.abort()
  await eventually(() => fault !== undefined, 'the renewal ends')
  assert.match(String(fault), /the engine of the lease timed out/)
  t.mock.restoreAll()
  assert.deepEqual(limits, [30_000])
  assert.deepEqual(store.find(id), before)
  own.renewing = undefined
  assert.equal((await world.ask('PUT', 'sys/leases/renew', { lease_id: id, increment: 600 })).status, 200)
})

test('a revocation is retried with exponential backoff from one second to 15 minutes', async (t) => {
  const { own, world } = await lending(t)
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=60'))
  const { store, expiry } = world.core.open.leases
  const hash = store.hashOf(id)
  const standing = () => store.pendingByHash(hash)?.revocation
  const irrevocable = async () => (await world.ask('GET', 'sys/leases/count?type=irrevocable')).body.data['lease_count']
  own.fault = new Error('the cloud is away')
  world.nowMs += 60_000
  const waits: number[] = []
  for (let attempts = 1; attempts <= 13; attempts++) {
    await expiry.tick()
    assert.equal(standing()?.attempts, attempts)
    const nextAtMs = standing()?.nextAtMs ?? assert.fail()
    waits.push((nextAtMs - world.nowMs) / 1000)
    assert.equal(await irrevocable(), attempts < 6 ? 0 : 1, `after ${attempts} attempts`)
    world.nowMs = nextAtMs - 1
    await expiry.tick()
    assert.equal(standing()?.attempts, attempts, 'not a moment earlier')
    world.nowMs = nextAtMs
  }
  assert.deepEqual(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900, 900])
  await expiry.tick()
  own.fault = new Error('now something else')
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: id })).status, 400)
  assert.deepEqual([standing()?.attempts, standing()?.error], [15, 'now something else'], 'a request does not wait')
  own.fault = undefined
  assert.equal((await world.ask('PUT', 'sys/leases/revoke', { lease_id: id })).status, 204)
  assert.deepEqual([await irrevocable(), own.leased.size], [0, 0])
})

test('a lease that is queued while the last lease of its path is removed is still found', async (t) => {
  const { world } = await lending(t)
  const { store } = world.core.open.leases
  const mount = world.core.open.mounts.get('lent/')?.record.uuid ?? ''
  const issue = () => {
    const order = { ttlSeconds: 60, maxTtlSeconds: 0, renewable: true, internal: {} }
    const ttlLimits = { defaultTtlSeconds: 60, maxTtlSeconds: 600 }
    const path = { path: 'lent/creds/app', rest: 'creds/app' }
    return store.issue({ mount, ...path, order, ttlLimits, tokenHash: '', nowMs: world.nowMs })
  }
  const remove = (lease: ReturnType<typeof issue>['lease']) => Storage.commitAll([store.removalPart(lease)])
  const found = () => [...store.hashesUnder('lent/')]

  const first = issue()
  await Storage.commitAll([first.part])
  first.done()
  await remove(first.lease)
  const second = issue()
  const third = issue()
  const queued = Storage.commitAll([second.part])
  await store.removeUnusedPath(first.lease)
  await queued
  second.done()
  assert.deepEqual(found(), [store.hashOf(second.lease.id)])

  await remove(second.lease)
  const alsoQueued = Storage.commitAll([third.part])
  await store.removeUnusedPath(second.lease)
  await alsoQueued
  third.done()
  assert.deepEqual(found(), [store.hashOf(third.lease.id)], 'one of two leases being issued is durable')

  await remove(third.lease)
  await store.removeUnusedPath(third.lease)
  assert.deepEqual([...store.issuingPaths()], [], 'none is left')
})

test('concurrent revocations of a lease call the engine once', async (t) => {
  const { own, world } = await lending(t)
  const { revocation, store } = world.core.open.leases
  const id = idOf(await world.ask('GET', 'lent/creds/app?ttl=60'))
  const hash = store.hashOf(id)
  const results = await Promise.all([revocation.revoke(hash), revocation.revoke(hash), revocation.revoke(hash)])
  assert.deepEqual(results, [true, true, true])
  assert.deepEqual([...own.revocations.values()], [1])
})
