/** The worker thread of `fingerprint.ts`: reads facts with `systeminformation`, which starts child processes and waits for some. */
import { cpu, osInfo, system } from 'systeminformation'
import { serveTasks } from '../../platform/worker-task.ts'
import type { MachineFacts } from './machine-facts.ts'

serveTasks(async (_request: null): Promise<MachineFacts> => {
  const [processor, os, machine] = await Promise.all([cpu(), osInfo(), system()])
  // Serial numbers and UUIDs of the machine are left out: a caller who may read a node's facts does not need them.
  return {
    cpuVendor: processor.manufacturer,
    physicalCores: processor.physicalCores,
    osTitle: `${os.distro} ${os.release}`.trim(),
    machine: `${machine.manufacturer} ${machine.model}`.trim(),
    hypervisor: machine.virtual ? (machine.virtualHost ?? 'unknown') : '',
  }
})
