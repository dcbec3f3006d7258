/** Records of collected allocations: when they are durable. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { completeAllocation } from '../../../src/host/allocations/allocation-scan.ts'
import { CollectedRecords } from '../../../src/host/allocations/collected-records.ts'
import { type DiskSteps, diskSteps } from '../../../src/platform/program-file.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'
import { recordingLogger, nextId } from './host-fixture.ts'

test('a record that is added during a write is durable when its own save resolves', async (t) => {
  const base = temporaryDirectory(t)
  const [stateDir, allocDir] = [join(base, 'client'), join(base, 'alloc')]
  const open = (steps?: DiskSteps) =>
    CollectedRecords.open({ stateDir, allocDir, log: recordingLogger(), ...(steps && { steps }) })
  const [held, reached] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const records = await open({
    ...diskSteps,
    async create(path, text) {
      reached.resolve()
      await held.promise
      await diskSteps.create(path, text)
    },
  })
  const add = () => {
    const id = nextId()
    records.add(completeAllocation({}, { id, directory: join(allocDir, id), bornMs: 0, collected: true }))
    return id
  }
  const first = add()
  const saved = records.saved()
  await reached.promise
  const [second, third] = [add(), add()]
  const savedToo = Promise.all([records.saved(), records.saved()])
  held.resolve()
  await Promise.all([saved, savedToo])
  const next = await open()
  assert.deepEqual(
    [...next.all()].map(({ id }) => id),
    [first, second, third],
  )
})
