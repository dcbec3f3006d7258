/**
 * An attacker on NATS who can read calls to a host, or has a key that is not of a server, sends calls to that host:
 * replayed, modified, truncated, late, for another host, with a wrong signature or none.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test, type TestContext } from 'node:test'
import { AssertionIssuer } from '../../src/cluster/rpc/assertion-issuer.ts'
import { decodeProof } from '../../src/cluster/trust/assertion.ts'
import { CLOCK_SKEW_MS } from '../../src/cluster/trust/clock-skews.ts'
import { UNRESTRICTED } from '../../src/cluster/trust/authorizer.ts'
import { type ForwardedRequest, Forwarder } from '../../src/cluster/rpc/forwarder.ts'
import { openNatsBus } from '../../src/cluster/nats/nats-bus.ts'
import { NodeAdmission } from '../../src/cluster/rpc/node-admission.ts'
import { CallServer } from '../../src/cluster/rpc/call-server.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { decodeAnswer, decodeCall, encode, encodeCall } from '../../src/cluster/rpc/call-wire.ts'
import { Refusal } from '../../src/platform/errors.ts'
import type { Identity, Operation } from '../../src/platform/operation.ts'
import { type InputOf, queryText, schema } from '../../src/platform/schema.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { knownKeys, newKey } from '../helpers/server-keys.ts'
import { identity, recordingLogger } from '../host/allocations/host-fixture.ts'
import { eventually } from '../helpers/eventually.ts'

const NODE = '6f1c0b9e-2f0a-4a51-9d0c-000000000001'
const OTHER = '6f1c0b9e-2f0a-4a51-9d0c-000000000002'
const subjects = new Subjects('global')
const READER: Identity = { ...identity('node:read'), accessor: 'reader' }

const fields = { say: queryText({ description: '', fallback: '' }) }

/** An operation that changes something, for callers who may read the node. */
function counting(done: string[], name: string): Operation<InputOf<typeof fields>, unknown> {
  return {
    name,
    summary: '',
    http: [],
    target: 'node',
    input: schema(fields),
    output: 'json',
    errorFormat: 'plain',
    authorize(_input, caller) {
      if (!caller.allowsNode('read')) throw new Refusal('permission_denied', 'Permission denied')
    },
    async run({ say }, { identity: caller }) {
      if (say !== 'ready') done.push(`${name} ${say} ${caller.accessor}`)
      return { say }
    },
  }
}

interface Heard {
  readonly payload: Uint8Array
  readonly reply: string
}

/** A host, a server that calls it, and another client of the same NATS. */
async function world(t: TestContext, natsUrl: string, options: { hostClock?: () => number } = {}) {
  const open = () => openNatsBus({ servers: [natsUrl], name: 'test', logger: recordingLogger() })
  const buses = await Promise.all([open(), open(), open()])
  await eventually(() => buses.every(({ isConnected }) => isConnected))
  const [atHost, atServer, stranger] = buses
  const done: string[] = []
  const trusted = new Set<string>()
  const server = { key: newKey(), nowMs: Date.now, isAclOn: true }
  trusted.add(server.key.publicKey)
  const logger = recordingLogger()
  const hosts = new Map<string, CallServer>()
  /** Resolves when its subscription has taken effect. */
  const startHost = async (nodeId = NODE) => {
    hosts.get(nodeId)?.stop()
    const now = options.hostClock
    const keys = knownKeys(trusted)
    const admission = new NodeAdmission({ nodeId, keys, isOpen: () => !server.isAclOn, logger, ...(now && { now }) })
    const operations = [counting(done, 'test.change'), counting(done, 'test.else')]
    const host = new CallServer({
      bus: atHost,
      subjects,
      as: { nodeId, admission },
      operations,
      logger,
      callsMax: 500,
    })
    host.start()
    hosts.set(nodeId, host)
    await eventually(() => call('ready', { nodeId }).catch(() => undefined), 'the host answers')
  }
  const forwarder = new Forwarder({ bus: atServer, subjects })
  forwarder.start(
    { serverId: 's1' },
    { issuer: new AssertionIssuer({ key: () => server.key, now: () => server.nowMs() }) },
  )
  const heard: Heard[] = []
  stranger.subscribe(
    subjects.call(NODE),
    ({ payload, reply }) => void heard.push({ payload: Buffer.from(payload), reply }),
  )
  const answers: string[] = []
  stranger.subscribe(subjects.reply({ serverId: 'me' }, '*', '*'), ({ payload }) => {
    const answer = decodeAnswer(payload)
    answers.push(answer?.kind === 'refusal' ? `${answer.code}: ${answer.message}` : (answer?.kind ?? 'nothing'))
  })
  t.after(async () => {
    forwarder.stop()
    for (const host of hosts.values()) host.stop()
    for (const bus of buses) await bus.close()
  })
  let calls = 0
  const call = (say: string, more: Partial<{ identity: Identity; nodeId: string; operation: string }> = {}) =>
    forwarder.value({
      nodeId: NODE,
      identity: READER,
      operation: 'test.change',
      input: { params: {}, query: [['say', say]], headers: {}, body: undefined },
      requestId: `r-${++calls}`,
      hops: 0,
      signal: AbortSignal.timeout(20_000),
      ...more,
    } satisfies ForwardedRequest)
  /** Sends a message to a host as a server would, and resolves with the answer. */
  const send = async (payload: Uint8Array, nodeId = NODE): Promise<string> => {
    const before = answers.length
    const received = decodeCall(payload)
    const name = typeof received === 'string' ? 'x' : received.message.call
    stranger.publish(subjects.call(nodeId), payload, subjects.reply({ serverId: 'me' }, nodeId, name))
    return await eventually(() => answers.at(before))
  }
  await startHost()
  // The stranger's subscription may have come after the first calls.
  await eventually(async () => (await call('ready')) !== undefined && heard.length > 0, 'the stranger hears calls')
  done.length = 0
  const last = () => heard.at(-1)?.payload ?? new Uint8Array(0)
  return { call, send, done, last, heard, server, startHost, trusted }
}

