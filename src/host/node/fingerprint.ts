/**
 * Fingerprint: the constant facts of this host. Those from the kernel are available at once. Others come from
 * `systeminformation` in a worker thread, because that library starts child processes and blocks its thread on some of them
 * (docs/decisions/004-statistics.md). If the thread fails, these facts are missing.
 */
import { arch, cpus, hostname, machine, release, totalmem } from 'node:os'
import { messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { WorkerPool } from '../../platform/worker-pool.ts'
import { readProcFile } from '../stats/proc-file.ts'
import { readCoreMhz } from '../stats/host-cpu.ts'

/** Facts from the worker thread; an empty text is unknown. */
export interface MachineFacts {
  readonly cpuVendor: string
  readonly physicalCores: number
  readonly osTitle: string
  readonly machine: string
  readonly hypervisor: string
}

export interface NodeFacts {
  readonly hostname: string
  readonly cpuModel: string
  readonly cores: number
  readonly coreMhz: number
  readonly totalComputeMhz: number
  readonly memoryMb: number
  /** `amd64`, `arm64`, ... */
  readonly arch: string
  readonly kernelVersion: string
  /** The `ID` and `VERSION_ID` of os-release: `debian`, `12`. */
  readonly osName: string
  readonly osVersion: string
  /** Absent until the worker has responded, and if it failed. */
  readonly machine?: MachineFacts
  /** The facts as Nomad's node attributes. */
  readonly attributes: Readonly<Record<string, string>>
}

export interface Fingerprint {
  /** The facts known so far; never waits. */
  nodeFacts(): NodeFacts
  /** The facts including those of the worker thread, which the first call starts. Never rejects. */
  complete(): Promise<NodeFacts>
}

const ARCHITECTURES: Readonly<Record<string, string>> = { x64: 'amd64', ia32: '386' }
/** A child process that hangs must not occupy a thread for the lifetime of the agent. */
const TASK_TIMEOUT_MS = 20_000

type BasicFacts = Omit<NodeFacts, 'attributes'>

function basicFacts(): BasicFacts {
  const processors = cpus()
  const system = osRelease(readProcFile('/etc/os-release') ?? readProcFile('/usr/lib/os-release') ?? '')
  const coreMhz = Math.max(0, ...processors.map((core) => core.speed))
  return {
    hostname: hostname(),
    cpuModel: processors[0]?.model.trim() ?? '',
    cores: processors.length,
    coreMhz,
    totalComputeMhz: coreMhz * processors.length,
    memoryMb: Math.floor(totalmem() / (1024 * 1024)),
    arch: ARCHITECTURES[arch()] ?? arch(),
    kernelVersion: release(),
    osName: system.get('ID') ?? 'linux',
    osVersion: system.get('VERSION_ID') ?? '',
  }
}

/** The variables of an os-release text, without their quotes. */
export function osRelease(text: string): Map<string, string> {
  const values = new Map<string, string>()
  for (const [, name = '', quoted, bare] of text.matchAll(/^([A-Z_]+)=(?:["'](.*)["']|(.*))$/gm)) {
    values.set(name, quoted ?? bare ?? '')
  }
  return values
}

function withAttributes(facts: BasicFacts): NodeFacts {
  const attributes: Record<string, string> = {
    'cpu.arch': facts.arch,
    'cpu.frequency': String(facts.coreMhz),
    'cpu.modelname': facts.cpuModel,
    'cpu.numcores': String(facts.cores),
    'cpu.totalcompute': String(facts.totalComputeMhz),
    // `outpost alloc run` and other supervisors run commands without isolation.
    'driver.raw_exec': '1',
    'kernel.arch': machine(),
    'kernel.name': 'linux',
    'kernel.version': facts.kernelVersion,
    'memory.totalbytes': String(totalmem()),
    'os.name': facts.osName,
    'os.version': facts.osVersion,
    'unique.hostname': facts.hostname,
  }
  const more = {
    'cpu.vendor': facts.machine?.cpuVendor,
    'os.title': facts.machine?.osTitle,
    'platform.machine': facts.machine?.machine,
    'platform.hypervisor': facts.machine?.hypervisor,
  }
  for (const [name, value] of Object.entries(more)) if (value) attributes[name] = value
  return { ...facts, attributes }
}

export function createFingerprint(options: { log?: Logger; timeoutMs?: number } = {}): Fingerprint {
  let facts: NodeFacts | undefined
  let completing: Promise<NodeFacts> | undefined
  const current = () => (facts ??= withAttributes(basicFacts()))
  const run = async (): Promise<NodeFacts> => {
    const before = current()
    const coreMhz = await readCoreMhz({ procRoot: '/proc', sysRoot: '/sys' }, before.cores)
    const machineFacts = await readMachineFacts(options.timeoutMs ?? TASK_TIMEOUT_MS).catch((error: unknown) => {
      options.log?.info('machine fingerprint incomplete', { cause: messageOf(error) })
      return undefined
    })
    const totalComputeMhz = coreMhz * before.cores
    facts = withAttributes({ ...before, coreMhz, totalComputeMhz, ...(machineFacts ? { machine: machineFacts } : {}) })
    return facts
  }
  return { nodeFacts: current, complete: () => (completing ??= run()) }
}

async function readMachineFacts(taskTimeoutMs: number): Promise<MachineFacts> {
  const pool = new WorkerPool<null, unknown>({
    name: 'machine facts',
    threadName: 'outpost-facts',
    url: new URL('./fingerprint-worker.ts', import.meta.url),
    workersMax: 1,
    queueMax: 1,
    taskTimeoutMs,
    idleTimeoutMs: 0,
    keepsProcessAlive: false,
  })
  const facts = await pool.run({ prepare: () => ({ request: null }) })
  if (!isMachineFacts(facts)) throw new Error('machine facts: the response has an unexpected format')
  return facts
}

function isMachineFacts(value: unknown): value is MachineFacts {
  if (typeof value !== 'object' || value === null) return false
  const texts = ['cpuVendor', 'osTitle', 'machine', 'hypervisor'] as const
  const fields: Partial<Record<string, unknown>> = { ...value }
  return typeof fields['physicalCores'] === 'number' && texts.every((name) => typeof fields[name] === 'string')
}
