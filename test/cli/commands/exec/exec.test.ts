/** `outpost exec` as a process: what its command gets, how both end, and that secrets stay fresh while it runs. */
import assert from 'node:assert/strict'
import {
  chmodSync,
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  symlinkSync,
  watch,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { approle } from '../../../../src/auth/approle/approle.ts'
import { kv } from '../../../../src/engines/kv/kv.ts'
import { agentHere } from '../../../helpers/agent-here.ts'
import { asUser, noOtherUsers, startAgent, workDirectory } from '../../../helpers/agent-process.ts'
import { listenTo } from '../../../helpers/core-listener.ts'
import { CoreWorld } from '../../../helpers/core-world.ts'
import { eventually } from '../../../helpers/eventually.ts'
import { addKv, openKv, tokenWith, writeSecret } from '../../../helpers/kv-world.ts'
import { quietPort } from '../../../helpers/quiet-port.ts'
import { runHere } from '../../../helpers/command-here.ts'
import { watchedProxy } from '../../../helpers/watched-proxy.ts'
import { type Finished, OUTPOST, ROOT, type Running, start, temporaryDirectory } from '../../outpost-process.ts'

interface At {
  readonly url: string
  readonly token: string
  readonly directory: string
}

/** Begins `outpost exec`; the words of `options` are split at spaces. */
function exec({ directory, token, url }: At, options: string, ...command: string[]): Running {
  const words = options.split(' ').filter(Boolean)
  return start(OUTPOST, ['exec', ...words, '--', ...command], { env: environmentOf({ directory, token, url }) })
}

function environmentOf({ directory, token, url }: At): NodeJS.ProcessEnv {
  const env = { PATH: process.env['PATH'], HOME: directory, OUT: join(directory, 'out') }
  return {
    ...env,
    OTHER_TOKEN: 'x',
    OUTPOST_ADDR: url,
    OUTPOST_TOKEN: token,
    NOMAD_TOKEN: token,
    OUTPOST_MFA: `a:${CODES[0]}`,
    VAULT_MFA: `a:${CODES[1]}`,
  }
}

const CODES = ['918273', '645546']

async function opened(t: TestContext): Promise<{ world: CoreWorld; at: At }> {
  const world = await openKv(t)
  const at = { url: `http://127.0.0.1:${await listenTo(t, world)}`, token: world.rootToken }
  return { world, at: { ...at, directory: temporaryDirectory(t) } }
}

const textOf = (file: string) => (existsSync(file) ? readFileSync(file, 'utf8') : '')

test('a command gets secrets as variables, no token and no code, and its exit code is passed on', async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { 'db-password': 'planted-1', n: 12, list: [1], none: null })
  await writeSecret(world, 'more', { other: 'two words' })
  const script =
    'echo "$APP_DB_PASSWORD $APP_N $APP_LIST $APP_OTHER [$APP_NONE] $OUTPOST_TOKEN$NOMAD_TOKEN$OUTPOST_MFA$VAULT_MFA"; exit 7'
  const options = '-env-prefix=app_ -secret=secret/data/app -secret=/v1/secret/data/more/'
  const { code, stderr, stdout } = await exec(at, options, 'sh', '-c', script).finished
  assert.deepEqual([code, stdout, stderr], [7, 'planted-1 12 [1] two words [] \n', ''])
  assert.equal((await exec(at, options, 'sh', '-c', 'kill -9 $$').finished).code, 137)
  const missing = await exec(at, options, join(at.directory, 'nothing')).finished
  assert.equal(missing.code, 127)
  assert.match(missing.stderr, /^outpost: cannot start ".*": no such file\n$/)
})

