/**
 * Which process a number means. A process ID is reused, so a recorded one is trusted only together with the time at
 * which its process began (field 22 of `/proc/<pid>/stat`, in clock ticks since boot).
 */
import { readFileSync } from 'node:fs'
import { isErrno } from '../platform/errors.ts'

export interface ProcessIdentity {
  readonly pid: number
  /** Undefined where it was not recorded: then the number alone must do. */
  readonly startTicks: number | undefined
}

/** Start of a process in clock ticks since boot, or undefined when there is none (a zombie counts as gone). */
export function startTicksOf(pid: number): number | undefined {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch {
    return undefined
  }
  // The second field is the program's name in parentheses and may hold anything, also parentheses and spaces.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  if (fields[0] === 'Z' || fields[0] === 'X') return undefined
  const ticks = Number(fields[19])
  return Number.isSafeInteger(ticks) ? ticks : undefined
}

export function isAlive(identity: ProcessIdentity): boolean {
  const ticks = startTicksOf(identity.pid)
  return ticks !== undefined && (identity.startTicks === undefined || ticks === identity.startTicks)
}

/**
 * Why root does not signal a process that a manifest names; undefined when it does. Who writes a manifest may write any number
 * into it, and root's signal reaches every process: so the number counts only with the time at which its process began, and,
 * unless the manifest is root's own, only for processes of the user who owns the manifest. The kernel limits other callers.
 */
export function faultOfSignalling({ pid, startTicks }: ProcessIdentity, manifestOwnerId: number): string | undefined {
  if (process.geteuid?.() !== 0) return undefined
  if (startTicks === undefined) return 'the manifest does not say when it began'
  const userId = userOf(pid)
  if (manifestOwnerId === 0 || userId === undefined || userId === manifestOwnerId) return undefined
  return `it is a process of user ${userId}, and the manifest is user ${manifestOwnerId}'s`
}

/** The real user of a process, who may signal it; undefined when it is gone. */
function userOf(pid: number): number | undefined {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'latin1')
    return Number(/^Uid:\s+(\d+)/m.exec(status)?.[1])
  } catch {
    return undefined
  }
}

/** Sends `signal`; a negative `pid` names a process group. False when there is nobody (or nobody we may signal). */
export function sendSignal(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal)
  } catch (error) {
    if (isErrno(error, 'ESRCH', 'EPERM')) return false
    throw error
  }
}
