/** Permissions of database files, and the lock that keeps a second process from opening a database for writing. */
import { chmodSync, closeSync, openSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { Fault, isErrno, messageOf } from '../../platform/errors.ts'
import { accessFault } from '../../platform/program-file.ts'

/**
 * Creates an empty file with mode 0600, independent of the umask, or sets that mode on an existing file. SQLite creates its side
 * files with the mode of the database. Throws the error of open(2).
 *
 * An existing file is not opened: closing the descriptor would release the POSIX locks that this process holds on the file.
 */
export function keepPrivate(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw error
    restrict(path)
  }
}

/** Sets mode 0600. */
export function restrict(path: string): void {
  try {
    chmodSync(path, 0o600)
  } catch {
    // Missing, owned by another user, or on a file system without permissions: opening the file reports the error.
  }
}

/** True if a process holds the lock of a database. Creates and changes nothing. */
export function isDatabaseLocked(path: string): boolean {
  let lock: DatabaseSync | undefined
  try {
    lock = new DatabaseSync(`${path}.lock`, { readOnly: true, timeout: 0 })
    // A reader needs a shared lock, which the exclusive lock of the holder excludes.
    lock.prepare('SELECT count(*) FROM sqlite_schema').get()
    return false
  } catch (error) {
    return error instanceof Error && 'errcode' in error && error.errcode === BUSY
  } finally {
    lock?.close()
  }
}

/** SQLITE_BUSY. */
const BUSY = 5

/**
 * Acquires the lock of a database: a SQLite lock on an empty file beside it, which the kernel releases when the process ends. Closing
 * the returned connection releases it. Throws a Fault when another process holds it.
 */
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
    // The journal is in memory: the file stays empty, and a full disk has no space for one.
    lock.exec('PRAGMA journal_mode = MEMORY; BEGIN EXCLUSIVE')
    return lock
  } catch (error) {
    lock.close()
    const isBusy = error instanceof Error && 'errcode' in error && error.errcode === BUSY
    const reason = isBusy
      ? 'is in use by another process: stop that process first'
      : `cannot be locked: ${messageOf(error)}`
    throw new Fault(`the database ${path} ${reason}`, { cause: error })
  }
}