/** Prints where a process of the same user finds one of its arguments (base64) in the process that started this one. */
const LOOK_FOR_TOKEN = `
  const { readFileSync, readdirSync, readlinkSync, openSync, readSync } = require('node:fs')
  const secrets = process.argv.slice(1).map((text) => Buffer.from(text, 'base64').toString())
  const shows = (bytes) => secrets.some((secret) => bytes.includes(secret))
  const at = '/proc/' + process.ppid + '/'
  const found = []
  for (const name of ['environ', 'cmdline']) if (shows(readFileSync(at + name))) found.push(name)
  const stat = readFileSync(at + 'stat', 'latin1').replace(/^.*\\) /, '').split(' ')
  const [start, end] = [Number(stat[47]), Number(stat[48])]
  try {
    const bytes = Buffer.alloc(end - start)
    readSync(openSync(at + 'mem', 'r'), bytes, 0, bytes.length, start)
    if (bytes.length === 0 || !bytes.includes('PATH=')) found.push('no environment was read')
    if (shows(bytes)) found.push('mem')
  } catch (error) {
    if (!['EACCES', 'EPERM'].includes(error.code)) throw error
  }
  for (const fd of readdirSync(at + 'fd')) {
    try {
      const target = readlinkSync(at + 'fd/' + fd)
      if (target.startsWith('/') && !target.startsWith('/dev/') && shows(readFileSync(at + 'fd/' + fd))) found.push(target)
      if (fd === '3' && target.startsWith('pipe:')) found.push('the pipe is open')
    } catch {}
  }
  for (const [name, value] of Object.entries(process.env)) if (shows(value) || /LAUNCHER|_FD$|COMPILE_CACHE/.test(name)) found.push(name)
  console.log(JSON.stringify(found))
`

test('the command finds no token and no code in the process that started it', async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { key: 'v' })
  // Encoded, because the command is on the command line of exec.
  const secrets = [at.token, ...CODES].map((text) => Buffer.from(text).toString('base64'))
  const running = exec(at, '-secret=secret/data/app', process.execPath, '-e', LOOK_FOR_TOKEN, ...secrets)
  const { code, stderr, stdout } = await running.finished
  assert.deepEqual([stdout, stderr, code], ['[]\n', '', 0])
})

/** Lists the names that were created in `directory` until the returned function is called. */
function namesCreatedIn(directory: string): () => readonly string[] {
  const names: string[] = []
  const watcher = watch(directory, (_event, name) => names.push(String(name)))
  return () => {
    watcher.close()
    return names
  }
}

test('the token is in no temporary file where the shell puts here-documents into files', {
  skip: !existsSync('/bin/bash') || !existsSync('/dev/shm'),
}, async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { key: 'v' })
  const directory = temporaryDirectory(t)
  const created = namesCreatedIn(directory)
  // Bash before 5.1 behaves so: /bin/sh of some distributions.
  const env = { ...environmentOf(at), BASH_COMPAT: '5.0', TMPDIR: directory }
  const words = ['--posix', OUTPOST, 'exec', '-secret=secret/data/app', '--', 'sh', '-c', 'echo "$KEY $TMPDIR"']
  const { code, stderr, stdout } = await start('/bin/bash', words, { env }).finished
  assert.deepEqual([stdout, stderr, code], [`v ${directory}\n`, '', 0])
  assert.deepEqual(created(), [])
})

test('exec refuses to run a command that could read its token', async (t) => {
  const { at } = await opened(t)
  const main = join(ROOT, 'src/main.ts')
  const args = [main, 'exec', '-secret=secret/data/app', '--', 'echo', 'it ran']
  const { code, stderr, stdout } = await start(process.execPath, args, { env: environmentOf(at) }).finished
  assert.deepEqual([code, stdout], [1, ''])
  assert.match(stderr, /^outpost: OUTPOST_TOKEN is visible to the command .* start "outpost exec" with bin\/outpost/)
  const broken = { ...environmentOf(at), OUTPOST_TOKEN: 'two\nlines' }
  const refused = await start(OUTPOST, args.slice(1), { env: broken }).finished
  assert.deepEqual([refused.code, refused.stdout], [1, ''])
  assert.match(refused.stderr, /a value contains a line break/)
})

