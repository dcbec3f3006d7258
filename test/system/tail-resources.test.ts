/** Resources that followers use in the agent: descriptors and memory, all of which are released however a client leaves. */
import assert from 'node:assert/strict'
import { appendFileSync, closeSync, openSync, unlinkSync, writeFileSync, writeSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { type TestContext, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { type ChildAgent, startChildAgent } from '../helpers/child-agent.ts'
import { TailClient } from '../helpers/tail-client.ts'
import { startTailHost } from '../helpers/tail-host.ts'
import { eventually } from '../helpers/eventually.ts'

const MIB = 2 ** 20
const RSS_MAX = 250 * MIB
/** Of one log at once. */
const FOLLOWERS = Number(process.env['OUTPOST_FOLLOWERS'] ?? 100)
/** What the agent may grow by with them: a share of each follower, and what any load costs. */
const FOLLOWERS_RSS_MAX = (100 + 0.15 * FOLLOWERS) * MIB
/** Of a log that nobody reads: more than the memory that the agent may use. */
const UNREAD_MIB = Number(process.env['OUTPOST_UNREAD_MIB'] ?? 288)

/** Sends a request on a bare socket and reads nothing, until told. */
function ask(
  url: string,
  text = `GET ${new URL(url).pathname}${new URL(url).search} HTTP/1.1\r\nHost: localhost\r\n\r\n`,
): Socket {
  const { hostname, port } = new URL(url)
  const socket = connect(Number(port), hostname)
  socket.pause()
  socket.on('error', () => undefined)
  socket.write(text)
  return socket
}

async function openSockets(count: number, open: () => Socket): Promise<Socket[]> {
  const sockets: Socket[] = []
  for (let at = 0; at < count; at++) {
    sockets.push(open())
    if (at % 50 === 49) await delay(10)
  }
  return sockets
}

function bigLog(agent: ChildAgent, bytes: number): void {
  const fd = openSync(agent.log(0), 'w')
  const block = Buffer.alloc(MIB, 'some line of a log that says nothing new\n')
  for (let at = 0; at < bytes; at += block.length) writeSync(fd, block)
  closeSync(fd)
}

async function backTo(t: TestContext, agent: ChildAgent, descriptors: number): Promise<void> {
  const given = () => {
    assert.equal(agent.descriptors('allocation'), 0)
    assert.ok(agent.descriptors('all') <= descriptors)
  }
  await t.waitFor(given, { timeout: 60_000, interval: 50 })
}

test('clients that disconnect at every stage leave nothing behind', { timeout: 240_000 }, async (t) => {
  const agent = await startChildAgent(t)
  bigLog(agent, 32 * MIB)
  const url = agent.logsUrl({ follow: true, origin: 'start', offset: 0 })
  const warm = new TailClient(url, { onData: () => undefined })
  await warm.until(() => warm.bytes > MIB)
  warm.destroy()
  await eventually(() => agent.descriptors('allocation') === 0)
  const before = await agent.atRest()
  const path = `${new URL(url).pathname}${new URL(url).search}`
  const request = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`
  const live = agent.logsUrl({ follow: true, origin: 'end', offset: 1 })
  for (let round = 0; round < 8; round++) {
    const sockets = [
      ask(url, ''), // nothing sent
      ask(url, request.slice(0, 40)), // half a request
      ask(url), // a request, nothing read
      ask(live), // at the live end
      ask(url, request + request + request), // pipelined behind an endless response
      ask(agent.logsUrl({ origin: 'start', offset: 0, plain: true })), // once, nothing read
    ]
    const half = ask(url)
    half.once('data', () => half.pause())
    half.resume()
    const closed = ask(live)
    closed.end() // says that it will send nothing more, and stays
    await delay(round * 15) // from before the head to well inside the stream
    for (const socket of [...sockets, half, closed]) {
      if (round % 2 === 0) socket.resetAndDestroy()
      else socket.destroy()
    }
  }
  await backTo(t, agent, before)
})

test(`${FOLLOWERS} followers of one log share one descriptor and one watch`, { timeout: 240_000 }, async (t) => {
  const agent = await startChildAgent(t)
  writeFileSync(agent.log(0), 'first\n')
  const before = { all: await agent.atRest(), rss: agent.rss() }
  const got = new Set<Socket>()
  const url = agent.logsUrl({ follow: true, plain: true, origin: 'start', offset: 0 })
  const sockets = await openSockets(FOLLOWERS, () => {
    const socket = ask(url)
    socket.on('data', (data) => {
      if (data.includes('second\n')) got.add(socket)
    })
    socket.resume()
    return socket
  })
  await eventually(() => agent.descriptors('all') >= before.all + FOLLOWERS)
  appendFileSync(agent.log(0), 'second\n')
  await eventually(() => got.size === FOLLOWERS)
  // The file itself; a directory is watched without a descriptor of its own.
  await eventually(() => agent.descriptors('allocation') === 1)
  assert.ok(agent.rss() - before.rss < FOLLOWERS_RSS_MAX, `${Math.round((agent.rss() - before.rss) / MIB)} MiB more`)
  for (const socket of sockets) socket.destroy()
  await backTo(t, agent, before.all + 1)
})

test(`two hundred clients that never read a follow of ${UNREAD_MIB} MiB use bounded memory`, {
  timeout: 240_000,
}, async (t) => {
  const agent = await startChildAgent(t)
  bigLog(agent, UNREAD_MIB * MIB)
  const before = { all: await agent.atRest(), rss: agent.rss() }
  const urls = [true, false].map((plain) => agent.logsUrl({ follow: true, plain, origin: 'start', offset: 0 }))
  let opened = 0
  const sockets = await openSockets(200, () => ask(urls[opened++ % 2] ?? ''))
  await eventually(() => agent.descriptors('all') >= before.all + 200)
  let most = 0
  for (let look = 0; look < 30; look++) {
    most = Math.max(most, agent.rss())
    await delay(100)
  }
  await eventually(() => agent.descriptors('allocation') === 1)
  assert.ok(most - before.rss < RSS_MAX, `${Math.round((most - before.rss) / MIB)} MiB more`)
  // A client that reads is served meanwhile.
  const reader = new TailClient(urls[0] ?? '', { framed: false, onData: () => undefined })
  await reader.until(() => reader.bytes >= UNREAD_MIB * MIB, 60_000)
  reader.destroy()
  for (const socket of sockets) socket.destroy()
  await backTo(t, agent, before.all + 1)
})

test('a stalled follower of a deleted file is revoked, and one that reads is not', { timeout: 240_000 }, async (t) => {
  const host = await startTailHost(t, { deletedStallMs: 1500 })
  writeFileSync(host.log(0), Buffer.alloc(64 * MIB, 97))
  const url = host.logsUrl({ follow: true, origin: 'start', offset: 0 })
  const stalled = ask(url)
  await eventually(() => host.followers.count === 1)
  const stream = ask(host.streamUrl('alloc/logs/web.stdout.0'))
  await eventually(() => host.followers.count === 2)
  assert.equal(host.followers.files.size, 1)
  const reader = new TailClient(url, { onData: () => undefined })
  await reader.until(() => reader.bytes === 64 * MIB)
  unlinkSync(host.log(0))
  writeFileSync(host.log(1), 'next\n')
  await reader.until(() => reader.bytes === 64 * MIB + 5)
  // The reader has moved on, so only the stalled ones hold the deleted file, until they are revoked.
  await eventually(() => host.followers.files.size === 1)
  assert.equal(reader.ended, undefined)
  // A client that continues after that finds its stream broken.
  let text = ''
  const closed = new Promise((done) => stalled.once('close', done))
  stalled.on('data', (data) => (text = data.toString('latin1')))
  stalled.resume()
  await closed
  assert.ok(!text.endsWith('0\r\n\r\n'), 'not a clean end')
  stream.destroy()
  reader.destroy()
  await eventually(() => host.followers.count === 0)
  assert.equal(host.followers.files.size, 0)
})
