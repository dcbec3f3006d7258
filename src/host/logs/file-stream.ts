/**
 * `fs/stream`: the bytes of one file as frames, and with `follow` the bytes appended to it.
 *
 * The stream ends, after all bytes of the file and an event frame, when the file is deleted or its name belongs to another
 * file. A truncation is an event frame too, and the stream continues at the new beginning.
 */
import type { Call, StreamHead } from '../../platform/operation.ts'
import { type Field, queryBoolean, queryInteger, schema } from '../../platform/schema.ts'
import type { Allocation, AllocationTable } from '../allocations/allocation.ts'
import { allocIdParam, handleAllocation, originQuery, pathQuery } from '../allocations/allocation-operation.ts'
import type { BufferLease } from '../files/buffers.ts'
import { scopeHash } from './locate/resume-cursor.ts'
import { FileCursor } from './follow/file-cursor.ts'
import { SingleFileFollower, SingleFileReader, startOfFile } from './single-file.ts'
import type { Followers } from './follow/followers.ts'
import { LineStage } from './search/line-stage.ts'
import { tasksEnded } from './log-selection.ts'
import {
  type LogStreamOptions,
  streamOptionFields,
  startRequestOf,
  hasStartPosition,
  grepOptionsOf,
} from './stream-parameters.ts'
import { StreamEncoder } from './stream/stream-encoder.ts'
import { follow, leased, readOnce } from './stream/stream-serving.ts'

interface FsStreamInput extends LogStreamOptions {
  readonly alloc_id: string
  readonly path: string
  readonly follow: boolean
  readonly offset: number
  readonly origin: string
}

const requiredOffset = queryInteger({ description: 'First byte, counted from the origin', fallback: 0, required: true })
const optionalOffset = queryInteger({ description: '', fallback: 0 })

/** Required unless another parameter sets the start position. */
const offset: Field<number> = {
  ...requiredOffset,
  required: false,
  description: 'First byte, counted from the origin; required without cursor, tail_lines and since',
  parse: (raw, name) => (hasStartPosition(raw) ? optionalOffset : requiredOffset).parse(raw, name),
}

const streamInput = schema({
  alloc_id: allocIdParam,
  path: pathQuery,
  follow: queryBoolean({ description: 'Follow the file', fallback: true }),
  offset,
  origin: originQuery,
  ...streamOptionFields,
})

const HEAD: StreamHead = {
  status: 200,
  contentType: 'text/plain; charset=utf-8',
  headers: { 'X-Content-Type-Options': 'nosniff' },
  frames: true,
}

const head = (): StreamHead => HEAD

interface StreamHost {
  readonly allocations: AllocationTable
  readonly followers: Followers
}

function serve(host: StreamHost, allocation: Allocation, input: FsStreamInput, call: Call) {
  const scope = scopeHash('stream', allocation.id)
  const at = startRequestOf(input, scope)
  const encoder = new StreamEncoder({ framed: true, scope: input.cursor === undefined ? undefined : scope })
  const lines = grepOptionsOf(input)
  const stage = lines && new LineStage(encoder, lines)
  const { followers, allocations } = host
  const start = () => startOfFile(allocation, input.path, at, call.signal)
  if (!input.follow) {
    const once = async (lease: BufferLease) => ({
      source: new SingleFileReader(await start(), input.path, lease),
      notice: undefined,
    })
    return leased(encoder.lease, readOnce({ encoder, stage, head, open: once }))
  }
  return follow({
    followers,
    call,
    encoder,
    stage,
    head,
    async open(lease) {
      const begun = await start()
      const { content, mark } = begun
      const { files } = followers
      const cursor = new FileCursor({ files, content, root: allocation.directory, position: mark.offset, lease })
      // Events are in the frames.
      return { source: new SingleFileFollower(cursor, input.path, begun), notice: undefined }
    },
    ended: input.end_when_done ? () => tasksEnded(allocations.get(allocation.id), '*') : undefined,
  })
}

export const fsStream = handleAllocation(
  {
    name: 'host.fs_stream',
    summary: 'Follow a file as frames',
    path: 'fs/stream/:alloc_id',
    input: streamInput,
    output: 'stream',
    needs: ['read-fs'],
    endless: (input) => input.follow,
  },
  (host: StreamHost) => (allocation, input, call) => serve(host, allocation, input, call),
)