test('a command gets the variables that -env names', async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'aws', { access_key: 'AK', secret_key: 'SK', other: 'o' })
  const options = '-secret=secret/data/aws -env AWS_ACCESS_KEY_ID=access_key -env aws_secret=secret_key'
  const { stderr, stdout } = await exec(
    at,
    options,
    'sh',
    '-c',
    'echo "$AWS_ACCESS_KEY_ID $aws_secret [$SECRET_KEY$OTHER]"',
  ).finished
  assert.deepEqual([stdout, stderr], ['AK SK []\n', ''])
})

test('signals reach the command, and no secret is on a command line', async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { key: 'planted-2' })
  const script =
    'trap "echo hup >> $OUT" HUP; trap "echo term >> $OUT; exit 3" TERM; echo up >> $OUT; while :; do sleep 1 & wait $!; done'
  const running = exec(at, '-secret=secret/data/app', 'sh', '-c', script)
  const out = join(at.directory, 'out')
  await eventually(() => textOf(out) === 'up\n', 'the command runs')
  for (const name of readdirSync('/proc').filter((each) => /^\d+$/.test(each))) {
    assert.ok(!textOf(`/proc/${name}/cmdline`).includes('planted-2'), name)
  }
  running.child.kill('SIGHUP')
  await eventually(() => textOf(out) === 'up\nhup\n', 'HUP arrived')
  running.child.kill('SIGTERM')
  const { code, stderr, stdout } = await running.finished
  assert.deepEqual([code, textOf(out)], [3, 'up\nhup\nterm\n'])
  assert.ok(!`${stdout}${stderr}`.includes('planted-2'))
})

test('a secret stays fresh in files over a rotation and a server that is killed and started again', async (t) => {
  const directory = workDirectory(t)
  const [port, data] = [await quietPort(), join(directory, 'data')]
  const args = ['-dev', '-data-dir', data, '-dev-root-token-id', 'root-of-test', '-http-port', String(port)]
  const begin = [...args, '-cluster-port', '0', '-log-level', 'warn']
  const first = await startAgent(t, begin)
  const put = async (password: string) => {
    const answer = await fetch(`${first.url}/v1/secret/data/app`, {
      method: 'POST',
      headers: { 'X-Vault-Token': 'root-of-test' },
      body: JSON.stringify({ data: { password, ...(password === 'third' && { extra: 'e' }) } }),
    })
    assert.equal(answer.status, 200, await answer.text())
  }
  await put('first')
  const at = { url: first.url, token: 'root-of-test', directory }
  const [secrets, out] = [join(directory, 'secrets'), join(directory, 'out')]
  const script = `read_it() { cat ${secrets}/password >> $OUT; echo >> $OUT; }; trap read_it HUP; read_it; while :; do sleep 1 & wait $!; done`
  const running = exec(at, `-secret=secret/data/app -format=file -dir=${secrets} -renew`, 'sh', '-c', script)
  await eventually(() => textOf(out) === 'first\n', 'the first value')
  assert.equal(statSync(secrets).mode & 0o777, 0o700)
  assert.equal(statSync(join(secrets, 'password')).mode & 0o777, 0o600)
  await put('second')
  await eventually(() => textOf(out) === 'first\nsecond\n', 'the second value')
  first.child.kill('SIGKILL')
  await first.ended
  assert.equal(textOf(join(secrets, 'password')), 'second', 'the last value stays')
  await agentHere(t, begin)
  await put('third')
  await eventually(() => textOf(out) === 'first\nsecond\nthird\n', 'the third value')
  assert.deepEqual(readdirSync(secrets).sort(), ['extra', 'password'])
  running.child.kill('SIGTERM')
  const { stderr } = await running.finished
  assert.ok(!/first|second|third/.test(stderr), stderr)
})

