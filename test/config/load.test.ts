import assert from 'node:assert/strict'
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import type { SettingFields } from '../../src/config/fields.ts'
import { parseHcl } from '../../src/config/hcl.ts'
import type { ObjectNode } from '../../src/config/hcl.ts'
import { ConfigError, loadConfig } from '../../src/config/load.ts'
import type { LoadOptions } from '../../src/config/load.ts'
import { SCHEMA } from '../../src/config/schema.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const FIXTURES = join(ROOT, 'fixtures', 'config')
const SHA256 = 'd9310c002af91822beb0b3487d8b04f85bf6bf1f8a5496bff7d35fc7c5a29def'
const folder = mkdtempSync(join(tmpdir(), 'outpost-load-'))
after(() => rmSync(folder, { recursive: true, force: true }))

let made = 0
/** A new directory with these files. */
function directory(files: Readonly<Record<string, string | Buffer>>): string {
  const path = join(folder, String(made++))
  mkdirSync(path)
  for (const [name, text] of Object.entries(files)) writeFileSync(join(path, name), text)
  return path
}

const fixture = (name: string) => join(FIXTURES, name)
const load = (paths: readonly string[], options: Partial<LoadOptions> = {}) =>
  loadConfig({ paths, hostname: 'worker-1', ...options })

/** The fault lines, with the directory of the files cut off. */
function faultsOf(paths: readonly string[], options: Partial<LoadOptions> = {}): string[] {
  try {
    load(paths, options)
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error))
    return error.message.split('\n').map((line) => line.replace(/^\/.*\/(?=[^/]+?(:|$))/, ''))
  }
  return []
}

const WITHOUT_TLS = /:\d+:\d+: nats\.servers: nats:\/\/10\.0\.0\.1:4222 without TLS: /

const REPLICATION = {
  sync: false,
  syncTimeoutMs: 5000,
  fenceAfterMs: 0,
  bufferLength: 65_536,
  bufferBytes: 268_435_456,
  bandwidthBytes: 0,
}

test('loads a typical server file', () => {
  const { config, warnings } = load([fixture('server.hcl')])
  assert.equal(config.name, 's1')
  assert.deepEqual(config.ports, { http: 4646, cluster: 4647 })
  assert.deepEqual(config.nats, { servers: ['nats://10.0.0.1:4222'] })
  assert.deepEqual(config.server, {
    enabled: true,
    storagePath: '/var/lib/outpost/server/secrets.db',
    secrets: true,
    auditDirectories: ['/var/lib/outpost/audit', '/var/log/outpost'],
    disableUnauthedRekeyEndpoints: true,
    disableUnauthedGenerateRootEndpoints: true,
    replication: REPLICATION,
    ha: { enabled: false, replicas: 3 },
    seal: { type: 'shamir', settings: {} },
  })
  assert.equal(config.client.enabled, false)
  assert.equal(config.acl.enabled, true)
  assert.equal(warnings.length, 1)
  assert.match(warnings[0] ?? '', WITHOUT_TLS)
})

test('loads a typical agent file', () => {
  const { config, warnings } = load([fixture('agent.hcl')])
  assert.equal(config.name, 'worker-1')
  assert.equal(config.addresses.http, '0.0.0.0')
  assert.deepEqual(config.client.meta, { rack: 'r1' })
  assert.equal(config.nats?.credentialsFile, '/etc/outpost/agent.creds')
  assert.deepEqual(config.tls, {
    http: true,
    certFile: '…',
    keyFile: '…',
    verifyHttpsClient: false,
    minVersion: 'TLSv1.2',
  })
  assert.equal(warnings.length, 1)
  assert.match(warnings[0] ?? '', WITHOUT_TLS)
})

