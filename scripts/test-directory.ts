/**
 * Where tests that run side by side have their directories: in memory, where the host has a file system for it with enough
 * space. A commit waits for the disk, and tests make thousands; what they prove of a kill does not change, as a killed
 * process leaves the same bytes on either. Tests that run alone, and files under `node --test`, have theirs on the disk.
 */
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, readFileSync, realpathSync, rmSync, statfsSync } from 'node:fs'
import { join } from 'node:path'

const MEMORY = '/dev/shm'
/** Of statfs(2). */
const TMPFS = 0x01021994
const FREE_BYTES_MIN = 4 * 2 ** 30
/** Short: sockets are made below it, and their paths have 107 bytes. The process of the run follows. */
const PREFIX = 'op-'

/** A directory that lasts as long as this process; undefined where the disk has to do, or the caller has chosen a place. */
export function directoryInMemory(): string | undefined {
  if (process.env['TMPDIR'] !== undefined || !isFit()) return undefined
  const memory = realpathSync(MEMORY)
  removeLeft(memory)
  const directory = join(memory, `${PREFIX}${process.pid}`)
  mkdirSync(directory, { recursive: true })
  // Agents of other users have directories in it, as in any place for temporary files.
  chmodSync(directory, 0o1777)
  process.once('exit', () => removeTestDirectory(directory))
  return directory
}

function isFit(): boolean {
  try {
    const { bavail, bsize, type } = statfsSync(MEMORY)
    const mount = mounts().findLast(({ place }) => place === realpathSync(MEMORY))
    // Tests run programs that they have written there.
    const isUsable = mount !== undefined && !mount.options.includes('noexec')
    return type === TMPFS && isUsable && Math.min(bavail * bsize, process.availableMemory()) >= FREE_BYTES_MIN
  } catch {
    // Another system, or a container that shows no mounts.
    return false
  }
}

/** Directories of runs that were killed. */
function removeLeft(memory: string): void {
  for (const name of readdirSync(memory)) {
    const pid = name.startsWith(PREFIX) ? Number(name.slice(PREFIX.length)) : NaN
    if (Number.isInteger(pid) && !isRunning(pid)) removeTestDirectory(join(memory, name))
  }
}

/** Unmounts the file systems that tests have mounted in it and left behind. One that stays costs memory and no run. */
export function removeTestDirectory(directory: string): void {
  try {
    const left = mounts().filter(({ place }) => place.startsWith(`${directory}/`))
    // The newest first: it may lie within another.
    for (const { place } of left.toReversed()) spawnSync('umount', ['-l', place])
    rmSync(directory, { recursive: true, force: true })
  } catch (error) {
    process.stderr.write(`${directory} could not be removed: ${String(error)}\n`)
  }
}

/** Oldest first. */
function mounts(): { readonly place: string; readonly options: readonly string[] }[] {
  const lines = readFileSync('/proc/self/mounts', 'utf8').trimEnd().split('\n')
  return lines.map((line) => {
    const [, place = '', , options = ''] = line.split(' ')
    const named = place.replace(/\\([0-7]{3})/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 8)))
    return { place: named, options: options.split(',') }
  })
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    // EPERM: there is one, of another user.
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}
