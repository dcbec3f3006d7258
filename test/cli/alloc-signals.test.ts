import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, watch } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { describe, test, type TestContext } from 'node:test'
import { setTimeout as delay, setImmediate as nextTurn } from 'node:timers/promises'
import { SignalForwarder } from '../../src/supervisor/signal-forwarder.ts'
import {
  isRunning,
  LOOK_MS,
  logOf,
  manifestOf,
  OUTPOST,
  outpost,
  processesMentioning,
  start,
  temporaryDirectory,
} from './outpost-process.ts'
import { eventually } from '../helpers/eventually.ts'

/** Random moments of a start. */
const ROUNDS = Number(process.env['OUTPOST_SIGNAL_ROUNDS'] ?? 4)
const ID = '0e9c1f3e-0d4b-4c0f-9a53-0c4f6d1c2b7a'

/** Starts a shell script as task `web` and resolves once it has printed `ready`. */
async function supervised(dataDir: string, script: string, options: readonly string[] = [], extra = {}) {
  const args = ['alloc', 'run', '-data-dir', dataDir, '-id', ID, '-task', 'web', ...options, '--', 'sh', '-c', script]
  const running = start(OUTPOST, args, { env: { ...process.env, ...extra } })
  await printed(dataDir, 'ready\n')
  await eventually(() => manifestOf(dataDir, ID)?.ClientStatus === 'running', 'the manifest says running')
  return { ...running, commandPid: manifestOf(dataDir, ID)?.Tasks['web']?.Pids[0] ?? 0 }
}

const output = (dataDir: string) => {
  try {
    return logOf(dataDir, ID, 'web', 'stdout').bytes.toString()
  } catch {
    return ''
  }
}
const printed = (dataDir: string, text: string) => eventually(() => output(dataDir).includes(text), `it prints ${text}`)

/** PIDs of watchdogs over a process group. */
function watchdogsOf(groupId: number): number[] {
  return readdirSync('/proc').flatMap((name) => {
    if (!/^\d+$/.test(name) || !isRunning(Number(name))) return []
    try {
      const words = readFileSync(`/proc/${name}/cmdline`, 'latin1').split('\0')
      return words.at(-3) === 'outpost-watchdog' && words.at(-2) === String(groupId) ? [Number(name)] : []
    } catch {
      return []
    }
  })
}

