/** Whose process is it? A clock that was set must never make a running task's directory go. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Task } from '../../../src/host/allocations/allocation.ts'
import { isCollectable } from '../../../src/host/gc/gc.ts'
import { hostProcesses, type ProcessTable, taskLiveness } from '../../../src/host/allocations/process-liveness.ts'
import { AllocationRegistry } from '../../../src/host/allocations/allocations.ts'
import { CollectedRecords } from '../../../src/host/allocations/collected-records.ts'
import { recordingLogger, nextId, writeManifest } from './host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const LONG_AGO_MS = Date.UTC(2001, 0, 1)

function running(more: Partial<Task>): Task {
  const logs = { logsDisabled: false, maxFiles: 10, maxFileSizeMb: 10 }
  const state = {
    name: 'web',
    state: 'running',
    failed: false,
    startedAtMs: LONG_AGO_MS,
    finishedAtMs: undefined,
  } as const
  return { ...state, pids: [process.pid], ...logs, ...more }
}

function ownTicks(): number {
  const found = hostProcesses().lookup(process.pid)
  assert.ok(typeof found === 'object')
  return found.startTicks
}

test('start ticks decide regardless of wall clocks', () => {
  const processes = hostProcesses()
  assert.equal(taskLiveness(running({ pidStartTicks: ownTicks() }), processes), 'alive')
  const other = running({ startedAtMs: Date.now(), pidStartTicks: ownTicks() + 1 })
  assert.equal(taskLiveness(other, processes), 'gone')
})

test('without ticks, a process younger than its task is presumed to be another one', () => {
  const processes = hostProcesses()
  assert.equal(taskLiveness(running({}), processes), 'presumed gone')
  assert.equal(taskLiveness(running({ startedAtMs: Date.now() }), processes), 'alive')
  assert.equal(taskLiveness(running({ startedAtMs: undefined }), processes), 'alive')
  const one: ProcessTable = { lookup: (pid) => (pid === 1 ? 'gone' : { startedAtMs: 0, startTicks: 0 }) }
  assert.equal(taskLiveness(running({ pids: [1] }), one), 'gone')
  assert.equal(taskLiveness(running({ pids: [1, 2] }), one), 'alive')
})

test('a task presumed gone is reported so and collected only when its process has ended', async (t) => {
  let found: ReturnType<ProcessTable['lookup']> = { startedAtMs: Date.now(), startTicks: 7 }
  const stateDir = temporaryDirectory(t)
  const allocDir = temporaryDirectory(t)
  const log = recordingLogger()
  const collected = await CollectedRecords.open({ stateDir, allocDir, log })
  const table = new AllocationRegistry({ allocDir, log, collected, processes: { lookup: () => found } })
  t.after(() => table.stop())
  const id = nextId()
  const task = { State: 'running', StartedAt: '2001-01-01T00:00:00Z', Pids: [4242] }
  writeManifest(allocDir, id, { ClientStatus: 'running', Tasks: { web: task } })
  await table.start()
  const presumed = await eventually(() => table.get(id)?.clientStatus === 'lost' && table.get(id))
  assert.equal(isCollectable(presumed), false)
  found = 'gone'
  await eventually(() => table.get(id)?.tasks.get('web')?.presumed === false)
  const gone = table.get(id)
  assert.ok(gone && isCollectable(gone))
})
