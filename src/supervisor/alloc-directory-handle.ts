/**
 * An allocation directory, used through a descriptor.
 *
 * Root runs `alloc run` and `alloc stop` below directories of other users (of the agent or of a task), who can replace any name there at
 * any time. So the directory is opened once without following a link, and everything below it is accessed through that descriptor:
 * `/proc/<pid>/fd/<n>/…` is the same directory even if its name was replaced.
 *
 * Promises:
 * - `openAllocDirectory` and `createAllocDirectory` never follow a symbolic link to the allocation directory.
 * - Root writes only to its own directories, or has become the owner of the directory first (`becomeOwner`), so that the kernel refuses
 *   what the owner may not do.
 *
 * Assumes /proc. Failure mode: the directory was removed. Then its names do not exist, and nothing is written to a directory that
 * replaced it.
 */
import { closeSync, constants, fchmodSync, fstatSync, lstatSync, mkdirSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { isErrno, messageOf } from '../platform/errors.ts'
import { SupervisorError } from './supervisor-error.ts'

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
const ROOT = 0
/** A group without rights, on every Linux. */
const NO_GROUP = 65_534

export interface AllocHandle {
  readonly id: string
  /** Path for messages and for the environment of the command. */
  readonly directory: string
  /** Path by descriptor; valid in child processes as well. */
  readonly at: string
  readonly ownerId: number
  close(): void
}

function pathOf(descriptor: number): string {
  return `/proc/${process.pid}/fd/${descriptor}`
}

/** Opens an existing allocation directory. Throws SupervisorError. */
export function openAllocDirectory(root: string, id: string): AllocHandle {
  const directory = join(root, id)
  return openHandle(id, directory, directory)
}

/** Opens an allocation directory; creates it if it does not exist. Throws SupervisorError. */
export function createAllocDirectory(root: string, id: string): AllocHandle {
  const directory = join(root, id)
  let rootDescriptor: number | undefined
  try {
    mkdirSync(root, { recursive: true, mode: 0o755 })
    refuseForeignLink(root)
    rootDescriptor = openSync(root, constants.O_RDONLY | constants.O_DIRECTORY)
    createDirectory(join(pathOf(rootDescriptor), id), 0o755)
    return openHandle(id, directory, join(pathOf(rootDescriptor), id))
  } catch (error) {
    if (error instanceof SupervisorError) throw error
    const hint = isErrno(error, 'EACCES', 'EPERM', 'EROFS') ? ', run as root or use another -data-dir' : ''
    throw new SupervisorError(`cannot create ${directory}: ${messageOf(error)}${hint}`, { cause: error })
  } finally {
    if (rootDescriptor !== undefined) closeSync(rootDescriptor)
  }
}

/** Creates a directory with exactly this mode; an existing one is not changed. Throws the system error. */
export function createDirectory(path: string, mode: number): void {
  try {
    mkdirSync(path)
  } catch (error) {
    if (isErrno(error, 'EEXIST')) return // an operator may have set another mode
    throw error
  }
  // By descriptor: a user with write permission above could replace it with a link before the mode is set.
  const descriptor = openSync(path, DIRECTORY)
  try {
    fchmodSync(descriptor, mode)
  } finally {
    closeSync(descriptor)
  }
}

/** Root does not follow a link of another user to the directory of all allocations. */
function refuseForeignLink(root: string): void {
  const facts = lstatSync(root)
  if (!facts.isSymbolicLink() || facts.uid === ROOT || process.geteuid?.() !== ROOT) return
  throw new SupervisorError(
    `${root} is a symbolic link of user ${facts.uid}, which root does not follow: use a directory`,
  )
}

function openHandle(id: string, directory: string, path: string): AllocHandle {
  let descriptor: number
  try {
    descriptor = openSync(path, DIRECTORY)
  } catch (error) {
    const reason = isErrno(error, 'ELOOP', 'ENOTDIR') ? 'it is a symbolic link or not a directory' : messageOf(error)
    throw new SupervisorError(`cannot open ${directory}: ${reason}`, { cause: error })
  }
  return {
    id,
    directory,
    at: pathOf(descriptor),
    ownerId: fstatSync(descriptor).uid,
    close: () => closeSync(descriptor),
  }
}

/** True if this process is root and the directory belongs to another user. */
export function isForeign(handle: AllocHandle): boolean {
  return process.geteuid?.() === ROOT && handle.ownerId !== ROOT
}

/**
 * Changes the user of this process permanently from root to the owner of the directory, without groups: the kernel then allows only
 * what the owner may do with files and processes. No effect if this process is not root, or if root owns the directory.
 */
export function becomeOwner(handle: AllocHandle): void {
  if (!isForeign(handle)) return
  process.setgroups?.([])
  process.setgid?.(NO_GROUP)
  process.setuid?.(handle.ownerId)
}

/**
 * Opens a directory below the allocation directory, component by component without following links. Root accepts only its own
 * directories, so that no other user can add files, links or pipes. Throws SupervisorError.
 */
export function openOwnDirectory(handle: AllocHandle, ...names: readonly string[]): DirectoryHandle {
  return openBelow(handle, names, refuseForeignOwner)
}

/**
 * As `openOwnDirectory`, for a directory that may belong to another user, who can add and remove anything: only for new files that
 * belong to that user. Throws SupervisorError.
 */
export function openUserDirectory(handle: AllocHandle, ...names: readonly string[]): DirectoryHandle {
  return openBelow(handle, names, () => undefined)
}

export interface DirectoryHandle {
  /** Path by descriptor; valid until `close`. */
  readonly at: string
  close(): void
}

function openBelow(
  handle: AllocHandle,
  names: readonly string[],
  check: (descriptor: number, shown: string) => void,
): DirectoryHandle {
  let descriptor: number | undefined
  try {
    let at = handle.at
    for (const name of names) {
      const next = openSync(join(at, name), DIRECTORY)
      if (descriptor !== undefined) closeSync(descriptor)
      descriptor = next
      check(descriptor, join(handle.directory, ...names))
      at = pathOf(descriptor)
    }
    const opened = descriptor
    return { at, close: () => opened !== undefined && closeSync(opened) }
  } catch (error) {
    if (descriptor !== undefined) closeSync(descriptor)
    if (error instanceof SupervisorError) throw error
    throw new SupervisorError(`cannot open ${join(handle.directory, ...names)}: ${messageOf(error)}`, { cause: error })
  }
}

function refuseForeignOwner(descriptor: number, shown: string): void {
  const { uid } = fstatSync(descriptor)
  if (uid === ROOT || process.geteuid?.() !== ROOT) return
  throw new SupervisorError(
    `a directory in ${shown} belongs to user ${uid}, who could add links: run this command as that user, or chown the directory to root`,
  )
}
