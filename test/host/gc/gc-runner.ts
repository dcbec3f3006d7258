/** Collects everything below a directory, until it is killed; says so on stdout when it begins. */
import { realpathSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { AllocationRegistry } from '../../../src/host/allocations/allocations.ts'
import { CollectedRecords } from '../../../src/host/allocations/collected-records.ts'
import { GarbageCollector } from '../../../src/host/gc/gc.ts'
import { recordingLogger } from '../allocations/host-fixture.ts'

const base = realpathSync(process.argv[2] ?? '')
const allocDir = join(base, 'alloc')
const log = recordingLogger()
const collected = await CollectedRecords.open({ stateDir: join(base, 'client'), allocDir, log })
const allocations = new AllocationRegistry({ allocDir, log, collected })
await allocations.start()
const settings = {
  intervalMs: 60_000,
  diskUsageThreshold: 100,
  inodeUsageThreshold: 100,
  maxAllocs: 1000,
  parallelDestroys: 2,
}
const collector = new GarbageCollector({ allocations, collected, settings, log })
writeSync(1, 'begin\n')
collector.collectAll()
