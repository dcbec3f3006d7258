/**
 * Detects that the reader of a pipe has exited.
 *
 * Node reports a pipe without reader only at the next write. But the end of the reader of `outpost logs -f … | head` must end the
 * command also while the log is idle. So the reader is looked up in `/proc` before the first write, when it must still exist, and
 * then polled.
 *
 * A reader that is not visible (of another user or container) is never considered gone; then the next write reports it.
 */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

const FLAGS_MODE = 0o3
const READS = new Set([0, 2]) // O_RDONLY, O_RDWR
/** The processes of a pipeline start one after another, so their IDs are close. */
const NEARBY_PIDS = 16

export class ReaderWatch {
  readonly #pipe: string
  #reader: string | undefined

  /** `descriptor` must be a pipe of this process. */
  constructor(descriptor: number) {
    this.#pipe = linkOf(`/proc/self/fd/${descriptor}`)
    this.#reader = this.#find()
  }

  /** True when a reader was visible, has exited, and no other reader is visible. */
  isGone(): boolean {
    if (this.#reader === undefined) return false
    if (this.#isReader(this.#reader)) return false
    this.#reader = this.#find()
    return this.#reader === undefined
  }

  /** `/proc/<pid>/fd/<number>` of a reader. Checks the parent and nearby process IDs first. */
  #find(): string | undefined {
    if (!this.#pipe.startsWith('pipe:')) return undefined
    const nearby = [process.ppid]
    for (let step = 1; step <= NEARBY_PIDS; step++) nearby.push(process.pid + step, process.pid - step)
    return this.#among(nearby) ?? this.#among(allProcesses())
  }

  #among(processes: readonly number[]): string | undefined {
    for (const pid of processes) {
      if (pid === process.pid) continue
      const found = descriptorsOf(pid).find((path) => this.#isReader(path))
      if (found !== undefined) return found
    }
    return undefined
  }

  #isReader(path: string): boolean {
    if (linkOf(path) !== this.#pipe) return false
    try {
      const flags = /^flags:\s*(\d+)/m.exec(readFileSync(path.replace('/fd/', '/fdinfo/'), 'latin1'))?.[1]
      return flags !== undefined && READS.has(Number.parseInt(flags, 8) & FLAGS_MODE)
    } catch {
      return false
    }
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return '' // closed or not visible
  }
}

function descriptorsOf(pid: number): string[] {
  try {
    return readdirSync(`/proc/${pid}/fd`).map((name) => `/proc/${pid}/fd/${name}`)
  } catch {
    return []
  }
}

function allProcesses(): number[] {
  try {
    return readdirSync('/proc').map(Number).filter(Number.isInteger)
  } catch {
    return []
  }
}
