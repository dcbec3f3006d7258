/** The installed service: its unit as systemd's own tools judge it, and its whole life on a machine that systemd runs. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test, type TestContext } from 'node:test'
import { workDirectory } from '../helpers/agent-process.ts'
import {
  bootMachine,
  type Machine,
  makeCertificate,
  type Outcome,
  makeCheckout,
  whyNoMachine,
} from '../helpers/machine.ts'
import { eventually } from '../helpers/eventually.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const INSTALL = join(ROOT, 'systemd/install.sh')
const noAnalyze = spawnSync('systemd-analyze', ['--version']).status === 0 ? false : 'needs systemd-analyze'
const noMachine = whyNoMachine() ?? false

/** Tenths of what systemd calls exposure. */
for (const [name, exposureMax] of [
  ['outpost', 20],
  ['outpost-server', 15],
] as const) {
  test(`systemd-analyze finds no fault and little exposure in the unit ${name}`, { skip: noAnalyze }, (t) => {
    // With a program that exists: systemd-analyze looks for it.
    const unit = join(workDirectory(t), `${name}.service`)
    const text = readFileSync(join(ROOT, `systemd/${name}.service`), 'utf8')
    writeFileSync(unit, text.replaceAll('/opt/outpost/', `${ROOT}/`))
    const { stdout, stderr, status } = spawnSync('systemd-analyze', ['verify', unit], { encoding: 'utf8' })
    assert.deepEqual([status, stdout, stderr], [0, '', ''])
    const judge = ['security', '--offline=true', `--threshold=${exposureMax}`, unit]
    const judged = spawnSync('systemd-analyze', judge, { encoding: 'utf8' })
    assert.equal(judged.status, 0, judged.stdout.split('\n').at(-2))
  })
}

test('install.sh refuses unsupported systems, and -n prints the steps', (t) => {
  const script = (...args: readonly string[]) => spawnSync('sh', [INSTALL, ...args], { encoding: 'utf8' })
  for (const args of [
    ['--prefix', '/'],
    ['--data-dir', 'relative'],
    ['--config-dir', '/etc/a b'],
    ['--nonsense'],
    ['--purge'],
    ['--no-secrets'],
    ['--prefix'],
    ['--confirm', 'soon'],
    ['--rollback', '--uninstall'],
  ]) {
    const { status, stderr, stdout } = script('-n', ...args)
    assert.equal(status, 2, `${args.join(' ')}: ${stdout}`)
    assert.match(stderr, /install\.sh: /)
  }
  const directory = workDirectory(t)
  const places = [
    '--prefix',
    `${directory}/opt`,
    '--config-dir',
    `${directory}/etc`,
    '--unit-dir',
    `${directory}/units`,
  ]
  const shown = script('-n', ...places, '--data-dir', `${directory}/data`)
  assert.equal(shown.status, 0, shown.stderr)
  assert.match(shown.stdout, /systemctl restart outpost\.service/)
  assert.equal(spawnSync('ls', ['-A', directory], { encoding: 'utf8' }).stdout, '', 'and does none of it')
  const other = spawnSync('setpriv', ['--reuid=65534', '--clear-groups', 'sh', INSTALL], { encoding: 'utf8' })
  if (process.getuid?.() === 0) assert.match(other.stderr, /run this script as root/)
})

const TASK = '11111111-2222-4333-8444-555555555555'

function tokenFrom(output: string): string {
  const token = /the token \(shown only once.*\): ([0-9a-f]{64})$/.exec(output)?.[1]
  assert.ok(token, output)
  return token
}

/** Until the machine shows it. Each look starts a process or more in there. */
function becomes(look: () => boolean): Promise<true> {
  return eventually(look, look.toString(), LOOKS_MS, LOOK_EVERY_MS)
}

const LOOKS_MS = 60_000
const LOOK_EVERY_MS = 300

/** Asks the agent in the machine; the status and the body. */
function ask(machine: Machine, path: string, token: string, scheme = 'http'): { status: number; body: string } {
  const script = `const [url, token] = process.argv.slice(1)
    const { get } = require(new URL(url).protocol.replace(':', ''))
    get(url, { headers: { 'X-Nomad-Token': token }, rejectUnauthorized: false }, async (answer) => {
      const body = Buffer.concat(await answer.toArray()).toString()
      console.log(JSON.stringify({ status: answer.statusCode, body }))
    })`
  const url = `${scheme}://127.0.0.1:4646${path}`
  const output = machine.ok(machine.node, '--no-warnings', '-e', script, url, token)
  const answer: unknown = JSON.parse(output)
  assert.ok(typeof answer === 'object' && answer !== null && 'status' in answer && 'body' in answer)
  return { status: Number(answer.status), body: String(answer.body) }
}

