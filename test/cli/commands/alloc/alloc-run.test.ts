import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, type TestContext, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import {
  isRunning,
  logOf,
  manifestOf,
  OUTPOST,
  outpost,
  processesMentioning,
  start,
  temporaryDirectory,
} from '../../outpost-process.ts'
import { eventually } from '../../../helpers/eventually.ts'

const ID = '5f9c1f3e-0d4b-4c0f-9a53-0c4f6d1c2b7a'
const MIB = 1024 * 1024

function run(dataDir: string, options: readonly string[], command: readonly string[]) {
  return start(OUTPOST, ['alloc', 'run', '-data-dir', dataDir, '-id', ID, ...options, '--', ...command])
}

async function taskRuns(dataDir: string, task: string): Promise<number> {
  await eventually(() => manifestOf(dataDir, ID)?.Tasks[task]?.State === 'running', 'the task runs')
  return manifestOf(dataDir, ID)?.Tasks[task]?.Pids[0] ?? 0
}

function writeScript(directory: string, name: string, text: string): string {
  const path = join(directory, name)
  writeFileSync(path, `#!/bin/sh\n${text}\n`)
  chmodSync(path, 0o755)
  return path
}

test('prints the ID, keeps both outputs apart and exits like the command', async (t) => {
  const dataDir = temporaryDirectory(t)
  const { code, stdout, stderr } = await run(dataDir, ['-task', 'web'], ['sh', '-c', 'echo out; echo err >&2; exit 7'])
    .finished
  assert.deepEqual([code, stdout, stderr], [7, `${ID}\n`, ''])
  assert.equal(logOf(dataDir, ID, 'web', 'stdout').bytes.toString(), 'out\n')
  assert.equal(logOf(dataDir, ID, 'web', 'stderr').bytes.toString(), 'err\n')
})

test('without -id the ID is a new UUID, and -- is optional', async (t) => {
  const dataDir = temporaryDirectory(t)
  const { code, stdout } = await outpost('alloc', 'run', '-data-dir', dataDir, 'true', '-id')
  assert.equal(code, 0)
  assert.match(stdout, /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\n$/)
  assert.deepEqual(readdirSync(join(dataDir, 'alloc')), [stdout.trim()])
})

test('the directory has the documented layout, and secrets are private for any umask', async (t) => {
  const dataDir = temporaryDirectory(t)
  const command = `umask 0; exec "$0" alloc run -data-dir "$1" -id ${ID} -task web -- true`
  assert.equal((await start('sh', ['-c', command, OUTPOST, dataDir]).finished).code, 0)
  const mode = (path: string) => (statSync(join(dataDir, 'alloc', ID, path)).mode & 0o7777).toString(8)
  for (const path of ['', 'alloc', 'alloc/data', 'alloc/logs', 'alloc/tmp', 'web', 'web/local']) {
    assert.equal(mode(path), '755', path)
  }
  for (const path of ['web/secrets', 'web/private', 'web/tmp']) assert.equal(mode(path), '700', path)
  assert.equal(mode('alloc.json'), '644')
  assert.deepEqual(readdirSync(join(dataDir, 'alloc', ID)).sort(), ['alloc', 'alloc.json', 'web'])
  assert.deepEqual(readdirSync(join(dataDir, 'alloc', ID, 'web/private')), [], 'the pipes have no names left')
})

test('the manifest has each state of the task', async (t) => {
  const dataDir = temporaryDirectory(t)
  const beganMs = Date.now()
  const options = ['-task', 'server', '-job', 'web', '-name', 'web.api[0]', '-namespace', 'prod', '-max-files', '3']
  const running = run(dataDir, [...options, '-max-file-size', '2'], ['sleep', '0.5'])
  const pid = await taskRuns(dataDir, 'server')
  const during = manifestOf(dataDir, ID)
  assert.ok(during)
  assert.equal(readFileSync(`/proc/${pid}/cmdline`, 'latin1'), 'sleep\x000.5\0')
  assert.deepEqual(
    [during.ID, during.Name, during.Namespace, during.JobID, during.TaskGroup, during.DesiredStatus],
    [ID, 'web.api[0]', 'prod', 'web', 'server', 'run'],
  )
  assert.equal(during.ClientStatus, 'running')
  assert.equal(during.SupervisorPid, running.pid)
  assert.ok(Math.abs(during.CreateTime / 1e6 - beganMs) < 10_000, 'nanoseconds')
  const task = during.Tasks['server']
  assert.ok(task)
  assert.deepEqual(
    [task.State, task.Failed, task.FinishedAt, task.ExitCode, task.LogsDisabled, task.MaxFiles, task.MaxFileSizeMB],
    ['running', false, null, null, false, 3, 2],
  )
  assert.ok(Math.abs(Date.parse(task.StartedAt ?? '') - beganMs) < 10_000)
  assert.equal((await running.finished).code, 0)
  const after = manifestOf(dataDir, ID)
  assert.deepEqual(
    [after?.ClientStatus, after?.DesiredStatus, after?.CreateTime],
    ['complete', 'run', during.CreateTime],
  )
  const ended = after?.Tasks['server']
  assert.deepEqual([ended?.State, ended?.Failed, ended?.Pids, ended?.ExitCode], ['dead', false, [], 0])
  assert.ok(Date.parse(ended?.FinishedAt ?? '') >= Date.parse(task.StartedAt ?? ''))
})