test('a command with variables is started again with the new ones, also by a token that cannot watch', async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { key: 'one' })
  const token = await tokenWith(world, 'path "secret/data/app" { capabilities = ["read"] }')
  const script = 'echo "$KEY" >> $OUT; sleep 1000 & wait'
  const running = exec({ ...at, token }, '-secret=secret/data/app -poll=100ms', 'sh', '-c', script)
  const out = join(at.directory, 'out')
  await eventually(() => textOf(out) === 'one\n', 'the first start')
  await writeSecret(world, 'app', { key: 'two' })
  await eventually(() => textOf(out) === 'one\ntwo\n', 'the second start')
  let told = ''
  running.child.stderr?.on('data', (text: string) => (told += text))
  await writeSecret(world, 'app', { LD_PRELOAD: '/tmp/evil.so' })
  await eventually(() => told.includes('would set LD_PRELOAD'), 'a variable that cannot be set is reported')
  assert.equal((await world.ask('DELETE', 'secret/metadata/app')).status, 204)
  await eventually(() => told.includes('no value found at secret/data/app'), 'a missing secret is reported')
  assert.equal(textOf(out), 'one\ntwo\n', 'the command runs on')
  running.child.kill('SIGTERM')
  assert.equal((await running.finished).code, 143)
})

/** Whether there is a process that has not ended. A zombie has: who reaps it is another matter. */
function isRunning(pid: string): boolean {
  try {
    return /^\d+ \(.*\) [^ZX]/s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
  } catch {
    return false
  }
}

test('processes left in the process group end with the command, also before a restart', async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { key: 'one' })
  // The shell ends by SIGTERM, its child does not.
  const script = '(trap "" TERM; exec sleep 1000) & echo "$! $KEY" >> $OUT; [ "$KEY" = three ] && exit 5; wait'
  const running = exec(at, '-secret=secret/data/app', 'sh', '-c', script)
  const out = join(at.directory, 'out')
  const started = () => textOf(out).trim().split('\n')
  const children = () => started().map((line) => line.split(' ')[0] ?? '')
  await eventually(() => started().at(-1)?.endsWith('one'), 'the first start')
  const [first = ''] = children()
  assert.ok(isRunning(first), first)
  await writeSecret(world, 'app', { key: 'two' })
  await eventually(() => started().at(-1)?.endsWith('two'), 'the second start')
  await eventually(() => !isRunning(first), 'the child of the first start has ended')
  assert.ok(isRunning(children()[1] ?? ''))
  await writeSecret(world, 'app', { key: 'three' })
  assert.equal((await running.finished).code, 5, 'a command that ends by itself is not started again')
  assert.equal(children().length, 3)
  for (const pid of children()) await eventually(() => !isRunning(pid), `${pid} has ended`)
})

/** Runs `exec` in this process, which is enough where it is refused: it starts no command then. */
function refusal(at: At, options: string): Promise<Finished> {
  return runHere(['exec', ...options.split(' ').filter(Boolean), '--', 'sh', '-c', 'echo it ran'], environmentOf(at))
}

