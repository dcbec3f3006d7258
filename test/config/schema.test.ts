import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { ConfigError, loadConfig } from '../../src/config/load.ts'
import type { Config, LoadedConfig, LoadOptions } from '../../src/config/load.ts'

const FIXTURES = join(import.meta.dirname, '..', '..', 'fixtures', 'config')
const folder = mkdtempSync(join(tmpdir(), 'outpost-schema-'))
after(() => rmSync(folder, { recursive: true, force: true }))

function faultsIn(path: string, options: Partial<LoadOptions> = {}): string[] {
  try {
    loadConfig({ paths: [path], hostname: 'h', ...options })
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error))
    return error.message.split('\n').map((line) => line.replace(`${path}:`, ''))
  }
  return []
}

const fixtureFaults = (name: string, options: Partial<LoadOptions> = {}) => faultsIn(join(FIXTURES, name), options)

/** A file that is right but for `text`, which stands on its second line. */
function written(text: string): string {
  const path = join(folder, 'a.hcl')
  writeFileSync(path, `data_dir = "/d" client { enabled = true }\n${text}\n`)
  return path
}

const faults = (text: string) => faultsIn(written(text))
const loaded = (text: string): LoadedConfig => loadConfig({ paths: [written(text)], hostname: 'h' })
const config = (text: string): Config => loaded(text).config

test('reports all faults of a file at once with their positions', () => {
  assert.deepEqual(fixtureFaults('bad-many.hcl'), [
    '1:12: data_dir must be given as an absolute path: got relative/dir',
    '2:1: unknown key "bind_adr", did you mean "bind_addr"?',
    '3:16: ports.http: expected a whole number from 0 to 65535, got 70000',
    '3:23: unknown key "rpc" in ports',
    '4:13: log_level: expected one of trace, debug, info, warn, error',
    '6:13: client.enabled: expected true or false, found a string',
    '7:17: client.gc_interval: expected a duration such as "30s" or "1h30m"',
    '8:10: Invalid Client.Meta key: a..b',
    '10:38: http_max_conns_per_client must be >= 0',
  ])
})

test('reports the faults of the other fixtures', () => {
  assert.deepEqual(fixtureFaults('bad-no-role.hcl'), ['Must specify either server, client or dev mode for the agent.'])
  assert.deepEqual(fixtureFaults('bad-no-data-dir.hcl'), [
    '1:20: data_dir is required: it stores state and allocations',
  ])
  assert.deepEqual(fixtureFaults('bad-given-twice.hcl'), [
    '3:23: client.node_class is set twice, first at 2:39',
    '4:12: data_dir is set twice, first at 1:12',
  ])
  assert.deepEqual(fixtureFaults('bad-tls-without-files.hcl'), [
    '4:10: tls.http needs tls.cert_file',
    '4:10: tls.http needs tls.key_file',
    '5:25: tls.verify_https_client needs tls.ca_file',
  ])
  const credentials = fixtureFaults('bad-credentials.hcl')
  assert.deepEqual(credentials, [
    '4:13: nats.servers: credentials do not belong in a URL: use credentials_file, nkey_file, password_file or token_file',
    '5:10: nats.user and nats.password_file must be set together',
    '6:16: nats: set only one of credentials_file, nkey_file, user with password_file, or token_file',
    '8:32: acl.token.sha256: this is the hash of an empty token',
  ])
  assert.ok(!credentials.join('\n').includes('planted-password'))
})

const checkPolicy = (text: string) =>
  text.split('\n').flatMap((line, index) => {
    const column = line.indexOf('nodes') + 1
    return column > 0 ? [{ line: index + 1, column, message: 'no such rule' }] : []
  })

test('reports the fault of a policy at its line of the file', () => {
  assert.deepEqual(fixtureFaults('bad-policy.hcl', { checkPolicy }), ['8:7: acl.token "ops": policy: no such rule'])
  const quoted = `acl { anonymous { policy = "a {}\\nnodes {}" } }`
  assert.deepEqual(faultsIn(written(quoted), { checkPolicy }), ['2:28: acl.anonymous: line 2 of policy: no such rule'])
})

