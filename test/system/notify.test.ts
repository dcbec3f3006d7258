/** Notifications of the daemon to systemd, received by a socket of the test; `systemd-notify` and the shell are real. */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { assigned, playSocket, type Socket } from '../helpers/notify-socket.ts'
import { eventually } from '../helpers/eventually.ts'

const OPEN = 'acl { enabled = false }'
const HELPERS = resolve(import.meta.dirname, '../helpers')
/** The daemon ticks at half of it. */
const WATCHDOG_MS = 400
/** An agent whose first call to itself takes longer than a quarter of it watches no listener: a busy machine needs more. */
const LONGER_WATCHDOG_MS = 2000
const hasNotify = has('systemd-notify') && has('python3')
const noNetwork =
  spawnSync('unshare', ['--net', 'true']).status === 0 ? undefined : 'needs the right to make namespaces'
const options = { skip: hasNotify ? false : 'needs systemd-notify and python3' }

const unreachable = { skip: options.skip || (noNetwork ?? false) }

function has(program: string): boolean {
  try {
    execFileSync('sh', ['-c', `command -v ${program}`], { stdio: 'ignore' })
    return true
  } catch {
    return false
  }
}

function environment(socket: Socket, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  return { NOTIFY_SOCKET: socket.name, WATCHDOG_USEC: String(WATCHDOG_MS * 1000), ...more }
}

test('the notifications are ready, watchdog, reloading, ready and stopping, in this order', options, async (t) => {
  const directory = workDirectory(t)
  const socket = await playSocket(t, `@outpost-test-${process.pid}`)
  const config = writeConfig(directory, OPEN)
  const agent = await startAgent(t, ['-config', config], { env: environment(socket) })
  await eventually(() => socket.ticks() >= 3)
  assert.match(socket.messages[0] ?? '', /^READY=1$/m)
  assert.equal(assigned(socket.messages[0], 'STATUS'), `${agent.url}: ready; 0 allocations, 0 followers`)

  mkdirSync(join(directory, 'data/alloc/6f1c0e5a-7f0b-4c0e-9d5c-2f3b8a4d1e77/web'), { recursive: true })
  await eventually(
    () => assigned(socket.messages.at(-1), 'STATUS') === `${agent.url}: ready; 1 allocation, 0 followers`,
  )

  const before = Number(process.hrtime.bigint() / 1000n)
  agent.child.kill('SIGHUP')
  const reloading = await eventually(() => socket.messages.find((message) => message.startsWith('RELOADING=1')))
  const at = Number(assigned(reloading, 'MONOTONIC_USEC'))
  assert.ok(at >= before && at <= Number(process.hrtime.bigint() / 1000n), 'the clock that systemd means')
  await eventually(() => socket.messages.filter((message) => message.startsWith('READY=1')).length === 2)

  writeFileSync(config, 'nonsense {')
  agent.child.kill('SIGHUP')
  await eventually(() =>
    /; configuration not reloaded: .*agent\.hcl/.test(assigned(socket.messages.at(-1), 'STATUS') ?? ''),
  )
  const ticks = socket.ticks()
  await eventually(() => socket.ticks() > ticks + 1)

  agent.child.kill('SIGTERM')
  assert.equal(await agent.ended, 0)
  await eventually(() => socket.messages.some((message) => message.startsWith('STOPPING=1')))
  // A status change may be sent between any two of these.
  const names = socket.messages.map((message) => message.split('=')[0] ?? '')
  const order = names.filter((name) => !['WATCHDOG', 'STATUS'].includes(name))
  assert.deepEqual(order, ['READY', 'RELOADING', 'READY', 'RELOADING', 'READY', 'STOPPING'])
  assert.ok(!agent.stderr().includes('systemd-notify'), agent.stderr())
})

/** No tick arrives any more; one may have been on its way. */
async function fallsSilent(socket: Socket, watchdogMs = WATCHDOG_MS): Promise<void> {
  const ticks = socket.ticks()
  await delay(watchdogMs * 4)
  assert.ok(socket.ticks() <= ticks + 1, `${socket.ticks() - ticks} ticks came`)
}

test('no watchdog notification is sent while the event loop is blocked', options, async (t) => {
  const directory = workDirectory(t)
  const socket = await playSocket(t, join(directory, 'notify'))
  const blocked = join(directory, 'blocked')
  const env = environment(socket, {
    NODE_OPTIONS: `--import=${join(HELPERS, 'fault-injection.ts')}`,
    OUTPOST_TEST_FAULT: `block:${blocked}`,
  })
  const agent = await startAgent(t, ['-config', writeConfig(directory, OPEN)], { env })
  t.after(() => rmSync(blocked, { force: true }))
  await eventually(() => socket.ticks() >= 2)
  agent.child.kill('SIGUSR2')
  await eventually(() => existsSync(blocked))
  await fallsSilent(socket)
  const ticks = socket.ticks()
  rmSync(blocked)
  await eventually(() => socket.ticks() > ticks + 1)
})

