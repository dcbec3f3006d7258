/**
 * Root runs `alloc run` and `alloc stop` on directories of another user. That user puts links, pipes and foreign process IDs
 * where root will look, and must gain nothing that it could not do itself.
 */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { startTicksOf } from '../../src/supervisor/process-identity.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { OUTPOST, outpost } from '../cli/outpost-process.ts'

/** A user without rights, and another one. */
const MALLORY = 65_534
const VICTIM = 65_533
const ID = '0e9c1f3e-0d4b-4c0f-9a53-0c4f6d1c2b7a'
const isRoot = process.geteuid?.() === 0
const SKIP = isRoot ? false : 'only root can act for several users'

function sleeper(t: TestContext, userId: number): ChildProcess & { readonly pid: number } {
  const child = spawn('sleep', ['600'], { uid: userId, gid: userId, detached: true, stdio: 'ignore' })
  t.after(() => child.kill('SIGKILL'))
  assert.ok(child.pid !== undefined)
  return Object.assign(child, { pid: child.pid })
}

function isRunning(pid: number): boolean {
  return startTicksOf(pid) !== undefined
}

interface Claim {
  readonly pid: number
  readonly startTicks?: number | undefined
}

/** An allocation directory of mallory's, whose manifest names a process as the supervisor or as the task's. */
function hostileAllocation(dataDir: string, as: 'supervisor' | 'task', claim: Claim): string {
  const directory = join(dataDir, 'alloc', ID)
  mkdirSync(directory, { recursive: true })
  const { pid, startTicks } = claim
  const task =
    as === 'task' ? { State: 'running', Pids: [pid], PidStartTicks: startTicks } : { State: 'running', Pids: [] }
  const supervisor =
    as === 'supervisor'
      ? { SupervisorPid: pid, SupervisorStartTicks: startTicks }
      : { SupervisorPid: 2 ** 22 - 1, SupervisorStartTicks: 1 }
  writeFileSync(
    join(directory, 'alloc.json'),
    JSON.stringify({
      ID,
      ClientStatus: 'running',
      DesiredStatus: 'run',
      KillTimeoutMs: 0,
      Tasks: { web: task },
      ...supervisor,
    }),
  )
  for (const path of [directory, join(directory, 'alloc.json')]) chownSync(path, MALLORY, MALLORY)
  return directory
}

function stop(dataDir: string) {
  return spawnSync(OUTPOST, ['alloc', 'stop', '-data-dir', dataDir, ID], { encoding: 'utf8', timeout: 60_000 })
}

for (const as of ['supervisor', 'task'] as const) {
  test(`a manifest that names the process of another user as its ${as} does not make root end it`, {
    skip: SKIP,
  }, (t) => {
    const victim = sleeper(t, VICTIM)
    for (const startTicks of [startTicksOf(victim.pid), undefined]) {
      const dataDir = workDirectory(t)
      hostileAllocation(dataDir, as, { pid: victim.pid, startTicks })
      stop(dataDir)
      assert.ok(isRunning(victim.pid), `start ticks ${startTicks}`)
    }
  })
}

test('root ends no process for the manifest of another user unless it belongs to that user and its start time is known', {
  skip: SKIP,
}, (t) => {
  const [victim, own] = [sleeper(t, VICTIM), sleeper(t, MALLORY)]
  const claims = [
    { pid: victim.pid, startTicks: startTicksOf(victim.pid), why: /it belongs to user 65533, and the manifest/ },
    { pid: own.pid, startTicks: undefined, why: /the manifest does not contain its start time/ },
  ]
  for (const as of ['supervisor', 'task'] as const) {
    for (const { why, ...claim } of claims) {
      const dataDir = workDirectory(t)
      chownSync(hostileAllocation(dataDir, as, claim), 0, 0)
      const { status, stderr } = stop(dataDir)
      assert.equal(status, 1)
      assert.match(stderr, why)
      assert.ok(isRunning(claim.pid))
    }
  }
})

