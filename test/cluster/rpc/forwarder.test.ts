/** Calls from one process to a node, over the broker in memory and over a real NATS server, with the same results. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { after, test, type TestContext } from 'node:test'
import { MemoryBroker } from '../../../src/cluster/nats/message-bus.ts'
import { openNatsBus } from '../../../src/cluster/nats/nats-bus.ts'
import { decodeAnswer } from '../../../src/cluster/rpc/call-wire.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { isStreamHead } from '../../../src/platform/operation.ts'
import { collect, FRAME_CHUNKS, type World, worldOver } from '../../helpers/call-world.ts'
import { startNatsServer } from '../../helpers/nats-server.ts'
import { recordingLogger, root } from '../../host/allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'

function suite(name: string, world: (t: TestContext) => Promise<World>): void {
  test(`${name}: values, refusals and faults arrive unchanged`, async (t) => {
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
    const from = { ...call('test.caller'), token: 't', remote: '10.0.0.1' }
    assert.equal(await forwarder.value(from), '[null,null,"root",true]', 'a node gets neither token nor address')
    await assert.rejects(forwarder.value(call('test.unknown')), { code: 'not_implemented' })
    await assert.rejects(forwarder.value(call('test.value', { bytes: 'x' })), { code: 'invalid_request' })
    await assert.rejects(forwarder.value({ ...call('test.value'), nodeId: 'elsewhere', identity: root }), {
      code: 'not_found',
      message: 'No path to node',
    })
    await eventually(() => server.calls === 0 && forwarder.calls === 0)
  })

  test(`${name}: a stream arrives complete, with its head`, async (t) => {
    const { forwarder, call, server } = await world(t)
    const { head, bytes } = await collect(forwarder.stream(call('test.stream', { bytes: '5000001' })))
    assert.deepEqual(head, { status: 200, contentType: 'text/plain', headers: { 'X-Outpost-Event': 'yes' } })
    assert.equal(bytes.length, 5_000_001)
    for (let at = 0, turn = 1; at < bytes.length; at += 300_000, turn++) assert.equal(bytes[at], turn % 251)
    await assert.rejects(collect(forwarder.stream(call('test.stream', { say: 'refuse' }))), {
      code: 'conflict',
      headers: { 'Retry-After': '7' },
    })
    await assert.rejects(
      collect(forwarder.stream(call('test.stream', { bytes: '10', say: 'break' }))),
      /internal error/,
    )
    await eventually(() => server.calls === 0 && forwarder.calls === 0)
  })

  test(`${name}: a reader that does not read stops the node, and its disconnection ends the operation`, async (t) => {
    const { forwarder, call, seen, server } = await world(t)
    const iterator = forwarder.stream(call('test.stream', { bytes: '200000000' }))
    await iterator.next()
    await iterator.next()
    // Meanwhile another one reads ten times as much as may be under way.
    await collect(forwarder.stream(call('test.stream', { bytes: '40000000' })))
    await eventually(() => seen.length === 3)
    assert.deepEqual(seen.splice(1), ['begun', 'over'])
    assert.deepEqual(seen, ['begun'])
    await iterator.return(undefined)
    await eventually(() => seen.length === 2 && server.calls === 0)
    const abort = new AbortController()
    const waiting = collect(forwarder.stream(call('test.stream', { say: 'stay' }, abort.signal)))
    await eventually(() => seen.length === 3)
    abort.abort()
    await assert.rejects(waiting)
    await eventually(() => seen.length === 4 && server.calls === 0)
  })
}

function largeSuite(name: string, world: (t: TestContext) => Promise<World>): void {
  test(`${name}: a value larger than a message arrives complete`, async (t) => {
    const { forwarder, call } = await world(t)
    // Characters of three bytes, which no message boundary may cut.
    const said = '€'.repeat(1_500_000)
    assert.equal(
      await forwarder.value(call('test.value', { say: 'large', bytes: '1500000' })),
      JSON.stringify({ said }),
    )
    assert.equal(await forwarder.value(call('test.value', { say: 'text' })), '{"said":"as it is"}')
  })

  test(`${name}: frames arrive in the chunks in which they were sent, for any size`, async (t) => {
    const { forwarder, call } = await world(t)
    const { head, lengths, bytes } = await collect(forwarder.stream(call('test.stream', { say: 'frames' })))
    assert.deepEqual(head, { status: 200, contentType: 'application/json', frames: true })
    assert.equal(
      bytes.length,
      FRAME_CHUNKS.reduce((sum, length) => sum + length, 0),
    )
    // Several may come together, none is torn.
    const ends = new Set<number>()
    FRAME_CHUNKS.reduce((end, length) => ends.add(end + length) && end + length, 0)
    lengths.reduce((end, length) => {
      assert.ok(ends.has(end + length), `a chunk ends at ${end + length}`)
      return end + length
    }, 0)
    let [at, chunk] = [0, 0]
    for (const length of FRAME_CHUNKS) {
      for (const place of [at, at + length - 1]) assert.equal(bytes[place], chunk % 251)
      at += length
      chunk++
    }
  })

  test(`${name}: fifty readers that do not read use little memory, and another reader receives everything meanwhile`, async (t) => {
    const { forwarder, call, server, sent } = await world(t)
    const stalled = await Promise.all(
      Array.from({ length: 49 }, async () => {
        const iterator = forwarder.stream(call('test.stream', { bytes: '100000000' }))[Symbol.asyncIterator]()
        await iterator.next()
        await iterator.next()
        return iterator
      }),
    )
    const before = sent()
    const { bytes } = await collect(forwarder.stream(call('test.stream', { bytes: '5000001' })))
    assert.equal(bytes.length, 5_000_001)
    assert.ok(before < 49 * 256 * 1024, `${before} bytes are under way`)
    for (const iterator of stalled) await iterator.return?.(undefined)
    await eventually(() => server.calls === 0 && forwarder.calls === 0)
  })
}

test('a small answer of known length is returned in one piece together with its end', async (t) => {
  const broker = new MemoryBroker()
  const { forwarder, call } = await worldOver(t, () => broker.connect())
  const ends: number[] = []
  broker.connect().subscribe('outpost.global.server.caller.reply.>', ({ payload }) => {
    const answer = decodeAnswer(payload)
    if (answer?.kind === 'end') ends.push(answer.sequence)
  })
  for (const bytes of [1, 35_000, 65_536]) {
    const { head, lengths } = await collect(forwarder.stream(call('test.stream', { say: 'part', bytes: `${bytes}` })))
    assert.deepEqual(head, { status: 200, contentType: 'application/octet-stream', contentLength: bytes })
    assert.deepEqual(
      lengths.filter((length) => length > 0),
      [bytes],
    )
    assert.deepEqual(ends.splice(0), [Math.ceil(bytes / 10_000)])
  }
  const larger = await collect(forwarder.stream(call('test.stream', { say: 'part', bytes: '100000' })))
  assert.ok(larger.lengths.length > 1)
  assert.equal(larger.bytes.length, 100_000)
  assert.deepEqual(ends, [10])
  const nothing = await collect(forwarder.stream(call('test.stream', { say: 'part', bytes: '0' })))
  assert.deepEqual(nothing.lengths, [])
  assert.deepEqual(ends, [10, 0])
})

test('the buffer of a small answer is reused only after its reader has requested the chunk after the last one', async (t) => {
  const { forwarder, call } = await inMemory(t)
  const begin = async () => {
    const iterator = forwarder.stream(call('test.stream', { say: 'part', bytes: '10000' }))
    await iterator.next()
    const { value } = await iterator.next()
    assert.ok(value instanceof Uint8Array && value.length === 10_000)
    return { iterator, chunk: value }
  }
  const one = await begin()
  const two = await begin()
  assert.notEqual(two.chunk.buffer, one.chunk.buffer)
  // An abandoned buffer may still be read.
  await two.iterator.return(undefined)
  await one.iterator.next()
  const three = await begin()
  for (const { chunk } of [two, three]) assert.notEqual(chunk.buffer, one.chunk.buffer)
  assert.notEqual(three.chunk.buffer, two.chunk.buffer)
  assert.deepEqual(await one.iterator.next(), { done: true, value: undefined })
  const four = await begin()
  assert.equal(four.chunk.buffer, one.chunk.buffer)
  for (const { iterator } of [three, four]) await iterator.return(undefined)
})

test('a small answer that breaks returns the received bytes before the error', async (t) => {
  const { forwarder, call } = await inMemory(t)
  const lengths: number[] = []
  await assert.rejects(async () => {
    for await (const chunk of forwarder.stream(call('test.stream', { say: 'cut', bytes: '40000' }))) {
      if (!isStreamHead(chunk)) lengths.push(chunk.length)
    }
  }, /internal error/)
  assert.deepEqual(lengths, [20_000])
})

const inMemory = (t: TestContext) => {
  const broker = new MemoryBroker()
  return worldOver(t, () => broker.connect())
}

/** By their configuration: one server for all tests that do not end it. */
const shared = new Map<string, ReturnType<typeof startNatsServer>>()
const atEnd: (() => unknown)[] = []
// While the file is loaded: in a test, it would stop the servers after that test.
after(async () => {
  for (const end of atEnd.splice(0)) await end()
})

