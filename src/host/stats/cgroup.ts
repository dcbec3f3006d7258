/**
 * Control groups of versions 1, 2 and the hybrid hierarchy: the groups of a process, the processes of a group, and its
 * counters.
 */
import { readdirSync, statSync } from 'node:fs'
import { firstNumber, keyedNumbers, readProcFile } from './proc-file.ts'

/** One controller's directory for a process. */
export interface CgroupFolder {
  readonly version: 1 | 2
  readonly path: string
}

/** The groups that count a process's memory and CPU time. Absent if none does, only the root group, or one outside our mounts. */
export interface ProcessCgroups {
  readonly memory?: CgroupFolder
  readonly cpu?: CgroupFolder
  /** Version 1 only, where throttling has another controller than CPU time. */
  readonly throttling?: CgroupFolder
}

/** Bytes. */
export interface CgroupMemory {
  readonly version: 1 | 2
  readonly rss: number
  readonly cache: number
  readonly swap: number
  readonly mappedFile: number
  readonly usage: number
  readonly maxUsage: number
  readonly kernelUsage: number
  readonly kernelMaxUsage: number
}

/** Since the creation of the group. */
export interface CgroupCpu {
  readonly totalNs: number
  readonly userNs: number
  readonly systemNs: number
  readonly throttledPeriods: number
  readonly throttledNs: number
}

/** A mount of a hierarchy, or of a part of it: a bind mount, the mount of a container. */
interface CgroupMount {
  readonly version: 1 | 2
  readonly mountpoint: string
  /** The group at the mount point; empty for the root group. */
  readonly root: string
  readonly controllers: readonly string[]
}

const SYS = '/sys/'

/** Locates groups. Reads the mounts once, on first use, because hierarchies are mounted at boot. */
export class CgroupLocator {
  readonly #procRoot: string
  readonly #sysRoot: string
  /** By controller, the preferred mount first; `''` is the version 2 hierarchy. */
  #mounts: Map<string, CgroupMount[]> | undefined

  constructor(roots: { procRoot: string; sysRoot: string }) {
    this.#procRoot = roots.procRoot
    this.#sysRoot = roots.sysRoot
  }

  /** The current groups of `pid`; none if it does not exist. */
  cgroupsOf(pid: number): ProcessCgroups {
    const groups = new Map<string, string>()
    for (const line of (readProcFile(`${this.#procRoot}/${pid}/cgroup`) ?? '').split('\n')) {
      const [, controllers, path] = /^\d+:([^:]*):(\/.*)$/.exec(line) ?? []
      if (path === undefined) continue
      for (const controller of (controllers ?? '').split(',')) groups.set(controller, path)
    }
    const unified = this.#folder('', groups)
    const memory = groups.has('memory') ? this.#folder('memory', groups) : unified
    const cpu = groups.has('cpuacct') ? this.#folder('cpuacct', groups) : unified
    const throttling = groups.has('cpu') ? this.#folder('cpu', groups) : undefined
    return { ...(memory ? { memory } : {}), ...(cpu ? { cpu } : {}), ...(throttling ? { throttling } : {}) }
  }

  #folder(controller: string, groups: ReadonlyMap<string, string>): CgroupFolder | undefined {
    this.#mounts ??= this.#readMounts()
    const group = groups.get(controller)
    // A path such as `/../other` is outside this namespace and not mounted.
    if (group === undefined || group.includes('/..')) return undefined
    const mount = this.#mounts.get(controller)?.find(({ root }) => group === root || group.startsWith(`${root}/`))
    const relative = mount && group.slice(mount.root.length)
    // The root group counts the whole host, or the whole container.
    if (!mount || relative === '' || relative === '/') return undefined
    return { version: mount.version, path: `${mount.mountpoint}${relative}` }
  }

  #readMounts(): Map<string, CgroupMount[]> {
    /** A later mount hides an earlier one at the same mountpoint. */
    const byMountpoint = new Map<string, CgroupMount>()
    for (const line of (readProcFile(`${this.#procRoot}/self/mountinfo`) ?? '').split('\n')) {
      const [fields = '', filesystem = ''] = line.split(' - ', 2)
      const [, , , root = '', mountpoint = ''] = fields.split(' ')
      const [type, , options = ''] = filesystem.split(' ')
      if (type !== 'cgroup' && type !== 'cgroup2') continue
      const kind =
        type === 'cgroup2'
          ? ({ version: 2, controllers: [''] } as const)
          : ({ version: 1, controllers: options.split(',') } as const)
      byMountpoint.set(mountpoint, { ...kind, mountpoint, root: root === '/' ? '' : root })
    }
    const mounts = new Map<string, CgroupMount[]>()
    for (const mount of [...byMountpoint.values()].toSorted(byPreference)) {
      const { mountpoint } = mount
      const path = mountpoint.startsWith(SYS) ? `${this.#sysRoot}/${mountpoint.slice(SYS.length)}` : mountpoint
      for (const name of mount.controllers) {
        mounts.set(name, [...(mounts.get(name) ?? []), { ...mount, mountpoint: path }])
      }
    }
    return mounts
  }
}

