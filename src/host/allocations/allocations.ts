/**
 * The allocations of this host: one picture of each `<alloc_dir>/<uuid>/`, kept true.
 *
 * Promises: a new, changed or removed allocation is seen within a second; `get` and `all` never touch the disk; pictures
 * are immutable, so a caller may hold one as long as it likes. The truth is what `readdir` and `stat` say
 * (`allocation-scan.ts`); an event (`allocation-watch.ts`) only says where to look now, and every `RESCAN_MS`
 * everything is looked at whatever the events said, because an overflown event queue is silent.
 *
 * What a directory becomes:
 * - with a good manifest: what the manifest says.
 * - without a manifest: namespace `default`, running, tasks from its directories and log names. A directory younger than
 *   `BARE_GRACE_MS` is given the time to get its manifest first, so that an allocation of another namespace does not
 *   show up as one of `default` for a moment.
 * - with a bad manifest, or one that went missing: the last good picture. If there never was one it is NOT served, only
 *   listed in `faults()`: the manifest holds the namespace, and guessing `default` would open the logs of one namespace
 *   to the readers of another. Each new fault is logged once.
 * - a symbolic link: not served (a fault), because what it points to is not ours to read or to remove.
 *
 * Supervisors die. A task that claims to run while all its processes are gone, or belong to somebody who started later
 * (`process-liveness.ts`), is shown dead and failed; when that leaves no task alive the allocation is `lost`. The claim
 * must fail twice, `CONFIRM_MS` apart and after reading the manifest again, because a supervisor writes the end of a
 * task a moment after it. Tasks without process IDs are believed.
 *
 * Collected allocations stay visible as records (`collected.ts`); a directory that is there again wins over its record.
 *
 * Assumes a local disk and that only the operator and supervisors can write to `<alloc_dir>`. What can go wrong: no
 * inotify watches left (polling, said once in the log); `<alloc_dir>` unreadable (the last pictures stay, logged once).
 */
