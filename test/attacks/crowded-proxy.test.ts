/** Many callers behind one address, one of which keeps connections open. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { connect as connectTls } from 'node:tls'
import { workDirectory } from '../helpers/agent-process.ts'
import { makeCertificates } from '../helpers/certificates.ts'
import { type Edge, type EdgeOptions, startEdge } from '../helpers/edge.ts'
import { ALLOC } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const LIMIT = 8
const REQUEST = 'GET /v1/client/metadata HTTP/1.1\r\nHost: localhost\r\n\r\n'
const FOLLOW = `GET /v1/client/fs/logs/${ALLOC}?task=web&follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n`

interface Client {
  readonly socket: Socket
  readonly text: () => string
  readonly ended: () => boolean
}

async function open(t: TestContext, edge: Edge, text = '', ca?: string): Promise<Client> {
  const to = { port: edge.port, host: '127.0.0.1' }
  const socket = ca === undefined ? connect(to) : connectTls({ ...to, ca })
  t.after(() => socket.destroy())
  let heard = ''
  let ended = false
  socket.on('error', () => undefined).on('data', (bytes) => (heard += bytes.toString('latin1')))
  socket.on('end', () => (ended = true)).on('close', () => (ended = true))
  await once(socket, ca === undefined ? 'connect' : 'secureConnect')
  const client = { socket, text: () => heard, ended: () => ended }
  if (text !== '') {
    socket.write(text)
    if (text.endsWith('\r\n\r\n')) await eventually(() => heard !== '', 'an answer')
  }
  return client
}

async function many(t: TestContext, edge: Edge, count: number, text?: string, ca?: string): Promise<Client[]> {
  const clients: Client[] = []
  for (let at = 0; at < count; at++) clients.push(await open(t, edge, text, ca))
  await eventually(() => edge.listener.connections.open >= Math.min(count, LIMIT), 'all are counted')
  return clients
}

const start = (t: TestContext, more: EdgeOptions = {}) =>
  startEdge(t, {
    ...more,
    limits: { connectionsPerClient: LIMIT, idleTimeoutMs: 600_000, headTimeoutMs: 300_000, requestTimeoutMs: 300_000 },
  })

test('when idle connections reach the limit, the connection that has been idle longest is closed', async (t) => {
  const edge = await start(t)
  const idle = await many(t, edge, LIMIT, REQUEST)
  // The first one asks again, so the second one has been idle the longest.
  const [first, second, third] = idle
  assert.ok(first && second && third)
  const before = first.text().length
  first.socket.write(REQUEST)
  await eventually(() => first.text().length > before, 'answered again')
  const late = await open(t, edge, REQUEST)
  assert.match(late.text(), /^HTTP\/1\.1 200 /)
  await eventually(() => second.ended(), 'the second one is closed')
  assert.deepEqual(
    idle.map(({ ended }) => ended()),
    idle.map((client) => client === second),
  )
  await open(t, edge, REQUEST)
  await eventually(() => third.ended(), 'then the third one')
  assert.equal(edge.listener.connections.open, LIMIT)
  assert.equal(edge.listener.connections.exceeded, 0)
})

test('callers are served while silent connections repeatedly reach the limit', async (t) => {
  const edge = await start(t)
  for (let round = 0; round < 5; round++) {
    await many(t, edge, LIMIT * 2)
    assert.match((await open(t, edge, REQUEST)).text(), /^HTTP\/1\.1 200 /)
  }
  assert.equal(edge.listener.connections.open, LIMIT)
  assert.equal(edge.listener.connections.exceeded, 0)
})

test('streams, requests in progress and incomplete heads are never evicted', async (t) => {
  const edge = await start(t)
  const body = await open(
    t,
    edge,
    'POST /v1/client/metadata HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n\r\n{"Meta"',
  )
  const head = await open(t, edge, 'GET /v1/client/metadata HTTP/1.1\r\nHost: loc')
  // Their answers come after what was sent before them has been read.
  const busy = [body, head, ...(await many(t, edge, LIMIT - 2, FOLLOW))]
  await eventually(() => edge.listener.activeExchanges === LIMIT - 1, 'all but the unfinished head are under way')
  const refused = await open(t, edge)
  await eventually(() => refused.ended(), 'it is turned away')
  assert.match(refused.text(), /^HTTP\/1\.1 429 /)
  assert.equal(edge.listener.connections.exceeded, 1)
  assert.deepEqual(
    busy.map(({ ended }) => ended()),
    busy.map(() => false),
  )
  head.socket.write('alhost\r\n\r\n')
  await eventually(() => head.text().includes(' 200 '), 'the unfinished head is served')
  assert.match((await open(t, edge, REQUEST)).text(), /^HTTP\/1\.1 200 /, 'and can be closed afterwards')
  await eventually(() => head.ended(), 'it is closed')
  body.socket.write(':{"a":"1"}}')
  await eventually(() => body.text().includes(' 200 '), 'the body is taken')
})

test('over TLS the limit works in the same way', async (t) => {
  const directory = workDirectory(t)
  if (!makeCertificates(directory, ['host'])) return t.skip('openssl is not there')
  const read = (name: string) => readFileSync(join(directory, name), 'utf8')
  const [ca, cert, key] = [read('ca.pem'), read('host.pem'), read('host.key')]
  const edge = await start(t, { tls: { cert, key, minVersion: 'TLSv1.2', verifyClient: false } })
  const streams = await many(t, edge, 2, FOLLOW, ca)
  const idle = await many(t, edge, LIMIT - 2, REQUEST, ca)
  for (let round = 0; round < LIMIT; round++) {
    assert.match((await open(t, edge, REQUEST, ca)).text(), /^HTTP\/1\.1 200 /)
  }
  await eventually(() => idle.every(({ ended }) => ended()), 'all idle connections were closed')
  assert.ok(streams.every(({ ended }) => !ended()))
  await many(t, edge, LIMIT * 2, '', ca)
  assert.match((await open(t, edge, REQUEST, ca)).text(), /^HTTP\/1\.1 200 /, 'silent ones are closed, too')
  assert.equal(edge.listener.connections.open, LIMIT)
})
