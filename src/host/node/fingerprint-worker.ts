/** The worker thread of `fingerprint.ts`: `systeminformation` starts child processes and blocks on some of them. */
import { cpu, osInfo, system } from 'systeminformation'
import { serveTasks } from '../../platform/worker-task.ts'
import type { MachineFacts } from './fingerprint.ts'

serveTasks(async (_request: null): Promise<MachineFacts> => {
  const [processor, os, machine] = await Promise.all([cpu(), osInfo(), system()])
  // Without serial numbers and UUIDs of the machine: readers of a node's attributes do not need them.
  return {
    cpuVendor: processor.manufacturer,
    physicalCores: processor.physicalCores,
    osTitle: `${os.distro} ${os.release}`.trim(),
    machine: `${machine.manufacturer} ${machine.model}`.trim(),
    hypervisor: machine.virtual ? (machine.virtualHost ?? 'unknown') : '',
  }
})
