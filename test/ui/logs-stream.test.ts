/** The stream of a tail: frames, lines, requests, and what happens when connections break. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ApiError } from '../../ui/api/client.ts'
import { type Frame, FrameReader, MalformedFrame } from '../../ui/api/frame-reader.ts'
import { LineSplitter } from '../../ui/views/logs/stream/line-splitter.ts'
import {
  downloadRequest,
  followRequest,
  type LogRequest,
  type LogSelection,
  type LogTarget,
  pathOfTarget,
  targetOfPath,
  withoutBody,
} from '../../ui/views/logs/stream/log-target.ts'
import { LogSession } from '../../ui/views/logs/model/log-session.ts'
import { ResumingStream, type StreamState } from '../../ui/views/logs/stream/resuming-stream.ts'
import { eventually } from '../helpers/eventually.ts'

const SELECTION: LogSelection = {
  type: '*',
  lines: undefined,
  since: undefined,
  grep: '',
  isInverted: false,
  context: 0,
  cursor: undefined,
}
const TASK: LogTarget = { kind: 'task', allocation: 'a1', task: 'web' }
const JOB: LogTarget = { kind: 'job', namespace: 'default', job: 'shop/web' }

function frameText(data: string, fields: Readonly<Record<string, unknown>> = {}): string {
  return JSON.stringify({ Data: Buffer.from(data).toString('base64'), File: 'alloc/logs/web.stdout.0', ...fields })
}

function frame(data: string | Buffer, offset: number, more: Partial<Frame> = {}): Frame {
  const bytes = Buffer.from(data)
  const file = 'alloc/logs/web.stdout.0'
  return { data: bytes, file, event: '', offset, cursor: undefined, allocationId: '', error: '', ...more }
}

test('frames are read however the stream is split into chunks', () => {
  const text = `${frameText('one\n', { Offset: 4, Cursor: 'c1' })}{}${frameText('zwei ß\n', { Offset: 12, AllocID: 'a' })}`
  const bytes = Buffer.from(text)
  for (let size = 1; size < bytes.length; size++) {
    const reader = new FrameReader()
    const frames: Frame[] = []
    for (let at = 0; at < bytes.length; at += size) frames.push(...reader.push(bytes.subarray(at, at + size)))
    assert.deepEqual(
      frames.map(({ data, offset }) => [data && Buffer.from(data).toString(), offset]),
      [
        ['one\n', 4],
        [undefined, 0],
        ['zwei ß\n', 12],
      ],
    )
    assert.equal(frames[0]?.cursor, 'c1')
    assert.equal(frames[2]?.allocationId, 'a')
    assert.ok(reader.isComplete)
  }
})

test('a file name with braces, which a server escapes, does not end a frame', () => {
  const escaped = frameText('x', { File: 'a "}{" b', Cursor: 'c"3' }).replace('}{', '\\u007d\\u007b')
  const [first, second] = new FrameReader().push(`${escaped}{"FileEvent":"file deleted","Cursor":"c2"}`)
  assert.deepEqual([first?.file, first?.cursor], ['a "}{" b', 'c"3'])
  assert.deepEqual([second?.data, second?.event, second?.cursor], [undefined, 'file deleted', 'c2'])
})

test('the error text of a server at the end of a stream is reported', () => {
  const reader = new FrameReader()
  assert.deepEqual(reader.push('the agent has an inter'), [])
  assert.equal(reader.isComplete, false)
  assert.throws(() => reader.push('nal error {x}'), MalformedFrame)
})

test('lines have the end of each in its file, and continue over frames and rotated files', () => {
  const splitter = new LineSplitter()
  const lines = [
    ...splitter.push(frame('a\nbö\r\n\nhal', 11)),
    ...splitter.push(frame('f ', 13)),
    ...splitter.push(frame('line\nnext\n', 10, { file: 'alloc/logs/web.stdout.1' })),
  ]
  assert.deepEqual(
    lines.map(({ endOffset, file, text }) => [text, file, endOffset]),
    [
      ['a', 'web.stdout.0', 2],
      ['bö', 'web.stdout.0', 7],
      ['', 'web.stdout.0', 8],
      ['half line', 'web.stdout.1', 5],
      ['next', 'web.stdout.1', 10],
    ],
  )
  assert.deepEqual(lines[0]?.log, { allocationId: '', task: 'web', type: 'stdout' })
})

test('a character that is split between frames is whole', () => {
  const splitter = new LineSplitter()
  const bytes = Buffer.from('Größe\n')
  const lines = [...bytes].flatMap((_, at) => splitter.push(frame(bytes.subarray(at, at + 1), at + 1)))
  assert.deepEqual(
    lines.map(({ text }) => text),
    ['Größe'],
  )
})

test('bytes that are not UTF-8 keep the other lines where they are', () => {
  const splitter = new LineSplitter()
  const data = Buffer.concat([Buffer.from([0xff, 0xe2, 0x82, 10]), Buffer.from('next\n')])
  const lines = splitter.push(frame(data, data.length))
  assert.equal(lines.length, 2)
  assert.deepEqual([lines[1]?.text, lines[1]?.endOffset], ['next', 9])
})

test('logs with an incomplete line do not disturb each other', () => {
  const splitter = new LineSplitter()
  const stderr = { file: 'alloc/logs/web.stderr.0' }
  const lines = [
    ...splitter.push(frame('out', 3)),
    ...splitter.push(frame('err\n', 4, stderr)),
    ...splitter.push(frame(' put\n', 8)),
    ...splitter.push(frame('of another\n', 11, { allocationId: 'b' })),
    ...splitter.push(frame('end', 14)),
    ...splitter.finish(),
  ]
  assert.deepEqual(
    lines.map(({ log, text }) => [log.type, log.allocationId, text]),
    [
      ['stderr', '', 'err'],
      ['stdout', '', 'out put'],
      ['stdout', 'b', 'of another'],
      ['stdout', '', 'end'],
    ],
  )
})

test('a line without an end is split, and nothing of it is lost', () => {
  const splitter = new LineSplitter()
  const part = 'x'.repeat(40_000)
  const lines = [
    ...splitter.push(frame(part, 40_000)),
    ...splitter.push(frame(part, 80_000)),
    ...splitter.push(frame('end\n', 80_004)),
  ]
  assert.deepEqual(
    lines.map(({ text }) => text.length),
    [80_000, 3],
  )
})

test('a truncated file has no beginning of a line before', () => {
  const splitter = new LineSplitter()
  splitter.push(frame('half a li', 9))
  splitter.discard(frame('', 0))
  assert.deepEqual(
    splitter.push(frame('new\n', 4)).map(({ text }) => text),
    ['new'],
  )
})

test('targets have a path each', () => {
  for (const target of [TASK, JOB, { kind: 'allocation', allocation: 'a/1' } as const]) {
    assert.deepEqual(targetOfPath(pathOfTarget(target)), target)
  }
  assert.equal(pathOfTarget(JOB), 'job/default/shop%2Fweb')
  assert.equal(targetOfPath(''), undefined)
  assert.equal(targetOfPath('a/b/c'), undefined)
})

test('requests start at a position and resume at cursors, with the same filter', () => {
  const selection = { ...SELECTION, lines: 100, grep: 'a&b', context: 2, isInverted: true }
  const first = new URL(followRequest(TASK, selection, new Map()).url, 'http://x')
  assert.equal(first.pathname, '/v1/client/fs/logs/a1')
  assert.deepEqual(Object.fromEntries(first.searchParams), {
    task: 'web',
    type: '*',
    grep: 'a&b',
    grep_invert: 'true',
    grep_context: '2',
    follow: 'true',
    end_when_done: 'true',
    tail_lines: '100',
    cursor: '',
  })
  const again = new URL(followRequest(TASK, selection, new Map([['', 'c1']])).url, 'http://x')
  assert.equal(again.searchParams.get('cursor'), 'c1')
  assert.equal(again.searchParams.has('tail_lines'), false)
  assert.equal(again.searchParams.get('grep'), 'a&b')
  const cursors = new Map([
    ['a1', 'c1'],
    ['a2', 'c2'],
  ])
  const job = followRequest(JOB, selection, cursors)
  assert.deepEqual([job.method, job.body], ['POST', { Cursors: ['a1.c1', 'a2.c2'] }])
  assert.match(withoutBody(job)?.url ?? '', /&follow=true&cursor=a1\.c1&cursor=a2\.c2$/)
  const many = Array.from({ length: 200 }, (_, at): [string, string] => [`a${at}`, 'c'.repeat(50)])
  assert.equal(withoutBody(followRequest(JOB, selection, new Map(many))), undefined)
  assert.match(job.url, /^\/v1\/job\/shop%2Fweb\/logs\?namespace=default&/)
  assert.match(downloadRequest(TASK, SELECTION).url, /plain=true/)
})

/** A server whose connections are scripted: each is an error, or chunks and how the connection ends. */
class ScriptedServer {
  readonly requests: LogRequest[] = []
  readonly states: StreamState[] = []
  readonly lines: string[] = []
  readonly delaysMs: number[] = []
  readonly #connections: (Error | { chunks: string[]; end?: Error | 'silent' })[]