test('a command that fails makes a failed allocation', async (t) => {
  const dataDir = temporaryDirectory(t)
  assert.equal((await run(dataDir, [], ['sh', '-c', 'kill -SEGV $$']).finished).code, 128 + 11)
  const manifest = manifestOf(dataDir, ID)
  assert.equal(manifest?.ClientStatus, 'failed')
  assert.deepEqual([manifest?.Tasks['sh']?.Failed, manifest?.Tasks['sh']?.ExitCode], [true, 139])
})

test('a command that cannot start: exit code and text as a shell has them, and a manifest', async (t) => {
  const dataDir = temporaryDirectory(t)
  const plain = join(dataDir, 'plain')
  writeFileSync(plain, 'no program')
  for (const [program, code, message] of [
    ['no-such-program', 127, 'cannot start "no-such-program": not found in PATH'],
    ['./no-such-file', 127, 'cannot start "./no-such-file": no such file'],
    [plain, 126, `cannot start "${plain}": not executable, run chmod +x`],
  ] as const) {
    const finished = await run(dataDir, ['-task', 'web'], [program]).finished
    assert.deepEqual([finished.code, finished.stderr], [code, `outpost: ${message}\n`])
    const manifest = manifestOf(dataDir, ID)
    assert.equal(manifest?.ClientStatus, 'failed')
    const task = manifest?.Tasks['web']
    assert.deepEqual([task?.State, task?.Failed, task?.StartedAt, task?.ExitCode], ['dead', true, null, code])
  }
})

test('the command has our directory, stdin and environment, and its own names', async (t) => {
  const dataDir = temporaryDirectory(t)
  const here = temporaryDirectory(t)
  writeScript(here, 'script.sh', 'pwd; cat; env')
  const args = ['alloc', 'run', '-data-dir', dataDir, '-id', ID.toUpperCase(), '-task', 'web', '--', './script.sh']
  const env = { PATH: process.env['PATH'], MINE: 'kept' }
  assert.equal((await start(OUTPOST, args, { cwd: here, env, input: 'from stdin\n' }).finished).code, 0)
  const lines = logOf(dataDir, ID, 'web', 'stdout').bytes.toString().split('\n')
  assert.deepEqual(lines.slice(0, 2), [here, 'from stdin'])
  const root = join(dataDir, 'alloc', ID)
  for (const line of [
    'MINE=kept',
    `OUTPOST_ALLOC_ID=${ID}`,
    `NOMAD_ALLOC_ID=${ID}`,
    'NOMAD_ALLOC_NAME=web.web[0]',
    'NOMAD_TASK_NAME=web',
    `NOMAD_ALLOC_DIR=${join(root, 'alloc')}`,
    `NOMAD_TASK_DIR=${join(root, 'web/local')}`,
    `NOMAD_SECRETS_DIR=${join(root, 'web/secrets')}`,
  ]) {
    assert.ok(lines.includes(line), line)
  }
  assert.ok(
    !lines.some((line) => /COMPILE_CACHE|LAUNCHER|MALLOC_ARENA|NODE_CHANNEL/.test(line)),
    'nothing of our own start',
  )
})

/** Runs a child that prints `totalMib` of numbered lines at full speed; returns exactly what it printed. */
function numbersText(last: number): Buffer {
  return spawnSync('seq', ['1', String(last)], { maxBuffer: 1 << 30 }).stdout
}

