/**
 * The processes of one task: its PIDs and their descendants. A member stays when its parent dies. Members are
 * identified by PID and start time, so a reused PID is another process.
 */
import type { Task } from '../allocations/allocation.ts'
import { cgroupProcesses } from './cgroup.ts'
import type { KernelUnits } from './proc-file.ts'
import type { ProcessStat, ProcessTree } from './process-tree.ts'

interface TaskProcess {
  readonly startTicks: number
  /** Counters of the last sample; undefined if the process was not read. */
  readonly last: ProcessStat | undefined
}

export interface CpuTime {
  readonly totalMs: number
  readonly userMs: number
  readonly systemMs: number
}

/** Counters of the processes; empty if all have ended. */
export interface TaskProcessSample {
  readonly stats: ReadonlyMap<number, ProcessStat>
  /** Members of the last sample that have ended since, with their counters then. */
  readonly vanished: readonly ProcessStat[]
}

export class TaskProcesses {
  readonly #roots = new Map<number, number>()
  /** The task's PIDs as read by `find`, for the following `read`. */
  readonly #rootStats = new Map<number, ProcessStat>()
  #members = new Map<number, TaskProcess>()
  #incarnation = ''

  get size(): number {
    return this.#members.size
  }

  /** The first member: one of the task's own PIDs while it is alive. */
  anyPid(): number | undefined {
    return this.#members.keys().next().value
  }

  /** Start of the oldest member, in ticks since boot. */
  oldestStartTicks(): number {
    let oldest = Number.POSITIVE_INFINITY
    for (const { startTicks } of this.#members.values()) oldest = Math.min(oldest, startTicks)
    return oldest
  }

  clear(): void {
    this.#roots.clear()
    this.#rootStats.clear()
    this.#members.clear()
    this.#incarnation = ''
  }

  /** Drops the counters, which would be stale at their next use, and keeps the members. */
  dropCounters(): void {
    for (const [pid, { startTicks, last }] of this.#members) {
      if (last) this.#members.set(pid, { startTicks, last: undefined })
    }
  }

  /** Updates the members from the tree. Returns true if the task was restarted since the last call. */
  find(task: Task, tree: ProcessTree): boolean {
    const restarted = this.#noteIncarnation(task)
    const heads = new Set<number>()
    this.#rootStats.clear()
    for (const pid of task.pids) {
      const stat = tree.stat(pid)
      if (!stat) continue
      if (!this.#roots.has(pid)) this.#roots.set(pid, stat.startTicks)
      if (this.#roots.get(pid) !== stat.startTicks) continue
      heads.add(pid)
      this.#rootStats.set(pid, stat)
    }
    for (const [pid, member] of this.#members) if (tree.startOf(pid) === member.startTicks) heads.add(pid)
    if (heads.size === 0) this.#members.clear()
    for (const pid of tree.family(heads)) {
      const startTicks = tree.startOf(pid)
      if (startTicks === undefined || this.#members.get(pid)?.startTicks === startTicks) continue
      this.#members.set(pid, { startTicks, last: undefined })
    }
    return restarted
  }

  #noteIncarnation(task: Task): boolean {
    const incarnation = `${task.startedAtMs} ${task.pids.join(' ')}`
    const before = this.#incarnation
    if (before === incarnation) return false
    const restarted = before !== '' && before.split(' ')[0] !== `${task.startedAtMs}`
    if (restarted) this.clear()
    this.#roots.clear()
    this.#incarnation = incarnation
    return restarted
  }

  /** True if the live processes of the control group at `path` are exactly the members. */
  owns(path: string, tree: ProcessTree): boolean {
    const pids = cgroupProcesses(path)
    if (!pids || pids.size === 0) return false
    for (const pid of pids) {
      if (this.#members.has(pid)) continue
      const stat = tree.stat(pid)
      if (!stat || isDead(stat)) continue
      if (!tree.descendsFrom(pid, this.#members)) return false
      this.#members.set(pid, { startTicks: stat.startTicks, last: undefined })
    }
    for (const [pid, member] of this.#members) {
      if (pids.has(pid)) continue
      const stat = tree.stat(pid)
      // Groups do not list zombies. A vanished member stays until `read` has counted it.
      if (stat && !isDead(stat) && stat.startTicks === member.startTicks) return false
      if (!member.last) this.#members.delete(pid)
    }
    return true
  }

  /** Reads all members and their descendants, one process per step. */
  *read(tree: ProcessTree): Generator<void, TaskProcessSample> {
    const stats = new Map<number, ProcessStat>()
    const vanished: ProcessStat[] = []
    for (const [pid, member] of this.#members) {
      const stat = this.#rootStats.get(pid) ?? tree.stat(pid)
      if (stat?.startTicks === member.startTicks) stats.set(pid, stat)
      else if (member.last) vanished.push(member.last)
      yield
    }
    for (const pid of tree.family(stats.keys())) {
      if (stats.has(pid)) continue
      const recorded = tree.startOf(pid)
      const stat = tree.stat(pid)
      // Its parent may have died meanwhile; an equal recorded start time identifies it as the same process.
      if (stat && (stat.startTicks === recorded || stats.has(stat.parentPid))) stats.set(pid, stat)
      yield
    }
    // Only zombies: the task has ended, and its last sample is the previous one.
    if (stats.values().every(isDead)) stats.clear()
    return { stats, vanished }
  }

  /**
   * CPU time between the last sample and this one, in total and by PID. It includes children that started and ended in
   * between, by their parent's counters of waited-for children; from these, the time of vanished members at the last sample
   * is subtracted, because it was already counted. Processes started since `sinceTicks` (after boot) count from their
   * start, other new members from now.
   */
  spent(
    sample: TaskProcessSample,
    sinceTicks: number,
    units: KernelUnits,
  ): { all: CpuTime; byPid: Map<number, CpuTime> } {
    const tickMs = 1000 / units.ticksPerSecond
    const byPid = new Map<number, CpuTime>()
    let [user, system, childUser, childSystem] = [0, 0, 0, 0]
    for (const stat of sample.stats.values()) {
      const last = this.#members.get(stat.pid)?.last
      const isNew = stat.startTicks >= sinceTicks
      const delta = (field: 'userTicks' | 'systemTicks' | 'childUserTicks' | 'childSystemTicks') =>
        Math.max(0, stat[field] - (last?.[field] ?? (isNew ? 0 : stat[field])))
      const [ownUser, ownSystem] = [delta('userTicks'), delta('systemTicks')]
      byPid.set(stat.pid, cpuTime(ownUser * tickMs, ownSystem * tickMs))
      user += ownUser
      system += ownSystem
      childUser += delta('childUserTicks')
      childSystem += delta('childSystemTicks')
    }
    for (const stat of sample.vanished) {
      childUser -= stat.userTicks + stat.childUserTicks
      childSystem -= stat.systemTicks + stat.childSystemTicks
    }
    const all = cpuTime((user + Math.max(0, childUser)) * tickMs, (system + Math.max(0, childSystem)) * tickMs)
    return { all, byPid }
  }

  /** Stores a sample as the base of the next one. */
  keep(sample: TaskProcessSample): void {
    const members = new Map<number, TaskProcess>()
    for (const [pid, last] of sample.stats) members.set(pid, { startTicks: last.startTicks, last })
    this.#members = members
    this.#rootStats.clear()
  }
}

function isDead(stat: ProcessStat): boolean {
  return stat.state === 'Z' || stat.state === 'X'
}

function cpuTime(userMs: number, systemMs: number): CpuTime {
  return { totalMs: userMs + systemMs, userMs, systemMs }
}