  constructor(connections: (Error | { chunks: string[]; end?: Error | 'silent' })[]) {
    this.#connections = connections
  }

  async run(target: LogTarget): Promise<void> {
    const abort = new AbortController()
    const splitter = new LineSplitter()
    const stream = new ResumingStream(
      target,
      SELECTION,
      {
        open: (request, signal) => this.#open(request, signal, abort),
        delay: (ms) => {
          this.delaysMs.push(ms)
          return Promise.resolve()
        },
        admit: () => undefined,
      },
      {
        onFrames: (frames) => this.lines.push(...frames.flatMap((each) => splitter.push(each).map(({ text }) => text))),
        onState: (state) => this.states.push(state),
      },
    )
    await stream.run(abort.signal)
  }

  async #open(request: LogRequest, signal: AbortSignal, abort: AbortController): Promise<AsyncIterable<string>> {
    this.requests.push(request)
    const connection = this.#connections.shift()
    if (!connection) {
      abort.abort()
      throw new Error('aborted')
    }
    if (connection instanceof Error) throw connection
    return this.#chunks(connection, signal)
  }

  async *#chunks({ chunks, end }: { chunks: string[]; end?: Error | 'silent' }, signal: AbortSignal) {
    yield* chunks
    if (end === 'silent') await new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error())))
    else if (end) throw end
  }

  kinds(): string[] {
    return this.states.map(({ kind }) => kind)
  }
}

