/**
 * Garbage collection: removes the directories of allocations that have ended.
 *
 * Promises: only an allocation that has ended is removed (`isCollectable`), by a scan in the same turn as the removal;
 * nothing but `<alloc_dir>/<uuid>` is removed, whichever links are in it (`remove-tree.ts`); at most `parallelDestroys`
 * removals run in parallel; the automatic collection waits for each removal before it measures again, so it removes the
 * oldest allocations, no more than necessary, and logs the reason.
 *
 * The steps of a collection: write the record (`collected-records.ts`), rename the directory to `.collected-<uuid>-<random>` in the
 * same directory, remove it there. After a crash before the rename the directory takes precedence over the record, and the
 * allocation is collected again. After a crash following the rename, the rest is removed at the next start or interval. A failed
 * removal (no permission) is retried in the same way. A directory that contains a mount point is not touched and an error is
 * returned, because a removal would delete the other files and then fail.
 *
 * Collection is idempotent: it succeeds for an allocation that is already collected. Nomad succeeds twice and then fails.
 *
 * The automatic collection runs every `intervalMs` and soon after allocations appear or end. A bare directory (no manifest)
 * counts as running, because another agent may own it. It is removed only on request for this allocation, and only if no
 * process uses it (`directory-use.ts`); it leaves no record.
 */
