/** Streams through a server: follows, cursors, WebSocket, large files; what a slow reader costs, and what hundreds of followers do. */
import assert from 'node:assert/strict'
import { createHash } from 'node:crypto'
import {
  appendFileSync,
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { get, type IncomingMessage } from 'node:http'
import { join } from 'node:path'
import { test } from 'node:test'
import { type Host, startCluster } from '../helpers/cluster.ts'
import { MessageClient } from '../helpers/message-client.ts'
import { TailClient } from '../helpers/tail-client.ts'
import { eventually } from '../helpers/eventually.ts'

const MIB = 2 ** 20
/** Twenty readers who stop could hold far more of it than the processes may grow by. */
const LARGE_MIB = Number(process.env['OUTPOST_STREAM_MIB'] ?? 24)
const FOLLOWERS = Number(process.env['OUTPOST_FOLLOWERS'] ?? 100)
/** What the processes may grow by with them: a share of each follower, and what any load costs. */
const FOLLOWERS_MIB = 100 + 0.2 * FOLLOWERS

function logsPath(host: Host, more: string): string {
  return `/v1/client/fs/logs/${host.allocId}?task=web&type=stdout&${more}`
}

function logFile(host: Host, index = 0): string {
  return join(host.logs, `web.stdout.${index}`)
}

/** A file of numbered blocks; resolves with its SHA-256. */
function writeLarge(path: string, megabytes: number): string {
  const hash = createHash('sha256')
  const fd = openSync(path, 'w')
  for (let block = 0; block < megabytes; block++) {
    const bytes = Buffer.alloc(MIB, `${block} of many blocks of this file\n`)
    writeSync(fd, bytes)
    hash.update(bytes)
  }
  closeSync(fd)
  return hash.digest('hex')
}

function openFiles(pid: number): string[] {
  const directory = `/proc/${pid}/fd`
  return readdirSync(directory).flatMap((fd) => {
    try {
      return [readlinkSync(join(directory, fd))]
    } catch {
      return [] // closed since it was listed
    }
  })
}

function open(url: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => get(url, { agent: false }, resolve).on('error', reject))
}

async function digest(url: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const part of await open(url)) hash.update(part)
  return hash.digest('hex')
}

