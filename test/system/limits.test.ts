/** Limits as an operator sets them, through a whole agent. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { MessageClient } from '../helpers/message-client.ts'
import { answersIn, ask, raw } from '../helpers/raw-http.ts'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const OPEN = 'acl { enabled = false }\n'
const METADATA = '/v1/client/metadata'
const TOO_MANY = 'Your IP is issuing too many concurrent connections, please rate limit your calls\n'

async function agentWith(t: TestContext, limits: string, more = '') {
  const directory = workDirectory(t)
  makeAllocation(join(directory, 'data/alloc'), ALLOC)
  return agentHere(t, ['-config', writeConfig(directory, `${OPEN}limits {\n${limits}\n}\n${more}`)])
}

/** Opens connections that say nothing. */
async function hold(t: TestContext, port: number, count: number, host = '127.0.0.1'): Promise<Socket[]> {
  const sockets = Array.from({ length: count }, () => connect({ port, host }))
  t.after(() => sockets.forEach((socket) => socket.destroy()))
  await Promise.all(sockets.map((socket) => once(socket, 'connect')))
  for (const socket of sockets) socket.on('error', () => undefined)
  return sockets
}

/** Opens connections that follow a log: they are not idle. */
async function follow(t: TestContext, port: number, count: number, host = '127.0.0.1'): Promise<Socket[]> {
  const sockets = await hold(t, port, count, host)
  for (const socket of sockets) {
    socket.write(`GET /v1/client/fs/logs/${ALLOC}?task=web&follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n`)
    await once(socket, 'data')
  }
  return sockets
}

test('a connection above the limit of an address is refused with the text of Nomad', async (t) => {
  const agent = await agentWith(t, 'http_max_conns_per_client = 3')
  const held = await follow(t, agent.port, 3)
  const heard = await raw({ port: agent.port }, `GET ${METADATA} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
  const head =
    'HTTP/1.1 429 Too Many Requests\r\nContent-Type: text/plain\r\nContent-Length: 81\r\nConnection: close\r\n\r\n'
  assert.equal(heard.text, head + TOO_MANY)
  assert.equal(heard.end, 'closed')
  const other = connect({ port: agent.port, host: '127.0.0.1', localAddress: '127.0.0.2' })
  other.write(`GET ${METADATA} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
  assert.match(String(await once(other, 'data')), /^HTTP\/1.1 200/, 'another address is another caller')
  other.destroy()
  held[0]?.destroy()
  await eventually(() => held[0]?.destroyed, 'one left')
  // Beyond a hundred, and ten more each second, refusals are not even said.
  const status = async () => (await ask(agent.port, 'GET', METADATA).catch(() => undefined))?.status
  await eventually(async () => (await status()) === 200, 'there is room again')
})

test('refusals are limited too, and a refused connection is not served', async (t) => {
  const agent = await agentWith(t, 'http_max_conns_per_client = 1')
  await follow(t, agent.port, 1)
  const heard = await Promise.all(
    Array.from({ length: 250 }, () => raw({ port: agent.port }, `GET ${METADATA} HTTP/1.1\r\nHost: localhost\r\n\r\n`)),
  )
  const answered = heard.filter(({ text }) => text.startsWith('HTTP/1.1 429')).length
  assert.ok(answered >= 100 && answered < 200, `${answered} of 250 were answered`)
  assert.equal(heard.filter(({ text }) => text.includes(' 200 ')).length, 0)
  assert.ok(heard.every(({ end }) => end !== 'open'))
})

test('a WebSocket counts toward the connection limit', async (t) => {
  const agent = await agentWith(t, 'http_max_conns_per_client = 1')
  const path = `/v1/client/fs/logs/${ALLOC}?task=web&follow=true`
  const held = new MessageClient({ port: agent.port, path })
  await held.until('it is served', ({ texts }) => texts.length > 0)
  const second = new MessageClient({ port: agent.port, path })
  await second.until('it is turned away', ({ head, ended }) => head ?? ended)
  assert.match(second.head ?? '', /^HTTP\/1\.1 429 /)
  held.farewell()
  await held.until('it has left', ({ ended }) => ended)
  // Beyond a hundred, and ten more each second, refusals are not even said.
  const status = async () => (await ask(agent.port, 'GET', METADATA).catch(() => undefined))?.status
  await eventually(async () => (await status()) === 200, 'there is room again')
})

test('the limit can be disabled, and counts IPv4-mapped addresses as IPv4', async (t) => {
  const unlimited = await agentWith(t, 'http_max_conns_per_client = 0')
  await hold(t, unlimited.port, 150)
  assert.equal((await ask(unlimited.port, 'GET', METADATA)).status, 200)
  const dual = await agentWith(t, 'http_max_conns_per_client = 2', 'bind_addr = "::"').catch((error: unknown) =>
    String(error),
  )
  if (typeof dual === 'string') return t.diagnostic(`no IPv6 here: ${dual}`)
  await follow(t, dual.port, 2, '127.0.0.1')
  await eventuallyRefused(dual.port)
})

async function eventuallyRefused(port: number): Promise<void> {
  for (let tries = 0; tries < 50; tries++) {
    if ((await ask(port, 'GET', METADATA)).status === 429) return
  }
  assert.fail('a third connection was never refused')
}

test('limits apply to followers, headers and bodies', async (t) => {
  const agent = await agentWith(
    t,
    'http_max_followers = 2\nhttp_max_header_bytes = 2048\nhttp_max_body_bytes = 1024\nhttp_max_conns_per_client = 0',
  )
  await follow(t, agent.port, 2)
  const request = `GET /v1/client/fs/logs/${ALLOC}?task=web&follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n`
  const refused = answersIn(
    (await raw({ port: agent.port, until: (text) => text.includes('\r\n\r\n') }, request)).bytes,
  )[0]
  assert.equal(refused?.status, 429)
  assert.match(refused?.headers.get('retry-after') ?? '', /^\d+$/)
  assert.match(refused?.body.toString() ?? '', /http_max_followers/)
  assert.equal(
    (await ask(agent.port, 'GET', `/v1/client/fs/logs/${ALLOC}?task=web`)).status,
    200,
    'who does not follow is served',
  )
  assert.equal((await ask(agent.port, 'GET', METADATA, `X: ${'a'.repeat(3000)}`)).status, 431)
  const body = JSON.stringify({ Meta: { a: 'x'.repeat(2000) } })
  const posted = await raw(
    { port: agent.port },
    `POST ${METADATA} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
  )
  assert.match(posted.text, /^HTTP\/1.1 413 [^]*larger than 1024 bytes$/)
})

test('limits apply to the duration of requests', async (t) => {
  const agent = await agentWith(
    t,
    'http_head_timeout = "300ms"\nhttp_request_timeout = "900ms"\nhttp_idle_timeout = "300ms"\nhttp_stall_timeout = "500ms"',
  )
  const [silent, slow, idle] = await Promise.all([
    raw({ port: agent.port }),
    raw({ port: agent.port }, `POST ${METADATA} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{`),
    raw({ port: agent.port }, `GET ${METADATA} HTTP/1.1\r\nHost: localhost\r\n\r\n`),
  ])
  assert.match(silent.text, /^HTTP\/1.1 408 /)
  assert.match(slow.text, /^HTTP\/1.1 408 /)
  assert.match(idle.text, /^HTTP\/1.1 200 /)
  for (const heard of [silent, slow, idle]) assert.notEqual(heard.end, 'open')
})
