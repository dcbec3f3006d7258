/**
 * The disk of an audit file is full: a request that cannot be recorded has no effect and no answer, the file has
 * complete lines only, and requests succeed once there is space. If a partial write cannot be truncated, its complete
 * lines raise no alarm.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import fs, { closeSync, mkdirSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { loadConfig } from '../../src/config/load.ts'
import { warningsOf } from '../../src/daemon/monitoring/readiness.ts'
import { kv } from '../../src/engines/kv/kv.ts'
import { writeConfig } from '../helpers/agent-process.ts'
import { assertBothLines, assertWhole, auditLinesIn } from '../helpers/audit-lines.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { eventually } from '../helpers/eventually.ts'

/** Period without a failure after which a device has recovered */
const STABLE_MS = 5000

/** Leaves a part of a page, so that a write takes a part of its line. */
function fill(disk: string): void {
  const fd = openSync(join(disk, 'ballast'), 'a')
  try {
    for (;;) writeSync(fd, Buffer.alloc(4096))
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC')
  } finally {
    closeSync(fd)
  }
}

test('an audit file on a full disk refuses requests', { timeout: 280_000 }, async (t) => {
  const world = await CoreWorld.open(t, { engines: [kv] })
  const disk = join(world.directory, 'disk')
  mkdirSync(disk)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', disk], { stdio: 'ignore' })
  } catch {
    t.skip('needs the right to mount')
    return
  }
  try {
    await onFullDisk(t, world, disk)
  } finally {
    await world.core.seal()
    execFileSync('umount', ['-l', disk])
  }
})

/** `ftruncate` fails for all files of the process until `restore`. */
function failingTruncates(t: TestContext): { restore: () => void } {
  const { mock } = t.mock.method(fs, 'ftruncateSync', () => {
    throw Object.assign(new Error('EIO: i/o error, ftruncate'), { code: 'EIO' })
  })
  syncBuiltinESMExports()
  return {
    restore() {
      assert.ok(mock.callCount() > 0, 'what was written in part was to be removed')
      mock.restore()
      syncBuiltinESMExports()
    },
  }
}

/** While lines use the reserve, requests succeed, and an operator can see it. */
async function reportsReserve(world: CoreWorld, write: () => Promise<void>): Promise<void> {
  const audit = world.core.audit
  await eventually(async () => {
    await write()
    return audit?.states[0]?.isDiskFull
  }, 'lines use the reserve')
  assert.equal(audit?.states[0]?.fault, undefined)
  await audit?.probe()
  assert.equal(world.lines.at(-1)?.message, 'disk of an audit file is full, lines use the reserve')
  const config = loadConfig({ paths: [writeConfig(world.directory, '')] }).config
  const text = 'disk of audit device file/ is full, lines use its reserve: free space before it is used up'
  assert.deepEqual(warningsOf({ cluster: undefined, config, core: world.core }), [text])
}

async function onFullDisk(t: TestContext, world: CoreWorld, disk: string): Promise<void> {
  const file = join(disk, 'audit.log')
  await world.ask('POST', 'sys/mounts/kept', { type: 'kv', options: { version: '2' } })
  assert.equal((await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file } })).status, 204)
  const answered: string[] = []
  const refused: string[] = []
  let next = 0
  const write = async () => {
    const path = `kept/data/${next++}`
    const { body, status } = await world.ask('POST', path, { data: { password: 'planted-on-a-full-disk' } })
    if (status === 200) answered.push(path)
    else {
      assert.equal(status, 500)
      assert.match(body.errors[0] ?? '', /^no audit device has recorded the request: file\/ (?:ENOSPC|EIO)$/)
      refused.push(path)
    }
  }
  for (let round = 0; round < 3; round++) {
    await write()
    fill(disk)
    await reportsReserve(world, write)
    const before = refused.length
    const isUndone = round !== 1
    const truncates = isUndone ? undefined : failingTruncates(t)
    await eventually(async () => {
      await Promise.all(Array.from({ length: 16 }, write))
      return refused.length > before + 16
    }, 'the disk is full')
    truncates?.restore()
    if (isUndone) {
      assert.ok(readFileSync(file, 'utf8').endsWith('\n'), 'no part of a line is left')
      await assertWhole(file)
      assert.match(world.core.audit?.states[0]?.fault ?? '', /ENOSPC/)
    }
    rmSync(join(disk, 'ballast'))
    await world.core.audit?.probe()
    assert.equal(world.core.audit?.states[0]?.fault, undefined, 'it is known to record without a request')
    assert.equal(world.core.audit?.states[0]?.isDiskFull, false, 'the reserve is complete')
    assert.equal(world.lines.at(-1)?.message, 'disk of an audit file has space again')
    assert.equal(world.core.audit?.states[0]?.failure?.isPast, true, 'not recovered yet')
    world.nowMs += STABLE_MS
    await world.core.audit?.probe()
  }
  assert.deepEqual(
    world.core.audit?.states.map(({ breaks, lostFiles }) => [breaks, lostFiles]),
    [[0, 0]],
  )
  const logged = world.lines.filter(({ message }) => message.startsWith('audit device'))
  assert.deepEqual(
    logged.map(({ fields, message }) => [message, ...(String(fields['error']).match(/ENOSPC|EIO/) ?? [])].join(' ')),
    [
      'audit device enabled',
      'audit device write failed ENOSPC',
      'audit device recovered',
      'audit device write failed EIO',
      'audit device recovered',
      'audit device write failed ENOSPC',
      'audit device recovered',
    ],
    'each cause is logged once, and the end when it has ended',
  )
  const count = answered.length
  await write()
  assert.equal(answered.length, count + 1)
  await assertWhole(file)
  assertBothLines(auditLinesIn(file), answered)
  // One whose first line was recorded and not its second may have been done; one without its first was not.
  const asked = new Set(auditLinesIn(file).map(({ request }) => request?.['path']))
  for (const path of refused.filter((each) => !asked.has(each)))
    assert.equal((await world.ask('GET', path)).status, 404)
}
