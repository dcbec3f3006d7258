/**
 * Replays what was recorded around the end of allocations: their logs and files afterwards, followers of a log while its
 * allocation is collected, collecting twice and all at once, pipes, and statistics of tasks that run.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { send } from './call.ts'
import { comparableActual, comparableRecorded } from './comparable.ts'
import { lifecycleDifferences } from './differences-lifecycle.ts'
import { type CompatHost, makePipe, openDirectory, put, startHost, type TaskState, writeManifest } from './host.ts'
import { Judge, unexplained } from './judge.ts'
import { completed } from './differences-unary.ts'
import { recorded } from './recording.ts'

const NODE = '8a2ad8bf-9a87-f524-e953-c3ae0e33be92'
const rows = [...recorded('lifecycle'), ...recorded('more')]
const ENDED = [
  '5b77fa31-942b-bf0d-8779-df71de54f56c',
  'f0f55de6-fc7a-ccba-7746-1a6c707873cd',
  '670a8dec-e67f-5022-5fbe-4f4f47dc2055',
  '62e8a7e0-8dad-def0-19be-12f0683a0e80',
]
const ENDING = 'c0512b25-04f0-d822-7d54-a51a441ae9b7'
const PIPED = '0ff6e462-176a-5743-8ff9-485576600cf1'
const BUSY = 'b0b918fb-e7dd-50c1-c114-e01a77ec88b9'

function build(allocDir: string, id: string, state: TaskState): void {
  for (const part of ['alloc/logs', 'web']) openDirectory(join(allocDir, id, part))
  writeManifest(allocDir, id, { web: state })
  put(join(allocDir, id, 'alloc/logs/web.stdout.0'), 'batch out\n')
}

describe('ended allocations respond as recorded', () => {
  const judge = new Judge(lifecycleDifferences)
  const child = spawn('sleep', ['60'])
  let host: CompatHost

  const replay = async (name: string) => {
    const row = rows.find((each) => each.name === name)
    assert.ok(row, name)
    const full = { ...completed(row), name }
    judge.check(full, comparableRecorded(row), comparableActual(await send(host.url, full), full))
  }
  const group = async (prefix: string) => {
    for (const { name } of rows.filter((row) => row.name.startsWith(prefix))) await replay(name)
  }

  before(async () => {
    host = await startHost(NODE, (allocDir) => {
      for (const id of ENDED) build(allocDir, id, 'dead')
      build(allocDir, ENDING, 'running')
      const lines = Array.from({ length: 60 }, (_, n) => `err line ${n}\n`).join('')
      put(join(allocDir, ENDING, 'alloc/logs/web.stderr.0'), lines)
      build(allocDir, PIPED, 'running')
      makePipe(join(allocDir, PIPED, 'alloc/logs/.web.stdout.fifo'), 0o600)
      build(allocDir, BUSY, 'running')
      writeManifest(allocDir, BUSY, { web: 'running' }, { web: [child.pid ?? 0] })
    })
    await delay(2500)
  })
  after(async () => {
    child.kill()
    await host.stop()
    process.stdout.write(`${judge.summary()}\n`)
  })

  test('logs, files and statistics of an ended allocation respond as recorded', async () => {
    for (const name of ['logs', 'ls', 'stats', 'logs-follow']) await replay(`lifecycle/complete/${name}`)
  })

  test('a follow of an ended task responds as recorded', async () => {
    const follows = [replay('lifecycle/ending/logs-follow'), replay('lifecycle/ending/logs-follow-plain')]
    await delay(1500)
    writeManifest(host.allocDir, ENDING, { web: 'dead' })
    await Promise.all(follows)
  })

  test('garbage collection during a follow, repeated, and its leftovers respond as recorded', async () => {
    const follows = [during('logs'), during('stream')]
    await delay(700)
    await replay('lifecycle/allocgc/stopped')
    await Promise.all(follows)
    await replay('lifecycle/allocgc/again')
    await group('lifecycle/after-gc/')
  })

  const during = (kind: string) => replay(`lifecycle/complete/${kind}-follow-during-gc`)

  test('repeated garbage collection responds as recorded', async () => {
    await group('more/allocgc/')
  })

  test('collection of all ended allocations responds as recorded', async () => {
    await replay('lifecycle/allocgc/stopped-gzip')
    await replay('lifecycle/gcall/with-stopped')
    await delay(1500)
    await replay('lifecycle/gcall/after-ls')
  })

  test('pipes and empty bodies respond as recorded', async () => {
    await group('more/cat/')
    await group('more/stat/')
    await group('more/metadata/')
  })

  test('statistics of a running task respond as recorded', async () => {
    await replay('more/published/allocstats')
    await replay('more/published/allocstats-task')
    await replay('more/published/allocstats-task-unknown')
    writeManifest(host.allocDir, BUSY, { web: 'dead' })
    child.kill()
    await delay(2500)
    await replay('more/published/allocstats-after-stop')
  })

  test('everything was replayed, and every listed difference still occurs and is explained', () => {
    assert.equal(judge.rows, rows.length)
    assert.deepEqual(judge.stale(), [])
    assert.deepEqual(unexplained(lifecycleDifferences), [])
  })
})
