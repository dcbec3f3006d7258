/**
 * An attacker moves, replaces, removes or truncates the files of the database of a running server. SQLite continues with
 * the open files, so writes could be acknowledged and be lost at the next start. Later writes must fail, every source
 * must report the reason, and acknowledged writes must be kept.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { renameSync, rmSync, statSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { start } from '../cli/outpost-process.ts'
import { type AgentHere, agentHere } from '../helpers/agent-here.ts'
import { type RunningAgent, startAgent, workDirectory } from '../helpers/agent-process.ts'
import { shellBlocks } from '../helpers/document.ts'
import { metricsOf, readinessOf } from '../helpers/exported-metrics.ts'
import { commandsAt } from '../helpers/secrets-server.ts'
import { eventually } from '../helpers/eventually.ts'

const WRITERS = 4
const HEADERS = { 'X-Vault-Token': 'root' }

/** In another process: SQLite's locks of a file end when a process that holds them closes any descriptor of that file. */
const copy = (from: string, to: string) => execFileSync('cp', [from, to])

/** A server that secrets are written to without a pause. */
class Victim {
  readonly #t: TestContext
  readonly #directory: string
  readonly database: string
  #agent: AgentHere | RunningAgent | undefined
  #count = 0
  #isWriting = false
  #writers: Promise<void>[] = []
  /** Names of secrets whose write was answered with success, since the start of the test. */
  readonly acknowledged: string[] = []
  /** Of each answer: when its request began, and what it said. */
  readonly #answers: { readonly beganAtMs: number; readonly status: number; readonly text: string }[] = []