const BROKEN = new TypeError('network error')

test('a broken stream resumes at the cursor of the last whole frame, and repeats and loses nothing', async () => {
  const half = frameText('3\n', { Cursor: 'c3' }).slice(0, 20)
  const server = new ScriptedServer([
    { chunks: [frameText('1\n', { Cursor: 'c1' }), frameText('2\n', { Cursor: 'c2' }) + half], end: BROKEN },
    new ApiError(0, 'refused'),
    new ApiError(503, 'starting'),
    { chunks: [frameText('3\n', { Cursor: 'c3' })], end: BROKEN },
    { chunks: ['{"Cursor":"c4"}', frameText('5\n', { Cursor: 'c5' })] },
  ])
  await server.run(TASK)
  assert.deepEqual(server.lines, ['1', '2', '3', '5'])
  const cursors = server.requests.map(({ url }) => new URL(url, 'http://x').searchParams.get('cursor'))
  assert.deepEqual(cursors, ['', 'c2', 'c2', 'c2', 'c3'])
  assert.deepEqual(server.delaysMs, [250, 500, 1000, 250])
  assert.deepEqual(server.kinds(), [
    'connecting',
    'open',
    'disconnected',
    'disconnected',
    'disconnected',
    'open',
    'disconnected',
    'open',
    'ended',
  ])
})

