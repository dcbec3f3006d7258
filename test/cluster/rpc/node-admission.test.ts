/** Exact limits of times, numbers and amounts for calls, and of what a served call sends without credit. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ASSERTION_TTL_MS } from '../../../src/cluster/trust/assertion.ts'
import { CLOCK_SKEW_MS } from '../../../src/cluster/trust/clock-skews.ts'
import { TokenBuckets } from '../../../src/platform/token-bucket.ts'
import { AssertionIssuer } from '../../../src/cluster/rpc/assertion-issuer.ts'
import { CallerLimits, HOST_CALLS, HOST_CONCURRENT_CALLS_MAX } from '../../../src/cluster/rpc/call-server.ts'
import { NodeAdmission, StaleRunError } from '../../../src/cluster/rpc/node-admission.ts'
import { NodeSlots } from '../../../src/cluster/rpc/node-slots.ts'
import { ReplayGuard } from '../../../src/cluster/trust/replay-guard.ts'
import { ServedCall } from '../../../src/cluster/rpc/served-call.ts'
import { ALLOWED_MAX } from '../../../src/cluster/rpc/credit-window.ts'
import { decodeCall, encode, WIRE_VERSION } from '../../../src/cluster/rpc/call-wire.ts'
import type { CallMessage } from '../../../src/cluster/rpc/call-message.ts'
import type { Chunk } from '../../../src/platform/operation.ts'
import { eventually } from '../../helpers/eventually.ts'
import { knownKeys, newKey } from '../../helpers/server-keys.ts'
import { identity, recordingLogger } from '../../host/allocations/host-fixture.ts'

const NODE = '6f1c0b9e-2f0a-4a51-9d0c-000000000001'
const OTHER = '6f1c0b9e-2f0a-4a51-9d0c-000000000002'
const READER = { ...identity('node:read'), accessor: 'reader' }

function callMessage(over: Partial<CallMessage> = {}): CallMessage {
  const input = { params: {}, query: [], headers: {}, body: undefined }
  return { version: WIRE_VERSION, operation: 'x', input, requestId: 'r', hops: 0, window: 1, call: 'c', ...over }
}

/** A server with a clock of its own, and the admission of a node that knows its key. */
async function serverAndNode(isServer?: () => Promise<boolean>) {
  const clocks = { serverMs: 1_800_000_000_000, nodeMs: 1_800_000_000_000 }
  const key = newKey()
  const logger = recordingLogger()
  const keys = { ...knownKeys(new Set([key.publicKey])), ...(isServer && { isServer }) }
  const node = new NodeAdmission({ nodeId: NODE, keys, isOpen: () => false, logger, now: () => clocks.nodeMs })
  const issuer = new AssertionIssuer({ key: () => key, now: () => clocks.serverMs })
  const make = () => {
    const received = decodeCall(issuer.message({ nodeId: NODE, identity: READER }, callMessage()))
    assert.ok(typeof received !== 'string')
    return received
  }
  const other = await node.identityOf(make()).catch((error: unknown) => error)
  assert.ok(other instanceof StaleRunError)
  issuer.setRun(NODE, other.run)
  return { clocks, make, node }
}

test('an assertion is accepted up to the tolerated clock skew to the millisecond, and rejected beyond it', async () => {
  const { clocks, make, node } = await serverAndNode()
  const admitted = async (nodeAheadMs: number) => {
    clocks.nodeMs = clocks.serverMs + nodeAheadMs
    return node.identityOf(make()).then(
      () => true,
      ({ code }: { code: string }) => code,
    )
  }
  const lastMs = ASSERTION_TTL_MS + CLOCK_SKEW_MS
  const expected: readonly (readonly [number, boolean | string])[] = [
    [0, true],
    [lastMs, true],
    [lastMs + 1, 'unavailable'],
    [-CLOCK_SKEW_MS, true],
    [-CLOCK_SKEW_MS - 1, 'unavailable'],
  ]
  for (const [aheadMs, outcome] of expected) assert.equal(await admitted(aheadMs), outcome, `${aheadMs} ms`)
})

