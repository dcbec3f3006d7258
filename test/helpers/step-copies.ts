/**
 * What a process would leave that is killed at a step: a copy of its database's files, taken at that step while the process
 * goes on. A run with a hundred steps costs one process then, and not a hundred; each test that uses copies also kills one
 * real process, to show that the two leave the same.
 */
import { closeSync, copyFileSync, existsSync, mkdirSync, openSync, readSync, statSync } from 'node:fs'
import { join } from 'node:path'

const WAL_HEADER_BYTES = 32

export interface StepCopy<T> {
  /** The copied database. */
  readonly path: string
  readonly directory: string
  /** What the process had said until then. */
  readonly said: T
}

/** What changes when SQLite moves pages from the write-ahead log into the database, or begins that log anew. */
function placeOf(path: string): string {
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
    const before = placeOf(from)
    for (const end of ['', '-wal']) if (existsSync(from + end)) copyFileSync(from + end, to + end)
    if (placeOf(from) === before) return
  }
}

/** Copies of `directory`/`name`, one for each call of `take`, in folders of `room`. */
export class StepCopies<T> {
  readonly #from: string
  readonly #name: string
  readonly #room: string
  readonly #said: () => T
  readonly all: StepCopy<T>[] = []

  constructor(options: { directory: string; name: string; room: string; said: () => T }) {
    this.#from = join(options.directory, options.name)
    this.#name = options.name
    this.#room = options.room
    this.#said = options.said
  }

  take(): void {
    const directory = join(this.#room, String(this.all.length + 1))
    mkdirSync(directory, { recursive: true })
    const path = join(directory, this.#name)
    copyDatabase(this.#from, path)
    this.all.push({ path, directory, said: this.#said() })
  }
}
