import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  realpathSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { AllocationRegistry } from '../../../src/host/allocations/allocations.ts'
import { CollectedRecords } from '../../../src/host/allocations/collected-records.ts'
import { allocationGc, nodeGc } from '../../../src/host/gc/gc-operations.ts'
import { GarbageCollector, type GcSettings, type DiskUsage, measureUsage } from '../../../src/host/gc/gc.ts'
import { removeTree } from '../../../src/host/gc/remove-tree.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import {
  callOf,
  performed,
  complete,
  identity,
  recordingLogger,
  nextId,
  root,
  writeManifest,
} from '../allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const CALM: GcSettings = {
  intervalMs: 60_000,
  diskUsageThreshold: 100,
  inodeUsageThreshold: 100,
  maxAllocs: 1000,
  parallelDestroys: 2,
}
/** Of the random tests; the long form has more. */
const ROUNDS = Number(process.env['OUTPOST_GC_KILLS'] ?? 3)
const RACE_MS = Number(process.env['OUTPOST_GC_RACE_MS'] ?? 400)
const NODE = '11111111-2222-3333-4444-555555555555'
const NOT_ELIGIBLE = 'No such allocation on client, or allocation not eligible for GC'

async function host(
  t: TestContext,
  options: Partial<GcSettings> & { base?: string; measure?: () => Promise<DiskUsage> } = {},
) {
  const { base = temporaryDirectory(t), measure, ...more } = options
  const allocDir = join(realpathSync(base), 'alloc')
  const log = recordingLogger()
  const collected = await CollectedRecords.open({ stateDir: join(base, 'client'), allocDir, log })
  const table = new AllocationRegistry({ allocDir, log, collected })
  await table.start()
  const settings = { ...CALM, ...more }
  const collector = new GarbageCollector({
    allocations: table,
    collected,
    settings,
    log,
    ...(measure ? { measure } : {}),
  })
  const stop = async () => {
    await collector.stop()
    await table.stop()
    await collected.saved()
  }
  t.after(stop)
  const parts = { collector, allocations: table, nodeId: NODE }
  const [one, all] = [allocationGc.in(parts), nodeGc.in(parts)]
  const run = async (operation: typeof one, raw: { id?: string; node?: string }, caller = root) => {
    const query: [string, string][] = raw.node === undefined ? [] : [['node_id', raw.node]]
    const input = operation.input.parse({ params: { alloc_id: raw.id ?? '' }, query, headers: {}, body: undefined })
    await performed(operation, input, callOf(caller))
  }
  const add = (value = complete()) => {
    const id = nextId()
    writeManifest(allocDir, id, value)
    mkdirSync(join(allocDir, id, 'web/local'), { recursive: true })
    writeFileSync(join(allocDir, id, 'web/local/data'), 'x')
    table.refresh(id)
    return id
  }
  return { base, allocDir, log, table, collected, collector, one, all, run, add, stop }
}

function refusal(status: number, message: string | RegExp) {
  return (error: unknown) => {
    assert.ok(error instanceof Refusal, String(error))
    assert.equal(error.status, status)
    if (typeof message === 'string') assert.equal(error.message, message)
    else assert.match(error.message, message)
    return true
  }
}

test('an ended allocation is removed when the call returns, its record stays, and the call is idempotent', async (t) => {
  const { run, one, add, table, allocDir, base, stop } = await host(t)
  for (const value of [
    complete(),
    { ...complete(), ClientStatus: 'failed' },
    { ...complete(), ClientStatus: 'lost' },
    { ...complete(), DesiredStatus: 'stop', ClientStatus: 'running' },
  ]) {
    const id = add(value)
    await run(one, { id })
    assert.ok(!existsSync(join(allocDir, id)))
    assert.deepEqual(readdirSync(allocDir), [])
    assert.equal(table.get(id)?.collected, true)
    assert.equal(table.get(id)?.tasks.get('web')?.state, 'dead')
    await run(one, { id })
    await run(one, { id })
  }
  const ids = [...table.all()].map((allocation) => allocation.id)
  await stop()
  const again = await host(t, { base })
  assert.deepEqual(
    [...again.table.all()].map((allocation) => [allocation.id, allocation.collected]),
    ids.map((id) => [id, true]),
  )
})

