/**
 * What a process would leave that is killed at a step: a copy of its database's files, taken at that step while the process
 * goes on. A run with a hundred steps costs one process then, and not a hundred; each test that uses copies also kills one
 * real process, to show that the two leave the same.
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
  /** What the process had said until then. */
  readonly said: T
  /** The first step that left this, counted from one. */
  readonly step: number
}

/** What changes when SQLite moves pages from the write-ahead log into the database, or begins that log anew. */
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
 * Copies the database `from` with its write-ahead log, as they are at one moment: what another thread appends to the log
 * meanwhile is in the copy or not, as after a kill.
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
  /** Calls of `take`. */
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