import { mkdirSync, readdirSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { type Clock, systemClock } from '../../platform/clock.ts'
import { isErrno, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { isUuid } from '../../platform/schema.ts'
import type { Allocation, AllocationTable, Task } from './allocation.ts'
import { type Look, type Print, completeAllocation, inSlices, lookAt } from './allocation-scan.ts'
import { AllocationWatch, type OpenWatcher } from './allocation-watch.ts'
import type { CollectedRecords } from './collected.ts'
import { type ProcessTable, hostProcesses, verdictOn } from './process-liveness.ts'

const POLL_MS = 600
const RESCAN_MS = 15_000
const LIVENESS_MS = 1000
const CONFIRM_MS = 300
const BARE_GRACE_MS = 400

export interface AllocationChange {
  readonly id: string
  /** Undefined when it is gone without leaving a record. */
  readonly allocation: Allocation | undefined
}

export interface RegistryOptions {
  /** Made (0711) when it is missing. */
  readonly allocDir: string
  readonly log: Logger
  readonly collected: CollectedRecords
  readonly clock?: Clock
  readonly processes?: ProcessTable
  readonly openWatcher?: OpenWatcher
}

/** A claim to run that did not hold. */
interface Abandoned {
  readonly noticedAtMs: number
  /** Only the clocks say so: see `process-liveness.ts`. */
  readonly presumed: boolean
}

interface Entry {
  print: Print
  /** What the manifest, or the bare directory, says; undefined while there has been nothing that could be believed. */
  told: Allocation | undefined
  /** `told`, with abandoned tasks shown dead. */
  shown: Allocation | undefined
  bare: boolean
  fault: string | undefined
  /** By `claimOf`. */
  readonly abandoned: Map<string, Abandoned>
}

export class AllocationRegistry implements AllocationTable {
  readonly #options: RegistryOptions
  readonly #log: Logger
  readonly #clock: Clock
  readonly #processes: ProcessTable
  readonly #collected: CollectedRecords
  readonly #entries = new Map<string, Entry>()
  readonly #listeners = new Set<(change: AllocationChange) => void>()
  readonly #timers = new Set<NodeJS.Timeout>()
  readonly #stopping = new AbortController()
  #allocDir: string
  #watch: AllocationWatch | undefined
  #scanning: Promise<void> | undefined
  #scanAgain = false
  #unreadable = false

  constructor(options: RegistryOptions) {
    this.#options = options
    this.#log = options.log
    this.#clock = options.clock ?? systemClock
    this.#processes = options.processes ?? hostProcesses()
    this.#collected = options.collected
    this.#allocDir = options.allocDir
  }

  /** Resolves once every allocation that is there has been looked at. Rejects when the directory cannot be made. */
  async start(): Promise<void> {
    mkdirSync(this.#options.allocDir, { recursive: true, mode: 0o711 })
    this.#allocDir = realpathSync(this.#options.allocDir)
    await this.#rescan()
    this.#watch = new AllocationWatch({
      allocDir: this.#allocDir,
      log: this.#log,
      wake: (id) => (id === undefined ? void this.#rescan() : void this.refresh(id)),
      ...(this.#options.openWatcher ? { open: this.#options.openWatcher } : {}),
    })
    // Until its watch is in force each of them is polled, so nobody has to wait for the watches.
    const ids = [...this.#entries.keys()]
    this.#later(0, () => void inSlices(ids, (id) => this.#watch?.follow(id), this.#stopping.signal))
    this.#repeat(POLL_MS, () => this.#poll())
    this.#repeat(RESCAN_MS, () => this.#rescan())
    this.#repeat(LIVENESS_MS, () => this.#checkProcesses())
    void this.#checkProcesses()
  }

  async stop(): Promise<void> {
    this.#stopping.abort()
    for (const timer of this.#timers) clearTimeout(timer)
    this.#timers.clear()
    await this.#scanning
    await this.#watch?.stop()
  }

  /** The directory of the allocations, with every symlink resolved (after `start`). */
  get allocDir(): string {
    return this.#allocDir
  }

  get(id: string): Allocation | undefined {
    return this.#entries.get(id)?.shown ?? this.#collected.get(id)
  }

  *all(): IterableIterator<Allocation> {
    for (const entry of this.#entries.values()) if (entry.shown) yield entry.shown
    for (const record of this.#collected.all()) if (!this.#entries.get(record.id)?.shown) yield record
  }

  /** Directories that cannot be served as they are, and why. The reasons hold nothing of their content. */
  faults(): readonly { readonly id: string; readonly reason: string }[] {
    const found = []
    for (const [id, entry] of this.#entries) if (entry.fault !== undefined) found.push({ id, reason: entry.fault })
    return found
  }

  /** Why the picture of this allocation may be out of date, or undefined when it is not. */
  faultOf(id: string): string | undefined {
    return this.#entries.get(id)?.fault
  }

  /** True if its directory has no manifest and never had one since it is known. */
  isBare(id: string): boolean {
    const entry = this.#entries.get(id)
    return entry?.bare === true && entry.fault === undefined
  }

  /** Calls `listener` after every change of a picture, in the turn in which it was seen. Returns how to stop that. */
  onChange(listener: (change: AllocationChange) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Looks at one allocation now and returns its picture, for a decision that must not rest on an old one. */
  refresh(id: string): Allocation | undefined {
    if (this.#stopping.signal.aborted) return this.get(id)
    const known = this.#entries.get(id)
    this.#learn(id, known, lookAt(this.#allocDir, id, known?.print, this.#clock.nowMs()))
    return this.get(id)
  }

  /**
   * Turns an allocation into the record of a collected one. To be called in the same turn in which its directory was
   * moved away, so that nobody sees it missing in between.
   */
  markCollected(id: string): void {
    const last = this.#entries.get(id)?.shown
    if (!last) return
    this.#forget(id)
    this.#collected.add(last)
    this.#tell(id)
  }

  #learn(id: string, known: Entry | undefined, look: Look): void {
    if (look.kind === 'unchanged') return
    if (look.kind === 'absent') {
      if (known && this.#forget(id)) this.#tell(id)
      return
    }
    // The same name on another directory is another allocation: nothing of the old one may show through.
    const before = known?.print.directory === look.print.directory ? known : undefined
    if (look.kind === 'bare' && !before && this.#clock.nowMs() - look.bornMs < BARE_GRACE_MS && look.bornMs > 0) {
      this.#later(BARE_GRACE_MS, () => void this.refresh(id))
      if (known && this.#forget(id)) this.#tell(id)
      return
    }
    const entry: Entry = before ?? {
      print: look.print,
      told: undefined,
      shown: known?.shown,
      bare: false,
      fault: undefined,
      abandoned: new Map(),
    }
    this.#entries.set(id, entry)
    this.#watch?.follow(id)
    entry.print = look.print
    this.#apply(id, entry, look)
    this.#show(id, entry)
  }

  #apply(id: string, entry: Entry, look: Exclude<Look, { kind: 'absent' | 'unchanged' }>): void {
    const gone = look.kind === 'bare' && entry.told !== undefined && !entry.bare
    if (look.kind === 'fault' || gone) {
      const fault = look.kind === 'fault' ? look.fault : 'alloc.json is gone'
      if (entry.fault !== fault) {
        const served = entry.told ? 'as last read' : 'not at all'
        this.#log.warn('an allocation cannot be read', { alloc_id: id, reason: fault, served })
      }
      entry.fault = fault
      return
    }
    if (entry.fault !== undefined) this.#log.info('an allocation can be read again', { alloc_id: id })
    entry.fault = undefined
    entry.bare = look.kind === 'bare'
    const place = { id, directory: join(this.#allocDir, id), bornMs: look.bornMs, collected: false }
    entry.told = completeAllocation(look.manifest, place)
  }

  /** Makes the picture of `entry` anew and tells of it when it differs. */
  #show(id: string, entry: Entry): void {
    const before = entry.shown
    entry.shown = entry.told && withoutAbandoned(entry.told, entry.abandoned)
    if (entry.shown && this.#collected.drop(id)) void this.#collected.saved()
    if (!isDeepStrictEqual(before, entry.shown)) this.#tell(id)
  }

  #tell(id: string): void {
    const change = { id, allocation: this.get(id) }
    for (const listener of this.#listeners) {
      try {
        listener(change)
      } catch (error) {
        this.#log.error('a listener of allocations failed', { error: messageOf(error) })
      }
    }
  }

  /** True when there had been a picture of it. */
  #forget(id: string): boolean {
    const entry = this.#entries.get(id)
    this.#entries.delete(id)
    this.#watch?.unfollow(id)
    return entry?.shown !== undefined
  }

  /** Looks at every directory there is. Calls while one is under way are answered by one more. */
  #rescan(): Promise<void> {
    if (this.#scanning) this.#scanAgain = true
    this.#scanning ??= this.#scan().finally(() => {
      this.#scanning = undefined
      if (!this.#scanAgain) return
      this.#scanAgain = false
      this.#later(CONFIRM_MS, () => void this.#rescan())
    })
    return this.#scanning
  }

  async #scan(): Promise<void> {
    const names = this.#names()
    if (!names) return
    await inSlices(new Set([...names, ...this.#entries.keys()]), (id) => void this.refresh(id), this.#stopping.signal)
  }

  /** The UUIDs in the directory; none when it is gone; undefined, said once, when it cannot be read. */
  #names(): readonly string[] | undefined {
    try {
      const names = readdirSync(this.#allocDir).filter(isUuid)
      this.#unreadable = false
      return names
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return []
      if (!this.#unreadable) this.#log.error('the allocation directory cannot be read', { error: messageOf(error) })
      this.#unreadable = true
      return undefined
    }
  }

  /** Looks at what no watch covers: everything without watches; else bare directories and those past the watch limit. */
  async #poll(): Promise<void> {
    if (!this.#watch?.works) return this.#rescan()
    const unwatched = [...this.#entries].filter(
      ([id, entry]) => entry.bare || entry.print.unsure || !this.#watch?.isWatched(id),
    )
    await inSlices(unwatched, ([id]) => void this.refresh(id), this.#stopping.signal)
  }

  async #checkProcesses(): Promise<void> {
    const doubted: string[] = []
    const look = ([id, entry]: [string, Entry]) => {
      if (this.#newlyAbandoned(entry).length > 0) doubted.push(id)
    }
    await inSlices(this.#entries, look, this.#stopping.signal)
    if (doubted.length === 0) return
    this.#later(CONFIRM_MS, () => {
      for (const id of doubted) this.#confirmAbandoned(id)
    })
  }

  #newlyAbandoned(entry: Entry): readonly Task[] {
    if (!entry.told || entry.told.clientStatus === 'complete' || entry.told.clientStatus === 'failed') return []
    const tasks = entry.told.tasks.values()
    return [...tasks].filter((task) => {
      const verdict = verdictOn(task, this.#processes)
      const known = entry.abandoned.get(claimOf(task))
      return verdict !== 'alive' && (!known || (known.presumed && verdict === 'gone'))
    })
  }

  #confirmAbandoned(id: string): void {
    this.refresh(id)
    const entry = this.#entries.get(id)
    if (!entry) return
    const tasks = this.#newlyAbandoned(entry)
    if (tasks.length === 0) return
    for (const task of tasks) {
      const presumed = verdictOn(task, this.#processes) === 'presumed gone'
      entry.abandoned.set(claimOf(task), { noticedAtMs: this.#clock.nowMs(), presumed })
      this.#log.warn('a task ended without a word from its supervisor', { alloc_id: id, task: task.name })
    }
    this.#show(id, entry)
  }

  /** Runs `work` every `everyMs` after it has ended, until `stop`. */
  #repeat(everyMs: number, work: () => Promise<void>): void {
    this.#later(everyMs, () => {
      void work()
        .catch((error: unknown) => this.#log.error('looking at allocations failed', { error: messageOf(error) }))
        .finally(() => this.#repeat(everyMs, work))
    })
  }

  #later(afterMs: number, work: () => void): void {
    if (this.#stopping.signal.aborted) return
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      work()
    }, afterMs)
    this.#timers.add(timer)
  }
}

/** What a task claims: the same claim stays disproved, a new one (a restart) is believed until it is disproved. */
function claimOf(task: Task): string {
  return `${task.name}/${task.startedAtMs}/${task.pids.join()}`
}

function withoutAbandoned(told: Allocation, abandoned: Map<string, Abandoned>): Allocation {
  if (abandoned.size === 0) return told
  const tasks = new Map<string, Task>()
  const current = new Set<string>()
  for (const task of told.tasks.values()) {
    const noticed = task.state === 'running' ? abandoned.get(claimOf(task)) : undefined
    if (noticed) current.add(claimOf(task))
    tasks.set(
      task.name,
      noticed
        ? { ...task, state: 'dead', failed: true, finishedAtMs: noticed.noticedAtMs, presumed: noticed.presumed }
        : task,
    )
  }
  for (const claim of abandoned.keys()) if (!current.has(claim)) abandoned.delete(claim)
  if (current.size === 0) return told
  const alive = [...tasks.values()].some((task) => task.state !== 'dead')
  return { ...told, tasks, clientStatus: alive ? told.clientStatus : 'lost' }
}