test('refuses invalid values', () => {
  const hash = 'ab'.repeat(32)
  const machine = 'current_key_id = "k" current_key = "x"'
  const cases: [string, string][] = [
    ['region = "a.b"', '2:10: region: expected letters, digits, "-" and "_"'],
    ['datacenter = "dc*"', '2:14: datacenter: must not contain "*"'],
    ['name = 5', '2:8: name: expected a string, found a number'],
    ['name "x" {}', '2:1: name: a setting takes no label'],
    [
      'bind_addr = "{{ GetPrivateIP }}"',
      '2:13: bind_addr: templates are not supported: use one IP address or host name',
    ],
    ['bind_addr = "127.0.0.1:80"', '2:13: bind_addr: expected one IP address or host name, without a port'],
    [
      'addresses { http = "127.0.0.1 10.0.0.1" }',
      '2:20: addresses.http: expected one IP address or host name, without a port',
    ],
    ['advertise { http = "a:99999" }', '2:20: advertise.http: expected host or host:port'],
    ['ports { http = 5 cluster = 5 }', '2:28: ports.http and ports.cluster are both 5'],
    ['ports { http = 4647 }', '2:16: ports.http and ports.cluster are both 4647'],
    ['ports { http = 1.5 }', '2:16: ports.http: expected a whole number from 0 to 65535, got 1.5'],
    ['ports = 5', '2:9: ports: expected a block { }, found a number'],
    ['ports "a" {}', '2:7: ports: this block takes no label'],
    ['log_file = "x.log"', '2:12: log_file must be given as an absolute path: got x.log'],
    ['http_api_response_headers { "a b" = "c" }', '2:29: "a b" is not the name of an HTTP header'],
    ['http_api_response_headers { a = "b\\r\\nc: d" }', '2:29: the value of header a has an invalid character'],
    ['client { meta { "" = "x" } }', '2:17: Invalid Client.Meta key: '],
    ['client { meta { ".a" = "x" } }', '2:17: Invalid Client.Meta key: .a'],
    ['client { meta { a = ["x"] } }', '2:21: client.meta.a: expected a string, found a list'],
    ['client { meta { a = "x" a = "y" } }', '2:29: client.meta.a is set twice, first at 2:21'],
    ['client { node_id = "abc" }', '2:20: client.node_id: expected a UUID'],
    ['client { node_pool = "all" }', '2:22: client.node_pool: "all" is not a node pool'],
    [
      'client { gc_disk_usage_threshold = 101 }',
      '2:36: client.gc_disk_usage_threshold: expected a number from 0 to 100, got 101',
    ],
    ['client { gc_max_allocs = -1 }', '2:26: client.gc_max_allocs: expected a whole number of at least 0, got -1'],
    ['client { gc_interval = "0s" }', '2:24: client.gc_interval: a duration must be longer than zero'],
    ['client { gc_interval = "-1s" }', '2:24: client.gc_interval: a duration must not be negative'],
    ['client { gc_interval = "600h" }', '2:24: client.gc_interval: a duration must be at most 576h'],
    [
      'client { gc_interval = 60 }',
      '2:24: client.gc_interval: expected a duration such as "30s" or "1h30m", found a number',
    ],
    ['limits { http_max_followers = -1 }', '2:31: http_max_followers must be >= 0'],
    ['tls { tls_min_version = "tls10" }', '2:25: tls.tls_min_version: expected one of tls12, tls13'],
    ['tls { verify_https_client = true ca_file = "/c" }', '2:29: tls.verify_https_client needs tls.http = true'],
    ['acl { token "a" { policy = "x" } }', '2:13: acl.token "a" needs sha256'],
    [`acl { token "a" { sha256 = "${hash}" } }`, '2:13: acl.token "a" needs a policy'],
    [
      'acl { token "a" { sha256 = "abc" policy = "x" } }',
      '2:28: acl.token.sha256: expected 64 hexadecimal digits (printf %s "$TOKEN" | sha256sum)',
    ],
    ['acl { token { } token = 5 }', '2:17: acl.token: expected a label and a block: "name" { }'],
    ['acl { token "a" "b" { } }', '2:17: acl.token: expected only one label'],
    ['server { seal "vault" {} }', '2:15: server.seal: expected one of shamir, static'],
    ['server { seal "shamir" {} seal "static" {} }', '2:32: server.seal is set twice, first at 2:15'],
    ['server { seal "shamir" { key = "x" } }', '2:32: unknown key "key" in server.seal "shamir"'],
    ['server { seal "static" { current_key_id = "k" } }', '2:15: server.seal "static" needs current_key'],
    [
      `server { seal "static" { ${machine} curent_key = "x" } }`,
      '2:78: unknown key "curent_key" in server.seal "static", did you mean "current_key"?',
    ],
    [
      `server { seal "static" { ${machine} previous_key = "x" } }`,
      '2:80: server.seal: previous_key_id and previous_key must be set together',
    ],
    [
      `server { seal "static" { ${machine} previous_key = "x" previous_key_id = "k" } }`,
      '2:102: server.seal: previous_key_id and current_key_id must differ',
    ],
    [
      `server { seal "static" { ${machine} disabled = "maybe" } }`,
      '2:76: server.seal.disabled: expected true or false',
    ],
    [
      'server { seal "static" { current_key_id = "k" current_key = "https://x" } }',
      '2:61: server.seal.current_key: expected file:///path, env://NAME, credential://NAME or the key in hex or base64',
    ],
    ['server { storage_path = "x" }', '2:25: server.storage_path must be given as an absolute path: got x'],
    ['nats { servers = [] }', '2:18: nats.servers is empty: add a server, or remove the nats block to run standalone'],
    ['nats { servers = ["http://a:1"] }', '2:18: nats.servers: expected nats://host:port or tls://host:port'],
    [
      'nats { server_keys = ["UBTKRORWXFSSLTVAAU63E5OYNJTNQXOUJNQ6QWBCWWZFQLXFUELQMTBN"] }',
      '2:22: nats.server_keys: expected the public key of a server (U…, printed by "outpost cluster keys")',
    ],
    [
      'nats { server_keys = [] }',
      '2:22: nats.server_keys is empty: add the keys of the servers, or remove it to trust every server that NATS authenticates',
    ],
    [
      'nats { core_keys = ["UBTKRORWXFSSLTVAAU63E5OYNJTNQXOUJNQ6QWBCWWZFQLXFUELQMTBM"] }',
      '2:20: nats.core_keys: UBTKRORWXFSSLTVAAU63E5OYNJTNQXOUJNQ6QWBCWWZFQLXFUELQMTBM is not in nats.server_keys, which names all servers',
    ],
    ['nats { servers = [5] }', '2:18: nats.servers: expected a string, found a number'],
    ['nats { cert_file = "/c" }', '2:20: nats.cert_file and nats.key_file must be set together'],
    ['plugin_dir = "/p"', '2:1: unknown key "plugin_dir"'],
    ['consul {}', '2:1: unknown key "consul"'],
    ['__proto__ = 5', '2:1: unknown key "__proto__"'],
    ['client { allocDir = "/x" }', '2:10: unknown key "allocDir" in client, did you mean "alloc_dir"?'],
    ['"a\\nb" = 5', '2:1: unknown key "a\\nb"'],
  ]
  for (const [text, expected] of cases) assert.deepEqual(faults(text), [expected], text)
})

