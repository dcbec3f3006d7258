/** Which process may answer, control and observe a call, with forged names on the bus. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { Forwarder } from '../../../src/cluster/rpc/forwarder.ts'
import type { MessageAddress } from '../../../src/cluster/trust/envelope.ts'
import { type MessageBus, type BusMessage, MemoryBroker } from '../../../src/cluster/nats/message-bus.ts'
import { CallServer } from '../../../src/cluster/rpc/call-server.ts'
import { type ClusterMember, Subjects } from '../../../src/cluster/nats/subjects.ts'
import { encode, encodeCall, WIRE_VERSION } from '../../../src/cluster/rpc/call-wire.ts'
import type { Call, Operation } from '../../../src/platform/operation.ts'
import { schema } from '../../../src/platform/schema.ts'
import { recordingLogger, root } from '../../host/allocations/host-fixture.ts'
import { sealingFor } from '../../helpers/sealed-world.ts'
import { eventually } from '../../helpers/eventually.ts'

const OWN = '6f1c0b9e-2f0a-4a51-9d0c-000000000001'
const OTHER = '6f1c0b9e-2f0a-4a51-9d0c-000000000002'
const subjects = new Subjects('global')

/** Answers once it is let go, with whether it was canceled. */
function slow() {
  const calls: Call[] = []
  const open: (() => void)[] = []
  const operation: Operation<Record<string, never>, unknown> = {
    name: 'test.slow',
    summary: '',
    http: ['GET /v1/slow'],
    target: 'node',
    input: schema({}),
    output: 'json',
    errorFormat: 'plain',
    authorize: () => undefined,
    async run(_input, call) {
      calls.push(call)
      await new Promise<void>((resolve) => open.push(resolve))
      return { cancelled: call.signal.aborted }
    },
  }
  return { operation, calls, letGo: () => open.splice(0).forEach((go) => go()) }
}

function world(t: TestContext, as: { nodeId: string } | { serverId: string }, self: ClusterMember) {
  const broker = new MemoryBroker()
  const { operation, calls, letGo } = slow()
  const logger = recordingLogger()
  const common = { subjects, operations: [operation], logger, callsMax: 9 }
  const buses = [broker.connect(), broker.connect()] as const
  const sealing = sealingFor(t, { bus: buses[0], subjects, self: as, logger })
  const admission = { identityOf: async () => root }
  const serving =
    'serverId' in as ? { ...as, sealed: sealing.taken.any, callers: { resolve: () => root } } : { ...as, admission }
  const server = new CallServer({ ...common, bus: buses[0], as: serving })
  const forwarder = new Forwarder({ bus: buses[1], subjects })
  server.start()
  const { calls: sender } = sealingFor(t, { bus: buses[1], subjects, self, logger })
  forwarder.start(self, { sender })
  t.after(() => {
    letGo()
    forwarder.stop()
    server.stop()
  })
  const heard: BusMessage[] = []
  const tap = broker.connect()
  tap.subscribe('outpost.>', (message) => void heard.push(message))
  const ask = () =>
    forwarder.value({
      ...('nodeId' in as ? { nodeId: as.nodeId, identity: root } : { token: undefined }),
      operation: 'test.slow',
      input: { params: {}, query: [], headers: {}, body: undefined },
      requestId: 'r',
      hops: 0,
      signal: new AbortController().signal,
    })
  const sealedCall = async (call: string, to: MessageAddress) => {
    const known = await sender.pick('any', new Set())
    return sender.seal(known, to, callBytes(call)).request
  }
  /** Where the name of the call that has been made is found. */
  const nameOfCall = () =>
    heard
      .find(({ reply }) => reply !== '')
      ?.reply.split('.')
      .at(-1) ?? ''
  return { server, ask, calls, letGo, heard, other: broker.connect(), sealedCall, nameOfCall }
}

/** A moment in which everything that is under way arrives. */
const settle = () => new Promise((resolve) => setTimeout(resolve, 50))

function callBytes(call: string): Uint8Array {
  const input = { params: {}, query: [], headers: {}, body: undefined }
  return encodeCall(
    encode({ version: WIRE_VERSION, operation: 'test.slow', input, requestId: 'r', hops: 1, window: 1, call }),
  )
}

