/** Messages of a node are lost and the connection recovers: no answer may wait for ever. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { type MessageBus, MemoryBroker } from '../../../src/cluster/nats/message-bus.ts'
import { FIRST_BYTES } from '../../../src/cluster/rpc/credit-window.ts'
import { decodeAnswer, decodeData } from '../../../src/cluster/rpc/call-wire.ts'
import { collect, type World, worldOver } from '../../helpers/call-world.ts'
import { eventually } from '../../helpers/eventually.ts'

interface LossyWorld extends World {
  /** Which of the node's messages do not arrive. */
  lost: (payload: Uint8Array) => boolean
}

const NOTHING = () => false
const DATA = (payload: Uint8Array) => decodeData(payload) !== undefined
const HEAD = (payload: Uint8Array) => decodeAnswer(payload)?.kind === 'head'

async function lossyWorld(t: TestContext, lost: LossyWorld['lost']): Promise<LossyWorld> {
  const broker = new MemoryBroker()
  const caller = broker.connect()
  const node = broker.connect()
  const lossy: MessageBus = {
    publish(subject, payload, reply, rest) {
      if (!world.lost(payload)) node.publish(subject, payload, reply, rest)
    },
    subscribe: (subject, take, queue) => node.subscribe(subject, take, queue),
    payloadBytesMax: node.payloadBytesMax,
    isConnected: true,
    onChange: () => undefined,
    close: () => node.close(),
  }
  const buses = [caller, lossy]
  const world: LossyWorld = { ...(await worldOver(t, () => buses.shift() ?? broker.connect())), lost }
  return world
}

const LOST = { code: 'no_answer', message: /was lost/ }

test('a stream breaks when all data within the allowance is lost', async (t) => {
  const world = await lossyWorld(t, DATA)
  const { forwarder, call, sent, server } = world
  const waiting = collect(forwarder.stream(call('test.stream', { bytes: '100000000' })))
  await eventually(() => sent() >= FIRST_BYTES)
  world.lost = NOTHING
  await assert.rejects(waiting, LOST)
  await eventually(() => server.calls === 0 && forwarder.calls === 0)
})

test('a stream is refused when its head is lost and no data follows', async (t) => {
  const { forwarder, call, server } = await lossyWorld(t, HEAD)
  await assert.rejects(collect(forwarder.stream(call('test.stream', { say: 'stay' }))), LOST)
  await eventually(() => server.calls === 0 && forwarder.calls === 0)
})

test('a stream is refused when its head is lost and data follows', async (t) => {
  const { forwarder, call, server } = await lossyWorld(t, HEAD)
  await assert.rejects(collect(forwarder.stream(call('test.stream', { bytes: '10', say: 'stay' }))), LOST)
  await eventually(() => server.calls === 0 && forwarder.calls === 0)
})
