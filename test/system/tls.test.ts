/** HTTPS: who may connect, and certificates that are replaced while the agent runs. */
import assert from 'node:assert/strict'
import { chmodSync, copyFileSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { connect, type ConnectionOptions } from 'node:tls'
import { spawnAgent, startAgent, workDirectory, writeConfig } from '../helpers/agent-process.ts'
import { agentHere } from '../helpers/agent-here.ts'
import { runHere } from '../helpers/command-here.ts'
import { makeCertificates } from '../helpers/certificates.ts'
import { MessageClient } from '../helpers/message-client.ts'
import { type Heard, raw } from '../helpers/raw-http.ts'
import { ALLOC, makeAllocation } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const RELOAD = 'PUT /v1/agent/reload HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'
const ask = (path: string) => `GET ${path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`
const ASK = ask('/v1/client/metadata')

function tlsBlock(directory: string, more: string): string {
  return `tls {\n http = true\n cert_file = "${directory}/server.pem"\n key_file = "${directory}/server.key"\n ca_file = "${directory}/ca.pem"\n ${more}\n}`
}

/** The agent is in this process unless `start` makes it a process of its own. */
async function prepare<Agent>(t: TestContext, more: string, start: (t: TestContext, args: string[]) => Promise<Agent>) {
  const directory = workDirectory(t)
  if (!makeCertificates(directory, ['first', 'second', 'client'], ['expired'])) return undefined
  const use = (name: string) => {
    for (const kind of ['pem', 'key'])
      copyFileSync(join(directory, `${name}.${kind}`), join(directory, `server.${kind}`))
  }
  use('first')
  const file = (name: string) => readFileSync(join(directory, name))
  const configure = (extra: string) => writeConfig(directory, `acl { enabled = false }\n${tlsBlock(directory, extra)}`)
  const agent = await start(t, ['-config', configure(more)])
  return { directory, use, file, agent, configure }
}

test('client certificates are verified over https', async (t) => {
  const setup = await prepare(t, 'verify_https_client = true', agentHere)
  if (!setup) return t.skip('needs openssl')
  const { agent, file } = setup
  assert.match(agent.url, /^https:/)
  const call = (tls: ConnectionOptions): Promise<Heard> =>
    raw({ port: agent.port, tls: { ca: file('ca.pem'), ...tls } }, ASK)
  assert.match((await call({ cert: file('client.pem'), key: file('client.key') })).text, /^HTTP\/1.1 200/)
  assert.equal((await call({})).text, '', 'no certificate')
  assert.equal((await call({ cert: file('stranger.pem'), key: file('stranger.key') })).text, '', 'a stranger')
  assert.equal((await call({ cert: file('expired.pem'), key: file('expired.key') })).text, '', 'an expired certificate')
  assert.equal((await raw({ port: agent.port }, ASK)).text.includes(' 200 '), false, 'no TLS')
  const old = await call({
    cert: file('client.pem'),
    key: file('client.key'),
    maxVersion: 'TLSv1.1',
    minVersion: 'TLSv1',
  })
  assert.equal(old.text, '', 'an old version')
  assert.match((await call({ cert: file('client.pem'), key: file('client.key') })).text, /^HTTP\/1.1 200/)
})

test('a WebSocket over TLS works', async (t) => {
  const setup = await prepare(t, '', agentHere)
  if (!setup) return t.skip('needs openssl')
  const { agent, directory, file } = setup
  makeAllocation(join(directory, 'data/alloc'), ALLOC)
  const path = `/v1/client/fs/logs/${ALLOC}?task=web`
  const tls = { ca: file('ca.pem') }
  const known = async () => (await raw({ port: agent.port, tls }, ask(path))).text.includes('200 OK')
  await eventually(known, 'the agent knows the allocation')
  const whole = new MessageClient({ port: agent.port, path, tls })
  assert.deepEqual(await whole.close(), { code: 1000, reason: '' })
  assert.match(whole.texts.join(), /"File":"alloc\/logs\/web\.stdout\.0"/)
  const follow = new MessageClient({ port: agent.port, path: `${path}&follow=true`, tls })
  await follow.until('heartbeats', ({ texts }) => texts.filter((text) => text === '{}').length > 1)
  const stopped = agent.stop()
  assert.equal((await follow.close()).code, 1001)
  follow.farewell()
  await stopped
})

/** Common name of the certificate that the agent shows. */
function escapeLine(port: number, ca: Buffer): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', ca }, () => {
      resolve(String(socket.getPeerCertificate().subject.CN))
      socket.destroy()
    })
    socket.on('error', reject)
  })
}

