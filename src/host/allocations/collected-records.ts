/**
 * Records of allocations whose directories were collected: `<state_dir>/collected.json`.
 *
 * A collected allocation stays visible, so its last snapshot is kept: the newest `RECORDS_MAX`, also across restarts. They
 * are best effort. A damaged file is logged and replaced; an unreadable one is left unchanged and fails the start. A failed
 * write (garbage collection runs when the disk is full) loses the records at restart but does not fail the collection.
 */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import { errnoOf, Fault, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import {
  accessFault,
  type DiskSteps,
  removeLeftovers,
  readTextIfExists,
  writeDurably,
} from '../../platform/program-file.ts'
import { isUuid } from '../../platform/schema.ts'
import type { Allocation } from './allocation.ts'
import { completeAllocation } from './allocation-scan.ts'
import { manifestOf, readManifest } from './manifest-parser.ts'

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

  /** Reads the records of earlier runs. `directory` of a record is its former path below `allocDir`. */
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

  /** Adds `allocation` as the newest record; durable when `saved()` resolves. */
  add(allocation: Allocation): void {
    this.#keep({ ...allocation, collected: true })
  }

  /** Deletes the record of an allocation that exists. Returns whether there was one. */
  drop(id: string): boolean {
    return this.#records.delete(id)
  }

  /** Writes the current records. Never rejects. Calls that wait for the same write share it. */
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
      this.#log.warn('cannot write the records of collected allocations, they will be lost at the next start', {
        error: messageOf(error),
      })
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
    const text = readTextIfExists(path)
    if (text === undefined) return []
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && 'allocations' in value && Array.isArray(value.allocations)) {
      return value.allocations
    }
  } catch (error) {
    // An unreadable file may be intact and must not be replaced.
    if (error instanceof Fault) throw error
    if (errnoOf(error) !== undefined) throw accessFault(path, error)
  }
  log.warn('records of collected allocations are damaged and will be replaced', { path })
  return []
}

function readRecord(value: unknown, allocDir: string): Allocation | undefined {
  if (typeof value !== 'object' || value === null || !('ID' in value)) return undefined
  const id = value.ID
  if (typeof id !== 'string' || !isUuid(id)) return undefined
  const result = readManifest(value, id)
  if ('fault' in result) return undefined
  const identity = { id, directory: join(allocDir, id), bornMs: 0, collected: true }
  return completeAllocation(result.manifest, identity)
}
