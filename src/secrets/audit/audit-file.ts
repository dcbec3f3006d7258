/**
 * The file of a device. Lines that arrive while a write is under way are written together with the next one. A line is
 * recorded when write(2) has taken all of it: it survives a killed process, and a power cut only once `sync` has run.
 *
 * Promises. The path is compared with the open file before each write: a file that was renamed or removed is followed by a
 * new one, in which the chain continues. Bytes of another program (a line more, a line less, another file in this place)
 * never become the head of the chain: `check` reports them, and the next line states the break. A write that takes a part
 * of its lines (a full disk) is undone, so a file holds whole lines only; the part of a line that a killed process left is
 * cut off when the file is opened.
 *
 * A full disk: lines go on into the space of a reserve beside the file (`<path>.reserve`), so that an operator can read,
 * free space and save a snapshot. Once the reserve is used up, nothing is recorded until there is space again.
 *
 * Assumes one process per file. What can go wrong: a file that was not written by an audit device is refused, because the
 * device would append to it. Lines that a program truncates and writes again unchanged, between two writes, are not noticed.
 */
import {
  close,
  closeSync,
  constants,
  fchmodSync,
  fdatasync,
  fstatSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readSync,
  statSync,
  write,
  writeSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { promisify } from 'node:util'
import { DiskReserve } from '../../platform/disk-reserve.ts'
import { accessFault } from '../../platform/own-file.ts'
import { Fault, isErrno } from '../../platform/errors.ts'
import { type ChainHead, headOf } from './audit-chain.ts'
import type { ChainBreak, DeviceChain, FileEnd } from './device-chain.ts'

const writeAsync = promisify(write)
const syncAsync = promisify(fdatasync)
const closeAsync = promisify(close)
const OPEN_FLAGS =
  constants.O_RDWR |
  constants.O_APPEND |
  constants.O_CREAT |
  constants.O_NOFOLLOW |
  constants.O_NONBLOCK |
  constants.O_NOCTTY
/** Read at a time while the last line is looked for. */
const BLOCK_BYTES = 64 << 10
/** A request's body has at most 32 MiB, and a raw device may escape each character of it. */
const LINE_BYTES_MAX = 256 << 20
/** Files beside the device's own whose last lines are read after a start. */
const OLDER_FILES_MAX = 1000
const NEWLINE = 10
export const RESERVE_SUFFIX = '.reserve'

/** What `check` found. `emptied`: truncated to nothing. `removed`: deleted, or renamed and then deleted. */
export type FileFinding =
  | { readonly kind: 'break'; readonly broken: ChainBreak }
  | { readonly kind: 'emptied' | 'removed'; readonly file: string; readonly head: ChainHead }

/** Where lines go to. */
export interface LineSink {
  /** A line that is refused must not take others along: they are handed over one at a time. */
  readonly isOneByOne?: boolean
  /**
   * Compares what is there with the chain; called before each write (`isToBeWritten`: what is missing is made) and at
   * intervals. Throws a Fault for what cannot be written to.
   */
  check?(chain: DeviceChain, isToBeWritten: boolean): FileFinding | undefined
  /**
   * Resolves once all lines are recorded and `chain` is advanced to the last of them; where it rejects, none of them is
   * recorded. Called one at a time.
   */
  write(lines: readonly string[], chain: DeviceChain): Promise<void>
  /** Resolves once what is recorded survives a power cut. */
  sync?(): Promise<void>
  /** Opens the file, or connects, again before the next line. */
  reopen(): void
  /** Creates or restores the space that is kept for a full disk. Never rejects. */
  keepReserve?(): Promise<void>
  /** Removes what is kept beside the lines, when the device is disabled. */
  removeReserve?(): void
  close(): void
}

export interface AuditFileOptions {
  readonly path: string
  /** Permissions of the file; undefined leaves them as they are, and makes a new one 0600. */
  readonly mode: number | undefined
  /** Text before each line. */
  readonly prefix: string
}

interface OpenFile {
  readonly fd: number
  readonly dev: number
  readonly ino: number
  /** Bytes that this process has written or accepted. */
  size: number
}

export class AuditFile implements LineSink {
  readonly #options: AuditFileOptions
  #open: OpenFile | undefined
  #isWriting = false
  #isClosed = false
  /** The file is to be opened again before the next write. */
  #isStale = false
  /** Opened with the first need: a device that is opened for a check leaves no file. */
  #openReserve: DiskReserve | undefined
  /** Ends when all that was begun with descriptors has ended. */
  #idle: Promise<void> = Promise.resolve()

  constructor(options: AuditFileOptions) {
    this.#options = options
  }

  check(chain: DeviceChain, isToBeWritten: boolean): FileFinding | undefined {
    if (this.#isClosed) throw new Fault('the audit device is closed')
    if (this.#isWriting) return undefined
    const open = this.#open
    const named = statSync(this.#options.path, { throwIfNoEntry: false })
    if (!named && !isToBeWritten) return undefined
    const isSame = open !== undefined && named?.ino === open.ino && named.dev === open.dev
    if (isSame && !this.#isStale && named.size === open.size) return undefined
    return this.#reopen(chain)
  }

  async write(lines: readonly string[], chain: DeviceChain): Promise<void> {
    const open = this.#open
    if (!open) throw new Fault('the audit file is not open')
    const { heads, text } = chain.append(lines, this.#options.prefix)
    const bytes = Buffer.from(text)
    this.#isWriting = true
    try {
      await this.#writeWhole(open, bytes)
    } catch (error) {
      if (!undo(open)) {
        this.#isStale = true
        chain.mayHave(heads)
      }
      throw error
    } finally {
      this.#isWriting = false
      if (this.#isClosed) this.#end()
    }
    open.size += bytes.length
    const last = heads.at(-1)
    if (last) chain.advance(last)
  }

  /**
   * On a full disk the reserve gives up what the bytes need, and they are written in the same turn: another program that
   * fills the disk must not take the space first.
   */
  async #writeWhole(open: OpenFile, bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      try {
        at += (await writeAsync(open.fd, bytes, at, bytes.length - at, null)).bytesWritten
      } catch (error) {
        if (!isErrno(error, 'ENOSPC', 'EDQUOT') || !this.#reserve.giveUpBytes(bytes.length - at)) throw error
        at += writtenNow(open.fd, bytes, at)
      }
    }
  }

  get #reserve(): DiskReserve {
    this.#openReserve ??= new DiskReserve(this.#options.path + RESERVE_SUFFIX)
    return this.#openReserve
  }

  async keepReserve(): Promise<void> {
    if (!this.#isClosed && this.#open) await this.#reserve.refill()
  }

  removeReserve(): void {
    this.#openReserve?.remove()
    this.#openReserve = undefined
  }

  async sync(): Promise<void> {
    const { fd } = this.#open ?? {}
    if (fd === undefined) return
    const done = this.#idle.then(() => syncAsync(fd))
    this.#idle = done.catch(() => undefined)
    await done
  }

  reopen(): void {
    this.#isStale = true
  }

  close(): void {
    this.#isClosed = true
    if (!this.#isWriting) this.#end()
  }

  #end(): void {
    this.#openReserve?.close()
    this.#openReserve = undefined
    this.#release()
  }

  /** Opens what the path names, and compares its end with the chain. Throws a Fault for what cannot be a device's file. */
  #reopen(chain: DeviceChain): FileFinding | undefined {
    const { mode, path, prefix } = this.#options
    const before = this.#open
    const fd = openOrFault(path)
    try {
      const { dev, ino, size } = regular(fd, path)
      const isSame = before !== undefined && before.dev === dev && before.ino === ino
      const { end, last } = wholeLines({ fd, size, path, prefix, isOurs: isSame })
      const finding = this.#compare(chain, { isSame, end, last })
      if (mode !== undefined) fchmodSync(fd, mode)
      this.#release()
      this.#isStale = false
      this.#open = { fd, dev, ino, size: end }
      return finding
    } catch (error) {
      closeSync(fd)
      throw error
    }
  }

  #compare(
    chain: DeviceChain,
    { end, isSame, last }: { readonly isSame: boolean; readonly end: number; readonly last: FileEnd | undefined },
  ): FileFinding | undefined {
    const { path } = this.#options
    const before = this.#open
    const { head } = chain
    if (!last) {
      if (chain.isBehind) this.#lookAtOlder(chain)
      chain.foundEmpty()
      if (isSame && before && before.size > 0) return { kind: 'emptied', file: path, head }
      return before && isUnlinked(before.fd) ? { kind: 'removed', file: path, head } : undefined
    }
    // Bytes of another program between our lines are a break, although the last line is ours.
    const isInserted = isSame && end !== before?.size
    const judgement = chain.found(last, path, isInserted)
    const broken = chain.pendingBreak
    if (judgement === 'break' && broken) return { kind: 'break', broken }
    return undefined
  }

  /** A kill between a rotation and the first line in the new file: the newest line is in a file that was renamed. */
  #lookAtOlder(chain: DeviceChain): void {
    const { path, prefix } = this.#options
    const [folder, own] = [dirname(path), basename(path)]
    for (const name of namesIn(folder).slice(0, OLDER_FILES_MAX)) {
      if (name === own || !name.startsWith(own) || name.endsWith(RESERVE_SUFFIX)) continue
      const end = endOf(join(folder, name), prefix)
      if (end) chain.foundOlder(end)
    }
  }

  /** What was written is synced first: the stored head must not be ahead of the files. */
  #release(): void {
    const { fd } = this.#open ?? {}
    this.#open = undefined
    if (fd === undefined) return
    this.#idle = this.#idle
      .then(() => syncAsync(fd))
      .catch(() => undefined)
      .then(() => closeAsync(fd))
      .catch(() => undefined)
  }
}

/** Bytes written without giving way; 0 if the disk is still full. */
function writtenNow(fd: number, bytes: Buffer, at: number): number {
  try {
    return writeSync(fd, bytes, at, bytes.length - at, null)
  } catch (error) {
    if (isErrno(error, 'ENOSPC', 'EDQUOT')) return 0
    throw error
  }
}

function isUnlinked(fd: number): boolean {
  return fstatSync(fd).nlink === 0
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

/** The last whole line of a file that may be a rotated one; undefined for anything else. */
function endOf(path: string, prefix: string): FileEnd | undefined {
  let fd: number | undefined
  try {
    fd = openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    const stats = fstatSync(fd)
    if (!stats.isFile()) return undefined
    const { line } = lastLine(fd, stats.size, path)
    const head = line.startsWith(prefix) ? headOf(line) : undefined
    return head && { head, line }
  } catch {
    return undefined
  } finally {
    if (fd !== undefined) closeSync(fd)
  }
}

function openOrFault(path: string): number {
  try {
    return openSync(path, OPEN_FLAGS, 0o600)
  } catch (error) {
    if (isErrno(error, 'ELOOP')) throw new Fault(`${path} is a link: name the file itself`)
    throw accessFault(path, error)
  }
}

function regular(fd: number, path: string): { dev: number; ino: number; size: number } {
  const stats = fstatSync(fd)
  const { dev, ino, nlink, size } = stats
  if (!stats.isFile()) throw new Fault(`${path} is not a regular file`)
  if (nlink > 1) throw new Fault(`${path} has other names (hard links): an audit file has one`)
  return { dev, ino, size }
}

interface Contents {
  readonly fd: number
  readonly size: number
  readonly path: string
  readonly prefix: string
  /** This process has written the file: what another program appended is reported, and not refused. */
  readonly isOurs: boolean
}

/**
 * The last whole line, absent where there is none, and the offset behind it; a part of a line behind it is cut off. Throws
 * a Fault where the last line was not written by an audit device.
 */
function wholeLines({ fd, isOurs, path, prefix, size }: Contents): { end: number; last: FileEnd | undefined } {
  if (size === 0) return { end: 0, last: undefined }
  const { end, line } = lastLine(fd, size, path)
  const head = end > 0 && line.startsWith(prefix) ? headOf(line) : undefined
  // The very first line may be the one that was cut.
  const isDevices = isOurs || head !== undefined || (end === 0 && isTornLine(fd, size, prefix))
  if (!isDevices) throw new Fault(`${path} has content that no audit device has written: name another file`)
  if (end < size) ftruncateSync(fd, end)
  return { end, last: end === 0 ? undefined : { head, line } }
}

/** Whether a file without an end of line begins as the first line of a device does. */
function isTornLine(fd: number, size: number, prefix: string): boolean {
  const expected = `${prefix}{"time":"`
  const start = Buffer.alloc(Math.min(size, Buffer.byteLength(expected)))
  readSync(fd, start, 0, start.length, 0)
  return Buffer.from(expected).subarray(0, start.length).equals(start)
}

/** The last line that has an end, without it, and where it ends; empty where there is none. */
function lastLine(fd: number, size: number, path: string): { readonly line: string; readonly end: number } {
  const end = lastNewline(fd, size, path)
  if (end === 0) return { line: '', end: 0 }
  const start = lastNewline(fd, end - 1, path)
  const bytes = Buffer.alloc(end - 1 - start)
  for (let at = 0; at < bytes.length; ) {
    const read = readSync(fd, bytes, at, bytes.length - at, start + at)
    if (read === 0) break
    at += read
  }
  return { line: bytes.toString('utf8'), end }
}

/** The offset behind the last end of line before `limit`; 0 where there is none. */
function lastNewline(fd: number, limit: number, path: string): number {
  const block = Buffer.alloc(BLOCK_BYTES)
  for (let to = limit; to > 0; to -= Math.min(to, BLOCK_BYTES)) {
    if (limit - to > LINE_BYTES_MAX) throw new Fault(`${path} has a line that no audit device has written`)
    const length = Math.min(to, BLOCK_BYTES)
    const read = readSync(fd, block, 0, length, to - length)
    const at = block.subarray(0, read).lastIndexOf(NEWLINE)
    if (at !== -1) return to - length + at + 1
  }
  return 0
}

/** Removes a part of what was to be written. Where that fails, the next opening cuts it off. */
function undo({ fd, size }: OpenFile): boolean {
  try {
    if (fstatSync(fd).size > size) ftruncateSync(fd, size)
    return true
  } catch {
    return false
  }
}
