/**
 * Copies a replica's database for a temporary server (`operator dr drill`): the entries of one point in time without local ones, in a new
 * database that accepts commits, in the next epoch. The original is opened read-only while its server continues; during the copy its
 * write-ahead log cannot be truncated.
 */
import { statfsSync } from 'node:fs'
import { Worker } from 'node:worker_threads'
import { Fault, messageOf } from '../../platform/errors.ts'
import { lockDatabase } from '../sqlite/database-files.ts'
import { openForReading, PAGE_BYTES } from '../sqlite/database.ts'
import { baseIn, totalIn } from '../sqlite/rows.ts'

/** Space beside the entries: a reserve, a write-ahead log, tables. */
const OVERHEAD_BYTES = 32 << 20
/** Space that a copy leaves free for the server on the disk; a fraction of a small disk. */
const LEFT_FREE_BYTES = 128 << 20
const LEFT_FREE_FRACTION = 1 / 16

export interface CopySpace {
  /** Upper bound of the size of the copy. */
  readonly neededBytes: number
  /** Space that must stay free. */
  readonly leftFreeBytes: number
  readonly freeBytes: number
}

export interface DatabaseCopy {
  readonly entries: number
  /** Bytes of their values. */
  readonly bytes: number
  /** Sequence of the original. */
  readonly sequence: number
  /** Epoch of the copy. */
  readonly epoch: number
}

/** The space that a copy of the database at `path` takes in `directory`. Throws a Fault for an invalid database. */
export function copyNeed(path: string, directory: string): CopySpace {
  const database = openForReading(path)
  try {
    const count = (name: string) => Number(database.prepare(`PRAGMA ${name}`).get()?.[name] ?? 0)
    const usedBytes = (count('page_count') - count('freelist_count')) * PAGE_BYTES
    const logBytes = totalIn(database) - baseIn(database).total
    const { bavail, blocks, bsize } = statfsSync(directory)
    return {
      neededBytes: Math.max(0, usedBytes - logBytes) + OVERHEAD_BYTES,
      leftFreeBytes: Math.floor(Math.min(LEFT_FREE_BYTES, blocks * bsize * LEFT_FREE_FRACTION)),
      freeBytes: bavail * bsize,
    }
  } finally {
    database.close()
  }
}

/**
 * Copies to `to`, which must not exist. Rejects with a Fault for a database that is not a replica, for one whose initial sync is not
 * complete, and for a damaged entry, whose path it names. The file at `to` is then unusable.
 */
export async function copyDatabase(from: string, to: string, signal: AbortSignal): Promise<DatabaseCopy> {
  signal.throwIfAborted()
  const worker = new Worker(new URL('./database-copy-thread.ts', import.meta.url), {
    name: 'outpost-copy',
    workerData: { from, to },
  })
  const stop = () => void worker.terminate()
  signal.addEventListener('abort', stop, { once: true })
  try {
    return await new Promise((resolve, reject) => {
      const fail = (reason: string) => reject(new Fault(`the database was not copied: ${reason}`))
      worker.once('message', (report: DatabaseCopyReport) => {
        if ('copied' in report) resolve(report.copied)
        else fail(report.failure)
      })
      worker.once('error', (error) => fail(messageOf(error)))
      worker.once('exit', () => fail('the worker exited'))
    })
  } finally {
    signal.removeEventListener('abort', stop)
    // It may have files open until it has ended.
    await worker.terminate()
  }
}

export type DatabaseCopyReport = { readonly copied: DatabaseCopy } | { readonly failure: string }

/** Acquires a lock; closing the result releases it. Undefined when another process holds it. */
export function lockForCopy(path: string): { close(): void } | undefined {
  try {
    return lockDatabase(path)
  } catch (error) {
    if (error instanceof Fault && error.message.includes('in use by another process')) return undefined
    throw error
  }
}
