/** The host's processors: time counters of /proc/stat as percentages, and the clock rate of the cores. */
import { readFile } from 'node:fs/promises'

/** Time of one core since boot in kernel ticks. `user` and `nice` include guest time. */
export interface CoreTimes {
  readonly user: number
  readonly nice: number
  readonly system: number
  readonly idle: number
  readonly iowait: number
  readonly irq: number
  readonly softirq: number
  readonly steal: number
}

/** One entry of `CPU` in HostStats. Percentages are 0 to 100 of this core, TotalTicks is MHz. */
export interface CoreUsage {
  readonly CPU: string
  readonly Idle: number
  readonly System: number
  readonly TotalPercent: number
  readonly TotalTicks: number
  readonly User: number
}

/** The `cpuN` lines of /proc/stat in order. Malformed numbers count as 0, short lines are skipped. */
export function parseCoreTimes(text: string): Map<string, CoreTimes> {
  const cores = new Map<string, CoreTimes>()
  // The lines after them are long: one number for each interrupt.
  const end = text.search(/^(?!cpu)/m)
  for (const line of (end < 0 ? text : text.slice(0, end)).split('\n')) {
    const [name = '', ...words] = line.trimEnd().split(/ +/)
    if (!/^cpu\d+$/.test(name) || words.length < 4) continue
    const at = (index: number) => {
      const value = Number(words[index] ?? 0)
      return Number.isFinite(value) ? value : 0
    }
    cores.set(name, {
      user: at(0),
      nice: at(1),
      system: at(2),
      idle: at(3),
      iowait: at(4),
      irq: at(5),
      softirq: at(6),
      steal: at(7),
    })
  }
  return cores
}

const BOOT: CoreTimes = { user: 0, nice: 0, system: 0, idle: 0, iowait: 0, irq: 0, softirq: 0, steal: 0 }

/**
 * Usage of a core between two samples; without the earlier one, since boot. A counter that decreased (iowait does, and all
 * do when a core was offline) counts as unchanged, so no value is negative. Without elapsed time the core is idle.
 */
export function coreUsage(name: string, before: CoreTimes | undefined, now: CoreTimes, coreMhz: number): CoreUsage {
  const from = before ?? BOOT
  const delta = (field: keyof CoreTimes) => Math.max(0, now[field] - from[field])
  const user = delta('user')
  const system = delta('system')
  const idle = delta('idle')
  const busy = user + system + delta('nice') + delta('iowait') + delta('irq') + delta('softirq') + delta('steal')
  const total = busy + idle
  if (!(total > 0)) return { CPU: name, Idle: 100, System: 0, TotalPercent: 0, TotalTicks: 0, User: 0 }
  const totalPercent = (busy / total) * 100
  return {
    CPU: name,
    Idle: (idle / total) * 100,
    System: (system / total) * 100,
    TotalPercent: totalPercent,
    TotalTicks: (totalPercent / 100) * coreMhz,
    User: (user / total) * 100,
  }
}

/** Default if the clock rate is unknown (some virtual ARM machines). */
const UNKNOWN_MHZ = 1000

/**
 * Clock rate of an average core in MHz: the base frequency if known, else the maximum, else the current one of
 * /proc/cpuinfo. Read through the thread pool, because a read of /proc/cpuinfo interrupts every core.
 */
export async function readCoreMhz(roots: { procRoot: string; sysRoot: string }, cores: number): Promise<number> {
  const found: number[] = []
  for (let core = 0; core < cores; core++) {
    const folder = `${roots.sysRoot}/devices/system/cpu/cpu${core}/cpufreq`
    const kilohertz = (await readNumber(`${folder}/base_frequency`)) ?? (await readNumber(`${folder}/cpuinfo_max_freq`))
    if (kilohertz === undefined) break
    found.push(kilohertz / 1000)
  }
  if (found.length === 0) {
    const text = await readFile(`${roots.procRoot}/cpuinfo`, 'latin1').catch(() => '')
    for (const [, mhz] of text.matchAll(/^cpu MHz\s*:\s*([\d.]+)$/gm)) found.push(Number(mhz))
  }
  const usable = found.filter((mhz) => Number.isFinite(mhz) && mhz > 0)
  if (usable.length === 0) return UNKNOWN_MHZ
  return Math.floor(usable.reduce((sum, mhz) => sum + mhz, 0) / usable.length)
}

async function readNumber(path: string): Promise<number | undefined> {
  const text = await readFile(path, 'latin1').catch(() => '')
  const value = Number.parseInt(text, 10)
  return value > 0 ? value : undefined
}
