/**
 * The processes of one task: its pids and all that descends from them. A process once seen in the family stays in it
 * when its parent dies. A pid counts only together with the start time it was first seen with, so that a pid used again
 * is another process.
 */
import type { Task } from '../allocations/allocation.ts'
import { cgroupProcesses } from './cgroup.ts'
import type { KernelUnits } from './proc-file.ts'
import type { ProcessStat, ProcessTree } from './process-tree.ts'

interface Member {
  readonly startTicks: number
  /** Counters at the last reading; undefined while the processes were not read. */
  readonly last: ProcessStat | undefined
}

/** CPU time in milliseconds. */
export interface Spent {
  readonly totalMs: number
  readonly userMs: number
  readonly systemMs: number
}

/** The family's processes, read now; none when the last one has ended. */
export interface Reading {
  readonly stats: ReadonlyMap<number, ProcessStat>
  /** What was in the family at the last reading and is gone, as it was then. */
  readonly vanished: readonly ProcessStat[]
}

export class TaskFamily {
  readonly #roots = new Map<number, number>()
  /** The task's own pids as `find` has just read them, so that `read` need not do it again. */
  readonly #rootStats = new Map<number, ProcessStat>()
  #members = new Map<number, Member>()
  #incarnation = ''

  get size(): number {
    return this.#members.size
  }

  /** Any member; the first is one of the task's own pids while that lives. */
  anyPid(): number | undefined {
    return this.#members.keys().next().value
  }

  /** When the oldest member was started, in ticks since boot. */
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

  /** Forgets the counters but not the members: they will be too old when they are next needed. */
  dropCounters(): void {
    for (const [pid, { startTicks, last }] of this.#members) {
      if (last) this.#members.set(pid, { startTicks, last: undefined })
    }
  }

  /** Sets the members from the records of the tree. Answers true when the task was started anew since the last time. */
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

  /** True when the living processes of the control group at `path` are exactly the members. */
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
      // A zombie is listed in no group. One that has vanished stays until `read` has accounted for it.
      if (stat && !isDead(stat) && stat.startTicks === member.startTicks) return false
      if (!member.last) this.#members.delete(pid)
    }
    return true
  }

  /** Reads all members and what descends from them, one process for each step. */
  *read(tree: ProcessTree): Generator<void, Reading> {
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
      // Its parent may have died a moment ago; a record with the same start time tells that it is still the same one.
      if (stat && (stat.startTicks === recorded || stats.has(stat.parentPid))) stats.set(pid, stat)
      yield
    }
    // Nothing but zombies: the task is over, and its last sample is the one before this.
    if (stats.values().every(isDead)) stats.clear()
    return { stats, vanished }
  }

  /**
   * CPU time spent between the last reading and this one, in all and by pid. A child that came and went in between is
   * in it: it left its time in its parent's counters for waited-for children. From what those gained is taken off what
   * vanished processes had at the last reading, which was counted then. Processes started since `sinceTicks` (after
   * boot) count from their beginning, others not seen before count from now.
   */
  spent(reading: Reading, sinceTicks: number, units: KernelUnits): { all: Spent; byPid: Map<number, Spent> } {
    const tickMs = 1000 / units.ticksPerSecond
    const byPid = new Map<number, Spent>()
    let [user, system, childUser, childSystem] = [0, 0, 0, 0]
    for (const stat of reading.stats.values()) {
      const last = this.#members.get(stat.pid)?.last
      const isNew = stat.startTicks >= sinceTicks
      const moved = (field: 'userTicks' | 'systemTicks' | 'childUserTicks' | 'childSystemTicks') =>
        Math.max(0, stat[field] - (last?.[field] ?? (isNew ? 0 : stat[field])))
      const [ownUser, ownSystem] = [moved('userTicks'), moved('systemTicks')]
      byPid.set(stat.pid, spentOf(ownUser * tickMs, ownSystem * tickMs))
      user += ownUser
      system += ownSystem
      childUser += moved('childUserTicks')
      childSystem += moved('childSystemTicks')
    }
    for (const stat of reading.vanished) {
      childUser -= stat.userTicks + stat.childUserTicks
      childSystem -= stat.systemTicks + stat.childSystemTicks
    }
    const all = spentOf((user + Math.max(0, childUser)) * tickMs, (system + Math.max(0, childSystem)) * tickMs)
    return { all, byPid }
  }

  /** Takes a reading for the one that the next is compared with. */
  keep(reading: Reading): void {
    const members = new Map<number, Member>()
    for (const [pid, last] of reading.stats) members.set(pid, { startTicks: last.startTicks, last })
    this.#members = members
    this.#rootStats.clear()
  }
}

function isDead(stat: ProcessStat): boolean {
  return stat.state === 'Z' || stat.state === 'X'
}

function spentOf(userMs: number, systemMs: number): Spent {
  return { totalMs: userMs + systemMs, userMs, systemMs }
}