test('a new certificate is used after SIGHUP, and an invalid one is refused', async (t) => {
  const setup = await prepare(t, '', startAgent)
  if (!setup) return t.skip('needs openssl')
  const { agent, directory, file, use } = setup
  const ca = file('ca.pem')
  const reload = async (said: string) => {
    const from = agent.stderr().length
    agent.child.kill('SIGHUP')
    await eventually(() => agent.stderr().slice(from).includes(said), said)
  }
  assert.equal(await escapeLine(agent.port, ca), 'first')
  use('second')
  assert.equal(await escapeLine(agent.port, ca), 'first', 'nothing changes by itself')
  await reload('configuration reloaded')
  assert.equal(await escapeLine(agent.port, ca), 'second')
  assert.match(agent.stderr(), /configuration reloaded.*tls\.cert_file/)
  const broken = [
    ['server.pem', 'not a certificate'],
    ['server.pem', file('first.pem')],
    ['server.pem', ''],
    ['server.key', ''],
    ['ca.pem', ''],
  ] as const
  for (const [name, content] of broken) {
    use('second')
    writeFileSync(join(directory, name), content)
    await reload('the old configuration stays in effect')
    assert.equal(await escapeLine(agent.port, ca), 'second')
  }
  use('second')
  writeFileSync(join(directory, 'ca.pem'), ca)
  setup.configure('verify_https_client = true')
  await reload('require a restart')
  assert.ok(!agent.stderr().includes('PRIVATE KEY'))
})

test('expiring certificates are reported in the log, metrics, validate and errors of commands', async (t) => {
  const directory = workDirectory(t)
  if (!makeCertificates(directory, ['soon'], ['expired'])) return t.skip('needs openssl')
  const use = (name: string) => {
    for (const kind of ['pem', 'key'])
      copyFileSync(join(directory, `${name}.${kind}`), join(directory, `server.${kind}`))
  }
  use('soon')
  const config = writeConfig(directory, `acl { enabled = false }\n${tlsBlock(directory, '')}`)
  const agent = await agentHere(t, ['-config', config])
  const logged = (message: string) =>
    agent
      .stderr()
      .split('\n')
      .filter((line) => line.includes(`"@message":"${message}"`))
  const trust = () => ({ ca: readFileSync(join(directory, 'ca.pem')), rejectUnauthorized: false })
  const metrics = async () => (await raw({ port: agent.port, tls: trust() }, ask('/v1/metrics?format=prometheus'))).text
  const warnings = async () => {
    const { text } = await raw({ port: agent.port, tls: trust() }, ask('/v1/agent/ready'))
    const { warnings: all } = JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1)) as {
      readonly warnings: readonly string[]
    }
    return all
  }
  const env = { OUTPOST_CACERT: join(directory, 'ca.pem') }
  await eventually(() => logged('certificate expires soon').length > 0, 'the log names it')
  const [soon, ...more] = logged('certificate expires soon')
  assert.match(
    soon ?? '',
    /"@level":"warn".*"certificate":"http","file":".*server\.pem","not_after":"\d{4}-.*","days_left":1\b/,
  )
  assert.deepEqual(more, [])
  assert.match(await metrics(), /^outpost_certificate_days_left\{[^}]*certificate="http"[^}]*\} (?:1\.9\d|2)$/m)
  assert.match((await warnings()).join(), /^certificate "http" expires in 1 day, on \d{4}-/)
  const valid = await runHere(['validate', config], env)
  assert.equal(valid.code, 0)
  assert.match(valid.stderr, /^warning: tls\.cert_file: the certificate in .*server\.pem expires in 1 day, on \d{4}-/m)
  use('expired')
  assert.ok(!(await metrics()).includes('days_left{certificate="http"} -'), 'a file that is not in use does not count')
  agent.reload()
  await eventually(() => logged('certificate expired').length === 1, 'the log names it')
  assert.match(await metrics(), /^outpost_certificate_days_left\{[^}]*certificate="http"[^}]*\} -1(?:\.\d+)?$/m)
  assert.match(logged('certificate expired')[0] ?? '', /"days_left":-1\b/, 'as in the metric')
  assert.match((await warnings()).join(), /^certificate "http" expired on \d{4}-/)
  assert.match((await runHere(['validate', config], env)).stderr, /server\.pem expired on \d{4}-/)
  const refused = await runHere(['node', 'status', '-address', agent.url], env)
  assert.equal(refused.code, 1)
  assert.match(refused.stderr, /the certificate of https:\S+ has expired \(CERT_HAS_EXPIRED\): renew it on the server/)
})

