/** What `outpost operator dr join` requests, prints and refuses; `dr status` with exact values and rounded ones. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import tty from 'node:tty'
import { runHere } from '../helpers/command-here.ts'
import { OUTPOST, ROOT, start, temporaryDirectory } from './outpost-process.ts'
import { type RecordingCore, recordingCore } from './recording-core.ts'

const TERMINAL = join(ROOT, 'test/helpers/terminal.py')
const HAS_PYTHON = spawnSync('python3', ['-c', 'import pty']).status === 0
const STATUS = 'GET sys/replication/dr/status'
const ENABLE = 'PUT sys/replication/dr/secondary/enable'
const HEALTH = 'GET sys/health?sealedcode=200&uninitcode=200&drsecondarycode=200&standbycode=200'
const FOLLOWS = { mode: 'secondary', state: 'stream-wals', primaries: [{ api_address: 'https://p' }] }

/** A server whose status takes these values in turn once it was enabled, and keeps the last. */
async function server(t: TestContext, ...after: readonly object[]): Promise<RecordingCore> {
  const core = await recordingCore(t)
  let looks = 0
  core.answers = {
    get [STATUS](): readonly [number, unknown] {
      const isEnabled = core.asked.some(({ line }) => line === ENABLE)
      return [200, { data: isEnabled ? after[Math.min(looks++, after.length - 1)] : { mode: 'disabled' } }]
    },
    [HEALTH]: [200, { cluster_name: 'blue', cluster_id: 'c-1' }],
    'GET sys/seal-status': [200, { sealed: true }],
  }
  return core
}

function run({ url }: RecordingCore, line: string, input = '') {
  return runHere(line.split(' '), { OUTPOST_ADDR: url, OUTPOST_TOKEN: 'a-token' }, input)
}

function tokenSentTo({ asked }: RecordingCore): unknown {
  return (asked.find(({ line }) => line === ENABLE)?.body as Readonly<Record<string, unknown>> | undefined)?.['token']
}

test('join succeeds only when the status says that the secondary follows, and shows the sync until then', async (t) => {
  const copying = {
    mode: 'bootstrapping',
    state: 'merkle-sync',
    merkle_sync_progress: { sync_progress: 20, sync_total_keys: 50 },
  }
  const core = await server(t, copying, { ...FOLLOWS, mode: 'bootstrapping' }, FOLLOWS)
  const { code, stderr, stdout } = await run(core, 'operator dr join', 'activation\n')
  assert.equal(code, 0, stderr)
  assert.match(stderr, /^ {3}copied 20 of 50 entries$/m)
  assert.match(
    stdout,
    /^Success! This cluster is a DR secondary and follows https:\/\/p\. Next: outpost operator unseal/,
  )
  const lines = core.asked.map(({ line }) => line)
  assert.deepEqual(lines, [STATUS, ENABLE, STATUS, STATUS, STATUS, 'GET sys/seal-status'])
  assert.equal(tokenSentTo(core), 'activation')
})

test('the token can be in a file, and "enable" with a source is the same command', async (t) => {
  const file = join(temporaryDirectory(t), 'token')
  writeFileSync(file, 'activation\n')
  for (const line of [`join -token-file ${file}`, 'join -token-file -', 'join -', `enable @${file}`, 'enable -']) {
    const core = await server(t, FOLLOWS)
    const { code, stderr } = await run(core, `operator dr ${line}`, 'activation\n')
    assert.equal(code, 0, `${line}: ${stderr}`)
    assert.equal(tokenSentTo(core), 'activation', line)
  }
})

test('a token as an argument is refused before any request, and is not printed', async (t) => {
  const core = await server(t, FOLLOWS)
  for (const line of ['join SECRET', 'join - SECRET', 'join SECRET SECRET', 'enable SECRET', 'enable - SECRET']) {
    const { code, stderr, stdout } = await run(core, `operator dr ${line}`, 'activation\n')
    assert.deepEqual([code, stdout], [2, ''], line)
    assert.match(stderr, /activation token is not accepted as an argument/)
    assert.doesNotMatch(stderr, /SECRET/)
  }
  const twice = await run(core, 'operator dr join -token-file - -', 'activation\n')
  assert.match(twice.stderr, /pass the activation token only once/)
  assert.deepEqual(core.asked, [])
})

