/**
 * Records of allocations whose directories were collected: `<state_dir>/collected.json`.
 *
 * A collected allocation stays visible (its status can still be asked for), so its last picture is kept, the newest
 * `RECORDS_MAX` of them, also over a restart. They are a courtesy and not precious: a damaged file is reported and
 * replaced (one that cannot be read is left alone and stops the start), and a write that fails (collecting is what one
 * does when the disk is full) costs the records' survival of a restart, not the collect.
 */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { errnoOf, Fault, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import { accessFault, type DiskSteps, removeLeftovers, textIfThere, writeDurably } from '../../platform/own-file.ts'
import { isUuid } from '../../platform/schema.ts'
import type { Allocation } from './allocation.ts'
import { completeAllocation } from './allocation-scan.ts'
import { manifestOf, readManifest } from './manifest.ts'

const RECORDS_MAX = 1000

export class CollectedRecords {
  readonly #path: string
  readonly #log: Logger
  readonly #steps: DiskSteps | undefined
  /** Oldest first. */
  readonly #records = new Map<string, Allocation>()
  #writing: Promise<void> | undefined
  #queued: Promise<void> | undefined

  private constructor(path: string, log: Logger, steps: DiskSteps | undefined) {
    this.#path = path
    this.#log = log
    this.#steps = steps
  }

  /** Reads what earlier runs remembered. `directory` of a record says where it used to be below `allocDir`. */
  static async open(options: {
    stateDir: string
    allocDir: string
    log: Logger
    steps?: DiskSteps
  }): Promise<CollectedRecords> {
    await mkdir(options.stateDir, { recursive: true, mode: 0o700 })
    const path = join(options.stateDir, 'collected.json')
    await removeLeftovers(path)
    const records = new CollectedRecords(path, options.log, options.steps)
    for (const value of readList(path, options.log)) {
      const record = readRecord(value, options.allocDir)
      if (record) records.#keep(record)
    }
    return records
  }

  get(id: string): Allocation | undefined {
    return this.#records.get(id)
  }

  all(): IterableIterator<Allocation> {
    return this.#records.values()
  }

  get size(): number {
    return this.#records.size
  }

  /** Remembers `allocation` (with `collected: true`) as the newest record; durable once `saved()` resolves. */
  add(allocation: Allocation): void {
    this.#keep({ ...allocation, collected: true })
  }

  /** Forgets a record, because its allocation exists after all. Returns whether there was one. */
  drop(id: string): boolean {
    return this.#records.delete(id)
  }

  /** Writes the records as they are now. Never rejects. Calls that wait for the same write share it. */
  saved(): Promise<void> {
    if (!this.#writing) {
      this.#writing = this.#write().finally(() => {
        this.#writing = undefined
      })
      return this.#writing
    }
    this.#queued ??= this.#writing.then(() => {
      this.#queued = undefined
      return this.saved()
    })
    return this.#queued
  }

  async #write(): Promise<void> {
    const allocations = [...this.#records.values()].map(manifestOf)
    try {
      await writeDurably(this.#path, `${JSON.stringify({ version: 1, allocations })}\n`, this.#steps)
    } catch (error) {
      this.#log.warn('collected allocations will be forgotten at the next start', { error: messageOf(error) })
    }
  }

  #keep(record: Allocation): void {
    this.#records.delete(record.id)
    this.#records.set(record.id, record)
    for (const id of this.#records.keys()) {
      if (this.#records.size <= RECORDS_MAX) break
      this.#records.delete(id)
    }
  }
}

function readList(path: string, log: Logger): readonly unknown[] {
  try {
    const text = textIfThere(path)
    if (text === undefined) return []
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && 'allocations' in value && Array.isArray(value.allocations)) {
      return value.allocations
    }
  } catch (error) {
    // A file that is whole and cannot be read must not be replaced.
    if (error instanceof Fault) throw error
    if (errnoOf(error) !== undefined) throw accessFault(path, error)
  }
  log.warn('the records of collected allocations are damaged and will be replaced', { path })
  return []
}

function readRecord(value: unknown, allocDir: string): Allocation | undefined {
  if (typeof value !== 'object' || value === null || !('ID' in value)) return undefined
  const id = value.ID
  if (typeof id !== 'string' || !isUuid(id)) return undefined
  const result = readManifest(value, id)
  if ('fault' in result) return undefined
  const place = { id, directory: join(allocDir, id), bornMs: 0, collected: true }
  return completeAllocation(result.manifest, place)
}