const received = (payload: Uint8Array) => {
  const opened = decodeCall(payload)
  assert.ok(typeof opened !== 'string')
  return opened
}

test('an assertion is valid once, for its host, operation and input, from a server', async (t) => {
  const { url } = await startNatsServer(t)
  const { call, done, heard, last, send, server, startHost, trusted } = await world(t, url)

  await t.test('the original call succeeds', async () => {
    assert.equal(await call('one'), '{"say":"one"}')
    assert.deepEqual(done.splice(0), ['test.change one reader'])
  })

  await t.test('a replayed call is refused', async () => {
    await call('two')
    assert.equal(await send(last()), 'permission_denied: this host refused the call: the assertion was used before')
    assert.deepEqual(done.splice(0), ['test.change two reader'])
  })

  await t.test('a call replayed after a restart of the host is refused', async () => {
    await call('three')
    const payload = last()
    await startHost()
    assert.equal(await send(payload), 'again')
    assert.equal(await call('four'), '{"say":"four"}', 'the server makes another one for the new run')
    assert.equal(await send(payload), 'again')
    assert.deepEqual(done.splice(0), ['test.change three reader', 'test.change four reader'])
  })

  await t.test('a call replayed to another host is refused', async () => {
    await startHost(OTHER)
    await call('five')
    const text = 'permission_denied: this host refused the call: the assertion is for another node'
    assert.equal(await send(last(), OTHER), text)
    assert.deepEqual(done.splice(0), ['test.change five reader'])
  })

  await t.test('another operation, input, caller or request ID is refused', async () => {
    await call('six')
    const { message, proof } = received(last())
    const others = [
      { ...message, operation: 'test.else' },
      { ...message, input: { ...message.input, query: [['say', 'else'] as [string, string]] } },
      { ...message, requestId: 'r-else' },
      {
        ...message,
        claims: message.claims && { ...message.claims, permissions: { ...message.claims.permissions, node: 3 } },
      },
      { ...message, claims: message.claims && { ...message.claims, sequence: message.claims.sequence + 100 } },
    ]
    for (const other of others) {
      const answer = await send(encodeCall(encode(other), proof))
      assert.equal(answer, 'permission_denied: this host refused the call: the assertion is for another call')
    }
    assert.deepEqual(done.splice(0), ['test.change six reader'])
  })

  await t.test('a truncated or damaged assertion is refused', async () => {
    await call('seven')
    const { body, message, proof = new Uint8Array(0) } = received(last())
    for (let end = 0; end < proof.length; end += 7) {
      assert.match(await send(encodeCall(body, proof.subarray(0, end))), /missing or damaged/)
    }
    assert.match(await send(encodeCall(body)), /missing or damaged/)
    assert.match(await send(encodeCall(body, randomBytes(proof.length))), /missing or damaged/)
    const { claims: _, ...bare } = message
    assert.match(await send(encodeCall(encode(bare), proof)), /accepts only calls with the assertion of a server/)
    const flipped = Buffer.from(proof)
    flipped[flipped.length - 1] = (flipped.at(-1) ?? 0) ^ 1
    assert.match(await send(encodeCall(body, flipped)), /is for another call|missing or damaged/)
    assert.deepEqual(done.splice(0), ['test.change seven reader'])
  })

  await t.test('a signature by a key that is not of a server, such as that of an agent, is refused', async () => {
    const before = server.key
    server.key = newKey()
    await assert.rejects(call('eight'), { code: 'permission_denied', message: /key that is not in nats.server_keys/ })
    // In the name of a server, whose key it is not.
    const forged = newKey()
    server.key = { publicKey: before.publicKey, sign: (bytes) => forged.sign(bytes) }
    await assert.rejects(call('nine'), { code: 'permission_denied', message: /signature of the assertion is invalid/ })
    server.key = before
    assert.deepEqual(done.splice(0), [])
  })

  await t.test('calls succeed while the key of a server is rotated', async () => {
    const before = server.key
    await call('before')
    const old = last()
    done.length = 0
    const after = newKey()
    trusted.add(after.publicKey)
    const calls = Array.from({ length: 200 }, async (_, at) => {
      await new Promise((resolve) => setTimeout(resolve, at))
      if (at === 100) server.key = after
      return await call(`turn ${at}`)
    })
    const said = await Promise.all(calls)
    assert.equal(said.length, 200)
    assert.equal(done.splice(0).length, 200)
    trusted.delete(before.publicKey)
    assert.match(await send(old), /key that is not in nats.server_keys/)
    assert.equal(await call('after'), '{"say":"after"}')
    done.length = 0
  })

  await t.test('a call from a server without ACL is refused', async () => {
    const refused = { code: 'permission_denied', message: /accepts only calls with the assertion of a server/ }
    await assert.rejects(call('open', { identity: UNRESTRICTED }), refused)
    server.isAclOn = false
    assert.equal(await call('open', { identity: UNRESTRICTED }), '{"say":"open"}', 'off on both sides, it is open')
    server.isAclOn = true
    done.length = 0
  })

  await t.test('a call for a caller without permission is refused', async () => {
    await assert.rejects(call('ten', { identity: identity() }), {
      code: 'permission_denied',
      message: 'Permission denied',
    })
    assert.deepEqual(done, [])
  })

  await t.test('concurrent calls share a session, and each is accepted once', async () => {
    const said = await Promise.all(Array.from({ length: 100 }, (_, at) => call(`many ${at}`)))
    assert.equal(new Set(said).size, 100)
    assert.equal(new Set(done.splice(0)).size, 100)
    const proofs = heard.slice(-100).map(({ payload }) => decodeProof(received(payload).proof ?? new Uint8Array(0)))
    assert.equal(new Set(proofs.map((proof) => Buffer.from(proof?.signature ?? []).toString('hex'))).size, 1)
    assert.equal(new Set(proofs.map((proof) => Buffer.from(proof?.mac ?? []).toString('hex'))).size, 100)
    for (const { payload } of heard.slice(-100)) assert.match(await send(payload), /used before/)
    assert.deepEqual(done, [])
  })
})

