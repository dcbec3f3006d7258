/**
 * `outpost operator diagnose`, as a process of its own: a healthy host with its service up and down, and one fault after the
 * other, each found by its check with what to do.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import {
  chmodSync,
  chownSync,
  copyFileSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { OUTPOST, start } from '../cli/outpost-process.ts'
import { runHere } from '../helpers/command-here.ts'
import { startAgent, workDirectory } from '../helpers/agent-process.ts'
import { makeCertificates } from '../helpers/certificates.ts'
import { eventually } from '../helpers/eventually.ts'
import { startNatsServer } from '../helpers/nats-server.ts'
import { permittedCluster } from '../helpers/permitted-cluster.ts'
import { quietPort } from '../helpers/quiet-port.ts'

interface Finding {
  readonly check: string
  readonly status: string
  readonly text: string
  readonly next?: string
}

interface Diagnosis {
  readonly code: number | null
  readonly stderr: string
  readonly findings: readonly Finding[]
  /** The findings of a check with that status. */
  readonly of: (check: string, status: string) => readonly Finding[]
}

const GROUPS = ['service', 'files', 'disk', 'ports', 'certificates', 'nats', 'clock', 'database', 'seal', 'versions']

/** All checks, or only those that are given. */
async function diagnose(
  config: string,
  only: readonly string[] = GROUPS.filter((name) => name !== 'clock'),
): Promise<Diagnosis> {
  const skips = GROUPS.filter((name) => !only.includes(name)).flatMap((name) => ['-skip', name])
  const args = ['operator', 'diagnose', '-config', config, '-json', ...skips]
  const { code, stderr, stdout } = await runHere(args, process.env)
  const { findings } = (stdout === '' ? { findings: [] } : JSON.parse(stdout)) as { findings: Finding[] }
  for (const { check, next, status } of findings) {
    assert.equal(next !== undefined && next !== '', status === 'warning' || status === 'failure', check)
  }
  return {
    code,
    stderr,
    findings,
    of: (check, status) => findings.filter((each) => each.check === check && each.status === status),
  }
}

interface Host {
  readonly directory: string
  readonly config: string
  readonly key: string
}

/** The configuration of an agent and server with a static seal; `more` is the rest of the file. */
async function hostOf(t: TestContext, more = '', server = ''): Promise<Host> {
  const directory = workDirectory(t)
  chmodSync(directory, 0o755)
  mkdirSync(join(directory, 'data'), { mode: 0o711 })
  const key = randomBytes(32).toString('hex')
  writeFileSync(join(directory, 'unseal.key'), key, { mode: 0o600 })
  const config = join(directory, 'host.hcl')
  writeFileSync(
    config,
    [
      `name = "host-1"\ndata_dir = "${directory}/data"\nports {\n http = ${await quietPort()}\n cluster = 0\n}`,
      `client { enabled = true }\nserver {\n enabled = true\n ${server}`,
      ` seal "static" {\n current_key_id = "k1"\n current_key = "file://${directory}/unseal.key"\n }\n}`,
      more,
    ].join('\n'),
  )
  return { directory, config, key }
}

/** Starts it, initializes its core, and resolves when it is ready. */
async function startHost(t: TestContext, { config }: Host) {
  const agent = await startAgent(t, ['-config', config])
  const env = { ...process.env, OUTPOST_ADDR: agent.url }
  const init = await runHere(['operator', 'init', '-force', '-recovery-shares=1', '-recovery-threshold=1'], env)
  assert.equal(init.code, 0, init.stderr)
  await eventually(
    async () => (await fetch(`${agent.url}/v1/agent/ready`)).status === 200,
    'it is ready',
    undefined,
    200,
  )
  return agent
}

/** Names, owners, modes and contents below a directory, and when they were changed. */
function stateOf(directory: string): unknown[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .toSorted()
    .map((name) => {
      const stats = statSync(join(directory, name))
      const changedMs = stats.isFile() ? stats.ctimeMs : 0
      return [name, stats.uid, stats.mode, stats.size, changedMs]
    })
}

