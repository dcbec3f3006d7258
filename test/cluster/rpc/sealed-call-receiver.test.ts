/** Envelopes of calls to servers: opened once, by their receiver, with bounded memory. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  CurveKey,
  openMessage,
  openRequest,
  requestHead,
  sealMessage,
  sealRequest,
} from '../../../src/cluster/trust/envelope.ts'
import { MemoryBroker, type BusMessage } from '../../../src/cluster/nats/message-bus.ts'
import { SealedCallReceiver } from '../../../src/cluster/rpc/sealed-call-receiver.ts'

const TO = { subject: 'outpost.global.server.s1.call.me', reply: 'outpost.global.node.me.reply.any.c1' }
const PAYLOAD = Buffer.from('a call')

function worldOf() {
  const server = new CurveKey()
  const bus = new MemoryBroker().connect()
  const calls = new SealedCallReceiver({ bus, curve: server })
  const send = (caller: CurveKey, call: number, changes: { clockMs?: number; to?: typeof TO } = {}) => {
    const { clockMs = performance.now(), to = TO } = changes
    const keys = caller.sessionWithServer(server.publicKey)
    const payload = sealRequest(keys.toServer, { callerKey: caller.publicKey, call, clockMs }, to, PAYLOAD)
    return { ...to, payload, isNoResponders: false } satisfies BusMessage
  }
  const resultOf = (message: BusMessage) => {
    const opened = calls.open(message)
    return typeof opened === 'string' ? opened : Buffer.from(opened.payload).toString()
  }
  return { server, calls, send, resultOf }
}

test('each end of a session opens messages of the other end, and no other process does', () => {
  const [caller, server, other] = [new CurveKey(), new CurveKey(), new CurveKey()]
  const [one, two] = [caller.sessionWithServer(server.publicKey), server.sessionWithCaller(caller.publicKey)]
  const sealed = sealRequest(one.toServer, { callerKey: caller.publicKey, call: 7, clockMs: 5.4 }, TO, PAYLOAD)
  const head = requestHead(sealed)
  assert.deepEqual(head, { callerKey: caller.publicKey, call: 7, clockMs: 5 })
  assert.ok(head)
  assert.deepEqual(openRequest(two.toServer, head, TO, sealed), PAYLOAD)
  assert.equal(openRequest(other.sessionWithCaller(caller.publicKey).toServer, head, TO, sealed), undefined)
  assert.equal(openRequest(two.toServer, head, { ...TO, reply: `${TO.reply}x` }, sealed), undefined)
  const answer = sealMessage(two.toCaller, { kind: 'answer', call: 7, message: 1 }, [PAYLOAD, PAYLOAD])
  assert.equal(openMessage(one.toCaller, { kind: 'answer', call: 7 }, answer)?.payload.toString(), 'a calla call')
  for (const wrong of [
    openMessage(one.toCaller, { kind: 'answer', call: 8 }, answer),
    openMessage(one.toCaller, { kind: 'control', call: 7 }, answer),
    openMessage(one.toServer, { kind: 'answer', call: 7 }, answer),
    openMessage(one.toCaller, { kind: 'answer', call: 7 }, answer.subarray(0, -1)),
    openMessage(one.toCaller, { kind: 'answer', call: 7 }, answer.subarray(0, 10)),
  ]) {
    assert.equal(wrong, undefined)
  }
})

test('a request with any changed byte is refused, and a valid one is opened once', () => {
  const { send, resultOf } = worldOf()
  const caller = new CurveKey()
  const message = send(caller, 1)
  for (let at = 0; at < message.payload.length; at++) {
    const payload = Uint8Array.from(message.payload)
    payload[at] = (payload[at] ?? 0) ^ 1
    assert.match(resultOf({ ...message, payload }), /^(malformed|wrong key|too old)$/, `byte ${at}`)
  }
  assert.equal(resultOf({ ...message, subject: `${TO.subject}2` }), 'wrong key')
  assert.equal(resultOf(message), 'a call')
  assert.equal(resultOf(message), 'sent before')
  // Calls may overtake each other, by so much.
  for (const call of [5, 3, 4, 1500]) assert.equal(resultOf(send(caller, call)), 'a call')
  for (const call of [3, 5, 2, 1500]) assert.equal(resultOf(send(caller, call)), 'sent before')
  assert.equal(resultOf(send(caller, 1499)), 'a call')
})

test('the age of a request is measured by the server’s own clock', () => {
  const { send, resultOf } = worldOf()
  const caller = new CurveKey()
  const nowMs = performance.now() + 1_000_000
  const clockMs = performance.now() - 121_000
  assert.equal(resultOf(send(caller, 1, { clockMs: nowMs })), 'too old')
  // Where the process is younger than that, there is no such time.
  if (clockMs > 0) assert.equal(resultOf(send(caller, 2, { clockMs })), 'too old')
  assert.equal(resultOf(send(caller, 3, { clockMs: performance.now() + 20_000 })), 'a call')
})

test('the number of sessions of a caller is limited, and calls of other callers are served meanwhile', () => {
  const { send, resultOf } = worldOf()
  const first = new CurveKey()
  assert.equal(resultOf(send(first, 1)), 'a call')
  for (let at = 1; at < 16; at++) assert.equal(resultOf(send(new CurveKey(), 1)), 'a call')
  assert.equal(resultOf(send(new CurveKey(), 1)), 'too many callers')
  assert.equal(resultOf(send(first, 2)), 'a call')
  const to = { subject: 'outpost.global.server.s1.call.other', reply: 'outpost.global.node.other.reply.any.c1' }
  assert.equal(resultOf(send(new CurveKey(), 1, { to })), 'a call')
})

test('a key without a valid shared secret is refused', () => {
  const { resultOf, send, server } = worldOf()
  const message = send(new CurveKey(), 1)
  const payload = Uint8Array.from(message.payload)
  payload.fill(0, 1, 33)
  assert.equal(resultOf({ ...message, payload }), 'malformed')
  assert.throws(() => server.sessionWithServer(new Uint8Array(32)))
})