/** One connection that asks over and over; resolves with how many answers it got once `over` says so. */
function askOverAndOver(port: number, ca: Buffer, over: () => boolean): Promise<number> {
  return new Promise((resolve, reject) => {
    const request = 'GET /v1/agent/health HTTP/1.1\r\nHost: localhost\r\n\r\n'
    let answers = 0
    let text = ''
    const socket = connect({ port, host: '127.0.0.1', ca }, () => socket.write(request))
    socket.setEncoding('utf8').on('data', (more: string) => {
      text += more
      if (!text.endsWith('{"client":{"message":"ok","ok":true}}')) return
      if (!text.startsWith('HTTP/1.1 200')) return reject(new Error(text))
      text = ''
      answers++
      if (over()) resolve(answers)
      else socket.write(request)
      if (over()) socket.destroy()
    })
    socket.on('error', reject)
    socket.on('close', () => reject(new Error('closed')))
  })
}

test('no request fails while certificates are replaced, and new connections use the new one', async (t) => {
  const setup = await prepare(t, '', agentHere)
  if (!setup) return t.skip('needs openssl')
  const { agent, file, use } = setup
  const ca = file('ca.pem')
  const load = { over: false, fresh: 0 }
  const kept = Array.from({ length: 40 }, () => askOverAndOver(agent.port, ca, () => load.over))
  const coming = Array.from({ length: 4 }, async () => {
    for (; !load.over; load.fresh++) await askOverAndOver(agent.port, ca, () => true)
  })
  for (let turn = 0; turn < 10; turn++) {
    const name = turn % 2 === 0 ? 'second' : 'first'
    use(name)
    const answer = await raw({ port: agent.port, tls: { ca } }, RELOAD)
    assert.match(answer.text, /^HTTP\/1.1 200/)
    assert.equal(await escapeLine(agent.port, ca), name)
    const before = load.fresh
    await eventually(() => load.fresh > before + 4, 'new connections are served')
  }
  load.over = true
  const answers = await Promise.all(kept)
  await Promise.all(coming)
  assert.ok(answers.every((count) => count > 10))
})