test('a healthy host: 0 while the service runs and while it is stopped, and nothing is changed', async (t) => {
  const nats = await startNatsServer(t)
  const host = await hostOf(t, `nats { servers = ["${nats.url}"] }\nacl { enabled = false }`)
  const agent = await startHost(t, host)
  const up = await diagnose(host.config)
  assert.deepEqual(
    up.findings.filter(({ status }) => status === 'warning' || status === 'failure'),
    [],
  )
  assert.equal(up.code, 0, up.stderr)
  for (const check of [
    'configuration',
    'service',
    'files/state',
    'disk/space',
    'disk/fsync',
    'ports/http',
    'nats/login',
  ]) {
    assert.equal(up.of(check, 'ok').length, 1, check)
  }
  for (const check of [
    'nats/permissions',
    'database/secrets',
    'database/roster',
    'seal/key',
    'seal/stored',
    'seal/state',
  ]) {
    assert.equal(up.of(check, 'ok').length, 1, check)
  }
  assert.match(
    up.of('database/secrets', 'ok')[0]?.text ?? '',
    /in use, read without a check of its pages; cluster [0-9a-f-]{36}/,
  )

  await t.test('stopped: all pages are read, nothing is left behind', async () => {
    agent.child.kill('SIGTERM')
    await agent.ended
    const before = stateOf(join(host.directory, 'data'))
    const down = await diagnose(host.config)
    assert.deepEqual(
      down.findings.filter(({ status }) => status === 'warning' || status === 'failure'),
      [],
    )
    assert.equal(down.code, 0)
    assert.match(down.of('database/secrets', 'ok')[0]?.text ?? '', /all pages checked/)
    assert.match(down.of('ports/http', 'ok')[0]?.text ?? '', /is free$/)
    assert.equal(down.of('service', 'skipped').length, 1)
    assert.deepEqual(stateOf(join(host.directory, 'data')), before)
    assert.ok(!JSON.stringify(down.findings).includes(host.key))
  })

  await t.test('the table has a line for each finding, and what to do', async () => {
    writeFileSync(join(host.directory, 'unseal.key'), 'too short')
    const args = [
      'operator',
      'diagnose',
      '-config',
      host.config,
      ...GROUPS.filter((name) => name !== 'seal').flatMap((name) => ['-skip', name]),
    ]
    const { code, stdout } = await start(OUTPOST, args).finished
    assert.equal(code, 1)
    assert.match(stdout, /^\[ {2}ok {2}\] configuration: valid: agent and server "host-1" in region global$/m)
    assert.match(stdout, /^\[ skip \] disk: skipped \(-skip\)$/m)
    assert.match(
      stdout,
      /^\[failed\] seal\/key: the static seal key "k1" must have 32 bytes.*\n {9}next: provide the key, or correct server\.seal$/m,
    )
    assert.match(stdout, /\n\n1 failure, 0 warnings, \d+ ok, \d+ skipped\n$/)
    assert.ok(!stdout.includes('too short'))
  })
})

test('files: owners and modes', async (t) => {
  const host = await hostOf(t)
  const data = join(host.directory, 'data')
  mkdirSync(join(data, 'server'), { mode: 0o700 })
  mkdirSync(join(data, 'client'), { mode: 0o700 })
  writeFileSync(join(data, 'client/state.json'), '{}', { mode: 0o600 })
  assert.equal((await diagnose(host.config, ['files'])).code, 0)
  chmodSync(join(data, 'client/state.json'), 0o644)
  chmodSync(join(host.directory, 'unseal.key'), 0o644)
  chmodSync(host.config, 0o666)
  const { code, of } = await diagnose(host.config, ['files'])
  assert.equal(code, 1)
  assert.match(of('files/mode', 'failure')[0]?.next ?? '', /^chmod 0600 \S+\/client\/state\.json$/)
  assert.match(
    of('files/keys', 'failure')[0]?.text ?? '',
    /server\.seal current_key: \S+unseal\.key is readable by all users/,
  )
  assert.match(of('files/configuration', 'failure')[0]?.next ?? '', /^chmod o-w \S+host\.hcl$/)
  chmodSync(host.config, 0o644)
  chmodSync(join(data, 'client/state.json'), 0o600)
  rmSync(join(host.directory, 'unseal.key'))
  assert.match((await diagnose(host.config, ['files'])).of('files/keys', 'failure')[0]?.text ?? '', /does not exist$/)
  writeFileSync(join(host.directory, 'unseal.key'), host.key, { mode: 0o640 })
  const warned = await diagnose(host.config, ['files'])
  assert.deepEqual([warned.code, warned.of('files/keys', 'warning').length], [2, 1])
})

