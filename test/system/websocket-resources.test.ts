/**
 * Resources that WebSocket clients can use in the agent: everything is released, whatever they send and however they
 * leave.
 */
import assert from 'node:assert/strict'
import { appendFileSync, closeSync, openSync, writeFileSync, writeSync } from 'node:fs'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { type ChildAgent, startChildAgent } from '../helpers/child-agent.ts'
import { clientFrame, handshake, MessageClient, OPCODE } from '../helpers/message-client.ts'
import { startTailHost, type TailHost } from '../helpers/tail-host.ts'
import { eventually } from '../helpers/eventually.ts'

const MIB = 2 ** 20
const RSS_MAX = 250 * MIB

function at(url: string): { port: number; path: string } {
  const { port, pathname, search } = new URL(url)
  return { port: Number(port), path: `${pathname}${search}` }
}

function bigLog(file: string, bytes: number): void {
  const fd = openSync(file, 'w')
  const block = Buffer.alloc(MIB, 'some line of a log that says nothing new\n')
  for (let written = 0; written < bytes; written += block.length) writeSync(fd, block)
  closeSync(fd)
}

/** A follower at the live end that has got its first heartbeat. */
async function follower(t: TestContext, host: TailHost): Promise<MessageClient> {
  const client = new MessageClient({ ...at(host.logsUrl({ follow: true, origin: 'end' })), stays: true })
  t.after(() => client.socket.destroy())
  await client.until('it follows', ({ texts }) => texts.includes('{}'))
  return client
}

async function nobodyLeft(host: TailHost, what: string): Promise<void> {
  const left = () =>
    host.followers.count === 0 && host.listener.activeExchanges === 0 && host.listener.connections.open === 0
  await eventually(left).catch((error: unknown) => {
    const { followers, listener } = host
    const counts = [followers.count, listener.activeExchanges, listener.connections.open]
    throw new Error(`${what}: ${counts.join(', ')} followers, exchanges, connections are left`, { cause: error })
  })
}

/** What each of them is closed with, if with anything; they do not hang up themselves. */
const RUDE: readonly (readonly [what: string, bytes: Buffer, code: number | undefined])[] = [
  ['an unmasked message', clientFrame(OPCODE.text, 'x', { masked: false }), 1002],
  ['an unknown opcode', clientFrame(3, 'x'), 1002],
  ['reserved bits', Buffer.from([0xf1, 0x80, 0, 0, 0, 0]), 1002],
  ['a continuation of nothing', clientFrame(OPCODE.continuation, 'x'), 1002],
  ['a ping in pieces', clientFrame(OPCODE.ping, 'x', { fin: false }), 1002],
  ['a ping that is too long', clientFrame(OPCODE.ping, Buffer.alloc(126)), 1002],
  ['a close code that is none', clientFrame(OPCODE.close, Buffer.from([0, 7])), 1002],
  ['text that is not UTF-8', clientFrame(OPCODE.text, Buffer.from([0xff])), 1007],
  ['a message of 4097 bytes', clientFrame(OPCODE.binary, Buffer.alloc(4097)), 1009],
  ['one that will be of 8 EiB', Buffer.from([0x82, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255]), 1009],
  [
    'pieces without end',
    Buffer.concat(Array.from({ length: 2000 }, (_, piece) => clientFrame(piece === 0 ? 1 : 0, '', { fin: false }))),
    1008,
  ],
  [
    'two hundred messages at once',
    Buffer.concat(Array.from({ length: 200 }, () => clientFrame(OPCODE.text, 'x'))),
    1008,
  ],
  [
    'two hundred pings at once',
    Buffer.concat(Array.from({ length: 200 }, () => clientFrame(OPCODE.ping, 'x'))),
    undefined,
  ],
]

test('invalid client frames get a close code, and the connection is closed', { timeout: 240_000 }, async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'first\n')
  for (const [what, bytes, code] of RUDE) {
    const client = await follower(t, host)
    client.socket.write(bytes)
    await client.until(what, ({ closed, ended }) => closed ?? ended)
    assert.equal(client.closed?.code, code, what)
    await client.until(`${what}: cut`, ({ ended }) => ended)
    await nobodyLeft(host, what)
  }
})

test('valid client frames change nothing, and pings are answered', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'first\n')
  const client = await follower(t, host)
  client.send(OPCODE.text, 'some words')
  client.send(OPCODE.binary, Buffer.alloc(4096))
  client.send(OPCODE.text, 'in two ', { fin: false })
  client.send(OPCODE.continuation, 'pieces')
  client.send(OPCODE.pong)
  client.send(OPCODE.ping, 'are you there')
  await client.until('a pong', ({ messages }) => messages.some(({ kind }) => kind === 'pong'))
  assert.equal(client.messages.find(({ kind }) => kind === 'pong')?.bytes.toString(), 'are you there')
  appendFileSync(host.log(0), 'second\n')
  const second = Buffer.from('second\n').toString('base64')
  await client.until('the stream goes on', ({ texts }) => texts.some((text) => text.includes(second)))
  assert.equal(client.closed, undefined)
  client.farewell()
  await nobodyLeft(host, 'a farewell')
})

