/**
 * Access to the files of one allocation. Nothing outside its directory is opened, no content below a task's `secrets/`
 * and `private/` is read, and only regular files are read.
 *
 * The rules apply to the resolved path (`open-beneath.ts`), so a link into `secrets/` is refused like the path itself, in any
 * letter case. A file with more than one hard link is compared with all files below those directories, because a task may
 * have linked its secret to another name. If these directories cannot be searched, the file is refused. Error texts name
 * the path as the caller wrote it, never a path of the host.
 */
import { closeSync, type BigIntStats, type Dir, type Dirent, lstatSync, opendirSync } from 'node:fs'
import { errnoOf, isErrno, Refusal } from '../../platform/errors.ts'
import type { Allocation } from '../allocations/allocation.ts'
import { cleanPath, type PathHandle, openBeneath, openContent } from './open-beneath.ts'
import { fileKind } from './file-facts.ts'

const PROTECTED = /^(secrets|private)$/i

/** A name as a case-folding file system may read it: `ſECRETS`, or a name with invisible characters. */
function foldedName(name: string): string {
  if (/^[\x20-\x7e]*$/.test(name)) return name
  return name.normalize('NFKC').replace(/\p{Default_Ignorable_Code_Point}/gu, '')
}

/**
 * Directory entries searched for the other hard links of a file; with more entries the file is refused. The search blocks
 * the event loop for some microseconds per entry.
 */
const LINK_SEARCH_MAX = 1000

/** A regular file whose content may be read. `fd` reads; close it. */
export interface ReadableFile {
  readonly fd: number
  /** Path inside the allocation, symlinks resolved. */
  readonly path: string
  readonly stat: BigIntStats
}

/** Resolves a path of an allocation. `step` is the operation that error texts name (`stat`, `open`). */
export function findFile(allocation: Allocation, path: string, step: 'stat' | 'open'): PathHandle {
  if (allocation.collected) throw collectedRefusal(allocation)
  try {
    return openBeneath(allocation.directory, path)
  } catch (error) {
    throw refusalOf(error, step, path)
  }
}

/** Opens a regular file of an allocation for reading. Throws a Refusal if the content must not be read. */
export function openFile(allocation: Allocation, path: string): ReadableFile {
  const found = findFile(allocation, path, 'stat')
  try {
    requireReadable(allocation, found, path)
    return { fd: openContent(found), path: found.names.join('/'), stat: found.stat }
  } catch (error) {
    throw refusalOf(error, 'open', path)
  } finally {
    closeSync(found.fd)
  }
}

/** The kind of protected directory that a resolved path lies in, if any. */
function protectedDirectory(names: readonly string[]): 'secret' | 'private' | undefined {
  const [task, folder] = names
  if (task === undefined || folder === undefined || task === 'alloc') return undefined
  const match = PROTECTED.exec(foldedName(folder))
  if (!match) return undefined
  return match[0].toLowerCase() === 'secrets' ? 'secret' : 'private'
}

/** True if the content may be read: a regular file without a name in a protected directory. */
export function isReadable(allocation: Allocation, found: PathHandle): boolean {
  return found.stat.isFile() && protectedDirectory(found.names) === undefined && !sharesSecret(allocation, found.stat)
}

function requireReadable(allocation: Allocation, found: PathHandle, path: string): void {
  if (!found.stat.isFile()) {
    const why = found.stat.isDirectory() ? '' : ', only regular files can be read'
    throw new Refusal('invalid_request', `file "${path}" is ${fileKind(found.stat)}${why}`)
  }
  const kind = protectedDirectory(found.names)
  if (kind) throw new Refusal('prohibited', `Reading ${kind} file prohibited: ${path}`)
  if (sharesSecret(allocation, found.stat)) throw new Refusal('prohibited', `Reading secret file prohibited: ${path}`)
}

function sharesSecret(allocation: Allocation, stat: BigIntStats): boolean {
  return stat.nlink > 1n && new LinkSearch(stat).isFoundIn(allocation.directory)
}

/** Searches the protected directories of an allocation's tasks for another name of a file. */
class LinkSearch {
  readonly #stat: BigIntStats
  #left = LINK_SEARCH_MAX

  constructor(stat: BigIntStats) {
    this.#stat = stat
  }

  /** Also true if the search is incomplete: too many entries, no permission, or nested too deep to be reached by name. */
  isFoundIn(root: string): boolean {
    try {
      for (const task of this.#entriesOf(root)) {
        if (task.isDirectory() && task.name !== 'alloc' && this.#isInTask(`${root}/${task.name}`)) return true
      }
      return false
    } catch {
      return true
    }
  }

  #isInTask(task: string): boolean {
    return this.#entriesOf(task).some(
      (folder) => folder.isDirectory() && PROTECTED.test(folder.name) && this.#isBelow(`${task}/${folder.name}`),
    )
  }

  #isBelow(directory: string): boolean {
    return this.#entriesOf(directory).some((entry) => {
      const path = `${directory}/${entry.name}`
      return entry.isDirectory() ? this.#isBelow(path) : sameFile(path, this.#stat)
    })
  }

  /** Throws if the directory has more entries than the search has left. */
  #entriesOf(path: string): Dirent[] {
    const directory = openIfThere(path)
    if (!directory) return []
    try {
      const entries: Dirent[] = []
      for (let entry = directory.readSync(); entry; entry = directory.readSync()) {
        if (this.#left-- <= 0) throw new Error('too many directory entries')
        entries.push(entry)
      }
      return entries
    } finally {
      directory.closeSync()
    }
  }
}

function openIfThere(path: string): Dir | undefined {
  try {
    return opendirSync(path)
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return undefined
    throw error
  }
}

function sameFile(path: string, stat: BigIntStats): boolean {
  try {
    const other = lstatSync(path, { bigint: true })
    return other.ino === stat.ino && other.dev === stat.dev
  } catch (error) {
    if (isErrno(error, 'ENOENT', 'ENOTDIR')) return false
    throw error
  }
}

export function collectedRefusal(allocation: Allocation): Refusal {
  return new Refusal('not_found', `state for allocation ${allocation.id} not found on client`)
}

const OS_TEXT: Readonly<Record<string, string>> = {
  ENOENT: 'no such file or directory',
  ENOTDIR: 'not a directory',
  EACCES: 'permission denied',
  EPERM: 'operation not permitted',
  ELOOP: 'too many links',
  ENAMETOOLONG: 'file name too long',
  EISDIR: 'is a directory',
  EMFILE: 'too many open files',
  ENFILE: 'too many open files in system',
  EIO: 'input/output error',
  ENXIO: 'no such device or address',
  ESTALE: 'stale file handle',
}

/** A system error as a Refusal that names the caller's path; other errors unchanged. */
export function refusalOf(error: unknown, step: string, path: string): unknown {
  const code = errnoOf(error)
  const text = code === undefined ? undefined : OS_TEXT[code]
  if (text === undefined) return error
  const message = `${step} ${path}: ${text}`
  if (code === 'ENOENT' || code === 'ESTALE') return new Refusal('not_found', message)
  if (code === 'ENOTDIR' || code === 'ELOOP' || code === 'ENAMETOOLONG') return new Refusal('invalid_request', message)
  if (code === 'EMFILE' || code === 'ENFILE') return new Refusal('unavailable', message)
  return new Refusal('host_error', message)
}

/** Base name of a path as the API reports it; the allocation's ID for its root. */
export function baseName(allocation: Allocation, path: string): string {
  return cleanPath(path).at(-1) ?? allocation.id
}
