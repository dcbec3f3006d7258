/** Many leases are revoked at once: in few commits, each with the batch of its engine, without delaying each other. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Batch } from '../../../src/storage/barrier/storage.ts'
import { type Engine, path } from '../../../src/engines/framework/engine.ts'
import { inPath } from '../../../src/engines/framework/fields.ts'
import { eachPage, inPages } from '../../../src/secrets/leases/paged-work.ts'
import { CoreWorld } from '../../helpers/core-world.ts'

const LEASES = 300

/** Gives leases; `batchOf` is what it returns for the one of this number when it takes it back. */
function noting(batchOf: (number: number) => Batch | undefined): Engine & { readonly taken: number[] } {
  const taken: number[] = []
  return {
    type: 'noting',
    description: 'gives leases',
    taken,
    paths: [
      path({
        pattern: 'creds/:number',
        summary: 'A lease',
        fields: { number: inPath('Any') },
        read: ({ number }) => ({
          data: {},
          lease: { ttlSeconds: 60, maxTtlSeconds: 0, renewable: true, internal: { number: Number(number) } },
        }),
      }),
    ],
    isRevokedInside: () => true,
    revoke({ internal: { number } }) {
      taken.push(Number(number))
      return batchOf(Number(number))
    },
  }
}

async function given(t: Parameters<typeof CoreWorld.open>[0], engine: Engine): Promise<CoreWorld> {
  const world = await CoreWorld.open(t, { engines: [engine] })
  assert.equal((await world.ask('POST', 'sys/mounts/noted', { type: 'noting' })).status, 204)
  for (let at = 0; at < LEASES; at++) assert.equal((await world.ask('GET', `noted/creds/${at}`)).status, 200)
  return world
}

const leftIn = (world: CoreWorld) => world.store.paths('sys/lease/').filter((name) => !name.endsWith('salt'))
const note = (name: string, number: number): Batch => {
  return { puts: [{ path: name, value: Buffer.from(String(number)) }], deletes: [] }
}

test('leases of an engine without batches are removed in few commits, by prefix and by expiry', async (t) => {
  const engine = noting(() => undefined)
  const world = await given(t, engine)
  const before = world.store.position().sequence
  assert.equal((await world.ask('PUT', 'sys/leases/revoke-prefix/noted/creds')).status, 204)
  assert.deepEqual(leftIn(world), [])
  assert.deepEqual(
    engine.taken.toSorted((a, b) => a - b),
    [...Array(LEASES).keys()],
    'each is asked for once',
  )
  // A text goes with the last lease of its path: that is a commit of its own.
  const commits = world.store.position().sequence - before - LEASES
  assert.ok(commits < LEASES / 10, `${commits} commits`)
})

test('the batch of an engine is committed with the removal of its lease, and a batch that cannot be written keeps its lease only', async (t) => {
  const engine = noting((number) => {
    if (number === 7) return note('//', number)
    return number % 2 === 0 ? note('last', number) : undefined
  })
  const world = await given(t, engine)
  world.nowMs += 61_000
  await world.core.open.leases.expiry.tick()
  const { irrevocable, leases } = await world.core.open.leases.counts()
  assert.deepEqual({ irrevocable, leases }, { irrevocable: 0, leases: 1 })
  const [left] = world.store.paths('sys/lease/id/')
  const lease = world.core.open.leases.store.pendingByHash(left?.split('/').at(-1) ?? '')
  assert.deepEqual(lease?.internal, { number: 7 })
  assert.equal(lease?.revocation?.attempts, 1)
  assert.equal(world.store.paths('').filter((name) => name.endsWith('/last')).length, 1)
})

test('pages start in order, at most four run concurrently, and an error stops them', async () => {
  let [underWay, most] = [0, 0]
  const begun: number[] = []
  const work = async ([first = 0]: number[]) => {
    begun.push(first)
    most = Math.max(most, ++underWay)
    await new Promise((resolve) => setImmediate(() => setImmediate(() => setImmediate(() => setImmediate(resolve)))))
    underWay--
    if (first === 20) throw new Error('no more')
    return true
  }
  const numbers = Array.from({ length: 100 }, (_, at) => at)
  await assert.rejects(eachPage(inPages(numbers, 2), work), /no more/)
  assert.equal(underWay, 0)
  assert.ok(most > 1 && most <= 4, `${most} under way`)
  assert.deepEqual(begun, numbers.filter((at) => at % 2 === 0).slice(0, begun.length))
  assert.ok(begun.length < 20, `${begun.length} pages were begun`)
})
