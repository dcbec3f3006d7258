/**
 * Followers that survive the agent's sudden death: nothing lost, nothing repeated. `RESUME_MIB` and `RESUME_KILLS` make
 * it longer; `RESUME_MIB=256 RESUME_KILLS=20` is the whole of what is promised.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { once } from 'node:events'
import { appendFileSync, writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { type TestContext, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { LineChecker, numberedLine } from '../helpers/line-checker.ts'
import { OUTPOST } from '../helpers/program.ts'
import { RestartingAgent } from '../helpers/restarting-agent.ts'
import { ResumingClient } from '../helpers/resuming-client.ts'
import { ALLOC_ID } from '../helpers/tail-host.ts'
import { eventually } from '../helpers/eventually.ts'

const MIB = 2 ** 20
const TOTAL_BYTES = Number(process.env['RESUME_MIB'] ?? 6) * MIB
const KILLS = Number(process.env['RESUME_KILLS'] ?? 2)
const FOLLOWERS = Number(process.env['RESUME_FOLLOWERS'] ?? 10)
const FILES_KEPT = 10
/** Between two kills no more is read than stays on the disk: a plain cursor counts from where its answer began. */
const FILE_BYTES = Math.ceil((1.5 * TOTAL_BYTES) / (KILLS + 1) / FILES_KEPT)
const PATIENCE_MS = 600_000

/** What each of the three kinds of follower can say. */
interface Follower {
  readonly name: string
  readonly bytes: () => number
  /** Bytes before the oldest place that it may still ask for. */
  readonly needed: () => number
  readonly broken: () => string | undefined
  /** Ends it; resolves to the SHA-256 of all it got. */
  readonly end: () => Promise<string>
}

function follower(t: TestContext, agent: RestartingAgent, framed: boolean): Follower & { client: ResumingClient } {
  const client = new ResumingClient(framed, (cursor) => agent.logsUrl({ follow: true, plain: !framed, cursor }))
  t.after(() => client.stop())
  return {
    client,
    name: framed ? 'framed' : 'plain',
    bytes: () => client.bytes,
    needed: () => (framed ? client.bytes : client.bytesAtHead),
    broken: () => client.broken,
    async end() {
      await client.stop()
      return client.digest()
    },
  }
}

function command(t: TestContext, agent: RestartingAgent): Follower & { stderr: () => string } {
  const args = ['logs', '-address', agent.url, '-f', '-stdout', ALLOC_ID, 'web']
  const child: ChildProcess = spawn(OUTPOST, args, { stdio: ['ignore', 'pipe', 'pipe'] })
  t.after(() => child.kill('SIGKILL'))
  const hash = createHash('sha256')
  const lines = new LineChecker()
  let bytes = 0
  let stderr = ''
  child.stdout?.on('data', (data: Buffer) => {
    bytes += data.length
    hash.update(data)
    lines.push(data)
  })
  child.stderr?.setEncoding('utf8').on('data', (text: string) => (stderr += text))
  const exited = once(child, 'exit')
  return {
    name: 'outpost logs -f',
    bytes: () => bytes,
    needed: () => bytes,
    broken: () => lines.fault ?? (child.exitCode === null ? undefined : `it ended: ${stderr}`),
    stderr: () => stderr,
    async end() {
      child.kill('SIGINT')
      assert.deepEqual(await exited, [0, null])
      return hash.digest('hex')
    },
  }
}

/** The writer in its own process, held back so that it removes nothing that a follower needs. */
function startWriter(t: TestContext, agent: RestartingAgent, followers: readonly Follower[]): () => string {
  const script = resolve(import.meta.dirname, '../helpers/rotating-writer.ts')
  const args = [script, agent.logs, String(TOTAL_BYTES), String(FILE_BYTES), String(FILES_KEPT)]
  const writer = spawn(process.execPath, args, { stdio: ['pipe', 'pipe', 'inherit'] })
  writer.stdin.on('error', () => undefined)
  let output = ''
  writer.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
  const report = setInterval(() => {
    // A file is a little larger than its limit, so this says rather too little than too much.
    const needed = Math.min(...followers.map((each) => each.needed()))
    writer.stdin.write(`${Math.floor(needed / (FILE_BYTES + 70_000))}\n`)
  }, 5)
  t.after(() => {
    clearInterval(report)
    writer.kill()
  })
  return () => output
}

