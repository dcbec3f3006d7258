/**
 * `fs/logs`: a task's log across its rotated files, framed or plain, read once or followed; or several logs of an allocation in
 * one stream.
 *
 * A follow stream stays open at the end of the task, because stock clients expect it, unless `end_when_done` is set. If the
 * allocation is collected, the stream breaks instead of ending: there is nothing to resume, and after a clean end clients would
 * reconnect forever.
 */
import { Refusal } from '../../platform/errors.ts'
import type { Call, StreamHead } from '../../platform/operation.ts'
import { queryBoolean, queryInteger, queryText, schema } from '../../platform/schema.ts'
import type { Allocation, AllocationTable } from '../allocations/allocation.ts'
import { allocIdParam, handleAllocation, originQuery } from '../allocations/allocation-operation.ts'
import type { BufferLease } from '../files/buffers.ts'
import { scopeHash } from './locate/resume-cursor.ts'
import type { Followers } from './follow/followers.ts'
import { LineStage } from './search/line-stage.ts'
import { LogOpener } from './log-opener.ts'
import { isMerged, tasksEnded } from './log-selection.ts'
import {
  type LogStreamOptions,
  streamOptionFields,
  startRequestOf,
  grepOptionsOf,
  resumeHeaders,
} from './stream-parameters.ts'
import { StreamEncoder } from './stream/stream-encoder.ts'
import { follow, leased, readOnce } from './stream/stream-serving.ts'
import type { OpenedSource, StreamSource } from './follow/stream-source.ts'

interface FsLogsInput extends LogStreamOptions {
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
  follow: queryBoolean({ description: 'Follow the log', fallback: false }),
  plain: queryBoolean({ description: 'Send the bytes of the log without frames', fallback: false }),
  type: queryText({
    description: 'Output of the task; * for both in one stream',
    fallback: 'stdout',
    choices: ['stdout', 'stderr', '*'],
    otherwise: 'must provide log type (stdout/stderr)',
  }),
  offset: queryInteger({ description: 'First byte, counted from the origin', fallback: 0 }),
  origin: originQuery,
  ...streamOptionFields,
})

/** Plain streams of several logs are interleaved line by line. */
const EVERY_LINE = { pattern: undefined, invert: false, context: 0 }

interface LogsHost {
  readonly allocations: AllocationTable
  readonly followers: Followers
}

function serve(host: LogsHost, allocation: Allocation, input: FsLogsInput, call: Call) {
  const scope = scopeHash('logs', allocation.id)
  const at = startRequestOf(input, scope)
  const encoder = new StreamEncoder({ framed: !input.plain, scope: input.cursor === undefined ? undefined : scope })
  const lines = grepOptionsOf(input) ?? (input.plain && isMerged(input) ? EVERY_LINE : undefined)
  if (lines && input.plain && input.cursor !== undefined) {
    throw new Refusal(
      'invalid_request',
      'cursor with plain needs the unmodified bytes of one log: omit grep and select one task and one type, or omit plain',
    )
  }
  const stage = lines && new LineStage(encoder, lines)
  const opening = new LogOpener(host, {
    allocation,
    selection: input,
    at,
    resumable: input.cursor !== undefined,
    signal: call.signal,
  })
  const head = ({ notice }: OpenedSource<StreamSource>) =>
    headOf(input, () => resumeHeaders(encoder.cursor(scope), notice))
  if (!input.follow) {
    const open = (lease: BufferLease) => opening.once(lease)
    return leased(encoder.lease, readOnce({ encoder, stage, head, open }))
  }
  return follow({
    followers: host.followers,
    call,
    encoder,
    stage,
    head,
    open: (lease) => opening.follow(lease),
    ended: input.end_when_done ? () => tasksEnded(host.allocations.get(allocation.id), input.task) : undefined,
  })
}

/** Plain streams have their start position in headers, framed streams in their frames. */
function headOf({ plain, cursor }: FsLogsInput, positionHeaders: () => Record<string, string>): StreamHead {
  return {
    status: 200,
    contentType: plain ? 'text/plain' : 'application/json',
    frames: !plain,
    headers: { 'X-Content-Type-Options': 'nosniff', ...(plain && cursor !== undefined ? positionHeaders() : {}) },
  }
}

export const fsLogs = handleAllocation(
  {
    name: 'host.logs',
    summary: 'Read or follow the log of a task',
    path: 'fs/logs/:alloc_id',
    input: logsInput,
    output: 'stream',
    needs: ['read-logs', 'read-fs'],
    endless: (input) => input.follow,
  },
  (host: LogsHost) => (allocation, input, call) => serve(host, allocation, input, call),
)
