/** Bodies of requests that are sent to another server while they are received. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import { ReceivedBody } from '../../../src/cluster/rpc/call-body.ts'
import { CallServer } from '../../../src/cluster/rpc/call-server.ts'
import { Forwarder } from '../../../src/cluster/rpc/forwarder.ts'
import { MemoryBroker } from '../../../src/cluster/nats/message-bus.ts'
import { Subjects } from '../../../src/cluster/nats/subjects.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import type { Call, Operation } from '../../../src/platform/operation.ts'
import { schema } from '../../../src/platform/schema.ts'
import { recordingLogger, root } from '../../host/allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'
import { sealingFor } from '../../helpers/sealed-world.ts'

const subjects = new Subjects('global')

/** A server with one operation that takes a body, and a caller. */
function world(t: TestContext, take: (call: Call) => Promise<unknown>) {
  const operation: Operation<Record<string, never>, unknown> = {
    name: 'test.upload',
    summary: '',
    http: ['POST /v1/upload'],
    target: 'server',
    input: schema({}),
    output: 'json',
    errorFormat: 'errors',
    takesStream: true,
    authorize: () => undefined,
    run: async (_input, call) => take(call),
  }
  const broker = new MemoryBroker()
  const buses = [broker.connect(), broker.connect()] as const
  const logger = recordingLogger()
  const serverId = 's1'
  const { taken } = sealingFor(t, { bus: buses[0], subjects, self: { serverId }, logger })
  const as = { serverId, sealed: taken.any, callers: { resolve: () => root } }
  const server = new CallServer({ subjects, operations: [operation], logger, callsMax: 9, bus: buses[0], as })
  server.start()
  const forwarder = new Forwarder({ bus: buses[1], subjects })
  const self = { serverId: 's2' }
  forwarder.start(self, { sender: sealingFor(t, { bus: buses[1], subjects, self, logger }).calls })
  t.after(() => {
    forwarder.stop()
    server.stop()
  })
  const upload = async (body: AsyncIterable<Uint8Array>, signal = new AbortController().signal) => {
    const input = { params: {}, query: [], headers: {}, body: undefined }
    const call = { token: undefined, operation: 'test.upload', input, requestId: 'r', hops: 0, signal, body }
    return JSON.parse((await forwarder.value(call)) ?? 'null') as unknown
  }
  return { upload, server, forwarder }
}

async function* chunks(list: readonly Uint8Array[], onRead: (at: number) => void = () => undefined, error?: Error) {
  for (const [at, chunk] of list.entries()) {
    onRead(at)
    yield chunk
  }
  if (error) throw error
}

/** Reads the whole body. */
async function hashed({ body }: Call): Promise<unknown> {
  const sum = createHash('sha256')
  let bytes = 0
  for await (const chunk of body ?? []) {
    sum.update(chunk)
    bytes += chunk.length
  }
  return { bytes, sha256: sum.digest('hex') }
}

test('a body of any length arrives unchanged', async (t) => {
  const { upload, forwarder, server } = world(t, hashed)
  for (const lengths of [[], [0], [1], [16_384, 16_385], [5 << 20, 3, 700_000]]) {
    const list = lengths.map((length, at) => Buffer.alloc(length, `part ${at}`))
    const whole = Buffer.concat(list)
    const sha256 = createHash('sha256').update(whole).digest('hex')
    assert.deepEqual(await upload(chunks(list)), { bytes: whole.length, sha256 })
  }
  await eventually(() => server.calls === 0)
  assert.equal(forwarder.calls, 0)
})

test('a body is read as fast as the operation takes it, and not before it is accepted', async (t) => {
  const gate = Promise.withResolvers<void>()
  let read = 0
  const { upload } = world(t, async (call) => {
    await gate.promise
    let taken = 0
    for await (const chunk of call.body ?? []) {
      taken += chunk.length
      assert.ok(read * 100_000 - taken < 3 << 20, `${read} chunks were read, ${taken} bytes taken`)
      await new Promise((resolve) => setImmediate(resolve))
    }
    return taken
  })
  const list = Array.from({ length: 80 }, () => Buffer.alloc(100_000))
  const uploaded = upload(chunks(list, (at) => (read = at + 1)))
  await new Promise((resolve) => setTimeout(resolve, 50))
  assert.equal(read, 0)
  gate.resolve()
  assert.equal(await uploaded, 8_000_000)
})

test('a refused call leaves its body unread', async (t) => {
  let isRead = false
  const { upload } = world(t, async () => {
    throw new Refusal('not_active', 'another server is active')
  })
  const body = chunks([Buffer.from('a')], () => (isRead = true))
  await assert.rejects(upload(body), (error) => error instanceof Refusal && error.code === 'not_active')
  assert.equal(isRead, false)
})

test('a body that breaks, or whose caller has gone, never looks complete', async (t) => {
  const seen: unknown[] = []
  const { upload, server } = world(t, (call) => hashed(call).then((value) => seen.push(value)))
  const broken = upload(chunks([Buffer.alloc(50_000)], undefined, new Refusal('request_timeout', 'too slow')))
  await assert.rejects(broken, (error) => error instanceof Refusal && error.code === 'request_timeout')
  const caller = new AbortController()
  const left = upload(endless(), caller.signal)
  setTimeout(() => caller.abort(), 50)
  await assert.rejects(left, Refusal)
  await eventually(() => server.calls === 0)
  assert.deepEqual(seen, [])
})

test('a lost part, and more bytes than allowed, break the body', async () => {
  const complete = await bytesOf((body) => {
    for (const message of [part(0, 10), part(1, 5), part(2, 0), part(2, 0, true)]) body.receive(message)
  })
  assert.equal(complete, 15)
  const lost = bytesOf((body) => {
    for (const message of [part(0, 10), part(2, 0, true)]) body.receive(message)
  })
  await assert.rejects(lost, /part of the request was lost/)
  await assert.rejects(
    bytesOf((body) => body.receive(part(0, 4 << 20))),
    /more bytes than allowed/,
  )
})

async function* endless() {
  for (;;) {
    yield Buffer.alloc(50_000)
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

function part(sequence: number, length: number, isLast = false) {
  return { kind: 'body', sequence, bytes: Buffer.alloc(length), isLast } as const
}

async function bytesOf(receive: (body: ReceivedBody) => void): Promise<number> {
  const body = new ReceivedBody(() => setImmediate(() => receive(body)))
  let bytes = 0
  for await (const chunk of body) bytes += chunk.length
  return bytes
}