function sharedNats(config: string): ReturnType<typeof startNatsServer> {
  const nats = shared.get(config) ?? startNatsServer({ after: (end) => void atEnd.push(end as () => unknown) }, config)
  shared.set(config, nats)
  return nats
}

const overNats = async (t: TestContext, config = '') => {
  const nats = await sharedNats(config)
  return worldOver(t, () => openNatsBus({ servers: [nats.url], name: 'test', logger: recordingLogger() }))
}

largeSuite('in one process', inMemory)
largeSuite('over NATS', overNats)
largeSuite('over NATS with small messages', (t) => overNats(t, 'max_payload: 9000'))

test('a request larger than a message is refused as too large', async (t) => {
  const { forwarder, call } = await overNats(t, 'max_payload: 9000')
  await assert.rejects(forwarder.value(call('test.value', { say: 'x'.repeat(9000) })), { code: 'body_too_large' })
  assert.equal(await forwarder.value(call('test.value', { say: 'hello' })), '{"said":"hello"}')
})

test('a call whose caller has disconnected before it starts is not sent', async (t) => {
  const { forwarder, call, seen } = await inMemory(t)
  await assert.rejects(collect(forwarder.stream(call('test.stream', {}, AbortSignal.abort()))))
  assert.equal(await forwarder.value(call('test.value', { say: 'hello' })), '{"said":"hello"}')
  assert.deepEqual(seen, [])
})

suite('in one process', inMemory)

suite('over NATS', overNats)

test('a killed NATS server breaks streams, and calls work again after its restart', async (t) => {
  const nats = await startNatsServer(t)
  const world = await worldOver(t, () => openNatsBus({ servers: [nats.url], name: 'test', logger: recordingLogger() }))
  const waiting = collect(world.forwarder.stream(world.call('test.stream', { say: 'stay' })))
  await eventually(() => world.seen.length === 1)
  await nats.kill()
  await assert.rejects(waiting, { code: 'no_answer' })
  await assert.rejects(world.forwarder.value(world.call('test.value')), { code: 'not_connected' })
  await eventually(() => world.seen.length === 2)
  await nats.restart()
  await eventually(() => world.buses.every(({ isConnected }) => isConnected))
  // The node subscribes a moment after the caller is connected, or before.
  const again = () => world.forwarder.value(world.call('test.value', { say: 'again' })).catch(() => undefined)
  assert.equal(await eventually(again, 'calls work again'), '{"said":"again"}')
})
