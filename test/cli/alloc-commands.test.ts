import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { runHere } from '../helpers/command-here.ts'
import { manifestOf, outpost, processesMentioning, start, OUTPOST, temporaryDirectory } from './outpost-process.ts'
import { eventually } from '../helpers/eventually.ts'

const FIRST = 'aaaa1111-0d4b-4c0f-9a53-0c4f6d1c2b7a'
const SECOND = 'aaaa2222-0d4b-4c0f-9a53-0c4f6d1c2b7a'
const FOREIGN = 'bbbb0000-0d4b-4c0f-9a53-0c4f6d1c2b7a'

test('list prints the allocations, newest first, in columns', async (t) => {
  const dataDir = temporaryDirectory(t)
  const list = (...more: string[]) => runHere(['alloc', 'list', '-data-dir', dataDir, ...more], process.env)
  assert.deepEqual(await list(), { code: 0, signal: null, stdout: 'No allocations\n', stderr: '' })
  await outpost('alloc', 'run', '-data-dir', dataDir, '-id', FIRST, '-task', 'web', '--', 'true')
  await outpost('alloc', 'run', '-data-dir', dataDir, '-id', SECOND, '-job', 'nightly-report', '--', 'false')
  mkdirSync(join(dataDir, 'alloc', FOREIGN))
  mkdirSync(join(dataDir, 'alloc/not-an-allocation'))
  const { code, stdout } = await list()
  assert.equal(code, 0)
  const lines = stdout.trimEnd().split('\n')
  assert.match(lines[0] ?? '', /^ID {35} Name {20} Namespace {2}Tasks {2}Desired {2}Status {4}Created$/)
  assert.match(
    lines[1] ?? '',
    /^aaaa2222\S+ {2}nightly-report\.false\[0\] {2}default {4}false {2}run {6}failed {4}\ds ago$/,
  )
  assert.match(lines[2] ?? '', /^aaaa1111\S+ {2}web\.web\[0\] .* web {4}run {6}complete {2}\ds ago$/)
  assert.match(lines[3] ?? '', /^bbbb0000\S+ {2}- .* unknown {3}-$/)
  assert.equal(lines.length, 4)
  const json = JSON.parse((await list('-json')).stdout) as { ID: string; ClientStatus: string }[]
  assert.deepEqual(
    json.map(({ ID, ClientStatus }) => [ID, ClientStatus]),
    [
      [SECOND, 'failed'],
      [FIRST, 'complete'],
      [FOREIGN, 'unknown'],
    ],
  )
  const fromEnvironment = start(OUTPOST, ['alloc', 'list'], { env: { OUTPOST_DATA_DIR: dataDir } })
  assert.equal((await fromEnvironment.finished).stdout.split('\n').length, 5)
})

test('status takes a prefix, and shows the matches when there are several', async (t) => {
  const dataDir = temporaryDirectory(t)
  const status = (...args: string[]) => runHere(['alloc', 'status', '-data-dir', dataDir, ...args], process.env)
  await outpost('alloc', 'run', '-data-dir', dataDir, '-id', FIRST, '-task', 'web', '--', 'sh', '-c', 'exit 3')
  await outpost('alloc', 'run', '-data-dir', dataDir, '-id', SECOND, '--', 'true')
  const one = await status('AAAA1')
  assert.equal(one.code, 0)
  assert.match(one.stdout, new RegExp(`^ID {13}= ${FIRST}\nName {11}= web\\.web\\[0\\]\n`))
  assert.match(one.stdout, /^Client Status {2}= failed$/m)
  assert.match(one.stdout, /^web {3}dead {3}yes {5}3 {10}- {5}0 {9}20\d\d-/m)
  const json = JSON.parse((await status('-json', SECOND)).stdout) as { ID: string; Directory: string }
  assert.deepEqual([json.ID, json.Directory], [SECOND, join(dataDir, 'alloc', SECOND)])
  const several = await status('aaaa')
  assert.equal(several.code, 1)
  assert.equal(several.stdout, '')
  const list = /^ID .*\naaaa\d{4}.*\naaaa\d{4}.*\noutpost: "aaaa" matches 2 allocations: use a longer prefix\n$/
  assert.match(several.stderr, list)
  const none = await status('cc')
  assert.deepEqual([none.code, none.stdout], [1, ''])
  assert.match(none.stderr, /^outpost: no allocation with ID prefix "cc" in .*, check "outpost alloc list"\n$/)
})

