/** Answers from the server with the core through another process: whole ones and streams. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { Forwarder } from '../../src/cluster/rpc/forwarder.ts'
import { MemoryBroker } from '../../src/cluster/nats/message-bus.ts'
import { CallServer } from '../../src/cluster/rpc/call-server.ts'
import { type ClusterMember, Subjects } from '../../src/cluster/nats/subjects.ts'
import { Fault, Refusal } from '../../src/platform/errors.ts'
import { type Call, type Operation, StreamedAnswer, WholeAnswer } from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'
import { recordingLogger, root } from '../host/allocations/host-fixture.ts'
import { eventually } from '../helpers/eventually.ts'
import { sealingFor } from '../helpers/sealed-world.ts'

const NODE = '6f1c0b9e-2f0a-4a51-9d0c-000000000001'
const subjects = new Subjects('global')

/** Asks for `answer` from a server, or from a node. */
function asking(
  t: TestContext,
  answer: WholeAnswer | StreamedAnswer | ((call: Call) => StreamedAnswer),
  from: 'server' | 'node' = 'server',
) {
  const operation: Operation<Record<string, never>, WholeAnswer | StreamedAnswer> = {
    name: 'test.whole',
    summary: '',
    http: ['GET /v1/whole'],
    target: 'server',
    input: schema({}),
    output: 'answer',
    errorFormat: 'errors',
    authorize: () => undefined,
    run: async (_input, call) => (typeof answer === 'function' ? answer(call) : answer),
  }
  const broker = new MemoryBroker()
  const logger = recordingLogger()
  const buses = [broker.connect(), broker.connect()] as const
  const as: ClusterMember = from === 'server' ? { serverId: 's1' } : { nodeId: NODE }
  const self = { serverId: 's2' }
  const sealing = sealingFor(t, { bus: buses[0], subjects, self: as, logger })
  const serving =
    'serverId' in as
      ? { ...as, sealed: sealing.taken.any, callers: { resolve: () => root } }
      : { ...as, admission: { identityOf: async () => root } }
  const server = new CallServer({ subjects, operations: [operation], logger, callsMax: 9, bus: buses[0], as: serving })
  server.start()
  const forwarder = new Forwarder({ bus: buses[1], subjects })
  const { calls: sender } = sealingFor(t, { bus: buses[1], subjects, self, logger })
  forwarder.start(self, { sender })
  t.after(() => {
    forwarder.stop()
    server.stop()
  })
  const request = {
    ...('nodeId' in as ? { nodeId: NODE, identity: root } : { token: undefined }),
    operation: 'test.whole',
    input: { params: {}, query: [], headers: {}, body: undefined },
    requestId: 'r',
    hops: 0,
    signal: new AbortController().signal,
  }
  return { forwarder, request, server }
}

const EVERY_BYTE = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))

test('status, headers and body arrive unchanged, for any bytes and any length', async (t) => {
  const headers = { 'Content-Type': 'application/json', 'X-Odd': 'ü "quoted"' }
  const text = '{"data":{"text":"€ \\ud800 \u2028"}}'
  const bodies: [string | Uint8Array | undefined, Uint8Array | undefined][] = [
    [undefined, undefined],
    ['', Buffer.alloc(0)],
    [text, Buffer.from(text)],
    [EVERY_BYTE, EVERY_BYTE],
    [Buffer.alloc(200_000, EVERY_BYTE), Buffer.alloc(200_000, EVERY_BYTE)],
    [Buffer.alloc(5 << 20, EVERY_BYTE), Buffer.alloc(5 << 20, EVERY_BYTE)],
  ]
  for (const [body, expected] of bodies) {
    const { forwarder, request } = asking(t, new WholeAnswer(418, headers, body, 'who'))
    const answer = await forwarder.whole(request)
    assert.deepEqual([answer.status, answer.headers, answer.accessor], [418, headers, 'who'])
    if (expected === undefined) assert.equal(answer.body, undefined)
    else
      assert.ok(
        answer.body instanceof Uint8Array && Buffer.compare(expected, answer.body) === 0,
        `${expected.length} bytes`,
      )
  }
})

test('a whole answer of a node is rejected, because its headers would be the server’s', async (t) => {
  for (const body of ['{}', Buffer.alloc(200_000)]) {
    const { forwarder, request } = asking(t, new WholeAnswer(200, { 'Set-Cookie': 'a=b' }, body), 'node')
    await assert.rejects(forwarder.whole(request), Fault)
    await assert.rejects(forwarder.answer(request), Fault)
  }
})

async function* chunked(chunks: readonly Uint8Array[], error?: Error): AsyncGenerator<Uint8Array> {
  yield* chunks
  if (error) throw error
}

/** Resolves to the chunks before the end or the error. */
async function taken(answer: WholeAnswer | StreamedAnswer) {
  assert.ok(answer instanceof StreamedAnswer)
  const chunks: Buffer[] = []
  try {
    for await (const chunk of answer.chunks) chunks.push(Buffer.from(chunk))
    return { chunks, error: undefined }
  } catch (error) {
    return { chunks, error }
  }
}

test('a stream of a server arrives with its headers, in whole chunks, and with the error that broke it', async (t) => {
  const headers = { 'Content-Type': 'application/x-ndjson' }
  const lines = [10, 40_000, 1, 700_000].map((length) => Buffer.alloc(length, 'a').fill('\n', length - 1))
  const { forwarder, request } = asking(t, () => new StreamedAnswer(headers, chunked(lines), 'who'))
  const answer = await forwarder.wholeOrStreamed(request)
  assert.deepEqual([answer.headers, answer.accessor], [headers, 'who'])
  const { chunks, error } = await taken(answer)
  assert.equal(error, undefined)
  assert.equal(Buffer.compare(Buffer.concat(chunks), Buffer.concat(lines)), 0)
  assert.ok(
    chunks.every((chunk) => chunk.at(-1) === 10),
    'a chunk ends within a line',
  )
  const gone = new Refusal('not_active', 'another server is active')
  const other = asking(t, () => new StreamedAnswer(headers, chunked(lines, gone)))
  const broken = await taken(await other.forwarder.wholeOrStreamed(other.request))
  assert.equal(Buffer.concat(broken.chunks).length, Buffer.concat(lines).length)
  assert.deepEqual([broken.error, other.forwarder.calls], [gone, 0])
})

test('a stream whose caller has gone ends at the server, also if it was never read', async (t) => {
  for (const isRead of [true, false]) {
    let isOver = false
    const { forwarder, request, server } = asking(t, ({ signal }) => {
      async function* forever(): AsyncGenerator<Uint8Array> {
        try {
          for (;;) {
            yield Buffer.from('line\n')
            await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()))
            if (signal.aborted) return
          }
        } finally {
          isOver = true
        }
      }
      return new StreamedAnswer({}, forever())
    })
    const caller = new AbortController()
    const answer = await forwarder.wholeOrStreamed({ ...request, signal: caller.signal })
    assert.ok(answer instanceof StreamedAnswer)
    const reading = isRead ? taken(answer) : undefined
    caller.abort()
    await eventually(() => isOver && server.calls === 0 && forwarder.calls === 0)
    const error = (await reading)?.error
    assert.equal(error instanceof Error ? error.message : undefined, isRead ? 'the caller has disconnected' : undefined)
  }
})

test('a stream of a node in place of an answer is rejected', async (t) => {
  const { forwarder, request } = asking(t, () => new StreamedAnswer({ 'Set-Cookie': 'a=b' }, chunked([])), 'node')
  await assert.rejects(forwarder.wholeOrStreamed(request), Fault)
})