const token = (name: string, hash: string) => `token "${name}" { sha256 = "${hash}" policy = "x" }`

test('refuses two tokens with the same name or hash', () => {
  const [a, b] = ['ab'.repeat(32), 'cd'.repeat(32)]
  assert.deepEqual(faults(`acl { ${token('x', a)}\n${token('x', b)} }`), ['3:7: acl.token "x" is defined twice'])
  assert.deepEqual(faults(`acl { ${token('x', a)}\n${token('y', a.toUpperCase())} }`), [
    '3:22: acl.token "y": another token has this sha256',
  ])
})

test('an invalid setting is not reported as missing, too', () => {
  assert.deepEqual(faults('tls { http = true cert_file = 5 key_file = "/k" }'), [
    '2:31: tls.cert_file: expected a string, found a number',
  ])
  const path = join(folder, 'b.hcl')
  writeFileSync(path, 'data_dir = "x"\nclient { enabled = 1 }\n')
  assert.deepEqual(faultsIn(path), [
    '1:12: data_dir must be given as an absolute path: got x',
    '2:20: client.enabled: expected true or false, found a number',
  ])
})

test('accepts valid values', () => {
  assert.equal(config('log_level = "WARN"').logLevel, 'warn')
  assert.equal(config('name = ""').name, 'h')
  assert.deepEqual(config('ports { http = 0 cluster = 0 }').ports, { http: 0, cluster: 0 })
  assert.equal(config('bind_addr = "::1"').addresses.http, '::1')
  assert.equal(config('advertise { http = "[fd00::1]:80" }').advertise.http, '[fd00::1]:80')
  assert.equal(config('limits { http_max_conns_per_client = 0 }').limits.httpMaxConnsPerClient, 0)
  assert.equal(config('limits { http_request_timeout = "1m30s" }').limits.httpRequestTimeoutMs, 90_000)
  assert.equal(config('acl { token_ttl = "0" }').acl.tokenTtlMs, 0)
  assert.equal(config('client { gc_disk_usage_threshold = 82.5 }').client.gcDiskUsageThreshold, 82.5)
  assert.deepEqual(config('client { meta { a = 1.50 b = false "x/y.z" = "" __proto__ = "p" } }').client.meta, {
    a: '1.50',
    b: 'false',
    'x/y.z': '',
    ['__proto__']: 'p',
  })
  assert.deepEqual(config('http_api_response_headers { Access-Control-Allow-Origin = "*" }').httpApiResponseHeaders, {
    'Access-Control-Allow-Origin': '*',
  })
  assert.deepEqual(
    config('nats { servers = ["10.0.0.1:4222", "tls://n.example.com/"] user = "u" password_file = "/p" }').nats,
    {
      servers: ['10.0.0.1:4222', 'tls://n.example.com/'],
      user: 'u',
      passwordFile: '/p',
    },
  )
  assert.equal(config('tls { tls_min_version = "TLS13" }').tls.minVersion, 'TLSv1.3')
})

