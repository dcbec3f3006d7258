/** Opens the logs of a request at their start positions, to follow them or to read them once. */
import { yieldIfDue } from '../../platform/scheduler.ts'
import type { Allocation, AllocationTable } from '../allocations/allocation.ts'
import type { BufferLease } from '../files/buffers.ts'
import type { Followers } from './follow/followers.ts'
import { LogCursor, type LogStart } from './follow/log-cursor.ts'
import type { LogFiles } from './locate/log-files.ts'
import {
  type StartRequest,
  checkCursor,
  existingLogs,
  oldestPosition,
  isMerged,
  requireFewLogs,
  type LogSelection,
  selectLogs,
  startOfLog,
} from './log-selection.ts'
import { logNotFound } from './log-errors.ts'
import { type LogWithStart, TaskLogReader } from './log-reader.ts'
import { MergedLogs } from './merged-logs.ts'
import type { FollowSource, ResumeEvent, OpenedSource } from './follow/stream-source.ts'

interface LogRequest {
  readonly allocation: Allocation
  readonly selection: LogSelection
  readonly at: StartRequest
  /** The frames have cursors. */
  readonly resumable: boolean
  readonly signal: AbortSignal
}

export class LogOpener {
  readonly #host: { readonly allocations: AllocationTable; readonly followers: Followers }
  readonly #request: LogRequest

  constructor(host: { readonly allocations: AllocationTable; readonly followers: Followers }, request: LogRequest) {
    this.#host = host
    this.#request = request
  }

  /** Rejects with a Refusal if there is nothing to follow. */
  follow(lease: BufferLease): Promise<OpenedSource<FollowSource>> {
    return isMerged(this.#request.selection) ? this.#followAll(lease) : this.#followOne(lease)
  }

  /** Rejects with a Refusal if there is nothing to read. */
  async once(lease: BufferLease): Promise<OpenedSource<TaskLogReader>> {
    const logStarts: LogWithStart[] = []
    const all = this.#select()
    const names = all[0].names()
    for (const logs of all) {
      const start = await this.#startOfLog(logs, names)
      if (start) logStarts.push({ logs, start })
      else if (!isMerged(this.#request.selection)) throw logNotFound(logs)
    }
    return { source: new TaskLogReader(logStarts, lease), notice: noticeOf(logStarts[0]?.start) }
  }

  #select(): readonly [LogFiles, ...LogFiles[]] {
    const { allocation, selection, at } = this.#request
    const logs = selectLogs(allocation, selection)
    checkCursor(at.cursor, logs)
    this.#checkCount(logs)
    return logs
  }

  /** Also applied to logs that are created later: a broken stream is better than cursors that are refused. */
  #checkCount(logs: readonly LogFiles[]): void {
    if (this.#request.resumable) requireFewLogs(logs)
  }

  /** `names` lists the log directory. */
  async #startOfLog(logs: LogFiles, names: readonly string[]): Promise<LogStart | undefined> {
    // Finding the start positions of hundreds of logs takes long enough to yield in between.
    const turn = yieldIfDue()
    if (turn) await turn
    const { at, signal } = this.#request
    signal.throwIfAborted()
    return startOfLog(logs, logs.indexes(names), at, signal)
  }

  async #followOne(lease: BufferLease): Promise<OpenedSource<LogCursor>> {
    const [logs] = this.#select()
    const opened = await this.#openFirst(logs, logs.names(), lease)
    if (!opened) throw logNotFound(logs)
    return opened
  }

  /** Undefined if the log has no files any more. */
  async #openFirst(
    logs: LogFiles,
    listed: readonly string[],
    lease: BufferLease,
  ): Promise<OpenedSource<LogCursor> | undefined> {
    for (let names = listed; ; names = logs.names()) {
      const start = await this.#startOfLog(logs, names)
      const cursor = start && this.#openAt(logs, start, lease)
      if (cursor) return { source: cursor, notice: noticeOf(start) }
      // The file was removed by a rotation after the listing, so list again.
      if (!start && names !== listed) return undefined
    }
  }

  async #followAll(lease: BufferLease): Promise<OpenedSource<FollowSource>> {
    const { allocation, selection } = this.#request
    const merged = new MergedLogs({
      list: (names) => {
        const logs = existingLogs(this.#host.allocations.get(allocation.id) ?? allocation, selection, names)
        this.#checkCount(logs)
        return logs
      },
      open: (logs) => {
        const start = oldestPosition(logs, logs.indexes())
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
      // Events of the logs are in their frames.
      return { source: merged, notice: undefined }
    } catch (error) {
      merged.release()
      throw error
    }
  }

  #openAt(logs: LogFiles, start: LogStart, lease: BufferLease): LogCursor | undefined {
    const { files } = this.#host.followers
    return LogCursor.open({ files, logs, allocation: this.#request.allocation, lease }, start)
  }
}

function noticeOf(start: LogStart | undefined): ResumeEvent | undefined {
  return start?.notice?.event
}
