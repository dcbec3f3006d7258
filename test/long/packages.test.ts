/** The packages of a release: built twice with equal bytes, within the size limit; the Debian package in its whole life on a machine with systemd. */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { ARCHITECTURES, platformModules } from '../../scripts/dist/architecture.ts'
import { buildPackages, PACKAGE_LIMIT_BYTES } from '../../scripts/dist/packages.ts'
import { sha256 } from '../../scripts/dist/checksums.ts'
import { bootMachine, type Machine, whyNoMachine } from '../helpers/machine.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const ROOT = resolve(import.meta.dirname, '../..')
const RELEASE_SECONDS = 1_790_000_000
const noDpkg = spawnSync('dpkg-deb', ['--version']).status === 0 ? false : 'needs dpkg-deb'

for (const architecture of ARCHITECTURES) {
  const missing = platformModules(ROOT, architecture.name) === undefined
  const skip = missing ? `Node for it is not installed: npm run dist:fetch -- ${architecture.name}` : noDpkg
  test(`packages for ${architecture.name} are reproducible, small and complete`, { skip }, async (t) => {
    const facts = { version: '1.0.0', releaseSeconds: RELEASE_SECONDS }
    const built = await buildPackages(ROOT, architecture, facts)
    const again = await buildPackages(ROOT, architecture, facts)
    assert.deepEqual(
      again.map(({ name, content }) => [name, sha256(content)]),
      built.map(({ name, content }) => [name, sha256(content)]),
    )
    const directory = temporaryDirectory(t)
    for (const { name, content } of built) {
      t.diagnostic(`${name}: ${content.length} bytes`)
      assert.ok(content.length <= PACKAGE_LIMIT_BYTES)
      writeFileSync(join(directory, name), content)
    }
    const unpacked = join(directory, 'program')
    mkdirSync(unpacked)
    const tarball = join(directory, `outpost-1.0.0-linux-${architecture.name}.tar.zst`)
    execFileSync('tar', ['--zstd', '--strip-components=1', '-xf', tarball, '-C', unpacked])
    const node = execFileSync('file', ['-b', join(unpacked, `node_modules/node-linux-${architecture.name}/bin/node`)])
    assert.match(node.toString(), architecture.name === 'x64' ? /x86-64/ : /aarch64/)
    if (architecture.name === process.arch) {
      assert.match(execFileSync(join(unpacked, 'bin/outpost'), ['version'], { encoding: 'utf8' }), /^outpost v1\.0\.0 /)
    }
    const deb = join(directory, `outpost_1.0.0_${architecture.debian}.deb`)
    const field = (name: string) => execFileSync('dpkg-deb', ['-f', deb, name], { encoding: 'utf8' }).trim()
    assert.deepEqual([field('Version'), field('Architecture')], ['1.0.0', architecture.debian])
    const pages = spawnSync('man', ['--warnings', '-l', join(unpacked, 'man/man1/outpost-kv-put.1')], {
      encoding: 'utf8',
      env: { ...process.env, LC_ALL: 'C.UTF-8', MANROFFSEQ: '' },
    })
    if (pages.error === undefined) assert.deepEqual([pages.status, pages.stderr], [0, ''])
  })
}

/** Debian packages of two versions in the directory of the machine. */
async function writeDebs(machine: Machine, versions: readonly string[]): Promise<void> {
  const architecture = ARCHITECTURES.find(({ name }) => name === process.arch)
  assert.ok(architecture)
  for (const version of versions) {
    const built = await buildPackages(ROOT, architecture, { version, releaseSeconds: RELEASE_SECONDS })
    const deb = built.find(({ name }) => name.endsWith('.deb'))
    assert.ok(deb)
    writeFileSync(join(machine.outside, `outpost-${version}.deb`), deb.content)
  }
}

/** Status of a request to the agent in the machine; `token` comes from the file that the package wrote. */
function statusOf(machine: Machine, url: string, tokenFile: string): number {
  const script = `const [url, file] = process.argv.slice(1)
    const headers = { 'X-Nomad-Token': require('node:fs').readFileSync(file, 'utf8').trim() }
    fetch(url, { headers }).then((answer) => console.log(answer.status))`
  return Number(machine.ok(machine.node, '-e', script, url, tokenFile))
}

const noMachine = whyNoMachine() ?? noDpkg

