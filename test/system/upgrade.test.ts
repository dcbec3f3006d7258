/** Upgrade and rollback by `install.sh` on a machine with systemd: which version runs, which one is kept, and in which order services restart. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { bootMachine, type Machine, makeCheckout, whyNoMachine } from '../helpers/machine.ts'
import { eventually } from '../helpers/eventually.ts'

const noMachine = whyNoMachine() ?? false
/** Long enough that a version that ends after its start does so while it is watched, on a busy machine, too. */
const WATCHED_SECONDS = '20'

class Host {
  readonly machine: Machine
  readonly main: string
  readonly #manifest: string
  readonly #good: string
  readonly script: string

  constructor(machine: Machine) {
    this.machine = machine
    const checkout = join(machine.outside, 'checkout')
    this.main = makeCheckout(checkout)
    this.#good = readFileSync(this.main, 'utf8')
    this.#manifest = join(checkout, 'package.json')
    this.script = `${machine.inside}/checkout/systemd/install.sh`
  }

  /** Makes the checkout one of another version; `begin` is code that runs first in its agent. */
  release(version: string, begin = ''): void {
    const text = readFileSync(this.#manifest, 'utf8')
    writeFileSync(this.#manifest, text.replace(/"version": "[^"]*"/, `"version": "${version}"`))
    writeFileSync(this.main, begin === '' ? this.#good : `if (process.argv[2] === 'agent') { ${begin} }\n${this.#good}`)
  }

  upgrade(seconds = '0', role = 'agent') {
    return this.machine.run(this.script, '--role', role, '--confirm', seconds)
  }

  rollBack() {
    return this.machine.run(this.script, '--rollback')
  }

  /** Versions of the installed program and of the one that is kept. */
  versions(): { readonly current: string | undefined; readonly previous: string | undefined } {
    const versionIn = (directory: string) =>
      /"version": "([^"]*)"/.exec(this.machine.run('cat', `${directory}/package.json`).stdout)?.[1]
    return { current: versionIn('/opt/outpost'), previous: versionIn('/opt/outpost.previous') }
  }

  property(name: string, unit = 'outpost'): string {
    return this.machine.ok('systemctl', 'show', '-P', name, unit)
  }
}

async function installed(t: TestContext): Promise<Host> {
  const host = new Host(await bootMachine(t))
  host.release('1.0.0')
  const { status, stdout, stderr } = host.upgrade()
  assert.equal(status, 0, stdout + stderr)
  assert.deepEqual(host.versions(), { current: '1.0.0', previous: undefined })
  return host
}

/** On one machine, in this order: each begins with version 1.0.0, and the last one with any. */
test('upgrades and rollbacks', { skip: noMachine }, async (t) => {
  const host = await installed(t)
  await t.test('install.sh keeps the version before an upgrade, and --rollback returns to it', () => rollsBack(host))
  await t.test('a version that ends while it is watched is replaced with the one before', () => replaces(host))
  await t.test('a version that was not confirmed does not replace the one that is kept', () => keeps(host))
  await t.test('an upgrade of one role restarts the server first, then the agent', () => restartsInOrder(host))
})

function rollsBack(host: Host): void {
  const nothing = host.rollBack()
  assert.equal(nothing.status, 1)
  assert.match(nothing.stderr, /no previous version in \/opt\/outpost\.previous; nothing was changed/)

  host.release('2.0.0')
  const upgraded = host.upgrade('1')
  assert.equal(upgraded.status, 0, upgraded.stderr)
  assert.match(upgraded.stdout, /watch the new version for 1 s/)
  assert.deepEqual(host.versions(), { current: '2.0.0', previous: '1.0.0' })
  host.machine.ok('test', '!', '-e', '/opt/outpost/.unconfirmed')
  // The same version again does not replace the one that is kept.
  assert.equal(host.upgrade('1').status, 0)
  assert.deepEqual(host.versions(), { current: '2.0.0', previous: '1.0.0' })

  const pid = host.property('MainPID')
  const back = host.rollBack()
  assert.equal(back.status, 0, back.stdout + back.stderr)
  assert.match(back.stdout, /done: outpost v1\.0\.0 /)
  assert.deepEqual(host.versions(), { current: '1.0.0', previous: undefined })
  assert.notEqual(host.property('MainPID'), pid)
  assert.equal(host.property('ActiveState'), 'active')
}

function replaces(host: Host): void {
  host.release('2.0.0', 'setTimeout(() => process.exit(1), 5000)')
  const failed = host.upgrade(WATCHED_SECONDS)
  assert.equal(failed.status, 1, failed.stdout)
  assert.match(
    failed.stderr,
    /a service stopped or restarted within 20 s, see: .*The previous installation was restored/s,
  )
  assert.deepEqual(host.versions(), { current: '1.0.0', previous: undefined })
  assert.equal(host.property('ActiveState'), 'active')
}

async function keeps(host: Host): Promise<void> {
  host.release('2.0.0')
  const { machine } = host
  const enter = ['-t', String(machine.pid), '-m', '-u', '-i', '-n', '-p', '-C', '--']
  const upgrade = spawn('nsenter', [...enter, host.script, '--confirm', '9999'], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin' },
  })
  let output = ''
  upgrade.stdout.setEncoding('utf8').on('data', (text: string) => (output += text))
  await eventually(() => output.includes('watch the new version'))
  machine.ok('pkill', '-f', 'install.sh --confirm 9999')
  await once(upgrade, 'exit')
  assert.deepEqual(host.versions(), { current: '2.0.0', previous: '1.0.0' })

  host.release('3.0.0')
  assert.equal(host.upgrade('1').status, 0)
  assert.deepEqual(host.versions(), { current: '3.0.0', previous: '1.0.0' })
}

function restartsInOrder(host: Host): void {
  const added = host.upgrade('0', 'server')
  assert.equal(added.status, 0, added.stderr)
  const startOf = (unit: string) => Number(host.property('ActiveEnterTimestampMonotonic', unit))
  const before = [startOf('outpost'), startOf('outpost-server')] as const
  host.release('4.0.0')
  assert.equal(host.upgrade('1', 'agent').status, 0)
  const server = startOf('outpost-server')
  assert.ok(server > before[1], 'the server runs the new program')
  assert.ok(startOf('outpost') > server, 'the agent restarted after the server was ready')
  assert.equal(host.rollBack().status, 0)
  assert.ok(startOf('outpost-server') > server)
  assert.ok(startOf('outpost') > startOf('outpost-server'))
}
