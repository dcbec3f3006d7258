/**
 * An attacker with the key of a worker floods a server with calls: new keys that each cost a key agreement, messages
 * that cannot be decrypted, calls that never end, and calls with unlimited credit, which would delay the responses to
 * others. Other hosts resolve tokens at the same server, so they must still be served.
 */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { CallerLimits, CallServer, HOST_CALLS, HOST_CONCURRENT_CALLS_MAX } from '../../src/cluster/rpc/call-server.ts'
import type { CallMessage } from '../../src/cluster/rpc/call-message.ts'
import { CurveKey, sealRequest } from '../../src/cluster/trust/envelope.ts'
import { Forwarder } from '../../src/cluster/rpc/forwarder.ts'
import { type MessageBus, MemoryBroker } from '../../src/cluster/nats/message-bus.ts'
import { SealedCallReceiver } from '../../src/cluster/rpc/sealed-call-receiver.ts'
import { ServedCall } from '../../src/cluster/rpc/served-call.ts'
import { type ClusterMember, Subjects } from '../../src/cluster/nats/subjects.ts'
import { ALLOWED_MAX } from '../../src/cluster/rpc/credit-window.ts'
import { WIRE_VERSION } from '../../src/cluster/rpc/call-wire.ts'
import { Refusal } from '../../src/platform/errors.ts'
import { type Chunk, ANONYMOUS, type Operation } from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'
import { eventually } from '../helpers/eventually.ts'
import { idOf } from '../helpers/fleet-server.ts'
import { recordingLogger } from '../helpers/recording-logger.ts'
import { sealingFor } from '../helpers/sealed-world.ts'

const [HOSTILE, OTHER] = [idOf('bad00000'), idOf('600d0000')]
const subjects = new Subjects('global')

/** Ends when its caller leaves. */
const WAIT: Operation<Record<string, never>, unknown> = {
  name: 'test.wait',
  summary: '',
  http: [],
  target: 'server',
  input: schema({}),
  output: 'json',
  errorFormat: 'plain',
  authorize: () => undefined,
  run: (_input, { signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true })),
}

function serverOn(t: TestContext, bus: MessageBus, limits = new CallerLimits()) {
  const logger = recordingLogger([])
  const self = { serverId: 's1' }
  const sealing = sealingFor(t, { bus, subjects, self, logger })
  const as = { ...self, sealed: sealing.taken.any, callers: { resolve: () => ANONYMOUS } }
  const server = new CallServer({ bus, subjects, as, operations: [WAIT], logger, callsMax: 4096, limits })
  server.start()
  t.after(() => server.stop())
  return { server, curve: sealing.curve }
}

async function callerOn(t: TestContext, bus: MessageBus, self: ClusterMember, signal: AbortSignal) {
  const sealing = sealingFor(t, { bus, subjects, self, logger: recordingLogger([]), hasCore: false })
  const forwarder = new Forwarder({ bus, subjects })
  forwarder.start(self, { sender: sealing.calls })
  t.after(() => forwarder.stop())
  await eventually(() => sealing.keys.servers(false).length > 0, 'the server is heard')
  return (requestId: string) =>
    forwarder.value({
      nodeId: undefined,
      group: 'any',
      operation: WAIT.name,
      input: { params: {}, query: [], headers: {}, body: undefined },
      token: undefined,
      requestId,
      hops: 0,
      signal,
    })
}

test('calls that never end use at most a quarter of the slots, and other hosts get the rest', async (t) => {
  const broker = new MemoryBroker()
  const over = new AbortController()
  const { server } = serverOn(t, broker.connect())
  const attack = await callerOn(t, broker.connect(), { nodeId: HOSTILE }, over.signal)
  const ask = await callerOn(t, broker.connect(), { nodeId: OTHER }, over.signal)
  const refused: unknown[] = []
  for (let at = 0; at < HOST_CONCURRENT_CALLS_MAX + 50; at++)
    attack(`attack-${at}`).catch((why: unknown) => refused.push(why))
  await eventually(
    () => server.calls === HOST_CONCURRENT_CALLS_MAX && refused.length === 50,
    'those beyond are refused',
  )
  assert.ok(refused.every((why) => why instanceof Refusal && why.code === 'too_many'))
  for (let at = 0; at < 20; at++) ask(`other-${at}`).catch(() => undefined)
  await eventually(() => server.calls === HOST_CONCURRENT_CALLS_MAX + 20, 'the calls of another host are served')
  over.abort()
  await eventually(() => server.calls === 0, 'all slots are released')
})

test('concurrent calls of many compromised hosts leave a share to each other host', async (t) => {
  const broker = new MemoryBroker()
  const over = new AbortController()
  // Fewer than in production: a call is given up after seven seconds of silence, which thousands of them can cause on a busy machine.
  const [slots, slotsPerNode] = [192, 64]
  const { server } = serverOn(t, broker.connect(), new CallerLimits({ slots, slotsPerNode }))
  const lost: unknown[] = []
  for (let host = 0; host < 5; host++) {
    const attack = await callerOn(t, broker.connect(), { nodeId: idOf('bad00000', host) }, over.signal)
    for (let at = 0; at < slotsPerNode; at++) attack(`${host}-${at}`).catch((why: unknown) => lost.push(why))
  }
  const beyond = 5 * slotsPerNode - slots
  await eventually(() => lost.length === beyond, 'those beyond are refused, or lose their places')
  assert.equal(server.calls, slots)
  assert.ok(lost.every((why) => why instanceof Refusal && why.code === 'too_many'))
  const ask = await callerOn(t, broker.connect(), { nodeId: OTHER }, over.signal)
  const refused: unknown[] = []
  const share = Math.floor(slots / 6)
  for (let at = 0; at < share; at++) ask(`other-${at}`).catch((why: unknown) => refused.push(why))
  await eventually(() => lost.length === beyond + share, 'places of the others go to it')
  assert.deepEqual(refused, [])
  over.abort()
  await eventually(() => server.calls === 0, 'all slots are released')
})

