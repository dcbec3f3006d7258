/** Envelopes of calls to servers: opened once, by their receiver, with bounded memory. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  CurveKey,
  encodeRefusal,
  openMessage,
  openRequest,
  requestHead,
  sealMessage,
  sealRequest,
} from '../../../src/cluster/trust/envelope.ts'
import { MemoryBroker, type BusMessage } from '../../../src/cluster/nats/message-bus.ts'
import { SealedCallReceiver } from '../../../src/cluster/rpc/sealed-call-receiver.ts'
import { SealedCallSender } from '../../../src/cluster/rpc/sealed-call-sender.ts'
import { ServerKeys } from '../../../src/cluster/trust/server-trust.ts'
import { Subjects } from '../../../src/cluster/nats/subjects.ts'
import { Refusal } from '../../../src/platform/errors.ts'
import { eventually } from '../../helpers/eventually.ts'
import { recordingLogger } from '../../host/allocations/host-fixture.ts'

const TO = { subject: 'outpost.global.server.s1.call.me', reply: 'outpost.global.node.me.reply.any.c1' }
const PAYLOAD = Buffer.from('a call')
const SELF = { nodeId: '6f1c0b9e-2f0a-4a51-9d0c-000000000001' }

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

/** A call under way: the ends of its caller and of its server, and what the server has sent. */
function callUnderWay() {
  const [caller, server] = [new CurveKey(), new CurveKey()]
  const bus = new MemoryBroker().connect()
  const answers: Buffer[] = []
  bus.subscribe(TO.reply, ({ payload }) => void answers.push(Buffer.from(payload)))
  const trusted = {}
  const own = { readOwnKey: undefined, about: undefined }
  const options = { bus, subjects: new Subjects('global'), self: SELF, trusted, logger: recordingLogger(), ...own }
  const keys = new ServerKeys(options)
  const sealing = new SealedCallSender({ keys, curve: caller, logger: recordingLogger() })
  const nowMs = performance.now()
  const known = { key: 'k', serverId: 's1', hasCore: true, sequence: 1, clockMs: nowMs, announcedAtMs: nowMs }
  const call = sealing.seal({ ...known, curveKey: server.publicKey }, TO, PAYLOAD)
  const opened = new SealedCallReceiver({ bus, curve: server }).open({
    ...TO,
    payload: call.request,
    isNoResponders: false,
  })
  assert.ok(typeof opened !== 'string')
  return { answers, call, channel: opened.channel }
}

test('an answer is accepted once and in order; a repeated one is dropped, and a gap is a loss', async () => {
  const { answers, call, channel } = callUnderWay()
  for (const text of ['one', 'two', 'three', 'four']) channel.send(Buffer.from(text))
  await eventually(() => answers.length === 4)
  const [one, two, , four] = answers
  assert.ok(one && two && four)
  const textOf = (answer: ReturnType<typeof call.open>) =>
    answer instanceof Uint8Array ? Buffer.from(answer).toString() : answer
  assert.equal(textOf(call.open(one)), 'one')
  assert.equal(textOf(call.open(one)), undefined, 'sent again')
  assert.equal(textOf(call.open(two)), 'two')
  assert.equal(textOf(call.open(one)), undefined, 'an earlier one')
  assert.equal(textOf(call.open(four)), 'lost')
})

test('an unauthenticated refusal counts only before an answer of the server', async () => {
  const { answers, call, channel } = callUnderWay()
  channel.send(PAYLOAD)
  await eventually(() => answers.length === 1)
  assert.ok(call.open(answers[0] ?? PAYLOAD) instanceof Uint8Array)
  assert.equal(call.open(encodeRefusal('wrong key')), undefined)
  const other = callUnderWay()
  assert.ok(other.call.open(encodeRefusal('wrong key')) instanceof Refusal)
})

test('control messages of a call are accepted once and in order', () => {
  const { call, channel } = callUnderWay()
  const [first, second, third] = ['a', 'b', 'c'].map((text) => call.sealControl(Buffer.from(text)))
  assert.ok(first && second && third)
  assert.equal(channel.openControl(first)?.toString(), 'a')
  assert.equal(channel.openControl(first), undefined)
  assert.equal(channel.openControl(third)?.toString(), 'c')
  assert.equal(channel.openControl(second), undefined)
})

test('a key without a valid shared secret is refused', () => {
  const { resultOf, send, server } = worldOf()
  const message = send(new CurveKey(), 1)
  const payload = Uint8Array.from(message.payload)
  payload.fill(0, 1, 33)
  assert.equal(resultOf({ ...message, payload }), 'malformed')
  assert.throws(() => server.sessionWithServer(new Uint8Array(32)))
})