test('empty blocks result in all defaults', () => {
  const { config } = load([fixture('empty-blocks.hcl')])
  assert.deepEqual(config, {
    dev: false,
    region: 'global',
    datacenter: 'dc1',
    name: 'worker-1',
    dataDir: '/var/lib/outpost',
    bindAddr: '127.0.0.1',
    ports: { http: 4646, cluster: 4647 },
    addresses: { http: '127.0.0.1', cluster: '127.0.0.1' },
    advertise: {},
    logLevel: 'info',
    logPaths: 'hashed',
    enableDebug: false,
    httpApiResponseHeaders: {},
    httpAllowedHosts: [],
    acl: { enabled: true, tokens: [], tokenTtlMs: 30_000, policyTtlMs: 30_000, roleTtlMs: 30_000 },
    tls: { http: false, verifyHttpsClient: false, minVersion: 'TLSv1.2' },
    ui: { enabled: true },
    limits: {
      httpMaxConnsPerClient: 1024,
      httpMaxFollowers: 2000,
      httpMaxHeaderBytes: 16_384,
      httpMaxBodyBytes: 33_554_432,
      httpHeadTimeoutMs: 10_000,
      httpRequestTimeoutMs: 90_000,
      httpIdleTimeoutMs: 120_000,
      httpStallTimeoutMs: 300_000,
      httpsHandshakeTimeoutMs: 5000,
    },
    logRotate: { bytes: 0, durationMs: 86_400_000, maxFiles: 0 },
    telemetry: {
      collectionIntervalMs: 1000,
      prometheusMetrics: true,
      publishNodeMetrics: true,
      publishAllocationMetrics: true,
      disableHostname: false,
      prefixFilter: [],
      filterDefault: true,
    },
    client: {
      enabled: true,
      allocDir: '/var/lib/outpost/alloc',
      stateDir: '/var/lib/outpost/client',
      nodeClass: '',
      nodePool: 'default',
      meta: {},
      gcIntervalMs: 60_000,
      gcDiskUsageThreshold: 80,
      gcInodeUsageThreshold: 70,
      gcMaxAllocs: 50,
      gcParallelDestroys: 2,
    },
    server: {
      enabled: false,
      storagePath: '/var/lib/outpost/server/secrets.db',
      secrets: true,
      auditDirectories: ['/var/lib/outpost/audit', '/var/log/outpost'],
      disableUnauthedRekeyEndpoints: true,
      disableUnauthedGenerateRootEndpoints: true,
      replication: REPLICATION,
      ha: { enabled: false, replicas: 3 },
      seal: { type: 'shamir', settings: {} },
    },
    nats: { servers: ['nats://127.0.0.1:4222'] },
  })
})

test('the result is deeply frozen', () => {
  const { config } = load([fixture('standalone-tokens.hcl')])
  const stack: unknown[] = [config]
  while (stack.length > 0) {
    const value = stack.pop()
    if (typeof value !== 'object' || value === null) continue
    assert.ok(Object.isFrozen(value))
    stack.push(...Object.values(value))
  }
})

test('dev mode has both roles, loopback only, no ACL and late garbage collection', () => {
  const { config, warnings } = load([], { dev: true, flags: { dataDir: '/tmp/x' } })
  assert.deepEqual(
    [config.dev, config.client.enabled, config.server.enabled, config.acl.enabled],
    [true, true, true, false],
  )
  assert.equal(config.addresses.http, '127.0.0.1')
  assert.equal(config.nats, undefined)
  const { gcIntervalMs, gcDiskUsageThreshold, gcInodeUsageThreshold, gcMaxAllocs } = config.client
  assert.deepEqual([gcIntervalMs, gcDiskUsageThreshold, gcInodeUsageThreshold, gcMaxAllocs], [600_000, 99, 99, 50])
  assert.deepEqual(warnings, [])
  assert.deepEqual(faultsOf([], { dev: true }), ['data_dir is required: it stores state and allocations'])
  const beyond = directory({ 'a.hcl': 'bind_addr = "0.0.0.0"' })
  assert.deepEqual(faultsOf([beyond], { dev: true, flags: { dataDir: '/tmp/x' } }), [
    'a.hcl:1:13: -dev listens on loopback only, not on 0.0.0.0',
  ])
})

test('flags override files', () => {
  const flags = {
    httpPort: 0,
    clusterPort: 7,
    dataDir: '/srv/x',
    nodeId: '6F1C0E5A-7F0B-4C0E-9D5C-2F3B8A4D1E77',
    logLevel: 'DEBUG',
  }
  const { config } = load([fixture('agent.hcl')], { flags })
  assert.deepEqual(config.ports, { http: 0, cluster: 7 })
  assert.equal(config.client.allocDir, '/srv/x/alloc')
  assert.equal(config.client.nodeId, '6f1c0e5a-7f0b-4c0e-9d5c-2f3b8a4d1e77')
  assert.equal(config.logLevel, 'debug')
  assert.deepEqual(config.client.meta, { rack: 'r1' })
  assert.deepEqual(
    faultsOf([fixture('agent.hcl')], { flags: { httpPort: -1, dataDir: 'x', nodeId: 'n', logLevel: 'loud' } }),
    [
      '-http-port: ports.http: expected a whole number from 0 to 65535, got -1',
      '-data-dir: data_dir must be given as an absolute path: got x',
      '-node-id: client.node_id: expected a UUID',
      '-log-level: log_level: expected one of trace, debug, info, warn, error',
    ],
  )
})

