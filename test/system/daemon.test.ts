/** The contract of the daemon: its output, readiness, exit and persistent state. */
import assert from 'node:assert/strict'
import { execFile, execFileSync, spawn } from 'node:child_process'
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import {
  type AgentProcess,
  type RunningAgent,
  spawnAgent,
  startAgent,
  workDirectory,
  writeConfig,
} from '../helpers/agent-process.ts'
import { answersIn, ask, raw } from '../helpers/raw-http.ts'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const OPEN = 'acl { enabled = false }'
const METADATA = '/v1/client/metadata'

test('an agent with -dev, from its start to its end', async (t) => {
  const temporary = workDirectory(t)
  const agent = await startAgent(t, ['-dev', '-http-port', '0', '-cluster-port', '0'], { env: { TMPDIR: temporary } })
  await t.test('it prints its address and three commands that work as printed', (inner) => printsCommands(inner, agent))
  await t.test(
    'the process and its threads have names for ps, top and pgrep',
    { skip: !existsSync('/proc/self/comm') },
    () => hasNames(agent),
  )
  await t.test('SIGTERM exits with 0, breaks follows, and leaves no files behind', () =>
    leavesNothing(agent, temporary),
  )
})

async function printsCommands(t: TestContext, agent: AgentProcess): Promise<void> {
  const printed = agent.stdout()
  assert.match(printed, /URL: {3}http:\/\/127\.0\.0\.1:\d+\n/)
  assert.match(printed, /Token: op\.[0-9a-f]{32}\n/)
  await commandsWork(t, printed)
}

function commandsIn(printed: string): string[] {
  const lines = printed.split('\n').map((line) => line.trim())
  return lines.filter((line) => line.startsWith('curl '))
}

/** Each is run once, at once. */
async function commandsWork(t: TestContext, printed: string): Promise<void> {
  const commands = commandsIn(printed)
  assert.equal(commands.length, 3)
  const [follow = '', list = '', stats = ''] = commands
  const followed = spawn('sh', ['-c', `exec ${follow} -s`])
  t.after(() => followed.kill())
  let log = ''
  followed.stdout.setEncoding('utf8').on('data', (text: string) => (log += text))
  assert.match(await shell(`${list} -sf`), /"Name": "demo\.stdout\.0"/)
  assert.match(await shell(`${stats} -sf`), /"ResourceUsage": \{/)
  await eventually(() => {
    assert.equal(followed.exitCode, null, `it is followed no more: ${log}`)
    return /demo line 1\n[^]*demo line 2\n/.test(log)
  }, 'the demo log is followed')
}

test('the printed commands also work on a disk that makes the demo take seconds', async (t) => {
  const slow = join(workDirectory(t), 'slow.cjs')
  const script = [
    "const fs = require('node:fs')",
    'const { fsyncSync } = fs',
    'const wait = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1600)',
    "if (process.argv[2] === 'alloc') fs.fsyncSync = (fd) => (wait(), fsyncSync(fd))",
    "require('node:module').syncBuiltinESMExports()",
  ]
  writeFileSync(slow, script.join('\n'))
  const agent = await startAgent(t, ['-dev', '-http-port', '0', '-cluster-port', '0'], {
    env: { NODE_OPTIONS: `--require ${slow}` },
  })
  await commandsWork(t, agent.stdout())
})

test('if the demo cannot run, no commands are printed and the agent serves', async (t) => {
  const agent = await startAgent(t, ['-dev', '-http-port', '0', '-cluster-port', '0'], { env: { PATH: '/nowhere' } })
  assert.deepEqual(commandsIn(agent.stdout()), [])
  assert.match(agent.stdout(), /The demo task did not start/)
  await eventually(() => /^outpost: cannot /m.test(agent.stderr()), 'why it does not')
  assert.equal((await ask(agent.port, 'GET', '/v1/agent/health')).status, 200)
})

function shell(command: string): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile('sh', ['-c', command], (error, stdout) => (error ? reject(error) : resolve(stdout)))
  })
}

