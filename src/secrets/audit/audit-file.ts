/**
 * The file of an audit device. A line is recorded when write(2) has written all of it: it survives a crash of the process, but a
 * power failure only after `sync`.
 *
 * Promises:
 * - The path is compared with the open file before each write. If the file was renamed or removed, a new one is created and the
 *   chain continues in it.
 * - Bytes of another program (an added or removed line, a replaced file) never become the head of the chain: `check` reports them
 *   and the next line records the break.
 * - A partial write (a full disk) is undone, so a file has whole lines only. A partial line that a crash has left is truncated when
 *   the file is opened.
 * - On a full disk, lines use the space of a reserve beside the file (`<path>.reserve`), so that an operator can read, free space
 *   and save a snapshot. When the reserve is used up, writes fail until space is available.
 *
 * Assumes one process per file. A file that was not written by an audit device is refused, because the device would append to it.
 *
 * Limitation: lines that a program removes and writes again unchanged between two writes are not detected.
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
import { accessFault } from '../../platform/program-file.ts'
import { isErrno } from '../../platform/errors.ts'
import { type ChainHead, headOf } from './audit-chain.ts'
import type { ChainBreak, DeviceChain, FileEnd } from './device-chain.ts'
import { DeviceFault } from './device-fault.ts'

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
/** Block size of the search for the last line */
const BLOCK_BYTES = 64 << 10
/** A request's body has at most 32 MiB, and a raw device may escape each character of it. */
const LINE_BYTES_MAX = 256 << 20
/** Rotated files whose last lines are read after a start */
const ROTATED_FILES_MAX = 1000
const NEWLINE = 10
const FOREIGN_CONTENT = 'has content that was not written by an audit device: use another file'
export const RESERVE_SUFFIX = '.reserve'

/** A result of `check`. `emptied`: truncated to size 0. `removed`: deleted, or renamed and then deleted. */
export type FileFinding =
  | { readonly kind: 'break'; readonly broken: ChainBreak }
  | { readonly kind: 'emptied' | 'removed'; readonly file: string; readonly head: ChainHead }

/** The destination of lines. */
export interface LineSink {
  /** Lines are written one at a time, because a refused line must not fail others. */
  readonly isOneByOne?: boolean
  /**
   * Compares the file with the chain. Called at intervals and before each write (`isWritePending`), which creates a missing file.
   * Throws a Fault if the file cannot be used.
   */
  check?(chain: DeviceChain, isWritePending: boolean): FileFinding | undefined
  /**
   * Resolves when all lines are recorded and `chain` is advanced to the last. Rejects if none of them is recorded. Not called
   * concurrently.
   */
  write(lines: readonly string[], chain: DeviceChain): Promise<void>
  /** Resolves when the recorded lines are durable after a power failure. */
  sync?(): Promise<void>
  /** Reopens the file or reconnects before the next line. */
  reopen(): void
  /** Added to the period without a failure after which the device has recovered, because recorded lines prove less. */
  readonly distrustMs?: number
  /** True from the first line that needed the reserve until the reserve is complete again. */
  readonly isDiskFull?: boolean
  /** Creates or refills the reserve for a full disk. Never rejects. */
  keepReserve?(): Promise<void>
  /** Removes the reserve when the device is disabled. */
  removeReserve?(): void
  close(): void
}

export interface AuditFileOptions {
  readonly path: string
  /** Permissions of the file; undefined keeps those of an existing file and creates a new one with 0600. */
  readonly mode: number | undefined
  /** Prefix of each line. */
  readonly prefix: string
}

interface OpenFile {
  readonly fd: number
  readonly dev: number
  readonly ino: number
  /** Bytes that this process has written or accepted */
  size: number
}

export class AuditFile implements LineSink {
  readonly #options: AuditFileOptions
  #open: OpenFile | undefined
  #isWriting = false
  #isClosed = false
  /** The file must be reopened before the next write. */
  #isStale = false
  /** Opened lazily, so that a check of the options creates no file. */
  #openReserve: DiskReserve | undefined
  /** Lines use the reserve. */
  #isDiskFull = false
  /** Resolves when all operations on descriptors have ended. */
  #idle: Promise<void> = Promise.resolve()

  constructor(options: AuditFileOptions) {
    this.#options = options
  }