const token = (name: string, digit: string) =>
  `acl { token "${name}" { sha256 = "${digit.repeat(64)}" policy = "node { policy = \\"read\\" }" } }`

test('later files override earlier ones; maps are merged by key, tokens are appended', () => {
  const first = `data_dir = "/a" client { enabled = true node_class = "one" meta { rack = "r1" zone = "z1" } } ${token('a', 'a')}`
  const second = `client { node_class = "two" meta { rack = "r2" } } ports { http = 1 } server { seal "static" { current_key_id = "k" current_key = "file:///k" } } ${token('b', 'b')}`
  const dir = directory({ '1.hcl': first, '2.hcl': second })
  for (const paths of [[dir], [join(dir, '1.hcl'), join(dir, '2.hcl')]]) {
    const { config } = load(paths)
    assert.equal(config.client.nodeClass, 'two')
    assert.deepEqual(config.client.meta, { rack: 'r2', zone: 'z1' })
    assert.deepEqual(
      config.acl.tokens.map(({ name }) => name),
      ['a', 'b'],
    )
    assert.deepEqual(config.ports, { http: 1, cluster: 4647 })
    assert.deepEqual(config.server.seal, {
      type: 'static',
      settings: { current_key_id: 'k', current_key: 'file:///k' },
    })
  }
  assert.equal(load([join(dir, '2.hcl'), join(dir, '1.hcl')]).config.client.nodeClass, 'one')
})

test('reads the *.hcl and *.json files of a directory in order', () => {
  const dir = directory({
    'b.json': '{"name": "from-b"}',
    'a.hcl': 'data_dir = "/a" client { enabled = true } name = "from-a"',
    'a.hcl~': 'not read',
    '.#a.hcl': 'not read',
    '#a.hcl#': 'not read',
    '.a.hcl': 'not read',
    'a.hcl.swp': 'not read',
    notes: 'not read',
  })
  mkdirSync(join(dir, 'sub.hcl'))
  writeFileSync(join(dir, 'sub.hcl', 'x.hcl'), 'not read')
  assert.equal(load([dir]).config.name, 'from-b')
  symlinkSync(fixture('agent.json'), join(dir, 'c.json'))
  assert.equal(load([dir]).config.ports.http, 5646)
  const empty = directory({})
  assert.deepEqual(
    load([dir, empty]).warnings.filter((line) => line.startsWith(empty)),
    [`${empty}: no *.hcl or *.json file in this directory`],
  )
})

test('a JSON file results in the same configuration', () => {
  const { config } = load([fixture('agent.json')])
  assert.deepEqual(config.ports, { http: 5646, cluster: 5647 })
  assert.deepEqual(config.client.meta, { rack: 'r1', slots: '4', ssd: 'true' })
  assert.deepEqual(config.acl.tokens, [{ name: 'ops', sha256: SHA256, policy: 'node { policy = "read" }' }])
})

test('loads the tokens of a standalone agent', () => {
  const { config, warnings } = load([fixture('standalone-tokens.hcl')])
  assert.deepEqual(config.acl.tokens, [
    { name: 'ops', sha256: SHA256, policy: 'node { policy = "write" }\nnamespace "*" { policy = "write" }\n' },
  ])
  assert.equal(config.acl.anonymousPolicy, 'node { policy = "read" }')
  assert.deepEqual(warnings, [])
})

test('an unreadable file is a fault, and the other files are still checked', () => {
  const dir = directory({
    'big.hcl': Buffer.alloc((4 << 20) + 1, 32),
    'latin.hcl': Buffer.from([0x61, 0xe9]),
    'late.hcl': 'nam = 1',
  })
  assert.deepEqual(faultsOf([dir, '/no/such/file.hcl', fixture('bad-syntax.hcl')]), [
    'big.hcl: larger than 4 MiB',
    'late.hcl:1:1: unknown key "nam", did you mean "name"?',
    'latin.hcl: not UTF-8 text',
    'file.hcl: no such file or directory',
    'bad-syntax.hcl:4:1: expected `}` to close what was opened at 2:8',
  ])
  const closed = directory({ 'a.hcl': '' })
  chmodSync(join(closed, 'a.hcl'), 0)
  if (process.getuid?.() !== 0) assert.deepEqual(faultsOf([join(closed, 'a.hcl')]), ['a.hcl: permission denied'])
})

