/**
 * The data directory belongs to another user: after a restore as root, a data disk on a rebuilt host, a changed uid. The
 * agent of the shipped unit has CAP_DAC_OVERRIDE and CAP_FOWNER, so it can open the files, and access(2) says that they
 * are not there: it once took the database for missing and renamed an empty one over it.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { chownSync, linkSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { developmentKey, nextRun } from '../../src/daemon/setup/files.ts'
import { createFile, nameFile } from '../../src/platform/program-file.ts'
import { agentHere } from '../helpers/agent-here.ts'
import {
  asService,
  asUser,
  noOtherUsers,
  spawnAgent,
  startAgent,
  workDirectory,
  writeConfig,
} from '../helpers/agent-process.ts'
import { commandsAt, jsonOf, writeServer } from '../helpers/secrets-server.ts'

const OWN = 61_001
const FOREIGN = 61_002
const cannot = noOtherUsers()

/** The identity of a file. */
function facts(directory: string): Record<string, string> {
  return Object.fromEntries(
    readdirSync(directory)
      .sort()
      .map((name) => {
        const path = join(directory, name)
        const { ino } = statSync(path)
        return [name, `${ino} ${createHash('sha256').update(readFileSync(path)).digest('hex')}`]
      }),
  )
}

function give(directory: string, uid: number): void {
  execFileSync('chown', ['-R', `${uid}:${uid}`, directory])
}

/** A server with one secret in it, which has ended. */
async function filled(t: TestContext) {
  const directory = workDirectory(t)
  const config = writeServer(directory)
  const data = join(directory, 'data')
  const agent = await agentHere(t, ['-config', config])
  const run = commandsAt(agent, directory)
  const made = await jsonOf(run, 'operator init -key-shares=1 -key-threshold=1')
  const [key = ''] = made['unseal_keys_b64'] as string[]
  const token = String(made['root_token'])
  assert.equal((await run('operator unseal -', `${key}\n`)).code, 0)
  assert.equal((await run('secrets enable -path=kept -version=2 kv', '', token)).code, 0)
  assert.equal((await run('kv put kept/db password=s3cret', '', token)).code, 0)
  await agent.stop()
  give(data, OWN)
  return { directory, config, data, server: join(data, 'server'), key, token }
}

test('with capabilities, server/ of another user is opened without data loss, and the log names the owner', {
  skip: cannot ?? false,
}, async (t) => {
  const { config, directory, key, server, token } = await filled(t)
  const before = statSync(join(server, 'secrets.db'))
  give(server, FOREIGN)
  const agent = await startAgent(t, ['-config', config], { through: asService(OWN) })
  assert.equal(statSync(join(server, 'secrets.db')).ino, before.ino, 'it is the same file')
  const run = commandsAt(agent, directory)
  assert.equal((await run('operator unseal -', `${key}\n`)).code, 0)
  const got = await run('kv get -field=password kept/db', '', token)
  assert.equal(got.stdout.trim(), 's3cret', got.stderr)
  assert.match(
    agent.stderr(),
    new RegExp(
      `storage is accessible only through a capability of this process: .*belongs to ${FOREIGN}.*runs as ${OWN}; run as root: chown -R ${OWN}:${OWN} ${server}`,
    ),
  )
})

test('without capabilities, server/ of another user fails the start with owner, mode and command, and is not modified', {
  skip: cannot ?? false,
}, async (t) => {
  const { config, server } = await filled(t)
  give(server, FOREIGN)
  const before = facts(server)
  const agent = spawnAgent(t, ['-config', config], { through: asUser(OWN) })
  assert.equal(await agent.ended, 1)
  const last = agent.stderr().trim().split('\n').at(-1) ?? ''
  assert.match(last, /cannot be opened: permission denied: /)
  assert.match(last, new RegExp(`${server} belongs to ${FOREIGN} with mode 0700, and this process runs as ${OWN}`))
  assert.ok(last.endsWith(`run as root: chown -R ${OWN}:${OWN} ${server}`), last)
  assert.deepEqual(facts(server), before)
  // The command fixes it.
  execFileSync('sh', ['-c', last.split('run as root: ')[1] ?? ''])
  await startAgent(t, ['-config', config], { through: asUser(OWN) })
})

