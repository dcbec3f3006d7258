/**
 * `fs/logs`: a task's log across its rotated files, as frames or plain, once or for as long as the caller stays.
 *
 * A follow stream stays open when the task ends, because stock clients expect it. It ends broken, not cleanly, when the
 * allocation is collected under it: there is nothing to resume, and a client that is told "end" would ask again for ever.
 */
import { closeSync } from 'node:fs'
import { Refusal } from '../kit/errors.ts'
import type { AnyOperation, Chunk } from '../kit/operation.ts'
import { queryBoolean, queryInteger, queryText, schema } from '../kit/schema.ts'
import { gone } from './alloc-files.ts'
import type { Allocation, AllocationTable } from './allocation.ts'
import { allocationOperation, allocIdParam } from './allocation-operation.ts'
import type { BufferLease } from './buffers.ts'
import { Encoder, follow, type Followed, type Followers, leased, originQuery } from './follow.ts'
import { LogCursor } from './log-cursor.ts'
import { LogFiles, logStart, type LogPlace } from './log-files.ts'
import { OpenFile, readSpan } from './read.ts'

interface LogsInput {
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
  task: queryText({ description: 'Name of the task', fallback: '', required: 'must provide task name' }),
  follow: queryBoolean({ description: 'Go on with what is written', fallback: false }),
  plain: queryBoolean({ description: 'Bytes of the log without frames', fallback: false }),
  type: queryText({
    description: 'Which of its outputs',
    fallback: 'stdout',
    choices: ['stdout', 'stderr'],
    otherwise: 'must provide log type (stdout/stderr)',
  }),
  offset: queryInteger({ description: 'Bytes from the origin', fallback: 0 }),
  origin: originQuery,
})

const headOf = (plain: boolean): Chunk => ({
  status: 200,
  contentType: plain ? 'text/plain' : 'application/json',
  headers: { 'X-Content-Type-Options': 'nosniff' },
})

/** Where to begin, or a Refusal that says why there is no log. */
function placeOf(allocation: Allocation, logs: LogFiles, input: LogsInput): LogPlace {
  if (allocation.collected) throw gone(allocation)
  const task = allocation.tasks.get(input.task)
  if (!task) throw new Refusal('invalid_request', `unknown task name ${JSON.stringify(input.task)}`)
  if (task.state === 'pending' && task.startedAtMs === undefined) {
    throw new Refusal('not_found', `task "${input.task}" not started yet. No logs available`)
  }
  const place = task.logsDisabled ? undefined : logStart(sizesOf(logs), input)
  if (place) return place
  throw new Refusal('not_found', `log entry for task "${input.task}" and log type "${input.type}" not found`)
}

function sizesOf(logs: LogFiles): { index: number; size: number }[] {
  const sizes: { index: number; size: number }[] = []
  for (const index of logs.indexes()) {
    const content = logs.open(index)
    if (!content) continue
    closeSync(content.fd)
    sizes.push({ index, size: Number(content.stat.size) })
  }
  return sizes
}

/** Everything from the place to the end of the newest file; which that is, is looked up again after each. */
async function* readOnce(allocation: Allocation, input: LogsInput, encoder: Encoder): AsyncGenerator<Chunk> {
  const logs = new LogFiles(allocation, input)
  let place: LogPlace | undefined = placeOf(allocation, logs, input)
  yield headOf(input.plain)
  while (place) place = yield* readFile(logs, place, encoder)
}

/**
 * One file from the place to its end. Returns the place to go on at, if there is one: then the file was read to its end
 * once more after the next one was known to exist, as its writer may have added to it until then.
 */
async function* readFile(
  logs: LogFiles,
  place: LogPlace,
  encoder: Encoder,
): AsyncGenerator<Buffer, LogPlace | undefined> {
  const content = logs.open(place.index)
  if (!content) return placeAfter(logs, place) // rotated away since it was listed
  const file = new OpenFile(content.fd)
  encoder.setFile(logs.path(place.index))
  try {
    let position = place.offset
    let next: LogPlace | undefined
    for (;;) {
      const span = { start: position, end: Number.MAX_SAFE_INTEGER, labelBytes: encoder.labelBytes }
      for await (const data of readSpan(file, encoder.lease, span)) {
        yield encoder.data(data, position)
        position += data.length
      }
      if (next) return next
      next = placeAfter(logs, place)
      if (!next) return undefined
    }
  } finally {
    file.close()
  }
}

function placeAfter(logs: LogFiles, place: LogPlace): LogPlace | undefined {
  const index = logs.indexes().find((other) => other > place.index)
  return index === undefined ? undefined : { index, offset: 0 }
}

function openLog(followers: Followers, allocation: Allocation, input: LogsInput, lease: BufferLease): Followed {
  const logs = new LogFiles(allocation, input)
  for (;;) {
    const place = placeOf(allocation, logs, input)
    const cursor = LogCursor.open({ files: followers.files, logs, allocation, lease, place })
    // Rotated away between the listing and the opening: the listing has changed, so look again.
    if (cursor) return cursor
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
      const { followers } = host
      const framed = !input.plain
      if (input.follow) {
        const open = (lease: BufferLease) => openLog(followers, allocation, input, lease)
        return follow({ followers, call, framed, head: headOf(input.plain), open })
      }
      const encoder = new Encoder({ framed })
      return leased(encoder.lease, readOnce(allocation, input, encoder))
    },
  })
}
