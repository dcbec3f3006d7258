/** The recipes for other supervisors, each run for real under a real agent: status, log while it grows, and the end. */
import assert from 'node:assert/strict'
import { execFileSync, spawn, spawnSync } from 'node:child_process'
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { test as untimed, type TestContext } from 'node:test'
import { type AgentHere, agentHere } from '../helpers/agent-here.ts'
import { noOtherUsers, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { bootMachine, makeCheckout, whyNoMachine } from '../helpers/machine.ts'
import { TailClient } from '../helpers/tail-client.ts'
import { eventually } from '../helpers/eventually.ts'

const RECIPES = resolve(import.meta.dirname, '../../recipes')
const ID = '3c9d2f60-5d1e-4a57-8a55-0f6b8f1c2a01'

/** What a recipe waits for may not come: then the test fails, and does not wait for ever. */
function test(name: string, of: (t: TestContext) => void | Promise<void>, skip: string | false = false): void {
  void untimed(name, { timeout: 240_000, skip }, of)
}

interface Place {
  readonly agent: AgentHere
  readonly directory: string
  readonly allocDir: string
}

async function place(t: TestContext): Promise<Place> {
  const directory = workDirectory(t)
  const agent = await agentHere(t, ['-config', writeConfig(directory, 'acl { enabled = false }')])
  return { agent, directory, allocDir: join(directory, 'data/alloc') }
}

function start(t: TestContext, recipe: string, args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const child = spawn(join(RECIPES, recipe), args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...env },
    // A process group of its own, so that what a recipe has started ends with it.
    detached: true,
  })
  t.after(() => {
    try {
      process.kill(-(child.pid ?? 0), 'SIGKILL')
    } catch {
      // All of it has ended.
    }
    // A process that has left the group and lives on keeps neither this process nor the runner, which would wait for an
    // output that it has inherited.
    child.stdout.destroy()
    child.stderr.destroy()
    child.unref()
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => t.diagnostic(text))
  let stdout = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text))
  return {
    child,
    stdout: () => stdout,
    ended: new Promise<number | null>((done) => child.once('exit', (code) => done(code))),
  }
}

function logsUrl(agent: AgentHere, type: string, id = ID): string {
  return `${agent.url}/v1/client/fs/logs/${id}?task=web&type=${type}&follow=true&plain=true&end_when_done=true`
}

async function statusOf(url: string): Promise<number> {
  const answer = await fetch(url)
  await answer.arrayBuffer()
  return answer.status
}