function property(machine: Machine, name: string, unit = 'outpost'): string {
  return machine.ok('systemctl', 'show', '-P', name, unit)
}

function configure(machine: Machine, more: string): void {
  machine.ok('sh', '-c', `printf '%s\\n' "$1" >/etc/outpost/more.hcl`, 'sh', more)
}

/** The services may write nothing beside their code, so each of the many starts here would compile all of it again. */
function keepsCompiledCode(machine: Machine): void {
  for (const unit of ['outpost', 'outpost-server']) {
    const cache = `[Service]\nCacheDirectory=${unit}\nEnvironment=NODE_COMPILE_CACHE=/var/cache/${unit}\n`
    const folder = `/etc/systemd/system/${unit}.service.d`
    machine.ok('sh', '-ec', `mkdir -p ${folder} && printf '%s' "$1" >${folder}/compiled.conf`, 'sh', cache)
  }
}

test('install, start, watchdog, reload, credentials, upgrade, stop and uninstall work', {
  skip: noMachine,
}, async (t) => {
  const machine = await bootMachine(t)
  const main = makeCheckout(join(machine.outside, 'checkout')).replace(machine.outside, machine.inside)
  keepsCompiledCode(machine)
  const script = `${machine.inside}/checkout/systemd/install.sh`
  const token = tokenFrom(machine.ok(script))
  assert.equal(machine.ok('systemctl', 'is-active', 'outpost'), 'active')
  assert.equal(machine.ok('systemctl', 'is-enabled', 'outpost'), 'enabled')
  assert.equal(property(machine, 'StatusText'), 'http://127.0.0.1:4646: ready; 0 allocations, 0 followers')
  assert.equal(ask(machine, '/v1/agent/health', '').status, 200)
  assert.equal(ask(machine, '/v1/agent/self', token).status, 200)
  assert.equal(ask(machine, '/v1/agent/self', 'another').status, 403)
  assert.ok(!machine.ok('cat', '/etc/outpost/agent.hcl').includes(token))
  assert.ok(!machine.ok('journalctl', '-u', 'outpost').includes(token))
  assert.equal(machine.ok('ps', '-o', 'comm=', '-p', property(machine, 'MainPID')), 'outpost')
  assert.match(machine.ok('journalctl', '-u', 'outpost', '-p', 'info', '-o', 'json', '-n', '1'), /"PRIORITY":"6"/)
  assert.equal(machine.ok('journalctl', '-u', 'outpost', '-p', 'err', '-o', 'cat', '-q'), '')

  await servesOtherUsers(machine, token)
  await reloads(machine)
  await survivesAHang(machine)
  await takesCredentials(t, machine, token)
  await failsToStart(machine)

  const before = property(machine, 'MainPID')
  const again = machine.ok(script)
  assert.ok(!again.includes('the token ('), 'an upgrade makes no new token')
  assert.notEqual(property(machine, 'MainPID'), before)
  assert.equal(ask(machine, '/v1/agent/self', token, 'https').status, 200)

  keepsWhatRan(machine, script, main)
  await installsAServer(machine, script)

  machine.ok('systemctl', 'stop', 'outpost')
  assert.deepEqual([property(machine, 'Result'), property(machine, 'ExecMainStatus')], ['success', '0'])
  machine.ok(script, '--uninstall')
  assert.notEqual(machine.run('systemctl', 'cat', 'outpost').status, 0)
  machine.ok('sh', '-c', 'test -e /etc/outpost/agent.hcl && test -e /var/lib/outpost/client/state.json')
  machine.ok(script, '--uninstall')
  machine.ok(script, '--uninstall', '--purge')
  machine.ok('test', '-x', '/opt/outpost/bin/outpost') // the server runs it, too
  machine.ok(script, '--role', 'server', '--uninstall', '--purge')
  machine.ok('sh', '-c', 'test ! -e /opt/outpost && test ! -e /etc/outpost-server && ! id outpost-server')
  machine.ok('sh', '-c', 'test ! -e /etc/outpost && test ! -e /var/lib/outpost && ! id outpost')
})

