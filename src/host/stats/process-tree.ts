/**
 * Who is whose child: the host's processes by their parents, kept up to date at the price of the new ones.
 *
 * A process gets another parent only when its parent dies, and then one that was an ancestor already or the reaper. So
 * a process that is in no task's tree never enters one, and its record stays good; only pids not seen before are read
 * on each refresh, and a sixteenth of the others as a guard against a pid used twice between two refreshes.
 */
import { readdir } from 'node:fs/promises'
import { readProcFile } from './proc-file.ts'

/** One process from /proc/PID/stat. Times are kernel ticks, `startTicks` since boot; `child*` are waited-for children. */
export interface ProcessStat {
  readonly pid: number
  readonly parentPid: number
  /** `Z` and `X` are dead but not yet reaped. */
  readonly state: string
  readonly userTicks: number
  readonly systemTicks: number
  readonly childUserTicks: number
  readonly childSystemTicks: number
  readonly startTicks: number
  readonly rssPages: number
}

/** Reads the text of /proc/PID/stat; undefined when it is no such text. The name in it may hold anything, even `) 1 (`. */
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

interface Entry {
  parentPid: number
  startTicks: number
  generation: number
}

/** The parent of an orphan until it is read again. Real ones have it too: the first process has no parent. */
const UNKNOWN = 0
const REREAD_EVERY = 16
/** How many cheap steps make one slice step. */
const STRIDE = 64
/** Deeper than any real chain of parents; stops a loop made of reused pids. */
const DEPTH_MAX = 256

export class ProcessTree {
  readonly #procRoot: string
  readonly #entries = new Map<number, Entry>()
  readonly #children = new Map<number, Set<number>>()
  #generation = 0

  constructor(procRoot: string) {
    this.#procRoot = procRoot
  }

  /** Number of processes on record. */
  get size(): number {
    return this.#entries.size
  }

  clear(): void {
    this.#entries.clear()
    this.#children.clear()
  }

  /** Names of everything in /proc. Empty when it cannot be listed. */
  async list(): Promise<readonly string[]> {
    return readdir(this.#procRoot).catch(() => [])
  }

  /** Brings the tree up to date with a fresh `list`, one short step for each `next()`. */
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

  /** The process as of now, and notes what it says about the tree. Undefined when it is gone or hidden. */
  stat(pid: number): ProcessStat | undefined {
    const text = readProcFile(`${this.#procRoot}/${pid}/stat`)
    const found = text === undefined ? undefined : parseProcessStat(text)
    if (found) this.#note(found)
    else this.#forget(pid)
    return found
  }

  /** When `pid` was started according to the record, in ticks since boot. */
  startOf(pid: number): number | undefined {
    return this.#entries.get(pid)?.startTicks
  }

  /** `roots` and all their descendants on record. */
  family(roots: Iterable<number>): Set<number> {
    const found = new Set(roots)
    // A set is iterated in insertion order, additions included: this is the queue, too.
    for (const pid of found) for (const child of this.#children.get(pid) ?? []) found.add(child)
    return found
  }

  /** True when `pid` or one of its ancestors is in `family`. Reads what is not on record. */
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

  /** The children of a process that is gone have another parent now, and must not pass to a new bearer of its pid. */
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
