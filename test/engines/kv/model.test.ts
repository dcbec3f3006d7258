/**
 * Random operations against the core and against a model of a hundred lines: every answer must be the model's. In between
 * time passes, the core is sealed and opened, and its database is closed and opened by another core.
 *
 * `OUTPOST_MODEL_OPERATIONS` tells how many (100000 for the whole), `OUTPOST_SEED` repeats a run.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { kv } from '../../../src/engines/kv/kv.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { Random } from '../../helpers/frames.ts'
import { type Expected, KvModel, type KvOperation } from '../../helpers/kv-model.ts'
import { isRead, randomOperation, requestOf } from '../../helpers/kv-operations.ts'
import { openKv } from '../../helpers/kv-world.ts'

const OPERATIONS = Number(process.env['OUTPOST_MODEL_OPERATIONS'] ?? 1000)
const SEED = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 2 ** 31)

/** Several at once, as callers would; a read waits for what was written before it. */
async function ask(world: CoreWorld, operation: KvOperation) {
  const { body, method, path } = requestOf(operation)
  return world.ask(method, path, body)
}

function check(operation: KvOperation, expected: Expected, answer: Awaited<ReturnType<typeof ask>>): void {
  const where = `OUTPOST_SEED=${SEED}: ${JSON.stringify(operation)}: ${answer.text.slice(0, 400)}`
  assert.equal(answer.status, expected.status, where)
  if (expected.errors) assert.deepEqual(answer.body.errors, expected.errors, where)
  if (expected.data === undefined) return
  const data: Record<string, unknown> = { ...answer.body.data }
  // Order of a scan: what is in a folder comes first. test/engines/kv/names.test.ts looks at that.
  const keys = data['keys']
  if (operation.kind === 'scan' && Array.isArray(keys))
    keys.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  assert.deepEqual(data, expected.data, where)
}

test(`${OPERATIONS} random operations have the responses of the model`, async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const random = new Random(SEED)
  const model = new KvModel()
  let world = await openKv(t)
  const reopened = { stop: async () => undefined as unknown }
  t.after(() => reopened.stop())
  const waiting: Promise<void>[] = []
  for (let done = 0; done < OPERATIONS; done++) {
    const operation = randomOperation(random, (name) => model.keys.get(name)?.current ?? 0)
    if (isRead(operation) || waiting.length >= 16) await Promise.all(waiting.splice(0))
    const expected = model.apply(operation, world.core.now())
    waiting.push(ask(world, operation).then((answer) => check(operation, expected, answer)))
    if (!random.chance(0.05)) continue
    await Promise.all(waiting.splice(0))
    world.nowMs += random.pick([0, 1, 1000, 4999, 5000, 31_000, 3_600_000])
    if (!random.chance(0.06)) continue
    await world.core.seal()
    if (random.chance(0.5)) world.unseal()
    else {
      await world.store.close()
      const { directory, keys, nowMs } = world
      world = await CoreWorld.reopen(directory, keys, { engines: [kv], nowMs })
      const { store } = world
      reopened.stop = () => store.close()
    }
  }
  await Promise.all(waiting)
})
