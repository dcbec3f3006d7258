/**
 * Reads of the small files of /proc and /sys. The kernel generates them during the read and never waits for a disk, so a
 * synchronous read of some microseconds is faster and cheaper than the thread pool (docs/decisions/004-statistics.md).
 * Not for files on other file systems.
 */
import { closeSync, openSync, readSync } from 'node:fs'

const CHUNK_BYTES = 64 * 1024
/** The rest of a larger file is not read. */
const FILE_BYTES_MAX = 4 * 1024 * 1024

/** Shared by all reads: each is synchronous and converts its bytes to a string before it returns. */
const buffer = Buffer.allocUnsafe(CHUNK_BYTES)

function readDescriptor(fd: number): string {
  let text = ''
  for (let offset = 0; offset < FILE_BYTES_MAX; ) {
    const count = readSync(fd, buffer, 0, CHUNK_BYTES, offset)
    text += buffer.toString('latin1', 0, count)
    if (count === 0 || (count < CHUNK_BYTES && offset === 0)) return text
    offset += count
  }
  return text
}

/** The whole text of a kernel file in latin1; undefined if it cannot be read. */
export function readProcFile(path: string): string | undefined {
  let fd: number
  try {
    fd = openSync(path, 'r')
  } catch {
    return undefined
  }
  try {
    return readDescriptor(fd)
  } catch {
    return undefined
  } finally {
    closeSync(fd)
  }
}

/** A kernel file that is read repeatedly through one descriptor, at half the cost of open and read. */
export class ReusedProcFile {
  readonly #path: string
  #fd: number | undefined

  constructor(path: string) {
    this.#path = path
  }

  /** The current text; undefined if it cannot be read. Reopens the file after a failure or `close`. */
  read(): string | undefined {
    try {
      this.#fd ??= openSync(this.#path, 'r')
      return readDescriptor(this.#fd)
    } catch {
      this.close()
      return undefined
    }
  }

  close(): void {
    if (this.#fd !== undefined) closeSync(this.#fd)
    this.#fd = undefined
  }
}

/** The first number of a file such as `/proc/uptime` or `memory.current`; undefined if there is none. */
export function firstNumber(text: string | undefined): number | undefined {
  const value = Number.parseFloat(text ?? '')
  return Number.isFinite(value) && value >= 0 ? value : undefined
}

/** The values of a file of `name value` or `name: value kB` lines, by name. Other lines are skipped. */
export function keyedNumbers(text: string): Map<string, number> {
  const values = new Map<string, number>()
  for (const [, name, value] of text.matchAll(/^(\S+?):?[ \t]+(\d+)(?: kB)?$/gm)) values.set(name ?? '', Number(value))
  return values
}

/** The kernel writes space, tab, newline and backslash of a path as three octal digits. */
export function unescapeMountPath(text: string): string {
  return text.replace(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)))
}

const AT_PAGESZ = 6
const AT_CLKTCK = 17

/** The units in which the kernel counts memory and time in `/proc/PID/stat`. */
export interface KernelUnits {
  readonly pageBytes: number
  readonly ticksPerSecond: number
}

/** Reads the process's auxiliary vector: `getconf` would need a child process. */
export function kernelUnits(procRoot: string): KernelUnits {
  const bytes = Buffer.from(readProcFile(`${procRoot}/self/auxv`) ?? '', 'latin1')
  const vector = new Map<number, number>()
  for (let at = 0; at + 16 <= bytes.length; at += 16) {
    vector.set(Number(bytes.readBigUInt64LE(at)), Number(bytes.readBigUInt64LE(at + 8)))
  }
  return { pageBytes: vector.get(AT_PAGESZ) ?? 4096, ticksPerSecond: vector.get(AT_CLKTCK) ?? 100 }
}
