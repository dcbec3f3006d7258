/**
 * Clocks, process accounting and the few statistics that the benchmarks need.
 */
import { readdirSync, readFileSync } from 'node:fs'

/** Milliseconds on a clock that is the same in every process of this host. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6
}

/** One process, or several that do the work together. */
export type Pids = number | readonly number[]

/**
 * CPU seconds that processes have used, all their threads together. From the scheduler, in nanoseconds: the ticks of
 * `/proc/PID/stat` are too coarse for what runs for a fraction of a second.
 */
export function cpuSeconds(pids: Pids): number {
  let nanoseconds = 0
  for (const pid of typeof pids === 'number' ? [pids] : pids) {
    for (const thread of readdirSync(`/proc/${pid}/task`)) nanoseconds += threadNanoseconds(pid, thread)
  }
  return nanoseconds / 1e9
}

function threadNanoseconds(pid: number, thread: string): number {
  try {
    return Number(readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ', 1)[0])
  } catch {
    return 0 // it has ended since it was listed
  }
}

/** CPU seconds of the threads of a process, summed by thread name. */
export function cpuByThread(pid: number): Map<string, number> {
  const seconds = new Map<string, number>()
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    const name = thread === String(pid) ? 'main' : threadName(pid, thread)
    seconds.set(name, (seconds.get(name) ?? 0) + threadNanoseconds(pid, thread) / 1e9)
  }
  return seconds
}

function threadName(pid: number, thread: string): string {
  try {
    return readFileSync(`/proc/${pid}/task/${thread}/comm`, 'utf8').trim()
  } catch {
    return 'ended'
  }
}

/** Resident memory in MiB. */
export function residentMiB(pid: number): number {
  const text = readFileSync(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(text)?.[1] ?? Number.NaN) / 1024
}

export function openDescriptors(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length
}

/** Samples resident memory; `end` returns the maximum. */
export function watchMemory(pid: number, everyMs = 50): { end(): number } {
  let most = residentMiB(pid)
  const look = () => void (most = Math.max(most, residentMiB(pid)))
  const timer = setInterval(look, everyMs)
  return {
    end() {
      clearInterval(timer)
      look()
      return most
    },
  }
}

/** Percentile of values in any order; the median is `percentile(values, 0.5)` for odd counts. */
export function percentile(values: readonly number[], part: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.max(0, Math.ceil(sorted.length * part) - 1))] ?? Number.NaN
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = sorted.length / 2
  const [low, high] = [sorted[Math.ceil(middle) - 1], sorted[Math.floor(middle)]]
  return low === undefined || high === undefined ? Number.NaN : (low + high) / 2
}

/**
 * Runs the sides alternately, `rounds` times, and in the opposite order every other round, so that other load of
 * the machine affects all of them alike.
 */
export async function inTurn(rounds: number, sides: readonly ((round: number) => Promise<void>)[]): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (const side of round % 2 === 0 ? sides : sides.toReversed()) await side(round)
  }
}
