import assert from 'node:assert/strict'
import { hostname, totalmem } from 'node:os'
import { test } from 'node:test'
import { createFingerprint, osRelease } from '../../src/host/fingerprint.ts'

test('facts are there at once, and more of them when the worker has answered', async () => {
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

test('a worker that is too slow costs facts, not the answer', async () => {
  const fingerprint = createFingerprint({ timeoutMs: 1 })
  const alive = setInterval(() => {}, 1000)
  const facts = await fingerprint.complete()
  clearInterval(alive)
  assert.equal(facts.machine, undefined)
  assert.ok(facts.coreMhz > 0)
})

test('os-release, quoted or not', () => {
  const values = osRelease('NAME="Some Linux"\nID=some\nVERSION_ID="12.1"\nODD=\'single\'\n# x\nEMPTY=\n')
  assert.deepEqual(Object.fromEntries(values), {
    NAME: 'Some Linux',
    ID: 'some',
    VERSION_ID: '12.1',
    ODD: 'single',
    EMPTY: '',
  })
})
