/**
 * Identity of a process. Process IDs are reused, so a recorded ID is valid only with the start time of the process (field 22 of
 * `/proc/<pid>/stat`, in clock ticks since boot).
 */
import { readFileSync } from 'node:fs'
import { isErrno } from '../platform/errors.ts'

export interface ProcessIdentity {
  readonly pid: number
  /** Undefined if it was not recorded: then only the ID is compared. */
  readonly startTicks: number | undefined
}

/** Start of a process in clock ticks since boot; undefined without a process, and for a zombie. */
export function startTicksOf(pid: number): number | undefined {
  let stat: string
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
  } catch {
    return undefined
  }
  // The second field is the program's name in parentheses, which may contain parentheses and spaces.
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
 * Why root must not signal a process that a manifest names; undefined if it may. The owner of a manifest can write any process ID to it,
 * and root can signal every process. So the ID must have a start time, and the process must belong to the owner of the manifest unless
 * the manifest belongs to root. The kernel limits other users.
 */
export function faultOfSignalling({ pid, startTicks }: ProcessIdentity, manifestOwnerId: number): string | undefined {
  if (process.geteuid?.() !== 0) return undefined
  if (startTicks === undefined) return 'the manifest does not contain its start time'
  const userId = userOf(pid)
  if (manifestOwnerId === 0 || userId === undefined || userId === manifestOwnerId) return undefined
  return `it belongs to user ${userId}, and the manifest belongs to user ${manifestOwnerId}`
}

/** The real user of a process; undefined without a process. */
function userOf(pid: number): number | undefined {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'latin1')
    return Number(/^Uid:\s+(\d+)/m.exec(status)?.[1])
  } catch {
    return undefined
  }
}

/** Sends `signal`; a negative `pid` is a process group. False without a process, or without permission. */
export function sendSignal(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal)
  } catch (error) {
    if (isErrno(error, 'ESRCH', 'EPERM')) return false
    throw error
  }
}
