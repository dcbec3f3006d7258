/**
 * The allocations of this host: an up-to-date snapshot of each `<alloc_dir>/<uuid>/`.
 *
 * Promises: a new, changed or removed allocation is noticed within a second; `get` and `all` never read the disk;
 * snapshots are immutable, so a caller may keep them. The source of truth is `readdir` and `stat` (`allocation-scan.ts`).
 * An event (`allocation-watch.ts`) only triggers a scan, and all directories are scanned every `RESCAN_MS` regardless of
 * events, because an event queue overflows silently.
 *
 * How a directory is served:
 * - with a valid manifest: as the manifest says.
 * - without a manifest: namespace `default`, running, tasks from its directories and log names. A directory younger than
 *   `BARE_GRACE_MS` is not served yet, so that an allocation of another namespace does not appear in `default` before its
 *   manifest is written.
 * - with an invalid manifest, or one that was removed: as last read. If it was never read, it is NOT served and only listed
 *   in `faults()`: the manifest has the namespace, and a default would expose the logs of one namespace to the readers of
 *   another. Each new fault is logged once.
 * - a symbolic link: not served (a fault), because its target must not be read or removed.
 *
 * Supervisors die. A task that is running by its manifest while all its processes are gone, or started later than the task
 * (`process-liveness.ts`), is served as dead and failed; an allocation without a live task is `lost`. This must be seen
 * twice, `CONFIRM_MS` apart and after reading the manifest again, because a supervisor writes the end of a task shortly
 * after it. Tasks without process IDs count as running.
 *
 * Collected allocations stay visible as records (`collected-records.ts`); an existing directory takes precedence over its record.
 *
 * Assumes a local disk and that only the operator and supervisors can write to `<alloc_dir>`. Failure modes: no inotify
 * watches left (polling, logged once); `<alloc_dir>` unreadable (the last snapshots stay, logged once).
 */
