/** Opening the logs that a request asks for, each where the request begins in it: to be followed, or read once. */
import { yieldIfDue } from '../../platform/scheduler.ts'
import type { Allocation, AllocationTable } from '../allocations/allocation.ts'
import type { BufferLease } from '../files/buffers.ts'
import type { Followers } from './follow/followers.ts'
import { LogCursor, type LogStart } from './follow/log-cursor.ts'
import type { LogFiles } from './locate/log-files.ts'
import {
  type Beginning,
  checkCursor,
  existingLogs,
  firstByte,
  isMerged,
  noLog,
  requireFewLogs,
  type Selection,
  selectLogs,
  startOf,
} from './log-selection.ts'
import { type LogBeginning, LogsOnce } from './logs-once.ts'
import { MergedLogs } from './merged-logs.ts'
import type { Followed, Notice, Opened } from './follow/stream-source.ts'

/** What is asked for, of which allocation. */
interface Asked {
  readonly allocation: Allocation
  readonly selection: Selection
  readonly at: Beginning
  /** Its frames are to carry cursors. */
  readonly resumable: boolean
  readonly signal: AbortSignal
}

export class LogOpening {
  readonly #host: { readonly allocations: AllocationTable; readonly followers: Followers }
  readonly #asked: Asked

  constructor(host: { readonly allocations: AllocationTable; readonly followers: Followers }, asked: Asked) {
    this.#host = host
    this.#asked = asked
  }

  /** Throws a Refusal when there is nothing to follow. */
  follow(lease: BufferLease): Promise<Opened<Followed>> {
    return isMerged(this.#asked.selection) ? this.#followAll(lease) : this.#followOne(lease)
  }

  /** Throws a Refusal when there is nothing to read. */
  async once(lease: BufferLease): Promise<Opened<LogsOnce>> {
    const beginnings: LogBeginning[] = []
    const all = this.#select()
    const names = all[0].names()
    for (const logs of all) {
      const start = await this.#startOf(logs, names)
      if (start) beginnings.push({ logs, start })
      else if (!isMerged(this.#asked.selection)) throw noLog(logs)
    }
    return { source: new LogsOnce(beginnings, lease), notice: noticeOf(beginnings[0]?.start) }
  }

  #select(): readonly [LogFiles, ...LogFiles[]] {
    const { allocation, selection, at } = this.#asked
    const logs = selectLogs(allocation, selection)
    checkCursor(at.cursor, logs)
    this.#checkCount(logs)
    return logs
  }

  /** Also where logs have come to exist since: a stream that breaks then is better than cursors that are refused. */
  #checkCount(logs: readonly LogFiles[]): void {
    if (this.#asked.resumable) requireFewLogs(logs)
  }

  /** `names` are those in the log directory. */
  async #startOf(logs: LogFiles, names: readonly string[]): Promise<LogStart | undefined> {
    // Finding where each of hundreds of logs begins takes a while, in which others are to be served.
    const turn = yieldIfDue()
    if (turn) await turn
    const { at, signal } = this.#asked
    signal.throwIfAborted()
    return startOf(logs, logs.indexes(names), at, signal)
  }

  async #followOne(lease: BufferLease): Promise<Opened<LogCursor>> {
    const [logs] = this.#select()
    const opened = await this.#openFirst(logs, logs.names(), lease)
    if (!opened) throw noLog(logs)
    return opened
  }

  /** Undefined when the log has no files any more. */
  async #openFirst(
    logs: LogFiles,
    listed: readonly string[],
    lease: BufferLease,
  ): Promise<Opened<LogCursor> | undefined> {
    for (let names = listed; ; names = logs.names()) {
      const start = await this.#startOf(logs, names)
      const cursor = start && this.#openAt(logs, start, lease)
      if (cursor) return { source: cursor, notice: noticeOf(start) }
      // Rotated away between the listing and the opening: the listing has changed, so look again.
      if (!start && names !== listed) return undefined
    }
  }

  async #followAll(lease: BufferLease): Promise<Opened<Followed>> {
    const { allocation, selection } = this.#asked
    const merged = new MergedLogs({
      list: (names) => {
        const logs = existingLogs(this.#host.allocations.get(allocation.id) ?? allocation, selection, names)
        this.#checkCount(logs)
        return logs
      },
      open: (logs) => {
        const start = firstByte(logs, logs.indexes())
        return start && this.#openAt(logs, start, lease)
      },
    })
    try {
      const all = this.#select()
      const names = all[0].names()
      for (const logs of all) {
        const opened = await this.#openFirst(logs, names, lease)
        if (opened) merged.add(logs, opened.source)
      }
      // Their frames tell it, each of its own log.
      return { source: merged, notice: undefined }
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

function noticeOf(start: LogStart | undefined): Notice | undefined {
  return start?.said?.event
}