test('an authenticated assertion with too long a validity is rejected within its validity', async () => {
  const { clocks, make, node } = await serverAndNode()
  const good = make()
  assert.ok(good.message.claims)
  // As a server would make it that has another limit. The session's key is the server's, so the claims alone can be judged here.
  const claims = { ...good.message.claims, expiresAtMs: good.message.claims.expiresAtMs + 1 }
  clocks.nodeMs = clocks.serverMs
  await assert.rejects(node.identityOf({ ...good, message: { ...good.message, claims } }), /is valid for more than 5 s/)
  await assert.rejects(
    node.identityOf({ ...good, message: { ...good.message, claims: { ...claims, audience: OTHER } } }),
    /is for another node/,
  )
  await node.identityOf(good)
  await assert.rejects(node.identityOf(good), /was used before/)
})

test('a key that is asked about is admitted only if it is found to be that of a server', async () => {
  for (const isServer of [true, false]) {
    const { make, node } = await serverAndNode(async () => isServer)
    const admitted = node.identityOf(make())
    if (isServer) await admitted
    else await assert.rejects(admitted, /signed with a key that is not in nats.server_keys/)
  }
})

test('a server that has got another key proves its calls with that one', async () => {
  const [before, after] = [newKey(), newKey()]
  const servers = new Set([before.publicKey])
  const options = { nodeId: NODE, keys: knownKeys(servers), isOpen: () => false, logger: recordingLogger() }
  const node = new NodeAdmission(options)
  let key = before
  const issuer = new AssertionIssuer({ key: () => key })
  const call = () => {
    const received = decodeCall(issuer.message({ nodeId: NODE, identity: READER }, callMessage()))
    assert.ok(typeof received !== 'string')
    return node.identityOf(received)
  }
  const other = await call().catch((error: unknown) => error)
  assert.ok(other instanceof StaleRunError)
  issuer.setRun(NODE, other.run)
  await call()
  servers.clear()
  servers.add(after.publicKey)
  await assert.rejects(call(), /signed with a key that is not in nats.server_keys/)
  key = after
  await call()
})

test('a number at the end of the replay window is accepted once, and an older one is rejected', () => {
  const guard = new ReplayGuard(1000, () => 0)
  assert.equal(guard.use('server', 5000), 'fresh')
  assert.deepEqual([guard.use('server', 5000 - 2047), guard.use('server', 5000 - 2047)], ['fresh', 'used'])
  assert.equal(guard.use('server', 5000 - 2048), 'used')
  assert.equal(guard.use('server', 5000 + 4095), 'fresh')
  assert.equal(guard.use('server', 5000 + 2048), 'fresh', 'what was skipped was not used')
  assert.equal(guard.use('another', 5000), 'fresh')
})

test('servers up to the limit are tracked separately, and a long silent one is replaced', () => {
  let nowMs = 5
  const guard = new ReplayGuard(1000, () => nowMs)
  for (let at = 0; at < 1024; at++) assert.equal(guard.use(`server ${at}`, 1), 'fresh')
  assert.equal(guard.use('one more', 1), 'full')
  nowMs = 1005
  assert.equal(guard.use('one more', 1), 'full', 'an assertion of before may still be good')
  assert.equal(guard.use('server 7', 2), 'fresh')
  nowMs = 1006
  assert.equal(guard.use('one more', 1), 'fresh')
  assert.equal(guard.use('server 7', 2), 'used', 'a server that called meanwhile is remembered')
})

test('excess calls of a host are refused or dropped, and other hosts and servers are not affected', () => {
  const limits = new CallerLimits()
  const judged = new Map<string, number>()
  const judge = (caller: string) => {
    const verdict = limits.admit(caller)
    judged.set(verdict, (judged.get(verdict) ?? 0) + 1)
  }
  const many = HOST_CALLS.capacity * 2
  for (let at = 0; at < many; at++) judge(NODE)
  // Some more are let in meanwhile, a thousand a second.
  assert.ok((judged.get('open') ?? 0) >= HOST_CALLS.capacity && (judged.get('open') ?? 0) < many)
  assert.ok((judged.get('refuse') ?? 0) >= 100 && (judged.get('drop') ?? 0) > 0)
  assert.equal(limits.admit(OTHER), 'open')
  for (let at = 0; at < many; at++) assert.equal(limits.admit('server-1'), 'open')
})