/** Files and directories that only their owner may enter are read and collected all the same; secrets are not read. */
async function servesOtherUsers(machine: Machine, token: string): Promise<void> {
  const manifest = {
    ClientStatus: 'complete',
    DesiredStatus: 'stop',
    Tasks: { web: { State: 'dead', FinishedAt: '2026-11-21T10:00:00Z' } },
  }
  machine.ok(
    'sh',
    '-ec',
    `cd /var/lib/outpost/alloc && mkdir -p $1/web/local $1/web/secrets $1/alloc/tmp && cd $1
    echo hello >web/local/own && echo hidden >web/secrets/key && echo x >alloc/tmp/x
    chown -R 12345:12345 web && chmod -R go= web && chown 12346 alloc/tmp/x && chmod 1777 alloc/tmp
    printf %s "$2" >alloc.json.new && mv alloc.json.new alloc.json`,
    'sh',
    TASK,
    JSON.stringify(manifest),
  )
  await becomes(() => ask(machine, `/v1/client/fs/cat/${TASK}?path=web/local/own`, token).body === 'hello\n')
  assert.equal(ask(machine, `/v1/client/fs/cat/${TASK}?path=web/secrets/key`, token).status, 403)
  assert.equal(ask(machine, `/v1/client/allocation/${TASK}/gc`, token).status, 200)
  machine.ok('test', '!', '-e', `/var/lib/outpost/alloc/${TASK}`)
  // It may not write the files that it may read, and may not control systemd or a container engine.
  const status = machine.ok('cat', `/proc/${property(machine, 'MainPID')}/status`)
  assert.match(status, /^Uid:\t(?!0\t)\d+/m)
  assert.match(status, /^CapPrm:\t000000000000000a$/m)
}

async function reloads(machine: Machine): Promise<void> {
  const pid = property(machine, 'MainPID')
  configure(machine, 'log_level = "debug"')
  // systemctl returns when the signal is sent; until the agent has said that it is done, the unit counts as reloading.
  const reloaded = (times: number) =>
    becomes(
      () =>
        machine.ok('journalctl', '-u', 'outpost').split('configuration reloaded').length > times &&
        property(machine, 'ActiveState') === 'active',
    )
  machine.ok('systemctl', 'reload', 'outpost')
  await reloaded(1)
  configure(machine, 'log_level = "loud"')
  assert.notEqual(machine.run('systemctl', 'reload', 'outpost').status, 0, 'a faulty configuration fails the reload')
  assert.match(machine.ok('journalctl', '-u', 'outpost'), /more\.hcl:1:13/)
  configure(machine, '')
  machine.ok('systemctl', 'reload', 'outpost')
  await reloaded(2)
  assert.equal(property(machine, 'MainPID'), pid)
}

/** systemd restarts a blocked main process and does not restart a working one. */
async function survivesAHang(machine: Machine): Promise<void> {
  machine.ok(
    'sh',
    '-c',
    `mkdir -p /etc/systemd/system/outpost.service.d
    printf '[Service]\\nWatchdogSec=6\\nRestartSec=1\\n' >/etc/systemd/system/outpost.service.d/watchdog.conf`,
  )
  machine.ok('systemctl', 'daemon-reload')
  machine.ok('systemctl', 'restart', 'outpost')
  const lastTick = () => property(machine, 'WatchdogTimestampMonotonic')
  for (let heard = 0; heard < 3; heard++) {
    const last = lastTick()
    await becomes(() => lastTick() !== last)
  }
  assert.equal(property(machine, 'NRestarts'), '0')
  const pid = property(machine, 'MainPID')
  machine.ok('kill', '-STOP', pid)
  await becomes(() => property(machine, 'NRestarts') === '1' && property(machine, 'ActiveState') === 'active')
  assert.notEqual(property(machine, 'MainPID'), pid)
  assert.match(machine.ok('journalctl', '-u', 'outpost'), /Watchdog timeout/)
}

async function takesCredentials(t: TestContext, machine: Machine, token: string): Promise<void> {
  const directory = workDirectory(t)
  makeCertificate(directory)
  for (const name of ['tls.crt', 'tls.key']) {
    writeFileSync(join(machine.outside, name), readFileSync(join(directory, name)), { mode: 0o600 })
  }
  const place = '/run/credentials/outpost.service'
  configure(machine, `tls {\n  http = true\n  cert_file = "${place}/tls.crt"\n  key_file = "${place}/tls.key"\n}`)
  machine.ok(
    'sh',
    '-c',
    `printf '[Service]\\nLoadCredential=%s\\nLoadCredential=%s\\n' "$@" >/etc/systemd/system/outpost.service.d/tls.conf`,
    'sh',
    `tls.crt:${machine.inside}/tls.crt`,
    `tls.key:${machine.inside}/tls.key`,
  )
  machine.ok('systemctl', 'daemon-reload')
  machine.ok('systemctl', 'restart', 'outpost')
  assert.equal(ask(machine, '/v1/agent/self', token, 'https').status, 200)
  machine.ok('systemctl', 'reload', 'outpost') // with the credentials in sight of `validate` too
}

