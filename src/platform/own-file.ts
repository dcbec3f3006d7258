/**
 * Files that the program keeps for itself (databases, state, keys, locks): how it decides that one is missing, and how it
 * makes one that is.
 *
 * A file is missing when open(2) says ENOENT, and for no other reason. access(2), which `existsSync` calls, judges by the
 * real user without its capabilities: it says "no" for a file that open(2) opens. A file that was taken for missing must
 * not be lost all the same: a new one gets its name by link(2), which fails where the name is taken.
 *
 * A pipe, a socket or a directory under such a name is an error: opening a pipe would wait for another process, for ever.
 * For the same reason a temporary file is always a new one: an old one is removed first, and links are not followed.
 *
 * A file is replaced whole: temporary name in the same directory, write, sync, rename. Until the rename the old file is
 * untouched, so a full disk or a kill costs the new content and nothing else. `writeDurably` also syncs the directory;
 * the one doubtful moment is when that fails after the rename: the new content is in place but may not survive a power
 * cut. `RenamedButNotSynced` tells that case apart.
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

/** Of a file that is read whole: many times what any of them grows to. A file with a hole can be larger than the memory. */
const BYTES_MAX = 64 << 20

/**
 * A descriptor of the file, for reading unless `flags` (`constants.O_…`) say otherwise; undefined when it is missing. Throws a
 * Fault for the operator, also for what is no regular file.
 */
export function openIfThere(path: string, flags: number = constants.O_RDONLY): number | undefined {
  let fd: number
  try {
    fd = openSync(path, flags | constants.O_NONBLOCK | constants.O_NOCTTY)
  } catch (error) {
    if (isErrno(error, 'ENOENT')) return undefined
    throw accessFault(path, error)
  }
  if (fstatSync(fd).isFile()) return fd
  closeSync(fd)
  throw new Fault(`${path} is no regular file: move it away, or put the file back from a backup`)
}

/** The content of a file that an operator named. Throws the system's error, and a Fault for what is no regular file. */
export function bytesOf(path: string): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  try {
    if (!fstatSync(fd).isFile()) throw new Fault(`${path} is no regular file`)
    return readFileSync(fd)
  } finally {
    closeSync(fd)
  }
}

/** False when the file is missing. Throws a Fault for one that cannot be opened. Not for files that hold POSIX locks. */
export function isThere(path: string): boolean {
  const fd = openIfThere(path)
  if (fd === undefined) return false
  closeSync(fd)
  return true
}

/** The content of a file in UTF-8; undefined when it is missing. Throws a Fault for one that cannot be read. */
export function textIfThere(path: string): string | undefined {
  return bytesIfThere(path)?.toString()
}

/** The content of a file; undefined when it is missing. Throws a Fault for one that cannot be read, or is far too large. */
export function bytesIfThere(path: string): Buffer | undefined {
  const fd = openIfThere(path)
  if (fd === undefined) return undefined
  try {
    if (fstatSync(fd).size > BYTES_MAX) throw new Fault(`${path} is larger than ${BYTES_MAX} bytes, none of ours is`)
    return readFileSync(fd)
  } finally {
    closeSync(fd)
  }
}

/**
 * Makes a file (0600) with this content: whole and durable, or not at all. Throws EEXIST where there is one, which stays
 * as it is.
 */
