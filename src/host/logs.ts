/**
 * `fs/logs`: a task's log across its rotated files, as frames or plain, once or for as long as the caller stays; or
 * several logs of an allocation in one stream.
 *
 * A follow stream stays open when the task ends, because stock clients expect it, unless `end_when_done` asks otherwise.
 * It ends broken, not cleanly, when the allocation is collected under it: there is nothing to resume, and a client that
 * is told "end" would ask again for ever.
 */
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Call, StreamHead } from '../kit/operation.ts'
import { queryBoolean, queryInteger, queryText, schema } from '../kit/schema.ts'
import type { Allocation, AllocationTable } from './allocation.ts'
import { allocationOperation, allocIdParam, originQuery } from './allocation-operation.ts'
import type { BufferLease } from './buffers.ts'
import { scopeHash } from './cursor-code.ts'
import type { Followers } from './followers.ts'
import { LineStage } from './line-stage.ts'
import { LogCursor, type LogStart } from './log-cursor.ts'
import type { LogFiles } from './log-files.ts'
import {
  type Beginning,
  checkCursor,
  existingLogs,
  firstByte,
  isMerged,
  noLog,
  selectLogs,
  startOf,
  tasksEnded,
} from './log-selection.ts'
import { type LogBeginning, LogsOnce } from './logs-once.ts'
import { MergedLogs } from './merged-logs.ts'
import { type Additions, additions, beginningOf, linesOf, resumeHeaders } from './stream-additions.ts'
import { Encoder } from './stream-encoder.ts'
import { follow, leased, readOnce } from './stream-serving.ts'
import type { Followed } from './stream-source.ts'

interface LogsInput extends Additions {
  readonly alloc_id: string
  readonly task: string
  readonly follow: boolean
  readonly plain: boolean
  readonly type: string
  readonly offset: number
  readonly origin: string
}

const logsInput = schema({
  alloc_id: allocIdParam,
  task: queryText({
    description: 'Name of the task; * for all tasks in one stream',
    fallback: '',
    required: 'must provide task name',
  }),
  follow: queryBoolean({ description: 'Go on with what is written', fallback: false }),
  plain: queryBoolean({ description: 'Bytes of the log without frames', fallback: false }),
  type: queryText({
    description: 'Which of its outputs; * for both in one stream',
    fallback: 'stdout',
    choices: ['stdout', 'stderr', '*'],
    otherwise: 'must provide log type (stdout/stderr)',
  }),
  offset: queryInteger({ description: 'Bytes from the origin', fallback: 0 }),
  origin: originQuery,
  ...additions,
})

/** Plain bytes of several logs must not cut into each other's lines. */
const EVERY_LINE = { pattern: undefined, invert: false, context: 0 }

/** One request for logs, from what was asked to what is sent. */
class LogRequest {
  readonly #host: { allocations: AllocationTable; followers: Followers }
  readonly #allocation: Allocation
  readonly #input: LogsInput
  readonly #call: Call
  readonly #encoder: Encoder
  readonly #stage: LineStage | undefined
  readonly #scope: number
  readonly #at: Beginning
  /** What has happened to the place of a cursor. */
  #said: LogStart['said']

  constructor(
    host: { allocations: AllocationTable; followers: Followers },
    allocation: Allocation,
    input: LogsInput,
    call: Call,
  ) {
    this.#host = host
    this.#allocation = allocation
    this.#input = input
    this.#call = call
    this.#scope = scopeHash('logs', allocation.id)
    this.#at = beginningOf(input, this.#scope)
    const scope = input.cursor === undefined ? undefined : this.#scope
    this.#encoder = new Encoder({ framed: !input.plain, scope })
    const lines = linesOf(input) ?? (input.plain && isMerged(input) ? EVERY_LINE : undefined)
    if (lines && input.plain && input.cursor !== undefined) {
      throw new Refusal(
        'invalid_request',
        'cursor with plain counts the bytes of one log as they are: leave out grep, give one task and one type, or leave out plain',
      )
    }
    this.#stage = lines && new LineStage(this.#encoder, lines)
  }

  follow() {
    const { end_when_done: ends, task } = this.#input
    return follow({
      followers: this.#host.followers,
      call: this.#call,
      encoder: this.#encoder,
      stage: this.#stage,
      head: () => this.#head(),
      open: (lease) => (isMerged(this.#input) ? this.#openMerged(lease) : this.#openOne(lease)),
      ended: ends ? () => tasksEnded(this.#host.allocations.get(this.#allocation.id), task) : undefined,
    })
  }

  once() {
    const open = async (lease: BufferLease) => {
      const beginnings: LogBeginning[] = []
      for (const logs of this.#select()) {
        const start = await this.#startOf(logs)
        if (start) beginnings.push({ logs, start })
        else if (!isMerged(this.#input)) throw noLog(logs)
      }
      return new LogsOnce(beginnings, lease)
    }
    const chunks = readOnce({ encoder: this.#encoder, stage: this.#stage, head: () => this.#head(), open })
    return leased(this.#encoder.lease, chunks)
  }

  #select(): LogFiles[] {
    const logs = selectLogs(this.#allocation, this.#input)
    checkCursor(this.#at.cursor, logs)
    return logs
  }

  async #startOf(logs: LogFiles): Promise<LogStart | undefined> {
    const start = await startOf(logs, this.#at, this.#call.signal)
    this.#said ??= start?.said
    return start
  }

  async #openOne(lease: BufferLease): Promise<Followed> {
    const [logs] = this.#select()
    for (;;) {
      const start = logs && (await this.#startOf(logs))
      if (!logs || !start) throw logs ? noLog(logs) : new Refusal('not_found', 'no log')
      const cursor = this.#openAt(logs, start, lease)
      // Rotated away between the listing and the opening: the listing has changed, so look again.
      if (cursor) return cursor
    }
  }

  async #openMerged(lease: BufferLease): Promise<Followed> {
    const { id } = this.#allocation
    const merged = new MergedLogs({
      list: () => existingLogs(this.#host.allocations.get(id) ?? this.#allocation, this.#input),
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
    return LogCursor.open({ files, logs, allocation: this.#allocation, lease }, start)
  }

  #head(): StreamHead {
    const { plain, cursor } = this.#input
    const resumable = plain && cursor !== undefined
    return {
      status: 200,
      contentType: plain ? 'text/plain' : 'application/json',
      frames: !plain,
      headers: {
        'X-Content-Type-Options': 'nosniff',
        ...(resumable ? resumeHeaders(this.#encoder.cursor(this.#scope), this.#said?.event) : {}),
      },
    }
  }
}

export function logsOperation(host: { allocations: AllocationTable; followers: Followers }): AnyOperation {
  return allocationOperation(host.allocations, {
    name: 'host.logs',
    summary: 'Read or follow the log of a task',
    path: 'fs/logs/:alloc_id',
    input: logsInput,
    output: 'stream',
    needs: ['read-logs', 'read-fs'],
    endless: (input) => input.follow,
    run(allocation, input, call) {
      const request = new LogRequest(host, allocation, input, call)
      return input.follow ? request.follow() : request.once()
    },
  })
}