test('a directory without a manifest is removed on request, unless a process uses it', async (t) => {
  const { run, one, all, allocDir, collector, table } = await host(t, { maxAllocs: 0 })
  const id = nextId()
  const directory = join(allocDir, id)
  mkdirSync(join(directory, 'web/local'), { recursive: true })
  const bare = () => table.refresh(id)?.clientStatus === 'running'
  await eventually(bare, 'it is served')
  const uses: [string, () => { env?: Record<string, string>; cwd?: string }][] = [
    ['environment', () => ({ env: { NOMAD_ALLOC_ID: id } })],
    ['working directory', () => ({ cwd: join(directory, 'web') })],
  ]
  for (const [what, use] of uses) {
    const child = spawn('/bin/sleep', ['60'], use())
    const ended = new Promise((resolve) => child.once('exit', resolve))
    t.after(() => child.kill('SIGKILL'))
    const inUse = refusal(
      409,
      `${NOT_ELIGIBLE}: the allocation directory has no manifest and process ${child.pid} uses it: stop the process first`,
    )
    await assert.rejects(run(one, { id }), inUse, what)
    child.kill('SIGKILL')
    await ended
  }
  await run(all, {})
  await collector.collectUnderPressure()
  assert.ok(existsSync(directory), 'only a request for this allocation removes it')
  await run(one, { id })
  assert.deepEqual(readdirSync(allocDir), [])
  assert.equal(table.get(id), undefined)
})

test('allocations that run, may run, or are unreadable are never collected', async (t) => {
  const { run, one, all, add, allocDir, table } = await host(t, { maxAllocs: 0 })
  const child = spawn('sleep', ['60'])
  t.after(() => child.kill('SIGKILL'))
  const web = { State: 'running', Pids: [child.pid] }
  const refused = [
    add({ ClientStatus: 'running', Tasks: { web } }),
    add({ ClientStatus: 'complete', Tasks: { web } }),
    add({ ClientStatus: 'pending', Tasks: {} }),
    add({ ClientStatus: 'running', DesiredStatus: 'stop', Tasks: { web: { State: 'running' } } }),
    add({ ClientStatus: 'running', DesiredStatus: 'stop', Tasks: {} }),
    add(),
  ]
  writeFileSync(join(allocDir, refused.at(-1) ?? '', 'alloc.json'), '{"half')
  for (const id of refused) await assert.rejects(run(one, { id }), refusal(409, NOT_ELIGIBLE), id)
  await run(all, {})
  await new Promise((resolve) => setTimeout(resolve, 100))
  assert.deepEqual(readdirSync(allocDir).sort(), [...refused].sort())
  // An allocation that was started again a moment ago: the decision rests on a look now, not on the last event.
  const id = add()
  writeManifest(allocDir, id, { ClientStatus: 'running', Tasks: { web } })
  await assert.rejects(run(one, { id }), refusal(409, NOT_ELIGIBLE))
  assert.equal(table.get(id)?.clientStatus, 'running')
})

test('unknown, malformed and unauthorized requests are refused', async (t) => {
  const { run, one, all, add, allocDir } = await host(t)
  const unknown = '11111111-2222-3333-4444-555555555556'
  await assert.rejects(run(one, { id: unknown }), refusal(404, `Unknown allocation "${unknown}"`))
  await assert.rejects(run(one, { id: unknown }, identity()), refusal(404, `Unknown allocation "${unknown}"`))
  await assert.rejects(run(one, { id: unknown.slice(0, 8) }), refusal(400, /alloc lookup failed/))
  await assert.rejects(run(all, { node: unknown }), refusal(404, `Unknown node ${unknown}`))
  await assert.rejects(run(all, { node: 'xyz' }), refusal(400, /node lookup failed/))
  const id = add({ ...complete(), Namespace: 'apps' })
  for (const caller of [identity(), identity('default:submit-job', 'apps:read-job', 'apps:read-fs', 'node:write')]) {
    await assert.rejects(run(one, { id }, caller), refusal(403, 'Permission denied'))
  }
  await assert.rejects(run(all, {}, identity('node:read', 'apps:submit-job')), refusal(403, 'Permission denied'))
  assert.ok(existsSync(join(allocDir, id)))
  await run(one, { id }, identity('apps:gc-allocation'))
  await run(one, { id: add({ ...complete(), Namespace: 'apps' }) }, identity('apps:submit-job'))
  await run(all, { node: NODE }, identity('node:write'))
})

