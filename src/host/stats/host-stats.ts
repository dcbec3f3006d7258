/** Statistics of the whole host, in the shape of the client API's HostStats. */
import { readFile, readlink, statfs } from 'node:fs/promises'
import { systemClock, type Clock } from '../../platform/clock.ts'
import { Fault } from '../../platform/errors.ts'
import { firstNumber, keyedNumbers, ReusedProcFile } from './proc-file.ts'
import { coreUsage, parseCoreTimes, readCoreMhz, type CoreUsage } from './host-cpu.ts'
import {
  diskStats,
  FilesystemReader,
  physicalMounts,
  type DiskStats,
  type FilesystemSizes,
  type Mount,
} from './host-disks.ts'

/** Bytes. */
export interface MemoryUsage {
  readonly Available: number
  readonly Free: number
  readonly Total: number
  readonly Used: number
}

/** Properties stand in alphabetical order because that is the order on the wire. */
export interface HostStats {
  readonly AllocDirStats: DiskStats
  readonly CPU: readonly CoreUsage[]
  /** MHz. */
  readonly CPUTicksConsumed: number
  /** There are no device plugins, so no groups of devices. */
  readonly DeviceStats: null
  readonly DiskStats: readonly DiskStats[] | null
  readonly Memory: MemoryUsage
  /** Nanoseconds since the Unix epoch. */
  readonly Timestamp: number
  /** Seconds. */
  readonly Uptime: number
}

/** Where the facts come from; tests point it at a tree of fixtures. */
export interface HostStatsOptions {
  readonly allocDir: string
  readonly procRoot?: string
  readonly sysRoot?: string
  readonly statfs?: (path: string) => Promise<FilesystemSizes>
  readonly statfsTimeoutMs?: number
  readonly clock?: Clock
}

/** Mounts change rarely and their list is long on container hosts. */
const MOUNTS_EVERY_MS = 15_000

const NO_FILESYSTEM: FilesystemSizes = { bsize: 0, blocks: 0, bfree: 0, bavail: 0, files: 0, ffree: 0 }

/** Memory from the text of /proc/meminfo. Page cache and reclaimable slab are not used memory. */
export function parseMemory(text: string): MemoryUsage {
  const values = keyedNumbers(text)
  const bytes = (name: string) => (values.get(name) ?? 0) * 1024
  const total = bytes('MemTotal')
  const free = bytes('MemFree')
  const cached = bytes('Cached') + bytes('SReclaimable')
  const available = values.has('MemAvailable') ? bytes('MemAvailable') : free + cached
  return { Available: available, Free: free, Total: total, Used: Math.max(0, total - free - bytes('Buffers') - cached) }
}

type DiskSizes = readonly [Mount, FilesystemSizes]

/** One look at the host: the kernel's texts as they were. */
interface Look {
  readonly statText: string
  readonly memoryText: string
  readonly uptimeSeconds: number
  readonly timestampMs: number
  readonly atMs: number
}

/** Looks at the host. Holds three descriptors between `look` and `close`. */
export class HostStatsReader {
  readonly #roots: { procRoot: string; sysRoot: string }
  readonly #allocDir: string
  readonly #clock: Clock
  readonly #meminfo: ReusedProcFile
  readonly #stat: ReusedProcFile
  readonly #uptime: ReusedProcFile
  readonly #filesystems: FilesystemReader
  /** Apart from the others, so that dead disks elsewhere cannot hold up the one figure that everybody looks at. */
  readonly #allocFilesystem: FilesystemReader
  #look: Look | undefined
  #before: Look | undefined
  #disks: { allocDir: FilesystemSizes; mounted: readonly DiskSizes[] } = { allocDir: NO_FILESYSTEM, mounted: [] }
  #stats: HostStats | undefined
  #cores = 0
  #mounts: readonly Mount[] = []
  #mountsText = ''
  #mountsAtMs = Number.NEGATIVE_INFINITY
  #coreMhz: number | undefined

  constructor(options: HostStatsOptions) {
    this.#roots = { procRoot: options.procRoot ?? '/proc', sysRoot: options.sysRoot ?? '/sys' }
    this.#allocDir = options.allocDir
    this.#clock = options.clock ?? systemClock
    this.#meminfo = new ReusedProcFile(`${this.#roots.procRoot}/meminfo`)
    this.#stat = new ReusedProcFile(`${this.#roots.procRoot}/stat`)
    this.#uptime = new ReusedProcFile(`${this.#roots.procRoot}/uptime`)
    this.#filesystems = new FilesystemReader(options.statfs ?? statfs, options.statfsTimeoutMs)
    this.#allocFilesystem = new FilesystemReader(options.statfs ?? statfs, options.statfsTimeoutMs)
  }

