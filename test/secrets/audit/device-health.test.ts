/** What the log, readiness and callers learn about a device that fails, and when it counts as recovered. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, rmdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { loadConfig } from '../../../src/config/load.ts'
import { warningsOf } from '../../../src/daemon/monitoring/readiness.ts'
import { writeConfig } from '../../helpers/agent-process.ts'
import { CoreWorld } from '../../helpers/core-world.ts'

const STABLE_MS = 5000

async function withFile(t: TestContext) {
  const world = await CoreWorld.open(t)
  const file = join(world.directory, 'audit.log')
  const enabled = await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file } })
  assert.equal(enabled.status, 204, enabled.text)
  return { world, file }
}

const read = (world: CoreWorld) => world.ask('GET', 'sys/mounts')

/** Time passes without requests until the next probe. */
async function passes(world: CoreWorld, ms: number): Promise<void> {
  world.nowMs += ms
  await world.core.audit?.probe()
}

/** Messages about failures and recoveries, with the cause. */
function healthLines({ lines }: CoreWorld): string[] {
  const health = lines.filter(({ message }) => /^audit device (?:write failed|recovered)$/.test(message))
  return health.map(({ fields, message }) => [message.slice('audit device '.length), fields['error']].join(' ').trim())
}

test('each cause of a failure is named to callers without the path, and is logged immediately', async (t) => {
  const { file, world } = await withFile(t)
  renameSync(file, `${file}.1`)
  mkdirSync(file)
  const blocked = await read(world)
  assert.equal(blocked.body.errors[0], 'no audit device has recorded the request: file/ EISDIR')
  rmdirSync(file)
  execFileSync('mkfifo', [file])
  const refused = await read(world)
  assert.equal(refused.status, 500)
  assert.equal(refused.body.errors[0], 'no audit device has recorded the request: file/ is not a regular file')
  assert.equal(world.core.audit?.states[0]?.failure?.reason, 'is not a regular file')
  const [first, ...others] = healthLines(world)
  assert.match(first ?? '', /^write failed \/.*: EISDIR/)
  assert.deepEqual(others, [`write failed ${file} is not a regular file`], 'within the same minute')
  rmSync(file)
  assert.equal((await read(world)).status, 200)
  await passes(world, STABLE_MS)
  assert.equal(healthLines(world).at(-1), 'recovered')
})

test('the log names a recovery after 5 seconds without a failure, and the next failure immediately', async (t) => {
  const { file, world } = await withFile(t)
  const fails = async () => {
    rmSync(file)
    mkdirSync(file)
    assert.equal((await read(world)).status, 500)
    rmdirSync(file)
    assert.equal((await read(world)).status, 200)
  }
  const messages = () => healthLines(world).map((line) => line.split(' ', 2).join(' '))
  for (let at = 0; at < 50; at++) await fails()
  assert.deepEqual(messages(), ['write failed'], 'the last word is the failure')
  await passes(world, STABLE_MS - 1)
  assert.equal(messages().length, 1)
  await fails()
  await passes(world, STABLE_MS - 1)
  assert.equal(messages().length, 1, 'a failure restarts the period')
  await passes(world, 1)
  assert.deepEqual(messages().slice(1), ['recovered'], 'also without a request')
  await fails()
  assert.deepEqual(messages().slice(2), ['write failed'], 'within the same minute')
})

test('a device that records again is a warning until it has recovered', async (t) => {
  const { file, world } = await withFile(t)
  const config = loadConfig({ paths: [writeConfig(world.directory, '')] }).config
  const warnings = () => warningsOf({ cluster: undefined, config, core: world.core })
  renameSync(file, `${file}.1`)
  mkdirSync(file)
  assert.equal((await read(world)).status, 500)
  assert.deepEqual(warnings(), [], 'the check fails')
  rmdirSync(file)
  await passes(world, 2000)
  assert.deepEqual(warnings(), ['audit device write failed: file/ EISDIR, 2 s ago; it records again'])
  await passes(world, STABLE_MS - 2000)
  assert.deepEqual(warnings(), [])
})