test('messages above the rate limit are dropped unread, and other hosts are served', async (t) => {
  const broker = new MemoryBroker()
  const bus = broker.connect()
  const { curve } = serverOn(t, bus)
  const send = (host: string, count: number, payload: Uint8Array) => {
    for (let at = 0; at < count; at++) {
      const reply = subjects.reply({ nodeId: host }, 'any', `c${at}`)
      bus.publish(subjects.serverCall('s1', host), payload, reply)
    }
  }
  let told = 0
  const answers = (host: string) =>
    bus.subscribe(subjects.reply({ nodeId: host }, '*', '*'), () => {
      told++
    })
  answers(HOSTILE)
  send(HOSTILE, 3 * HOST_CALLS.capacity, Buffer.alloc(200, 0x10))
  await eventually(() => told >= HOST_CALLS.capacity, 'those within it are refused one by one')
  // Some are let in again meanwhile; this machine would have to stand still for six seconds for all of them.
  assert.ok(told < 2.5 * HOST_CALLS.capacity, `${told} answers`)
  const before = told
  answers(OTHER)
  const other = new CurveKey()
  const to = { subject: subjects.serverCall('s1', OTHER), reply: subjects.reply({ nodeId: OTHER }, 'any', 'c') }
  bus.publish(
    to.subject,
    sealRequest(other.sessionWithServer(curve.publicKey).toServer, headOf(other), to, PAYLOAD),
    to.reply,
  )
  await eventually(() => told > before, 'another host is answered')
})

const PAYLOAD = Buffer.from('no call')

function headOf({ publicKey }: CurveKey) {
  return { callerKey: publicKey, call: 1, clockMs: performance.now() }
}

test('new keys cause a bounded number of key agreements', () => {
  let agreed = 0
  const curve = new (class extends CurveKey {
    override sessionWithCaller(caller: Uint8Array) {
      agreed++
      return super.sessionWithCaller(caller)
    }
  })()
  const calls = new SealedCallReceiver({ bus: new MemoryBroker().connect(), curve })
  const open = (host: string, payload: Uint8Array) =>
    calls.open({
      subject: subjects.serverCall('s1', host),
      reply: subjects.reply({ nodeId: host }, 'any', 'c'),
      payload,
      isNoResponders: false,
    })
  const other = new CurveKey()
  const garbage = (at: number) => {
    const bytes = Buffer.from(
      sealRequest(other.sessionWithServer(curve.publicKey).toServer, headOf(other), TO, PAYLOAD),
    )
    bytes.writeUInt32BE(at, 1)
    return bytes
  }
  const TO = { subject: subjects.serverCall('s1', OTHER), reply: subjects.reply({ nodeId: OTHER }, 'any', 'c') }
  const results = new Set(Array.from({ length: 500 }, (_, at) => open(HOSTILE, garbage(at))))
  assert.deepEqual([...results], ['wrong key', 'too many callers'])
  assert.ok(agreed >= 64 && agreed < 200, `${agreed} agreements`)
  const good = sealRequest(other.sessionWithServer(curve.publicKey).toServer, headOf(other), TO, PAYLOAD)
  assert.ok(typeof open(OTHER, good) !== 'string', 'another host begins a session')
})

test('a caller that grants unlimited credit is sent one window at a time', async () => {
  let sent = 0
  const channel = {
    payloadBytesMax: 1 << 20,
    openControl: (payload: Uint8Array) => payload,
    send(_payload: Uint8Array, rest?: Uint8Array) {
      sent += rest?.length ?? 0
    },
  }
  const message: CallMessage = {
    version: WIRE_VERSION,
    call: 'c',
    operation: WAIT.name,
    requestId: 'greedy',
    hops: 0,
    window: Number.MAX_SAFE_INTEGER,
    input: { params: {}, query: [], headers: {}, body: undefined },
  }
  const served = new ServedCall(message, { channel, remote: undefined })
  const piece = Buffer.alloc(1 << 20)
  const endless = async function* (): AsyncGenerator<Chunk> {
    yield { status: 200 }
    for (;;) {
      // Only the window stops a stream whose data is available.
      if (sent > 8 * ALLOWED_MAX) return
      yield piece
    }
  }
  const over = served.stream(endless())
  await eventually(() => sent >= ALLOWED_MAX, 'the first window is filled')
  assert.equal(sent, ALLOWED_MAX)
  served.credit(Number.MAX_SAFE_INTEGER)
  await eventually(() => sent >= 2 * ALLOWED_MAX, 'the second window is filled')
  assert.equal(sent, 2 * ALLOWED_MAX)
  served.cancel()
  await over
})
