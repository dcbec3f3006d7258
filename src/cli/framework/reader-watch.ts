/**
 * Whether somebody still reads the pipe that we write to.
 *
 * A pipe without a reader is noticed by the next write, and no call that Node has tells it sooner. But the reader of
 * `outpost logs -f … | head` is to end us although the log is idle. So the reader is looked up in `/proc` before the
 * first byte is written (it cannot have left before that), and then it is enough to look now and then whether it still
 * holds the pipe.
 *
 * A reader that cannot be seen (another user's, another container's) is never taken for one that has left: then the
 * next write tells, as it does for every other program.
 */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

const FLAGS_MODE = 0o3
const READS = new Set([0, 2]) // O_RDONLY, O_RDWR
/** The processes of a pipeline are begun one after another, so their numbers are near. */
const NEAR = 16

export class ReaderWatch {
  readonly #pipe: string
  #held: string | undefined

  /** `descriptor` must be a pipe of this process. */
  constructor(descriptor: number) {
    this.#pipe = linkOf(`/proc/self/fd/${descriptor}`)
    this.#held = this.#find()
  }

  /** True when a reader was seen, has left, and no other is to be seen. */
  isGone(): boolean {
    if (this.#held === undefined) return false
    if (this.#isReader(this.#held)) return false
    this.#held = this.#find()
    return this.#held === undefined
  }

  /** `/proc/<pid>/fd/<number>` of a reader. The likely ones first: our parent and what was begun next to us. */
  #find(): string | undefined {
    if (!this.#pipe.startsWith('pipe:')) return undefined
    const near = [process.ppid]
    for (let step = 1; step <= NEAR; step++) near.push(process.pid + step, process.pid - step)
    return this.#among(near) ?? this.#among(allProcesses())
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
    return '' // gone, or not ours to see
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