import { randomBytes } from 'node:crypto'
import { renameSync } from 'node:fs'
import { readdir, statfs } from 'node:fs/promises'
import { join } from 'node:path'
import { Fault, Refusal, isErrno, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import type { Allocation } from '../allocations/allocation.ts'
import type { AllocationRegistry } from '../allocations/allocations.ts'
import type { CollectedRecords } from '../allocations/collected-records.ts'
import { findDirectoryUser, hasLogPipes, mountsBelow } from './directory-use.ts'
import { removeTree } from './remove-tree.ts'

export interface GcSettings {
  readonly intervalMs: number
  /** Percent of the allocation directory's file system; allocations are collected while the usage is higher. */
  readonly diskUsageThreshold: number
  readonly inodeUsageThreshold: number
  /** Allocations with a directory, running ones included. */
  readonly maxAllocs: number
  readonly parallelDestroys: number
}

export interface DiskUsage {
  readonly diskPercent: number
  readonly inodePercent: number
}

export interface GcOptions {
  readonly allocations: AllocationRegistry
  readonly collected: CollectedRecords
  readonly settings: GcSettings
  readonly log: Logger
  /** DiskUsage of the filesystem that holds a directory. */
  readonly measure?: (directory: string) => Promise<DiskUsage>
}

/** Nomad's text for an allocation that has not ended. */
const NOT_ELIGIBLE = 'No such allocation on client, or allocation not eligible for GC'
const LEFTOVER = /^\.collected-([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})-[0-9a-f]+$/i
/** Debounce of the check after changes of allocations. */
const SETTLE_MS = 1000

/** True if the allocation has ended and none of its processes runs. */
export function isCollectable(allocation: Allocation): boolean {
  if (allocation.collected) return false
  const tasks = [...allocation.tasks.values()]
  if (tasks.some((task) => task.state === 'running' && task.pids.length > 0)) return false
  // A process with this ID exists, and only wall clocks indicate that it is another one.
  if (tasks.some((task) => task.presumed)) return false
  if (['complete', 'failed', 'lost'].includes(allocation.clientStatus)) return true
  return allocation.desiredStatus !== 'run' && tasks.length > 0 && tasks.every((task) => task.state === 'dead')
}

/** Latest known end of a task, else the creation time; milliseconds since 1970. */
function endedAtMs(allocation: Allocation): number {
  const ends = [...allocation.tasks.values()].map((task) => task.finishedAtMs ?? 0)
  return Math.max(0, ...ends) || allocation.createTimeMs
}

export async function measureUsage(directory: string): Promise<DiskUsage> {
  const { blocks, bfree, bavail, files, ffree } = await statfs(directory)
  const used = blocks - bfree
  return {
    // Blocks reserved for root do not count as free, because tasks cannot use them.
    diskPercent: used + bavail > 0 ? (100 * used) / (used + bavail) : 0,
    inodePercent: files > 0 ? (100 * (files - ffree)) / files : 0,
  }
}

export class GarbageCollector {
  readonly #options: GcOptions
  readonly #allocations: AllocationRegistry
  readonly #settings: GcSettings
  readonly #log: Logger
  readonly #stopping = new AbortController()
  /** Collections in progress or waiting for a slot, by allocation ID. */
  readonly #underway = new Map<string, Promise<void>>()
  readonly #slotWaiters: (() => void)[] = []
  #slots: number
  /** Removals since the start. */
  readonly counts = { collected: 0, failed: 0 }
  #checking: Promise<void> | undefined
  #timer: NodeJS.Timeout | undefined
  #soon: NodeJS.Timeout | undefined
  #unsubscribe: (() => void) | undefined
  #saidSkipped = false

  constructor(options: GcOptions) {
    this.#options = options
    this.#allocations = options.allocations
    this.#settings = options.settings
    this.#log = options.log
    this.#slots = Math.max(1, Math.floor(options.settings.parallelDestroys))
    if (options.settings.parallelDestroys < 1) this.#log.warn('gc_parallel_destroys is below 1, using 1')
  }

  /** Starts to check the thresholds and to remove leftovers of an earlier run. The registry must be started before. */
  start(): void {
    this.#timer = setInterval(() => this.#check(), this.#settings.intervalMs)
    this.#unsubscribe = this.#allocations.onChange(() => {
      this.#soon ??= setTimeout(() => {
        this.#soon = undefined
        this.#check()
      }, SETTLE_MS)
    })
    this.#check()
  }

  /** Aborts removals and resolves when none runs; they are continued after the next start. */
  async stop(): Promise<void> {
    this.#stopping.abort()
    clearInterval(this.#timer)
    clearTimeout(this.#soon)
    this.#unsubscribe?.()
    await Promise.allSettled([this.#checking, ...this.#underway.values()])
  }

  /**
   * Removes the directory of an ended allocation; resolves when it does not exist any more. Rejects with a Refusal
   * (`conflict`) if the allocation has not ended or contains a mount point, with a Fault if the removal failed.
   */
  collect(id: string, reason = 'requested'): Promise<void> {
    const underway = this.#underway.get(id)
    if (underway) return underway
    // Checked before waiting for a slot, so that a refusal is immediate.
    const now = this.#allocations.refresh(id)
    if (now && !now.collected && !this.#isEligible(now) && !this.#allocations.isBare(id))
      return Promise.reject(new Refusal('conflict', NOT_ELIGIBLE))
    const work = this.#collectInSlot(id, reason).finally(() => this.#underway.delete(id))
    this.#underway.set(id, work)
    return work
  }

  /** Starts to collect every ended allocation, oldest first, and returns their number. Failures are logged. */
  collectAll(): number {
    const ids = this.#candidates().map((allocation) => allocation.id)
    for (const id of ids)
      this.collect(id, 'requested for all allocations').catch((error: unknown) => this.#report(id, error))
    return ids.length
  }

  /** Collects as long as a threshold is exceeded. */
  async collectUnderPressure(): Promise<void> {
    const failed = new Set<string>()
    while (!this.#stopping.signal.aborted) {
      await Promise.allSettled(this.#underway.values()) // so that their space is not measured as used
      const pressure = await this.#pressure()
      if (!pressure) {
        this.#saidSkipped = false
        return
      }
      const next = this.#candidates().find((allocation) => !failed.has(allocation.id))
      if (!next) return this.#reportSkipped(pressure)
      await this.collect(next.id, pressure.reason).catch((error: unknown) => {
        failed.add(next.id)
        this.#report(next.id, error)
      })
    }
  }

  #check(): void {
    this.#checking ??= this.#removeLeftovers()
      .then(() => this.collectUnderPressure())
      .catch((error: unknown) => this.#log.error('garbage collection failed', { error: messageOf(error) }))
      .finally(() => {
        this.#checking = undefined
      })
  }

  #candidates(): Allocation[] {
    return [...this.#allocations.all()]
      .filter((allocation) => this.#isEligible(allocation) && !this.#underway.has(allocation.id))
      .sort((a, b) => endedAtMs(a) - endedAtMs(b))
  }

  /** An allocation with an unreadable manifest may be running again, so its last snapshot is not sufficient. */
  #isEligible(allocation: Allocation): boolean {
    return isCollectable(allocation) && this.#allocations.faultOf(allocation.id) === undefined
  }

  async #pressure(): Promise<{ reason: string; mild: boolean } | undefined> {
    const { diskUsageThreshold, inodeUsageThreshold, maxAllocs } = this.#settings
    const usage = await (this.#options.measure ?? measureUsage)(this.#allocations.allocDir)
    if (usage.diskPercent > diskUsageThreshold) {
      const reason = `disk usage of ${percent(usage.diskPercent)} % is over the limit of ${diskUsageThreshold} %`
      return { reason, mild: false }
    }
    if (usage.inodePercent > inodeUsageThreshold) {
      const reason = `inode usage of ${percent(usage.inodePercent)} % is over the limit of ${inodeUsageThreshold} %`
      return { reason, mild: false }
    }
    let count = 0
    for (const allocation of this.#allocations.all()) if (!allocation.collected) count++
    if (count <= maxAllocs) return undefined
    return { reason: `${count} allocations are over the limit of ${maxAllocs}`, mild: count < 2 * maxAllocs }
  }

  #reportSkipped(pressure: { reason: string; mild: boolean }): void {
    if (this.#saidSkipped) return
    this.#saidSkipped = true
    const message = 'garbage collection skipped because no terminal allocations'
    if (pressure.mild) this.#log.info(message, { reason: pressure.reason })
    else this.#log.warn(message, { reason: pressure.reason })
  }

  #report(id: string, error: unknown): void {
    this.#log.warn('garbage collection of an allocation failed', { alloc_id: id, error: messageOf(error) })
  }

  async #collectInSlot(id: string, reason: string): Promise<void> {
    await this.#inSlot(async () => {
      const leftovers = (await this.#leftovers()).filter(([, owner]) => owner === id)
      for (const [name] of leftovers) await this.#remove(name, id)
      const directory = this.#allocations.refresh(id)?.directory
      if (directory === undefined || this.#allocations.get(id)?.collected) return
      await refuseMounts(directory)
      if (this.#allocations.isBare(id)) return this.#removeBare(id, directory, reason)
      await this.#recordThenRemove(id, directory, reason)
    })
  }

  async #removeBare(id: string, directory: string, reason: string): Promise<void> {
    const pid = await findDirectoryUser(directory, id)
    if (pid !== undefined) {
      const why = `the allocation directory has no manifest and process ${pid} uses it: stop the process first`
      throw new Refusal('conflict', `${NOT_ELIGIBLE}: ${why}`)
    }
    if (await hasLogPipes(directory)) {
      throw new Refusal('conflict', `${NOT_ELIGIBLE}: a Nomad agent has log pipes in it; collect it with Nomad`)
    }
    this.#allocations.refresh(id)
    if (!this.#allocations.isBare(id)) throw new Refusal('conflict', NOT_ELIGIBLE)
    const name = this.#moveAway(id, directory)
    this.#allocations.refresh(id)
    this.#log.info('collection of an allocation without a manifest started', { alloc_id: id, reason })
    await this.#remove(name, id)
  }

  /** Renames the directory and returns its new name. */
  #moveAway(id: string, directory: string): string {
    const name = `.collected-${id}-${randomBytes(4).toString('hex')}`
    try {
      renameSync(directory, join(this.#allocations.allocDir, name))
    } catch (error) {
      throw new Fault(`cannot move the allocation directory away: ${messageOf(error)}`)
    }
    return name
  }

  async #recordThenRemove(id: string, directory: string, reason: string): Promise<void> {
    const { collected } = this.#options
    const last = this.#allocations.get(id)
    if (last) collected.add(last)
    await collected.saved()
    // Synchronous from here to `markCollected`, so the result of this scan holds at the rename.
    const now = this.#allocations.refresh(id)
    if (!now || now.collected) return
    let name: string
    try {
      if (!this.#isEligible(now)) throw new Refusal('conflict', NOT_ELIGIBLE)
      name = this.#moveAway(id, directory)
    } catch (error) {
      collected.drop(id)
      void collected.saved()
      throw error
    }
    const remembered = collected.get(id) !== undefined
    this.#allocations.markCollected(id)
    if (!remembered) void collected.saved()
    this.#log.info('allocation collection started', { alloc_id: id, reason })
    await this.#remove(name, id)
  }

  async #remove(name: string, id: string): Promise<void> {
    const path = join(this.#allocations.allocDir, name)
    try {
      await removeTree(path, this.#stopping.signal)
      this.counts.collected++
      this.#log.info('allocation collected', { alloc_id: id })
    } catch (error) {
      if (this.#stopping.signal.aborted) throw new Refusal('unavailable', 'the agent is stopping, try again')
      this.counts.failed++
      await refuseMounts(path)
      if (isErrno(error, 'EBUSY'))
        throw new Refusal('conflict', 'a file system is mounted in the allocation: unmount it')
      throw new Fault(`cannot remove the allocation directory: ${messageOf(error)}`)
    }
  }

  async #leftovers(): Promise<readonly (readonly [name: string, id: string])[]> {
    const names = await readdir(this.#allocations.allocDir).catch((): string[] => [])
    return names.flatMap((name) => {
      const id = LEFTOVER.exec(name)?.[1]
      return id === undefined ? [] : [[name, id] as const]
    })
  }

  /** Finishes interrupted removals. */
  async #removeLeftovers(): Promise<void> {
    for (const [name, id] of await this.#leftovers()) {
      if (this.#underway.has(id) || this.#stopping.signal.aborted) continue
      const work = this.#inSlot(() => this.#remove(name, id)).finally(() => this.#underway.delete(id))
      this.#underway.set(id, work)
      await work.catch((error: unknown) => this.#report(id, error))
    }
  }

  async #inSlot(work: () => Promise<void>): Promise<void> {
    if (this.#slots > 0) this.#slots--
    else await new Promise<void>((resolve) => this.#slotWaiters.push(resolve))
    try {
      if (this.#stopping.signal.aborted) throw new Refusal('unavailable', 'the agent is stopping, try again')
      await work()
    } finally {
      const next = this.#slotWaiters.shift()
      if (next) next()
      else this.#slots++
    }
  }
}

function percent(value: number): string {
  return value.toFixed(1)
}

/** Throws a Refusal (`conflict`) if there is a mount point in `directory`. */
async function refuseMounts(directory: string): Promise<void> {
  const [first] = await mountsBelow(directory)
  if (first === undefined) return
  throw new Refusal(
    'conflict',
    `a file system is mounted on ${JSON.stringify(first)} in the allocation directory: unmount it, then collect again`,
  )
}