test('collecting all returns at once and removes every ended allocation', async (t) => {
  const { run, all, add, table } = await host(t)
  const ended = Array.from({ length: 10 }, () => add())
  const running = add({ ClientStatus: 'running', Tasks: { web: { State: 'running' } } })
  await run(all, {})
  await eventually(() => ended.every((id) => table.get(id)?.collected))
  assert.equal(table.get(running)?.collected, false)
})

test('removal never leaves the directory', async (t) => {
  const { run, one, add, allocDir, base } = await host(t)
  const outside = join(base, 'outside')
  mkdirSync(join(outside, 'deep'), { recursive: true })
  writeFileSync(join(outside, 'deep/keep'), 'keep')
  const id = add()
  const sibling = join(allocDir, `${id}x`)
  mkdirSync(sibling)
  const web = join(allocDir, id, 'web')
  symlinkSync(outside, join(web, 'to-directory'))
  symlinkSync(join(outside, 'deep/keep'), join(web, 'to-file'))
  symlinkSync('nowhere', join(web, 'dangling'))
  execFileSync('mkfifo', [join(web, 'pipe')])
  writeFileSync(join(web, 'name\nwith "odd" \\ bytes'), '')
  mkdirSync(join(web, 'locked'), { mode: 0o500 })
  chmodSync(join(web, 'locked'), 0o500)
  await run(one, { id })
  assert.deepEqual(readdirSync(allocDir), [`${id}x`])
  assert.equal(readFileSync(join(outside, 'deep/keep'), 'utf8'), 'keep')
})

test('a process that replaces directories by links during the removal cannot redirect it', async (t) => {
  const base = temporaryDirectory(t)
  const outside = join(base, 'outside')
  mkdirSync(outside)
  for (let i = 0; i < 50; i++) writeFileSync(join(outside, `keep${i}`), '')
  const tree = join(base, 'tree')
  const script = `
    const fs = require('node:fs')
    const [tree, outside] = process.argv.slice(1)
    const steps = [
      () => fs.mkdirSync(tree + '/a/b', { recursive: true }),
      () => fs.renameSync(tree + '/a', tree + '/z'),
      () => fs.symlinkSync(outside, tree + '/a'),
      () => fs.unlinkSync(tree + '/a'),
      () => fs.renameSync(tree + '/z', tree + '/a'),
    ]
    for (;;) for (const step of steps) try { step() } catch {}
  `
  const attacker = spawn(process.execPath, ['-e', script, tree, outside], { stdio: 'ignore' })
  await eventually(() => existsSync(tree))
  const endMs = performance.now() + RACE_MS
  while (performance.now() < endMs) await removeTree(tree, new AbortController().signal).catch(() => {})
  attacker.kill('SIGKILL')
  assert.equal(readdirSync(outside).length, 50)
})

test('a tree deeper than any path and a directory with many files are removed', async (t) => {
  const base = realpathSync(temporaryDirectory(t))
  const tree = join(base, 'tree')
  mkdirSync(join(tree, 'many'), { recursive: true })
  for (let i = 0; i < 5000; i++) writeFileSync(join(tree, 'many', String(i)), '')
  const part = Array.from({ length: 15 }, () => 'd'.repeat(200)).join('/')
  execFileSync('sh', [
    '-c',
    `cd '${tree}' && i=0; while [ $i -lt 20 ]; do mkdir -p ${part} && cd -P ${part} || exit 1; i=$((i+1)); done`,
  ])
  await removeTree(tree, new AbortController().signal)
  assert.deepEqual(readdirSync(base), [])
})