function hasNames(agent: AgentProcess): void {
  const threads = `/proc/${agent.child.pid}/task`
  const names = () => readdirSync(threads).map((id) => readFileSync(join(threads, id, 'comm'), 'utf8').trim())
  assert.equal(readFileSync(`/proc/${agent.child.pid}/comm`, 'utf8').trim(), 'outpost')
  assert.ok(names().includes('outpost-writer'), names().join())
}

async function leavesNothing(agent: RunningAgent, temporary: string): Promise<void> {
  const allocId = /logs\/([0-9a-f-]{36})/.exec(agent.stdout())?.[1] ?? ''
  const [made] = (await shell(`ls -d ${temporary}/outpost-dev-*`)).trim().split('\n')
  assert.ok(made)
  assert.equal(readFileSync(join(made, 'http.addr'), 'utf8').trim(), agent.url)
  const follow = `GET /v1/client/fs/logs/${allocId}?task=demo&follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n`
  let answered = ''
  const follower = raw({ port: agent.port, until: (text) => ((answered = text), false) }, follow)
  const silent = raw({ port: agent.port })
  await eventually(() => answered.includes('\r\n\r\n'), 'the first request is answered')
  assert.match(answered, /^HTTP\/1\.1 200 /)
  await eventually(() => answered.includes('{}'), 'the follow has started')
  agent.child.kill('SIGTERM')
  assert.equal(await agent.ended, 0)
  const heard = await follower
  assert.equal(answersIn(heard.bytes)[0]?.whole, false, 'a follower can tell that it was cut')
  await silent
  assert.ok(!existsSync(made), 'the temporary directory is gone')
  assert.equal(await shell(`ls ${temporary}`), '')
}

test('SIGTERM answers long polls at once, with the index to resume from', async (t) => {
  const data = join(workDirectory(t), 'data')
  const ports = ['-http-port', '0', '-cluster-port', '0']
  const args = ['-dev', '-dev-no-demo', ...ports, '-data-dir', data, '-dev-root-token-id', 'known']
  const agent = await startAgent(t, args)
  assert.match(agent.stdout(), /Token: known\n/)
  const { cursor } = await watched(agent.port, '')
  const nodes = await fetch(`${agent.url}/v1/nodes`)
  const index = nodes.headers.get('x-nomad-index')
  const list = await nodes.text()
  const polls = [
    watched(agent.port, `?wait=60s&cursor=${cursor}`),
    fetch(`${agent.url}/v1/nodes?wait=60s&index=${index}`),
  ] as const
  const settled = Promise.allSettled(polls)
  await eventually(async () => {
    const metrics = (await ask(agent.port, 'GET', '/v1/metrics?format=prometheus')).body.toString()
    const waits = (name: string) => new RegExp(`requests_underway\\{[^}]*operation="${name}"\\} 1`).test(metrics)
    return waits('secrets.read') && waits('server.nodes')
  }, 'both wait')
  agent.child.kill('SIGTERM')
  await settled
  const [watch, nodesPoll] = [await polls[0], await polls[1]]
  assert.deepEqual([watch.status, watch.events], [200, []])
  assert.deepEqual([nodesPoll.status, nodesPoll.headers.get('x-nomad-index')], [200, index])
  assert.equal(await nodesPoll.text(), list)
  assert.equal(await agent.ended, 0)
  const next = await startAgent(t, args)
  const write = { method: 'POST', headers: { 'X-Vault-Token': 'known' }, body: '{"data":{"b":"c"}}' }
  assert.equal((await fetch(`${next.url}/v1/secret/data/a`, write)).status, 200)
  const { events } = await watched(next.port, `?wait=60s&cursor=${watch.cursor}`)
  assert.equal(events.length, 1, 'the cursor continues')
})

/** A poll of the watch of `secret/`. */
async function watched(port: number, query: string) {
  const answer = await fetch(`http://127.0.0.1:${port}/v1/secret/watch${query}`, {
    headers: { 'X-Vault-Token': 'known' },
  })
  const { data } = (await answer.json()) as { data: { cursor: string; events: unknown[] } }
  return { status: answer.status, ...data }
}

