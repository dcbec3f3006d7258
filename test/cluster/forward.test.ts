/** Calls from one process to a node, over the bus within a process and over a real NATS server: the same code, the same results. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { type ForwardedRequest, Forwarder } from '../../src/cluster/forward.ts'
import { type Link, MemoryBus } from '../../src/cluster/link.ts'
import { openNatsLink } from '../../src/cluster/nats-link.ts'
import { CallServer } from '../../src/cluster/serve.ts'
import { Subjects } from '../../src/cluster/subjects.ts'
import { Refusal } from '../../src/kit/errors.ts'
import type { AnyOperation, Call, Chunk, Operation } from '../../src/kit/operation.ts'
import { isStreamHead } from '../../src/kit/operation.ts'
import { queryInteger, queryText, schema } from '../../src/kit/schema.ts'
import { keepingLogger, root, until } from '../host/host-fixture.ts'
import { startNatsServer } from '../helpers/nats-server.ts'

const NODE = '6f1c0b9e-2f0a-4a51-9d0c-0a1b2c3d4e5f'

interface Wanted {
  readonly bytes: number
  readonly say: string
}

/** What a node offers here; `seen` is told of every call and of every way out. */
function operationsFor(seen: string[]): AnyOperation[] {
  const common = { target: 'node', errorFormat: 'plain', authorize: () => undefined } as const
  const input = schema({
    bytes: queryInteger({ description: '', fallback: 0 }),
    say: queryText({ description: '', fallback: '' }),
  })
  async function* stream(wanted: Wanted, call: Call): AsyncGenerator<Chunk> {
    seen.push('begun')
    try {
      if (wanted.say === 'refuse') throw new Refusal('conflict', 'not now', { 'Retry-After': '7' })
      yield { status: 200, contentType: 'text/plain', headers: { 'X-Thing': 'yes' } }
      const buffers = [Buffer.alloc(300_000), Buffer.alloc(300_000)] as const
      let turn = 0
      for (let at = 0; at < wanted.bytes && !call.signal.aborted; at += 300_000) {
        const buffer = buffers[turn++ % 2] ?? buffers[0]
        buffer.fill(turn % 251)
        yield buffer.subarray(0, Math.min(300_000, wanted.bytes - at))
      }
      if (wanted.say === 'break') throw new Error('a secret detail')
      if (wanted.say === 'stay')
        await new Promise<void>((resolve) => call.signal.addEventListener('abort', () => resolve()))
    } finally {
      seen.push('over')
    }
  }
  const streaming: Operation<Wanted, never> = {
    ...common,
    name: 'test.stream',
    summary: '',
    http: ['GET /v1/stream'],
    output: 'stream',
    input,
    run: (wanted, call) => stream(wanted, call),
  }
  const value: Operation<Wanted, unknown> = {
    ...common,
    name: 'test.value',
    summary: '',
    http: ['GET /v1/value'],
    output: 'json',
    input,
    async run({ say }) {
      if (say === 'refuse') throw new Refusal('not_found', 'no such thing')
      if (say === 'fault') throw new Error('a secret detail')
      return { said: say }
    },
  }
  return [streaming, value]
}

interface World {
  readonly forwarder: Forwarder
  readonly server: CallServer
  readonly seen: string[]
  readonly links: readonly Link[]
  readonly call: (operation: string, query?: Record<string, string>, signal?: AbortSignal) => ForwardedRequest
}

async function worldOver(t: TestContext, open: () => Promise<Link> | Link): Promise<World> {
  const seen: string[] = []
  const links = [await open(), await open()] as const
  await until(() => links.every(({ isConnected }) => isConnected))
  const subjects = new Subjects('global')
  const logger = keepingLogger()
  const options = {
    link: links[1],
    subjects,
    as: { nodeId: NODE },
    operations: operationsFor(seen),
    logger,
    callsMax: 50,
  }
  const server = new CallServer({ ...options, resolve: () => root })
  const forwarder = new Forwarder({ link: links[0], subjects })
  server.start()
  forwarder.start({ serverId: 'caller' })
  t.after(async () => {
    forwarder.stop()
    server.stop()
    for (const link of links) await link.close()
  })
  // A subscription takes effect a moment after it was made.
  await new Promise((resolve) => setTimeout(resolve, 100))
  return {
    forwarder,
    server,
    seen,
    links,
    call: (operation, query = {}, signal = new AbortController().signal) => ({
      nodeId: NODE,
      operation,
      input: { params: {}, query: Object.entries(query), headers: {}, body: undefined },
      token: undefined,
      requestId: 'r-1',
      hops: 0,
      signal,
    }),
  }
}

