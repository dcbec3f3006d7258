/**
 * NATS, servers and agents are killed, ended, frozen and started again under followers that resume by cursor: nothing is
 * lost, nothing repeated, and nothing is left behind. `CHAOS_SECONDS=120` is the whole of what is promised.
 *
 * Mishaps are dealt like cards: each kind comes before any comes again, and a run lasts for one whole deck at least. Their
 * order and length are the same in each run, and others with another `OUTPOST_SEED`, or with `OUTPOST_SEED=random`. Silences, beats
 * and so mishaps are short, unless `OUTPOST_TIMINGS={}`.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { test, type TestContext } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { join } from 'node:path'
import { allocIdOf, type ClusterWorld, type Member, startCluster } from '../helpers/cluster.ts'
import { TIMINGS } from '../../src/cluster/nats/timings.ts'
import { LineChecker } from '../helpers/line-checker.ts'
import { OUTPOST } from '../helpers/program.ts'
import { isSaved } from '../helpers/saved-roster.ts'
import { ResumingClient } from '../helpers/resuming-client.ts'
import { SteadyWriter } from '../helpers/steady-writer.ts'
import { eventually } from '../helpers/eventually.ts'

const SECONDS = Number(process.env['CHAOS_SECONDS'] ?? 10)
const GIVEN_SEED = process.env['OUTPOST_SEED'] ?? '76257'
const SEED = GIVEN_SEED === 'random' ? Date.now() % 100_000 : Number(GIVEN_SEED)
/** Errors of a server for an unreachable node, or without a connection to NATS. */
const BEARABLE = [404, 429, 502, 503, 504]
/** Longer than a process is borne that says nothing. */
const LONG_MS = 1.3 * TIMINGS.silenceTimeoutMs
/** Of the other mishaps, and of the rests between them: shorter and longer than each of the times that matter. */
const DOWN_MAX_MS = 0.22 * TIMINGS.silenceTimeoutMs
const REST_MAX_MS = 0.36 * TIMINGS.silenceTimeoutMs
/** Mishaps until each kind has come. */
const DECK = 11
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

/** Something that goes wrong and is put right again after `downMs`; resolves to what it was. */
type Mishap = (downMs: number) => Promise<string>

async function natsDown({ nats }: ClusterWorld, downMs: number): Promise<string> {
  await nats.kill()
  await delay(downMs)
  await nats.restart()
  return `NATS down for ${Math.round(downMs)} ms`
}

async function freeze(member: Member, frozenMs: number): Promise<string> {
  member.signal('SIGSTOP')
  await delay(frozenMs)
  member.signal('SIGCONT')
  return `${member.name} frozen for ${Math.round(frozenMs)} ms`
}

async function endAndStart(member: Member, way: 'kill' | 'stop', downMs: number): Promise<string> {
  await member[way]()
  await delay(downMs)
  await member.start()
  return `${member.name}: ${way}, down for ${Math.round(downMs)} ms`
}

/** Every kind of mishap, those that matter most several times, in any order: `DECK` of them. */
function deckOf(world: ClusterWorld, members: readonly Member[], random: () => number): Mishap[] {
  const anyOf = (some: readonly Member[]) => some[Math.floor(random() * some.length)] ?? world.server()
  const [frozen, frozenLong, stoppedServer] = [anyOf(members), anyOf(members), anyOf(world.servers)]
  const deck: Mishap[] = [
    ...[1, 2, 3].map(() => (downMs: number) => natsDown(world, downMs)),
    ...members.map((member) => (downMs: number) => endAndStart(member, 'kill', downMs)),
    ...[stoppedServer, world.host().member].map((each) => (downMs: number) => endAndStart(each, 'stop', downMs)),
    (downMs) => freeze(frozen, downMs),
    () => freeze(frozenLong, LONG_MS),
  ]
  const shuffled = deck.map((card) => ({ card, at: random() })).toSorted((a, b) => a.at - b.at)
  return shuffled.map(({ card }) => card)
}

function* mishaps(...given: Parameters<typeof deckOf>): Generator<Mishap> {
  for (;;) yield* deckOf(...given)
}

test(`calls and streams recover after ${SECONDS} s of random faults (OUTPOST_SEED=${SEED})`, {
  timeout: SECONDS * 1000 + 300_000,
}, async (t) => {
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
  await eventually(() => followers.every((each) => each.bytes() > 0))
  const nodes = world.hosts.map(({ member }) => member.nodeId)
  await eventually(
    () => world.servers.every(({ dataDir }) => isSaved(dataDir, { nodes })),
    'the servers have written what they know',
  )
  const endMs = performance.now() + SECONDS * 1000
  const story: string[] = []
  for (const mishap of mishaps(world, members, random)) {
    if (broken() !== undefined || (story.length >= DECK && performance.now() > endMs)) break
    story.push(await mishap(random() * DOWN_MAX_MS))
    await delay(random() * REST_MAX_MS)
  }
  writer.stop()
  const written = writer.digest()
  const told = () => {
    const lines = followers.map((each) => `${each.name}: ${each.bytes()} of ${writer.bytes} bytes, ${each.state()}`)
    return `\n${[...lines, ...story].join('\n')}`
  }
  const done = () => broken() !== undefined || followers.every((each) => each.bytes() >= writer.bytes)
  await eventually(done).catch((error: Error) => assert.fail(`${error.message}${told()}`))
  t.diagnostic(`${story.length} mishaps, ${writer.bytes} bytes, ${writer.removed} files removed: ${story.join('; ')}`)
  const faults = followers.flatMap((each) => each.broken() ?? []).join('; ')
  assert.equal(faults, '', story.join('; '))
  for (const each of followers) {
    const what = `${each.name}: ${each.bytes()} of ${writer.bytes} bytes after ${story.join('; ')}`
    assert.equal(each.bytes(), writer.bytes, what)
    assert.equal(await each.end(), written, what)
  }
  assert.ok(story.length >= Math.max(DECK, SECONDS / 10))
  for (const [at, each] of members.entries()) {
    await eventually(() => each.descriptors() <= (atRest[at] ?? 0) + DESCRIPTORS_SLACK)
    assert.ok(each.rssMiB() < MEMORY_MIB_MAX, `${each.name} has ${each.rssMiB()} MiB`)
    t.diagnostic(
      `${each.name}: ${atRest[at]} descriptors, then ${each.descriptors()}; ${Math.round(each.rssMiB())} MiB`,
    )
  }
})