test('a mount point refuses the removal with its path, and after the unmount it succeeds', async (t) => {
  const { run, one, add, allocDir, table } = await host(t)
  const id = add()
  const secrets = join(allocDir, id, 'web/secrets')
  mkdirSync(secrets)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', secrets], { stdio: 'ignore' })
  } catch {
    return t.skip('needs root and mount')
  }
  try {
    writeFileSync(join(secrets, 'token'), 's')
    await assert.rejects(run(one, { id }), refusal(409, /a file system is mounted on "web\/secrets"/))
    assert.equal(readFileSync(join(secrets, 'token'), 'utf8'), 's')
    assert.ok(existsSync(join(allocDir, id, 'web/local/data')))
    assert.equal(table.get(id)?.collected, false)
    // A mount that appears after the check is not entered either.
    await assert.rejects(removeTree(join(allocDir, id), new AbortController().signal), /EBUSY/)
    assert.equal(readFileSync(join(secrets, 'token'), 'utf8'), 's')
  } finally {
    execFileSync('umount', [secrets])
  }
  writeManifest(allocDir, id, complete())
  await run(one, { id })
  assert.deepEqual(readdirSync(allocDir), [])
})

test('under pressure the oldest are collected one by one, no more than needed, with the reason', async (t) => {
  let left = 6
  const order: string[] = []
  const measure = async () => ({ diskPercent: left > 4 ? 90 : 70, inodePercent: 0 })
  const { collector, add, table, log } = await host(t, { diskUsageThreshold: 80, measure })
  const ids = [3, 1, 5, 2, 4, 0].map((day) => add(complete(`2026-11-0${day + 1}T00:00:00Z`)))
  table.onChange((change) => {
    if (!change.allocation?.collected) return
    order.push(change.id)
    left--
  })
  await collector.collectUnderPressure()
  assert.deepEqual(order, [ids[5], ids[1]])
  const reasons = log.lines
    .filter((line) => line.message === 'allocation collection started')
    .map((line) => line.fields.reason)
  assert.deepEqual(
    reasons,
    Array.from({ length: 2 }, () => 'disk usage of 90.0 % is over the limit of 80 %'),
  )
})

test('an allocation ends with its last task', async (t) => {
  let isFull = true
  const measure = async () => ({ diskPercent: isFull ? 90 : 70, inodePercent: 0 })
  const { collector, add, table } = await host(t, { diskUsageThreshold: 80, measure })
  const [init, web] = ['2026-11-01', '2026-11-05'].map((day) => ({ State: 'dead', FinishedAt: `${day}T00:00:00Z` }))
  const later = add({ ClientStatus: 'failed', Tasks: { init, web } })
  const earlier = add(complete('2026-11-03T00:00:00Z'))
  table.onChange(({ allocation }) => void (isFull &&= allocation?.collected !== true))
  await collector.collectUnderPressure()
  assert.deepEqual(
    [later, earlier].map((id) => table.get(id)?.collected),
    [false, true],
  )
})

const atLimits = async () => ({ diskPercent: 80, inodePercent: 70 })

test('at a limit nothing is collected, only above it', async (t) => {
  const limits = { diskUsageThreshold: 80, inodeUsageThreshold: 70, maxAllocs: 2 }
  const { collector, add, table } = await host(t, { ...limits, measure: atLimits })
  const ids = [add(complete('2026-11-01T00:00:00Z')), add(complete('2026-11-02T00:00:00Z'))]
  await collector.collectUnderPressure()
  const areCollected = () => ids.map((id) => table.get(id)?.collected)
  assert.deepEqual(areCollected(), [false, false])
  ids.push(add(complete('2026-11-03T00:00:00Z')))
  await collector.collectUnderPressure()
  assert.deepEqual(areCollected(), [true, false, false])
})

