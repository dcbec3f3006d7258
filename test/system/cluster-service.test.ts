/** The NATS server and a member of its cluster as services of a machine, set up as docs/operating/cluster.md says. */
import assert from 'node:assert/strict'
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { bootMachine, makeCheckout, whyNoMachine } from '../helpers/machine.ts'
import { natsServerProgram } from '../helpers/nats-server.ts'
import { eventually } from '../helpers/eventually.ts'

test('NATS and a combined server and agent run under systemd', { skip: whyNoMachine() ?? false }, async (t) => {
  const machine = await bootMachine(t)
  makeCheckout(join(machine.outside, 'checkout'))
  cpSync(natsServerProgram(), join(machine.outside, 'nats-server'))
  const checkout = `${machine.inside}/checkout`
  const shell = (script: string) => machine.ok('sh', '-euc', script)
  shell(`
    install -m 0755 ${machine.inside}/nats-server /usr/local/bin/
    id nats 2>/dev/null || useradd --system --user-group --no-create-home nats
    install -d -o root -g nats -m 0750 /etc/nats
    cd /etc/nats
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 \\
      -subj /CN=nats -addext subjectAltName=IP:127.0.0.1 -keyout server.key -out server.crt
    chown root:nats server.key && chmod 0640 server.key
    ${checkout}/bin/outpost cluster keys -out /root/keys -nats tls://127.0.0.1:4222 -server h1 -agent h1
    cp /root/keys/users.conf ${checkout}/systemd/nats/nats-server.conf /etc/nats/
    cp ${checkout}/systemd/nats/outpost-nats.service /etc/systemd/system/
    systemctl daemon-reload
    systemctl enable --now outpost-nats
    install -d /etc/outpost
    cp /root/keys/h1/cluster.* /etc/outpost/
    cp /etc/nats/server.crt /etc/outpost/nats-ca.crt
    ${checkout}/systemd/install.sh`)
  const log = () => machine.ok('journalctl', '-u', 'outpost', '-o', 'cat')
  await eventually(() => log().includes('connected to NATS'))
  assert.equal(machine.ok('systemctl', 'is-active', 'outpost', 'outpost-nats'), 'active\nactive')
  assert.equal(machine.ok('stat', '-c', '%a', '/etc/outpost/cluster.nk'), '600')

  // One more member: the server reloads and drops no connection.
  shell(`
    ${checkout}/bin/outpost cluster keys -out /root/keys -agent w1
    cp /root/keys/users.conf /etc/nats/
    systemctl reload outpost-nats`)
  shell('echo "users: nonsense {" >/etc/nats/users.conf')
  assert.notEqual(machine.run('systemctl', 'reload', 'outpost-nats').status, 0, 'a faulty list fails the reload')
  shell('cp /root/keys/users.conf /etc/nats/')
  assert.equal(machine.ok('systemctl', 'is-active', 'outpost-nats'), 'active')
  assert.ok(!log().includes('connection to NATS lost'))

  // A second server leaves the secrets core to the first.
  shell(`
    ${checkout}/bin/outpost cluster keys -out /root/keys -server h2
    cp /root/keys/users.conf /etc/nats/
    systemctl reload outpost-nats
    cp /root/keys/h1/cluster.hcl /etc/outpost/
    systemctl reload outpost
    install -d /etc/outpost-server
    cp /root/keys/h2/cluster.* /etc/outpost-server/
    cp /etc/nats/server.crt /etc/outpost-server/nats-ca.crt`)
  const installed = machine.ok(`${checkout}/systemd/install.sh`, '--role', 'server')
  assert.match(installed, /this server forwards requests for secrets/)
  assert.doesNotMatch(installed, /operator init/)
  assert.match(machine.ok('cat', '/etc/outpost-server/cluster.hcl'), /secrets = false/)
  await eventually(() => machine.ok('journalctl', '-u', 'outpost-server', '-o', 'cat').includes('connected to NATS'))
  const sealOf = (port: number) => machine.ok('curl', '-s', `http://127.0.0.1:${port}/v1/sys/seal-status`)
  await eventually(() => sealOf(4648).includes('"initialized":false'), 'the first server answers through the second')
  assert.equal(machine.run('test', '-e', '/var/lib/outpost-server/server/secrets.db').status, 1)

  machine.ok('systemctl', 'restart', 'outpost-nats')
  await eventually(() => log().split('"connected to NATS"').length === 3)
  assert.ok(!log().includes('NATS server denied permission'))
})