test('SIGTERM lets a response in progress complete, and a second SIGTERM does not', async (t) => {
  const directory = workDirectory(t)
  const allocation = makeAllocation(join(directory, 'data/alloc'), ALLOC)
  writeFileSync(join(allocation, 'web/local/big'), Buffer.alloc(24 << 20))
  const file = writeConfig(directory, OPEN)
  const cat = `GET /v1/client/fs/cat/${ALLOC}?path=web/local/big HTTP/1.1\r\nHost: localhost\r\n\r\n`
  for (const signals of [1, 2]) {
    const agent = await startAgent(t, ['-config', file])
    const socket = connect({ port: agent.port, host: '127.0.0.1' })
    socket.write(cat)
    await new Promise((resolve) => socket.once('readable', resolve))
    agent.child.kill('SIGTERM')
    await eventually(() => agent.stderr().includes('"stopping"'), 'it is stopping')
    if (signals === 2) {
      agent.child.kill('SIGTERM')
      assert.equal(await agent.ended, 1)
      socket.destroy()
      continue
    }
    let bytes = 0
    socket.on('data', (chunk: Buffer) => (bytes += chunk.length))
    await new Promise((resolve) => socket.once('close', resolve))
    assert.ok(bytes > 24 << 20, 'the answer is whole')
    assert.equal(await agent.ended, 0)
  }
})

async function failsWith(agent: AgentProcess, pattern: RegExp, exitCode = 1): Promise<void> {
  assert.equal(await agent.ended, exitCode)
  const lines = agent
    .stderr()
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('{'))
  assert.equal(lines.length, 1, `one line, not ${JSON.stringify(lines)}`)
  assert.match(lines[0] ?? '', pattern)
  assert.ok(!agent.stdout().includes('started'))
}

test('a failed start prints its cause in one line', async (t) => {
  const directory = workDirectory(t)
  const taken = createServer().listen(0, '127.0.0.1')
  t.after(() => taken.close())
  await eventually(() => taken.listening, 'the port is taken')
  const { port } = taken.address() as { port: number }
  const temporary = join(directory, 'tmp')
  mkdirSync(temporary)
  await failsWith(
    spawnAgent(t, ['-dev', '-http-port', String(port)], { env: { TMPDIR: temporary } }),
    new RegExp(`127\\.0\\.0\\.1:${port} is in use: .*-http-port`),
  )
  assert.equal(await shell(`ls ${temporary}`), '', 'and its temporary directory is gone')
  writeFileSync(join(directory, 'file'), '')
  await failsWith(spawnAgent(t, ['-dev', '-http-port', '0', '-data-dir', join(directory, 'file')]), /file/)
  await failsWith(spawnAgent(t, ['-config', join(directory, 'missing.hcl')]), /missing\.hcl/, 78)
  await failsWith(spawnAgent(t, ['-config', writeConfig(directory, 'bind_addr = "203.0.113.7"')]), /203\.0\.113\.7/)
  if (process.getuid?.() !== 0) return
  mkdirSync(join(directory, 'closed'))
  chmodSync(join(directory, 'closed'), 0o555)
  const closed = spawnAgent(t, ['-dev', '-http-port', '0', '-data-dir', join(directory, 'closed')], { uid: 65534 })
  await failsWith(closed, /closed.*|permission/i)
})

test('a full or read-only data directory is reported, and metadata updates are refused and not lost', async (t) => {
  const directory = workDirectory(t)
  const small = join(directory, 'small')
  mkdirSync(small)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', small], { stdio: 'ignore' })
  } catch {
    return t.skip('needs the right to mount')
  }
  try {
    await onSmallDisk(t, small)
  } finally {
    execFileSync('umount', ['-l', small])
  }
})

