/**
 * The processors of this machine for `sys/host-info`, in the format of Vault. Facts that Node does not provide are read from
 * /proc/cpuinfo. Fields that the kernel does not provide have their zero values.
 */
import { readFile } from 'node:fs/promises'
import os from 'node:os'

const CPUINFO = '/proc/cpuinfo'

export interface ProcessorFacts {
  readonly cpu: number
  readonly vendorId: string
  readonly family: string
  readonly model: string
  readonly stepping: number
  readonly physicalId: string
  readonly coreId: string
  readonly cores: number
  readonly modelName: string
  readonly mhz: number
  /** KiB */
  readonly cacheSize: number
  /** Never null, because clients iterate over it. */
  readonly flags: readonly string[]
  readonly microcode: string
}

/** One entry for each logical processor. */
export async function processorFacts(): Promise<ProcessorFacts[]> {
  const stated = parseCpuinfo(await readFile(CPUINFO, 'latin1').catch(() => ''))
  return os.cpus().map(({ model, speed }, cpu) => {
    const { flags = [], ...rest } = stated[cpu] ?? {}
    return { ...UNKNOWN, ...rest, flags, cpu, modelName: model, mhz: speed, cores: 1 }
  })
}

const UNKNOWN = {
  vendorId: '',
  family: '',
  model: '',
  stepping: 0,
  physicalId: '',
  coreId: '',
  cacheSize: 0,
  microcode: '',
}

/** x86 has `flags`, ARM has `Features`. */
function parseCpuinfo(text: string): Partial<ProcessorFacts>[] {
  const blocks = text.split('\n\n').map((block) => new Map(block.split('\n').map(keyAndValue)))
  return blocks
    .filter((block) => block.has('processor'))
    .map((block) => {
      const of = (key: string) => block.get(key) ?? ''
      const flags = block.get('flags') ?? of('Features')
      return {
        vendorId: of('vendor_id'),
        family: of('cpu family'),
        model: of('model'),
        stepping: leadingNumber(of('stepping')),
        physicalId: of('physical id'),
        coreId: of('core id'),
        cacheSize: leadingNumber(of('cache size')),
        flags: flags.split(' ').filter(Boolean),
        microcode: of('microcode'),
      }
    })
}

function keyAndValue(line: string): [string, string] {
  const at = line.indexOf(':')
  return [line.slice(0, at).trim(), line.slice(at + 1).trim()]
}

function leadingNumber(text: string): number {
  return Number(/^\d+/.exec(text)?.[0] ?? 0)
}
