/**
 * Watches and log tails of a high availability cluster while its active server steps down and is killed: those of clients at other
 * servers receive each event and each line once, in order, and do not end.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { appendFileSync, mkdirSync, realpathSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { writeManifest } from '../../host/allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'
import { type HaServerProcess, LocalHaCluster, startHaCluster } from '../../helpers/ha-cluster.ts'
import { OUTPOST } from '../../helpers/program.ts'
import { TailClient } from '../../helpers/tail-client.ts'
import { ALLOC_ID } from '../../helpers/tail-host.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'
import { openStream, type WatchLine } from '../../helpers/watch-stream-client.ts'

const POLICY = `path "secret/*" { capabilities = ["read"] }
node { policy = "read" }
namespace "default" { policy = "write" }`

/** An earlier answer about a token is not used while no server is active. */
const ACL = 'acl {\n enabled = true\n token_ttl = "1s"\n}'

/** A host with one task; resolves to its address. */
async function startHost(t: TestContext, cluster: LocalHaCluster) {
  const dataDir = realpathSync(temporaryDirectory(t))
  const started = { ClientStatus: 'running', Tasks: { web: { State: 'running', StartedAt: new Date().toISOString() } } }
  mkdirSync(join(dataDir, 'alloc'))
  writeManifest(join(dataDir, 'alloc'), ALLOC_ID, started)
  const log = join(dataDir, 'alloc', ALLOC_ID, 'alloc/logs/web.stdout.0')
  writeFileSync(log, '')
  const config = join(dataDir, 'agent.hcl')
  const nats = cluster.nats.map(({ url }) => `"${url}"`).join(', ')
  writeFileSync(
    config,
    `data_dir = "${dataDir}"\nports { http = 0 }\nclient { enabled = true }\n${ACL}\nnats { servers = [${nats}] }\n`,
  )
  const child = spawn(OUTPOST, ['agent', '-config', config], { stdio: ['ignore', 'pipe', 'ignore'] })
  t.after(async () => {
    const ended = new Promise((done) => child.once('exit', done))
    if (child.exitCode === null && child.kill('SIGKILL')) await ended
  })
  let stdout = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  const url = await eventually(() => /http:\/\/\S+/.exec(stdout)?.[0], 'the host has started')
  return { url, log }
}

/** Names and versions of the events in lines of JSON or in server-sent events. */
function eventsOf(text: string): string[] {
  const lines = text.slice(0, text.lastIndexOf('\n') + 1).split('\n')
  const values = lines.map((line) => (line.startsWith('data: ') ? line.slice(6) : line))
  return values
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Partial<WatchLine>)
    .flatMap(({ path, version }) => (path === undefined ? [] : [`${path} ${version}`]))
}

/** A client that polls, as `outpost kv watch` does. */
class Poller {
  readonly events: string[] = []
  readonly failures: string[] = []
  #isStopped = false
  readonly done: Promise<void>

  constructor(cluster: LocalHaCluster, server: HaServerProcess) {
    this.done = this.#run(cluster, server)
  }

  async #run(cluster: LocalHaCluster, server: HaServerProcess): Promise<void> {
    let cursor = ''
    while (!this.#isStopped) {
      const { body, status } = await cluster.ask(server, 'GET', `/v1/secret/watch/app?wait=5s&cursor=${cursor}`)
      if (status !== 200) {
        this.failures.push(`${status} ${body}`)
        await sleep(200)
        continue
      }
      const { data } = JSON.parse(body) as { data: { cursor: string; events: { path: string; version: number }[] } }
      cursor = data.cursor
      this.events.push(...data.events.map(({ path, version }) => `${path} ${version}`))
    }
  }

  stop(): void {
    this.#isStopped = true
  }
}

/** Writes versions of one secret and lines of the log until it is stopped; only acknowledged writes count. */
class Writer {
  readonly written: string[] = []
  lines = 0
  #isStopped = false
  readonly done: Promise<void>

  constructor(cluster: LocalHaCluster, log: string) {
    this.done = this.#run(cluster, log)
  }

  async #run(cluster: LocalHaCluster, log: string): Promise<void> {
    let version = 0
    while (!this.#isStopped) {
      appendFileSync(log, `line ${++this.lines}\n`)
      const server = cluster.servers.find(({ process }) => process.isRunning)
      if (!server) throw new Error('no server runs')
      // With `cas` a write whose outcome is unknown is repeated safely.
      const body = { options: { cas: version }, data: { version: version + 1 } }
      const answer = await cluster.ask(server, 'POST', '/v1/secret/data/app/a', body).catch(() => undefined)
      if (answer?.status === 200 || (answer?.status === 400 && answer.body.includes('check-and-set'))) {
        this.written.push(`app/a ${++version}`)
      }
      await sleep(20)
    }
  }

  stop(): void {
    this.#isStopped = true
  }
}