/** True for a process that has told the kernel so; a shell does that a moment after its start. */
function ignoresSigterm(pid: number): boolean {
  const ignored = /^SigIgn:\s+([0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
  return ((BigInt(`0x${ignored ?? '0'}`) >> BigInt(constants.signals.SIGTERM - 1)) & 1n) === 1n
}

// Each with a directory of its own, and most of its time waiting.
describe('slow tests', { concurrency: true }, () => {
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    test(`${signal} stops the command and its child processes`, async (t) => {
      const dataDir = temporaryDirectory(t)
      const running = await supervised(dataDir, 'sleep 100 & echo ready; wait')
      process.kill(running.pid, signal)
      // A shell ignores SIGINT in what it starts in the background; the rest of the group is killed in the end.
      const { code } = await running.finished
      assert.equal(code, signal === 'SIGTERM' ? 143 : 130)
      const manifest = manifestOf(dataDir, ID)
      assert.deepEqual([manifest?.DesiredStatus, manifest?.ClientStatus], ['stop', 'complete'])
      const task = manifest?.Tasks['web']
      assert.deepEqual([task?.State, task?.Failed, task?.ExitCode], ['dead', false, code])
      assert.deepEqual(processesMentioning(dataDir), [])
      assert.deepEqual(watchdogsOf(running.commandPid), [])
    })
  }

  test('a signal during the start is not lost', async (t) => {
    for (let round = 0; round < ROUNDS; round++) await signalledWhileMadeReady(t)
  })

  test('SIGKILL of the supervisor also ends the command and its child processes', async (t) => {
    const dataDir = temporaryDirectory(t)
    const running = await supervised(dataDir, 'sleep 100 & echo ready; while :; do sleep 0.1; done')
    const [watchdog = 0, ...others] = watchdogsOf(running.commandPid)
    assert.deepEqual(others, [])
    await eventually(() => ignoresSigterm(watchdog), 'the watchdog stands by')
    process.kill(watchdog, 'SIGTERM') // as systemd stops a whole unit at once: it must stay at its post
    process.kill(running.pid, 'SIGKILL')
    await eventually(() => processesMentioning(dataDir).length === 0, 'all are gone', undefined, LOOK_MS)
    await eventually(() => watchdogsOf(running.commandPid).length === 0, 'the watchdog too')
    assert.equal(manifestOf(dataDir, ID)?.ClientStatus, 'running', 'no process was left to write it')
    assert.match((await outpost('alloc', 'list', '-data-dir', dataDir)).stdout, / lost +\d+s ago\n/)
    const again = await outpost('alloc', 'run', '-data-dir', dataDir, '-id', ID, '-task', 'web', '--', 'true')
    assert.equal(again.code, 0, again.stderr)
    assert.equal(manifestOf(dataDir, ID)?.Tasks['web']?.Restarts, 1)
  })

  test('after SIGKILL of the supervisor, processes that ignore SIGTERM are killed five seconds later', async (t) => {
    const dataDir = temporaryDirectory(t)
    const running = await supervised(dataDir, 'trap "" TERM PIPE; echo ready; while :; do sleep 0.1; done')
    process.kill(running.pid, 'SIGKILL')
    await eventually(() => processesMentioning(dataDir).length === 0, 'all are gone', undefined, LOOK_MS)
  })

  test('-detach prints why a command did not start', async (t) => {
    const dataDir = temporaryDirectory(t)
    const detached = (id: string, ...command: string[]) =>
      outpost('alloc', 'run', '-data-dir', dataDir, '-id', id, '-detach', '--', ...command)
    const missing = await detached(ID, 'no-such-program')
    assert.deepEqual([missing.code, missing.stdout], [1, ''])
    assert.equal(missing.stderr, 'outpost: cannot start "no-such-program": not found in PATH\n')
    assert.equal((await detached(ID, 'sleep', '100')).code, 0)
    const again = await detached(ID, 'sleep', '100')
    assert.deepEqual([again.code, again.stdout], [1, ''])
    assert.match(again.stderr, /is running \(supervisor \d+\)/)
    assert.equal((await outpost('alloc', 'stop', '-data-dir', dataDir, ID)).code, 0)
  })
})

test('a stopped command may finish, and its exit code is passed on', async (t) => {
  const dataDir = temporaryDirectory(t)
  const script = 'trap "echo stopping; sleep 0.3; echo bye; exit 5" TERM; echo ready; while :; do sleep 0.05; done'
  const running = await supervised(dataDir, script)
  process.kill(running.pid, 'SIGTERM')
  await printed(dataDir, 'stopping\n')
  await eventually(() => manifestOf(dataDir, ID)?.DesiredStatus === 'stop', 'the manifest says that it stops')
  assert.equal(manifestOf(dataDir, ID)?.ClientStatus, 'running')
  assert.equal((await running.finished).code, 5)
  assert.match(output(dataDir), /stopping\nbye\n$/)
  assert.equal(manifestOf(dataDir, ID)?.ClientStatus, 'complete')
})

const STUBBORN = 'trap "" TERM INT; echo ready; while :; do sleep 0.05; done'

test('a command that does not stop is killed after the kill timeout', async (t) => {
  const dataDir = temporaryDirectory(t)
  const running = await supervised(dataDir, STUBBORN, ['-kill-timeout', '500ms'])
  const beganMs = performance.now()
  process.kill(running.pid, 'SIGTERM')
  assert.equal((await running.finished).code, 137)
  const tookMs = performance.now() - beganMs
  assert.ok(tookMs >= 490 && tookMs < 25_000, `${tookMs} ms`)
  assert.equal(manifestOf(dataDir, ID)?.ClientStatus, 'complete')
})

test('a second SIGTERM kills at once', async (t) => {
  const dataDir = temporaryDirectory(t)
  const running = await supervised(dataDir, STUBBORN)
  process.kill(running.pid, 'SIGTERM')
  await eventually(() => manifestOf(dataDir, ID)?.DesiredStatus === 'stop', 'the first one arrived')
  const beganMs = performance.now()
  process.kill(running.pid, 'SIGINT')
  assert.equal((await running.finished).code, 137)
  assert.ok(performance.now() - beganMs < 25_000)
})

test('SIGHUP, SIGUSR1 and SIGUSR2 reach the command alone, SIGQUIT all of it', async (t) => {
  const dataDir = temporaryDirectory(t)
  const script = `
    for (const name of ['HUP', 'USR1', 'USR2', 'QUIT']) process.on('SIG' + name, () => console.log('got ' + name))
    const helper = child_process.spawn('sleep', ['100']) // would die of any of these signals
    helper.on('exit', (code, signal) => console.log('helper ' + signal))
    helper.on('spawn', () => console.log('ready'))
    setInterval(() => {}, 1000)`
  const running = await supervised(dataDir, `exec "${process.execPath}" -e "$SCRIPT"`, [], { SCRIPT: script })
  for (const name of ['HUP', 'USR1', 'USR2'] as const) {
    process.kill(running.pid, `SIG${name}`)
    await printed(dataDir, `got ${name}\n`)
  }
  assert.doesNotMatch(output(dataDir), /helper/)
  process.kill(running.pid, 'SIGQUIT')
  await printed(dataDir, 'got QUIT\n')
  await printed(dataDir, 'helper SIGQUIT\n')
  assert.equal(manifestOf(dataDir, ID)?.DesiredStatus, 'run')
  process.kill(running.pid, 'SIGTERM')
  await running.finished
})

async function signalledWhileMadeReady(t: TestContext): Promise<void> {
  const dataDir = temporaryDirectory(t)
  mkdirSync(join(dataDir, 'alloc'))
  const watcher = watch(join(dataDir, 'alloc'))
  const begun = once(watcher, 'change')
  const args = ['-data-dir', dataDir, '-id', ID, '-task', 'web', '--', 'sleep', '100']
  const running = start(OUTPOST, ['alloc', 'run', ...args])
  await begun
  watcher.close()
  // Not `eventually`: its pauses are longer than the time between the first manifest and the command's start.
  while (manifestOf(dataDir, ID) === undefined) await nextTurn()
  process.kill(running.pid, 'SIGTERM')
  const { code, signal } = await running.finished
  assert.deepEqual([code, signal], [143, null])
  const manifest = manifestOf(dataDir, ID)
  assert.deepEqual([manifest?.ClientStatus, manifest?.DesiredStatus], ['complete', 'stop'])
}

test('the forwarder delivers signals that arrive before the command starts, and supports long kill timeouts', async () => {
  const forwarder = new SignalForwarder(1e12)
  try {
    const come = once(process, 'SIGTERM')
    process.kill(process.pid, 'SIGTERM')
    await come
    const stubborn = spawn('sh', ['-c', 'trap "" TERM; echo ready; sleep 2'], { detached: true })
    await new Promise((ready) => stubborn.stdout.once('data', ready))
    const ended = new Promise((end) => stubborn.once('exit', (_, signal) => end(signal)))
    forwarder.attach(stubborn.pid ?? 0, () => undefined)
    assert.ok(forwarder.isStopping, 'the signal was kept')
    assert.equal(await Promise.race([ended, delay(300, 'still runs')]), 'still runs')
    process.kill(process.pid, 'SIGINT')
    assert.equal(await ended, 'SIGKILL')
  } finally {
    forwarder.detach()
  }
})

test('a limit on the size of files costs bytes, not the command', async (t) => {
  const dataDir = temporaryDirectory(t)
  const script = 'head -c 3000000 /dev/zero; exit 8'
  const command = `ulimit -f 1000; exec "$0" alloc run -data-dir "$1" -id ${ID} -task web -- sh -c '${script}'`
  const { code, stderr } = await start('sh', ['-c', command, OUTPOST, dataDir]).finished
  assert.equal(code, 8)
  assert.match(stderr, /\d+ bytes of output were not written to the log \(EFBIG\)/)
})

test('Ctrl-C in a terminal reaches the command once', async (t) => {
  const dataDir = temporaryDirectory(t)
  const script =
    'count=0; trap "count=$((count+1)); echo interrupt" INT; echo ready; for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; exit 6'
  const args = ['alloc', 'run', '-data-dir', dataDir, '-id', ID, '-task', 'web', '--', 'sh', '-c', script]
  // As a terminal does it: the signal goes to the whole foreground process group, of which we are.
  const leader = spawn(OUTPOST, args, { detached: true, stdio: 'ignore' })
  const ended = new Promise<number | null>((resolve) => leader.once('exit', resolve))
  await printed(dataDir, 'ready\n')
  process.kill(-(leader.pid ?? 0), 'SIGINT')
  assert.equal(await ended, 6)
  assert.equal(output(dataDir), 'ready\ninterrupt\n')
})

test('-detach returns once the command runs, and the supervisor continues', async (t) => {
  const dataDir = temporaryDirectory(t)
  const options = ['-data-dir', dataDir, '-id', ID, '-task', 'web', '-detach', '-kill-timeout', '1m30s']
  const { code, stdout, stderr } = await outpost('alloc', 'run', ...options, '--', 'sh', '-c', 'env; cat; sleep 100')
  assert.deepEqual([code, stdout, stderr], [0, `${ID}\n`, ''])
  const manifest = manifestOf(dataDir, ID)
  assert.equal(manifest?.ClientStatus, 'running')
  const supervisor = manifest?.SupervisorPid ?? 0
  const session = readFileSync(`/proc/${supervisor}/stat`, 'latin1').split(') ')[1]?.split(' ')[3]
  assert.equal(session, String(supervisor), 'a session of its own')
  for (const descriptor of [0, 1, 2]) {
    assert.ok(readdirSync(`/proc/${supervisor}/fd`).includes(String(descriptor)))
  }
  assert.doesNotMatch(output(dataDir), /DETACHED|NODE_CHANNEL|COMPILE_CACHE/)
  assert.equal((await outpost('alloc', 'stop', '-data-dir', dataDir, ID)).code, 0)
  assert.ok(!isRunning(supervisor))
})

test('the supervisor outlives the reader of its first line', async (t) => {
  const dataDir = temporaryDirectory(t)
  const command = `"$0" alloc run -data-dir "$1" -id ${join(ID)} -task web -- sh -c 'sleep 0.3; echo done' | true`
  await start('bash', ['-o', 'pipefail', '-c', command, OUTPOST, dataDir]).finished
  assert.equal(output(dataDir), 'done\n')
})