async function onSmallDisk(t: TestContext, small: string): Promise<void> {
  execFileSync('sh', ['-c', `cat /dev/zero >${small}/ballast 2>/dev/null || true`])
  await failsWith(spawnAgent(t, ['-dev', '-http-port', '0', '-data-dir', small]), /no space left|disk is full/i)
  execFileSync('rm', [`${small}/ballast`])
  const agent = await startAgent(t, ['-dev', '-http-port', '0', '-data-dir', small])
  execFileSync('sh', ['-c', `cat /dev/zero >${small}/ballast 2>/dev/null || true`])
  const refused = await post(agent.port, '{"Meta":{"full":"1"}}')
  assert.equal(refused.status, 507)
  // The operator has to know where to make room.
  assert.match(refused.body.toString(), new RegExp(`^no space left on the disk of ${small}`))
  assert.match((await ask(agent.port, 'GET', METADATA)).body.toString(), /"Dynamic":\{\}/)
  execFileSync('rm', [`${small}/ballast`])
  assert.equal((await post(agent.port, '{"Meta":{"full":"1"}}')).status, 200)
  agent.child.kill('SIGTERM')
  assert.equal(await agent.ended, 0)
  execFileSync('mount', ['-o', 'remount,ro', small])
  await failsWith(spawnAgent(t, ['-dev', '-http-port', '0', '-data-dir', small]), /read-?only/i)
}

async function post(port: number, body: string) {
  const head = `POST ${METADATA} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n`
  const [answer] = answersIn((await raw({ port }, head + body)).bytes)
  assert.ok(answer)
  return answer
}

const nodeOf = (agent: AgentProcess) => /"node_id":"([0-9a-f-]{36})"/.exec(agent.stderr())?.[1]

test('the node ID and its metadata survive any kind of restart', async (t) => {
  const directory = workDirectory(t)
  const file = writeConfig(directory, OPEN)
  const ids = new Set<string | undefined>()
  let count = 0
  const isKept = async (agent: RunningAgent) => {
    await eventually(() => nodeOf(agent), 'the node is named')
    ids.add(nodeOf(agent))
    const before = JSON.parse((await ask(agent.port, 'GET', METADATA)).body.toString()) as { Dynamic: object }
    assert.equal(Object.keys(before.Dynamic).length, count)
  }
  for (const signal of ['SIGKILL', 'SIGTERM'] as const) {
    const agent = await startAgent(t, ['-config', file])
    await isKept(agent)
    assert.equal((await post(agent.port, `{"Meta":{"run${++count}":"${signal}"}}`)).status, 200)
    agent.child.kill(signal)
    assert.equal(await agent.ended, signal === 'SIGTERM' ? 0 : signal)
  }
  await isKept(await startAgent(t, ['-config', file]))
  assert.equal(ids.size, 1)
  assert.equal(readFileSync(join(directory, 'data/http.addr'), 'utf8').startsWith('http://127.0.0.1:'), true)
})

test('SIGHUP applies tokens and log level, and an invalid file changes nothing', async (t) => {
  const directory = workDirectory(t)
  const hash = execFileSync('sh', ['-c', 'printf secret | sha256sum']).toString().slice(0, 64)
  const acl = (policy: string) =>
    `acl {\n enabled = true\n token "ops" {\n  sha256 = "${hash}"\n  policy = "${policy}"\n }\n}`
  const agent = await startAgent(t, ['-config', writeConfig(directory, acl('agent { policy = \\"read\\" }'))])
  const status = async () => (await ask(agent.port, 'GET', METADATA, 'X-Nomad-Token: secret')).status
  assert.equal(await status(), 403)
  const reload = async (said: string) => {
    const from = agent.stderr().length
    agent.child.kill('SIGHUP')
    await eventually(() => agent.stderr().slice(from).includes(said), said)
  }
  writeConfig(directory, acl('node { policy = \\"read\\" }'))
  await reload('configuration reloaded')
  assert.equal(await status(), 200)
  writeConfig(directory, 'acl { enabled = maybe }')
  await reload('the old configuration stays in effect')
  assert.equal(await status(), 200)
})