test('the Debian package installs, upgrades, downgrades, is removed and purged by apt', {
  skip: noMachine,
}, async (t) => {
  const machine = await bootMachine(t)
  await writeDebs(machine, ['1.0.0', '2.0.0'])
  const apt = (...args: readonly string[]) => {
    const options = ['-y', '-q', '-o', 'Dpkg::Use-Pty=0', '-o', 'Dpkg::Options::=--force-confold']
    return machine.run('env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', ...options, ...args)
  }
  const aptOk = (...args: readonly string[]) => {
    const { status, stdout, stderr } = apt(...args)
    assert.equal(status, 0, stdout + stderr)
    return stdout + stderr
  }
  // Images of containers have a policy that forbids packages to restart services.
  machine.ok('rm', '-f', '/usr/sbin/policy-rc.d')
  const deb = (version: string) => `${machine.inside}/outpost-${version}.deb`
  const show = (name: string, unit = 'outpost') => machine.ok('systemctl', 'show', '-P', name, unit)

  const scriptUnit = '/etc/systemd/system/outpost.service'
  machine.ok('sh', '-c', `install -d /etc/outpost-server && echo key >/etc/outpost-server/cluster.nk`)
  machine.ok(
    'sh',
    '-c',
    `chmod 0600 /etc/outpost-server/cluster.nk && echo ExecStart=/opt/outpost/bin/outpost >${scriptUnit}`,
  )
  const installed = aptOk('install', deb('1.0.0'))
  assert.match(installed, /no service is enabled/)
  assert.match(installed, /outpost\.service runs the program of systemd\/install\.sh[^]*--uninstall --role agent/)
  machine.ok('sh', '-c', `rm ${scriptUnit} && systemctl daemon-reload`)
  assert.equal(machine.ok('stat', '-c', '%a %U %G', '/etc/outpost-server/cluster.nk'), '640 root outpost-server')
  machine.ok('rm', '/etc/outpost-server/cluster.nk')
  assert.match(machine.ok('outpost', 'version'), /^outpost v1\.0\.0 /)
  assert.equal(machine.ok('dpkg', '--verify', 'outpost'), '')
  assert.notEqual(show('UnitFileState'), 'enabled')
  assert.match(machine.ok('stat', '-c', '%a %U', '/etc/outpost/first-token'), /^600 root$/)
  machine.ok('sh', '-c', "printf 'ports {\\n  http = 4650\\n  cluster = 4651\\n}\\n' >/etc/outpost/ports.hcl")
  machine.ok('systemctl', 'enable', '--now', 'outpost', 'outpost-server')
  const isServed = () => {
    assert.equal(statusOf(machine, 'http://127.0.0.1:4650/v1/agent/self', '/etc/outpost/first-token'), 200)
    assert.equal(statusOf(machine, 'http://127.0.0.1:4646/v1/agent/self', '/etc/outpost-server/first-token'), 200)
  }
  isServed()
  assert.equal(machine.ok('cat', `/proc/${show('MainPID')}/comm`), 'outpost')
  machine.ok('test', '-e', '/usr/share/man/man1/outpost-kv-get.1')
  machine.ok('bash', '-c', '. /usr/share/bash-completion/completions/outpost && complete -p outpost')

  const nodeId = machine.ok('cat', '/var/lib/outpost/client/state.json')
  machine.ok('sh', '-c', "printf '\\n# kept\\n' >>/etc/outpost/agent.hcl")
  const pid = show('MainPID')
  aptOk('install', deb('2.0.0'))
  assert.match(machine.ok('outpost', 'version'), /^outpost v2\.0\.0 /)
  assert.notEqual(show('MainPID'), pid, 'the agent runs the new version')
  isServed()
  const startOf = (unit: string) => Number(show('ActiveEnterTimestampMonotonic', unit))
  assert.ok(startOf('outpost-server') < startOf('outpost'), 'the server restarts first')
  assert.match(machine.ok('cat', '/etc/outpost/agent.hcl'), /# kept/)

  // A configuration that the program refuses does not stop the service.
  machine.ok('sh', '-c', 'echo \'log_level = "loud"\' >/etc/outpost/more.hcl')
  const running = show('MainPID')
  assert.match(aptOk('install', '--allow-downgrades', deb('1.0.0')), /outpost is not restarted: fix the configuration/)
  assert.equal(show('MainPID'), running)
  machine.ok('rm', '/etc/outpost/more.hcl')
  machine.ok('systemctl', 'restart', 'outpost')
  assert.match(machine.ok('outpost', 'version'), /^outpost v1\.0\.0 /)
  isServed()
  assert.equal(machine.ok('cat', '/var/lib/outpost/client/state.json').length, nodeId.length)

  aptOk('remove', 'outpost')
  assert.notEqual(machine.run('systemctl', 'is-active', 'outpost', 'outpost-server').status, 0)
  machine.ok(
    'sh',
    '-c',
    'test ! -e /usr/lib/outpost && test -e /etc/outpost/agent.hcl && test -e /var/lib/outpost/client',
  )
  aptOk('install', deb('2.0.0'))
  aptOk('purge', 'outpost')
  machine.ok(
    'sh',
    '-c',
    'for each in /etc /var/lib /usr/lib; do test ! -e $each/outpost && test ! -e $each/outpost-server; done',
  )
  machine.ok('sh', '-c', '! id outpost && ! id outpost-server')
})
