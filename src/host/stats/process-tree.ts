/**
 * The host's processes by parent. A refresh costs as much as the number of new processes.
 *
 * A process gets another parent only when its parent dies: an ancestor or the reaper. So a process outside a task's tree
 * never enters it, and its record stays valid. A refresh reads only new PIDs, and a sixteenth of the others in case a PID
 * was reused between two refreshes.
 */
import { readdir } from 'node:fs/promises'
import { readProcFile } from './proc-file.ts'

/** One process from /proc/PID/stat. Times are kernel ticks, `startTicks` since boot; `child*` are waited-for children. */
export interface ProcessStat {
  readonly pid: number
  readonly parentPid: number
  /** `Z` and `X`: dead but not reaped. */
  readonly state: string
  readonly userTicks: number
  readonly systemTicks: number
  readonly childUserTicks: number
  readonly childSystemTicks: number
  readonly startTicks: number
  readonly rssPages: number
}

/** Parses /proc/PID/stat; undefined if malformed. The name in it may contain any character, even `) 1 (`. */
export function parseProcessStat(text: string): ProcessStat | undefined {
  const nameEnd = text.lastIndexOf(')')
  const pid = Number.parseInt(text, 10)
  const words = text.slice(nameEnd + 2).split(' ')
  if (nameEnd < 0 || !(pid > 0) || words.length < 22) return undefined
  // Words count from the third field, the state: field N of proc(5) is at N - 3.
  const field = (number: number) => {
    const value = Number(words[number - 3])
    return value > 0 ? value : 0
  }
  return {
    pid,
    parentPid: field(4),
    state: words[0] ?? '',
    userTicks: field(14),
    systemTicks: field(15),
    childUserTicks: field(16),
    childSystemTicks: field(17),
    startTicks: field(22),
    rssPages: field(24),
  }
}

interface ProcessEntry {
  parentPid: number
  startTicks: number
  generation: number
}

/** The parent of an orphan until it is read again, and of the first process. */
const UNKNOWN = 0
const REREAD_EVERY = 16
/** Cheap steps per yield. */
const STRIDE = 64
/** Above real depths; ends a cycle caused by reused PIDs. */
const DEPTH_MAX = 256

export class ProcessTree {
  readonly #procRoot: string
  readonly #entries = new Map<number, ProcessEntry>()
  readonly #children = new Map<number, Set<number>>()
  #generation = 0

  constructor(procRoot: string) {
    this.#procRoot = procRoot
  }

  /** Number of recorded processes. */
  get size(): number {
    return this.#entries.size
  }

  clear(): void {
    this.#entries.clear()
    this.#children.clear()
  }

  /** Names of all entries of /proc; empty if it cannot be listed. */
  async list(): Promise<readonly string[]> {
    return readdir(this.#procRoot).catch(() => [])
  }

  /** Updates the tree from a new `list`, with one short step per `next()`. */
  *refresh(names: readonly string[]): Generator<void> {
    const generation = ++this.#generation
    let count = 0
    for (const name of names) {
      const pid = Number(name)
      if (!(pid > 0)) continue
      const known = this.#entries.get(pid)
      if (known) known.generation = generation
      if (!known || known.parentPid === UNKNOWN || (pid + generation) % REREAD_EVERY === 0) {
        this.stat(pid)
        yield
      } else if (++count % STRIDE === 0) yield
    }
    for (const [pid, entry] of this.#entries) {
      if (entry.generation !== generation) this.#forget(pid)
      if (++count % STRIDE === 0) yield
    }
  }

  /** The current state of a process, which also updates its record. Undefined if it does not exist or is hidden. */
  stat(pid: number): ProcessStat | undefined {
    const text = readProcFile(`${this.#procRoot}/${pid}/stat`)
    const found = text === undefined ? undefined : parseProcessStat(text)
    if (found) this.#note(found)
    else this.#forget(pid)
    return found
  }

  /** Recorded start of `pid`, in ticks since boot. */
  startOf(pid: number): number | undefined {
    return this.#entries.get(pid)?.startTicks
  }

  /** `roots` and all their recorded descendants. */
  family(roots: Iterable<number>): Set<number> {
    const found = new Set(roots)
    // Iteration of a set includes additions, so the set is also the queue.
    for (const pid of found) for (const child of this.#children.get(pid) ?? []) found.add(child)
    return found
  }

  /** True if `pid` or one of its ancestors is in `family`. Reads processes that are not recorded. */
  descendsFrom(pid: number, family: ReadonlyMap<number, unknown>): boolean {
    let at = pid
    for (let depth = 0; depth < DEPTH_MAX && at > 0; depth++) {
      if (family.has(at)) return true
      const parent = this.#entries.get(at)?.parentPid ?? this.stat(at)?.parentPid
      if (parent === undefined) return false
      at = parent
    }
    return false
  }

  #note(stat: ProcessStat): void {
    const known = this.#entries.get(stat.pid)
    if (known && known.startTicks !== stat.startTicks) this.#orphan(stat.pid)
    if (known && known.parentPid !== stat.parentPid) this.#unlink(stat.pid, known.parentPid)
    if (known?.parentPid !== stat.parentPid) {
      const siblings = this.#children.get(stat.parentPid)
      if (siblings) siblings.add(stat.pid)
      else this.#children.set(stat.parentPid, new Set([stat.pid]))
    }
    const { parentPid, startTicks } = stat
    this.#entries.set(stat.pid, { parentPid, startTicks, generation: this.#generation })
  }

  #forget(pid: number): void {
    const known = this.#entries.get(pid)
    if (!known) return
    this.#entries.delete(pid)
    this.#unlink(pid, known.parentPid)
    this.#orphan(pid)
  }

  /** The children of a dead process have another parent now, and must not become those of a process that reuses its PID. */
  #orphan(pid: number): void {
    for (const child of this.#children.get(pid) ?? []) {
      const entry = this.#entries.get(child)
      if (entry) entry.parentPid = UNKNOWN
    }
    this.#children.delete(pid)
  }

  #unlink(pid: number, parentPid: number): void {
    const siblings = this.#children.get(parentPid)
    siblings?.delete(pid)
    if (siblings?.size === 0) this.#children.delete(parentPid)
  }
}