test('a TLS file that cannot be used: validate and the start report the same, with its line', async (t) => {
  const directory = workDirectory(t)
  if (!makeCertificates(directory, ['host', 'other'])) return t.skip('needs openssl')
  const at = (name: string) => join(directory, name)
  writeFileSync(at('text.pem'), 'not a certificate\n')
  const started = async (config: string) => {
    try {
      await agentHere(t, ['-config', config])
      return 'it has started'
    } catch (error) {
      return String(error)
    }
  }
  const block = (name: string, [cert, key, ca]: readonly string[]) => {
    const first = name === 'tls' ? 'http = true' : 'servers = ["tls://127.0.0.1:1"]'
    const files = [`cert_file = "${at(cert ?? '')}"`, `key_file = "${at(key ?? '')}"`, `ca_file = "${at(ca ?? '')}"`]
    return `acl { enabled = false }\n${name} {\n  ${[first, ...files].join('\n  ')}\n}`
  }
  const cases = [
    [
      ['none.pem', 'host.key', 'ca.pem'],
      /:7:15: (\w+)\.cert_file cannot be read: \S+none\.pem does not exist: correct/,
    ],
    [['host.pem', 'none.key', 'ca.pem'], /:8:14: (\w+)\.key_file cannot be read: \S+none\.key does not exist/],
    [['host.pem', 'host.key', '.'], /:9:13: (\w+)\.ca_file cannot be read: \S+ is not a regular file/],
    [['host.pem', 'other.key', 'ca.pem'], /:8:14: (\w+)\.key_file: \S+other\.key is not the key of .*host\.pem/],
    [['text.pem', 'host.key', 'ca.pem'], /:7:15: (\w+)\.cert_file: \S+text\.pem contains no certificate, expected/],
    [['host.pem', 'text.pem', 'ca.pem'], /:8:14: (\w+)\.key_file: \S+text\.pem contains no private key, expected/],
    [['host.pem', 'host.key', 'text.pem'], /:9:13: (\w+)\.ca_file: \S+text\.pem contains no certificate/],
  ] as const
  for (const name of ['tls', 'nats']) {
    for (const [files, text] of cases) {
      const config = writeConfig(directory, block(name, files))
      const { code, stderr } = await runHere(['validate', config], {})
      assert.equal(code, 1, stderr)
      assert.equal(text.exec(stderr)?.[1], name, stderr)
      assert.ok((await started(config)).includes(stderr.trim()), stderr)
    }
    assert.equal(
      (await runHere(['validate', writeConfig(directory, block(name, ['host.pem', 'host.key', 'ca.pem']))], {})).code,
      0,
    )
  }
  const missing = spawnAgent(t, ['-config', writeConfig(directory, block('tls', ['none.pem', 'host.key', 'ca.pem']))])
  assert.equal(await missing.ended, 78, 'systemd does not start it again')
  assert.match(missing.stderr(), /agent\.hcl:7:15: tls\.cert_file cannot be read/)
})

test('a TLS file that is not readable for the user of the process', async (t) => {
  if (process.getuid?.() !== 0) return t.skip('needs root: root reads every file')
  const directory = workDirectory(t)
  if (!makeCertificates(directory, ['host'])) return t.skip('needs openssl')
  chmodSync(join(directory, 'host.key'), 0o600)
  const files = `cert_file = "${directory}/host.pem"\n key_file = "${directory}/host.key"`
  const config = writeConfig(directory, `acl { enabled = false }\ntls {\n http = true\n ${files}\n}`)
  const agent = spawnAgent(t, ['-config', config], { uid: 65_534 })
  assert.equal(await agent.ended, 78)
  assert.match(
    agent.stderr(),
    /agent\.hcl:8:13: tls\.key_file cannot be read: permission denied for \S+host\.key: let the user with uid 65534 read it/,
  )
})

test('a credential of the service is a warning of validate, and required at the start', async (t) => {
  const directory = workDirectory(t)
  const place = '/run/credentials/outpost-none.service'
  const files = `cert_file = "${place}/tls.crt"\n key_file = "${place}/tls.key"`
  const config = writeConfig(directory, `acl { enabled = false }\ntls {\n http = true\n ${files}\n}`)
  const { code, stderr } = await runHere(['validate', config], {})
  assert.equal(code, 0, stderr)
  assert.match(
    stderr,
    /^warning: \S+agent\.hcl:7:14: tls\.cert_file: \S+ is not checked, only the service can read it/m,
  )
  await assert.rejects(
    agentHere(t, ['-config', config]),
    /tls\.key_file cannot be read: .* does not exist: add LoadCredential=/,
  )
})