test('a manifest that names a process of root, init or a process group does not make root end it', {
  skip: SKIP,
}, (t) => {
  const own = sleeper(t, 0)
  for (const pid of [own.pid, -own.pid, 1, 0, -1]) {
    const dataDir = workDirectory(t)
    hostileAllocation(dataDir, 'supervisor', { pid, startTicks: pid > 0 ? startTicksOf(pid) : undefined })
    stop(dataDir)
    assert.ok(isRunning(own.pid), `process ID ${pid}`)
  }
})

test('a manifest without a start time does not make root end a process', {
  skip: SKIP,
}, (t) => {
  const victim = sleeper(t, VICTIM)
  for (const as of ['supervisor', 'task'] as const) {
    const dataDir = workDirectory(t)
    const directory = hostileAllocation(dataDir, as, { pid: victim.pid })
    for (const path of [directory, join(directory, 'alloc.json')]) chownSync(path, 0, 0)
    const { status, stderr } = stop(dataDir)
    assert.equal(status, 1)
    assert.match(
      stderr,
      /cannot signal process \d+ of allocation \S+ as root: the manifest does not contain its start time/,
    )
    assert.ok(isRunning(victim.pid), as)
  }
})

test('the file that root writes for a stopped allocation belongs to its owner and overwrites no other file', {
  skip: SKIP,
}, (t) => {
  const dataDir = workDirectory(t)
  const directory = hostileAllocation(dataDir, 'task', { pid: 2 ** 22 - 1, startTicks: 1 })
  const precious = join(dataDir, 'precious')
  writeFileSync(precious, 'precious', { mode: 0o600 })
  // Every name that an earlier version used for its temporary file: its own process ID, which a watcher can foresee.
  const watcher = spawn(
    'sh',
    [
      '-c',
      `cd ${directory}; while :; do for p in $(ls /proc | grep -E '^[0-9]+$'); do ln -sf ${precious} .alloc.json.$p; done; done`,
    ],
    { uid: MALLORY, gid: MALLORY, stdio: 'ignore' },
  )
  t.after(() => watcher.kill('SIGKILL'))
  const { status, stderr } = stop(dataDir)
  watcher.kill('SIGKILL')
  assert.equal(status, 0, stderr)
  assert.equal(readFileSync(precious, 'utf8'), 'precious')
  assert.match(readFileSync(join(directory, 'alloc.json'), 'utf8'), /"ClientStatus":"lost"/)
  assert.equal(statSync(join(directory, 'alloc.json')).uid, MALLORY)
})

test('root neither blocks on a manifest that is a pipe nor follows a link', {
  skip: SKIP,
}, async (t) => {
  const dataDir = workDirectory(t)
  const directory = hostileAllocation(dataDir, 'task', { pid: 2 ** 22 - 1, startTicks: 1 })
  const manifest = join(directory, 'alloc.json')
  renameSync(manifest, join(directory, 'real'))
  spawnSync('mkfifo', [manifest])
  chownSync(manifest, MALLORY, MALLORY)
  assert.equal((await outpost('alloc', 'list', '-data-dir', dataDir)).code, 0)
  const piped = stop(dataDir)
  assert.deepEqual([piped.status, piped.signal], [1, null])
  renameSync(manifest, join(directory, 'pipe'))
  symlinkSync(join(directory, 'real'), manifest)
  const linked = stop(dataDir)
  assert.equal(linked.status, 1)
  assert.match(linked.stderr, /symbolic link/)
})