test('files of another user', { skip: process.getuid?.() !== 0 && 'needs root' }, async (t) => {
  const host = await hostOf(t)
  const server = join(host.directory, 'data/server')
  mkdirSync(server, { mode: 0o700 })
  writeFileSync(join(server, 'roster.db'), '', { mode: 0o600 })
  chownSync(join(host.directory, 'data'), 65_534, 65_534)
  chownSync(server, 65_534, 65_534)
  const { code, of } = await diagnose(host.config, ['files'])
  assert.equal(code, 1)
  assert.match(of('files/owner', 'failure')[0]?.text ?? '', /roster\.db$/)
  assert.match(of('files/owner', 'failure')[0]?.next ?? '', /^chown -h \S+: \S+roster\.db$/)
})

test('a key that the user of a server cannot read', { skip: process.getuid?.() !== 0 && 'needs root' }, async (t) => {
  const host = await hostOf(t)
  writeFileSync(host.config, readFileSync(host.config, 'utf8').replace('client { enabled = true }', ''))
  const key = join(host.directory, 'unseal.key')
  chownSync(join(host.directory, 'data'), 65_534, 65_534)
  const refused = await diagnose(host.config, ['files'])
  assert.equal(refused.code, 1)
  assert.match(refused.of('files/keys', 'failure')[0]?.text ?? '', /belongs to root, and nobody, .*, cannot read it$/)
  const next = refused.of('files/keys', 'failure')[0]?.next ?? ''
  assert.equal(next, `chgrp 65534 ${key} && chmod 0640 ${key}`)
  execFileSync('sh', ['-c', next])
  const { of } = await diagnose(host.config, ['files'])
  assert.deepEqual([of('files/keys', 'warning'), of('files/keys', 'ok').length], [[], 1])
})

test('ports: used by another process, and an address of another host', async (t) => {
  const other = createServer().listen(0, '127.0.0.1')
  t.after(() => other.close())
  await eventually(() => other.listening)
  const { port } = other.address() as AddressInfo
  const host = await hostOf(t)
  writeFileSync(host.config, readFileSync(host.config, 'utf8').replace(/ http = \d+/, ` http = ${port}`))
  const used = await diagnose(host.config, ['ports'])
  assert.equal(used.code, 1)
  assert.match(
    used.of('ports/http', 'failure')[0]?.text ?? '',
    new RegExp(`127\\.0\\.0\\.1:${port} is used by another process`),
  )
  assert.match(used.of('ports/http', 'failure')[0]?.next ?? '', new RegExp(`ss -ltnp sport = :${port}`))
  // TEST-NET-1: no host has it.
  writeFileSync(host.config, `bind_addr = "192.0.2.1"\n${readFileSync(host.config, 'utf8')}`)
  assert.match(
    (await diagnose(host.config, ['ports'])).of('ports/http', 'failure')[0]?.text ?? '',
    /is not an address of this host/,
  )
})

test('certificates: expired, of another key, for another name', async (t) => {
  const folder = workDirectory(t)
  if (!makeCertificates(folder, ['good'], ['old'])) return t.skip('no openssl')
  const tls = (cert: string, key: string, more = '') =>
    `tls {\n http = true\n cert_file = "${folder}/${cert}.pem"\n key_file = "${folder}/${key}.key"\n}\n${more}`
  const checked = async (more: string) => diagnose((await hostOf(t, more)).config, ['certificates'])
  const good = await checked(tls('good', 'good'))
  // Two days are left.
  assert.deepEqual([good.code, good.of('certificates/tls', 'warning').length], [2, 1])
  const old = await checked(tls('old', 'old'))
  assert.equal(old.code, 1)
  assert.match(old.of('certificates/tls', 'failure')[0]?.text ?? '', /old\.pem expired on /)
  const mixed = await checked(tls('good', 'old'))
  assert.match(mixed.of('certificates/tls', 'failure')[0]?.text ?? '', /old\.key is not the key of \S+good\.pem/)
  const named = await checked(tls('good', 'good', 'advertise { http = "host.example:4646" }'))
  assert.ok(
    named
      .of('certificates/tls', 'warning')
      .some(({ text }) => text.includes('not valid for the advertised address host.example')),
  )
  writeFileSync(join(folder, 'broken.pem'), 'no certificate')
  assert.match(
    (await checked(tls('broken', 'good'))).of('certificates/tls', 'failure')[0]?.text ?? '',
    /no certificate in PEM format/,
  )
})

