/**
 * Files of the program itself (databases, state, keys, locks): how it detects that one is missing, creates it and replaces it.
 *
 * A file is missing only if open(2) returns ENOENT. access(2), which `existsSync` calls, checks the real user without its
 * capabilities: it fails for a file that open(2) opens. A new file gets its name by link(2), which fails if the name exists, so a
 * file that was wrongly considered missing is never lost.
 *
 * A pipe, socket or directory with such a name is an error: opening a pipe could block forever. Temporary files are always created:
 * an old one is removed first, and links are not followed.
 *
 * A file is replaced atomically: temporary file in the same directory, write, sync, rename. Before the rename the old file is
 * untouched, so a full disk or a kill loses only the new content. `writeDurably` also syncs the directory. If that fails after
 * the rename, the new content is in place but may not survive a power failure (`RenamedButNotSynced`).
 */
import {
  closeSync,
  constants,
  fchownSync,
  fstatSync,
  fsyncSync,
  linkSync,
  lstatSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs'
import { link, open, readdir, rename, unlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { Fault, isErrno, messageOf } from './errors.ts'

/** Limit of files that are read completely: many times their real size. A sparse file can be larger than the memory. */
const BYTES_MAX = 64 << 20

/**
 * Opens the file, for reading unless `flags` (`constants.O_…`) say otherwise; undefined if it is missing. Throws a Fault with a remedy,
 * also for anything but a regular file.
 */
export function openIfExists(path: string, flags: number = constants.O_RDONLY): number | undefined {
  let fd: number
  try {
    fd = openSync(path, flags | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw accessFault(path, error)
  }
  if (fstatSync(fd).isFile()) return fd
  closeSync(fd)
  throw new Fault(`${path} is not a regular file: move it away, or restore the file from a backup`)
}

/** Reads a file that the operator configured. Throws the system error, or a Fault for anything but a regular file. */
export function bytesOf(path: string): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  try {
    if (!fstatSync(fd).isFile()) throw new Fault(`${path} is not a regular file`)
    return readFileSync(fd)
  } finally {
    closeSync(fd)
  }
}

/** False if the file is missing. Throws a Fault if it cannot be opened. Not for files with POSIX locks, which a close releases. */
export function fileExists(path: string): boolean {
  const fd = openIfExists(path)
  if (fd === undefined) return false
  closeSync(fd)
  return true
}

/** Reads a UTF-8 file; undefined if it is missing. Throws a Fault if it cannot be read. */
export function readTextIfExists(path: string): string | undefined {
  return readBytesIfExists(path)?.toString()
}

/** Reads a file; undefined if it is missing. Throws a Fault if it cannot be read or exceeds `BYTES_MAX`. */
export function readBytesIfExists(path: string): Buffer | undefined {
  const fd = openIfExists(path)
  if (fd === undefined) return undefined
  try {
    if (fstatSync(fd).size > BYTES_MAX) throw new Fault(`${path} is larger than ${BYTES_MAX} bytes`)
    return readFileSync(fd)
  } finally {
    closeSync(fd)
  }
}

/**
 * Creates a file (0600) atomically and durably. Throws EEXIST if it exists, without a change.
 */
export function createFile(path: string, content: string | Uint8Array): void {
  const temporary = `${path}.new`
  rmSync(temporary, { force: true })
  const fd = openSync(temporary, 'wx', 0o600)
  try {
    const bytes = Buffer.from(content)
    for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at)
    fsyncSync(fd)
    nameFile(temporary, path)
  } catch (error) {
    rmSync(temporary, { force: true })
    throw error
  } finally {
    closeSync(fd)
  }
}

/** Options of a file replacement. */
export interface Replacement {
  /** Mode of the new file, reduced by the umask. */
  readonly mode?: number
  /** Sync the content before the rename. */
  readonly durable?: boolean
  /** Temporary name in the same directory; `PATH.new` unless given. */
  readonly temporary?: string
  /** Owner of the new file, set before anything is written. Requires root. */
  readonly owner?: { readonly uid: number; readonly gid: number }
}

/** Replaces a file atomically: writes go to a temporary file until `finish`. */
export class FileReplacement {
  readonly #path: string
  readonly #temporary: string
  readonly #durable: boolean
  #fd: number | undefined

  /** Throws the system's error. */
  constructor(path: string, { mode = 0o600, durable = true, owner, temporary = `${path}.new` }: Replacement = {}) {
    rmSync(temporary, { force: true })
    this.#path = path
    this.#temporary = temporary
    this.#durable = durable
    this.#fd = openSync(temporary, 'wx', mode)
    if (owner) fchownSync(this.#fd, owner.uid, owner.gid)
  }

  /** Throws the system's error. */
  write(bytes: Uint8Array): void {
    if (this.#fd === undefined) throw new Fault(`${this.#temporary} is closed`)
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#fd, bytes, at)
  }

  /** Renames it into place. Throws the system error; `discard` then leaves the old file untouched. */
  finish(): void {
    if (this.#durable && this.#fd !== undefined) fsyncSync(this.#fd)
    this.#close()
    renameSync(this.#temporary, this.#path)
  }

  discard(): void {
    this.#close()
    rmSync(this.#temporary, { force: true })
  }

  #close(): void {
    const fd = this.#fd
    this.#fd = undefined
    if (fd !== undefined) closeSync(fd)
  }
}

/**
 * Replaces a file atomically; `durable` is the caller's choice. Throws the system error.
 */
export function replaceFile(path: string, text: string, how: Replacement = {}): void {
  const replacement = new FileReplacement(path, how)
  try {
    replacement.write(Buffer.from(text))
    replacement.finish()
  } catch (error) {
    replacement.discard()
    throw error
  }
}

/** Links a finished file to its name, durably. Throws EEXIST if the name exists, and leaves `temporary`. */
export function nameFile(temporary: string, path: string): void {
  linkSync(temporary, path)
  rmSync(temporary)
  syncDirectory(dirname(path))
}

/** Syncs a directory, so that created and renamed entries are durable. Throws the system error. */
export function syncDirectory(path: string): void {
  const directory = openSync(path, constants.O_RDONLY)
  try {
    fsyncSync(directory)
  } finally {
    closeSync(directory)
  }
}

/** The steps that can fail, replaceable in tests. */
export interface DiskSteps {
  /** Creates `path` (0600, must not exist), writes `text` and syncs it. */
  readonly create: (path: string, text: string) => Promise<void>
  readonly rename: (from: string, to: string) => Promise<void>
  /** Fails with EEXIST if the name exists. */
  readonly link: (from: string, to: string) => Promise<void>
  readonly syncDirectory: (path: string) => Promise<void>
  readonly remove: (path: string) => Promise<void>
}

export const diskSteps: DiskSteps = {
  async create(path, text) {
    const file = await open(path, 'wx', 0o600)
    try {
      await file.writeFile(text)
      await file.sync()
    } finally {
      await file.close()
    }
  },
  rename,
  link,
  async syncDirectory(path) {
    const directory = await open(path, 'r')
    try {
      await directory.sync()
    } finally {
      await directory.close()
    }
  },
  remove: unlink,
}

/** The new content is in place, but a power failure may restore the old one. */
export class RenamedButNotSynced extends Fault {}

const TEMPORARY = '.tmp-'
let serial = 0

/**
 * Replaces the file at `path` by `text` (UTF-8, mode 0600). Resolves when it is durable. Rejects with the system error and leaves the
 * old file, or with `RenamedButNotSynced`. Calls for one path must not overlap.
 */
export function writeDurably(path: string, text: string, steps: DiskSteps = diskSteps): Promise<void> {
  return put(path, text, steps, steps.rename)
}

/** Creates the file durably. Rejects with EEXIST if it exists, without a change. */
export function createDurably(path: string, text: string, steps: DiskSteps = diskSteps): Promise<void> {
  return put(path, text, steps, async (temporary) => {
    await steps.link(temporary, path)
    await steps.remove(temporary)
  })
}

async function put(path: string, text: string, steps: DiskSteps, name: DiskSteps['rename']): Promise<void> {
  const temporary = `${path}${TEMPORARY}${process.pid}-${++serial}`
  try {
    await steps.create(temporary, text)
    await name(temporary, path)
  } catch (error) {
    await steps.remove(temporary).catch(() => {})
    throw error
  }
  try {
    await steps.syncDirectory(dirname(path))
  } catch (error) {
    throw new RenamedButNotSynced(`cannot sync ${dirname(path)}: ${messageOf(error)}`)
  }
}

/** Removes temporary files that killed writers of `path` left. Returns their number. */
export async function removeLeftovers(path: string): Promise<number> {
  const prefix = basename(path) + TEMPORARY
  const names = (await readdir(dirname(path))).filter((name) => name.startsWith(prefix))
  await Promise.all(names.map((name) => unlink(join(dirname(path), name)).catch(() => {})))
  return names.length
}

/** Why a file cannot be opened: with owner, mode and the command that fixes it if permissions are missing. */
export function accessFault(path: string, error: unknown): Fault {
  if (!isErrno(error, 'EACCES', 'EPERM')) return new Fault(`${path}: ${messageOf(error)}`, { cause: error })
  const own = process.geteuid?.() ?? 0
  const found = closest(path)
  const culprit = found.findLast(({ uid }) => uid !== own && own !== 0) ?? found[0]
  const running = `this process runs as ${nameOfUser(own)}`
  if (!culprit) return new Fault(`${path} cannot be opened: permission denied; ${running}`, { cause: error })
  const mode = (culprit.mode & 0o7777).toString(8).padStart(4, '0')
  const isForeign = culprit.uid !== own
  // A directory further up needs the search permission only.
  const isNear = culprit.path === path || culprit.path === dirname(path)
  const far = `chmod a+x ${culprit.path}`
  const near = isForeign ? chownCommand(culprit, own) : `chmod ${culprit.isDirectory ? '-R ' : ''}u+rwX ${culprit.path}`
  const text = `${culprit.path} belongs to ${nameOfUser(culprit.uid)} with mode ${mode}, and ${running}`
  return new Fault(`${path} cannot be opened: permission denied: ${text}; run as root: ${isNear ? near : far}`, {
    cause: error,
  })
}

/**
 * Warning about a file that is usable only because the process has capabilities or is root; undefined if file and directory
 * belong to the user of the process.
 */
export function foreignOwner(path: string): string | undefined {
  const own = process.geteuid?.() ?? 0
  const culprit = closest(path).findLast(({ uid }) => uid !== own)
  if (!culprit) return undefined
  const owners = `${culprit.path} belongs to ${nameOfUser(culprit.uid)}, and this process runs as ${nameOfUser(own)}`
  return own === 0 ? owners : `${owners}; run as root: ${chownCommand(culprit, own)}`
}

interface FileOwner {
  readonly path: string
  readonly uid: number
  readonly mode: number
  readonly isDirectory: boolean
}

/** The file and its directory, the file first; if neither can be read, the nearest readable directory above. */
function closest(path: string): FileOwner[] {
  const near = [path, dirname(path)].flatMap((each) => ownerOf(each) ?? [])
  for (let above = dirname(path); near.length === 0 && above !== dirname(above); ) {
    above = dirname(above)
    near.push(...[ownerOf(above) ?? []].flat())
  }
  return near
}

function ownerOf(path: string): FileOwner | undefined {
  try {
    const stats = lstatSync(path)
    return { path, uid: stats.uid, mode: stats.mode, isDirectory: stats.isDirectory() }
  } catch {
    return undefined
  }
}

/** The command for one file, or for a directory with its content. */
function chownCommand({ path, isDirectory }: FileOwner, own: number): string {
  return `chown ${isDirectory ? '-R ' : ''}${ownSpec(own)} ${path}`
}

/** The argument of chown: a user without a name has no login group either. */
function ownSpec(own: number): string {
  const name = nameOfUser(own)
  return name === String(own) ? `${own}:${process.getegid?.() ?? own}` : `${name}:`
}

/** The name of a user, or the number if the system has no name for it. */
export function nameOfUser(uid: number): string {
  try {
    const line = readFileSync('/etc/passwd', 'utf8')
      .split('\n')
      .find((each) => each.split(':')[2] === String(uid))
    return line?.split(':')[0] ?? String(uid)
  } catch {
    return String(uid)
  }
}