test('secrets that cannot be passed to a command are refused before it starts', async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { token: 'planted-3' })
  await writeSecret(world, 'evil', { ld_preload: 'planted-3' })
  await writeSecret(world, 'taken', { other_token: 'planted-3' })
  const wide = join(at.directory, 'wide')
  mkdirSync(wide)
  chmodSync(wide, 0o710)
  symlinkSync(wide, join(at.directory, 'link'))
  const ofGroup = join(at.directory, 'group')
  mkdirSync(ofGroup)
  chmodSync(ofGroup, 0o750)
  for (const [options, text, wanted] of [
    ['-secret=secret/data/none', /no value found at secret\/data\/none/, 1],
    [
      '-secret=secret/data/evil',
      /"ld_preload" of secret\/data\/evil would set LD_PRELOAD, .* -allow-env=LD_PRELOAD,/,
      1,
    ],
    ['-secret=secret/data/taken', /would set OTHER_TOKEN, which is already in the environment/, 1],
    [`-secret=secret/data/app -format=file -dir=${wide}`, /other users can enter it, run chmod 700/, 1],
    [`-secret=secret/data/app -format=file -dir=${ofGroup}`, /other users can enter it, run chmod 700/, 1],
    [`-secret=secret/data/app -format=file -dir=${at.directory}/link`, /symbolic link/, 1],
    ['-secret=secret/data/app -format=file', /missing -dir DIR or -alloc ID/, 2],
    [
      '-secret=secret/data/app -on-change=hup',
      /requires -format=file: the environment of a running process cannot change/,
      2,
    ],
    [`-secret=secret/data/app -format=file -dir=${at.directory}/d -env=A=b`, /require -format=env/, 2],
    ['-secret=secret/data/app -env=token', /expected NAME=KEY .*, got "token"/, 2],
    ['-secret=secret/data/app -env=A-B=token', /expected NAME=KEY .*, got "A-B=token"/, 2],
    ['-secret=secret/data/app -env=A=token -env=A=b', /option -env: duplicate variable A/, 2],
    ['-secret=secret/data/app -env=A=none', /no secret has the key "none"/, 1],
    ['-secret=secret/data/app -allow-env=A.B', /may contain only letters/, 2],
    ['', /missing -secret=PATH/, 2],
  ] as const) {
    const { code, stderr, stdout } = await refusal(at, options)
    assert.match(stderr, text)
    assert.deepEqual([code, stdout], [wanted, ''])
    assert.ok(!stderr.includes('planted-3'))
  }
  const away = { ...at, url: `http://127.0.0.1:${await quietPort()}` }
  const gone = await refusal(away, '-secret=secret/data/app -start-timeout=300ms')
  assert.deepEqual([gone.code, gone.stdout], [1, ''])
  assert.match(gone.stderr, /no agent at/)
})

test('the login of an agent is used only if its file belongs to a trusted user', {
  skip: process.getuid?.() === 0 ? false : 'needs root: it gives files to other users',
}, async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { key: 'planted-4' })
  const file = join(at.directory, 'secrets-login.json')
  writeFileSync(file, JSON.stringify({ token: at.token, role: 'r', address: { url: at.url } }), { mode: 0o600 })
  const { OUTPOST_ADDR: _, OUTPOST_TOKEN: _1, NOMAD_TOKEN: _2, ...env } = environmentOf(at)
  const args = ['exec', `-agent-login=${file}`, '-secret=secret/data/app', '--', 'sh', '-c', 'echo "$KEY"']
  chownSync(file, 54_321, 54_321)
  const refused = await runHere(args, env)
  assert.deepEqual([refused.code, refused.stdout], [1, ''])
  assert.ok(
    refused.stderr.includes(
      `cannot use the token of the agent of this host: ${file} belongs to user 54321 and not to user 0: chown 0 ${file}\n`,
    ),
    refused.stderr,
  )
  // An agent that runs as that user, whose directory it is.
  chownSync(at.directory, 54_321, 54_321)
  assert.equal((await start(OUTPOST, args, { env }).finished).stdout, 'planted-4\n')
  chmodSync(file, 0o602)
  assert.match((await runHere(args, env)).stderr, /secrets-login.json is writable by others: chmod 600 /)
})

