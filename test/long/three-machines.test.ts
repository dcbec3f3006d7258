/**
 * Three machines under systemd with a network between them: NATS and a server on one, agents on two. A follower through the server
 * receives each line of a task once, while its agent is killed, hangs, reloads, is upgraded and is rolled back.
 */
import assert from 'node:assert/strict'
import { cpSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { eventually } from '../helpers/eventually.ts'
import { bootMachine, connectMachines, type Machine, makeCheckout, whyNoMachine } from '../helpers/machine.ts'
import { natsServerProgram } from '../helpers/nats-server.ts'

const SERVER_IP = '10.77.0.1'
const LINES = 2000

function shell(machine: Machine, script: string): string {
  return machine.ok('sh', '-euc', script)
}

function installNats(machine: Machine): void {
  cpSync(natsServerProgram(), join(machine.outside, 'nats-server'))
  const checkout = `${machine.inside}/checkout`
  shell(
    machine,
    `
    install -m 0755 ${machine.inside}/nats-server /usr/local/bin/
    id nats 2>/dev/null || useradd --system --user-group --no-create-home nats
    install -d -o root -g nats -m 0750 /etc/nats
    cd /etc/nats
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \\
      -subj /CN=nats -addext subjectAltName=IP:${SERVER_IP} -keyout server.key -out server.crt
    chown root:nats server.key && chmod 0640 server.key
    ${checkout}/bin/outpost cluster keys -out /root/keys -nats tls://${SERVER_IP}:4222 -server s1 -agent w1 -agent w2
    cp /root/keys/users.conf ${checkout}/systemd/nats/nats-server.conf /etc/nats/
    cp ${checkout}/systemd/nats/outpost-nats.service /etc/systemd/system/
    systemctl daemon-reload
    systemctl enable --now outpost-nats
    cp -r /root/keys ${machine.inside}/keys
    cp server.crt ${machine.inside}/keys/nats-ca.crt`,
  )
}

/** The files of a member as "outpost cluster keys" wrote them, in its configuration directory. */
function configure(machine: Machine, from: Machine, member: string, directory: string): void {
  const keys = join(machine.outside, 'member')
  mkdirSync(keys, { recursive: true })
  cpSync(join(from.outside, 'keys', member), keys, { recursive: true })
  cpSync(join(from.outside, 'keys/nats-ca.crt'), join(keys, 'nats-ca.crt'))
  shell(
    machine,
    `install -d ${directory} && cp ${machine.inside}/member/cluster.* ${machine.inside}/member/nats-ca.crt ${directory}/`,
  )
}

function mainPid(machine: Machine): string {
  return machine.ok('systemctl', 'show', '-P', 'MainPID', 'outpost')
}

/** The unit of a server accepts connections on loopback only; agents and NATS are on other machines. */
function allowNetwork(machine: Machine, unit: string): void {
  shell(
    machine,
    `mkdir -p /etc/systemd/system/${unit}.service.d
     printf '[Service]\\nIPAddressAllow=10.77.0.0/24\\n' >/etc/systemd/system/${unit}.service.d/network.conf
     systemctl daemon-reload`,
  )
}

test('three machines keep a log without loss through kill, hang, reload, upgrade and rollback', {
  skip: whyNoMachine() ?? false,
}, async (t) => {
  const machines = await Promise.all([bootMachine(t), bootMachine(t), bootMachine(t)])
  const [s1, w1, w2] = machines
  assert.ok(s1 && w1 && w2)
  connectMachines(t, machines)
  for (const machine of machines) makeCheckout(join(machine.outside, 'checkout'))
  const checkout = `${s1.inside}/checkout`
  const outpost = `${checkout}/bin/outpost`
  installNats(s1)

  configure(s1, s1, 's1', '/etc/outpost-server')
  allowNetwork(s1, 'outpost-server')
  s1.ok(`${checkout}/systemd/install.sh`, '--role', 'server')
  const address = `OUTPOST_ADDR=${/http:\/\/[\d.]+:\d+/.exec(s1.ok('systemctl', 'show', '-P', 'StatusText', 'outpost-server'))?.[0] ?? ''}`
  const made = JSON.parse(
    shell(s1, `${address} ${outpost} operator init -key-shares=1 -key-threshold=1 -format=json`),
  ) as { readonly unseal_keys_b64: readonly string[]; readonly root_token: string }
  shell(s1, `echo ${made.unseal_keys_b64[0]} | ${address} ${outpost} operator unseal -`)
  const command = (line: string) => shell(s1, `${address} OUTPOST_TOKEN=${made.root_token} ${outpost} ${line}`)

  for (const [machine, member] of [
    [w1, 'w1'],
    [w2, 'w2'],
  ] as const) {
    configure(machine, s1, member, '/etc/outpost')
    machine.ok(`${checkout}/systemd/install.sh`)
  }
  const statusOf = (name: string) => new RegExp(`^\\S+ +${name} +.*?(ready|down)`, 'm').exec(command('node list'))?.[1]
  await eventually(() => statusOf('w1') === 'ready' && statusOf('w2') === 'ready', 'the server knows both agents')

  // A task on w1 that writes numbered lines until it is told to end.
  const writer = `at=0; while [ ! -e /run/finish ]; do at=$((at + 1)); echo line $at; sleep 0.05; done; echo last $at`
  writeFileSync(join(w1.outside, 'writer.sh'), writer)
  const allocation = shell(
    w1,
    `/opt/outpost/bin/outpost alloc run -detach -data-dir /var/lib/outpost -job numbers -- sh ${w1.inside}/writer.sh`,
  )
  await eventually(() => command('alloc list -json').includes(allocation), 'the server knows the allocation')
  shell(
    s1,
    `systemd-run --unit=follower --setenv=${address} --setenv=OUTPOST_TOKEN=${made.root_token} \\
      sh -c '${outpost} logs -f ${allocation} >${s1.inside}/followed 2>${s1.inside}/follower.err'`,
  )
  const followed = () => readFileSync(join(s1.outside, 'followed'), 'utf8')
  const moreLines = async (what: string) => {
    const before = followed().length
    await eventually(() => followed().length > before, `lines after ${what}`)
  }
  await eventually(() => followed().includes('line 5\n'), 'the log is followed through the server')

  let pid = mainPid(w1)
  w1.ok('kill', '-KILL', pid)
  await eventually(() => ![pid, '0'].includes(mainPid(w1)), 'systemd restarts a killed agent')
  await moreLines('a kill')

  pid = mainPid(w1)
  w1.ok('kill', '-STOP', pid)
  await eventually(() => ![pid, '0'].includes(mainPid(w1)), 'the watchdog restarts an agent that hangs', 300_000, 1000)
  await moreLines('a hang')

  shell(w1, `echo 'log_level = "debug"' >/etc/outpost/more.hcl && systemctl reload outpost`)
  pid = mainPid(w1)
  shell(w1, `echo 'log_level = "nonsense"' >/etc/outpost/more.hcl`)
  assert.notEqual(w1.run('systemctl', 'reload', 'outpost').status, 0)
  shell(w1, 'rm /etc/outpost/more.hcl && systemctl reload outpost')
  assert.equal(mainPid(w1), pid)
  await moreLines('a reload')

  const manifest = join(w1.outside, 'checkout/package.json')
  writeFileSync(manifest, readFileSync(manifest, 'utf8').replace(/"version": "[^"]*"/, '"version": "0.1.99"'))
  w1.ok(`${checkout}/systemd/install.sh`)
  assert.match(w1.ok('/opt/outpost/bin/outpost', 'version'), /0\.1\.99/)
  await moreLines('an upgrade')
  w1.ok(`${checkout}/systemd/install.sh`, '--rollback')
  assert.doesNotMatch(w1.ok('/opt/outpost/bin/outpost', 'version'), /0\.1\.99/)
  await moreLines('a rollback')
  s1.ok('systemctl', 'restart', 'outpost-nats')
  await moreLines('a restart of NATS')
  s1.ok('systemctl', 'restart', 'outpost-server')
  shell(s1, `echo ${made.unseal_keys_b64[0]} | ${address} ${outpost} operator unseal -`)
  await moreLines('a restart of the server')

  const count = () => followed().split('\n').length - 1
  await eventually(() => count() >= LINES, `${LINES} lines`, 600_000, 1000)
  shell(w1, 'touch /run/finish')
  await eventually(() => /^last \d+$/m.test(followed()), 'the last line')
  const lines = followed().trimEnd().split('\n')
  const expected = Array.from({ length: lines.length - 1 }, (_, index) => `line ${index + 1}`)
  assert.deepEqual(lines.slice(0, -1), expected)
  assert.equal(lines.at(-1), `last ${expected.length}`)

  w2.ok(`${checkout}/systemd/install.sh`, '--uninstall', '--purge')
  assert.equal(w2.run('test', '-e', '/opt/outpost').status, 1)
  await eventually(() => statusOf('w2') === 'down', 'the server reports the agent that was uninstalled')
  assert.match(command('node status w2'), /Node left/)
  for (const machine of machines) {
    assert.doesNotMatch(machine.ok('journalctl', '-o', 'cat', '-p', 'err', '-u', 'outpost*', '-q'), /Fault|TypeError/)
  }
})