/** Mounts of the largest part first; of equal ones, the one below /sys. */
function byPreference(a: CgroupMount, b: CgroupMount): number {
  return a.root.length - b.root.length || Number(b.mountpoint.startsWith(SYS)) - Number(a.mountpoint.startsWith(SYS))
}

/** A group with more descendants does not count as a task's group. */
const GROUPS_MAX = 64

/**
 * The processes of a group and of its descendants; undefined if unknown (a threaded group, a removed group, or a process
 * outside this PID namespace).
 */
export function cgroupProcesses(path: string): Set<number> | undefined {
  const pids = new Set<number>()
  const folders = [path]
  for (const folder of folders) {
    const text = readProcFile(`${folder}/cgroup.procs`)
    if (text === undefined || folders.length > GROUPS_MAX) return undefined
    for (const word of text.split('\n')) if (word !== '') pids.add(Number(word))
    for (const inner of innerGroups(folder)) folders.push(`${folder}/${inner}`)
  }
  return pids.has(0) ? undefined : pids
}

function innerGroups(folder: string): string[] {
  try {
    // Two links (its name and its dot) mean no subdirectories; this saves listing sixty files.
    if (statSync(folder).nlink === 2) return []
    const entries = readdirSync(folder, { withFileTypes: true })
    return entries.filter((entry) => entry.isDirectory()).map((entry) => entry.name)
  } catch {
    return []
  }
}

/** Memory of a group; undefined if the memory controller is not enabled. */
export function readCgroupMemory(folder: CgroupFolder): CgroupMemory | undefined {
  const number = (name: string) => firstNumber(readProcFile(`${folder.path}/${name}`))
  const stat = readProcFile(`${folder.path}/memory.stat`)
  const usage = number(folder.version === 2 ? 'memory.current' : 'memory.usage_in_bytes')
  if (stat === undefined || usage === undefined) return undefined
  const values = keyedNumbers(stat)
  if (folder.version === 2) {
    return {
      version: 2,
      // Anonymous memory, which is not reclaimable. `memory.current` includes the page cache.
      rss: values.get('anon') ?? 0,
      cache: values.get('file') ?? 0,
      swap: number('memory.swap.current') ?? 0,
      mappedFile: values.get('file_mapped') ?? 0,
      usage,
      maxUsage: 0,
      kernelUsage: 0,
      kernelMaxUsage: 0,
    }
  }
  // Only the totals include the child groups.
  const total = (name: string) => values.get(`total_${name}`) ?? values.get(name) ?? 0
  return {
    version: 1,
    rss: total('rss'),
    cache: total('cache'),
    swap: total('swap'),
    mappedFile: total('mapped_file'),
    usage,
    maxUsage: number('memory.max_usage_in_bytes') ?? 0,
    kernelUsage: number('memory.kmem.usage_in_bytes') ?? 0,
    kernelMaxUsage: number('memory.kmem.max_usage_in_bytes') ?? 0,
  }
}

/** CPU time of a group; undefined if it is not counted. `throttling` is version 1's second directory. */
export function readCgroupCpu(
  folder: CgroupFolder,
  throttling: CgroupFolder | undefined,
  ticksPerSecond: number,
): CgroupCpu | undefined {
  if (folder.version === 2) {
    const values = keyedNumbers(readProcFile(`${folder.path}/cpu.stat`) ?? '')
    const totalUs = values.get('usage_usec')
    if (totalUs === undefined) return undefined
    return {
      totalNs: totalUs * 1000,
      userNs: (values.get('user_usec') ?? 0) * 1000,
      systemNs: (values.get('system_usec') ?? 0) * 1000,
      throttledPeriods: values.get('nr_throttled') ?? 0,
      throttledNs: (values.get('throttled_usec') ?? 0) * 1000,
    }
  }
  const totalNs = firstNumber(readProcFile(`${folder.path}/cpuacct.usage`))
  if (totalNs === undefined) return undefined
  const modes = keyedNumbers(readProcFile(`${folder.path}/cpuacct.stat`) ?? '')
  const throttled = keyedNumbers((throttling && readProcFile(`${throttling.path}/cpu.stat`)) ?? '')
  const tickNs = 1e9 / ticksPerSecond
  return {
    totalNs,
    userNs: (modes.get('user') ?? 0) * tickNs,
    systemNs: (modes.get('system') ?? 0) * tickNs,
    throttledPeriods: throttled.get('nr_throttled') ?? 0,
    throttledNs: throttled.get('throttled_time') ?? 0,
  }
}
