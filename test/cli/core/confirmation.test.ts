/** Commands that delete or close something name the cluster and ask on a terminal; without one they run. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import tty from 'node:tty'
import { runHere } from '../../helpers/command-here.ts'
import { OUTPOST, ROOT, start, temporaryDirectory } from '../outpost-process.ts'
import { recordingCore, runAt } from '../recording-core.ts'

const PROGRAM = join(ROOT, 'test/helpers/terminal.py')
const HAS_PYTHON = spawnSync('python3', ['-c', 'import pty']).status === 0
const HEALTH = 'GET sys/health?sealedcode=200&uninitcode=200&drsecondarycode=200&standbycode=200'

function commands(t: TestContext) {
  const file = join(temporaryDirectory(t), 'secrets.snap')
  writeFileSync(file, '{}')
  const token = join(temporaryDirectory(t), 'operation-token')
  writeFileSync(token, 't\n')
  return [
    {
      line: `operator snapshot restore ${file}`,
      effect: 'replace all secrets and tokens with those of',
      request: 'POST sys/storage/raft/snapshot',
    },
    {
      line: 'secrets disable team',
      effect: 'disable team/ and delete all data of the engine',
      request: 'DELETE sys/mounts/team',
    },
    {
      line: 'auth disable userpass',
      effect: 'disable userpass/ and revoke all tokens of the auth method',
      request: 'DELETE sys/auth/userpass',
    },
    { line: 'operator seal', effect: 'seal the server', request: 'PUT sys/seal' },
    {
      line: 'operator dr enable',
      effect: 'make this cluster a DR primary',
      request: 'PUT sys/replication/dr/primary/enable',
    },
    { line: 'operator dr demote', effect: 'demote this DR primary', request: 'PUT sys/replication/dr/primary/demote' },
    {
      line: 'operator dr disable',
      effect: 'disable DR on this primary',
      request: 'PUT sys/replication/dr/primary/disable',
    },
    {
      line: `operator dr disable @${token}`,
      effect: 'disable DR on this secondary',
      request: 'PUT sys/replication/dr/secondary/disable',
    },
  ] as const
}

async function core(t: TestContext) {
  const recorded = await recordingCore(t)
  recorded.answers = { [HEALTH]: [200, { cluster_name: 'blue', cluster_id: 'c-1' }] }
  return recorded
}

test('without a terminal they run without confirmation, with and without -yes', async (t) => {
  const recorded = await core(t)
  for (const { line, request } of commands(t)) {
    for (const args of [
      line,
      line.replace(/^(operator snapshot restore|operator dr \w+|operator seal|\w+ disable)/, '$1 -yes'),
    ]) {
      recorded.asked.length = 0
      const { code, err } = await runAt(recorded, args.split(' '))
      assert.equal(code, 0, `${args}: ${err}`)
      assert.deepEqual(
        recorded.asked.map((asked) => asked.line),
        [request],
        args,
      )
    }
  }
})

test('on a terminal they name the cluster and change nothing without a yes', async (t) => {
  const recorded = await core(t)
  t.mock.method(tty, 'isatty', (descriptor: number) => descriptor !== 1)
  const env = { OUTPOST_ADDR: recorded.url, OUTPOST_TOKEN: 'a-token' }
  for (const { effect, line, request } of commands(t)) {
    recorded.asked.length = 0
    for (const typed of ['y\n', '']) {
      const { code, stderr } = await runHere(line.split(' '), env, typed)
      assert.ok(stderr.startsWith('This will ') && stderr.includes(effect), stderr)
      assert.ok(stderr.includes(`Cluster: blue (c-1) at ${recorded.url}`), stderr)
      assert.match(stderr, /outpost: not confirmed, nothing was changed\n$/)
      assert.equal(code, 1)
    }
    assert.deepEqual(
      recorded.asked.map((asked) => asked.line),
      [HEALTH, HEALTH],
    )
    assert.equal((await runHere(line.split(' '), env, 'yes\n')).code, 0)
    assert.equal(recorded.asked.at(-1)?.line, request)
  }
})

if (HAS_PYTHON) {
  test('a real terminal gets the prompt', async (t) => {
    const recorded = await core(t)
    const env = { ...process.env, OUTPOST_ADDR: recorded.url, OUTPOST_TOKEN: 'a-token', TYPED: 'yes\r' }
    const args = [PROGRAM, '100', 'cancels): ', OUTPOST, 'operator', 'seal']
    const { stdout } = await start('python3', args, { env }).finished
    assert.match(stdout, /^This will seal the server.*exit code 0\n$/s)
    assert.deepEqual(
      recorded.asked.map((asked) => asked.line),
      [HEALTH, 'PUT sys/seal'],
    )
  })
}