test('stop waits until the command has exited, prints the status, and can be repeated', async (t) => {
  const dataDir = temporaryDirectory(t)
  const script = 'trap "sleep 0.3; exit 0" TERM; while :; do sleep 0.05; done'
  const options = ['-data-dir', dataDir, '-id', FIRST, '-task', 'web', '-detach']
  assert.equal((await outpost('alloc', 'run', ...options, '--', 'sh', '-c', script)).code, 0)
  const stopped = await outpost('alloc', 'stop', '-data-dir', dataDir, 'aaaa')
  assert.equal(stopped.code, 0, stopped.stderr)
  assert.deepEqual(processesMentioning(dataDir), [])
  assert.match(stopped.stdout, /^Desired Status = stop\nClient Status {2}= complete$/m)
  const again = await outpost('alloc', 'stop', '-data-dir', dataDir, FIRST)
  assert.deepEqual([again.code, again.stderr], [0, ''])
})

test('stop cleans up after a supervisor that was killed', async (t) => {
  const dataDir = temporaryDirectory(t)
  const running = start(OUTPOST, [
    'alloc',
    'run',
    '-data-dir',
    dataDir,
    '-id',
    FIRST,
    '-task',
    'web',
    '--',
    'sleep',
    '100',
  ])
  await eventually(() => manifestOf(dataDir, FIRST)?.ClientStatus === 'running', 'it runs')
  running.child.kill('SIGKILL')
  await running.finished
  const stopped = await outpost('alloc', 'stop', '-data-dir', dataDir, FIRST)
  assert.equal(stopped.code, 0, stopped.stderr)
  const manifest = manifestOf(dataDir, FIRST)
  assert.deepEqual([manifest?.DesiredStatus, manifest?.ClientStatus], ['stop', 'lost'])
  assert.deepEqual([manifest?.Tasks['web']?.State, manifest?.Tasks['web']?.Failed], ['dead', true])
})

test('a process that got the recorded number later is not touched', async (t) => {
  const dataDir = temporaryDirectory(t)
  const bystander = start('sleep', ['100'])
  t.after(() => bystander.child.kill('SIGKILL'))
  const task = { State: 'running', Failed: false, StartedAt: null, FinishedAt: null, PidStartTicks: 1 }
  const manifest = {
    ID: FIRST,
    DesiredStatus: 'run',
    ClientStatus: 'running',
    SupervisorPid: bystander.pid,
    SupervisorStartTicks: 1,
    Tasks: { web: { ...task, Pids: [bystander.pid] } },
  }
  mkdirSync(join(dataDir, 'alloc', FIRST), { recursive: true })
  writeFileSync(join(dataDir, 'alloc', FIRST, 'alloc.json'), JSON.stringify(manifest))
  assert.equal((await outpost('alloc', 'stop', '-data-dir', dataDir, FIRST)).code, 0)
  assert.equal(bystander.child.exitCode, null)
  assert.equal(manifestOf(dataDir, FIRST)?.ClientStatus, 'lost')
})

test('stop refuses an allocation of another supervisor', async (t) => {
  const dataDir = temporaryDirectory(t)
  mkdirSync(join(dataDir, 'alloc', FOREIGN), { recursive: true })
  const { code, stderr } = await outpost('alloc', 'stop', '-data-dir', dataDir, FOREIGN)
  assert.equal(code, 1)
  assert.match(stderr, /has no manifest, stop it with the supervisor that started it\n$/)
})