async function collect(chunks: AsyncIterable<Chunk>) {
  const parts: Uint8Array[] = []
  let head: Chunk | undefined
  for await (const chunk of chunks) {
    if (isStreamHead(chunk)) head = chunk
    else parts.push(Buffer.from(chunk))
  }
  return { head, bytes: Buffer.concat(parts) }
}

function suite(name: string, world: (t: TestContext) => Promise<World>): void {
  test(`${name}: values, refusals and faults come as they are`, async (t) => {
    const { forwarder, call, server } = await world(t)
    assert.equal(await forwarder.value(call('test.value', { say: 'hello' })), '{"said":"hello"}')
    await assert.rejects(forwarder.value(call('test.value', { say: 'refuse' })), {
      code: 'not_found',
      message: 'no such thing',
    })
    await assert.rejects(forwarder.value(call('test.value', { say: 'fault' })), (error: Error) => {
      assert.ok(!(error instanceof Refusal) && !error.message.includes('secret'))
      return true
    })
    await assert.rejects(forwarder.value(call('test.unknown')), { code: 'not_implemented' })
    await assert.rejects(forwarder.value(call('test.value', { bytes: 'x' })), { code: 'invalid_request' })
    await assert.rejects(forwarder.value({ ...call('test.value'), nodeId: 'elsewhere' }), {
      code: 'not_found',
      message: 'No path to node',
    })
    await until(() => server.calls === 0 && forwarder.calls === 0)
  })

  test(`${name}: a stream comes whole, with its head`, async (t) => {
    const { forwarder, call, server } = await world(t)
    const { head, bytes } = await collect(forwarder.stream(call('test.stream', { bytes: '20000001' })))
    assert.deepEqual(head, { status: 200, contentType: 'text/plain', headers: { 'X-Thing': 'yes' } })
    assert.equal(bytes.length, 20_000_001)
    for (let at = 0, turn = 1; at < bytes.length; at += 300_000, turn++) assert.equal(bytes[at], turn % 251)
    await assert.rejects(collect(forwarder.stream(call('test.stream', { say: 'refuse' }))), {
      code: 'conflict',
      headers: { 'Retry-After': '7' },
    })
    await assert.rejects(
      collect(forwarder.stream(call('test.stream', { bytes: '10', say: 'break' }))),
      /internal error/,
    )
    await until(() => server.calls === 0 && forwarder.calls === 0)
  })

  test(`${name}: a reader that takes nothing holds the node back; one that leaves ends it`, async (t) => {
    const { forwarder, call, seen, server } = await world(t)
    const iterator = forwarder.stream(call('test.stream', { bytes: '200000000' }))
    await iterator.next()
    await iterator.next()
    await new Promise((resolve) => setTimeout(resolve, 300))
    assert.deepEqual(seen, ['begun'])
    await iterator.return(undefined)
    await until(() => seen.length === 2 && server.calls === 0)
    const abort = new AbortController()
    const waiting = collect(forwarder.stream(call('test.stream', { say: 'stay' }, abort.signal)))
    await until(() => seen.length === 3)
    abort.abort()
    await assert.rejects(waiting)
    await until(() => seen.length === 4 && server.calls === 0)
  })
}

suite('in one process', (t) => {
  const bus = new MemoryBus()
  return worldOver(t, () => bus.link())
})

suite('over NATS', async (t) => {
  const nats = await startNatsServer(t)
  return worldOver(t, () => openNatsLink({ servers: [nats.url], name: 'test', logger: keepingLogger() }))
})

test('a NATS server that is killed breaks streams, and calls work again when it is back', async (t) => {
  const nats = await startNatsServer(t)
  const world = await worldOver(t, () => openNatsLink({ servers: [nats.url], name: 'test', logger: keepingLogger() }))
  const waiting = collect(world.forwarder.stream(world.call('test.stream', { say: 'stay' })))
  await until(() => world.seen.length === 1)
  await nats.kill()
  await assert.rejects(waiting, { code: 'no_answer' })
  await assert.rejects(world.forwarder.value(world.call('test.value')), { code: 'unavailable' })
  await until(() => world.seen.length === 2)
  await nats.restart()
  await until(() => world.links.every(({ isConnected }) => isConnected))
  await new Promise((resolve) => setTimeout(resolve, 200))
  assert.equal(await world.forwarder.value(world.call('test.value', { say: 'again' })), '{"said":"again"}')
})