test('NATS: nothing there, a wrong password, permissions of another node', async (t) => {
  const checked = async (more: string) => diagnose((await hostOf(t, more)).config, ['nats'])
  const nobody = await checked(`nats { servers = ["nats://127.0.0.1:${await quietPort()}"] }`)
  assert.equal(nobody.code, 1)
  assert.match(nobody.of('nats/login', 'failure')[0]?.text ?? '', /connection refused/)
  const folder = workDirectory(t)
  writeFileSync(join(folder, 'password'), 'a-wrong-password\n', { mode: 0o600 })
  const nats = await startNatsServer(t, 'authorization { user: "me", password: "the-right-one" }')
  const wrong = await checked(
    `nats {\n servers = ["${nats.url}"]\n user = "me"\n password_file = "${folder}/password"\n}`,
  )
  assert.match(wrong.of('nats/login', 'failure')[0]?.text ?? '', /login refused/)
  assert.ok(!JSON.stringify(wrong.findings).includes('a-wrong-password'))
  const secure = await startNatsServer(
    t,
    'authorization { users = [{ user: u, password: "the-right-one", permissions: { publish: "a.>", subscribe: "a.>" } }] }',
  )
  writeFileSync(join(folder, 'password'), 'the-right-one\n', { mode: 0o600 })
  const denied = await checked(
    `nats {\n servers = ["${secure.url}"]\n user = "u"\n password_file = "${folder}/password"\n}`,
  )
  assert.equal(denied.code, 1)
  const texts = denied.of('nats/permissions', 'failure').map(({ text }) => text)
  assert.ok(
    texts.some((text) => /subscription of outpost\.global\.roster\.\*\.\* is denied/i.test(text)),
    texts.join('\n'),
  )
  assert.ok(
    texts.some((text) => /publish of outpost\.global\.servers\.ask\.diagnose is denied/i.test(text)),
    texts.join('\n'),
  )
  assert.equal(denied.of('nats/login', 'ok').length, 1)
})

test('with the keys and permissions that are shipped, agents and servers may all that they need', async (t) => {
  const directory = workDirectory(t)
  const cluster = await permittedCluster(t, directory, ['-server', 's1', '-agent', 'web-1'])
  if (!cluster) return t.skip('no openssl')
  for (const name of ['s1', 'web-1']) {
    const folder = join(directory, `diagnosed-${name}`)
    mkdirSync(join(folder, 'data'), { recursive: true })
    copyFileSync(join(directory, 'keys', name, 'cluster.nk'), join(folder, 'cluster.nk'))
    chmodSync(join(folder, 'cluster.nk'), 0o600)
    const role =
      name === 's1'
        ? 'server { enabled = true }'
        : `client {\n enabled = true\n node_id = "${cluster.nodeIdOf(name)}"\n}`
    const nats = `nats {\n servers = ["${cluster.nats.url.replace('nats://', 'tls://')}"]\n nkey_file = "${folder}/cluster.nk"\n ca_file = "${directory}/ca.pem"\n}`
    writeFileSync(join(folder, 'c.hcl'), `name = "${name}"\ndata_dir = "${folder}/data"\n${role}\n${nats}\n`)
    const { code, findings, of } = await diagnose(join(folder, 'c.hcl'), ['nats'])
    assert.equal(of('nats/permissions', 'ok').length, 1, JSON.stringify(findings))
    // Its certificate lasts two days.
    assert.deepEqual([code, of('nats/certificate', 'warning').length], [2, 1], JSON.stringify(findings))
  }
})

