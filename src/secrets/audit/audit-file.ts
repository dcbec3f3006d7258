/**
 * The file of a device. Lines that come while one write is under way go together with the next one. A line counts as
 * recorded when write(2) has taken all of it: it survives the process, killed at any moment, and not a power cut.
 *
 * A file that was renamed or removed is opened anew before the next write, and on `reopen` (SIGHUP); the chain goes on in
 * the new one. A write that takes a part of the lines (a full disk) is taken back, so a file holds whole lines only; after
 * a killed process the part of a line at the end, whose request was never answered, is cut off when the file is opened.
 *
 * A file that something else has written is refused: a device would append to it, whatever it is.
 */
import {
  closeSync,
  constants,
  fchmodSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  statSync,
  write,
} from 'node:fs'
import { promisify } from 'node:util'
import { accessFault } from '../../kit/own-file.ts'
import { Fault, isErrno } from '../../kit/errors.ts'
import { CHAIN_START, chainedLines, type ChainHead, headOf } from './audit-chain.ts'

const writeAsync = promisify(write)
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
const NEWLINE = 10

/** Where lines go to. */
export interface LineSink {
  /** A line that is refused must not take others along: they are handed over one at a time. */
  readonly isOneByOne?: boolean
  /** Resolves with the head of the chain once all lines are recorded, none of them where it rejects. Called one at a time. */
  write(lines: readonly string[], head: ChainHead): Promise<ChainHead>
  /** Takes what it writes to anew. */
  reopen(): void
  close(): void
}

export interface AuditFileOptions {
  readonly path: string
  /** Permissions of the file; undefined leaves them as they are, and makes a new one 0600. */
  readonly mode: number | undefined
  /** Text before each line. */
  readonly prefix: string
}

interface Opened {
  readonly fd: number
  /** What the chain in the file had come to when it was opened. */
  readonly found: ChainHead
  readonly dev: number
  readonly ino: number
}

export class AuditFile implements LineSink {
  readonly #options: AuditFileOptions
  #opened: Opened | undefined
  #isWriting = false
  #isClosed = false
  /** The file is to be opened anew before the next write. */
  #isStale = false

  constructor(options: AuditFileOptions) {
    this.#options = options
  }

  /** Opens the file. Throws a Fault for what cannot be a device's file. */
  open(): Opened {
    const { mode, path } = this.#options
    const fd = openOrFault(path)
    try {
      const { dev, ino, size } = regular(fd, path)
      const found = headAtEnd(fd, size, path, this.#options.prefix)
      if (mode !== undefined) fchmodSync(fd, mode)
      this.#release()
      this.#isStale = false
      return (this.#opened = { fd, dev, ino, found })
    } catch (error) {
      closeSync(fd)
      throw error
    }
  }

  async write(lines: readonly string[], head: ChainHead): Promise<ChainHead> {
    const { fd, found } = this.#current()
    const { last, texts } = chainedLines(lines, this.#options.prefix, found.sequence > head.sequence ? found : head)
    const bytes = Buffer.from(texts.join(''))
    const { size } = fstatSync(fd)
    this.#isWriting = true
    try {
      for (let at = 0; at < bytes.length; )
        at += (await writeAsync(fd, bytes, at, bytes.length - at, null)).bytesWritten
    } catch (error) {
      if (!takeBack(fd, size)) this.#isStale = true
      throw error
    } finally {
      this.#isWriting = false
      if (this.#isClosed) this.#release()
    }
    return last
  }

  reopen(): void {
    this.#isStale = true
  }

  close(): void {
    this.#isClosed = true
    if (!this.#isWriting) this.#release()
  }

  /** The file that the path names now. */
  #current(): Opened {
    if (this.#isClosed) throw new Fault('the audit device is closed')
    const named = statSync(this.#options.path, { throwIfNoEntry: false })
    const { dev, ino } = this.#opened ?? {}
    if (this.#isStale || !this.#opened || named?.ino !== ino || named?.dev !== dev) return this.open()
    return this.#opened
  }

  #release(): void {
    if (this.#opened) closeSync(this.#opened.fd)
    this.#opened = undefined
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
  if (!stats.isFile()) throw new Fault(`${path} is no regular file`)
  if (nlink > 1) throw new Fault(`${path} has other names (hard links): an audit file has one`)
  return { dev, ino, size }
}

/** The head that the last line is; a part of a line behind it is cut off. Throws a Fault where the last line is none of a device. */
function headAtEnd(fd: number, size: number, path: string, prefix: string): ChainHead {
  if (size === 0) return CHAIN_START
  const { end, line } = lastLine(fd, size, path)
  const head = line.startsWith(prefix) ? headOf(line) : undefined
  // The very first line may be the one that was cut.
  const isOurs = head !== undefined || (end === 0 && isTornLine(fd, size, prefix))
  if (!isOurs) throw new Fault(`${path} has content that no audit device has written: name another file`)
  if (end < size) ftruncateSync(fd, end)
  return head ?? CHAIN_START
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
function takeBack(fd: number, size: number): boolean {
  try {
    if (fstatSync(fd).size > size) ftruncateSync(fd, size)
    return true
  } catch {
    return false
  }
}