test('with capabilities, client/ of another user keeps the node ID; without them the start fails', {
  skip: cannot ?? false,
}, async (t) => {
  const directory = workDirectory(t)
  const config = writeConfig(directory, '')
  const client = join(directory, 'data/client')
  const first = await agentHere(t, ['-config', config])
  await first.stop()
  give(join(directory, 'data'), OWN)
  give(client, FOREIGN)
  const { nodeId } = JSON.parse(readFileSync(join(client, 'state.json'), 'utf8')) as { nodeId: string }
  const second = await startAgent(t, ['-config', config], { through: asService(OWN) })
  second.child.kill('SIGTERM')
  await second.ended
  assert.equal((JSON.parse(readFileSync(join(client, 'state.json'), 'utf8')) as { nodeId: string }).nodeId, nodeId)
  give(client, FOREIGN)
  const before = facts(client)
  const third = spawnAgent(t, ['-config', config], { through: asUser(OWN) })
  assert.equal(await third.ended, 1)
  assert.match(
    third.stderr(),
    new RegExp(`${client} belongs to ${FOREIGN} with mode 0700.*chown -R ${OWN}:${OWN} ${client}\n$`),
  )
  assert.deepEqual(facts(client), before)
})

test('one file of another user fails the start with the name of the file and the command that fixes it', {
  skip: cannot ?? false,
}, async (t) => {
  const { config, server } = await filled(t)
  const file = join(server, 'secrets.db')
  chownSync(file, FOREIGN, FOREIGN)
  const agent = spawnAgent(t, ['-config', config], { through: asUser(OWN) })
  assert.equal(await agent.ended, 1)
  const last = agent.stderr().trim().split('\n').at(-1) ?? ''
  assert.match(last, new RegExp(`${file} belongs to ${FOREIGN} with mode 0600, and this process runs as ${OWN}`))
  assert.ok(last.endsWith(`run as root: chown ${OWN}:${OWN} ${file}`), last)
})

test('creating a file never replaces an existing one', (t) => {
  const directory = workDirectory(t)
  const path = join(directory, 'key')
  createFile(path, 'first')
  assert.throws(() => createFile(path, 'second'), { code: 'EEXIST' })
  writeFileSync(`${path}.temporary`, 'third')
  assert.throws(() => nameFile(`${path}.temporary`, path), { code: 'EEXIST' })
  assert.equal(readFileSync(path, 'utf8'), 'first')
  assert.equal(statSync(path).mode & 0o777, 0o600)
  // Killed between the two steps of giving a name: the file is whole, and its other name is no obstacle.
  linkSync(path, `${path}.new`)
  assert.throws(() => createFile(path, 'fourth'), { code: 'EEXIST' })
  assert.equal(readFileSync(path, 'utf8'), 'first')
  rmSync(path)
  createFile(path, 'fifth')
  assert.equal(readFileSync(path, 'utf8'), 'fifth')
})

test('an unreadable boot counter or -dev key is an error and not treated as missing', (t) => {
  const directory = workDirectory(t)
  const first = nextRun(directory, 0)
  assert.ok(nextRun(directory, first + 1000) > first + 1000)
  assert.equal(developmentKey(join(directory, 'dev.key'), 32).length, 32)
  rmSync(join(directory, 'run'))
  // A directory cannot be read as a file, also by root.
  for (const name of ['run', 'other.key']) mkdirSync(join(directory, name))
  assert.throws(() => nextRun(directory, 0), /not a regular file/)
  assert.throws(() => developmentKey(join(directory, 'other.key'), 32), /not a regular file/)
})