test('a server that ends within a frame has not ended the log', async () => {
  const server = new ScriptedServer([{ chunks: [frameText('1\n', { Cursor: 'c1' }), '{"Da'] }, { chunks: [] }])
  await server.run(TASK)
  assert.deepEqual(server.kinds(), ['connecting', 'open', 'disconnected', 'open', 'ended'])
})

test('the logs of a job resume at the cursor of each allocation, also after the server has closed the stream', async () => {
  const server = new ScriptedServer([
    { chunks: [frameText('1\n', { Cursor: 'c1', AllocID: 'a' }), frameText('2\n', { Cursor: 'd1', AllocID: 'b' })] },
    { chunks: [frameText('3\n', { Cursor: 'c2', AllocID: 'a' })], end: BROKEN },
  ])
  await server.run(JOB)
  assert.deepEqual(server.requests[1]?.body, { Cursors: ['a.c1', 'b.d1'] })
  assert.deepEqual(server.requests[2]?.body, { Cursors: ['a.c2', 'b.d1'] })
})

test('a refusal ends the stream with its reason', async () => {
  for (const status of [400, 401, 403]) {
    const server = new ScriptedServer([new ApiError(status, 'no')])
    await server.run(TASK)
    assert.deepEqual(server.kinds(), ['connecting', 'failed'])
  }
})

test('a log that does not exist yet is waited for, and one that was read as well', async () => {
  const server = new ScriptedServer([
    new ApiError(404, 'not started yet'),
    { chunks: [frameText('1\n', { Cursor: 'c1' })], end: BROKEN },
    new ApiError(404, 'unknown allocation'),
    { chunks: [frameText('2\n', { Cursor: 'c2' })] },
  ])
  await server.run(TASK)
  assert.deepEqual(server.lines, ['1', '2'])
  assert.deepEqual(server.kinds(), ['connecting', 'waiting', 'open', 'disconnected', 'waiting', 'open', 'ended'])
})

test('a connection without heartbeats is broken', { timeout: 20_000 }, async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const server = new ScriptedServer([
    { chunks: [frameText('1\n', { Cursor: 'c1' })], end: 'silent' },
    { chunks: [frameText('2\n', { Cursor: 'c2' })] },
  ])
  const running = server.run(TASK)
  // The stream waits for a chunk before the time passes.
  while (server.lines.length === 0) await new Promise((resolve) => setImmediate(resolve))
  await new Promise((resolve) => setImmediate(resolve))
  t.mock.timers.tick(4900)
  assert.equal(server.requests.length, 1)
  t.mock.timers.tick(200)
  await running
  assert.deepEqual(server.lines, ['1', '2'])
})

function failed(id: string): string {
  return JSON.stringify({ FileEvent: 'log failed', Error: '404 No path to node', AllocID: id })
}

test('remarks name an allocation and its host, and say that its log is read again', async () => {
  const [known, other] = ['6f1c0b9e-2f0a-4a51-9d0c-000000000001', 'a1b2c3d4-2f0a-4a51-9d0c-000000000002']
  const ended = Promise.withResolvers<undefined>()
  async function* chunks() {
    yield failed(known) + failed(other)
    yield frameText('back\n', { Offset: 5, AllocID: known })
    await ended.promise
  }
  const session = new LogSession({
    target: JOB,
    selection: SELECTION,
    heightOf: () => 1,
    open: () => Promise.resolve(chunks()),
    delay: () => Promise.resolve(),
    nextFrame: () => Promise.resolve(),
    onChange: () => undefined,
  })
  session.remarkNames = new Map([[known, 'web.1 on host-b (6f1c0b9e)']])
  session.start()
  const texts = () =>
    Array.from(
      { length: session.buffer.end - session.buffer.first },
      (_, at) => session.buffer.get(session.buffer.first + at)?.text,
    )
  await eventually(() => texts().includes('back'))
  session.close()
  ended.resolve(undefined)
  assert.deepEqual(texts(), [
    'The log of web.1 on host-b (6f1c0b9e) cannot be read: 404 No path to node',
    'The log of allocation a1b2c3d4 cannot be read: 404 No path to node',
    'The log of web.1 on host-b (6f1c0b9e) is read again.',
    'back',
  ])
})