  check(chain: DeviceChain, isWritePending: boolean): FileFinding | undefined {
    if (this.#isClosed) throw new DeviceFault('the audit device', 'is closed')
    if (this.#isWriting) return undefined
    const open = this.#open
    const named = statSync(this.#options.path, { throwIfNoEntry: false })
    if (!named && !isWritePending) return undefined
    const isSame = open !== undefined && named?.ino === open.ino && named.dev === open.dev
    if (isSame && !this.#isStale && named.size === open.size) return undefined
    return this.#reopen(chain)
  }

  get isDiskFull(): boolean {
    return this.#isDiskFull
  }

  async write(lines: readonly string[], chain: DeviceChain): Promise<void> {
    const open = this.#open
    if (!open) throw new DeviceFault('the audit file', 'is not open')
    const { heads, text } = chain.append(lines, this.#options.prefix)
    const bytes = Buffer.from(text)
    this.#isWriting = true
    try {
      await this.#writeWhole(open, bytes)
    } catch (error) {
      if (!undo(open)) {
        this.#isStale = true
        chain.noteAttempt(heads)
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
   * On a full disk the reserve releases the required space, and the bytes are written synchronously, so that another program cannot
   * take the space first.
   */
  async #writeWhole(open: OpenFile, bytes: Buffer): Promise<void> {
    for (let at = 0; at < bytes.length; ) {
      try {
        at += (await writeAsync(open.fd, bytes, at, bytes.length - at, null)).bytesWritten
      } catch (error) {
        if (!isErrno(error, 'ENOSPC', 'EDQUOT')) throw error
        this.#isDiskFull = true
        if (!this.#reserve.giveUpBytes(bytes.length - at)) throw error
        at += writeNow(open.fd, bytes, at)
      }
    }
  }

  get #reserve(): DiskReserve {
    this.#openReserve ??= new DiskReserve(this.#options.path + RESERVE_SUFFIX)
    return this.#openReserve
  }

  async keepReserve(): Promise<void> {
    if (this.#isClosed || !this.#open) return
    await this.#reserve.refill()
    if (this.#isDiskFull && this.#reserve.isWhole) this.#isDiskFull = false
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

  /** Opens the file at the path and compares its end with the chain. Throws a Fault if the file cannot be used. */
  #reopen(chain: DeviceChain): FileFinding | undefined {
    const { mode, path, prefix } = this.#options
    const before = this.#open
    const fd = openOrFault(path)
    try {
      const { dev, ino, size } = regular(fd, path)
      const isSame = before !== undefined && before.dev === dev && before.ino === ino
      const { end, last } = truncatePartialLine({ fd, size, path, prefix, isOurs: isSame })
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
      if (chain.isBehind) this.#searchRotated(chain)
      chain.acceptEmpty()
      if (isSame && before && before.size > 0) return { kind: 'emptied', file: path, head }
      return before && isUnlinked(before.fd) ? { kind: 'removed', file: path, head } : undefined
    }
    // Bytes of another program between the lines are a break, even if the last line is the expected one.
    const isInserted = isSame && end !== before?.size
    const verdict = chain.acceptEnd(last, path, isInserted)
    const broken = chain.pendingBreak
    if (verdict === 'break' && broken) return { kind: 'break', broken }
    return undefined
  }

  /** After a crash between a rotation and the first line in the new file, the newest line is in a rotated file. */
  #searchRotated(chain: DeviceChain): void {
    const { path, prefix } = this.#options
    const [folder, own] = [dirname(path), basename(path)]
    for (const name of namesIn(folder).slice(0, ROTATED_FILES_MAX)) {
      if (name === own || !name.startsWith(own) || name.endsWith(RESERVE_SUFFIX)) continue
      const end = endOf(join(folder, name), prefix)
      if (end) chain.acceptRotated(end)
    }
  }

  /** Syncs before closing, because the stored head must not be ahead of the file. */
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

/** Writes synchronously. Returns the bytes written; 0 if the disk is still full. */
function writeNow(fd: number, bytes: Buffer, at: number): number {
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

/** The last whole line of a rotated file; undefined if it is not the file of a device. */
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
    if (isErrno(error, 'ELOOP')) throw new DeviceFault(path, 'is a symbolic link: use the path of the file itself')
    throw accessFault(path, error)
  }
}

function regular(fd: number, path: string): { dev: number; ino: number; size: number } {
  const stats = fstatSync(fd)
  const { dev, ino, nlink, size } = stats
  if (!stats.isFile()) throw new DeviceFault(path, 'is not a regular file')
  if (nlink > 1) throw new DeviceFault(path, 'has several hard links: an audit file must have exactly one')
  return { dev, ino, size }
}

interface FileContents {
  readonly fd: number
  readonly size: number
  readonly path: string
  readonly prefix: string
  /** This process has written the file, so bytes that another program has appended are reported instead of refused. */
  readonly isOurs: boolean
}

/**
 * Truncates a partial line at the end. Returns the last whole line and the offset behind it. Throws a Fault if the last line was not
 * written by an audit device.
 */
function truncatePartialLine({ fd, isOurs, path, prefix, size }: FileContents): {
  end: number
  last: FileEnd | undefined
} {
  if (size === 0) return { end: 0, last: undefined }
  const { end, line } = lastLine(fd, size, path)
  const head = end > 0 && line.startsWith(prefix) ? headOf(line) : undefined
  // The partial line may be the first one.
  const isDevices = isOurs || head !== undefined || (end === 0 && isTornLine(fd, size, prefix))
  if (!isDevices) throw new DeviceFault(path, FOREIGN_CONTENT)
  if (end < size) ftruncateSync(fd, end)
  return { end, last: end === 0 ? undefined : { head, line } }
}

/** True if a file without a newline starts like the first line of a device. */
function isTornLine(fd: number, size: number, prefix: string): boolean {
  const expected = `${prefix}{"time":"`
  const start = Buffer.alloc(Math.min(size, Buffer.byteLength(expected)))
  readSync(fd, start, 0, start.length, 0)
  return Buffer.from(expected).subarray(0, start.length).equals(start)
}

/** The last line with a newline, and the offset behind it; empty if there is none. */
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

/** The offset behind the last newline before `limit`; 0 if there is none. */
function lastNewline(fd: number, limit: number, path: string): number {
  const block = Buffer.alloc(BLOCK_BYTES)
  for (let to = limit; to > 0; to -= Math.min(to, BLOCK_BYTES)) {
    if (limit - to > LINE_BYTES_MAX) throw new DeviceFault(path, FOREIGN_CONTENT)
    const length = Math.min(to, BLOCK_BYTES)
    const read = readSync(fd, block, 0, length, to - length)
    const at = block.subarray(0, read).lastIndexOf(NEWLINE)
    if (at !== -1) return to - length + at + 1
  }
  return 0
}

/** Truncates a partial write. If that fails, the partial line is truncated when the file is opened next. */
function undo({ fd, size }: OpenFile): boolean {
  try {
    if (fstatSync(fd).size > size) ftruncateSync(fd, size)
    return true
  } catch {
    return false
  }
}