test('streams through servers are complete', { timeout: 300_000 }, async (suite) => {
  // The memory of the first server and of the first host is measured.
  const world = await startCluster(suite, { servers: 2, hosts: 2, here: ['server-1', 'client-1'] })

  await suite.test(
    'a large file for readers that stop is buffered in no process and does not affect others',
    async () => {
      const host = world.host()
      const file = join(host.directory, 'alloc/data/big')
      const expected = writeLarge(file, LARGE_MIB)
      const path = `/v1/client/fs/cat/${host.allocId}?path=alloc/data/big`
      const processes = [world.server(), host.member]
      // Once at full speed, which also shows what the processes need for it.
      assert.equal(await digest(`${world.server().url}${path}`), expected)
      const before = processes.map((each) => each.rssMiB())
      const slow = await Promise.all(Array.from({ length: 20 }, () => open(`${world.server().url}${path}`)))
      await eventually(() => slow.every(({ socket }) => socket.bytesRead > 0))
      assert.equal(await digest(`${world.server().url}${path}`), expected)
      writeFileSync(logFile(host), 'a line\n')
      const follower = new TailClient(`${world.server().url}${logsPath(host, 'follow=true&origin=start')}`)
      await follower.until(() => follower.text === 'a line\n')
      follower.destroy()
      for (const [at, each] of processes.entries()) {
        const grown = each.rssMiB() - (before[at] ?? 0)
        assert.ok(grown < 150, `${each.name} has grown by ${grown} MiB`)
      }
      for (const response of slow) response.destroy()
      await eventually(() => !openFiles(host.member.pid).includes(file))
    },
  )

  await suite.test(`${FOLLOWERS} followers are served through one server`, async (t) => {
    const host = world.host()
    writeFileSync(logFile(host), 'first\n')
    const processes = [world.server(), host.member]
    const before = processes.map((each) => ({ descriptors: each.descriptors(), rss: each.rssMiB() }))
    const followers: TailClient[] = []
    for (let batch = 0; batch < FOLLOWERS / 50; batch++) {
      for (let each = 0; each < 50; each++) {
        const plain = each % 2 === 1
        const url = `${world.server().url}${logsPath(host, `follow=true&origin=start&plain=${plain}`)}`
        followers.push(new TailClient(url, { framed: !plain }))
      }
      await eventually(() => followers.every(({ status, ended }) => status !== undefined || ended !== undefined))
    }
    t.after(() => followers.forEach((each) => each.destroy()))
    const [one, other] = [followers[0], followers[1]]
    assert.ok(one && other)
    let expected = 'first\n'
    for (let line = 0; line < 20; line++) {
      appendFileSync(logFile(host), `line ${line}\n`)
      expected += `line ${line}\n`
      await eventually(() => [one, other].every((each) => each.bytes >= expected.length || each.ended !== undefined))
    }
    await eventually(() => followers.every(({ bytes, ended }) => bytes >= expected.length || ended !== undefined))
    for (const each of followers) {
      assert.equal(each.ended, undefined)
      assert.equal(each.text, expected)
    }
    for (const [at, each] of processes.entries()) {
      const grown = each.rssMiB() - (before[at]?.rss ?? 0)
      assert.ok(grown < FOLLOWERS_MIB, `${each.name} has grown by ${grown} MiB`)
    }
    // The node reads the file once for all of them. A follower that is behind on a busy machine has a descriptor of its own until it has caught up.
    await eventually(() => host.member.descriptors() - (before[1]?.descriptors ?? 0) < 20)
    followers.forEach((each) => each.destroy())
    for (const [at, each] of processes.entries()) {
      await eventually(() => each.descriptors() <= (before[at]?.descriptors ?? 0) + 4)
    }
  })

  await suite.test('follows, cursors and WebSockets work through any server and any agent', async () => {
    const host = world.host()
    const through = [world.server().url, world.server(1).url, world.host(1).member.url]
    writeFileSync(logFile(host), 'one\n')
    for (const url of through) {
      const framed = new TailClient(`${url}${logsPath(host, 'follow=true&origin=start&cursor=')}`)
      const plain = new TailClient(`${url}${logsPath(host, 'follow=true&origin=start&plain=true')}`, { framed: false })
      const before = readFileSync(logFile(host), 'latin1')
      for (const client of [framed, plain]) await client.until(() => client.text === before)
      appendFileSync(logFile(host), 'two\n')
      for (const client of [framed, plain]) {
        await client.until(() => client.text === `${before}two\n`)
        client.destroy()
      }
      const { cursor = '' } = framed
      assert.notEqual(cursor, '')
      appendFileSync(logFile(host), 'three\n')
      const path = logsPath(host, `follow=true&cursor=${encodeURIComponent(cursor)}`)
      const resumed = new TailClient(`${url}${path}`)
      await resumed.until(() => resumed.text === 'three\n')
      resumed.destroy()
      const socket = new MessageClient({ port: Number(new URL(url).port), path })
      await socket.until('its frames', ({ texts }) => texts.some((text) => JSON.parse(text).Data !== undefined))
      const [frame] = socket.texts.map((text) => JSON.parse(text)).filter(({ Data }) => Data !== undefined)
      assert.equal(Buffer.from(frame.Data, 'base64').toString(), 'three\n')
      socket.socket.destroy()
    }
  })

  await suite.test('large frames over WebSocket through a server are one message each', async () => {
    const host = world.host()
    const expected = writeLarge(logFile(host), 4)
    const path = logsPath(host, 'follow=false')
    const socket = new MessageClient({ port: world.server().port, path })
    const { code } = await socket.close()
    assert.equal(code, 1000)
    const hash = createHash('sha256')
    for (const text of socket.texts) {
      const { Data } = JSON.parse(text)
      if (Data !== undefined) hash.update(Buffer.from(Data, 'base64'))
    }
    assert.equal(hash.digest('hex'), expected)
    socket.socket.destroy()
  })
})