test('watches and log tails continue while the active server changes', { timeout: 300_000 }, async (t) => {
  const { cluster } = await startHaCluster(t, { nats: ['n1'], configuration: [ACL] })
  const host = await startHost(t, cluster)
  const root = async (method: string, path: string, body?: object) => {
    const { body: text, status } = await cluster.ask(await cluster.activeServer(), method, `/v1/${path}`, body)
    assert.ok(status < 300, `${method} ${path}: ${status} ${text}`)
    return JSON.parse(text || '{}') as { auth?: { client_token: string } }
  }
  await root('PUT', 'sys/policies/acl/reader', { policy: POLICY })
  const token = (await root('POST', 'auth/token/create', { policies: ['reader'] })).auth?.client_token ?? ''
  const urls = [...cluster.servers.map(({ url }) => url), host.url]
  const tailPath = `/v1/client/fs/logs/${ALLOC_ID}?task=web&type=stdout&follow=true&plain=true`
  const headers = { 'X-Nomad-Token': token }
  const isKnown = async (url: string) => {
    const answer = await fetch(`${url}${tailPath.replace('follow=true', 'follow=false')}`, { headers })
    await answer.text()
    return answer.status === 200
  }
  for (const url of urls) await eventually(() => isKnown(url), `the host is known at ${url}`, 30_000)

  const streams = await Promise.all(
    cluster.servers.flatMap(({ url, name }) =>
      [{}, { Accept: 'text/event-stream' }].map(async (accept) => {
        const stream = await openStream(Number(new URL(url).port), 'secret/watch/app?stream=true', {
          token,
          headers: accept,
        })
        await eventually(() => stream.text().includes('\n'))
        let isBroken = false
        void stream.ended.then(() => (isBroken = true))
        return { name, stream, hasEnded: () => isBroken }
      }),
    ),
  )
  const pollers = cluster.servers.map((server) => ({ name: server.name, poller: new Poller(cluster, server) }))
  const tails = urls.map((url, at) => ({
    name: cluster.servers[at]?.name ?? 'host',
    tail: new TailClient(`${url}${tailPath}`, { framed: false, headers }),
  }))
  for (const { poller } of pollers) poller.done.catch(() => undefined)
  await sleep(500)
  const writer = new Writer(cluster, host.log)
  await sleep(1500)

  const timed: string[] = []
  const change = async (what: string, act: (active: HaServerProcess) => Promise<unknown>) => {
    const active = await cluster.activeServer()
    const [atMs, count] = [performance.now(), writer.written.length]
    await act(active)
    await eventually(() => writer.written.length > count + 3, `writes continue after ${what}`)
    timed.push(`${what} of ${active.name}: writes continue after ${Math.round(performance.now() - atMs)} ms`)
    await sleep(2000)
    return active.name
  }
  for (const at of ['first', 'second']) {
    await change(`${at} step-down`, (active) => cluster.ask(active, 'POST', '/v1/sys/step-down'))
  }
  const killed = await change('kill', (active) => active.process.kill())
  writer.stop()
  await writer.done
  for (const line of timed) t.diagnostic(line)
  t.diagnostic(`${writer.written.length} writes, ${writer.lines} lines`)

  const lines = Array.from({ length: writer.lines }, (_, at) => `line ${at + 1}\n`).join('')
  for (const { hasEnded, name, stream } of streams) {
    if (name === killed) continue
    await eventually(() => eventsOf(stream.text()).length >= writer.written.length || hasEnded(), `events at ${name}`)
    assert.deepEqual(eventsOf(stream.text()), writer.written, `events at ${name}`)
    assert.equal(hasEnded(), false, `the stream at ${name} has ended: ${stream.tail().slice(-300)}`)
  }
  for (const { name, poller } of pollers) {
    if (name === killed) continue
    await eventually(() => poller.events.length >= writer.written.length, `polled events at ${name}`)
    poller.stop()
    await poller.done
    assert.deepEqual([poller.events, poller.failures], [writer.written, []], name)
  }
  for (const { name, tail } of tails) {
    if (name === killed) continue
    await tail.until(({ ended, text }) => text.length >= lines.length || ended !== undefined)
    assert.equal(tail.text, lines, `lines at ${name}`)
    assert.equal(tail.ended, undefined, `the tail at ${name} has ended`)
  }

  await root('POST', 'auth/token/revoke', { token })
  for (const { name, stream } of streams) if (name !== killed) assert.equal(await stream.ended, 'end')
  for (const { name, tail } of tails) if (name !== killed) await tail.until(({ ended }) => ended === 'broken', 30_000)
})