test('every byte of a fast command is in the files, cut at line ends', async (t) => {
  const dataDir = temporaryDirectory(t)
  const command = ['sh', '-c', 'seq 1 1000000 & seq 1 300000 >&2; wait']
  const { code } = await run(dataDir, ['-max-files', '1000', '-max-file-size', '1'], command).finished
  assert.equal(code, 0)
  for (const [type, last] of [
    ['stdout', 1_000_000],
    ['stderr', 300_000],
  ] as const) {
    const { names, bytes } = logOf(dataDir, ID, 'sh', type)
    const expected = numbersText(last)
    assert.ok(bytes.equals(expected), `${type}: ${bytes.length} of ${expected.length} bytes`)
    for (const [index, name] of names.entries()) {
      assert.equal(name, `sh.${type}.${index}`)
      if (index === names.length - 1) break
      const content = readFileSync(join(dataDir, 'alloc', ID, 'alloc/logs', name))
      assert.equal(content.at(-1), 10, `${name} ends with a line`)
      assert.ok(content.length <= MIB && content.length > MIB - 32 * 1024, `${name}: ${content.length}`)
    }
  }
})

test('binary data without lines arrives whole; purge keeps the newest', async (t) => {
  const dataDir = temporaryDirectory(t)
  const source = join(dataDir, 'random')
  assert.equal(spawnSync('sh', ['-c', `head -c 9999999 /dev/urandom > '${source}'`]).status, 0)
  const { code } = await run(dataDir, ['-max-files', '4', '-max-file-size', '1'], ['cat', source]).finished
  assert.equal(code, 0)
  const { names, bytes } = logOf(dataDir, ID, 'cat', 'stdout')
  assert.equal(names.length, 4)
  const all = readFileSync(source)
  assert.ok(bytes.length > 3 * MIB - 3 * 32 * 1024)
  assert.ok(bytes.equals(all.subarray(all.length - bytes.length)), 'the newest bytes, in order')
})

test('the same -id again continues the logs and counts the restart', async (t) => {
  const dataDir = temporaryDirectory(t)
  await run(dataDir, ['-task', 'web'], ['sh', '-c', 'printf "first "; exit 1']).finished
  const created = manifestOf(dataDir, ID)?.CreateTime
  await run(dataDir, ['-task', 'web'], ['printf', 'second']).finished
  assert.equal(logOf(dataDir, ID, 'web', 'stdout').bytes.toString(), 'first second')
  await run(dataDir, ['-task', 'other'], ['true']).finished
  const manifest = manifestOf(dataDir, ID)
  assert.equal(manifest?.CreateTime, created)
  assert.deepEqual([manifest?.Tasks['web']?.Restarts, manifest?.Tasks['web']?.State], [1, 'dead'])
  assert.deepEqual([manifest?.Tasks['other']?.Restarts, manifest?.ClientStatus], [0, 'complete'])
})

test('a directory of another supervisor is left alone', async (t) => {
  const dataDir = temporaryDirectory(t)
  mkdirSync(join(dataDir, 'alloc', ID, 'alloc/logs'), { recursive: true })
  const { code, stderr } = await run(dataDir, [], ['true']).finished
  assert.equal(code, 1)
  assert.match(stderr, /has no manifest and belongs to another supervisor: use another -id\n$/)
  writeFileSync(join(dataDir, 'alloc', ID, 'alloc.json'), '{"broken')
  assert.match((await run(dataDir, [], ['true']).finished).stderr, /alloc\.json is malformed: repair or remove it\n$/)
})

test('a data directory that cannot be created is an error', async (t) => {
  const dataDir = temporaryDirectory(t)
  writeFileSync(join(dataDir, 'file'), '')
  const { code, stdout, stderr } = await run(join(dataDir, 'file'), [], ['true']).finished
  assert.deepEqual([code, stdout], [1, ''])
  assert.match(stderr, /^outpost: cannot create .*: ENOTDIR/)
})

test('a command may close its output and continue', async (t) => {
  const dataDir = temporaryDirectory(t)
  const script = 'echo before; exec 1>&- ; sleep 0.3; echo after >&2; exit 4'
  assert.equal((await run(dataDir, [], ['sh', '-c', script]).finished).code, 4)
  assert.equal(logOf(dataDir, ID, 'sh', 'stdout').bytes.toString(), 'before\n')
  assert.equal(logOf(dataDir, ID, 'sh', 'stderr').bytes.toString(), 'after\n')
})

async function timedRun(t: TestContext, script: string) {
  const dataDir = temporaryDirectory(t)
  const beganMs = performance.now()
  const finished = await run(dataDir, [], ['sh', '-c', script]).finished
  return { dataDir, finished, tookMs: performance.now() - beganMs }
}

