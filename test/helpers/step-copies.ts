/**
 * Copies of the database files at each step of a process, equal to what a kill at that step would leave. A run with a
 * hundred steps needs one process instead of a hundred; each test that uses copies also kills one real process to show
 * that both leave the same state.
 */
import { createHash } from 'node:crypto'
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readSync,
  rmSync,
  statSync,
} from 'node:fs'
import { join } from 'node:path'

const WAL_HEADER_BYTES = 32

export interface StepCopy<T> {
  /** The copied database. */
  readonly path: string
  readonly directory: string
  /** The output of the process until then. */
  readonly said: T
  /** The first step with this state, counted from one. */
  readonly step: number
}

/** Changes when SQLite checkpoints or restarts the write-ahead log. */
function locationOf(path: string): string {
  const main = statSync(path, { throwIfNoEntry: false })
  const header = Buffer.alloc(WAL_HEADER_BYTES)
  if (existsSync(`${path}-wal`)) {
    const log = openSync(`${path}-wal`, 'r')
    readSync(log, header, 0, WAL_HEADER_BYTES, 0)
    closeSync(log)
  }
  return `${main?.size} ${main?.mtimeMs} ${header.toString('hex')}`
}

/**
 * Copies the database `from` with its write-ahead log at one moment. A concurrent append to the log is in the copy or
 * not, as after a kill.
 */
export function copyDatabase(from: string, to: string): void {
  for (;;) {
    const before = locationOf(from)
    for (const end of ['', '-wal']) if (existsSync(from + end)) copyFileSync(from + end, to + end)
    if (locationOf(from) === before) return
  }
}

function contentOf(path: string): string {
  const hash = createHash('sha256')
  for (const end of ['', '-wal']) hash.update(existsSync(path + end) ? readFileSync(path + end) : 'none').update('|')
  return hash.digest('hex')
}

/**
 * Copies of `directory`/`name` in folders of `room`: one for each call of `take` that finds something else than the call
 * before. A commit that is queued has changed no file yet: to look at the same bytes again, with the same words before
 * them, proves nothing.
 */
export class StepCopies<T> {
  readonly #from: string
  readonly #name: string
  readonly #room: string
  readonly #said: () => T
  readonly all: StepCopy<T>[] = []
  /** Number of calls of `take`. */
  steps = 0
  #newest = ''

  constructor(options: { directory: string; name: string; room: string; said: () => T }) {
    this.#from = join(options.directory, options.name)
    this.#name = options.name
    this.#room = options.room
    this.#said = options.said
  }

  take(): void {
    const directory = join(this.#room, String(++this.steps))
    mkdirSync(directory, { recursive: true })
    const path = join(directory, this.#name)
    copyDatabase(this.#from, path)
    const said = this.#said()
    const found = `${contentOf(path)} ${JSON.stringify(said)}`
    if (found === this.#newest) return rmSync(directory, { recursive: true })
    this.#newest = found
    this.all.push({ path, directory, said, step: this.steps })
  }
}
