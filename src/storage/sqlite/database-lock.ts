/**
 * One process has a database open for writing. The lock is SQLite's own, on a file beside it that stays empty: the system
 * gives it back when the process dies, however it dies.
 */
import { DatabaseSync } from 'node:sqlite'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import { accessFault } from '../../platform/own-file.ts'
import { keepPrivate } from './private-file.ts'

const BUSY = 5

/** Takes the lock; closing what is returned gives it back. Throws a Fault when somebody has it. */
export function lockDatabase(path: string): DatabaseSync {
  let lock: DatabaseSync
  try {
    keepPrivate(`${path}.lock`)
    lock = new DatabaseSync(`${path}.lock`, { timeout: 0 })
  } catch (error) {
    if (isErrno(error, 'EACCES', 'EPERM')) throw accessFault(`${path}.lock`, error)
    throw new Fault(`the lock of the database ${path} cannot be opened: ${messageOf(error)}`, { cause: error })
  }
  try {
    // In memory: a full disk has no room for a journal, and there is nothing that it could bring back.
    lock.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    return lock
  } catch (error) {
    lock.close()
    const isBusy = error instanceof Error && 'errcode' in error && error.errcode === BUSY
    const reason = isBusy
      ? 'is in use by another process, stop that one first'
      : `cannot be locked: ${messageOf(error)}`
    throw new Fault(`the database ${path} ${reason}`, { cause: error })
  }
}
