/** Statistics of the host, as HostStats of the client API. */
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
  type DiskMount,
} from './host-disks.ts'
import { networkStats, type NetworkStats } from './host-network.ts'

/** Bytes. */
export interface MemoryUsage {
  readonly Available: number
  readonly Free: number
  readonly Total: number
  readonly Used: number
}

/** The alphabetical order of the properties is the order on the wire. */
export interface HostStats {
  readonly AllocDirStats: DiskStats
  readonly CPU: readonly CoreUsage[]
  /** MHz. */
  readonly CPUTicksConsumed: number
  /** Always null: there are no device plugins. */
  readonly DeviceStats: null
  readonly DiskStats: readonly DiskStats[] | null
  readonly Memory: MemoryUsage
  readonly NetworkStats?: readonly NetworkStats[]
  /** Nanoseconds since the Unix epoch. */
  readonly Timestamp: number
  /** Seconds. */
  readonly Uptime: number
}

/** Sources of the statistics; tests replace them by fixtures. */
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

type DiskSizes = readonly [DiskMount, FilesystemSizes]

/** The texts of /proc at one time. */
interface HostSample {
  readonly statText: string
  readonly memoryText: string
  readonly uptimeSeconds: number
  readonly timestampMs: number
  readonly atMs: number
}

/** Reads the host's statistics. Holds three descriptors between `sample` and `close`. */
export class HostStatsReader {
  readonly #roots: { procRoot: string; sysRoot: string }
  readonly #allocDir: string
  readonly #clock: Clock
  readonly #meminfo: ReusedProcFile
  readonly #stat: ReusedProcFile
  readonly #uptime: ReusedProcFile
  readonly #filesystems: FilesystemReader
  /** A separate reader, so that hanging disks do not delay the usage of the allocation directory. */
  readonly #allocFilesystem: FilesystemReader
  #latest: HostSample | undefined
  #previous: HostSample | undefined
  #disks: { allocDir: FilesystemSizes; mounted: readonly DiskSizes[] } = { allocDir: NO_FILESYSTEM, mounted: [] }
  #stats: HostStats | undefined
  #cores = 0
  #mounts: readonly DiskMount[] = []
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

  /** MHz of an average core; 0 before the first sample. */
  get coreMhz(): number {
    return this.#coreMhz ?? 0
  }

  /** Number of cores; 0 before the first sample. */
  get cores(): number {
    return this.#cores
  }

  /** False if no swap is in use, so that it need not be read for each process. */
  get swapInUse(): boolean {
    return !/^SwapTotal:\s+(\d+) kB\nSwapFree:\s+\1 kB$/m.test(this.#latest?.memoryText ?? '')
  }

  /** Seconds since boot, with a fraction; 0 if unknown. Extrapolated from the last sample. */
  uptimeSeconds(): number {
    if (!this.#latest) return 0
    return this.#latest.uptimeSeconds + (this.#clock.monotonicMs() - this.#latest.atMs) / 1000
  }

  /**
   * Reads everything except the disks. The texts are parsed on demand, because most samples are never requested. Never
   * rejects.
   */
  async sample(): Promise<void> {
    const sample = {
      statText: this.#stat.read() ?? '',
      memoryText: this.#meminfo.read() ?? '',
      uptimeSeconds: firstNumber(this.#uptime.read()) ?? 0,
      timestampMs: this.#clock.nowMs(),
      atMs: this.#clock.monotonicMs(),
    }
    if (this.#coreMhz === undefined) {
      this.#cores = parseCoreTimes(sample.statText).size
      this.#coreMhz = await readCoreMhz(this.#roots, this.#cores)
    }
    this.#previous = this.#latest
    this.#latest = sample
    this.#stats = undefined
  }

  /**
   * Reads the file systems. Separate from `sample`, because it uses the thread pool, which costs several times as much, and
   * needs no earlier sample to compare with. Never rejects.
   */
  async sampleDisks(): Promise<void> {
    await this.#refreshMounts()
    const allocDir = (await this.#allocFilesystem.read(this.#allocDir)) ?? NO_FILESYSTEM
    this.#disks = { allocDir, mounted: await this.#mountedDisks() }
    this.#stats = undefined
  }

  /** Of the last samples; percentages are relative to the previous sample, those of the first sample to the boot. */
  stats(): HostStats {
    if (!this.#latest) throw new Fault('no statistics sampled yet')
    this.#stats ??= this.#statsOf(this.#latest, this.#previous)
    return this.#stats
  }

  #statsOf(sample: HostSample, before: HostSample | undefined): HostStats {
    const earlier = parseCoreTimes(before?.statText ?? '')
    const times = parseCoreTimes(sample.statText)
    this.#cores = times.size
    const cores = [...times].map(([name, now]) => coreUsage(name, earlier.get(name), now, this.coreMhz))
    const disks = this.#disks.mounted.map(([mount, sizes]) => diskStats(sizes, mount))
    return {
      AllocDirStats: diskStats(this.#disks.allocDir, { device: '', mountpoint: '' }),
      CPU: cores,
      CPUTicksConsumed: cores.reduce((sum, core) => sum + core.TotalTicks, 0),
      DeviceStats: null,
      DiskStats: disks.length > 0 ? disks : null,
      Memory: parseMemory(sample.memoryText),
      Timestamp: sample.timestampMs * 1e6,
      Uptime: Math.trunc(sample.uptimeSeconds),
    }
  }

  /** Sequential, so that several hanging mounts do not occupy the whole thread pool. */
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

  /** With the network counters at this moment. */
  statsWithNetwork(): HostStats {
    const { Timestamp, Uptime, ...others } = this.stats()
    return { ...others, NetworkStats: networkStats(this.#roots), Timestamp, Uptime }
  }

  close(): void {
    for (const file of [this.#meminfo, this.#stat, this.#uptime]) file.close()
  }
}
