/**
 * The log file: written in the background, rotated by size or age, reopened after another program moved it.
 *
 * A rotated file is named `<name>-<nanoseconds since 1970>.<extension>` and never written again. If the path no longer refers to
 * the open file (moved or removed by another program), file and directory are created again within `CHECK_MS` of the next line;
 * `reopen` does so at once. A file that cannot be opened or written is retried every `CHECK_MS`; lines in between are lost, and
 * the sink counts them.
 *
 * A device (`/dev/null`, a terminal) is written and never rotated: as root, that would rename the device.
 */
import {
  closeSync,
  constants,
  fstatSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs'
import { basename, dirname, extname, join } from 'node:path'
import { Fault, isErrno } from '../platform/errors.ts'
import { DescriptorOutput, type LogOutput } from '../platform/log.ts'

/** Interval of checks of the path, and of retries after a failure. */
const CHECK_MS = 1000
/** O_NONBLOCK: opening a pipe would wait for its reader. */
const OPEN_FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK
/** Name of the file in a directory. */
const NAME = 'outpost.log'

export interface RotateRules {
  /** 0: no limit. */
  readonly bytes: number
  readonly durationMs: number
  /** Rotated files to keep: 0 all, a negative number none. */
  readonly maxFiles: number
}

interface OpenLogFile {
  readonly fd: number
  readonly output: DescriptorOutput
  readonly bornMs: number
  readonly isRegular: boolean
  bytes: number
}

export class LogFile implements LogOutput {
  readonly #path: string
  readonly #stem: string
  readonly #extension: string
  readonly rules: RotateRules
  #file: OpenLogFile | undefined
  #checkedAtMs = Number.NEGATIVE_INFINITY
  #appending = false
  #isClosing = false
  /** In the name of the last rotated file. */
  #rotatedAtNs = 0n

  /** Throws if the file cannot be opened. */
  constructor(path: string, rules: RotateRules) {
    this.#path = path.endsWith('/') ? join(path, NAME) : path
    this.#extension = extname(this.#path) || '.log'
    this.#stem = basename(this.#path, extname(this.#path))
    this.rules = rules
    this.#open()
  }

  append(bytes: Buffer, done: (written: number) => void): void {
    const opened = this.#ready()
    if (!opened) return void setImmediate(done, 0)
    this.#appending = true
    opened.output.append(bytes, (written) => {
      this.#appending = false
      opened.bytes += written
      if (this.#isClosing) this.#close()
      done(written)
    })
  }

  appendSync(bytes: Buffer): void {
    this.#ready()?.output.appendSync(bytes)
  }

  /** Checks the path before the next line. */
  reopen(): void {
    this.#checkedAtMs = Number.NEGATIVE_INFINITY
  }

  close(): void {
    this.#isClosing = true
    if (!this.#appending) this.#close()
  }

  #close(): void {
    if (this.#file) closeSync(this.#file.fd)
    this.#file = undefined
  }

  /** The open file; undefined if it cannot be opened now. */
  #ready(): OpenLogFile | undefined {
    const nowMs = performance.now()
    try {
      if (nowMs - this.#checkedAtMs >= CHECK_MS) {
        this.#checkedAtMs = nowMs
        if (!this.#file || !this.#stillNamed(this.#file)) this.#open()
      }
      if (this.#file && this.#isDue(this.#file)) this.#rotate()
    } catch {
      // The log cannot report its own failure; the sink logs the number of lost lines later.
    }
    return this.#file
  }

  #stillNamed({ fd }: OpenLogFile): boolean {
    const named = statSync(this.#path, { throwIfNoEntry: false })
    const open = fstatSync(fd)
    return named?.ino === open.ino && named.dev === open.dev
  }

  #open(): void {
    this.#close()
    makeDirectory(dirname(this.#path))
    const fd = openSync(this.#path, OPEN_FLAGS, 0o640)
    const found = fstatSync(fd)
    // A pipe would block once it is full.
    if (found.isFIFO()) {
      closeSync(fd)
      throw new Fault(`${this.#path} is a pipe, not a regular file: move it away`)
    }
    const { size, birthtimeMs } = found
    const bornMs = birthtimeMs > 0 ? birthtimeMs : Date.now()
    this.#file = { fd, output: new DescriptorOutput(fd), bornMs, isRegular: found.isFile(), bytes: size }
  }

  #isDue({ bytes, bornMs, isRegular }: OpenLogFile): boolean {
    if (bytes === 0 || !isRegular) return false
    return (this.rules.bytes > 0 && bytes >= this.rules.bytes) || Date.now() - bornMs >= this.rules.durationMs
  }

  #rotate(): void {
    const nowNs = BigInt(Date.now()) * 1_000_000n
    // Several rotations in one millisecond, and a clock that was set back, must not change the order of the names.
    this.#rotatedAtNs = nowNs > this.#rotatedAtNs ? nowNs : this.#rotatedAtNs + 1n
    renameSync(this.#path, join(dirname(this.#path), `${this.#stem}-${this.#rotatedAtNs}${this.#extension}`))
    this.#open()
    this.#prune()
  }

  #prune(): void {
    const { maxFiles } = this.rules
    if (maxFiles === 0) return
    const directory = dirname(this.#path)
    const rotated = readdirSync(directory).filter((name) => this.#isRotated(name))
    // All have the same number of digits, so text order is time order.
    for (const name of rotated.sort().slice(0, Math.max(0, rotated.length - Math.max(0, maxFiles)))) {
      rmSync(join(directory, name), { force: true })
    }
  }

  #isRotated(name: string): boolean {
    if (!name.startsWith(`${this.#stem}-`) || !name.endsWith(this.#extension)) return false
    return /^\d{19}$/.test(name.slice(this.#stem.length + 1, -this.#extension.length))
  }
}

/** Creates the last segment only: Node's recursive mkdir does not return where none can be created, as in /proc. */
function makeDirectory(path: string): void {
  try {
    mkdirSync(path, { mode: 0o750 })
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw error
  }
}