test('inodes and the number of allocations are limited too, and a skipped collection is logged once', async (t) => {
  let inodePercent = 95
  const measure = async () => ({ diskPercent: 0, inodePercent })
  const { collector, add, table, log } = await host(t, { inodeUsageThreshold: 70, maxAllocs: 2, measure })
  const running = Array.from({ length: 3 }, () =>
    add({ ClientStatus: 'running', Tasks: { web: { State: 'running' } } }),
  )
  add()
  await collector.collectUnderPressure()
  inodePercent = 0
  await collector.collectUnderPressure()
  const skipped = log.lines.filter((line) => line.message.includes('skipped'))
  assert.equal(skipped.length, 1)
  assert.match(String(skipped[0]?.fields.reason), /inode usage of 95.0 %/)
  const ended = add()
  await collector.collectUnderPressure()
  assert.equal(table.get(ended)?.collected, true)
  assert.ok(running.every((id) => table.get(id)?.collected === false))
  assert.match(JSON.stringify(log.lines), /4 allocations are over the limit of 2/)
})

test('a skipped collection is logged again after the pressure has ended and returned', async (t) => {
  let inodePercent = 0
  const measure = async () => ({ diskPercent: 0, inodePercent })
  const { collector, add, log } = await host(t, { inodeUsageThreshold: 70, measure })
  add({ ClientStatus: 'running', Tasks: { web: { State: 'running' } } })
  const skipped: unknown[] = []
  for (const percent of [95, 96, 0, 97, 98]) {
    inodePercent = percent
    await collector.collectUnderPressure()
    skipped.push(log.lines.filter((line) => line.message.includes('skipped')).length)
  }
  assert.deepEqual(skipped, [1, 1, 1, 2, 2])
})

test('the interval and new allocations start a collection, which measures the real usage', async (t) => {
  const { collector, add, table, allocDir } = await host(t, { maxAllocs: 1, intervalMs: 100 })
  const first = add(complete('2026-11-01T00:00:00Z'))
  collector.start()
  const second = add(complete('2026-11-02T00:00:00Z'))
  await eventually(() => table.get(first)?.collected)
  assert.equal(table.get(second)?.collected, false)
  const usage = await measureUsage(allocDir)
  for (const percent of [usage.diskPercent, usage.inodePercent]) assert.ok(percent >= 0 && percent <= 100)
})

test('leftovers of a killed collection are removed at the next start', async (t) => {
  const { base, allocDir, stop, add } = await host(t)
  const id = add()
  await stop()
  const leftover = join(allocDir, `.collected-${id}-00ff00ff`)
  mkdirSync(join(leftover, 'web/local'), { recursive: true })
  mkdirSync(join(allocDir, '.collected-notes'))
  const again = await host(t, { base })
  again.collector.start()
  await eventually(() => !existsSync(leftover))
  assert.deepEqual(readdirSync(allocDir).sort(), ['.collected-notes', id].sort())
})

test('after a kill at any moment every allocation is complete or collected, and a restart finishes the removal', async (t) => {
  const base = temporaryDirectory(t)
  for (let round = 0; round < ROUNDS; round++) {
    const first = await host(t, { base })
    const ids = Array.from({ length: 12 }, () => first.add())
    for (const id of ids) for (let i = 0; i < 60; i++) writeFileSync(join(first.allocDir, id, 'web/local', `f${i}`), '')
    await first.stop()
    const child = spawn(process.execPath, [join(import.meta.dirname, 'gc-runner.ts'), base], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await new Promise((resolve) => child.stdout.once('data', resolve))
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 40))
    child.kill('SIGKILL')
    await new Promise((resolve) => child.once('close', resolve))
    const again = await host(t, { base })
    for (const id of ids) {
      const found = again.table.get(id) ?? assert.fail(`round ${round}: ${id} is neither there nor remembered`)
      if (!found.collected) assert.equal(readdirSync(join(again.allocDir, id, 'web/local')).length, 61)
    }
    again.collector.start()
    again.collector.collectAll()
    await eventually(() => readdirSync(again.allocDir).length === 0)
    await again.stop()
  }
})