  constructor(t: TestContext) {
    this.#t = t
    this.#directory = workDirectory(t)
    this.database = join(this.#directory, 'server/secrets.db')
  }

  get agent(): AgentHere | RunningAgent {
    assert.ok(this.#agent)
    return this.#agent
  }

  get process(): RunningAgent {
    assert.ok('child' in this.agent)
    return this.agent
  }

  /** As a process, which can be killed. */
  async start(): Promise<void> {
    this.#agent = await startAgent(this.#t, this.#args)
  }

  async startHere(): Promise<void> {
    this.#agent = await agentHere(this.#t, this.#args)
  }

  get #args(): string[] {
    const ports = ['-http-port', '0', '-cluster-port', '0']
    return ['-dev', '-dev-no-demo', ...ports, '-dev-root-token-id', 'root', '-data-dir', this.#directory]
  }

  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    if ('stop' in this.agent) return await this.agent.stop()
    const { child, ended } = this.process
    child.kill(signal)
    await ended
  }

  async write(name: string): Promise<{ status: number; text: string }> {
    const beganAtMs = performance.now()
    const body = JSON.stringify({ data: { name, filler: 'x'.repeat(3000) } })
    const answer = await fetch(`${this.agent.url}/v1/secret/data/${name}`, { method: 'POST', headers: HEADERS, body })
    const text = await answer.text()
    if (answer.status < 300) this.acknowledged.push(name)
    this.#answers.push({ beganAtMs, status: answer.status, text })
    return { status: answer.status, text }
  }

  async read(name: string): Promise<number> {
    const answer = await fetch(`${this.agent.url}/v1/secret/data/${name}`, { headers: HEADERS })
    await answer.text()
    return answer.status
  }

  /** Some writers at once, each as quick as it is answered; resolves once they have written something. */
  async writeOn(): Promise<void> {
    this.#isWriting = true
    const writer = async () => {
      while (this.#isWriting) await this.write(`s${++this.#count}`)
    }
    const before = this.acknowledged.length
    this.#writers = Array.from({ length: WRITERS }, writer)
    await eventually(() => this.acknowledged.length > before + 20, 'secrets are written')
  }

  /** Ends them, once some of what began after `sinceMs` has been answered: none of it with success. */
  async refusesSince(sinceMs: number, why: RegExp): Promise<void> {
    const since = () => this.#answers.filter(({ beganAtMs }) => beganAtMs > sinceMs)
    await eventually(() => since().length > WRITERS, 'writes are answered')
    this.#isWriting = false
    await Promise.all(this.#writers)
    for (const { status, text } of since()) {
      assert.equal(status, 503, text)
      assert.match(text, why)
      assert.ok(text.includes(this.database) || text.includes('Vault is sealed'), text)
    }
  }

  /** Endpoint, metrics, command and log say it; without a path where everybody may read it. */
  async saysSo(why: RegExp): Promise<void> {
    await eventually(async () => !(await readinessOf(this.agent)).ready, 'it is not ready')
    const { checks, status } = await readinessOf(this.agent)
    assert.equal(status, 503)
    assert.equal(checks['storage']?.state, 'failing')
    const reason = checks['storage']?.reason ?? ''
    assert.match(reason, why)
    assert.match(reason, /commits are refused/)
    assert.ok(!reason.includes('/'), reason)
    const metrics = await metricsOf(this.agent)
    assert.equal(metrics.value('outpost_store_displaced'), 1)
    assert.equal(metrics.value('outpost_ready_check', { check: 'storage' }), 0)
    assert.equal(metrics.value('outpost_ready'), 0)
    const told = await commandsAt(this.agent, this.#directory)('status', '', 'root')
    assert.match(told.stdout + told.stderr, /not ready: storage: commits are refused/)
    const snapshot = await fetch(`${this.agent.url}/v1/sys/storage/snapshot`, { headers: HEADERS })
    assert.equal(snapshot.status, 503, await snapshot.text())
    await eventually(() => this.agent.stderr().includes('database file displaced, writes are refused'), 'the log tells')
  }

  async hasAll(): Promise<void> {
    const missing: string[] = []
    for (const name of this.acknowledged) if ((await this.read(name)) !== 200) missing.push(name)
    assert.deepEqual(missing, [], `of ${this.acknowledged.length}`)
  }
}

async function written(t: TestContext, isProcess = false): Promise<Victim> {
  const victim = new Victim(t)
  await (isProcess ? victim.start() : victim.startHere())
  await victim.writeOn()
  return victim
}

test('requests are refused while the database is moved away, and no write is lost after it is moved back', {
  timeout: 280_000,
}, async (t) => {
  const victim = await written(t)
  const { database } = victim
  const aside = `${database}.aside`
  renameSync(database, aside)
  await victim.refusesSince(performance.now(), /was moved or removed while the server runs; move the same file back/)
  await victim.saysSo(/was moved or removed/)
  assert.equal(await victim.read('s1'), 200, 'reads go on')
  // Another one in its place is no better.
  copy(aside, database)
  await eventually(async () => {
    const { status, text } = await victim.write('other')
    assert.equal(status, 503)
    return text.includes('is not the file that this server has open')
  }, 'the other file is seen')
  renameSync(aside, database)
  await eventually(async () => (await victim.write('back')).status === 200, 'the same file is back')
  assert.equal((await readinessOf(victim.agent)).checks['storage']?.state, 'ok')
  assert.equal(await victim.read('other'), 404, 'what was refused has changed nothing')
  await victim.hasAll()
  await victim.stop()
  await victim.startHere()
  await victim.hasAll()
})

test('writes are refused while the database is replaced, and none is lost after it is put back during a stop', {
  timeout: 280_000,
}, async (t) => {
  const victim = await written(t, true)
  const { database } = victim
  const aside = `${database}.aside`
  copy(database, `${database}.copy`)
  renameSync(database, aside)
  renameSync(`${database}.copy`, database)
  await victim.refusesSince(performance.now(), /is not the file .* while the server runs/)
  await victim.saysSo(/is not the file/)
  // One file has all of it: nothing lies in a log that the other one would be read with.
  await eventually(() => statSync(`${database}-wal`).size === 0, 'the log was emptied')
  await victim.stop('SIGKILL')
  renameSync(aside, database)
  await victim.startHere()
  await victim.hasAll()
})

test('a removed database can be recovered from the files that the process has open', {
  timeout: 280_000,
}, async (t) => {
  const victim = await written(t, true)
  const { database } = victim
  rmSync(database)
  await victim.refusesSince(performance.now(), /was moved or removed/)
  await victim.saysSo(/was moved or removed/)
  // What docs/troubleshooting/storage.md says, to the letter.
  await eventually(() => statSync(`${database}-wal`).size === 0, 'the log was emptied')
  const [block = ''] = shellBlocks('docs/troubleshooting/storage.md', '## A file of the database was removed')
  assert.match(block, /systemctl stop/)
  const { pid } = victim.process
  const systemctl = `systemctl() { case $1 in show) echo ${pid};; stop) kill ${pid}; while kill -0 ${pid}; do sleep 0.1; done;; esac; }`
  const script = block.replace('/var/lib/outpost-server/server/secrets.db', database)
  const ran = await start('sh', ['-ec', `${systemctl}\n${script}`]).finished
  assert.equal(ran.code, 0, ran.stderr)
  await victim.startHere()
  await victim.hasAll()
})

for (const [how, spoil] of [
  ['removed', (wal: string) => rmSync(wal)],
  [
    'replaced by an old one',
    (wal: string) => {
      copy(wal, `${wal}.copy`)
      renameSync(`${wal}.copy`, wal)
    },
  ],
] as const) {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    test(`the write-ahead log is ${how}, ${signal}: no acknowledged write is lost`, { timeout: 280_000 }, async (t) => {
      const victim = await written(t, signal === 'SIGKILL')
      const wal = `${victim.database}-wal`
      spoil(wal)
      await victim.refusesSince(performance.now(), /the write-ahead log of the database .* while the server runs/)
      await victim.saysSo(/the write-ahead log of the database (was moved|is not the file)/)
      await victim.stop(signal)
      rmSync(wal, { force: true })
      await victim.startHere()
      await victim.hasAll()
      assert.equal((await victim.write('after')).status, 200)
    })
  }
}

test('a truncated write-ahead log refuses requests until the next start, which serves the remaining commits', {
  timeout: 280_000,
}, async (t) => {
  const victim = new Victim(t)
  await victim.startHere()
  // Its first entries reach the database with its end: cut before, an empty one is left, which nothing begins on.
  await victim.stop()
  await victim.startHere()
  await victim.writeOn()
  const wal = `${victim.database}-wal`
  const before = statSync(wal).size
  truncateSync(wal)
  // The core does not find its own entries any more and seals itself, some time after the first refusal.
  await victim.refusesSince(
    performance.now(),
    /the write-ahead log .* was truncated.*the latest commits may be lost|Vault is sealed/,
  )
  // What was cut off does not come back with the length.
  truncateSync(wal, Math.max(before, statSync(wal).size))
  await victim.saysSo(/was truncated/)
  assert.equal((await victim.write('never')).status, 503)
  await victim.stop()
  await victim.startHere()
  assert.equal(await victim.read('never'), 404)
  assert.equal((await victim.write('after')).status, 200)
})