  /** MHz of an average core; 0 until the first look has found out. */
  get coreMhz(): number {
    return this.#coreMhz ?? 0
  }

  /** Number of cores; 0 before the first look. */
  get cores(): number {
    return this.#cores
  }

  /** False when nothing at all is swapped out, so that no process needs to be asked. */
  get swapInUse(): boolean {
    return !/^SwapTotal:\s+(\d+) kB\nSwapFree:\s+\1 kB$/m.test(this.#look?.memoryText ?? '')
  }

  /** Seconds since boot, with a fraction; 0 when unknown. Read at each look and counted on from there. */
  uptimeSeconds(): number {
    if (!this.#look) return 0
    return this.#look.uptimeSeconds + (this.#clock.monotonicMs() - this.#look.atMs) / 1000
  }

  /**
   * Reads everything but the disks as of now, and leaves it as it is: most looks are never asked for, so what can be worked out later
   * is worked out later. Never rejects.
   */
  async look(): Promise<void> {
    const look = {
      statText: this.#stat.read() ?? '',
      memoryText: this.#meminfo.read() ?? '',
      uptimeSeconds: firstNumber(this.#uptime.read()) ?? 0,
      timestampMs: this.#clock.nowMs(),
      atMs: this.#clock.monotonicMs(),
    }
    if (this.#coreMhz === undefined) {
      this.#cores = parseCoreTimes(look.statText).size
      this.#coreMhz = await readCoreMhz(this.#roots, this.#cores)
    }
    this.#before = this.#look
    this.#look = look
    this.#stats = undefined
  }

  /**
   * Asks the file systems. Apart from `look`, because it goes through the thread pool, which costs several times as much,
   * and unlike the processors a disk needs no earlier look to compare with. Never rejects.
   */
  async lookAtDisks(): Promise<void> {
    await this.#refreshMounts()
    const allocDir = (await this.#allocFilesystem.read(this.#allocDir)) ?? NO_FILESYSTEM
    this.#disks = { allocDir, mounted: await this.#mountedDisks() }
    this.#stats = undefined
  }

  /** What the last looks saw; percentages are since the look before it, for the first one since boot. */
  stats(): HostStats {
    if (!this.#look) throw new Fault('the host was not looked at yet')
    this.#stats ??= this.#statsOf(this.#look, this.#before)
    return this.#stats
  }

  #statsOf(look: Look, before: Look | undefined): HostStats {
    const earlier = parseCoreTimes(before?.statText ?? '')
    const times = parseCoreTimes(look.statText)
    this.#cores = times.size
    const cores = [...times].map(([name, now]) => coreUsage(name, earlier.get(name), now, this.coreMhz))
    const disks = this.#disks.mounted.map(([mount, sizes]) => diskStats(sizes, mount))
    return {
      AllocDirStats: diskStats(this.#disks.allocDir, { device: '', mountpoint: '' }),
      CPU: cores,
      CPUTicksConsumed: cores.reduce((sum, core) => sum + core.TotalTicks, 0),
      DeviceStats: null,
      DiskStats: disks.length > 0 ? disks : null,
      Memory: parseMemory(look.memoryText),
      Timestamp: look.timestampMs * 1e6,
      Uptime: Math.trunc(look.uptimeSeconds),
    }
  }

  /** One after the other: mounts that died together must not take the whole thread pool at once. */
  async #mountedDisks(): Promise<DiskSizes[]> {
    const found: DiskSizes[] = []
    for (const mount of this.#mounts) {
      const sizes = await this.#filesystems.read(mount.mountpoint)
      if (sizes) found.push([mount, sizes])
    }
    return found
  }

  async #refreshMounts(): Promise<void> {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#mountsAtMs < MOUNTS_EVERY_MS) return
    this.#mountsAtMs = nowMs
    const { procRoot, sysRoot } = this.#roots
    const text = await readFile(`${procRoot}/self/mountinfo`, 'utf8').catch(() => '')
    if (text === this.#mountsText) return
    const types = await readFile(`${procRoot}/filesystems`, 'latin1').catch(() => undefined)
    const names = new Map<string, string>()
    for (const [, number = ''] of text.matchAll(/^\d+ \d+ (\d+:\d+) .* \/dev\/root /gm)) {
      const target = await readlink(`${sysRoot}/dev/block/${number}`).catch(() => undefined)
      if (target) names.set(number, `/dev/${target.split('/').at(-1)}`)
    }
    this.#mounts = physicalMounts(text, types, (number) => names.get(number))
    this.#mountsText = text
  }

  close(): void {
    for (const file of [this.#meminfo, this.#stat, this.#uptime]) file.close()
  }
}
