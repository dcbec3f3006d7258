/**
 * Whether the processes a manifest names still run.
 *
 * A supervisor that was killed cannot say so in its manifest, so the claim "running" is held against `/proc`. A process
 * ID alone proves nothing after a reboot: the number may be somebody else's by now. Where the manifest has the start of
 * the process in clock ticks, those decide: no clock can be set that moves them. Otherwise a process that began well
 * after the task did is presumed to be another one. That compares wall times, and a clock that was set in between makes
 * it wrong; so what is only presumed is shown, but nothing is ever removed because of it (`gc.ts`).
 */
import { readFileSync } from 'node:fs'
import { errnoOf } from '../../platform/errors.ts'
import type { Task } from './allocation.ts'

export interface ProcessTable {
  /** `gone` also for one that is dead but not reaped; `unknown` when it exists but cannot be looked into. */
  look(pid: number): { readonly startedAtMs: number; readonly startTicks: number } | 'gone' | 'unknown'
}

/** A process may be younger than its task by this much: boot time is in whole seconds, and clocks are corrected. */
const START_GRACE_MS = 5000
const BOOT_TIME_VALID_MS = 10_000
/** The unit of start times in `/proc` (USER_HZ), 100 a second on every architecture Node runs on. */
const TICK_MS = 10

export type Verdict = 'alive' | 'presumed gone' | 'gone'

/** Whether a task that claims to run and names processes still has one of them. */
export function verdictOn(task: Task, processes: ProcessTable): Verdict {
  if (task.state !== 'running' || task.pids.length === 0) return 'alive'
  const verdicts = task.pids.map((pid, index) => verdictOnProcess(task, pid, index === 0, processes))
  if (verdicts.includes('alive')) return 'alive'
  return verdicts.includes('presumed gone') ? 'presumed gone' : 'gone'
}

function verdictOnProcess(task: Task, pid: number, isFirst: boolean, processes: ProcessTable): Verdict {
  const found = processes.look(pid)
  if (found === 'gone') return 'gone'
  if (found === 'unknown') return 'alive'
  if (isFirst && task.pidStartTicks !== undefined) return found.startTicks === task.pidStartTicks ? 'alive' : 'gone'
  if (task.startedAtMs === undefined) return 'alive'
  return found.startedAtMs > task.startedAtMs + START_GRACE_MS ? 'presumed gone' : 'alive'
}

/** The processes of this host, from `/proc`. Everything is `unknown` where there is no `/proc`. */
export function hostProcesses(): ProcessTable {
  let boot = { ms: 0, readAt: Number.NEGATIVE_INFINITY }
  const bootMs = () => {
    if (performance.now() - boot.readAt > BOOT_TIME_VALID_MS) boot = { ms: readBootMs(), readAt: performance.now() }
    return boot.ms
  }
  return {
    look(pid) {
      let text: string
      try {
        text = readFileSync(`/proc/${pid}/stat`, 'latin1')
      } catch {
        return exists(pid) ? 'unknown' : 'gone'
      }
      // The second field is the program's name in brackets and may hold anything; what follows the last one is fixed.
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
      if (fields[0] === 'Z' || fields[0] === 'X') return 'gone'
      const ticks = Number(fields[19])
      const base = bootMs()
      return Number.isFinite(ticks) && base > 0 ? { startedAtMs: base + ticks * TICK_MS, startTicks: ticks } : 'unknown'
    },
  }
}

/** `/proc` may hide other users' processes; the kernel still tells "not yours" from "no such process". */
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