test('no command for replication takes an operation token or a key share as an argument', async (t) => {
  const core = await server(t, FOLLOWS)
  const config = join(temporaryDirectory(t), 'server.hcl')
  writeFileSync(config, '')
  for (const [line, what] of [
    ['promote SECRET', 'operation token'],
    ['promote - SECRET', 'operation token'],
    ['disable SECRET', 'operation token'],
    ['disable -yes SECRET', 'operation token'],
    ['failover -yes SECRET', 'key share'],
    ['failover SECRET', 'key share'],
    ['switch -secondary http://127.0.0.1:1 SECRET', 'key share'],
  ] as const) {
    const { code, stderr, stdout } = await run(core, `operator dr ${line}`, 'SECRET\n')
    assert.deepEqual([code, stdout], [2, ''], line)
    assert.match(stderr, new RegExp(`^outpost: ${what} is not accepted as an argument, .*: give it on standard input`))
    assert.doesNotMatch(stderr, /SECRET/)
  }
  const drill = await start(OUTPOST, ['operator', 'dr', 'drill', '-config', config, 'SECRET']).finished
  assert.deepEqual([drill.code, drill.stdout], [2, ''])
  assert.match(drill.stderr, /key share is not accepted as an argument/)
  assert.doesNotMatch(drill.stderr, /SECRET/)
  assert.deepEqual(core.asked, [], 'before any request')
  const promoted = async (...args: readonly [string, string?]) => {
    core.asked.length = 0
    const { code, stderr } = await run(core, `operator dr promote ${args[0]}`, args[1])
    assert.equal(code, 0, stderr)
    return (core.asked[0]?.body as Record<string, unknown> | undefined)?.['dr_operation_token']
  }
  const file = join(temporaryDirectory(t), 'token')
  writeFileSync(file, 'from-file\n')
  assert.equal(await promoted('-', 'from-stdin\n'), 'from-stdin')
  assert.equal(await promoted(`@${file}`), 'from-file')
  const none = await runHere(['operator', 'dr', 'promote'], { OUTPOST_ADDR: core.url })
  assert.equal(none.code, 2)
  assert.match(none.stderr, /missing operation token: use @FILE to read a file, or - to read standard input/)
})

test('on a terminal join prints the cluster and the data to delete, and changes nothing without a yes', async (t) => {
  const file = join(temporaryDirectory(t), 'token')
  writeFileSync(file, 'activation\n')
  const core = await server(t, FOLLOWS)
  t.mock.method(tty, 'isatty', (descriptor: number) => descriptor !== 1)
  const declined = await run(core, `operator dr join -token-file ${file}`, 'no\n')
  assert.equal(declined.code, 1)
  assert.match(declined.stderr, /^This will make this cluster a DR secondary and delete all its secrets and tokens\./)
  assert.ok(declined.stderr.includes(`Cluster: blue (c-1) at ${core.url}`), declined.stderr)
  assert.ok(core.asked.every(({ line }) => line !== ENABLE))
  assert.equal((await run(core, `operator dr join -token-file ${file}`, 'yes\n')).code, 0)
  const other = await server(t, FOLLOWS)
  assert.equal((await run(other, `operator dr join -yes -token-file ${file}`)).code, 0)
})

test('a terminal does not show the token', { skip: !HAS_PYTHON }, async (t) => {
  const core = await server(t, FOLLOWS)
  const env = { ...process.env, OUTPOST_ADDR: core.url, OUTPOST_TOKEN: 'a-token', TYPED: 'SECRET\r\u001eyes\r' }
  const { stdout } = await start('python3', [TERMINAL, '200', '): ', OUTPOST, 'operator', 'dr', 'join'], { env })
    .finished
  assert.match(stdout, /Activation token \(will be hidden\): [^]*delete all its secrets and tokens[^]*exit code 0\n$/)
  assert.doesNotMatch(stdout, /SECRET/)
  assert.equal(tokenSentTo(core), 'SECRET')
})

test('the status is rounded for people and exact as JSON', async (t) => {
  const core = await recordingCore(t)
  const row = {
    node_id: 'b',
    api_address: 'https://b',
    connection_status: 'connected',
    authenticated: true,
    lag_entries: 3,
    last_heartbeat: '2026-01-02T03:04:05Z',
    replication_primary_canary_age_ms: '1730',
    clock_skew_ms: '-12345',
  }
  const away = { ...row, connection_status: 'disconnected', disconnected_seconds: 4000, disconnect_reason: 'lost' }
  const data = {
    mode: 'primary',
    lag_seconds: 62.3456,
    secondaries: [
      row,
      { ...away, node_id: 'c', clock_skew_ms: '35' },
      { ...away, node_id: 'd', last_heartbeat: '', lag_entries: 1 },
    ],
  }
  core.answers = { [STATUS]: [200, { data: { ...data, warnings: ['the address is bad'] } }] }
  const { stdout } = await run(core, 'operator dr status')
  assert.match(stdout, /^Lag \(time\) +1m2s$/m)
  assert.match(
    stdout,
    /^Secondary b +https:\/\/b connected, 3 entries behind, last heartbeat 2s ago, clock skew -12s$/m,
  )
  assert.match(stdout, /^Secondary c +\S+ disconnected for 1h7m: lost, .*, last heartbeat 2s ago, clock skew 35ms$/m)
  assert.match(stdout, /^Secondary d +\S+ disconnected for 1h7m: lost, at most 1 entry behind/m)
  assert.match(stdout, /^Warning +the address is bad$/m)
  const exact = JSON.parse((await run(core, 'operator dr status -json')).stdout) as Record<string, unknown>
  assert.deepEqual(exact, { ...data, warnings: ['the address is bad'] })
})
