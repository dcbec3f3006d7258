/** What the log, readiness and callers learn about a device that fails, and when it counts as recovered. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync, renameSync, rmdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { CoreWorld } from '../../helpers/core-world.ts'

async function withFile(t: TestContext) {
  const world = await CoreWorld.open(t)
  const file = join(world.directory, 'audit.log')
  const enabled = await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file } })
  assert.equal(enabled.status, 204, enabled.text)
  return { world, file }
}

const read = (world: CoreWorld) => world.ask('GET', 'sys/mounts')

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
  assert.equal(world.core.audit?.states[0]?.reason, 'is not a regular file')
  const [first, ...others] = healthLines(world)
  assert.match(first ?? '', /^write failed \/.*: EISDIR/)
  assert.deepEqual(others, [`write failed ${file} is not a regular file`], 'within the same minute')
  rmSync(file)
  assert.equal((await read(world)).status, 200)
  assert.equal(healthLines(world).at(-1), 'recovered')
})