/** Dotted names of every setting of a schema. */
function settingsOf(fields: SettingFields, prefix = ''): string[] {
  return Object.entries(fields).flatMap(([name, field]) =>
    field.inner ? settingsOf(field.inner, `${prefix}${name}.`) : [`${prefix}${name}`],
  )
}

function keysOf(node: ObjectNode, prefix = ''): string[] {
  return node.entries.flatMap(({ key, value }) => [
    `${prefix}${key}`,
    ...(value.kind === 'object' ? keysOf(value, `${prefix}${key}.`) : []),
  ])
}

test('the example names every setting and loads without a fault', () => {
  const file = join(ROOT, 'agent.hcl.example')
  const { config } = load([file])
  const { config: defaults } = load([fixture('empty-blocks.hcl')])
  const { nats: _, ...without } = defaults
  assert.deepEqual(config, without, 'the values that it shows are the defaults')

  const text = readFileSync(file, 'utf8')
  const opened = text.replaceAll(/^(\s*)#(?=[A-Za-z}])/gm, '$1')
  const dir = directory({ 'opened.hcl': opened })
  assert.equal(load([dir]).config.acl.tokens[0]?.name, 'ops')
  const named = new Set(keysOf(parseHcl(text.replaceAll(/^(\s*)#+(?=[A-Za-z}])/gm, '$1'))))
  assert.deepEqual(
    settingsOf(SCHEMA.inner ?? {}).filter((name) => !named.has(name)),
    [],
  )
})

const secretsOf = (settings: string, more = 'nats { servers = ["nats://127.0.0.1"] }') => [
  join(
    directory({ 'login.hcl': `data_dir = "/d"\nclient { enabled = true }\n${more}\nsecrets {\n${settings}\n}\n` }),
    'login.hcl',
  ),
]
const LOGIN = 'role_id = "r"\nsecret_id_file = "/s"'

test('loads the login of an agent', () => {
  assert.deepEqual(load(secretsOf(LOGIN)).config.secrets, {
    role: { mount: 'auth/approle', roleId: 'r', secretIdFile: '/s' },
  })
  const all = [
    'role_id_file = "/r"\nsecret_id_file = "/s"\nmount = "teams/approle"\naddress = "https://s1:4646"',
    'secret_id_response_wrapping_path = "auth/approle/role/web/secret-id"',
    'ca_file = "/ca"\ncert_file = "/c"\nkey_file = "/k"',
  ]
  assert.deepEqual(load(secretsOf(all.join('\n'), '')).config.secrets, {
    role: {
      mount: 'auth/teams/approle',
      roleId: { file: '/r' },
      secretIdFile: '/s',
      wrappingPath: 'auth/approle/role/web/secret-id',
    },
    address: { url: 'https://s1:4646', caFile: '/ca', certFile: '/c', keyFile: '/k' },
  })
  const warned = (address: string) => load(secretsOf(`${LOGIN}\naddress = "${address}"`, '')).warnings.join()
  assert.match(
    warned('http://10.0.0.1:4646'),
    /secrets\.address http:\/\/10\.0\.0\.1:4646 without TLS: .* the secret ID/,
  )
  for (const address of ['http://127.0.0.1:4646', 'http://[::1]:1', 'https://s1']) {
    assert.ok(!warned(address).includes('secrets'), address)
  }
})

test('reports the faults of the login of an agent', () => {
  const said = (settings: string, more?: string) => faultsOf(secretsOf(settings, more)).join('\n')
  assert.match(
    said('mount = "approle"'),
    /login\.hcl:5:9: secrets needs role_id or role_id_file\n.*secrets needs secret_id_file/,
  )
  assert.match(
    said(`${LOGIN}\nrole_id_file = "/r"`),
    /login\.hcl:7:16: secrets: set only one of role_id and role_id_file/,
  )
  assert.match(said(LOGIN, ''), /secrets needs an address, or a nats block/)
  assert.match(
    said(`${LOGIN}\ncert_file = "/c"\naddress = "https://s1"`),
    /cert_file and secrets\.key_file must be set together/,
  )
  assert.match(said(`${LOGIN}\nca_file = "/c"`), /are for an address with https/)
  assert.match(
    said('role_id = "r"\nsecret_id_file = "s"'),
    /secrets\.secret_id_file must be given as an absolute path: got s$/,
  )
  for (const mount of ['auth/approle', '/approle', 'a/../b', 'a?b']) {
    assert.match(said(`${LOGIN}\nmount = "${mount}"`), /secrets\.mount: expected the mount path of AppRole/, mount)
  }
  for (const address of ['s1:4646', 'https://u:planted@s1', 'ftp://s1', 'https://s1?x=1']) {
    const text = said(`${LOGIN}\naddress = "${address}"`)
    assert.match(text, /host:port$/, address)
    assert.ok(!text.includes('planted'))
  }
  const server = load([join(directory({ 's.hcl': 'data_dir = "/d"\nserver { enabled = true }' }), 's.hcl')])
  assert.equal(server.config.secrets, undefined)
  const text = `data_dir = "/d"\nserver { enabled = true }\nsecrets {\n${LOGIN}\n}`
  assert.match(
    faultsOf([join(directory({ 's.hcl': text }), 's.hcl')]).join(),
    /secrets is for an agent: it needs client/,
  )
})

const warningsFor = (settings: string) => {
  const text = `data_dir = "/d"\nserver { enabled = true }\nnats { ${settings} }\n`
  return load([join(directory({ 'nats.hcl': text }), 'nats.hcl')]).warnings.length
}

test('warns about NATS without TLS beyond loopback, and not on loopback or with TLS', () => {
  for (const servers of ['nats://10.0.0.1:4222', '10.0.0.1', 'nats://n.example.com', 'nats://[fe80::1]:4222']) {
    assert.equal(warningsFor(`servers = ["${servers}"]`), 1, servers)
  }
  for (const settings of [
    'servers = ["nats://127.0.0.1:4222", "nats://localhost:1", "nats://[::1]:4222"]',
    'servers = ["tls://10.0.0.1:4222"]',
    'servers = ["nats://10.0.0.1:4222"] ca_file = "/ca.pem"',
  ]) {
    assert.equal(warningsFor(settings), 0, settings)
  }
})

const haText = (ha: string, more = '', server = '') =>
  `data_dir = "/d"\nserver {\n enabled = true\n${server} ha { ${ha} }\n}\n${more}`

const readHa = (...given: Parameters<typeof haText>) => load([join(directory({ 's.hcl': haText(...given) }), 's.hcl')])
const haFaults = (...given: Parameters<typeof haText>) =>
  faultsOf([join(directory({ 's.hcl': haText(...given) }), 's.hcl')]).join('\n')

test('high availability needs NATS, the secrets core and an odd number of replicas', () => {
  const nats = 'nats { servers = ["nats://127.0.0.1:4222"] }\n'
  assert.deepEqual(readHa('enabled = true', nats).config.server.ha, { enabled: true, replicas: 3 })
  assert.deepEqual(readHa('replicas = 1').config.server.ha, { enabled: false, replicas: 1 })
  assert.deepEqual(readHa('enabled = true\n replicas = 5', nats).warnings, [])
  assert.match(
    haFaults('enabled = true'),
    /^s\.hcl:4:.*server\.ha needs nats.*: add nats \{ servers = .*, or remove server\.ha$/,
  )
  assert.match(
    haFaults('enabled = true', nats, ' secrets = false\n'),
    /^s\.hcl:4:.*remove server\.secrets = false, or remove server\.ha from this server$/,
  )
  assert.match(haFaults('replicas = 2'), /server\.ha\.replicas is 2, expected 1, 3 or 5: set 1, which/)
  assert.match(haFaults('enabled = true\n replicas = 4', nats), /expected 1, 3 or 5: set 3, which/)
  assert.match(haFaults('replicas = 7'), /replicas/)
  assert.equal(haFaults('enabled = false', '', ' secrets = false\n'), '')
})

test('a wildcard address without api_addr is a warning with high availability', () => {
  const base =
    'data_dir = "/d"\nserver {\n enabled = true\n ha { enabled = true }\n}\nnats { }\nbind_addr = "0.0.0.0"\n'
  const said = (more: string) =>
    load([join(directory({ 's.hcl': base + more }), 's.hcl')]).warnings.filter((text) => text.startsWith('server.ha'))
  assert.match(
    said('').join(),
    /cannot connect to the API address 0\.0\.0\.0: set api_addr = "https:\/\/HOST:PORT" or advertise\.http/,
  )
  assert.deepEqual(said('api_addr = "https://s1:4646"'), [])
  assert.deepEqual(said('advertise { http = "s1" }'), [])
})