test('an answer from another node than the called one is ignored', async (t) => {
  const { ask, calls, letGo, other, nameOfCall } = world(t, { nodeId: OWN }, { serverId: 's1' })
  const answer = ask()
  await eventually(() => calls.length === 1)
  const name = nameOfCall()
  other.publish(subjects.reply({ serverId: 's1' }, OTHER, name), encode({ kind: 'value', json: '"forged"' }))
  await settle()
  letGo()
  assert.equal(await answer, '{"cancelled":false}')
})

test('a call that is sent again while it is in progress is served once', async (t) => {
  const { ask, calls, heard, letGo, other, server } = world(t, { nodeId: OWN }, { serverId: 's1' })
  const answer = ask()
  await eventually(() => calls.length === 1)
  const message = heard.find(({ reply }) => reply !== '')
  assert.ok(message)
  other.publish(message.subject, message.payload, message.reply)
  await settle()
  assert.deepEqual([calls.length, server.calls], [1, 1])
  letGo()
  assert.equal(await answer, '{"cancelled":false}')
})

test('control messages of a call are accepted from its caller only', async (t) => {
  const { ask, calls, letGo, other, nameOfCall } = world(t, { serverId: 's1' }, { nodeId: OWN })
  const answer = ask()
  await eventually(() => calls.length === 1)
  const name = nameOfCall()
  other.publish(subjects.serverFlow('s1', OTHER, name), encode({ kind: 'cancel' }))
  await settle()
  letGo()
  assert.equal(await answer, '{"cancelled":false}')
})

test('answers are sent only to the caller in the subject of the call', async (t) => {
  const { server, calls, heard, other, sealedCall } = world(t, { serverId: 's1' }, { nodeId: OWN })
  const subject = subjects.serverCall('s1', OWN)
  const victims = [
    subjects.call(OTHER),
    subjects.flow(OTHER, 'c1'),
    subjects.reply({ nodeId: OTHER }, 'any', 'c1'),
    subjects.reply({ serverId: 's1' }, OTHER, 'c1'),
    subjects.reply({ nodeId: OWN }, 'any', 'c2'),
    subjects.roster(OTHER, 'beat'),
    'elsewhere',
    '',
  ]
  for (const reply of victims) other.publish(subject, await sealedCall('c1', { subject, reply }), reply)
  for (const reply of victims) other.publish(subject, Buffer.from('nonsense'), reply)
  await settle()
  assert.equal(calls.length, 0)
  // A malformed one has no name of its own: it is told so where its caller listens.
  const told = heard.filter((message) => message.subject !== subject && !message.subject.includes('.servers.'))
  assert.deepEqual(
    told.map((message) => message.subject),
    [subjects.reply({ nodeId: OWN }, 'any', 'c2')],
  )
  const reply = subjects.reply({ nodeId: OWN }, 'any', 'c1')
  other.publish(subject, await sealedCall('c1', { subject, reply }), reply)
  await eventually(() => server.calls === 1)
})

test('a node answers servers only, with the name of the call', async (t) => {
  const { server, calls, heard, other } = world(t, { nodeId: OWN }, { serverId: 's1' })
  const wrong = [
    subjects.reply({ nodeId: OTHER }, 'any', 'c1'),
    subjects.reply({ serverId: 's1' }, OTHER, 'c1'),
    subjects.reply({ serverId: 's1' }, OWN, 'c2'),
    subjects.call(OTHER),
  ]
  for (const reply of wrong) other.publish(subjects.call(OWN), callBytes('c1'), reply)
  await settle()
  assert.equal(calls.length, 0)
  assert.ok(heard.every(({ subject }) => subject === subjects.call(OWN) || subject.includes('.servers.')))
  other.publish(subjects.call(OWN), callBytes('c1'), subjects.reply({ serverId: 's1' }, OWN, 'c1'))
  await eventually(() => server.calls === 1)
})

test('an agent without a connected server receives a refusal that says so', async (t) => {
  const broker = new MemoryBroker()
  const bus: MessageBus = broker.connect()
  const forwarder = new Forwarder({ bus, subjects })
  const self = { nodeId: OWN }
  forwarder.start(self, { sender: sealingFor(t, { bus, subjects, self, logger: recordingLogger() }).calls })
  t.after(() => forwarder.stop())
  const request = {
    nodeId: undefined,
    operation: 'test.slow',
    input: { params: {}, query: [], headers: {}, body: undefined },
    token: undefined,
    requestId: 'r',
    hops: 0,
    signal: new AbortController().signal,
  }
  await assert.rejects(forwarder.value(request), { code: 'unavailable', message: 'no server is connected, try again' })
})
