/**
 * Small files of the daemon: addresses, number of starts, unseal key of `-dev`.
 */
import { randomBytes } from 'node:crypto'
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { isErrno, messageOf } from '../../platform/errors.ts'
import type { Logger } from '../../platform/log.ts'
import {
  accessFault,
  readBytesIfExists,
  createFile,
  replaceFile,
  readTextIfExists,
} from '../../platform/program-file.ts'

/**
 * Writes `<data_dir>/http.addr`, or `cluster.addr` for secondaries. On a full disk it logs a warning, and the process serves all the same.
 */
export function writeAddress(
  dataDir: string,
  url: string,
  logger: Logger,
  name: 'http.addr' | 'cluster.addr' = 'http.addr',
): void {
  const file = join(dataDir, name)
  try {
    // Atomic, so no reader sees half of it. Readable by all and writable by the owner only, independent of the umask: scripts send
    // tokens to this address.
    replaceFile(file, `${url}\n`, { mode: 0o644 })
  } catch (error) {
    if (!isFull(error)) throw accessFault(file, error)
    rmSync(file, { force: true })
    logger.warn('address file not written: disk full', { path: file, error: messageOf(error) })
  }
}

/**
 * A number above that of every earlier start of this node and above `above`, also after the clock stepped back. Stored in
 * `<state_dir>/run`; on a full disk only the clock is used.
 */
export function nextRun(stateDir: string, above: number): number {
  const file = join(stateDir, 'run')
  const before = readTextIfExists(file)
  const run = Math.max((Number.parseInt(before ?? '', 10) || 0) + 1, above + 1, Date.now())
  mkdirSync(stateDir, { recursive: true, mode: 0o700 })
  try {
    if (before === undefined) createFile(file, `${run}\n`)
    else replaceFile(file, `${run}\n`)
  } catch (error) {
    if (!isFull(error)) throw accessFault(file, error)
  }
  return run
}

/** The unseal key of `-dev`; created if the file is missing. */
export function developmentKey(file: string, bytes: number): Buffer {
  const before = readBytesIfExists(file)
  if (before !== undefined) return before
  const key = randomBytes(bytes)
  createFile(file, key)
  return key
}

function isFull(error: unknown): boolean {
  return isErrno(error, 'ENOSPC', 'EDQUOT')
}
