/**
 * An attacker with write access to the data directory replaces a file of the program by a named pipe or a link. Opening
 * a pipe blocks until another process opens it: a start must not block without handling SIGTERM, and a running server
 * must not block when it writes its position.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { appendFileSync, lstatSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { agentHere } from '../helpers/agent-here.ts'
import { spawnAgent, startAgent, workDirectory } from '../helpers/agent-process.ts'
import { commandsAt, jsonOf, writeServer } from '../helpers/secrets-server.ts'
import { eventually } from '../helpers/eventually.ts'

function putPipe(path: string): void {
  mkdirSync(dirname(path), { recursive: true })
  rmSync(path, { force: true })
  execFileSync('mkfifo', [path])
}

const DEV = ['-dev', '-dev-no-demo', '-http-port', '0', '-data-dir']

for (const name of ['client/state.json', 'client/collected.json', 'client/run', 'server/dev.key']) {
  test(`${name} is a pipe: the start fails and names the file`, { timeout: 280_000 }, async (t) => {
    const directory = workDirectory(t)
    putPipe(join(directory, name))
    await assert.rejects(agentHere(t, [...DEV, directory]), new RegExp(`${directory}/${name}.* is not a regular file`))
  })
}

test('server/secrets.db-wal is a pipe: the process exits and names the file', { timeout: 280_000 }, async (t) => {
  const directory = workDirectory(t)
  const pipe = join(directory, 'server/secrets.db-wal')
  putPipe(pipe)
  const agent = spawnAgent(t, [...DEV, directory])
  assert.equal(await agent.ended, 1, agent.stderr())
  assert.match(agent.stderr(), new RegExp(`${pipe}.* is not a regular file`))
})

test('pipes and links in place of optional files: the server serves and writes through none of them', {
  timeout: 280_000,
}, async (t) => {
  const directory = workDirectory(t)
  const precious = join(directory, 'precious')
  writeFileSync(precious, 'precious')
  const config = writeServer(directory)
  const server = join(directory, 'data/server')
  for (const name of ['secrets.db.seen', 'secrets.db.reserve', 'snapshot.saved']) putPipe(join(server, name))
  for (const name of ['server/secrets.db.seen.new', 'http.addr.new'])
    symlinkSync(precious, join(directory, 'data', name))
  // As a process: SIGTERM has to end it, although a pipe was in the place of a file that it writes.
  const agent = await startAgent(t, ['-config', config])
  const run = commandsAt(agent, directory)
  // Its position is noted while it runs: once with a pipe in the place of the temporary file, which it removes.
  putPipe(join(server, 'secrets.db.seen.new'))
  const made = await jsonOf(run, 'operator init -key-shares=1 -key-threshold=1')
  assert.equal((made['unseal_keys_b64'] as string[]).length, 1)
  agent.child.kill('SIGTERM')
  assert.equal(await agent.ended, 0, agent.stderr())
  assert.equal(readFileSync(precious, 'utf8'), 'precious')
  assert.ok(lstatSync(join(server, 'secrets.db.seen')).isFile())
})

test('log_file is a pipe: the start fails and names the file', { timeout: 280_000 }, async (t) => {
  const directory = workDirectory(t)
  const pipe = join(directory, 'pipe')
  putPipe(pipe)
  const config = writeServer(directory)
  appendFileSync(config, `log_file = "${pipe}"\n`)
  const agent = spawnAgent(t, ['-config', config])
  assert.notEqual(await agent.ended, 0)
  assert.ok(agent.stderr().includes(pipe), agent.stderr())
})

test('nkey_file is a pipe: the server starts and logs it', { timeout: 280_000 }, async (t) => {
  const directory = workDirectory(t)
  const pipe = join(directory, 'pipe')
  putPipe(pipe)
  const config = writeServer(directory)
  appendFileSync(config, `nats {\n servers = ["nats://127.0.0.1:1"]\n nkey_file = "${pipe}"\n}\n`)
  const agent = await agentHere(t, ['-config', config])
  await eventually(() => agent.stderr().includes(`${pipe} is not a regular file`), 'the log tells')
})