test('it logs in by AppRole, again when its token has ended, revokes its token at the end, and refuses a secret ID that others can read', async (t) => {
  const world = await CoreWorld.open(t, { engines: [kv, approle] })
  await addKv(world)
  const asked = async (method: string, where: string, body: object) => {
    const answer = await world.ask(method, where, body)
    assert.ok(answer.status < 300, answer.text)
    return answer.body.data
  }
  await asked('PUT', 'sys/policies/acl/app', { policy: 'path "secret/data/app" { capabilities = ["read"] }' })
  await asked('POST', 'sys/auth/approle', { type: 'approle' })
  await asked('POST', 'auth/approle/role/web', { token_policies: 'app', token_ttl: '1s', token_max_ttl: '1h' })
  const { role_id: roleId } = (await world.ask('GET', 'auth/approle/role/web/role-id')).body.data
  const { secret_id: secretId } = await asked('POST', 'auth/approle/role/web/secret-id', {})
  await writeSecret(world, 'app', { key: 'one' })
  const url = `http://127.0.0.1:${await listenTo(t, world)}`
  const at = { url, token: '', directory: temporaryDirectory(t) }
  const [file, out] = [join(at.directory, 'secret-id'), join(at.directory, 'out')]
  writeFileSync(file, `${String(secretId)}\n`, { mode: 0o644 })
  const options = `-secret=secret/data/app -poll=100ms -role-id=${String(roleId)} -secret-id-file=${file}`
  const refused = await refusal(at, options)
  assert.match(refused.stderr, /other users can access it: .* with mode 0644; run: chmod 600/)
  assert.equal(refused.code, 1)
  chmodSync(file, 0o600)
  const tokens = async () => (await world.ask('LIST', 'auth/token/accessors')).body.data['keys'] as string[]
  const before = await tokens()
  const running = exec(at, options, 'sh', '-c', 'echo "$KEY" >> $OUT; sleep 1000 & wait')
  await eventually(() => textOf(out) === 'one\n', 'the first start')
  assert.equal((await tokens()).length, before.length + 1)
  world.nowMs += 60_000
  await writeSecret(world, 'app', { key: 'two' })
  await eventually(() => textOf(out) === 'one\ntwo\n', 'it has logged in again')
  running.child.kill('SIGTERM')
  const { stderr } = await running.finished
  assert.ok(!stderr.includes(String(secretId)))
  for (const accessor of (await tokens()).filter((each) => !before.includes(each))) {
    const { status } = await world.ask('POST', 'auth/token/lookup-accessor', { accessor })
    assert.ok(status >= 400, `a token of the command is still good: ${status}`)
  }
  assert.equal((await refusal(at, `${options} -role-id=wrong -start-timeout=1s`)).code, 1)
})

test('signals before and after the command open no debugger, cut no revocation and leave the exit code', async (t) => {
  const world = await CoreWorld.open(t, { engines: [kv, approle] })
  await addKv(world)
  await writeSecret(world, 'app', { key: 'v' })
  const policy = 'path "secret/data/app" { capabilities = ["read"] }'
  assert.equal((await world.ask('PUT', 'sys/policies/acl/app', { policy })).status, 204)
  assert.equal((await world.ask('POST', 'sys/auth/approle', { type: 'approle' })).status, 204)
  assert.equal((await world.ask('POST', 'auth/approle/role/web', { token_policies: 'app' })).status, 204)
  const { role_id: roleId } = (await world.ask('GET', 'auth/approle/role/web/role-id')).body.data
  const { secret_id: secretId } = (await world.ask('POST', 'auth/approle/role/web/secret-id', {})).body.data
  const directory = temporaryDirectory(t)
  const file = join(directory, 'secret-id')
  writeFileSync(file, String(secretId), { mode: 0o600 })
  const tokens = async () => (await world.ask('LIST', 'auth/token/accessors')).body.data['keys'] as string[]
  const before = await tokens()
  let requests = 0
  const url = await watchedProxy(t, `http://127.0.0.1:${await listenTo(t, world)}`, async (requestPath) => {
    if (++requests === 1) {
      // Node's default is a debugger that any local user can connect to.
      running.child.kill('SIGUSR1')
      throw new Error('no answer')
    }
    if (!requestPath.endsWith('revoke-self')) return
    running.child.kill('SIGTERM')
    // A process that the signal ends is gone before the answer can be.
    await new Promise((resolve) => setTimeout(resolve, 200))
  })
  const options = `-secret=secret/data/app -role-id=${String(roleId)} -secret-id-file=${file}`
  const running: Running = exec({ url, token: '', directory }, options, 'sh', '-c', 'exit 7')
  const { code, signal, stderr } = await running.finished
  assert.deepEqual([code, signal], [7, null])
  assert.doesNotMatch(stderr, /debugger|inspector/i)
  assert.deepEqual(await tokens(), before)
})