async function pidsOf(agent: AgentHere): Promise<string[]> {
  const answer = await fetch(`${agent.url}/v1/client/allocation/${ID}/stats`)
  const body: unknown = await answer.json()
  return [...JSON.stringify(body).matchAll(/"(\d+)":\{/g)].map(([, pid]) => pid ?? '')
}

interface Manifest {
  readonly ClientStatus: string
  readonly Tasks: {
    readonly web: { readonly State: string; readonly Failed: boolean; readonly Pids: readonly number[] }
  }
}

function manifestIn(allocDir: string): Manifest {
  const value: Manifest = JSON.parse(readFileSync(join(allocDir, ID, 'alloc.json'), 'utf8'))
  return value
}

/** A task that says something, waits for a file, says something else and ends with `status`. */
function script(gate: string, status: number): string {
  return `echo begun; echo warned >&2; while [ ! -e ${gate} ]; do sleep 0.05; done; echo ended; exit ${status}`
}

/** What every supervisor's task must look like through the agent; `go` lets the task end. */
async function livesThrough(
  { agent, allocDir }: Place,
  child: { ended: Promise<number | null> },
  go: () => void,
): Promise<void> {
  await eventually(
    () => existsSync(join(allocDir, ID, 'alloc.json')) && manifestIn(allocDir).ClientStatus === 'running',
  )
  const [pid = 0] = manifestIn(allocDir).Tasks.web.Pids
  assert.match(readFileSync(`/proc/${pid}/cmdline`, 'utf8'), /echo begun/, 'the process that it names is the task')
  await statusBecomes(`${agent.url}/v1/client/allocation/${ID}/stats`, 200)
  // Each output has a writer of its own, which makes its file when it has started.
  for (const type of ['stdout', 'stderr']) await statusBecomes(logsUrl(agent, type).replace('&follow=true', ''), 200)
  const out = await new TailClient(logsUrl(agent, 'stdout'), { framed: false }).open()
  const err = await new TailClient(logsUrl(agent, 'stderr'), { framed: false }).open()
  await out.until(({ text }) => text === 'begun\n')
  await err.until(({ text }) => text === 'warned\n')
  let pids: string[] = []
  await eventually(
    async () => (pids = await pidsOf(agent)).includes(String(pid)),
    () => `the agent counts ${pids.join()}`,
  )
  assert.equal(await statusOf(`${agent.url}/v1/client/allocation/${ID}/gc`), 409, 'what runs is not collected')
  go()
  assert.equal(await child.ended, 3)
  await out.until(({ ended }) => ended !== undefined)
  assert.deepEqual([out.ended, out.text], ['clean', 'begun\nended\n'])
  assert.deepEqual(manifestIn(allocDir).ClientStatus, 'failed')
  assert.deepEqual(manifestIn(allocDir).Tasks.web.State, 'dead')
  await statusBecomes(`${agent.url}/v1/client/allocation/${ID}/gc`, 200)
  assert.ok(!existsSync(join(allocDir, ID)))
}

async function statusBecomes(url: string, status: number): Promise<void> {
  let last = 0
  await eventually(
    async () => (last = await statusOf(url)) === status,
    () => `${url}: ${last}`,
  )
}

test('run-with-shell: a task is listed, followed, and its end detected', async (t) => {
  const here = await place(t)
  const gate = join(here.directory, 'go')
  const task = start(t, 'run-with-shell.sh', [`${here.allocDir}/${ID}`, 'web', 'sh', '-c', script(gate, 3)])
  await livesThrough(here, task, () => writeFileSync(gate, ''))
  assert.equal(task.stdout().trim(), ID)
})

test('run-with-shell: creates an ID below the data directory, forwards signals, and records success', async (t) => {
  const here = await place(t)
  const trap = 'trap "echo asked; exit 0" TERM; echo begun; while :; do sleep 0.05; done'
  const task = start(t, 'run-with-shell.sh', ['-', 'web', 'sh', '-c', trap], {
    OUTPOST_DATA_DIR: dirname(here.allocDir),
  })
  const id = await eventually(() => /^[0-9a-f-]{36}\n$/.test(task.stdout()) && task.stdout().trim())
  const log = join(here.allocDir, id, 'alloc/logs/web.stdout.0')
  await eventually(() => existsSync(log) && readFileSync(log, 'utf8') === 'begun\n')
  task.child.kill('SIGTERM')
  assert.equal(await task.ended, 0)
  assert.equal(readFileSync(log, 'utf8'), 'begun\nasked\n', 'the last line is written before the end is recorded')
  assert.match(readFileSync(join(here.allocDir, id, 'alloc.json'), 'utf8'), /"ClientStatus":"complete"/)
})

test('run-with-shell: logs are rotated and purged, and the agent reads across them', async (t) => {
  const here = await place(t)
  // 4,018,895 bytes: four files, however much of its last 32 KiB each leaves free for the end of a line.
  const args = [`${here.allocDir}/${ID}`, 'web', 'seq', '1', '590000']
  const task = start(t, 'run-with-shell.sh', args, { OUTPOST_MAX_FILES: '2', OUTPOST_MAX_FILE_MB: '1' })
  assert.equal(await task.ended, 0)
  const logs = readdirSync(join(here.allocDir, ID, 'alloc/logs')).filter((name) => name.includes('stdout'))
  assert.deepEqual(logs.sort(), ['web.stdout.2', 'web.stdout.3'])
  await statusBecomes(logsUrl(here.agent, 'stdout'), 200)
  const lines = (await (await fetch(logsUrl(here.agent, 'stdout'))).text()).trimEnd().split('\n').map(Number)
  assert.equal(lines.at(-1), 590_000)
  assert.ok(lines.length > 150_000 && lines.every((line, index) => index === 0 || line === (lines[index - 1] ?? 0) + 1))
})

test(
  'run-with-shell: as root with OUTPOST_OWNER, the logs belong to that user, who cannot see the environment of root',
  (t) => {
    const work = workDirectory(t)
    const directory = join(work, ID)
    // The user can read the environment of the log writers, which `setpriv` passes on.
    const environments = join(work, 'environments')
    const setpriv = `#!/bin/sh\nenv >>'${environments}'\nPATH=\${PATH#*:} exec setpriv "$@"\n`
    mkdirSync(join(work, 'bin'))
    writeFileSync(join(work, 'bin/setpriv'), setpriv, { mode: 0o755 })
    const command = 'seq 1 20000; echo failed >&2'
    const task = spawnSync(join(RECIPES, 'run-with-shell.sh'), [directory, 'web', 'sh', '-c', command], {
      encoding: 'utf8',
      env: {
        ...process.env,
        PATH: `${join(work, 'bin')}:${process.env['PATH']}`,
        OUTPOST_OWNER: 'daemon',
        OUTPOST_TOKEN: 'planted-token',
      },
    })
    assert.deepEqual([task.status, task.stderr], [0, ''])
    const shown = readFileSync(environments, 'utf8')
    assert.match(shown, /^PATH=/m)
    assert.doesNotMatch(shown, /planted-token/)
    const log = join(directory, 'alloc/logs/web.stdout.0')
    assert.equal(readFileSync(log, 'utf8').trimEnd().split('\n').at(-1), '20000')
    assert.equal(readFileSync(join(directory, 'alloc/logs/web.stderr.0'), 'utf8'), 'failed\n')
    assert.equal(statSync(log).uid, statSync(join(directory, 'alloc/logs')).uid)
    assert.notEqual(statSync(log).uid, 0)
  },
  noOtherUsers() ?? false,
)

test('manifest.sh refuses values that it cannot encode as JSON, and creates nothing', (t) => {
  const directory = workDirectory(t)
  const attempt = (dir: string, task: string, env: Readonly<Record<string, string>> = {}) =>
    spawnSync(join(RECIPES, 'manifest.sh'), [dir, task, 'pending'], {
      encoding: 'utf8',
      env: { ...process.env, ...env },
    })
  for (const task of ['', '..', '.hidden', 'alloc', 'a/b', 'a"b', 'a b', 'é', 'x'.repeat(129), 'a\nb']) {
    assert.equal(attempt(join(directory, ID), task).status, 2, JSON.stringify(task))
  }
  for (const name of ['a"b', 'back\\slash', 'new\nline', 'tab\t', 'ü', 'x'.repeat(201)]) {
    assert.equal(attempt(join(directory, ID), 'web', { OUTPOST_NAME: name }).status, 2, JSON.stringify(name))
  }
  for (const dir of ['relative', directory, join(directory, ID.toUpperCase()), join(directory, `${ID}0`)]) {
    assert.equal(attempt(dir, 'web').status, 2, dir)
  }
  assert.deepEqual(readdirSync(directory), [])
  const odd = attempt(join(directory, ID), 'CreateTime', { OUTPOST_NAME: 'web.api[0] = a,b @ c:d/e+f' })
  assert.equal(odd.status, 0, odd.stderr)
  const first: { CreateTime: number; Name: string } = JSON.parse(
    readFileSync(join(directory, ID, 'alloc.json'), 'utf8'),
  )
  assert.equal(first.Name, 'web.api[0] = a,b @ c:d/e+f')
  writeFileSync(join(directory, ID, 'alloc.json'), JSON.stringify({ ...first, CreateTime: 1234 }))
  execFileSync(join(RECIPES, 'manifest.sh'), [join(directory, ID), 'CreateTime', 'dead', '0'])
  const last: { CreateTime: number } = JSON.parse(readFileSync(join(directory, ID, 'alloc.json'), 'utf8'))
  assert.equal(last.CreateTime, 1234, 'what an earlier call said stays')
})

/** A fake `docker` in the PATH, because docker is not available everywhere. */
function playDocker(directory: string): Record<string, string> {
  const bin = join(directory, 'bin')
  mkdirSync(bin)
  mkdirSync(join(directory, 'containers'))
  copyFileSync(resolve(import.meta.dirname, '../helpers/fake-docker.sh'), join(bin, 'docker'))
  chmodSync(join(bin, 'docker'), 0o755)
  return { PATH: `${bin}:${process.env['PATH'] ?? ''}`, FAKE_DOCKER_STATE: join(directory, 'containers') }
}

test('run-with-docker: a container is listed, followed, and its end detected', async (t) => {
  const here = await place(t)
  const env = playDocker(here.directory)
  const gate = join(here.directory, 'go')
  const args = [`${here.allocDir}/${ID}`, 'web', 'image', 'sh', '-c', script(gate, 3)]
  const task = start(t, 'run-with-docker.sh', args, env)
  await livesThrough(here, task, () => writeFileSync(gate, ''))
  assert.deepEqual(readdirSync(join(here.directory, 'containers')), [], 'and no container is left')
})

test('run-with-docker: stops its container, and records one that never started', async (t) => {
  const here = await place(t)
  const env = playDocker(here.directory)
  const task = start(t, 'run-with-docker.sh', [`${here.allocDir}/${ID}`, 'web', 'image', 'sleep', '600'], env)
  await eventually(() => task.stdout().includes(ID))
  task.child.kill('SIGTERM')
  assert.equal(await task.ended, 143)
  assert.equal(manifestIn(here.allocDir).ClientStatus, 'failed')
  const missing = start(t, 'run-with-docker.sh', [`${here.allocDir}/${ID}`, 'web', 'nosuchimage'], env)
  assert.equal(await missing.ended, 125)
  assert.deepEqual(manifestIn(here.allocDir).Tasks.web.State, 'dead')
})

test('outpost-task@.service: a task is supervised by systemd itself', underSystemd, whyNoMachine() ?? false)

async function underSystemd(t: TestContext): Promise<void> {
  const machine = await bootMachine(t)
  makeCheckout(join(machine.outside, 'checkout'))
  chmodSync(machine.outside, 0o700)
  const refused = machine.run(`${machine.inside}/checkout/systemd/install.sh`, '--link')
  assert.match(refused.stderr, /the user outpost cannot run .*omit --link/, 'the directory above is closed')
  chmodSync(machine.outside, 0o755)
  machine.ok(`${machine.inside}/checkout/systemd/install.sh`, '--link')
  const dir = `/var/lib/outpost/alloc/${ID}`
  machine.ok(
    'sh',
    '-ec',
    `cp /opt/outpost/recipes/outpost-task@.service /etc/systemd/system/
    mkdir -p /etc/outpost/tasks
    printf 'TASK=web\\nOUTPOST_JOB=shop\\nOUTPOST_OWNER=daemon\\nCOMMAND=/bin/sh %s/task\\n' ${machine.inside} >/etc/outpost/tasks/${ID}.env
    mkdir -p /etc/systemd/system/outpost-task@.service.d
    printf '[Service]\\nUser=daemon\\n' >/etc/systemd/system/outpost-task@.service.d/user.conf`,
  )
  writeFileSync(join(machine.outside, 'task'), script(`${machine.inside}/go`, 3))
  machine.ok('systemctl', 'daemon-reload')
  machine.ok('systemctl', 'start', `outpost-task@${ID}`)
  const alloc = () => machine.ok('cat', `${dir}/alloc.json`)
  const pid = machine.ok('systemctl', 'show', '-P', 'MainPID', `outpost-task@${ID}`)
  assert.match(
    alloc(),
    new RegExp(`"JobID":"shop".*"ClientStatus":"running".*"Pids":\\[${pid}\\].*"PidStartTicks":\\d+`),
  )
  const log = (type: string) => machine.run('cat', `${dir}/alloc/logs/web.${type}.0`).stdout
  await eventually(() => log('stdout') === 'begun\n' && log('stderr') === 'warned\n')
  await eventually(() => machine.ok('systemctl', 'show', '-P', 'StatusText', 'outpost').length > 0)
  writeFileSync(join(machine.outside, 'go'), '')
  await eventually(() => alloc().includes('"ClientStatus":"failed"'))
  assert.equal(log('stdout'), 'begun\nended\n')
  machine.ok('rm', `${machine.inside}/go`)
  machine.ok('systemctl', 'start', `outpost-task@${ID}`)
  // The second run goes on with the logs of the first.
  await eventually(() => log('stdout') === 'begun\nended\nbegun\n')
  machine.ok('systemctl', 'stop', `outpost-task@${ID}`)
  assert.match(alloc(), /"ClientStatus":"complete".*"State":"dead".*"Pids":\[\]/)
}

test('a directory of a Nomad agent is served without manifests and never collected', async (t) => {
  const directory = workDirectory(t)
  const nomad = join(directory, 'nomad/alloc')
  for (const made of ['alloc/data', 'alloc/logs', 'alloc/tmp', 'web/local', 'web/secrets', 'web/private', 'web/tmp']) {
    mkdirSync(join(nomad, ID, made), { recursive: true })
  }
  const logs = join(nomad, ID, 'alloc/logs')
  execFileSync('mkfifo', [join(logs, '.web.stdout.fifo'), join(logs, '.web.stderr.fifo')])
  writeFileSync(join(logs, 'web.stdout.0'), 'old\n')
  writeFileSync(join(logs, 'web.stdout.1'), 'new\n')
  writeFileSync(join(logs, 'web.stderr.0'), '')
  writeFileSync(join(nomad, ID, 'web/secrets/token'), 'hidden')
  const file = writeConfig(directory, 'acl { enabled = false }').replace('agent.hcl', 'nomad.hcl')
  writeFileSync(
    file,
    `data_dir = "${directory}/data"\nports { http = 0 }\nacl { enabled = false }
    client {\n  enabled = true\n  alloc_dir = "${nomad}"\n}\n`,
  )
  const agent = await agentHere(t, ['-config', file])
  const url = (path: string) => `${agent.url}/v1/client/${path}`
  // A directory without a manifest is given a moment to get one.
  await statusBecomes(url(`fs/ls/${ID}?path=/`), 200)
  const text = await (await fetch(url(`fs/logs/${ID}?task=web&type=stdout&plain=true`))).text()
  assert.equal(text, 'old\nnew\n')
  const follower = await new TailClient(logsUrl(agent, 'stdout'), { framed: false }).open()
  writeFileSync(join(logs, 'web.stdout.2'), 'newer\n')
  await follower.until((client) => client.text.endsWith('newer\n'))
  follower.destroy()
  assert.equal(await statusOf(url(`fs/cat/${ID}?path=web/secrets/token`)), 403)
  assert.equal(await statusOf(url(`allocation/${ID}/gc`)), 409)
  assert.ok(existsSync(join(nomad, ID, 'web')))
})