test('root neither runs nor stops anything through a link in place of an allocation directory', {
  skip: SKIP,
}, (t) => {
  const dataDir = workDirectory(t)
  const elsewhere = join(dataDir, 'elsewhere')
  mkdirSync(elsewhere)
  mkdirSync(join(dataDir, 'alloc'))
  symlinkSync(elsewhere, join(dataDir, 'alloc', ID))
  const args = ['alloc', 'run', '-data-dir', dataDir, '-id', ID, '--', 'true']
  const { status, stderr } = spawnSync(OUTPOST, args, { encoding: 'utf8' })
  assert.equal(status, 1)
  assert.match(stderr, /symbolic link/)
  assert.deepEqual(readdirSync(elsewhere), [])
})

test('root runs nothing in a directory of another user, detached or not, and the error says what to do', {
  skip: SKIP,
}, (t) => {
  const dataDir = workDirectory(t)
  const directory = hostileAllocation(dataDir, 'task', { pid: 2 ** 22 - 1, startTicks: 1 })
  const outside = join(dataDir, 'outside')
  mkdirSync(outside)
  mkdirSync(join(directory, 'alloc'))
  symlinkSync(outside, join(directory, 'alloc/logs'))
  for (const path of ['alloc', 'alloc/logs']) spawnSync('chown', ['-h', String(MALLORY), join(directory, path)])
  for (const more of [[], ['-detach']]) {
    const args = ['alloc', 'run', ...more, '-data-dir', dataDir, '-id', ID, '-task', 'web', '--', 'echo', 'x']
    const { status, stderr } = spawnSync(OUTPOST, args, { encoding: 'utf8' })
    assert.equal(status, 1)
    assert.match(stderr, /belongs to user 65534: run the command as that user/)
  }
  assert.deepEqual(readdirSync(outside), [])
})

test("a task that owns its log directory cannot lead root's log writer out of it", { skip: SKIP }, (t) => {
  const dataDir = workDirectory(t)
  const outside = join(dataDir, 'outside')
  mkdirSync(outside)
  const run = (...more: string[]) =>
    spawnSync(OUTPOST, ['alloc', 'run', '-data-dir', dataDir, '-id', ID, '-task', 'web', '--', ...more], {
      encoding: 'utf8',
    })
  assert.equal(run('true').status, 0)
  const shared = join(dataDir, 'alloc', ID, 'alloc')
  // The operator gave the directory away; its new owner puts a link in the place of the logs.
  chownSync(shared, MALLORY, MALLORY)
  renameSync(join(shared, 'logs'), join(shared, 'logs-before'))
  symlinkSync(outside, join(shared, 'logs'))
  const { status, stderr } = run('echo', 'planted')
  assert.equal(status, 1)
  assert.match(stderr, /belongs to user 65534, who could add links/)
  const written = spawnSync(OUTPOST, ['alloc', 'write-log', '-data-dir', dataDir, '-task', 'web', ID], {
    encoding: 'utf8',
    input: 'planted\n',
  })
  assert.equal(written.status, 1)
  assert.deepEqual(readdirSync(outside), [])
})

test('the owner can stop an allocation and its processes through the command that root provides', {
  skip: SKIP,
}, async (t) => {
  const dataDir = workDirectory(t)
  mkdirSync(join(dataDir, 'alloc'))
  chmodSync(join(dataDir, 'alloc'), 0o777)
  const args = ['alloc', 'run', '-detach', '-data-dir', dataDir, '-id', ID, '-task', 'web', '--', 'sleep', '600']
  const started = spawnSync(OUTPOST, args, { encoding: 'utf8', uid: MALLORY, gid: MALLORY, cwd: '/' })
  assert.equal(started.status, 0, started.stderr)
  const manifest: { Tasks: { web: { Pids: number[] } } } = JSON.parse(
    readFileSync(join(dataDir, 'alloc', ID, 'alloc.json'), 'utf8'),
  )
  const [pid = 0] = manifest.Tasks.web.Pids
  assert.ok(isRunning(pid))
  const { status, stderr } = stop(dataDir)
  assert.equal(status, 0, stderr)
  assert.ok(!isRunning(pid))
  assert.ok(existsSync(join(dataDir, 'alloc', ID)))
})