test('files go to the secrets of an allocation', async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { 'tls.key': 'planted-4\n' })
  const [id, data] = ['5f9c1f3e-0d4b-4c0f-9a53-0c4f6d1c2b7a', join(at.directory, 'data')]
  const made = await start(OUTPOST, ['alloc', 'run', '-data-dir', data, '-id', id, '-task', 'web', '--', 'true'])
    .finished
  assert.equal(made.code, 0, made.stderr)
  const secrets = join(data, 'alloc', id, 'web/secrets')
  const file = `-format=file -secret=secret/data/app -data-dir=${data} -alloc=${id}`
  assert.deepEqual((await exec(at, file, 'cat', join(secrets, 'tls.key')).finished).stdout, 'planted-4\n')
  assert.equal(statSync(join(secrets, 'tls.key')).mode & 0o777, 0o600)
  assert.match((await refusal(at, `${file} -task=db`)).stderr, /has no task "db"/)
})

const WEB_USER = 12_345

test('root gives the files of an allocation to its user, through no link of that user', {
  skip: noOtherUsers() ?? false,
}, async (t) => {
  const { at, world } = await opened(t)
  await writeSecret(world, 'app', { key: 'planted-5' })
  const [id, data] = ['5f9c1f3e-0d4b-4c0f-9a53-0c4f6d1c2b7b', join(at.directory, 'data')]
  mkdirSync(join(data, 'alloc'), { recursive: true })
  for (const each of [at.directory, data, join(data, 'alloc')]) chmodSync(each, 0o777)
  const [program = '', ...args] = asUser(WEB_USER)
  const run = ['alloc', 'run', '-data-dir', data, '-id', id, '-task', 'web', '--', 'true']
  const made = await start(program, [...args, OUTPOST, ...run], { env: { PATH: '/usr/bin:/bin' } }).finished
  assert.equal(made.code, 0, made.stderr)
  const secrets = join(data, 'alloc', id, 'web/secrets')
  // What its owner may prepare: a link under the name of the file, and one under the temporary name.
  const elsewhere = join(at.directory, 'elsewhere')
  writeFileSync(elsewhere, 'untouched')
  for (const name of ['key', '.key.new']) symlinkSync(elsewhere, join(secrets, name))
  const file = `-format=file -secret=secret/data/app -data-dir=${data} -alloc=${id}`
  assert.equal((await exec(at, file, 'true').finished).stderr, '')
  const { mode, uid } = lstatSync(join(secrets, 'key'))
  assert.deepEqual([mode & 0o777, uid, readFileSync(join(secrets, 'key'), 'utf8')], [0o600, WEB_USER, 'planted-5'])
  assert.equal(readFileSync(elsewhere, 'utf8'), 'untouched')
  const config = join(at.directory, 'agent.hcl')
  writeFileSync(
    config,
    `data_dir = "${data}"\nports { http = 0 }\nclient { enabled = true }\nacl { enabled = false }\n`,
  )
  const agent = await agentHere(t, ['-config', config])
  const asked = ['cat', 'readat', 'stream'].map(
    (how) => `fs/${how}/${id}?path=web/secrets/key&offset=0&limit=9&follow=false`,
  )
  for (const each of asked) {
    const answer = await fetch(`${agent.url}/v1/client/${each}`)
    assert.equal(answer.status, 403, each)
    assert.ok(!(await answer.text()).includes('planted'), each)
  }
  await agent.stop()
  const manifest = join(data, 'alloc', id, 'alloc.json')
  const honest = readFileSync(manifest, 'utf8')
  mkdirSync(join(data, 'victim/secrets'), { recursive: true })
  writeFileSync(manifest, honest.replace('"web":', '"../../victim":'))
  assert.match((await refusal(at, file)).stderr, /must not start with a dot or contain a slash/)
  assert.deepEqual(readdirSync(join(data, 'victim/secrets')), [])
  writeFileSync(manifest, honest)
  renameSync(secrets, `${secrets}.old`)
  symlinkSync(at.directory, secrets)
  assert.match((await refusal(at, file)).stderr, /cannot open .*web\/secrets/)
  assert.equal(existsSync(join(at.directory, 'key')), false)
})
