/**
 * The log file: written in the background, put aside by size or age, found again when somebody moved it.
 *
 * A file that is put aside is called `<name>-<nanoseconds since 1970>.<extension>` and never written again. Where the
 * name no longer leads to the open file (moved by another program, removed together with its directory), it is opened
 * anew, the directory included, within `LOOK_MS` of the next line; `reopen` does so at once. A file that cannot be opened
 * or written is tried again every `LOOK_MS`; what was to be written meanwhile is lost, and the sink counts it.
 *
 * A device (`/dev/null`, a terminal) is written and never put aside: with the rights of root that would rename the machine's own.
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

/** How often the name is looked at, and a file that failed is tried again. */
const LOOK_MS = 1000
/** Opening a pipe would wait for its reader. */
const OPEN_FLAGS = constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK
/** Name of the file in a directory. */
const NAME = 'outpost.log'

export interface RotateRules {
  /** 0 means whatever its size. */
  readonly bytes: number
  readonly durationMs: number
  /** Files put aside that are kept: 0 means all, a negative number none. */
  readonly maxFiles: number
}

interface Opened {
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
  #opened: Opened | undefined
  #lookedAtMs = Number.NEGATIVE_INFINITY
  #appending = false
  #over = false

  /** Throws when the file cannot be opened. */
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
      if (this.#over) this.#close()
      done(written)
    })
  }

  appendSync(bytes: Buffer): void {
    this.#ready()?.output.appendSync(bytes)
  }

  /** Looks at the name again before the next line. */
  reopen(): void {
    this.#lookedAtMs = Number.NEGATIVE_INFINITY
  }

  close(): void {
    this.#over = true
    if (!this.#appending) this.#close()
  }

  #close(): void {
    if (this.#opened) closeSync(this.#opened.fd)
    this.#opened = undefined
  }

  /** The file to write to; undefined when there is none to be had right now. */
  #ready(): Opened | undefined {
    const nowMs = performance.now()
    try {
      if (nowMs - this.#lookedAtMs >= LOOK_MS) {
        this.#lookedAtMs = nowMs
        if (!this.#opened || !this.#stillNamed(this.#opened)) this.#open()
      }
      if (this.#opened && this.#isDue(this.#opened)) this.#rotate()
    } catch {
      // Nobody can be told in the log that there is no log; the sink tells how much is missing once there is.
    }
    return this.#opened
  }

  #stillNamed({ fd }: Opened): boolean {
    const named = statSync(this.#path, { throwIfNoEntry: false })
    const open = fstatSync(fd)
    return named?.ino === open.ino && named.dev === open.dev
  }

  #open(): void {
    this.#close()
    makeDirectory(dirname(this.#path))
    const fd = openSync(this.#path, OPEN_FLAGS, 0o640)
    const found = fstatSync(fd)
    // A pipe takes lines until it is full; a device is what an operator may have named.
    if (found.isFIFO()) {
      closeSync(fd)
      throw new Fault(`${this.#path} is a pipe and no regular file: move it away`)
    }
    const { size, birthtimeMs } = found
    const bornMs = birthtimeMs > 0 ? birthtimeMs : Date.now()
    this.#opened = { fd, output: new DescriptorOutput(fd), bornMs, isRegular: found.isFile(), bytes: size }
  }

  #isDue({ bytes, bornMs, isRegular }: Opened): boolean {
    if (bytes === 0 || !isRegular) return false
    return (this.rules.bytes > 0 && bytes >= this.rules.bytes) || Date.now() - bornMs >= this.rules.durationMs
  }

  #rotate(): void {
    const aside = `${this.#stem}-${Date.now()}${String(process.hrtime.bigint() % 1_000_000n).padStart(6, '0')}`
    renameSync(this.#path, join(dirname(this.#path), `${aside}${this.#extension}`))
    this.#open()
    this.#prune()
  }

  #prune(): void {
    const { maxFiles } = this.rules
    if (maxFiles === 0) return
    const directory = dirname(this.#path)
    const aside = readdirSync(directory).filter((name) => this.#isAside(name))
    // All have as many digits, for centuries: their order as texts is that of time.
    for (const name of aside.sort().slice(0, Math.max(0, aside.length - Math.max(0, maxFiles)))) {
      rmSync(join(directory, name), { force: true })
    }
  }

  #isAside(name: string): boolean {
    if (!name.startsWith(`${this.#stem}-`) || !name.endsWith(this.#extension)) return false
    return /^\d{19}$/.test(name.slice(this.#stem.length + 1, -this.#extension.length))
  }
}

/** Only the last part of the path: Node's way to make all of them never returns where none can be made, as in /proc. */
function makeDirectory(path: string): void {
  try {
    mkdirSync(path, { mode: 0o750 })
  } catch (error) {
    if (!isErrno(error, 'EEXIST')) throw error
  }
}
