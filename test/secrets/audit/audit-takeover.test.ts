/** Audit devices when a server becomes active: its own chains continue, and a server that cannot record does not become active. */
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { type Engine, path } from '../../../src/engines/framework/engine.ts'
import { CoreWorld } from '../../helpers/core-world.ts'
import { ScriptedHa } from '../../helpers/scripted-ha.ts'

/** A request that ends when the test says so. */
function slowEngine() {
  const gate = Promise.withResolvers<void>()
  const begun = Promise.withResolvers<void>()
  const slow: Engine = {
    type: 'slow',
    description: 'waits',
    paths: [
      path({
        pattern: 'wait',
        summary: 'Wait',
        fields: {},
        async update() {
          begun.resolve()
          await gate.promise
          return { data: { done: true } }
        },
      }),
    ],
  }
  return { slow, begun: begun.promise, end: gate.resolve }
}

async function opened(t: TestContext, engines: readonly Engine[] = []) {
  const world = await CoreWorld.open(t, { engines, ha: new ScriptedHa() })
  const file = join(world.directory, 'audit.log')
  const enabled = await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file } })
  assert.equal(enabled.status, 204, enabled.text)
  return { world, file }
}

test('a server that is active again continues its chain, also if a request of its last activity still runs', async (t) => {
  const { begun, end, slow } = slowEngine()
  const { file, world } = await opened(t, [slow])
  await world.ask('POST', 'sys/mounts/slow', { type: 'slow' })
  const late = world.ask('POST', 'slow/wait')
  await begun
  await world.core.enterStandby()
  await world.core.leaveStandby()
  assert.equal((await world.ask('GET', 'sys/mounts')).status, 200)
  end()
  const { status, text } = await late
  assert.equal(status, 500, text)
  assert.equal((await world.ask('GET', 'sys/mounts')).status, 200)
  await world.core.audit?.probe()
  const [state] = world.core.audit?.states ?? []
  assert.deepEqual([state?.broken, state?.fault], [undefined, undefined])
  const lines = readFileSync(file, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line))
  assert.deepEqual(
    lines.map(({ chain }) => chain.sequence),
    lines.map((_, at) => at + 1),
  )
  assert.equal(new Set(lines.map(({ chain }) => chain.id)).size, 1)
})

test('a server whose audit devices cannot record stays in standby, until one of them can', async (t) => {
  const { file, world } = await opened(t)
  await world.core.enterStandby()
  rmSync(file)
  mkdirSync(file)
  await assert.rejects(
    world.core.leaveStandby(),
    /no audit device of this server can record requests: file\/ .*audit\.log/,
  )
  assert.deepEqual([world.core.isActive, world.core.isHaStandby], [false, true])
  rmSync(file, { recursive: true })
  await world.core.leaveStandby()
  assert.equal((await world.ask('GET', 'sys/mounts')).status, 200)
})
