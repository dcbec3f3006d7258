/**
 * Whether the processes named by a manifest are alive.
 *
 * A supervisor that was killed cannot update its manifest, so the state "running" is checked against `/proc`. A process ID
 * alone proves nothing after a reboot, because it may have been reused. If the manifest has the start of the process in
 * clock ticks, they decide: setting a clock does not change them. Otherwise a process that started well after the task is
 * presumed to be another one. That compares wall times, which is wrong after a clock change, so a presumed death is
 * reported but never a reason to remove anything (`gc.ts`).
 */
import { readFileSync } from 'node:fs'
import { errnoOf } from '../../platform/errors.ts'
import type { Task } from './allocation.ts'

export interface ProcessTable {
  /** `gone` also for a zombie; `unknown` if it exists but cannot be inspected. */
  lookup(pid: number): { readonly startedAtMs: number; readonly startTicks: number } | 'gone' | 'unknown'
}

/** Tolerance: boot time is in whole seconds, and clocks are corrected. */
const START_GRACE_MS = 5000
const BOOT_TIME_VALID_MS = 10_000
/** The unit of start times in `/proc` (USER_HZ), 100 a second on every architecture Node runs on. */
const TICK_MS = 10

export type Liveness = 'alive' | 'presumed gone' | 'gone'

/** Tasks that are not running or have no process IDs count as alive. */
export function taskLiveness(task: Task, processes: ProcessTable): Liveness {
  if (task.state !== 'running' || task.pids.length === 0) return 'alive'
  const all = task.pids.map((pid, index) => processLiveness(task, pid, index === 0, processes))
  if (all.includes('alive')) return 'alive'
  return all.includes('presumed gone') ? 'presumed gone' : 'gone'
}

function processLiveness(task: Task, pid: number, isFirst: boolean, processes: ProcessTable): Liveness {
  const found = processes.lookup(pid)
  if (found === 'gone') return 'gone'
  if (found === 'unknown') return 'alive'
  if (isFirst && task.pidStartTicks !== undefined) return found.startTicks === task.pidStartTicks ? 'alive' : 'gone'
  if (task.startedAtMs === undefined) return 'alive'
  return found.startedAtMs > task.startedAtMs + START_GRACE_MS ? 'presumed gone' : 'alive'
}

/** The processes of this host, from `/proc`. Without `/proc` every live one is `unknown`. */
export function hostProcesses(): ProcessTable {
  let boot = { ms: 0, readAt: Number.NEGATIVE_INFINITY }
  const bootMs = () => {
    if (performance.now() - boot.readAt > BOOT_TIME_VALID_MS) boot = { ms: readBootMs(), readAt: performance.now() }
    return boot.ms
  }
  return {
    lookup(pid) {
      let text: string
      try {
        text = readFileSync(`/proc/${pid}/stat`, 'latin1')
      } catch {
        return exists(pid) ? 'unknown' : 'gone'
      }
      // The second field is the program's name in parentheses and may contain any character.
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
      if (fields[0] === 'Z' || fields[0] === 'X') return 'gone'
      const ticks = Number(fields[19])
      const base = bootMs()
      return Number.isFinite(ticks) && base > 0 ? { startedAtMs: base + ticks * TICK_MS, startTicks: ticks } : 'unknown'
    },
  }
}

/** `/proc` may hide other users' processes; kill(2) distinguishes EPERM from ESRCH. */
function exists(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return errnoOf(error) !== 'ESRCH'
  }
}

function readBootMs(): number {
  try {
    const found = /^btime (\d+)$/m.exec(readFileSync('/proc/stat', 'latin1'))
    return Number(found?.[1] ?? 0) * 1000
  } catch {
    return 0
  }
}