test('clock: the times of nodes in their heartbeats, as a stopped server hears them', async (t) => {
  const nats = await startNatsServer(t)
  const host = await hostOf(t, `nats { servers = ["${nats.url}"] }`)
  const agentFolder = workDirectory(t)
  const agentConfig = join(agentFolder, 'a.hcl')
  mkdirSync(join(agentFolder, 'data'))
  writeFileSync(
    agentConfig,
    `name = "a"\ndata_dir = "${agentFolder}/data"\nports { http = 0 }\nclient { enabled = true }\nnats { servers = ["${nats.url}"] }\n`,
  )
  await startAgent(t, ['-config', agentConfig])
  // On a busy machine a heartbeat may come later than the diagnosis listens.
  const found = await eventually(async () => (await diagnose(host.config, ['clock'])).of('clock/skew', 'ok')[0])
  assert.match(found.text, /^1 clocks compared, at most \d+\.\d s apart$/)
})

test('a damaged database, a missing one, another seal, another version of the key', async (t) => {
  const host = await hostOf(t)
  const agent = await startHost(t, host)
  agent.child.kill('SIGTERM')
  await agent.ended
  const path = join(host.directory, 'data/server/secrets.db')
  assert.equal((await diagnose(host.config, ['database', 'seal'])).code, 0)
  await t.test('another seal', async () => {
    const text = readFileSync(host.config, 'utf8')
    writeFileSync(host.config, text.replace('"k1"', '"k2"'))
    const renamed = await diagnose(host.config, ['seal'])
    assert.match(renamed.of('seal/stored', 'failure')[0]?.text ?? '', /static key "k1", which is not configured/)
    writeFileSync(host.config, text.replace(/ seal "static" \{[^}]*\}/, ''))
    const shamir = await diagnose(host.config, ['seal'])
    assert.equal(shamir.code, 2)
    assert.match(
      shamir.of('seal/stored', 'warning')[0]?.text ?? '',
      /the database has a static seal, the configuration a shamir seal/,
    )
    writeFileSync(host.config, text)
  })
  await t.test('a page', async () => {
    const fd = openSync(path, 'r+')
    // The second page and those behind it, with rows and indexes.
    for (let page = 1; page < 5; page++) writeSync(fd, randomBytes(2000), 0, 2000, page * 4096 + 100)
    const damaged = await diagnose(host.config, ['database'])
    assert.equal(damaged.code, 1)
    assert.match(
      damaged.of('database/secrets', 'failure')[0]?.next ?? '',
      /outpost operator snapshot restore -new FILE$/,
    )
  })
  await t.test('the file', async () => {
    rmSync(path)
    const missing = await diagnose(host.config, ['database'])
    assert.match(missing.of('database/secrets', 'failure')[0]?.text ?? '', /is missing, but this server had one$/)
  })
})

test('a service that is not ready, and configurations that are none', async (t) => {
  const host = await hostOf(t)
  const agent = await startAgent(t, ['-config', host.config])
  const sealed = await diagnose(host.config, ['service', 'seal'])
  assert.equal(sealed.code, 1)
  assert.match(sealed.of('service/seal', 'failure')[0]?.next ?? '', /^outpost operator init/)
  assert.match(sealed.of('service', 'ok')[0]?.text ?? '', new RegExp(`running at ${agent.url}, not ready`))
  writeFileSync(join(host.directory, 'bad.hcl'), 'name = 3\nunknown_setting = true\n')
  const bad = await diagnose(join(host.directory, 'bad.hcl'))
  assert.equal(bad.code, 1)
  const faults = bad.of('configuration', 'failure').map(({ text }) => text)
  assert.ok(
    faults.some((text) => /bad\.hcl:2:1: .*unknown_setting/.test(text)),
    faults.join('\n'),
  )
  assert.ok(bad.findings.filter(({ status }) => status === 'skipped').length >= GROUPS.length - 1)
  assert.equal((await diagnose(join(host.directory, 'none.hcl'))).code, 1)
  for (const args of [['-skip', 'everything', '-config', host.config], ['-unknown'], ['x']]) {
    const { code, stdout } = await start(OUTPOST, ['operator', 'diagnose', ...args]).finished
    assert.deepEqual([code, stdout], [3, ''], args.join(' '))
  }
})
