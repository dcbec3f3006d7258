/**
 * A start that fails at one of its steps, or that a signal ends, must exit at once with its error and exit code. A
 * process that remained after a failure, also after SIGTERM, would delay systemd by 110 s for each attempt.
 */
import assert from 'node:assert/strict'
import { mkdirSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test, type TestContext } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { agentHere } from '../helpers/agent-here.ts'
import { spawnAgent, workDirectory } from '../helpers/agent-process.ts'
import { eventually } from '../helpers/eventually.ts'

/** A process with every part that a start begins: storage, roster, NATS (not reachable), host, listener. */
function writeAll(directory: string, nats = 'servers = ["nats://127.0.0.1:9"]'): string {
  const file = join(directory, 'all.hcl')
  const blocks = ['ports {', ' http = 0', ' cluster = 0', '}', 'client {', ' enabled = true', '}']
  const text = [`data_dir = "${directory}/data"`, ...blocks, 'server {', ' enabled = true', '}', `nats {\n ${nats}\n}`]
  mkdirSync(join(directory, 'data'), { recursive: true })
  writeFileSync(file, `${text.join('\n')}\n`)
  return file
}

/** The files of an agent that has run before. */
async function ranBefore(t: TestContext): Promise<{ readonly directory: string; readonly config: string }> {
  const directory = workDirectory(t)
  const config = writeAll(directory)
  const agent = await agentHere(t, ['-config', config])
  await agent.stop()
  return { directory, config }
}

/** It ends by itself, says why in its last line, and leaves what it found so that the next start works. */
async function fails(t: TestContext, config: string, why: RegExp, more: readonly string[] = []): Promise<void> {
  const agent = spawnAgent(t, ['-config', config, ...more])
  assert.equal(await agent.ended, 1, agent.stderr())
  assert.match(agent.stderr().trim().split('\n').at(-1) ?? '', why)
  assert.doesNotMatch(agent.stdout(), /started/)
}

test('each failure of a start ends the process with its error message', { timeout: 300_000 }, async (t) => {
  const { config, directory } = await ranBefore(t)
  const secrets = join(directory, 'data/server/secrets.db')
  const roster = join(directory, 'data/server/roster.db')
  const whole = readFileSync(secrets)

  await t.test('the port is in use', async () => {
    const taken = createServer().listen(0, '127.0.0.1')
    taken.unref()
    await new Promise((done) => taken.once('listening', done))
    const { port } = taken.address() as AddressInfo
    await fails(t, config, new RegExp(`127.0.0.1:${port} is in use`), ['-http-port', String(port)])
    taken.close()
  })
  await t.test('the database is truncated', async () => {
    truncateSync(secrets, 8192)
    await fails(t, config, /secrets\.db is damaged/)
    writeFileSync(secrets, whole)
  })
  await t.test('the database is a file of another format', async () => {
    writeFileSync(secrets, 'something else, which is not a database at all\n'.repeat(100))
    await fails(t, config, /secrets\.db is damaged \(no SQLite header/)
    writeFileSync(secrets, whole)
  })
  await t.test('the database was moved away without its write-ahead log', async () => {
    renameSync(secrets, `${secrets}.away`)
    writeFileSync(`${secrets}-wal`, 'what was left')
    await fails(t, config, /secrets\.db is missing and .*secrets\.db-wal exists: move the database back/)
    rmSync(`${secrets}-wal`)
    renameSync(`${secrets}.away`, secrets)
  })
  await t.test('the roster is of a newer version', async () => {
    const database = new DatabaseSync(roster)
    database.exec('PRAGMA user_version = 99')
    await fails(t, config, /roster\.db was written by a newer version/)
    database.exec('PRAGMA user_version = 1')
    database.close()
  })
  await t.test("the node's state is of a newer version", async () => {
    const state = join(directory, 'data/client/state.json')
    const text = readFileSync(state, 'utf8')
    writeFileSync(state, text.replace('"version": 1', '"version": 2'))
    await fails(t, config, /state\.json was written by a newer version of outpost/)
    writeFileSync(state, text)
  })
  await t.test('a NATS credential is missing', async () => {
    const other = writeAll(directory, `servers = ["nats://127.0.0.1:9"]\n nkey_file = "${directory}/none.nk"`)
    const agent = spawnAgent(t, ['-config', other])
    // It is read for every attempt to connect: the process serves its own host meanwhile, and ends when it is asked to.
    await eventually(() => agent.stdout().includes('started') || agent.child.exitCode !== null, 'it serves or ends')
    if (agent.child.exitCode === null) agent.child.kill('SIGTERM')
    assert.ok([0, 1].includes(Number(await agent.ended)))
    assert.match(agent.stderr(), /none\.nk/)
    writeAll(directory)
  })
  await t.test(
    'the failed starts have damaged nothing, and another start fails while the agent has the locks',
    async () => {
      const first = await agentHere(t, ['-config', config])
      await fails(t, config, /is in use by another process/)
      const agentOnly = join(directory, 'agent.hcl')
      writeFileSync(agentOnly, `data_dir = "${directory}/data"\nports {\n http = 0\n}\nclient {\n enabled = true\n}\n`)
      await fails(t, agentOnly, /another agent .*uses/)
      await first.stop()
    },
  )
})

test('SIGTERM at any moment of a start ends the process', { timeout: 300_000 }, async (t) => {
  const { config, directory } = await ranBefore(t)
  for (const afterMs of [0, 200, 500]) {
    const agent = spawnAgent(t, ['-config', config])
    await sleep(afterMs)
    agent.child.kill('SIGTERM')
    const ended = await agent.ended
    // Before the program has its say, the signal ends it as any other process.
    assert.ok(ended === 0 || ended === 'SIGTERM' || ended === 143, `${afterMs} ms: ${ended}\n${agent.stderr()}`)
  }
  await agentHere(t, ['-config', writeAll(directory)])
})