test('a clock difference between server and host is tolerated up to the limit', async (t) => {
  const { url } = await startNatsServer(t)
  let skewMs = 0
  const { call, done, send, last, server } = await world(t, url, { hostClock: () => Date.now() + skewMs })
  for (const working of [0, 30_000, -30_000, CLOCK_SKEW_MS, -CLOCK_SKEW_MS + 1000]) {
    skewMs = working
    assert.equal(await call('works'), '{"say":"works"}', `${working} ms`)
  }
  done.length = 0
  for (const [wrong, where] of [
    [CLOCK_SKEW_MS + 10_000, 'behind'],
    [-CLOCK_SKEW_MS - 10_000, 'ahead of'],
    [86_400_000, 'behind'],
  ] as const) {
    skewMs = wrong
    const message = new RegExp(`was issued \\d+ s ${where} the clock of this host: .*Synchronize both clocks`)
    await assert.rejects(call('does not'), { code: 'unavailable', message })
  }
  assert.deepEqual(done, [])
  // Held back, and sent when it has expired.
  skewMs = 0
  const realNow = server.nowMs
  server.nowMs = () => Date.now() - CLOCK_SKEW_MS - 6000
  await assert.rejects(call('late'), { code: 'unavailable', message: /has expired, or the clocks differ/ })
  server.nowMs = realNow
  assert.match(await send(last()), /has expired/)
  assert.deepEqual(done, [])
})