/** Faults of the unit and of the machine, as an operator sees them with systemctl and in the journal. */
async function failsToStart(machine: Machine): Promise<void> {
  const dropIn = '/etc/systemd/system/outpost.service.d/faulty.conf'
  const reload = () => machine.ok('systemctl', 'daemon-reload')
  for (const [line, seen] of [
    ['User=nobody-of-this-name', /status=217\/USER/],
    ['ReadWritePaths=/srv/missing', /status=226\/NAMESPACE/],
  ] as const) {
    machine.ok('sh', '-c', `printf '[Service]\\n%s\\n' "$1" >${dropIn}`, 'sh', line)
    reload()
    machine.run('systemctl', 'restart', 'outpost')
    await becomes(() => seen.test(machine.run('systemctl', 'status', 'outpost').stdout))
    machine.ok('rm', dropIn)
  }
  const credentials = '/etc/systemd/system/outpost.service.d/tls.conf'
  machine.ok('mv', credentials, `${credentials}.away`)
  reload()
  machine.run('systemctl', 'reset-failed', 'outpost')
  machine.run('systemctl', 'restart', 'outpost')
  const said = () => machine.ok('journalctl', '-u', 'outpost')
  await becomes(() => /tls\.(cert|key)_file cannot be read: .*\/run\/credentials/.test(said()))
  machine.ok('mv', `${credentials}.away`, credentials)
  reload()
  machine.run('systemctl', 'reset-failed', 'outpost')
  machine.ok('systemctl', 'restart', 'outpost')
}

/** An upgrade that cannot succeed changes nothing or is rolled back; the previous version keeps running. */
function keepsWhatRan(machine: Machine, script: string, main: string): void {
  const pid = property(machine, 'MainPID')
  configure(machine, 'log_level = "loud"')
  const faulty = machine.run(script)
  assert.notEqual(faulty.status, 0)
  assert.match(faulty.stdout + faulty.stderr, /more\.hcl:1:13/)
  assert.match(faulty.stderr, /fix the configuration in \/etc\/outpost first; nothing was changed/)
  assert.equal(property(machine, 'MainPID'), pid, 'the service never heard of it')
  // The agent of this version refuses the file with a code of its own, and systemd does not try again.
  machine.run('systemctl', 'restart', 'outpost')
  assert.deepEqual([property(machine, 'ExecMainStatus'), property(machine, 'NRestarts')], ['78', '0'])
  assert.match(machine.run('systemctl', 'status', 'outpost').stdout, /status=78\/CONFIG/)
  configure(machine, '')
  machine.ok('systemctl', 'restart', 'outpost')
  // A program that starts for every check and fails as a service.
  machine.ok(
    'sh',
    '-c',
    `cp ${main} ${main}.good && sed -i "1i if (process.argv[2] === 'agent') process.exit(1)" ${main}`,
  )
  const broken = machine.run(script)
  assert.notEqual(broken.status, 0)
  assert.match(broken.stderr, /the service does not start, see: .*The previous installation was restored/s)
  assert.equal(machine.ok('systemctl', 'is-active', 'outpost'), 'active')
  machine.ok('sh', '-c', `test ! -e /opt/outpost.old && mv ${main}.good ${main}`)
}