import { mkdirSync, readdirSync, realpathSync } from 'node:fs'
import { join } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { type Clock, systemClock } from '../../platform/clock.ts'
import { isErrno, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { isUuid } from '../../platform/schema.ts'
import type { Allocation, AllocationTable, Task } from './allocation.ts'
import {
  type ScanResult,
  type DirectoryVersion,
  completeAllocation,
  forEachYielding,
  scanAllocation,
} from './allocation-scan.ts'
import { AllocationWatch, type OpenChokidar } from './allocation-watch.ts'
import type { CollectedRecords } from './collected-records.ts'
import { type ProcessTable, hostProcesses, taskLiveness } from './process-liveness.ts'

const POLL_MS = 600
const RESCAN_MS = 15_000
const LIVENESS_MS = 1000
const CONFIRM_MS = 300
const BARE_GRACE_MS = 400

export interface HostAllocationChange {
  readonly id: string
  /** Undefined if it was removed and has no record. */
  readonly allocation: Allocation | undefined
}

export interface RegistryOptions {
  /** Created (0711) if missing. */
  readonly allocDir: string
  readonly log: Logger
  readonly collected: CollectedRecords
  readonly clock?: Clock
  readonly processes?: ProcessTable
  readonly openWatcher?: OpenChokidar
}

/** A task that is running by its manifest but has no live process. */
interface LostTask {
  readonly noticedAtMs: number
  /** By wall clock only: see `process-liveness.ts`. */
  readonly presumed: boolean
}

interface RegistryEntry {
  version: DirectoryVersion
  /** From the last valid manifest or bare directory; undefined before the first. */
  declared: Allocation | undefined
  /** `declared`, with lost tasks reported dead. */
  served: Allocation | undefined
  bare: boolean
  fault: string | undefined
  /** Key: `taskRunKey`. */
  readonly lost: Map<string, LostTask>
}

export class AllocationRegistry implements AllocationTable {
  readonly #options: RegistryOptions
  readonly #log: Logger
  readonly #clock: Clock
  readonly #processes: ProcessTable
  readonly #collected: CollectedRecords
  readonly #entries = new Map<string, RegistryEntry>()
  readonly #listeners = new Set<(change: HostAllocationChange) => void>()
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

  /** Resolves after the first scan of all allocations. Rejects if the directory cannot be created. */
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
    // Directories are polled until their watch is active, so the start does not wait for watches.
    const ids = [...this.#entries.keys()]
    this.#schedule(0, () => void forEachYielding(ids, (id) => this.#watch?.follow(id), this.#stopping.signal))
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

  /** The allocation directory; after `start` with all symlinks resolved. */
  get allocDir(): string {
    return this.#allocDir
  }

  get(id: string): Allocation | undefined {
    return this.#entries.get(id)?.served ?? this.#collected.get(id)
  }

  *all(): IterableIterator<Allocation> {
    for (const entry of this.#entries.values()) if (entry.served) yield entry.served
    for (const record of this.#collected.all()) if (!this.#entries.get(record.id)?.served) yield record
  }

  /** Directories that cannot be read, with reasons that contain nothing of their content. */
  faults(): readonly { readonly id: string; readonly reason: string }[] {
    const found = []
    for (const [id, entry] of this.#entries) if (entry.fault !== undefined) found.push({ id, reason: entry.fault })
    return found
  }

  /** Why the snapshot of this allocation may be stale; undefined if it is not. */
  faultOf(id: string): string | undefined {
    return this.#entries.get(id)?.fault
  }

  /** True if its directory has no manifest and had none since it was first scanned. */
  isBare(id: string): boolean {
    const entry = this.#entries.get(id)
    return entry?.bare === true && entry.fault === undefined
  }

  /** Calls `listener` synchronously after every change of a snapshot. Returns a function that removes it. */
  onChange(listener: (change: HostAllocationChange) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  /** Scans one allocation now, for decisions that must not rest on a stale snapshot. */
  refresh(id: string): Allocation | undefined {
    if (this.#stopping.signal.aborted) return this.get(id)
    const known = this.#entries.get(id)
    this.#applyScan(id, known, scanAllocation(this.#allocDir, id, known?.version, this.#clock.nowMs()))
    return this.get(id)
  }

  /**
   * Turns an allocation into the record of a collected one. Must be called in the same turn in which its directory was
   * renamed, so that it is never missing in between.
   */
  markCollected(id: string): void {
    const last = this.#entries.get(id)?.served
    if (!last) return
    this.#forget(id)
    this.#collected.add(last)
    this.#notify(id)
  }

  #applyScan(id: string, known: RegistryEntry | undefined, scan: ScanResult): void {
    if (scan.kind === 'unchanged') return
    if (scan.kind === 'absent') {
      if (known && this.#forget(id)) this.#notify(id)
      return
    }
    // Another directory under the same name is another allocation: nothing of the old one is kept.
    const before = known?.version.directory === scan.version.directory ? known : undefined
    if (scan.kind === 'bare' && !before && this.#clock.nowMs() - scan.bornMs < BARE_GRACE_MS && scan.bornMs > 0) {
      this.#schedule(BARE_GRACE_MS, () => void this.refresh(id))
      if (known && this.#forget(id)) this.#notify(id)
      return
    }
    const entry: RegistryEntry = before ?? {
      version: scan.version,
      declared: undefined,
      served: known?.served,
      bare: false,
      fault: undefined,
      lost: new Map(),
    }
    this.#entries.set(id, entry)
    this.#watch?.follow(id)
    entry.version = scan.version
    this.#apply(id, entry, scan)
    this.#updateServed(id, entry)
  }

  #apply(id: string, entry: RegistryEntry, scan: Exclude<ScanResult, { kind: 'absent' | 'unchanged' }>): void {
    const gone = scan.kind === 'bare' && entry.declared !== undefined && !entry.bare
    if (scan.kind === 'fault' || gone) {
      const fault = scan.kind === 'fault' ? scan.fault : 'alloc.json was removed'
      if (entry.fault !== fault) {
        const served = entry.declared ? 'as last read' : 'not at all'
        this.#log.warn('allocation unreadable', { alloc_id: id, reason: fault, served })
      }
      entry.fault = fault
      return
    }
    if (entry.fault !== undefined) this.#log.info('allocation readable again', { alloc_id: id })
    entry.fault = undefined
    entry.bare = scan.kind === 'bare'
    const identity = { id, directory: join(this.#allocDir, id), bornMs: scan.bornMs, collected: false }
    entry.declared = completeAllocation(scan.manifest, identity)
  }

  /** Updates the served snapshot and notifies listeners of a change. */
  #updateServed(id: string, entry: RegistryEntry): void {
    const before = entry.served
    entry.served = entry.declared && withLostTasks(entry.declared, entry.lost)
    if (entry.served && this.#collected.drop(id)) void this.#collected.saved()
    if (!isDeepStrictEqual(before, entry.served)) this.#notify(id)
  }

  #notify(id: string): void {
    const change = { id, allocation: this.get(id) }
    for (const listener of this.#listeners) {
      try {
        listener(change)
      } catch (error) {
        this.#log.error('allocation listener failed', { error: messageOf(error) })
      }
    }
  }

  /** True if it was served. */
  #forget(id: string): boolean {
    const entry = this.#entries.get(id)
    this.#entries.delete(id)
    this.#watch?.unfollow(id)
    return entry?.served !== undefined
  }

  /** Scans all directories. Calls during a scan cause one more scan. */
  #rescan(): Promise<void> {
    if (this.#scanning) this.#scanAgain = true
    this.#scanning ??= this.#scan().finally(() => {
      this.#scanning = undefined
      if (!this.#scanAgain) return
      this.#scanAgain = false
      this.#schedule(CONFIRM_MS, () => void this.#rescan())
    })
    return this.#scanning
  }

  async #scan(): Promise<void> {
    const names = this.#names()
    if (!names) return
    await forEachYielding(
      new Set([...names, ...this.#entries.keys()]),
      (id) => void this.refresh(id),
      this.#stopping.signal,
    )
  }

  /** The UUIDs in the directory; none if it does not exist; undefined, and logged once, if it cannot be read. */
  #names(): readonly string[] | undefined {
    try {
      const names = readdirSync(this.#allocDir).filter(isUuid)
      this.#unreadable = false
      return names
    } catch (error) {
      if (isErrno(error, 'ENOENT')) return []
      if (!this.#unreadable) this.#log.error('allocation directory unreadable', { error: messageOf(error) })
      this.#unreadable = true
      return undefined
    }
  }

  /** Scans what no watch covers: everything without watches; else bare directories and those beyond the watch limit. */
  async #poll(): Promise<void> {
    if (!this.#watch?.isActive) return this.#rescan()
    const unwatched = [...this.#entries].filter(
      ([id, entry]) => entry.bare || entry.version.isRecent || !this.#watch?.isWatched(id),
    )
    await forEachYielding(unwatched, ([id]) => void this.refresh(id), this.#stopping.signal)
  }

  async #checkProcesses(): Promise<void> {
    const doubted: string[] = []
    const check = ([id, entry]: [string, RegistryEntry]) => {
      if (this.#newlyLost(entry).length > 0) doubted.push(id)
    }
    await forEachYielding(this.#entries, check, this.#stopping.signal)
    if (doubted.length === 0) return
    this.#schedule(CONFIRM_MS, () => {
      for (const id of doubted) this.#confirmLost(id)
    })
  }

  #newlyLost(entry: RegistryEntry): readonly Task[] {
    if (!entry.declared || entry.declared.clientStatus === 'complete' || entry.declared.clientStatus === 'failed')
      return []
    const tasks = entry.declared.tasks.values()
    return [...tasks].filter((task) => {
      const liveness = taskLiveness(task, this.#processes)
      const known = entry.lost.get(taskRunKey(task))
      return liveness !== 'alive' && (!known || (known.presumed && liveness === 'gone'))
    })
  }

  #confirmLost(id: string): void {
    this.refresh(id)
    const entry = this.#entries.get(id)
    if (!entry) return
    const tasks = this.#newlyLost(entry)
    if (tasks.length === 0) return
    for (const task of tasks) {
      const presumed = taskLiveness(task, this.#processes) === 'presumed gone'
      entry.lost.set(taskRunKey(task), { noticedAtMs: this.#clock.nowMs(), presumed })
      this.#log.warn('task has no live process and its supervisor reported no exit, task marked dead', {
        alloc_id: id,
        task: task.name,
      })
    }
    this.#updateServed(id, entry)
  }

  /** Runs `work` repeatedly, `everyMs` after its last end, until `stop`. */
  #repeat(everyMs: number, work: () => Promise<void>): void {
    this.#schedule(everyMs, () => {
      void work()
        .catch((error: unknown) => this.#log.error('allocation scan failed', { error: messageOf(error) }))
        .finally(() => this.#repeat(everyMs, work))
    })
  }

  #schedule(afterMs: number, work: () => void): void {
    if (this.#stopping.signal.aborted) return
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      work()
    }, afterMs)
    this.#timers.add(timer)
  }
}

/** Identifies one run of a task: a restart has a new key. */
function taskRunKey(task: Task): string {
  return `${task.name}/${task.startedAtMs}/${task.pids.join()}`
}

function withLostTasks(declared: Allocation, lost: Map<string, LostTask>): Allocation {
  if (lost.size === 0) return declared
  const tasks = new Map<string, Task>()
  const current = new Set<string>()
  for (const task of declared.tasks.values()) {
    const noticed = task.state === 'running' ? lost.get(taskRunKey(task)) : undefined
    if (noticed) current.add(taskRunKey(task))
    tasks.set(
      task.name,
      noticed
        ? { ...task, state: 'dead', failed: true, finishedAtMs: noticed.noticedAtMs, presumed: noticed.presumed }
        : task,
    )
  }
  for (const claim of lost.keys()) if (!current.has(claim)) lost.delete(claim)
  if (current.size === 0) return declared
  const alive = [...tasks.values()].some((task) => task.state !== 'dead')
  return { ...declared, tasks, clientStatus: alive ? declared.clientStatus : 'lost' }
}