test('no watchdog notification is sent once the listener has failed, and the log has the cause', options, async (t) => {
  const directory = workDirectory(t)
  const socket = await playSocket(t, join(directory, 'notify'))
  const env = environment(socket, {
    NODE_OPTIONS: `--import=${join(HELPERS, 'fault-injection.ts')}`,
    OUTPOST_TEST_FAULT: 'close',
    WATCHDOG_USEC: String(LONGER_WATCHDOG_MS * 1000),
  })
  const agent = await startAgent(t, ['-config', writeConfig(directory, OPEN)], { env })
  await eventually(() => socket.ticks() >= 2)
  agent.child.kill('SIGUSR2')
  await eventually(() => agent.stderr().includes('this process cannot reach its own listener'))
  await fallsSilent(socket, LONGER_WATCHDOG_MS)
  assert.equal(agent.stderr().split('this process cannot reach its own listener').length, 2, 'said once')
})

test(
  'an agent that cannot reach its own address logs it, and the watchdog covers the event loop only',
  unreachable,
  async (t) => {
    const directory = workDirectory(t)
    const socket = await playSocket(t, join(directory, 'notify'))
    // A network without a loopback device that is up: listening works, and no connection arrives.
    const through = ['unshare', '--net', 'sh', '-c', 'echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind; exec "$@"', 'sh']
    const agent = await startAgent(t, ['-config', writeConfig(directory, OPEN)], { env: environment(socket), through })
    await eventually(() => agent.stderr().includes('this process cannot reach its own address'))
    await eventually(() => socket.ticks() >= 2)
  },
)

test('watchdog notifications are sent for the intended process only, and only if configured', options, async (t) => {
  const directory = workDirectory(t)
  const socket = await playSocket(t, join(directory, 'notify'))
  const config = writeConfig(directory, OPEN)
  const agent = await startAgent(t, ['-config', config], { env: environment(socket, { WATCHDOG_PID: '1' }) })
  await eventually(() => socket.messages.length > 0)
  await fallsSilent(socket)
  assert.equal(socket.ticks(), 0)
  const [child] = await eventually(() => {
    const children = readdirSync('/proc').filter((pid) => parentOf(pid) === agent.pid)
    return children.length > 0 && children
  })
  agent.child.kill('SIGKILL')
  await eventually(() => !existsSync(`/proc/${child}`)) // the shell goes with us, however we go
})

function parentOf(pid: string): number | undefined {
  try {
    return Number(/^PPid:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1])
  } catch {
    return undefined
  }
}

test('a killed helper shell for notifications is restarted', options, async (t) => {
  const directory = workDirectory(t)
  const socket = await playSocket(t, join(directory, 'notify'))
  const agent = await startAgent(t, ['-config', writeConfig(directory, OPEN)], { env: environment(socket) })
  await eventually(() => socket.ticks() >= 1)
  const shell = readdirSync('/proc').find((pid) => /^\d+$/.test(pid) && parentOf(pid) === agent.pid)
  process.kill(Number(shell), 'SIGKILL')
  const ticks = socket.ticks()
  await eventually(() => socket.ticks() > ticks + 2)
  await eventually(() => agent.stderr().includes('notification shell exited'))
})

test('without systemd-notify a line is logged and the agent serves', async (t) => {
  const directory = workDirectory(t)
  const bin = join(directory, 'bin')
  mkdirSync(bin)
  for (const program of ['readlink', 'uname', 'flock']) {
    if (has(program))
      symlinkSync(
        execFileSync('sh', ['-c', `command -v ${program}`])
          .toString()
          .trim(),
        join(bin, program),
      )
  }
  const env = { NOTIFY_SOCKET: join(directory, 'nobody'), WATCHDOG_USEC: '200000', PATH: bin }
  const agent = await startAgent(t, ['-config', writeConfig(directory, OPEN)], { env })
  await eventually(() => agent.stderr().includes('systemd-notify not found'))
  await delay(1000)
  const lines = agent
    .stderr()
    .split('\n')
    .filter((line) => line.includes('systemd-notify'))
  assert.equal(lines.length, 1, agent.stderr())
  assert.equal((await fetch(`${agent.url}/v1/agent/health`)).status, 200)
})
