/**
 * An allocation's directory, held by a descriptor.
 *
 * Root runs `alloc run` and `alloc stop` on directories below one that belongs to another user (the agent's, or a task's),
 * who may replace any name there at any moment. So a directory is opened once, without following a link, and everything
 * below it is reached through that descriptor: `/proc/<pid>/fd/<n>/…` is the same directory whatever its name means by now.
 *
 * Promises:
 * - `openPlace` and `makePlace` never follow a symbolic link to the allocation's directory.
 * - What root writes lies in a directory of root's own, or root has become the directory's owner before (`becomeOwner`), so
 *   that the kernel refuses whatever the owner may not do.
 *
 * Assumes /proc. What can go wrong: the directory was removed; then its names no longer exist, and nothing is written
 * into one that took its name.
 */
import { closeSync, constants, fchmodSync, fstatSync, lstatSync, mkdirSync, openSync } from 'node:fs'
import { join } from 'node:path'
import { isErrno, messageOf } from '../platform/errors.ts'
import { CommandError } from '../cli/framework/command-shape.ts'

const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW
const ROOT = 0
/** A group without rights, on every Linux. */
const NO_GROUP = 65_534

export interface AllocPlace {
  readonly id: string
  /** Its name, for people and for the environment of the command. */
  readonly directory: string
  /** The same directory by descriptor: what this program opens begins with it. Works in child processes of this one. */
  readonly at: string
  readonly ownerId: number
  close(): void
}

/** The path of what a descriptor of this process means. */
function pathOf(descriptor: number): string {
  return `/proc/${process.pid}/fd/${descriptor}`
}

/** Opens the directory of an allocation that exists. Throws CommandError. */
export function openPlace(root: string, id: string): AllocPlace {
  const directory = join(root, id)
  return hold(id, directory, directory)
}

/** Opens the directory of an allocation, made where it does not exist. Throws CommandError. */
export function makePlace(root: string, id: string): AllocPlace {
  const directory = join(root, id)
  let above: number | undefined
  try {
    mkdirSync(root, { recursive: true, mode: 0o755 })
    refuseForeignLink(root)
    above = openSync(root, constants.O_RDONLY | constants.O_DIRECTORY)
    makeDirectory(join(pathOf(above), id), 0o755)
    return hold(id, directory, join(pathOf(above), id))
  } catch (error) {
    if (error instanceof CommandError) throw error
    const hint = isErrno(error, 'EACCES', 'EPERM', 'EROFS') ? ', run as root or give another -data-dir' : ''
    throw new CommandError(`cannot make ${directory}: ${messageOf(error)}${hint}`, 1, { cause: error })
  } finally {
    if (above !== undefined) closeSync(above)
  }
}

/** Makes one directory with exactly this mode; one that exists is left as it is. Throws the system's error. */
export function makeDirectory(path: string, mode: number): void {
  try {
    mkdirSync(path)
  } catch (error) {
    if (isErrno(error, 'EEXIST')) return // an operator may have given it another mode on purpose
    throw error
  }
  // By descriptor: whoever may write above could put a link in its place before its mode is set.
  const descriptor = openSync(path, DIRECTORY)
  try {
    fchmodSync(descriptor, mode)
  } finally {
    closeSync(descriptor)
  }
}

/** Root follows no link to the directory of all allocations that another user has made. */
function refuseForeignLink(root: string): void {
  const facts = lstatSync(root)
  if (!facts.isSymbolicLink() || facts.uid === ROOT || process.geteuid?.() !== ROOT) return
  throw new CommandError(`${root} is a symbolic link that belongs to user ${facts.uid}: root does not follow it`)
}

function hold(id: string, directory: string, path: string): AllocPlace {
  let descriptor: number
  try {
    descriptor = openSync(path, DIRECTORY)
  } catch (error) {
    const reason = isErrno(error, 'ELOOP', 'ENOTDIR') ? 'it is a symbolic link or no directory' : messageOf(error)
    throw new CommandError(`cannot open ${directory}: ${reason}`, 1, { cause: error })
  }
  return {
    id,
    directory,
    at: pathOf(descriptor),
    ownerId: fstatSync(descriptor).uid,
    close: () => closeSync(descriptor),
  }
}

/** True when this process is root and the directory is another user's. */
export function isForeign(place: AllocPlace): boolean {
  return process.geteuid?.() === ROOT && place.ownerId !== ROOT
}

/**
 * Root becomes the owner of the directory, for good and without any group: from here on the kernel allows what the owner may
 * do with files and processes, and nothing else. Does nothing when this process is not root, or root owns the directory.
 */
export function becomeOwner(place: AllocPlace): void {
  if (!isForeign(place)) return
  process.setgroups?.([])
  process.setgid?.(NO_GROUP)
  process.setuid?.(place.ownerId)
}

/**
 * A directory below the place, component by component and without following a link. Root takes only one of its own, so that
 * no other user puts files, links or pipes into it while it is used. Throws CommandError.
 */
export function ownDirectory(place: AllocPlace, ...names: readonly string[]): HeldDirectory {
  return heldDirectory(place, names, refuseForeignOwner)
}

/**
 * The same for a directory that may be another user's, who can put anything into it and take anything out: only for files that
 * are made anew in it, and are that user's. Throws CommandError.
 */
export function usersDirectory(place: AllocPlace, ...names: readonly string[]): HeldDirectory {
  return heldDirectory(place, names, () => undefined)
}

export interface HeldDirectory {
  /** Its path by descriptor, good until `close`. */
  readonly at: string
  close(): void
}

function heldDirectory(
  place: AllocPlace,
  names: readonly string[],
  check: (descriptor: number, shown: string) => void,
): HeldDirectory {
  let descriptor: number | undefined
  try {
    let at = place.at
    for (const name of names) {
      const next = openSync(join(at, name), DIRECTORY)
      if (descriptor !== undefined) closeSync(descriptor)
      descriptor = next
      check(descriptor, join(place.directory, ...names))
      at = pathOf(descriptor)
    }
    const held = descriptor
    return { at, close: () => held !== undefined && closeSync(held) }
  } catch (error) {
    if (descriptor !== undefined) closeSync(descriptor)
    if (error instanceof CommandError) throw error
    throw new CommandError(`cannot open ${join(place.directory, ...names)}: ${messageOf(error)}`, 1, { cause: error })
  }
}

function refuseForeignOwner(descriptor: number, shown: string): void {
  const { uid } = fstatSync(descriptor)
  if (uid === ROOT || process.geteuid?.() !== ROOT) return
  throw new CommandError(
    `a directory on the way to ${shown} belongs to user ${uid}, who could put links into it: run this command as that user, or chown it to root`,
  )
}