test('remaining processes without the output pipes are killed at once', async (t) => {
  const { dataDir, finished, tookMs } = await timedRun(t, 'sleep 100 >/dev/null 2>&1 & exit 3')
  assert.equal(finished.code, 3)
  assert.ok(tookMs < 60_000, `${tookMs} ms`)
  assert.deepEqual(processesMentioning(dataDir), [])
})

/** `R`, `S`, `T` and so on. */
function stateOf(pid: number): string | undefined {
  return /^State:\s+(\S)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
}

test('with a slow disk or reader the command waits, and memory does not grow', async (t) => {
  const dataDir = temporaryDirectory(t)
  const running = run(dataDir, ['-max-files', '2', '-max-file-size', '1'], ['sh', '-c', 'exec yes'])
  const pid = await taskRuns(dataDir, 'sh')
  running.child.kill('SIGSTOP')
  await eventually(() => stateOf(running.pid) === 'T' && stateOf(pid) === 'S', 'one is stopped, and the other waits')
  const writtenBy = () => Number(/wchar: (\d+)/.exec(readFileSync(`/proc/${pid}/io`, 'utf8'))?.[1])
  const before = writtenBy()
  for (let look = 0; look < 10; look++) {
    await delay(10)
    assert.equal(stateOf(pid), 'S', 'it goes on waiting')
  }
  assert.equal(writtenBy(), before, 'the command waits for its pipe')
  running.child.kill('SIGCONT')
  await eventually(() => writtenBy() > before + 100 * MIB, 'it goes on')
  const residentKib = Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${running.pid}/status`, 'utf8'))?.[1])
  assert.ok(residentKib < 150 * 1024, `${residentKib} KiB`)
  running.child.kill('SIGTERM')
  assert.equal((await running.finished).code, 143)
  assert.ok(!isRunning(pid))
})

// Each with a directory of its own, and most of its time waiting.
describe('slow tests', { concurrency: true }, () => {
  test('output is in the file at once, and /dev/stdout can be opened', async (t) => {
    const dataDir = temporaryDirectory(t)
    const script = 'echo one > /dev/stdout; printf half; read line; echo two > /dev/stderr'
    const args = ['alloc', 'run', '-data-dir', dataDir, '-id', ID, '--', 'sh', '-c', script]
    // The standard input of the command ends when this file exists.
    const end = join(temporaryDirectory(t), 'end')
    const input = `while [ ! -e ${end} ]; do sleep 0.05; done`
    const child = start('sh', ['-c', `${input} | "$0" "$@"`, OUTPOST, ...args])
    await taskRuns(dataDir, 'sh')
    await eventually(() => logOf(dataDir, ID, 'sh', 'stdout').bytes.toString() === 'one\nhalf', 'the output is there')
    writeFileSync(end, '')
    assert.equal((await child.finished).code, 0)
    assert.equal(logOf(dataDir, ID, 'sh', 'stderr').bytes.toString(), 'two\n')
  })

  test('one supervisor for an allocation, also when two start at once', async (t) => {
    const dataDir = temporaryDirectory(t)
    // The one that runs ends when the other one was refused, however late that started.
    const over = join(temporaryDirectory(t), 'over')
    const wait = ['sh', '-c', `until [ -e ${over} ]; do sleep 0.05; done`]
    const both = [run(dataDir, [], wait), run(dataDir, [], wait)]
    await Promise.race(both.map((running) => running.finished))
    writeFileSync(over, '')
    const ended = await Promise.all(both.map((running) => running.finished))
    assert.equal(ended.filter(({ code }) => code === 0).length, 1)
    const refused = ended.find(({ code }) => code === 1)
    assert.match(refused?.stderr ?? '', /^outpost: allocation \S+ is running.*stop it with: outpost alloc stop /)
    assert.equal(refused?.stdout, '')
  })

  test('remaining processes have two seconds for their output, then they are killed', async (t) => {
    const { dataDir, finished, tookMs } = await timedRun(t, '(sleep 0.5; echo late; exec sleep 100) & echo early')
    assert.equal(finished.code, 0)
    assert.equal(logOf(dataDir, ID, 'sh', 'stdout').bytes.toString(), 'early\nlate\n')
    assert.ok(tookMs >= 2000 && tookMs < 60_000, `${tookMs} ms`)
    assert.deepEqual(processesMentioning(dataDir), [])
  })

  test('a process in another session is not signaled, and does not delay the end', async (t) => {
    const { dataDir, finished, tookMs } = await timedRun(t, 'setsid sh -c "echo $$; sleep 30" & sleep 0.2')
    assert.equal(finished.code, 0)
    assert.ok(tookMs < 29_000, `${tookMs} ms`)
    const left = processesMentioning(dataDir)
    assert.ok(left.some(({ command }) => command.startsWith('sleep 30')))
    for (const { pid } of left) process.kill(pid, 'SIGKILL')
  })
})

const MOUNT = ['-rm', 'sh', '-c', 'mount -t tmpfs -o size=1m none "$0"']
test('a last manifest that cannot be written is reported, and the supervisor exits like the command', async (t) => {
  const dataDir = temporaryDirectory(t)
  const go = join(dataDir, 'go')
  const script = `until [ -e "${go}" ]; do sleep 0.05; done; rm -rf "$(dirname "$NOMAD_ALLOC_DIR")"; exit 3`
  const supervisor = run(dataDir, [], ['sh', '-c', script])
  // Until then the supervisor writes to the directory.
  await taskRuns(dataDir, 'sh')
  writeFileSync(go, '')
  const timer = setTimeout(() => supervisor.child.kill('SIGKILL'), 20_000)
  const { code, stderr } = await supervisor.finished
  clearTimeout(timer)
  assert.equal(code, 3, stderr)
  assert.equal(stderr.match(/cannot write the manifest/g)?.length, 1, stderr)
})

test('a full disk costs the bytes that did not fit, and the log says how many', async (t) => {
  const dataDir = temporaryDirectory(t)
  if (spawnSync('unshare', [...MOUNT, dataDir]).status !== 0) return t.skip('this kernel lets us mount nothing')
  const outside = temporaryDirectory(t)
  const script = `head -c 200000 /dev/zero > '${dataDir}/ballast'; yes 123456789 | head -c 1500000
    echo ran on > '${outside}/ran'; sleep 0.2; rm '${dataDir}/ballast'; echo after`
  const inner = `${MOUNT[3]} && "$1" alloc run -data-dir "$0" -id ${ID} -task web -- sh -c "$2"
    code=$?; cat "$0/alloc/${ID}/alloc/logs/web.stdout.0"; cat "$0/alloc/${ID}/alloc.json"; exit $code`
  const { code, stdout, stderr } = await start('unshare', ['-rm', 'sh', '-c', inner, dataDir, OUTPOST, script]).finished
  assert.equal(code, 0, stderr)
  assert.equal(readFileSync(join(outside, 'ran'), 'utf8'), 'ran on\n')
  const log = stdout.slice(stdout.indexOf('\n') + 1)
  const notice = /outpost: (\d+) bytes of output are missing here \(ENOSPC\)\n/.exec(log)
  assert.ok(notice, log.slice(-300))
  const before = log.slice(0, notice.index).replace(/\n$/, '')
  const lost = Number(notice[1])
  const kept = before.length + (before.length % 10 === 9 ? 1 : 0)
  assert.equal(kept + lost, 1_500_000, 'what is kept and what is lost is what was printed')
  assert.ok(before.startsWith('123456789\n') && kept > 500_000)
  assert.match(log, /\nafter\n\{.*"ClientStatus":"complete"/)
  assert.match(stderr, new RegExp(`${lost} bytes of output were not written to the log \\(ENOSPC\\)`))
})

test('without space for its manifest the command is not started and no directory remains', async (t) => {
  const dataDir = temporaryDirectory(t)
  if (spawnSync('unshare', [...MOUNT, dataDir]).status !== 0) return t.skip('this kernel lets us mount nothing')
  const outside = temporaryDirectory(t)
  const inner = `${MOUNT[3]}; cat /dev/zero > "$0/ballast"; for how in -detach -max-files=3; do
    "$1" alloc run -data-dir "$0" $how -- touch "$2/ran"; echo "code $?"; done; ls "$0/alloc"`
  const { stderr, stdout } = await start('unshare', ['-rm', 'sh', '-c', inner, dataDir, OUTPOST, outside]).finished
  assert.equal(stdout, 'code 1\ncode 1\n')
  assert.equal(
    stderr.match(/^outpost: cannot write the manifest in .*, the command was not started: ENOSPC/gm)?.length,
    2,
    stderr,
  )
  assert.deepEqual(readdirSync(outside), [])
})
