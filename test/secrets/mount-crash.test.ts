/** A process that is killed at every step of what happens to a mount: each change is there whole, or not at all. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../src/store/check.ts'
import { CoreWorld, type WorldKeys } from '../helpers/core-world.ts'
import { Shelf } from '../helpers/shelf-engine.ts'
import { temporaryDirectory, until } from '../host/host-fixture.ts'
import { ENTRIES, type Said, STEPS } from './mount-steps.ts'

const CRASHER = join(import.meta.dirname, 'mount-crasher.ts')

/** Runs it to its end or to the commit that kills it; resolves with what it said. */
async function run(directory: string, { rootToken, unsealKey }: WorldKeys, at: number, when: string): Promise<Said[]> {
  const child = spawn(process.execPath, [CRASHER, directory, unsealKey, rootToken, String(at), when], {
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let said = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text))
  const [code, signal] = await once(child, 'close')
  assert.ok(code === 0 || signal === 'SIGKILL', `ended with ${code} ${signal}`)
  const lines = said.split('\n').slice(0, -1)
  return lines.map((line): Said => JSON.parse(line))
}

async function base(t: TestContext): Promise<{ directory: string; keys: WorldKeys }> {
  const world = await CoreWorld.open(t)
  await world.core.seal()
  await world.store.close()
  return { directory: world.directory, keys: world.keys }
}

/** What the next process finds: nothing of the mount, or all of it, at one place. */
async function check(directory: string, keys: WorldKeys, said: readonly Said[], what: string): Promise<void> {
  assert.deepEqual(checkDatabase(join(directory, 'secrets.db')), [], what)
  const world = await CoreWorld.reopen(directory, keys, { engines: [new Shelf().engine] })
  try {
    await look(world, said, what)
  } finally {
    await world.core.seal()
    await world.store.close()
  }
}

async function look(world: CoreWorld, said: readonly Said[], what: string): Promise<void> {
  const { core, store } = world
  const isAnswered = (step: Said['step']) => said.some((each) => each.step === step)
  const mount = core.open.mounts.get('a/') ?? core.open.mounts.get('b/')
  const records = () => store.paths('core/mounts/').length
  const data = () => store.paths('logical/').length
  if (mount) {
    const { description, path } = mount.record
    assert.equal(isAnswered('disabled'), false, what)
    assert.equal(records(), 4, what)
    assert.ok(data() === ENTRIES || (data() === 0 && !isAnswered('filled')), what)
    if (isAnswered('tuned')) assert.equal(description, 'tuned', what)
    if (isAnswered('moved')) assert.equal(path, 'b/', what)
    assert.equal((await world.ask('DELETE', `sys/mounts/${path}`)).status, 204)
  } else {
    assert.equal(isAnswered('enabled') && !isAnswered('moved'), false, what)
    // What was on its way out goes on by itself.
    await until(() => records() === 3 && data() === 0)
  }
  assert.deepEqual([records(), data()], [3, 0], what)
  for (const path of ['a', 'b'])
    assert.equal((await world.ask('POST', `sys/mounts/${path}`, { type: 'shelf' })).status, 204)
}

test('a mount survives the death of its process whole, or not at all', async (t) => {
  const { directory, keys } = await base(t)
  const room = temporaryDirectory(t)
  const attempt = async (at: number, when: string): Promise<boolean> => {
    const copy = join(room, `${at}-${when}`)
    cpSync(directory, copy, { recursive: true })
    const said = await run(copy, keys, at, when)
    const done = said.find(({ step }) => step === 'disabled')
    if (done) assert.equal(done.commits, at - 1, 'it was killed at every commit before')
    assert.deepEqual(
      said.map(({ step }) => step),
      STEPS.slice(0, said.length),
    )
    await check(copy, keys, said, `killed at commit ${at}, ${when}, after ${said.at(-1)?.step ?? 'nothing'}`)
    return done !== undefined
  }
  for (let at = 1; ; at++) {
    const [isOver] = await Promise.all([attempt(at, 'queued'), attempt(at, 'durable')])
    if (isOver) break
  }
})
