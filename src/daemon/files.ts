/**
 * The small files that the daemon itself keeps: where it listens, how often the node has started, the key of `-dev`.
 */
import { randomBytes } from 'node:crypto'
import { mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { isErrno, messageOf } from '../platform/errors.ts'
import type { Logger } from '../platform/log.ts'
import { accessFault, bytesIfThere, makeFile, replaceFile, textIfThere } from '../platform/own-file.ts'

/**
 * Writes `<data_dir>/http.addr`, or where secondaries connect to `cluster.addr`. A full disk has no room for it and is no reason
 * not to serve.
 */
export function writeAddress(
  dataDir: string,
  url: string,
  logger: Logger,
  name: 'http.addr' | 'cluster.addr' = 'http.addr',
): void {
  const file = join(dataDir, name)
  try {
    // Replaced as a whole, so that no reader finds half of it. For everybody to read, and for its owner alone to write, whatever
    // the umask is: scripts send tokens to where it says.
    replaceFile(file, `${url}\n`, { mode: 0o644 })
  } catch (error) {
    if (!isFull(error)) throw accessFault(file, error)
    rmSync(file, { force: true })
    logger.warn('no space left on the disk to write the address', { path: file, error: messageOf(error) })
  }
}

/**
 * A number higher than in any run of this node before and than `above`, whatever the clock has done meanwhile. Kept in
 * `<state_dir>/run`; on a full disk the clock alone has to do.
 */
export function nextRun(stateDir: string, above: number): number {
  const file = join(stateDir, 'run')
  const before = textIfThere(file)
  const run = Math.max((Number.parseInt(before ?? '', 10) || 0) + 1, above + 1, Date.now())
  mkdirSync(stateDir, { recursive: true, mode: 0o700 })
  try {
    if (before === undefined) makeFile(file, `${run}\n`)
    else replaceFile(file, `${run}\n`)
  } catch (error) {
    if (!isFull(error)) throw accessFault(file, error)
  }
  return run
}

/** The 32 bytes that `-dev` unseals with; made when the file is missing. */
export function developmentKey(file: string, bytes: number): Buffer {
  const before = bytesIfThere(file)
  if (before !== undefined) return before
  const key = randomBytes(bytes)
  makeFile(file, key)
  return key
}

function isFull(error: unknown): boolean {
  return isErrno(error, 'ENOSPC', 'EDQUOT')
}
