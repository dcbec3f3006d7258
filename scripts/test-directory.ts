/**
 * Directories of the tests of a run: in memory if the host has a tmpfs with enough space, because tests make
 * thousands of commits that would wait for the disk. The results of kill tests are the same, because a killed process
 * leaves the same bytes on either. Files under `node --test` use the disk.
 */
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, statfsSync } from 'node:fs'
import { join } from 'node:path'

const MEMORY = '/dev/shm'
/** The type of tmpfs in statfs(2). */
const TMPFS = 0x01021994
const FREE_BYTES_MIN = 4 * 2 ** 30
/** Short, because socket paths below it are limited to 107 bytes. The ID of the process is appended. */
const PREFIX = 'op-'

/** A directory that lasts as long as this process; undefined if the disk is to be used or the caller has set TMPDIR. */
export function directoryInMemory(): string | undefined {
  if (process.env['TMPDIR'] !== undefined || !isFit()) return undefined
  const memory = realpathSync(MEMORY)
  removeLeft(memory)
  const directory = join(memory, `${PREFIX}${process.pid}`)
  mkdirSync(directory, { recursive: true })
  // Agents of other users have directories in it, as in any temporary directory.
  chmodSync(directory, 0o1777)
  process.once('exit', () => removeTestDirectory(directory))
  return directory
}

function isFit(): boolean {
  try {
    const { bavail, bsize, type } = statfsSync(MEMORY)
    const mount = mounts().findLast(({ path }) => path === realpathSync(MEMORY))
    // Tests execute programs that they have written there.
    const isUsable = mount !== undefined && !mount.options.includes('noexec')
    return type === TMPFS && isUsable && Math.min(bavail * bsize, process.availableMemory()) >= FREE_BYTES_MIN
  } catch {
    // Another operating system, or a container without a mount table.
    return false
  }
}

/** Removes directories of killed runs. */
function removeLeft(memory: string): void {
  for (const name of readdirSync(memory)) {
    const pid = name.startsWith(PREFIX) ? Number(name.slice(PREFIX.length)) : NaN
    if (Number.isInteger(pid) && !isRunning(pid)) removeTestDirectory(join(memory, name))
  }
}

/** Unmounts file systems that tests have left mounted in it. A remaining one uses memory and fails no run. */
export function removeTestDirectory(directory: string): void {
  try {
    const left = mounts().filter(({ path }) => path.startsWith(`${directory}/`))
    // The newest first, because it may be mounted inside another one.
    for (const { path } of left.toReversed()) spawnSync('umount', ['-l', path])
    rmSync(directory, { recursive: true, force: true })
  } catch (error) {
    process.stderr.write(`${directory} could not be removed: ${String(error)}\n`)
  }
}

/** In the order of their mounts. */
function mounts(): { readonly path: string; readonly options: readonly string[] }[] {
  const lines = readFileSync('/proc/self/mounts', 'utf8').trimEnd().split('\n')
  return lines.map((line) => {
    const [, escaped = '', , options = ''] = line.split(' ')
    const path = escaped.replace(/\\([0-7]{3})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 8)))
    return { path, options: options.split(',') }
  })
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    // EPERM: the process exists and belongs to another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
