/**
 * A copy of a replica's database for a server that is thrown away (`operator dr drill`): the entries of one moment, without
 * what belongs to this machine, in a database of its own that takes commits, one epoch later. The original is opened for
 * reading only, while its server goes on; as long as it is read, its write-ahead log grows with what is written.
 */
import { statfsSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../../platform/errors.ts'
import { lockDatabase } from '../sqlite/database-lock.ts'
import { openForReading, PAGE_BYTES } from '../sqlite/database.ts'
import { baseIn, totalIn } from '../sqlite/log-row.ts'

/** Beside the entries: a reserve, a write-ahead log, tables. */
const BESIDE_BYTES = 32 << 20
/** Of a disk, what a copy leaves free for the server that is on it; of a small one a part. */
const LEFT_FREE_BYTES = 128 << 20
const LEFT_FREE_PART = 1 / 16

export interface CopyNeed {
  /** Of the copy, at most. */
  readonly neededBytes: number
  /** What must be free beyond that. */
  readonly leftFreeBytes: number
  readonly freeBytes: number
}

export interface CopiedDatabase {
  readonly entries: number
  /** Of their values. */
  readonly bytes: number
  /** Where the original stood. */
  readonly sequence: number
  /** In which the copy commits. */
  readonly epoch: number
}

/** What a copy of the database at `path` takes in `directory`. Throws a Fault for what is no database. */
export function copyNeed(path: string, directory: string): CopyNeed {
  const database = openForReading(path)
  try {
    const count = (name: string) => Number(database.prepare(`PRAGMA ${name}`).get()?.[name] ?? 0)
    const usedBytes = (count('page_count') - count('freelist_count')) * PAGE_BYTES
    const logBytes = totalIn(database) - baseIn(database).total
    const { bavail, blocks, bsize } = statfsSync(directory)
    return {
      neededBytes: Math.max(0, usedBytes - logBytes) + BESIDE_BYTES,
      leftFreeBytes: Math.floor(Math.min(LEFT_FREE_BYTES, blocks * bsize * LEFT_FREE_PART)),
      freeBytes: bavail * bsize,
    }
  } finally {
    database.close()
  }
}

/**
 * Makes the copy at `to`, where nothing is. Rejects with a Fault: for a database that is no replica, for one whose first copy
 * is not whole, and for a damaged entry, which it names. What is at `to` then is of no use.
 */
export async function copyDatabase(from: string, to: string, signal: AbortSignal): Promise<CopiedDatabase> {
  signal.throwIfAborted()
  const worker = new Worker(new URL('./database-copy-thread.ts', import.meta.url), { workerData: { from, to } })
  const stop = () => void worker.terminate()
  signal.addEventListener('abort', stop, { once: true })
  try {
    return await new Promise((resolve, reject) => {
      const fail = (reason: string) => reject(new Fault(`the database was not copied: ${reason}`))
      worker.once('message', (report: CopyOutcome) => {
        if ('copied' in report) resolve(report.copied)
        else fail(report.failure)
      })
      worker.once('error', (error) => fail(messageOf(error)))
      worker.once('exit', () => fail('the copy was ended'))
    })
  } finally {
    signal.removeEventListener('abort', stop)
    // Until it has ended it may have files open.
    await worker.terminate()
  }
}

export type CopyOutcome = { readonly copied: CopiedDatabase } | { readonly failure: string }

/** For one process at a time; closing what is returned gives it back. Undefined where another one has it. */
export function lockForCopy(path: string): { close(): void } | undefined {
  try {
    return lockDatabase(path)
  } catch (error) {
    if (error instanceof Fault && error.message.includes('in use by another process')) return undefined
    throw error
  }
}
