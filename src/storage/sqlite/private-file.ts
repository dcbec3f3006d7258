/** Files that nobody but the owner of the process may read, wherever they lie and whatever its umask is. */
import { chmodSync, closeSync, openSync } from 'node:fs'
import { isErrno } from '../../platform/errors.ts'

/**
 * Makes the file if there is none, empty, and narrows the rights of one that is there. What SQLite keeps beside a
 * database gets the rights of that. Throws what keeps it from being made.
 *
 * One that is there is not opened: closing it would give back the locks that this process has on it.
 */
export function keepPrivate(path: string): void {
  try {
    closeSync(openSync(path, 'wx', 0o600))
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw error
    narrow(path)
  }
}

/** Takes the rights on a file away from everybody but its owner. */
export function narrow(path: string): void {
  try {
    chmodSync(path, 0o600)
  } catch {
    // Missing, another user's, or on a file system without rights: whether it can be used is found out by using it.
  }
}
