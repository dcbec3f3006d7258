/**
 * An attacker with the key of a worker host sends responses that outpost never sends, so that a server forwards them to
 * callers under its own name and on connections that other callers may share.
 */
import '../helpers/short-pace.ts'
import assert from 'node:assert/strict'
import { generateKeyPairSync } from 'node:crypto'
import { connect as connectTo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { test, type TestContext } from 'node:test'
import { UNRESTRICTED } from '../../src/cluster/trust/authorizer.ts'
import { digestOf, type NodeDescription, signNodeMessage } from '../../src/cluster/roster/node-messages.ts'
import { openNatsBus } from '../../src/cluster/nats/nats-bus.ts'
import { CallServer } from '../../src/cluster/rpc/call-server.ts'
import { Subjects } from '../../src/cluster/nats/subjects.ts'
import { WIRE_VERSION } from '../../src/cluster/rpc/call-wire.ts'
import { Refusal } from '../../src/platform/errors.ts'
import type { AnyOperation, Chunk, Operation, StreamHead } from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'
import { recordingLogger } from '../host/allocations/host-fixture.ts'
import { Member } from '../helpers/cluster.ts'
import { allocationOf, idOf, nodeOf } from '../helpers/fleet-server.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { send } from '../helpers/openbao-replay.ts'
import { eventually } from '../helpers/eventually.ts'

const NODE = idOf('11ed0de0')
const ALLOCATION = idOf('a110c000')
const CAT = `/v1/client/fs/cat/${ALLOCATION}?path=x`
const subjects = new Subjects('global')

/** What operations of a node have alike. */
const COMMON = { summary: '', http: [], target: 'node', input: schema({}), errorFormat: 'plain' } as const

function streamSaid(name: string, run: () => AsyncIterable<Chunk>): AnyOperation {
  const operation: Operation<Record<string, never>, never> = {
    ...COMMON,
    name,
    output: 'stream',
    authorize: () => undefined,
    run,
  }
  return operation
}

function valueSaid(name: string, run: () => Promise<unknown>): AnyOperation {
  const operation: Operation<Record<string, never>, unknown> = {
    ...COMMON,
    name,
    output: 'json',
    authorize: () => undefined,
    run,
  }
  return operation
}

async function* streamOf(head: Omit<StreamHead, 'status'>, ...texts: string[]): AsyncGenerator<Chunk> {
  yield { status: 200, ...head }
  for (const text of texts) yield Buffer.from(text)
}

/** A server, and a node that sends the responses of `answers`. */
async function world(t: TestContext, over: Partial<NodeDescription> = {}, allocation = allocationOf(ALLOCATION)) {
  const nats = await startNatsServer(t)
  const server = await Member.make(t, 's1', { role: 'server', natsUrl: nats.url, acl: 'acl { enabled = false }' })
  await server.start()
  const logger = recordingLogger()
  const bus = await openNatsBus({ servers: [nats.url], name: 'liar', logger })
  t.after(() => bus.close())
  await eventually(() => bus.isConnected)
  const answers: { cat: () => AsyncIterable<Chunk>; logs: () => AsyncIterable<Chunk>; stats: () => Promise<unknown> } =
    {
      cat: () => streamOf({}),
      logs: () => streamOf({}),
      stats: async () => ({}),
    }
  const operations = [
    streamSaid('host.fs_cat', () => answers.cat()),
    streamSaid('host.logs', () => answers.logs()),
    valueSaid('host.stats', () => answers.stats()),
  ]
  const admission = { identityOf: async () => UNRESTRICTED }
  const calls = new CallServer({ bus, subjects, as: { nodeId: NODE, admission }, operations, logger, callsMax: 9 })
  calls.start()
  t.after(() => calls.stop())
  const { privateKey, publicKey } = generateKeyPairSync('ed25519')
  const key = { privateKey, publicKey: publicKey.export({ format: 'der', type: 'spki' }).subarray(-32) }
  const state = { node: nodeOf(NODE, over), allocations: [allocation] }
  const order = { version: WIRE_VERSION, run: 1, sequence: 1, digest: digestOf(state) }
  const subject = subjects.roster(NODE, 'state')
  const message = signNodeMessage({ kind: 'state', ...order, ...state }, subject, key)
  const say = setInterval(() => bus.publish(subject, message), 500)
  bus.publish(subject, message)
  try {
    await eventually(() => server.stderr.includes('node registered'))
  } catch (error) {
    throw new Error(server.stderr, { cause: error })
  } finally {
    clearInterval(say)
  }
  return { server, answers }
}

/** Everything that comes over one connection on which these paths are asked for, one behind the other. */
async function conversation(port: number, ...paths: string[]): Promise<string> {
  const socket = connectTo(port, '127.0.0.1')
  let text = ''
  socket.setEncoding('latin1').on('data', (data: string) => (text += data))
  socket.on('error', () => undefined)
  for (const [at, path] of paths.entries()) {
    const last = at === paths.length - 1 ? 'Connection: close\r\n' : ''
    socket.write(`GET ${path} HTTP/1.1\r\nHost: 127.0.0.1\r\n${last}\r\n`)
  }
  await new Promise((resolve) => socket.once('close', resolve))
  return text
}

test('a node cannot make the server send a different response', { timeout: 280_000 }, async (t) => {
  const { server, answers } = await world(t)
  const forged = 'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged'

  await t.test('bytes beyond the announced length are not sent', async () => {
    answers.cat = () => streamOf({ contentLength: 3 }, `abc${forged}`)
    const text = await conversation(server.port, CAT, '/v1/status/leader')
    assert.ok(!text.includes('forged'), text)
  })

  await t.test(
    'a body shorter than its announced length closes the connection, so that no other response completes it',
    async () => {
      answers.cat = () => streamOf({ contentLength: 30 }, 'abc')
      const text = await conversation(server.port, CAT, '/v1/status/leader')
      assert.equal(text.match(/HTTP\/1\.1 /g)?.length, 1, text)
    },
  )

  await t.test('a node cannot set headers that are not part of its response', async () => {
    const headers = {
      'Transfer-Encoding': 'identity',
      'Set-Cookie': 'a=b',
      'Access-Control-Allow-Origin': '*',
      Location: 'http://elsewhere.example/',
      'X-Outpost-Cursor': 'kept',
    }
    answers.cat = () => streamOf({ headers, contentType: 'text/html' }, '<script>alert(1)</script>')
    answers.stats = () => Promise.reject(new Refusal('not_found', 'no', headers))
    for (const path of [CAT, `/v1/client/stats?node_id=${NODE}`]) {
      const text = await conversation(server.port, path)
      const head = text.slice(0, text.indexOf('\r\n\r\n'))
      assert.ok(!/identity|Set-Cookie|Allow-Origin: \*|Location|html/i.test(head), head)
      assert.match(head, /X-Outpost-Cursor: kept/)
      if (path === CAT) assert.match(head, /Content-Type: text\/plain/)
    }
  })

  await t.test(
    'in the logs of a job a node sends only for its own allocations and breaks no other stream',
    async () => {
      const head = { contentType: 'application/json', frames: true }
      for (const lie of [`{"AllocID":"${NODE}","Data":"eA=="}`, '{"File":"}', '{}}', '[]}', '{"a":{}}']) {
        answers.logs = () => streamOf(head, '{"Data":"eA==","File":"f"}', lie)
        const { body } = await send(server.port, { method: 'GET', path: '/v1/job/web/logs', headers: {} })
        const frames = body
          .replaceAll('}{', '}\n{')
          .split('\n')
          .map((line) => JSON.parse(line) as Record<string, unknown>)
        const told = frames.filter((frame) => Object.keys(frame).length > 0)
        assert.equal(told.at(-1)?.['FileEvent'], 'log failed', lie)
        assert.match(String(told.at(-1)?.['Error']), /^500 /)
        assert.ok(told.every((frame) => frame['AllocID'] === ALLOCATION))
        assert.ok(!body.includes(NODE), body)
      }
    },
  )

  await t.test('a node that sends rarely does not keep a caller waiting', async () => {
    async function* drip(head: Omit<StreamHead, 'status'>): AsyncGenerator<Chunk> {
      const { signal } = abort
      yield { status: 200, ...head }
      while (!signal.aborted) {
        yield Buffer.from('{"Data":"eA==","File":"f"}')
        await pause(50, undefined, { signal }).catch(() => undefined)
      }
    }
    const abort = new AbortController()
    t.after(() => abort.abort())
    answers.cat = () => drip({})
    answers.logs = () => drip({ contentType: 'application/json', frames: true })
    answers.stats = () => new Promise((resolve) => abort.signal.addEventListener('abort', resolve, { once: true }))
    const logs = `/v1/client/fs/logs/${ALLOCATION}?task=web&type=stdout`
    const [cat, log, stats, job] = await Promise.all(
      [CAT, logs, `/v1/client/stats?node_id=${NODE}`, '/v1/job/web/logs'].map((path) =>
        conversation(server.port, path),
      ),
    )
    for (const text of [cat, log]) {
      assert.match(text ?? '', /^HTTP\/1\.1 200 /)
      assert.ok(!text?.endsWith('0\r\n\r\n'), 'it is broken, so that its caller can tell')
    }
    assert.match(stats ?? '', /^HTTP\/1\.1 504 .*the node is too slow/s)
    assert.match(job ?? '', /"Error":"504 the node is too slow/)
    assert.ok(job?.endsWith('0\r\n\r\n'), 'the logs of the job end')
  })

  await t.test('a value without an end is aborted', async () => {
    answers.stats = async () => 'x'.repeat(17 << 20)
    const { status } = await send(server.port, { method: 'GET', path: `/v1/client/stats?node_id=${NODE}`, headers: {} })
    assert.equal(status, 500)
  })
})

test('invalid times and sizes of a node do not break lists', { timeout: 280_000 }, async (t) => {
  const tasks = [{ name: 'web', state: 'dead', failed: false, startedAtMs: 1e300, finishedAtMs: -1e300 } as const]
  const resources = { cpuMhz: 1e300, cores: 1, memoryBytes: 1e300, diskBytes: 1e300 }
  const { server } = await world(t, { resources }, allocationOf(ALLOCATION, { createTimeMs: 1e300, tasks }))
  for (const path of [
    '/v1/allocations',
    `/v1/allocation/${ALLOCATION}`,
    '/v1/nodes?resources=true',
    `/v1/node/${NODE}`,
  ]) {
    const { body, status } = await send(server.port, { method: 'GET', path, headers: {} })
    assert.equal(status, 200, path)
    assert.ok(!/\de\+?\d/.test(body), `${path}: ${body}`)
    assert.ok(body.includes(NODE))
  }
  const { body, status } = await send(server.port, { method: 'GET', path: '/v1/jobs', headers: {} })
  assert.equal(status, 200)
  assert.ok(!/\de\+?\d/.test(body), body)
})
