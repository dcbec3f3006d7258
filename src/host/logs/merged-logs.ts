/**
 * Follows several logs as one source: all tasks of an allocation, or both outputs of a task. The bytes of each log are in
 * order; the order between logs is undefined. Logs that are created later are followed from their first byte.
 */
import type { LogCursor } from './follow/log-cursor.ts'
import type { LogFiles } from './locate/log-files.ts'
import type { FileMark } from './locate/resume-cursor.ts'
import type { FollowSource, SourceStep } from './follow/stream-source.ts'

interface MergedLogsOptions {
  /** The selected logs that exist; `names` returns the names in their directory if they are already known. */
  readonly list: (names: (() => readonly string[]) | undefined) => readonly LogFiles[]
  /** Undefined if the log does not exist any more. */
  readonly open: (logs: LogFiles) => LogCursor | undefined
}

/** Interval of the search for new logs. */
const LIST_MS = 500

export class MergedLogs implements FollowSource {
  readonly kind = 'log'
  readonly #options: MergedLogsOptions
  /** By the path of a log's first file, because hashes of names may collide. */
  readonly #cursors = new Map<string, LogCursor>()
  /** Logs that may have data, in round-robin order. */
  readonly #ready = new Set<LogCursor>()
  #listedAtMs = 0
  #last: SourceStep | undefined
  #news = false
  #resolve: (() => void) | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(options: MergedLogsOptions) {
    this.#options = options
  }

  /** Adds an open log. */
  add(logs: LogFiles, cursor: LogCursor): void {
    this.#cursors.set(logs.path(0), cursor)
    this.#ready.add(cursor)
    cursor.onWake = () => {
      this.#ready.add(cursor)
      this.wake()
    }
  }

  marks(): FileMark[] {
    return [...this.#cursors.values()].flatMap((cursor) => cursor.marks())
  }

  get lagBytes(): number {
    let sum = 0
    for (const cursor of this.#cursors.values()) sum += cursor.lagBytes
    return sum
  }

  async step(labelBytes: number): Promise<SourceStep> {
    if (performance.now() - this.#listedAtMs >= LIST_MS) this.#addNewLogs()
    for (const cursor of this.#ready) {
      // A log with data is appended to the queue again.
      this.#ready.delete(cursor)
      const result = await cursor.step(labelBytes)
      this.#last = result
      if (result.step.kind === 'end') continue
      this.#ready.add(cursor)
      return result
    }
    if (!this.#last) throw new Error('no log to follow')
    return { ...this.#last, step: { kind: 'end' } }
  }

  #addNewLogs(): void {
    this.#listedAtMs = performance.now()
    // All logs are stepped regularly: a step releases rotated files that were kept open for late bytes.
    for (const cursor of this.#cursors.values()) this.#ready.add(cursor)
    const [one] = this.#cursors.values()
    for (const logs of this.#options.list(one && (() => one.names()))) {
      if (this.#cursors.has(logs.path(0))) continue
      const cursor = this.#options.open(logs)
      if (cursor) this.add(logs, cursor)
    }
  }

  drained(): boolean {
    const known = this.#cursors.size
    this.#addNewLogs()
    return this.#cursors.size === known && [...this.#cursors.values()].every((cursor) => cursor.drained())
  }

  sleepUntil(wakeAtMs: number): Promise<void> {
    const waitMs = Math.min(wakeAtMs - performance.now(), LIST_MS)
    if (this.#news || waitMs <= 0) {
      this.#news = false
      return Promise.resolve()
    }
    return new Promise((resolve) => {
      this.#resolve = resolve
      this.#timer = setTimeout(() => this.wake(), waitMs)
    })
  }

  wake(): void {
    clearTimeout(this.#timer)
    const resolve = this.#resolve
    this.#resolve = undefined
    if (resolve) resolve()
    else this.#news = true
  }

  release(): void {
    clearTimeout(this.#timer)
    for (const cursor of this.#cursors.values()) cursor.release()
    this.#cursors.clear()
    this.#ready.clear()
  }
}
