/**
 * Readiness, health, status and metrics of a server in each state of the table sealed × NATS away × disk full × starting:
 * they come from one place, and agree. The NATS server, the full disk and the seal are real.
 */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checksOf } from '../../src/daemon/monitoring/readiness.ts'
import { DiskSpace } from '../../src/telemetry/disk-space.ts'
import { Readiness } from '../../src/telemetry/readiness.ts'
import { loadConfig } from '../../src/config/load.ts'
import { type RunningAgent, spawnAgent, startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { metricsOf, readinessOf } from '../helpers/exported-metrics.ts'
import { type NatsServer, startNatsServer } from '../helpers/nats-server.ts'
import { assigned, playSocket, type Socket } from '../helpers/notify-socket.ts'
import { commandsAt, jsonOf, type Run } from '../helpers/secrets-server.ts'
import { eventually } from '../helpers/eventually.ts'
import { recordingLogger } from '../helpers/recording-logger.ts'

const hasNotify = ['systemd-notify', 'python3'].every((program) => {
  try {
    return execFileSync('sh', ['-c', `command -v ${program}`]).length > 0
  } catch {
    return false
  }
})

interface State {
  readonly sealed: boolean
  readonly away: boolean
  readonly full: boolean
}

/** All that a server says of itself to those who ask. */
interface World {
  readonly agent: RunningAgent
  readonly run: Run
  readonly socket: Socket | undefined
}

function shown(failing: readonly string[]): string {
  return failing.length === 0 ? 'ready' : failing.toSorted().join(' ')
}

/** One line for what each of the sources says; all of them must say what `wanted` says. */
async function said({ agent, run, socket }: World): Promise<Record<string, string>> {
  const { checks, ready, status } = await readinessOf(agent)
  const failing = Object.keys(checks).filter((name) => checks[name]?.state !== 'ok')
  const metrics = await metricsOf(agent)
  const low = Object.keys(checks).filter((check) => metrics.value('outpost_ready_check', { check }) === 0)
  const health = await fetch(`${agent.url}/v1/sys/health`)
  const isSealed = ((await health.json()) as { sealed: boolean }).sealed
  const told = await run('status', '', '', 'json')
  const readiness = JSON.parse(told.stdout) as {
    sealed: boolean
    readiness: { checks: { name: string; state: string }[] }
  }
  const inStatus = readiness.readiness.checks.filter(({ state }) => state !== 'ok').map(({ name }) => name)
  const line =
    assigned(
      socket?.messages.findLast((message) => message.includes('STATUS=')),
      'STATUS',
    ) ?? ''
  const inLine = [...line.matchAll(/(\w+) \(/g)].map(([, name = '']) => name)
  return {
    endpoint: shown(failing),
    // The sources are asked one after the other: while a state begins they may differ.
    ready: `${ready} ${status} ${metrics.value('outpost_ready')}`,
    metrics: shown(low),
    command: shown(inStatus),
    systemd: socket ? shown(inLine) : shown(failing),
    health: `${health.status} ${isSealed}`,
    sealMetric: String(metrics.value('outpost_secrets_sealed')),
    natsMetric: String(metrics.value('outpost_nats_connected')),
    exitCode: String(told.code),
    sealStatus: String(readiness.sealed),
  }
}

function wantedOf({ away, full, sealed }: State): Record<string, string> {
  const failing = [...(full ? ['disk'] : []), ...(away ? ['nats', 'roster'] : []), ...(sealed ? ['seal'] : [])]
  const line = failing.length === 0 ? 'ready' : failing.join(' ')
  return {
    endpoint: line,
    ready: failing.length === 0 ? 'true 200 1' : 'false 503 0',
    metrics: line,
    command: line,
    systemd: line,
    health: sealed ? '503 true' : '200 false',
    sealMetric: String(Number(sealed)),
    natsMetric: String(Number(!away)),
    exitCode: sealed ? '2' : String(Number(failing.length > 0)),
    sealStatus: String(sealed),
  }
}

function writeServer(directory: string, data: string, nats: NatsServer): string {
  mkdirSync(data, { recursive: true })
  const file = join(directory, 'server.hcl')
  const text = [
    `data_dir = "${data}"`,
    'ports {\n http = 0\n cluster = 0\n}',
    'server { enabled = true }',
    `nats { servers = ["${nats.url}"] }`,
  ]
  writeFileSync(file, `${text.join('\n')}\n`)
  return file
}

async function agrees(world: World, state: State): Promise<void> {
  let last: Record<string, string> = {}
  const wanted = wantedOf(state)
  try {
    await eventually(
      async () => {
        last = await said(world)
        return JSON.stringify(last) === JSON.stringify(wanted)
      },
      JSON.stringify(state),
      undefined,
      150,
    )
  } catch {
    assert.deepEqual(last, wanted, JSON.stringify(state))
  }
}

test('readiness, status and metrics agree in each state', async (t) => {
  const directory = workDirectory(t)
  const small = join(directory, 'small')
  mkdirSync(small)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=64m', 'tmpfs', small], { stdio: 'ignore' })
  } catch {
    return t.skip('needs the right to mount')
  }
  try {
    // A test of its own, so that the server has ended when the disk goes.
    await t.test('sealed, NATS disconnected and disk full are reported', (inner) =>
      inEachState(inner, directory, small),
    )
  } finally {
    execFileSync('umount', ['-l', small])
  }
})

async function inEachState(t: TestContext, directory: string, small: string): Promise<void> {
  const nats = await startNatsServer(t)
  const socket = hasNotify ? await playSocket(t, join(directory, 'notify')) : undefined
  const env = socket ? { NOTIFY_SOCKET: socket.name, WATCHDOG_USEC: '400000' } : {}
  const agent = await startAgent(t, ['-config', writeServer(directory, join(small, 'data'), nats)], { env })
  const run = commandsAt(agent, directory)
  const made = await jsonOf(run, 'operator init -key-shares=1 -key-threshold=1')
  const [key] = made['unseal_keys_b64'] as string[]
  const ballast = join(small, 'ballast')
  const world = { agent, run, socket }
  for (const sealed of [true, false]) {
    if (!sealed) assert.equal((await run(`operator unseal ${key}`)).code, 0)
    for (const away of [false, true]) {
      if (away) await nats.kill()
      for (const full of [false, true]) {
        if (full) execFileSync('sh', ['-c', `cat /dev/zero > ${ballast} 2> /dev/null || true`])
        await agrees(world, { sealed, away, full })
        if (full) rmSync(ballast)
      }
      if (away) await nats.restart()
    }
  }
  await agrees(world, { sealed: false, away: false, full: false })
  assert.equal((await run('operator seal', '', String(made['root_token']))).code, 0)
  await agrees(world, { sealed: true, away: false, full: false })
  const { stderr } = await run('status')
  assert.match(stderr, /sealed, next: outpost operator unseal/)
}

test('no source reports readiness during the start', async (t) => {
  const directory = workDirectory(t)
  const nats = await startNatsServer(t)
  const agent = spawnAgent(t, ['-config', writeConfig(directory, `nats { servers = ["${nats.url}"] }`)])
  const address = join(directory, 'data', 'http.addr')
  // The address is written before the process says that it has started.
  await eventually(() => existsSync(address), 'the address is known')
  await eventually(() => agent.stdout().includes('==> outpost agent started'), 'it has started')
  const url = /HTTP: (\S+)/.exec(agent.stdout())?.[1] ?? ''
  const run = commandsAt({ url }, directory)
  await eventually(async () => (await readinessOf({ url })).ready, 'it is ready')
  const status = await run('status')
  assert.deepEqual([status.code, /Ready +true/.test(status.stdout)], [0, true], status.stderr)
  agent.child.kill('SIGTERM')
  await agent.ended
})

for (const phase of ['starting', 'stopping', 'started'] as const) {
  test(`the listener check during the phase: ${phase}`, async (t) => {
    const directory = workDirectory(t)
    const { config } = loadConfig({ paths: [writeConfig(directory, '')] })
    const disk = new DiskSpace([directory])
    const checks = checksOf({
      config,
      phase: () => phase,
      disk,
      cluster: undefined,
      core: undefined,
      fileFault: () => undefined,
    })
    const readiness = new Readiness({
      checks: () => checks,
      warnings: () => [],
      refresh: () => disk.refresh(),
      onChange: () => undefined,
      logger: recordingLogger([]),
    })
    assert.equal(readiness.report().ready, false, 'the disk was not looked at')
    await readiness.refresh()
    assert.equal(readiness.report().ready, phase === 'started')
    assert.equal(readiness.summary, phase === 'started' ? 'ready' : `not ready: listening (${phase})`)
  })
}

test('a connection to NATS without TLS beyond loopback is reported', async (t) => {
  const directory = workDirectory(t)
  const agent = await startAgent(t, ['-config', writeConfig(directory, 'nats { servers = ["nats://192.0.2.1:4222"] }')])
  const status = await commandsAt(agent, directory)('status')
  assert.equal(status.code, 1)
  assert.match(status.stderr, /^warning: the connection to NATS is not encrypted/m)
  assert.match(status.stderr, /^not ready: nats: not connected to NATS(: .+)?$/m)
})

test('a host reports a token of its configuration that it does not know', async (t) => {
  const more =
    'acl {\n enabled = true\n token "poor" {\n sha256 = "SHA"\n policy = "namespace \\"default\\" { policy = \\"read\\" }"\n }\n}'
  const sha256 = execFileSync('sh', ['-c', "printf %s poor-token | sha256sum | cut -d' ' -f1"]).toString().trim()
  const directory = workDirectory(t)
  const agent = await startAgent(t, ['-config', writeConfig(directory, more.replace('SHA', sha256))])
  const run = commandsAt(agent, directory)
  const [poor, unknown] = [await run('node stats', '', 'poor-token'), await run('node stats', '', 'no-such-token')]
  assert.match(poor.stderr, /the token from OUTPOST_TOKEN lacks the permission/)
  assert.match(unknown.stderr, /the token from OUTPOST_TOKEN is unknown or expired/)
})
