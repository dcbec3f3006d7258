/**
 * Several logs followed as one: all tasks of an allocation, both outputs of a task. The bytes of each log come in their
 * order; between logs there is none. Logs that come to exist later are followed from their first byte.
 */
import type { LogCursor } from './follow/log-cursor.ts'
import type { LogFiles } from './locate/log-files.ts'
import type { FileMark } from './locate/resume-cursor.ts'
import type { FollowSource, SourceStep } from './follow/stream-source.ts'

interface MergedLogsOptions {
  /** The logs that are asked for and exist by now; `names` gives those in their directory, if they are known already. */
  readonly list: (names: (() => readonly string[]) | undefined) => readonly LogFiles[]
  /** Undefined when the log has gone again. */
  readonly open: (logs: LogFiles) => LogCursor | undefined
}

/** How often new logs are looked for. */
const LIST_MS = 500

export class MergedLogs implements FollowSource {
  readonly kind = 'log'
  readonly #options: MergedLogsOptions
  /** By the path of a log's first file: hashes of names may be alike. */
  readonly #cursors = new Map<string, LogCursor>()
  /** Logs that may have something, in the order in which they take turns. */
  readonly #ready = new Set<LogCursor>()
  #listedAtMs = 0
  #last: SourceStep | undefined
  #news = false
  #resolve: (() => void) | undefined
  #timer: NodeJS.Timeout | undefined

  constructor(options: MergedLogsOptions) {
    this.#options = options
  }

  /** Takes in a log that is open already. */
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
    if (performance.now() - this.#listedAtMs >= LIST_MS) this.#takeInNew()
    for (const cursor of this.#ready) {
      // To the end of the line of those who have something.
      this.#ready.delete(cursor)
      const taken = await cursor.step(labelBytes)
      this.#last = taken
      if (taken.step.kind === 'end') continue
      this.#ready.add(cursor)
      return taken
    }
    if (!this.#last) throw new Error('no log to follow')
    return { ...this.#last, step: { kind: 'end' } }
  }

  #takeInNew(): void {
    this.#listedAtMs = performance.now()
    // Everybody is asked now and then: files that were kept open for late bytes are let go by their log's next step.
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
    this.#takeInNew()
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
