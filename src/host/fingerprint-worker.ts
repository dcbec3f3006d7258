/**
 * The worker thread of `fingerprint.ts`: asks `systeminformation`, which starts child processes and waits for some of
 * them, posts one answer and ends.
 */
import { parentPort } from 'node:worker_threads'
import { cpu, osInfo, system } from 'systeminformation'
import type { MachineFacts } from './machine-facts.ts'

const [processor, os, machine] = await Promise.all([cpu(), osInfo(), system()])
// Serial numbers and UUIDs of the machine stay here: whoever may read a node's facts need not know them.
const facts: MachineFacts = {
  cpuVendor: processor.manufacturer,
  physicalCores: processor.physicalCores,
  osTitle: `${os.distro} ${os.release}`.trim(),
  machine: `${machine.manufacturer} ${machine.model}`.trim(),
  hypervisor: machine.virtual ? (machine.virtualHost ?? 'unknown') : '',
}
// oxlint-disable-next-line unicorn/require-post-message-target-origin -- that is for windows, this is a thread
parentPort?.postMessage(facts)
