import assert from 'node:assert/strict'
import { hostname, totalmem } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { createFingerprint, osRelease } from '../../../src/host/node/fingerprint.ts'
import { startHost } from '../../../src/host/host.ts'
import { recordingLogger } from '../allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

test('basic facts are available at once and machine facts after the worker has responded', async () => {
  const fingerprint = createFingerprint()
  const basic = fingerprint.nodeFacts()
  assert.equal(basic.machine, undefined)
  assert.equal(basic.memoryMb, Math.floor(totalmem() / 1048576))
  assert.ok(basic.cores > 0)
  const complete = await fingerprint.complete()
  assert.equal(fingerprint.nodeFacts(), complete)
  assert.ok(complete.machine && complete.machine.physicalCores > 0)
  assert.equal(complete.attributes['unique.hostname'], hostname())
  assert.equal(complete.totalComputeMhz, complete.coreMhz * complete.cores)
  assert.equal(complete.attributes['cpu.totalcompute'], String(complete.totalComputeMhz))
  assert.ok(Object.values(complete.attributes).every((value) => typeof value === 'string'))
  // No serial numbers among what any reader of a node sees.
  assert.doesNotMatch(JSON.stringify(complete), /serial|uuid/i)
})

test('a worker that exceeds its time limit leaves the machine facts out', async () => {
  const fingerprint = createFingerprint({ timeoutMs: 1 })
  const alive = setInterval(() => {}, 1000)
  const facts = await fingerprint.complete()
  clearInterval(alive)
  assert.equal(facts.machine, undefined)
  assert.ok(facts.coreMhz > 0)
})

test('a host describes the machine facts some time after its start', async (t) => {
  const directory = temporaryDirectory(t)
  const options = {
    allocDir: join(directory, 'alloc'),
    staticMeta: {},
    version: '0',
    gc: {
      intervalMs: 3_600_000,
      diskUsageThreshold: 100,
      inodeUsageThreshold: 100,
      maxAllocs: 1000,
      parallelDestroys: 1,
    },
    followersMax: 0,
    sampleIntervalMs: 1000,
    logger: recordingLogger(),
  }
  const [asks, waits] = [
    await startHost({ ...options, stateDir: join(directory, 'asks'), fingerprintAfterMs: 1 }),
    await startHost({ ...options, stateDir: join(directory, 'waits'), fingerprintAfterMs: 3_600_000 }),
  ]
  t.after(() => Promise.all([asks.stop(), waits.stop()]))
  await eventually(() => asks.describe().attributes['os.title'])
  assert.equal(waits.describe().attributes['os.title'], undefined)
})

test('os-release is parsed with and without quotes', () => {
  const values = osRelease('NAME="Some Linux"\nID=some\nVERSION_ID="12.1"\nODD=\'single\'\n# x\nEMPTY=\n')
  assert.deepEqual(Object.fromEntries(values), {
    NAME: 'Some Linux',
    ID: 'some',
    VERSION_ID: '12.1',
    ODD: 'single',
    EMPTY: '',
  })
})
