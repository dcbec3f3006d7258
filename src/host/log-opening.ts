/** Opening the logs that a request asks for, each where the request begins in it: to be followed, or read once. */
import type { Allocation, AllocationTable } from './allocation.ts'
import type { BufferLease } from './buffers.ts'
import type { Followers } from './followers.ts'
import { LogCursor, type LogStart } from './log-cursor.ts'
import type { LogFiles } from './log-files.ts'
import {
  type Beginning,
  checkCursor,
  existingLogs,
  firstByte,
  isMerged,
  noLog,
  type Selection,
  selectLogs,
  startOf,
} from './log-selection.ts'
import { type LogBeginning, LogsOnce } from './logs-once.ts'
import { MergedLogs } from './merged-logs.ts'
import type { Followed } from './stream-source.ts'

/** What is asked for, of which allocation. */
interface Asked {
  readonly allocation: Allocation
  readonly selection: Selection
  readonly at: Beginning
  readonly signal: AbortSignal
}

export class LogOpening {
  readonly #host: { readonly allocations: AllocationTable; readonly followers: Followers }
  readonly #asked: Asked
  /** What has happened to the place of a cursor; known once the logs are open. */
  said: LogStart['said']

  constructor(host: { readonly allocations: AllocationTable; readonly followers: Followers }, asked: Asked) {
    this.#host = host
    this.#asked = asked
  }

  /** Throws a Refusal when there is nothing to follow. */
  follow(lease: BufferLease): Promise<Followed> {
    return isMerged(this.#asked.selection) ? this.#followAll(lease) : this.#followOne(lease)
  }

  /** Throws a Refusal when there is nothing to read. */
  async once(lease: BufferLease): Promise<LogsOnce> {
    const beginnings: LogBeginning[] = []
    for (const logs of this.#select()) {
      const start = await this.#startOf(logs)
      if (start) beginnings.push({ logs, start })
      else if (!isMerged(this.#asked.selection)) throw noLog(logs)
    }
    return new LogsOnce(beginnings, lease)
  }

  #select(): readonly [LogFiles, ...LogFiles[]] {
    const { allocation, selection, at } = this.#asked
    const logs = selectLogs(allocation, selection)
    checkCursor(at.cursor, logs)
    return logs
  }

  async #startOf(logs: LogFiles): Promise<LogStart | undefined> {
    const start = await startOf(logs, this.#asked.at, this.#asked.signal)
    this.said ??= start?.said
    return start
  }

  async #followOne(lease: BufferLease): Promise<Followed> {
    const [logs] = this.#select()
    for (;;) {
      const start = await this.#startOf(logs)
      if (!start) throw noLog(logs)
      const cursor = this.#openAt(logs, start, lease)
      // Rotated away between the listing and the opening: the listing has changed, so look again.
      if (cursor) return cursor
    }
  }

  async #followAll(lease: BufferLease): Promise<Followed> {
    const { allocation, selection } = this.#asked
    const merged = new MergedLogs({
      list: () => existingLogs(this.#host.allocations.get(allocation.id) ?? allocation, selection),
      open: (logs) => {
        const start = firstByte(logs)
        return start && this.#openAt(logs, start, lease)
      },
    })
    try {
      for (const logs of this.#select()) {
        const start = await this.#startOf(logs)
        const cursor = start && this.#openAt(logs, start, lease)
        if (cursor) merged.add(logs, cursor)
      }
      return merged
    } catch (error) {
      merged.release()
      throw error
    }
  }

  #openAt(logs: LogFiles, start: LogStart, lease: BufferLease): LogCursor | undefined {
    const { files } = this.#host.followers
    return LogCursor.open({ files, logs, allocation: this.#asked.allocation, lease }, start)
  }
}