test('warns about risky settings', () => {
  const path = join(folder, 'a.hcl')
  const open = 'acl { anonymous { policy = "x" } }'
  assert.deepEqual(loaded(`bind_addr = "0.0.0.0" ${open}`).warnings, [
    `${path}:2:13: the HTTP API listens on 0.0.0.0:4646 without TLS: an attacker on the network path can read tokens, logs and files`,
  ])
  assert.deepEqual(
    loaded(`addresses { http = "::" } acl { enabled = false } tls { http = true cert_file = "c" key_file = "k" }`)
      .warnings,
    [
      `${path}:2:20: the HTTP API listens on [::]:4646 with acl.enabled = false: every client can read the logs and files of all allocations`,
    ],
  )
  assert.deepEqual(loaded(`bind_addr = "0.0.0.0" addresses { http = "127.0.0.2" } ${open}`).warnings, [])
  assert.deepEqual(loaded('').warnings, [
    'this standalone agent has no acl.token: it will refuse every call that requires a token',
  ])
  const parallel = loaded(`client { gc_parallel_destroys = 0 } ${open}`)
  assert.equal(parallel.config.client.gcParallelDestroys, 1)
  assert.deepEqual(parallel.warnings, [`${path}:2:33: client.gc_parallel_destroys must be at least 1: using 1`])
})
