/** What a host says about itself to those who keep a list of hosts. */
import { statfsSync } from 'node:fs'
import type { Allocation, AllocationTable } from '../allocations/allocation.ts'
import type { NodeFacts } from './fingerprint.ts'
import type { NodeMetadata } from './metadata.ts'

export interface HostDescription {
  readonly attributes: Readonly<Record<string, string>>
  readonly meta: Readonly<Record<string, string>>
  readonly cpuMhz: number
  readonly cores: number
  readonly memoryBytes: number
  /** Of the file system that allocations are on; 0 where that cannot be told. */
  readonly diskBytes: number
  /** Those whose directories are still there. */
  readonly allocations: readonly Allocation[]
}

export function describeNode(host: {
  facts: NodeFacts
  metadata: Pick<NodeMetadata, 'view'>
  allocations: AllocationTable
  allocDir: string
}): HostDescription {
  const { facts } = host
  return {
    attributes: facts.attributes,
    meta: host.metadata.view().Meta,
    cpuMhz: facts.totalComputeMhz,
    cores: facts.cores,
    memoryBytes: facts.memoryMb * 1024 * 1024,
    diskBytes: sizeOf(host.allocDir),
    allocations: [...host.allocations.all()].filter(({ collected }) => !collected),
  }
}

function sizeOf(directory: string): number {
  try {
    const { blocks, bsize } = statfsSync(directory)
    return blocks * bsize
  } catch {
    return 0
  }
}