test('a host has at most a quarter of all concurrent calls, and gets a slot for each call that ends', () => {
  const limits = new CallerLimits()
  const leave = Array.from({ length: HOST_CONCURRENT_CALLS_MAX }, () =>
    limits.acquireSlot(NODE, () => assert.fail('it is not lost')),
  )
  assert.ok(leave.every((each) => each !== undefined))
  assert.equal(
    limits.acquireSlot(NODE, () => undefined),
    undefined,
  )
  assert.ok(limits.acquireSlot(OTHER, () => undefined))
  leave[3]?.()
  leave[3]?.()
  assert.ok(limits.acquireSlot(NODE, () => undefined))
  assert.equal(
    limits.acquireSlot(NODE, () => undefined),
    undefined,
    'a slot that is released twice is one',
  )
})

test('a node that holds one slot more than another keeps it, so that they do not take it from each other for ever', () => {
  const shares = new NodeSlots({ slots: 3 })
  let lost = 0
  for (const node of ['one', 'one', 'two']) assert.ok(shares.acquire(node, () => lost++))
  assert.equal(
    shares.acquire('two', () => lost++),
    undefined,
  )
  assert.equal(lost, 0)
  assert.ok(
    shares.acquire('three', () => lost++),
    'a node without a slot gets the one beyond an equal share',
  )
  assert.equal(lost, 1)
})

test('removing silent senders does not restore the allowance of an active one', () => {
  let nowMs = 0
  const allowance = new TokenBuckets({ perSecond: 10, capacity: 5, now: () => nowMs })
  assert.equal(allowance.take('one', 5), true)
  allowance.sweep()
  assert.equal(allowance.take('one', 1), false)
  nowMs = 100
  assert.deepEqual([allowance.take('one', 1), allowance.take('one', 1)], [true, false])
  nowMs = 10_000
  allowance.sweep()
  assert.deepEqual([allowance.take('one', 6), allowance.take('one', 5)], [false, true], 'never more than the most')
})

/** A served call with what it has sent. */
function served(window: number) {
  const sent = { bytes: 0, messages: 0 }
  const channel = {
    payloadBytesMax: 1 << 20,
    openControl: (payload: Uint8Array) => payload,
    send: (_head: Uint8Array, rest?: Uint8Array) => {
      sent.messages++
      sent.bytes += rest?.length ?? 0
    },
  }
  return { call: new ServedCall(callMessage({ window }), { channel, remote: undefined }), sent }
}

async function* chunksOf(...sizes: readonly number[]): AsyncGenerator<Chunk> {
  yield { status: 200 }
  for (const size of sizes) yield Buffer.alloc(size)
}

test('without credit only the head is sent, and each credit allows exactly its bytes, also if it is reduced', async () => {
  const { call, sent } = served(0)
  const streaming = call.stream(chunksOf(5000, 5000))
  await eventually(() => sent.messages === 1, 'the head')
  assert.equal(sent.bytes, 0)
  const credit = async (allowed: number) => {
    call.control(encode({ kind: 'credit', taken: 0, allowed }))
    await new Promise(setImmediate)
    return sent.bytes
  }
  assert.equal(await credit(1), 1)
  assert.equal(await credit(7000), 7000)
  assert.equal(await credit(6000), 7000, 'less than was sent already')
  assert.equal(await credit(9999), 9999)
  call.control(Buffer.from('no message'))
  assert.equal(sent.bytes, 9999)
  assert.equal(await credit(10_000), 10_000)
  await streaming
  assert.equal(call.hasEnded, false, 'its end was sent, the caller has not left')
})

test('an allowance above the limit counts as the limit, and a cancellation without credit ends the call', async () => {
  const { call, sent } = served(Number.MAX_SAFE_INTEGER)
  const streaming = call.stream(chunksOf(3 * ALLOWED_MAX))
  await eventually(() => sent.bytes === ALLOWED_MAX, 'the most')
  call.control(encode({ kind: 'cancel' }))
  await streaming
  assert.deepEqual([call.hasEnded, call.signal.aborted, sent.bytes], [true, true, ALLOWED_MAX])
})
