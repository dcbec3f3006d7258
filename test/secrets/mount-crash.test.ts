/** A process that is killed at every step of what happens to a mount: each change is there whole, or not at all. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../src/storage/store/database-check.ts'
import { CoreWorld, type WorldKeys } from '../helpers/core-world.ts'
import { MountTestEngine } from '../helpers/mount-test-engine.ts'
import { StepCopies } from '../helpers/step-copies.ts'
import { steppedStore } from '../helpers/stepped-store.ts'
import { ENTRIES, liveAMount, type Step, STEPS } from './mount-steps.ts'
import { eventually } from '../helpers/eventually.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const CRASHER = join(import.meta.dirname, 'mount-crasher.ts')

async function base(t: TestContext): Promise<{ directory: string; keys: WorldKeys }> {
  const world = await CoreWorld.open(t)
  await world.core.seal()
  await world.store.close()
  return { directory: world.directory, keys: world.keys }
}

/** What the next process finds: nothing of the mount, or all of it, at one place. */
async function check(directory: string, keys: WorldKeys, said: readonly Step[], what: string): Promise<void> {
  assert.deepEqual(checkDatabase(join(directory, 'secrets.db')), [], what)
  const world = await CoreWorld.reopen(directory, keys, { engines: [new MountTestEngine().engine] })
  try {
    await look(world, said, what)
  } finally {
    await world.core.seal()
    await world.store.close()
  }
}

async function look(world: CoreWorld, said: readonly Step[], what: string): Promise<void> {
  const { core, store } = world
  const isAnswered = (step: Step) => said.includes(step)
  const mount = core.open.mounts.get('a/') ?? core.open.mounts.get('b/')
  const records = () => store.paths('core/mounts/').length
  const data = () => store.paths('logical/').length
  if (mount) {
    const { description, path } = mount.record
    assert.equal(isAnswered('disabled'), false, what)
    assert.equal(records(), 5, what)
    assert.ok(data() === ENTRIES || (data() === 0 && !isAnswered('filled')), what)
    if (isAnswered('tuned')) assert.equal(description, 'tuned', what)
    if (isAnswered('moved')) assert.equal(path, 'b/', what)
    assert.equal((await world.ask('DELETE', `sys/mounts/${path}`)).status, 204)
  } else {
    assert.equal(isAnswered('enabled') && !isAnswered('moved'), false, what)
    // What was on its way out goes on by itself.
    await eventually(() => records() === 4 && data() === 0)
  }
  assert.deepEqual([records(), data()], [4, 0], what)
  for (const path of ['a', 'b'])
    assert.equal((await world.ask('POST', `sys/mounts/${path}`, { type: 'shelf' })).status, 204)
}

test('changes of mounts are atomic when the process is killed', async (t) => {
  const { directory, keys } = await base(t)
  const room = temporaryDirectory(t)
  const killed = join(room, 'killed')
  cpSync(directory, killed, { recursive: true })
  const said: Step[] = []
  let isCounting = false
  const copies = new StepCopies({ directory, name: 'secrets.db', room, said: () => [...said] })
  const world = await CoreWorld.reopen(directory, keys, {
    engines: [new MountTestEngine().engine],
    wrap: (real) => steppedStore(real, () => isCounting && copies.take()),
  })
  isCounting = true
  await liveAMount(world, (step) => said.push(step))
  isCounting = false
  copies.take()
  await world.close()
  assert.deepEqual(said, STEPS)
  assert.ok(copies.steps > 3 * STEPS.length, `${copies.steps} steps`)
  for (const copy of copies.all) {
    await check(copy.directory, keys, copy.said, `step ${copy.step}, after ${copy.said.at(-1) ?? 'nothing'}`)
  }
  const middle = String(Math.ceil(copies.steps / 2))
  const child = spawnSync(process.execPath, [CRASHER, killed, keys.unsealKey, keys.rootToken, middle])
  assert.equal(child.signal, 'SIGKILL', child.stderr.toString())
  const heard = STEPS.filter((step) => child.stdout.toString().includes(step))
  await check(killed, keys, heard, `killed by the system, after ${heard.at(-1) ?? 'nothing'}`)
})