export function makeFile(path: string, content: string | Uint8Array): void {
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

/** How a file is replaced. */
export interface Replacement {
  /** Of a new file, within what the process's mask allows. */
  readonly mode?: number
  /** Whether its content would survive a power cut. */
  readonly durable?: boolean
  /** A name in the same directory that is ours alone; `PATH.new` unless given. */
  readonly temporary?: string
  /** Whose the new file is, before anything is written to it. Only root can give files away. */
  readonly owner?: { readonly uid: number; readonly gid: number }
}

/** A file that takes the place of another one when it is whole; what is written until then is under another name. */
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

  /** Puts it in place. Throws the system's error; `discard` then leaves everything as it was. */
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
 * Replaces a file, whole or not at all; whether it is `durable` when this returns is the caller's choice. Throws the
 * system's error.
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

/** Gives a finished file its name, durably. Throws EEXIST where there is one of that name; `temporary` is left then. */
export function nameFile(temporary: string, path: string): void {
  linkSync(temporary, path)
  rmSync(temporary)
  syncDirectory(dirname(path))
}

/** Makes durable what names a directory holds. Throws the system's error. */
export function syncDirectory(path: string): void {
  const directory = openSync(path, constants.O_RDONLY)
  try {
    fsyncSync(directory)
  } finally {
    closeSync(directory)
  }
}

/** The steps that can fail, so that a test can make each of them fail. */
export interface DiskSteps {
  /** Creates `path` (0600, must not exist), writes all of `text` and syncs it. */
  readonly create: (path: string, text: string) => Promise<void>
  readonly rename: (from: string, to: string) => Promise<void>
  /** Fails with EEXIST where there is a file of that name. */
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

/** The new content is in place, but a power cut might still bring the old one back. */
export class RenamedButNotSynced extends Fault {}

const TEMPORARY = '.tmp-'
let serial = 0

/**
 * Replaces the file at `path` by `text` (UTF-8, mode 0600). Resolves once it would survive a power cut. Rejects with the
 * system's error and leaves the old file, or with `RenamedButNotSynced`. Calls for one path must not overlap.
 */
export function writeDurably(path: string, text: string, steps: DiskSteps = diskSteps): Promise<void> {
  return put(path, text, steps, steps.rename)
}

/** Makes the file as `writeDurably` does. Rejects with EEXIST where there is one: it stays as it is. */
export function makeDurably(path: string, text: string, steps: DiskSteps = diskSteps): Promise<void> {
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

/** Removes the temporary files that killed writers of `path` left. Returns how many there were. */
export async function removeLeftovers(path: string): Promise<number> {
  const prefix = basename(path) + TEMPORARY
  const names = (await readdir(dirname(path))).filter((name) => name.startsWith(prefix))
  await Promise.all(names.map((name) => unlink(join(dirname(path), name)).catch(() => {})))
  return names.length
}

/** Why a file cannot be opened, for the operator: with owner, mode and the command that mends it where rights are missing. */
export function accessFault(path: string, error: unknown): Fault {
  if (!isErrno(error, 'EACCES', 'EPERM')) return new Fault(`${path}: ${messageOf(error)}`, { cause: error })
  const own = process.geteuid?.() ?? 0
  const found = closest(path)
  const culprit = found.findLast(({ uid }) => uid !== own && own !== 0) ?? found[0]
  const running = `this process runs as ${nameOfUser(own)}`
  if (!culprit) return new Fault(`${path} cannot be opened: permission denied; ${running}`, { cause: error })
  const mode = (culprit.mode & 0o7777).toString(8).padStart(4, '0')
  const isForeign = culprit.uid !== own
  // Of a directory further up only the way through it is needed.
  const isNear = culprit.path === path || culprit.path === dirname(path)
  const far = `chmod a+x ${culprit.path}`
  const near = isForeign ? chownCommand(culprit, own) : `chmod ${culprit.isDirectory ? '-R ' : ''}u+rwX ${culprit.path}`
  const text = `${culprit.path} belongs to ${nameOfUser(culprit.uid)} with mode ${mode}, and ${running}`
  return new Fault(`${path} cannot be opened: permission denied: ${text}; run as root: ${isNear ? near : far}`, {
    cause: error,
  })
}

/**
 * What to tell an operator about files that can be used only because the process has capabilities or is root: undefined
 * where file and directory belong to the user that the process runs as.
 */
export function foreignOwner(path: string): string | undefined {
  const own = process.geteuid?.() ?? 0
  const culprit = closest(path).findLast(({ uid }) => uid !== own)
  if (!culprit) return undefined
  const owners = `${culprit.path} belongs to ${nameOfUser(culprit.uid)}, and this process runs as ${nameOfUser(own)}`
  return own === 0 ? owners : `${owners}; run as root: ${chownCommand(culprit, own)}`
}

interface Owned {
  readonly path: string
  readonly uid: number
  readonly mode: number
  readonly isDirectory: boolean
}

/** The file and its directory, the file first; where neither can be looked at, the next directory above that can. */
function closest(path: string): Owned[] {
  const near = [path, dirname(path)].flatMap((each) => owned(each) ?? [])
  for (let above = dirname(path); near.length === 0 && above !== dirname(above); ) {
    above = dirname(above)
    near.push(...[owned(above) ?? []].flat())
  }
  return near
}

function owned(path: string): Owned | undefined {
  try {
    const stats = lstatSync(path)
    return { path, uid: stats.uid, mode: stats.mode, isDirectory: stats.isDirectory() }
  } catch {
    return undefined
  }
}

/** A directory with everything in it, or one file. */
function chownCommand({ path, isDirectory }: Owned, own: number): string {
  return `chown ${isDirectory ? '-R ' : ''}${ownSpec(own)} ${path}`
}

/** As chown takes it: a user without a name has no login group either. */
function ownSpec(own: number): string {
  const name = nameOfUser(own)
  return name === String(own) ? `${own}:${process.getegid?.() ?? own}` : `${name}:`
}

/** The name of a user where the system has one for it. */
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
