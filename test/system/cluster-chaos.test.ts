/**
 * NATS, servers and agents are killed, ended, frozen and started again under followers that resume by cursor: nothing is
 * lost, nothing repeated, and nothing is left behind. `CHAOS_SECONDS=120` is the whole of what is promised; `CHAOS_SEED`
 * repeats a run.
 */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { join } from 'node:path'
import { allocIdOf, type ClusterWorld, type Member, startCluster } from '../helpers/cluster.ts'
import { LineChecker } from '../helpers/line-checker.ts'
import { OUTPOST } from '../helpers/restarting-agent.ts'
import { ResumingClient } from '../helpers/resuming-client.ts'
import { SteadyWriter } from '../helpers/steady-writer.ts'
import { until } from '../host/host-fixture.ts'

const SECONDS = Number(process.env['CHAOS_SECONDS'] ?? 20)
const SEED = Number(process.env['CHAOS_SEED'] ?? Date.now() % 100_000)
/** What a server says of a node that is not there, or while it reaches nobody itself. */
const BEARABLE = [404, 429, 502, 503, 504]
const PATIENCE_MS = 60_000
const MEMORY_MIB_MAX = 300
/** Descriptors that may differ between two moments of an idle process. */
const DESCRIPTORS_SLACK = 6

function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

interface Follower {
  readonly name: string
  readonly bytes: () => number
  /** Bytes before the oldest place that it may still ask for. */
  readonly needed: () => number
  readonly broken: () => string | undefined
  /** What it is doing, for the report of a failure. */
  readonly state: () => string
  readonly end: () => Promise<string>
}

function pathOf(world: ClusterWorld, more: string): string {
  return `/v1/client/fs/logs/${world.host().allocId}?task=web&type=stdout&follow=true&${more}`
}

function resuming(t: TestContext, world: ClusterWorld, { url, name }: Member, framed: boolean): Follower {
  const client = new ResumingClient(
    framed,
    (cursor) => `${url}${pathOf(world, `plain=${!framed}&cursor=${encodeURIComponent(cursor)}`)}`,
    BEARABLE,
  )
  t.after(() => client.stop())
  return {
    name: `${framed ? 'framed' : 'plain'} through ${name}`,
    bytes: () => client.bytes,
    needed: () => (framed ? client.bytes : client.bytesAtHead),
    broken: () => client.broken,
    state: () => client.state,
    async end() {
      await client.stop()
      return client.digest()
    },
  }
}

function command(t: TestContext, { url }: Member): Follower {
  const args = ['logs', '-address', url, '-f', '-stdout', allocIdOf(0), 'web']
  const child = spawn(OUTPOST, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  t.after(() => child.kill('SIGKILL'))
  const hash = createHash('sha256')
  const lines = new LineChecker()
  let [bytes, stderr] = [0, '']
  child.stdout.on('data', (data: Buffer) => {
    bytes += data.length
    hash.update(data)
    lines.push(data)
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const exited = once(child, 'exit')
  return {
    name: 'outpost logs -f',
    bytes: () => bytes,
    needed: () => bytes,
    broken: () => lines.fault ?? (child.exitCode === null ? undefined : `it ended: ${stderr}`),
    state: () => `stderr ends in ${JSON.stringify(stderr.slice(-300))}`,
    async end() {
      child.kill('SIGINT')
      assert.deepEqual(await exited, [0, null])
      return hash.digest('hex')
    },
  }
}

/** One thing that goes wrong, and is put right again. */
async function mishap(world: ClusterWorld, random: () => number): Promise<string> {
  const downMs = random() * 1500
  const what = random()
  if (what < 0.3) {
    await world.nats.kill()
    await delay(downMs)
    await world.nats.restart()
    return `NATS down for ${Math.round(downMs)} ms`
  }
  const members = [...world.servers, ...world.hosts.map(({ member }) => member)]
  const member = members[Math.floor(random() * members.length)] ?? world.server()
  if (what < 0.45) {
    // Now and then for longer than its callers bear.
    const frozenMs = random() < 0.3 ? 9000 : downMs
    member.signal('SIGSTOP')
    await delay(frozenMs)
    member.signal('SIGCONT')
    return `${member.name} frozen for ${Math.round(frozenMs)} ms`
  }
  const way = what < 0.85 ? 'kill' : 'stop'
  await member[way]()
  await delay(downMs)
  await member.start()
  return `${member.name}: ${way}, down for ${Math.round(downMs)} ms`
}

test(`${SECONDS} s of mishaps, seed ${SEED}`, { timeout: SECONDS * 1000 + 300_000 }, async (t) => {
  const random = randomOf(SEED)
  const world = await startCluster(t, { servers: 2, hosts: 2 })
  const members = [...world.servers, ...world.hosts.map(({ member }) => member)]
  const atRest = members.map((each) => each.descriptors())
  const followers: Follower[] = []
  const writer = new SteadyWriter(
    (index) => join(world.host().logs, `web.stdout.${index}`),
    () => Math.min(...followers.map((each) => each.needed())),
  )
  t.after(() => writer.stop())
  followers.push(
    resuming(t, world, world.server(), true),
    resuming(t, world, world.server(1), true),
    resuming(t, world, world.server(1), false),
    resuming(t, world, world.host(1).member, true),
    resuming(t, world, world.host(1).member, false),
    command(t, world.server()),
  )
  const broken = () => followers.map((each) => each.broken()).find((fault) => fault !== undefined)
  await until(() => followers.every((each) => each.bytes() > 0), PATIENCE_MS)
  const endMs = performance.now() + SECONDS * 1000
  const story: string[] = []
  while (performance.now() < endMs && broken() === undefined) {
    story.push(await mishap(world, random))
    await delay(random() * 2500)
  }
  writer.stop()
  const written = writer.digest()
  const told = () => {
    const lines = followers.map((each) => `${each.name}: ${each.bytes()} of ${writer.bytes} bytes, ${each.state()}`)
    return `\n${[...lines, ...story].join('\n')}`
  }
  const done = () => broken() !== undefined || followers.every((each) => each.bytes() >= writer.bytes)
  await until(done, PATIENCE_MS).catch((error: Error) => assert.fail(`${error.message}${told()}`))
  t.diagnostic(`${story.length} mishaps, ${writer.bytes} bytes, ${writer.removed} files removed`)
  const faults = followers.flatMap((each) => each.broken() ?? []).join('; ')
  assert.equal(faults, '', story.join('; '))
  for (const each of followers) {
    const what = `${each.name}: ${each.bytes()} of ${writer.bytes} bytes after ${story.join('; ')}`
    assert.equal(each.bytes(), writer.bytes, what)
    assert.equal(await each.end(), written, what)
  }
  assert.ok(story.length > SECONDS / 10)
  for (const [at, each] of members.entries()) {
    await until(() => each.descriptors() <= (atRest[at] ?? 0) + DESCRIPTORS_SLACK, 30_000)
    assert.ok(each.rssMiB() < MEMORY_MIB_MAX, `${each.name} has ${each.rssMiB()} MiB`)
  }
})