test(`followers lose nothing over ${KILLS} kills of the agent during ${TOTAL_BYTES / MIB} MiB of rotated writes`, {
  timeout: PATIENCE_MS,
}, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), '')
  const printed = command(t, agent)
  const raw = [follower(t, agent, true), follower(t, agent, false)] as const
  const followers: Follower[] = [printed, ...raw]
  await eventually(() => raw.every(({ client }) => client.connections === 1))
  const output = startWriter(t, agent, followers)
  const resumed = () => printed.stderr().match(/resumed\n/g)?.length ?? 0
  const broken = () => followers.map((each) => each.broken()).find((fault) => fault !== undefined)
  for (let kill = 1; kill <= KILLS; kill++) {
    const least = (TOTAL_BYTES / (KILLS + 1)) * kill
    await eventually(
      () => broken() !== undefined || followers.every((each) => each.bytes() >= least),
      'as many bytes',
      PATIENCE_MS,
    )
    if (broken() !== undefined) break
    await agent.kill()
    await agent.start()
    // Each kill breaks a connection of everybody: a fast machine would else kill before all are back.
    const back = () => raw.every(({ client }) => client.connections === kill + 1) && resumed() === kill
    await eventually(() => broken() !== undefined || back(), 'followers are back', PATIENCE_MS)
  }
  const total = () => Number(output().split(' ')[0])
  const done = () => output() !== '' && followers.every((each) => each.bytes() >= total())
  await eventually(() => broken() !== undefined || done(), 'everything came', PATIENCE_MS)
  const [bytes, lastIndex, written] = output().trim().split(' ')
  const connections = KILLS + 1
  for (const each of followers) {
    assert.equal(each.broken(), undefined, each.name)
    assert.equal(await each.end(), written, each.name)
    assert.equal(each.bytes(), Number(bytes), each.name)
  }
  for (const { client } of raw) assert.equal(client.connections, connections)
  assert.equal(resumed(), KILLS, printed.stderr())
  assert.ok(Number(lastIndex) > FILES_KEPT, 'files were removed meanwhile')
})

test(`${FOLLOWERS} followers of an agent that is killed and restarted receive every byte once`, {
  timeout: 240_000,
}, async (t) => {
  const agent = await RestartingAgent.start(t)
  writeFileSync(agent.log(0), '')
  const followers = Array.from({ length: FOLLOWERS }, (_, at) => follower(t, agent, at % 2 === 0))
  await eventually(() => followers.every(({ client }) => client.connections === 1))
  const hash = createHash('sha256')
  let [line, bytes, index] = [0, 0, 0]
  const write = () => {
    if (line % 1000 > 900) writeFileSync(agent.log(++index), '')
    const text = Array.from({ length: 100 }, () => `${numberedLine(line++)}\n`).join('')
    appendFileSync(agent.log(index), text)
    hash.update(text)
    bytes += text.length
  }
  for (let block = 0; block < 100; block++) {
    write()
    await delay(5)
    if (block !== 50) continue
    // Some have more than others by then.
    await agent.kill()
    for (let more = 0; more < 20; more++) write()
    await agent.start()
  }
  const faults = () => followers.filter((each) => each.broken() !== undefined)
  await eventually(() => faults().length > 0 || followers.every((each) => each.bytes() >= bytes))
  // A connection is counted a moment after its first bytes.
  await eventually(() => faults().length > 0 || followers.every(({ client }) => client.connections === 2))
  const expected = hash.digest('hex')
  for (const each of followers) {
    assert.equal(each.broken(), undefined)
    assert.equal(each.bytes(), bytes)
    assert.equal(await each.end(), expected)
    assert.equal(each.client.connections, 2)
  }
})
