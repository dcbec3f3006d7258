/** A cluster is set up and the key of a worker host renewed on a machine with systemd: docs/operating/cluster.md is followed literally. */
import assert from 'node:assert/strict'
import { cpSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { shellBlocks } from '../helpers/document.ts'
import { bootMachine, type Machine, makeCheckout, whyNoMachine } from '../helpers/machine.ts'
import { natsServerProgram } from '../helpers/nats-server.ts'
import { eventually } from '../helpers/eventually.ts'

const CLONE = 'git clone … outpost && cd outpost && npm ci && '

/** One machine is h1 and w2; w1 is never reached. */
const SSH = '#!/bin/sh\nhost=$1\nshift\n[ "$host" != w2 ] || exec "$@"\n'
const SCP = `#!/bin/sh
for last; do :; done
case $last in w2:*) ;; *) exit 0 ;; esac
while [ $# -gt 1 ]; do cp "$1" "\${last#w2:}"; shift; done
`

interface Host {
  readonly machine: Machine
  /** Runs lines of the document in the checkout, as root. */
  readonly shell: (script: string) => string
}

/** With the checkout in /root/outpost, and an address that is not loopback and has the name h1.example.com. */
async function bootHost(machine: Machine): Promise<Host> {
  makeCheckout(join(machine.outside, 'checkout'))
  cpSync(natsServerProgram(), join(machine.outside, 'nats-server'))
  writeFileSync(join(machine.outside, 'ssh'), SSH, { mode: 0o755 })
  writeFileSync(join(machine.outside, 'scp'), SCP, { mode: 0o755 })
  const shell = (script: string) =>
    machine.ok('sh', '-euc', `export HOME=/root PATH=/usr/local/bin:$PATH\ncd /root/outpost\n${script}`)
  machine.ok(
    'sh',
    '-euc',
    `cp -a ${machine.inside}/checkout /root/outpost
    cd ${machine.inside} && install -m 0755 nats-server ssh scp /usr/local/bin/
    ip address add 10.0.0.1/32 dev lo
    echo '10.0.0.1 h1.example.com' >>/etc/hosts`,
  )
  return { machine, shell }
}

/** "Three hosts in ten minutes", the lines for h1 and w2. Returns the token of the server. */
function setUp({ shell }: Host): string {
  const [nats = '', files = '', install = ''] = shellBlocks(
    'docs/operating/cluster.md',
    '## Three hosts in ten minutes',
  )
  shell(nats.replace('id nats ||', 'id nats 2>/dev/null ||'))
  shell(files)
  const [agent = '', server = ''] = install.trim().split('\n')
  assert.ok(agent.startsWith(CLONE) && server.startsWith(CLONE))
  shell(agent.replace(CLONE, ''))
  const said = shell(server.replace(CLONE, ''))
  return /the token \(.*\): ([0-9a-f]{64})/.exec(said)?.[1] ?? ''
}

test('a cluster is set up and the key of a host renewed by the documented steps', {
  skip: whyNoMachine() ?? false,
}, async (t) => {
  const host = await bootHost(await bootMachine(t))
  const { machine, shell } = host
  const token = setUp(host)
  const url = machine.ok('cat', '/var/lib/outpost-server/http.addr')
  const ask = (path: string) =>
    machine.run('curl', '-sS', '-m', '20', '-H', `X-Nomad-Token: ${token}`, `${url}${path}`).stdout
  const nodes = () => JSON.parse(ask('/v1/nodes')) as { ID: string; Name: string; Status: string }[]
  const log = (unit: string) => machine.ok('journalctl', '-u', unit, '-o', 'cat')
  await eventually(() => nodes().some(({ Name, Status }) => Name === 'w2' && Status === 'ready'))
  assert.equal(machine.ok('stat', '-c', '%a %U %G', '/etc/outpost-server/cluster.nk'), '640 root outpost-server')

  const alloc = '8c1f0b9e-2f0a-4a51-9d0c-0000000000aa'
  machine.ok(
    'systemd-run',
    '/opt/outpost/bin/outpost',
    'alloc',
    'run',
    '-task',
    'web',
    '-id',
    alloc,
    '--',
    'sleep',
    '600',
  )
  const isRead = () => ask(`/v1/client/fs/stat/${alloc}?path=alloc/logs/web.stdout.0`).includes('"Name":"web.stdout.0"')
  await eventually(isRead)
  const [before] = nodes()
  const pid = machine.ok('systemctl', 'show', '-P', 'MainPID', 'outpost')
  const keys = () => [...machine.ok('cat', '/etc/nats/users.conf').matchAll(/nkey: (\w+)/g)].map(([, key]) => key)
  const keysBefore = keys()
  machine.ok('cp', '/root/keys/w2/cluster.nk', '/root/old.nk')

  const [renew = ''] = shellBlocks('docs/operating/cluster.md', '## Renew the key of a host')
  shell(renew)
  assert.equal(keys().filter((key) => !keysBefore.includes(key)).length, 1)
  await eventually(() => log('outpost').split('"connected to NATS"').length === 3)
  await eventually(isRead)
  assert.deepEqual(
    nodes().map(({ ID, Status }) => [ID, Status]),
    [[before?.ID, 'ready']],
  )
  assert.equal(machine.ok('systemctl', 'show', '-P', 'MainPID', 'outpost'), pid, 'it was not restarted')
  assert.doesNotMatch(log('outpost-server'), /duplicate node ID|node claimed an allocation of another node/)

  // The key of before opens nothing.
  machine.ok('cp', '/root/old.nk', '/etc/outpost/cluster.nk')
  machine.ok('systemctl', 'restart', 'outpost')
  await eventually(() => /cannot connect to NATS.*Authorization Violation/.test(log('outpost')))
})