test('a client may leave in any way, during the stream and during the handshake', {
  timeout: 240_000,
}, async (t) => {
  const agent = await startChildAgent(t)
  bigLog(agent.log(0), 32 * MIB)
  const whole = at(agent.logsUrl({ follow: true, origin: 'start', offset: 0 }))
  const live = at(agent.logsUrl({ follow: true, origin: 'end', offset: 1 }))
  const warm = new MessageClient(live)
  await warm.until('the first', ({ texts }) => texts.length > 0)
  warm.socket.destroy()
  await eventually(() => agent.descriptors('allocation') === 0)
  const before = await agent.atRest()
  for (let round = 0; round < 8; round++) {
    const clients = [whole, live, { ...whole, paused: true }, { ...live, paused: true }].flatMap((to) => [
      new MessageClient(to),
      new MessageClient(to),
      new MessageClient(to),
    ])
    await delay(round * 15)
    clients.forEach(({ socket }, turn) => {
      if (turn % 3 === 0) socket.resetAndDestroy()
      else if (turn % 3 === 1) socket.destroy()
      else socket.end(round % 2 === 0 ? '' : clientFrame(OPCODE.close, Buffer.from([3, 232]))) // and stays
    })
    await delay(100)
    clients.forEach(({ socket }) => void (round % 4 === 0 ? socket.resume() : socket.destroy()))
  }
  const given = () => {
    assert.equal(agent.descriptors('allocation'), 0)
    assert.ok(agent.descriptors('all') <= before)
  }
  await t.waitFor(given, { timeout: 60_000, interval: 50 })
  assert.equal(agent.stderr(), '')
})

test('a client that half-closes its connection has left', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'first\n')
  for (const plain of [false, true]) {
    const client = new MessageClient(at(host.logsUrl({ follow: true, plain, origin: 'start' })))
    t.after(() => client.socket.destroy())
    await client.until('the log', ({ messages }) => messages.length > (plain ? 0 : 1))
    client.socket.end()
    await nobodyLeft(host, 'half closed')
  }
})

test('a client that does not read is disconnected after the stall timeout, with or without pings', {
  timeout: 240_000,
}, async (t) => {
  const host = await startTailHost(t, { stallTimeoutMs: 1500 })
  bigLog(host.log(0), 64 * MIB)
  const to = { ...at(host.logsUrl({ follow: true, origin: 'start', offset: 0 })), paused: true }
  const silent = new MessageClient(to)
  const pinging = new MessageClient(to)
  t.after(() => [silent, pinging].forEach(({ socket }) => socket.destroy()))
  await eventually(() => host.followers.count === 2)
  const pings = setInterval(() => pinging.send(OPCODE.ping, 'x'), 50)
  t.after(() => clearInterval(pings))
  await nobodyLeft(host, 'a stall')
})

test('pongs that a client does not read are not queued without limit', { timeout: 240_000 }, async (t) => {
  const host = await startTailHost(t)
  bigLog(host.log(0), 64 * MIB)
  const client = new MessageClient({ ...at(host.logsUrl({ follow: true, origin: 'start', offset: 0 })), paused: true })
  t.after(() => client.socket.destroy())
  await eventually(() => host.followers.count === 1)
  // Below the rate that is closed for itself.
  const pings = setInterval(() => client.send(OPCODE.ping, Buffer.alloc(125)), 25)
  t.after(() => clearInterval(pings))
  await nobodyLeft(host, 'pings')
})

test('two hundred clients that never read use bounded memory', { timeout: 240_000 }, async (t) => {
  const agent: ChildAgent = await startChildAgent(t)
  bigLog(agent.log(0), 256 * MIB)
  const before = { all: await agent.atRest(), rss: agent.rss() }
  const targets = [true, false].map((plain) => at(agent.logsUrl({ follow: true, plain, origin: 'start', offset: 0 })))
  const clients: MessageClient[] = []
  for (let opened = 0; opened < 200; opened++) {
    const to = targets[opened % 2]
    if (to) clients.push(new MessageClient({ ...to, paused: true }))
    if (opened % 50 === 49) await delay(10)
  }
  await eventually(() => agent.descriptors('all') >= before.all + 200)
  let most = 0
  for (let look = 0; look < 30; look++) {
    most = Math.max(most, agent.rss())
    await delay(100)
  }
  assert.ok(most - before.rss < RSS_MAX, `${Math.round((most - before.rss) / MIB)} MiB more`)
  for (const { socket } of clients) socket.destroy()
  await t.waitFor(() => assert.equal(agent.descriptors('allocation'), 0), { timeout: 60_000, interval: 50 })
})

test('a partial handshake times out like any request', async (t) => {
  const host = await startTailHost(t)
  const { port, path } = at(host.logsUrl({ follow: true }))
  const client = new MessageClient({ port, path: '/v1/nowhere' })
  await client.until('an answer', ({ head }) => head)
  client.socket.write(handshake(path).slice(0, 60))
  client.socket.destroy()
  await nobodyLeft(host, 'half a handshake')
})