/** A server beside the agent: a user, a unit, directories and ports of its own; a first start that fails keeps the token. */
async function installsAServer(machine: Machine, script: string): Promise<void> {
  const occupy = "require('node:net').createServer().listen(4648, '127.0.0.1')"
  machine.ok('systemd-run', '--unit=occupier', machine.node, '-e', occupy)
  const failed = machine.run(script, '--role', 'server')
  assert.notEqual(failed.status, 0)
  assert.match(failed.stderr, /the first token is in \/etc\/outpost-server\/first-token \(readable by root only\)/)
  assert.equal(machine.ok('stat', '-c', '%a %U', '/etc/outpost-server/first-token'), '600 root')
  assert.equal(machine.ok('systemctl', 'is-active', 'outpost'), 'active')
  machine.ok('systemctl', 'stop', 'occupier')
  const late = machine.run(script, '--role', 'server', '--no-secrets')
  assert.notEqual(late.status, 0)
  assert.match(late.stderr, /set server \{ secrets = false \} there\. Nothing was changed/)
  const installed = machine.ok(script, '--role', 'server')
  assert.match(installed, /operator init .*\n.*only on the first server of a region/)
  const token = tokenFrom(installed)
  machine.ok('test', '!', '-e', '/etc/outpost-server/first-token')
  const url = 'http://127.0.0.1:4648'
  assert.equal(machine.ok('cat', '/var/lib/outpost-server/http.addr'), url)
  const outpost = (...args: string[]) =>
    machine.run('env', `OUTPOST_ADDR=${url}`, `OUTPOST_TOKEN=${token}`, '/opt/outpost/bin/outpost', ...args)
  const pid = property(machine, 'MainPID', 'outpost-server')
  const status = machine.ok('cat', `/proc/${pid}/status`)
  assert.match(status, /^Uid:\t(?!0\t)\d+/m)
  for (const set of ['CapPrm', 'CapEff', 'CapBnd', 'CapAmb']) assert.match(status, new RegExp(`^${set}:\\t0{16}$`, 'm'))
  assert.match(status, /^Umask:\t0077$/m)
  assert.equal(property(machine, 'MemorySwapMax', 'outpost-server'), '0')
  assert.equal(machine.ok('stat', '-c', '%a %U', '/var/lib/outpost-server'), '700 outpost-server')
  missesItsCredential(machine, outpost)
}

/** A key of the machine that systemd does not hand over costs the seal and not the server. */
function missesItsCredential(machine: Machine, outpost: (...args: string[]) => Outcome): void {
  const place = '/etc/outpost-server'
  const key = '/etc/credstore/outpost-unseal'
  const dropIns = '/etc/systemd/system/outpost-server.service.d'
  const seal = 'server {\n  seal "static" {\n    current_key_id = "a"\n    current_key = "credential://unseal"\n  }\n}'
  machine.ok(
    'sh',
    '-ec',
    `install -d -m 0700 /etc/credstore
    openssl rand -out ${key} 32 && chmod 0600 ${key}
    mkdir -p ${dropIns} && printf '[Service]\nLoadCredential=unseal:outpost-unseal\n' >${dropIns}/seal.conf
    printf '%s\n' "$1" >${place}/seal.hcl
    systemctl daemon-reload && systemctl restart outpost-server`,
    'sh',
    seal,
  )
  assert.equal(outpost('operator', 'init', '-recovery-shares=1', '-recovery-threshold=1').status, 0)
  assert.equal(outpost('status').status, 0)
  machine.ok('mv', key, `${place}/unseal.key`)
  machine.ok('systemctl', 'restart', 'outpost-server')
  assert.equal(machine.ok('systemctl', 'is-active', 'outpost-server'), 'active')
  const shown = outpost('status')
  assert.equal(shown.status, 2, shown.stdout)
  assert.match(shown.stderr, /sealed, next: provide the static key of the server/)
  const log = () => machine.ok('journalctl', '-u', 'outpost-server')
  assert.match(log(), /auto-unseal or key rotation failed.*ENOENT.*\/run\/credentials\/outpost-server\.service\/unseal/)
  // Put back, it opens the server at the next start. With its whole path in the unit, systemd insists on it.
  machine.ok('mv', `${place}/unseal.key`, key)
  machine.ok('systemctl', 'restart', 'outpost-server')
  assert.equal(outpost('status').status, 0)
  const drop = `printf '[Service]\nLoadCredential=unseal:${place}/unseal.key\n' >${dropIns}/seal.conf`
  machine.ok('sh', '-ec', `${drop} && systemctl daemon-reload`)
  assert.notEqual(machine.run('systemctl', 'restart', 'outpost-server').status, 0)
  assert.match(machine.run('systemctl', 'status', 'outpost-server').stdout, /status=243\/CREDENTIALS/)
  machine.ok('sh', '-ec', `rm ${dropIns}/seal.conf && systemctl daemon-reload && systemctl reset-failed outpost-server`)
  machine.ok('systemctl', 'restart', 'outpost-server')
  assert.match(log(), /no systemd credentials are available; add LoadCredential=unseal:/)
}
