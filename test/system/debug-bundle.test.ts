/**
 * `outpost operator debug`: what is in a bundle, and that secrets are not, wherever they were planted: in the configuration, in
 * variables, in tokens, in secrets, in requests that are logged meanwhile.
 */
import '../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { Redactor } from '../../src/cli/commands/operator/debug/redaction.ts'
import { agentHere } from '../helpers/agent-here.ts'
import { workDirectory } from '../helpers/agent-process.ts'
import { startCluster } from '../helpers/cluster.ts'
import { beginHere, runHere } from '../helpers/command-here.ts'
import { eventually } from '../helpers/eventually.ts'
import { startNatsServer } from '../helpers/nats-server.ts'

interface Index {
  readonly format: number
  readonly is_interrupted: boolean
  readonly redactions: number
  readonly files: readonly {
    readonly path: string
    readonly description: string
    readonly source: string
    readonly bytes?: number
    readonly sha256?: string
    readonly error?: string
  }[]
}

/** Unpacks with tar, as whoever gets the bundle does. */
function unpack(t: TestContext, file: string) {
  const directory = workDirectory(t)
  execFileSync('tar', ['-xzf', file, '-C', directory])
  const [top = ''] = readdirSync(directory)
  const read = (path: string) => readFileSync(join(directory, top, path), 'utf8')
  const names = readdirSync(join(directory, top), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(join(directory, top).length + 1))
  return { index: JSON.parse(read('index.json')) as Index, read, names, top }
}

function planted(what: string): string {
  return `planted-${what}-${randomBytes(9).toString('hex')}`
}

test('a bundle of a server with secrets has what its index lists, and no secret', async (t) => {
  const secrets: string[] = []
  const plant = (what: string) => {
    const text = planted(what)
    secrets.push(text)
    return text
  }
  const directory = workDirectory(t)
  const [password, root] = [plant('nats-password'), plant('root-token')]
  const nats = await startNatsServer(t, `authorization { user: "server", password: "${password}" }`)
  const passwordFile = join(directory, 'nats.password')
  writeFileSync(passwordFile, `${password}\n`, { mode: 0o600 })
  const config = join(directory, 'agent.hcl')
  mkdirSync(join(directory, 'data'))
  writeFileSync(
    config,
    [
      `name = "host-1"\ndata_dir = "${directory}/data"\nports { http = 0 }\nlog_level = "TRACE"\nlog_paths = "full"`,
      `client {\n enabled = true\n meta { note = "${plant('meta')}" }\n}\nserver { enabled = true }`,
      `nats {\n servers = ["${nats.url}"]\n user = "server"\n password_file = "${passwordFile}"\n}`,
      `http_api_response_headers { X-Planted = "${plant('header')}" }`,
      `acl {\n enabled = true\n token "ops" {\n sha256 = "${createHash('sha256').update(root).digest('hex')}"\n policy = "agent { policy = \\"write\\" } node { policy = \\"write\\" }"\n }\n}`,
    ].join('\n'),
  )
  const agent = await agentHere(t, ['-config', config])
  const env = { OUTPOST_ADDR: agent.url }
  const run = async (args: readonly string[], token = '', input = '') => {
    const ran = await runHere(args, { ...env, OUTPOST_TOKEN: token }, input)
    assert.equal(ran.code, 0, `${args.join(' ')}: ${ran.stderr}`)
    return ran.stdout
  }
  const made = JSON.parse(await run(['operator', 'init', '-key-shares=1', '-key-threshold=1', '-json'])) as {
    unseal_keys_b64: string[]
    root_token: string
  }
  secrets.push(made.root_token, ...made.unseal_keys_b64)
  await run(['operator', 'unseal', '-'], '', made.unseal_keys_b64[0])
  const token = made.root_token
  await run(['secrets', 'enable', '-version=2', '-path=secret', 'kv'], token)

  const output = join(directory, 'bundle.tar.gz')
  const variables = {
    VAULT_TOKEN: plant('vault-token'),
    OUTPOST_MFA: `m:${plant('mfa')}`,
    AWS_SECRET_ACCESS_KEY: plant('aws'),
  }
  const debug = beginHere(
    ['operator', 'debug', '-duration', '4s', '-interval', '1s', '-node', 'host-1', '-output', output],
    { ...env, ...variables, OUTPOST_TOKEN: token },
  )
  await eventually(() => debug.stderr().includes('collecting for 4s'))
  // Requests whose lines are in the log of the period.
  await run(['kv', 'put', 'secret/app', `password=${plant('value')}`], token)
  const child = JSON.parse(await run(['token', 'create', '-policy=default', '-json'], token)) as {
    auth: { client_token: string }
  }
  secrets.push(child.auth.client_token)
  await fetch(`${agent.url}/v1/secret/data/app?password=${plant('query')}`, {
    headers: { 'X-Vault-Token': plant('header-token') },
  })
  await fetch(`${agent.url}/v1/auth/token/lookup`, { method: 'POST', body: `{"token":"${plant('body-token')}"}` })
  const { code, stderr, stdout } = await debug.finished
  assert.equal(code, 0, stderr)
  assert.match(stdout, /^Wrote \S+bundle\.tar\.gz \(\S+ KiB\)\n$/)
  assert.equal(stderr, 'collecting for 4s, Ctrl-C ends it early\n')
  assert.equal(statSync(output).mode & 0o777, 0o600)

  const { index, names, read, top } = unpack(t, output)
  assert.equal(top, 'bundle')
  await t.test('every file is in the index with its sum, and the other way round', () => {
    assert.deepEqual(names.toSorted(), ['index.json', ...index.files.map(({ path }) => path)].toSorted())
    for (const { bytes, description, path, sha256, source } of index.files) {
      assert.equal(createHash('sha256').update(read(path)).digest('hex'), sha256, path)
      assert.equal(Buffer.byteLength(read(path)), bytes, path)
      assert.ok(description !== '' && source.startsWith('/v1/'), path)
    }
    assert.equal(index.is_interrupted, false)
  })
  await t.test('the documentation describes every file', () => {
    const page = readFileSync(join(import.meta.dirname, '../../docs/diagnosis.md'), 'utf8')
    for (const name of names) {
      assert.ok(page.includes(`\`${name.replace('host-1', 'NAME')}\``), `docs/diagnosis.md does not name ${name}`)
    }
  })
  await t.test('metrics, runtime and readiness over the period, the log, the roster, the versions', () => {
    const lines = (path: string) =>
      read(path)
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as { value: Record<string, unknown> })
    for (const path of ['metrics.jsonl', 'readiness.jsonl', 'runtime.jsonl', 'nodes/host-1/runtime.jsonl']) {
      assert.ok(lines(path).length >= 2, path)
    }
    const runtime = lines('runtime.jsonl').at(-1)?.value as {
      EventLoop: { Delay: { Samples: number } }
      Heap: { LimitBytes: number; Spaces: object[] }
      Handles: Record<string, number>
      Descriptors: Record<string, number>
    }
    assert.ok(runtime.EventLoop.Delay.Samples > 0 && runtime.Heap.LimitBytes > 0 && runtime.Heap.Spaces.length > 3)
    assert.ok((runtime.Descriptors['socket'] ?? 0) > 0 && Object.keys(runtime.Handles).length > 0)
    assert.match(read('outpost.log'), /\[INFO\] .*\/v1\/secret\/data\/app/)
    const roster = JSON.parse(read('roster.json')) as { nodes: { total: number; by_status: object } }
    assert.deepEqual([roster.nodes.total, roster.nodes.by_status], [1, { ready: 1 }])
    assert.match(read('versions.json'), /"keys"/)
    assert.match(read('health.json'), /"sealed": false/)
    assert.match(read('members.json'), /"Name": "host-1"/)
    assert.match(read('agent.json'), /"note": "<redacted>"/)
  })
  await t.test('no planted secret', () => {
    assert.ok(secrets.length > 12)
    for (const name of names) {
      const text = read(name)
      for (const secret of secrets) {
        for (const form of [secret, Buffer.from(secret).toString('base64'), encodeURIComponent(secret)]) {
          assert.ok(!text.includes(form), `${name} has ${secret}`)
        }
      }
    }
  })
  await t.test(
    'an existing file is kept, a wrong node or period is an error before anything is collected',
    async () => {
      const before = readFileSync(output)
      const again = await runHere(['operator', 'debug', '-duration=0s', '-output', output], {
        ...env,
        OUTPOST_TOKEN: token,
      })
      assert.deepEqual([again.code, again.stdout], [1, ''])
      assert.match(again.stderr, /bundle\.tar\.gz exists, nothing was written/)
      assert.deepEqual(readFileSync(output), before)
      const other = join(directory, 'other.tar.gz')
      const wrong = await runHere(['operator', 'debug', '-node', 'none', '-output', other], {
        ...env,
        OUTPOST_TOKEN: token,
      })
      assert.match(wrong.stderr, /no node with ID prefix or name "none"/)
      assert.equal((await runHere(['operator', 'debug', '-duration', 'long'], env)).code, 2)
      assert.ok(!readdirSync(directory).includes('other.tar.gz'))
    },
  )
})

test('a node through a server; what the token may not read is named; Ctrl-C ends it early', async (t) => {
  const world = await startCluster(t, { hosts: 1, here: ['server', 'client'] })
  const { url } = world.server()
  const output = join(workDirectory(t), 'x.tgz')
  const args = [
    'operator',
    'debug',
    '-duration',
    '10m',
    '-interval',
    '500ms',
    '-node',
    'client-0',
    '-json',
    '-output',
    output,
  ]
  const debug = beginHere(args, { OUTPOST_ADDR: url })
  await eventually(() => debug.stderr().includes('collecting'))
  await fetch(`${world.host().member.url}/v1/client/metadata`)
  // The listener of the command; this process has no other.
  await eventually(() => process.listenerCount('SIGINT') > 0)
  process.emit('SIGINT')
  const { code, stderr, stdout } = await debug.finished
  assert.equal(code, 0, stderr)
  const summary = JSON.parse(stdout) as { File: string; Missing: { path: string }[] }
  assert.equal(summary.File, output)
  const { index, names, read } = unpack(t, output)
  assert.equal(index.is_interrupted, true)
  for (const name of ['nodes/client-0/runtime.jsonl', 'nodes/client-0/stats.jsonl', 'nodes/client-0/outpost.log']) {
    assert.ok(names.includes(name), name)
  }
  const node = JSON.parse(read('nodes/client-0/runtime.jsonl').split('\n')[0] ?? '') as { value: { NodeID: string } }
  assert.equal(node.value.NodeID, world.host().member.nodeId)
  // The server is not initialized: its sealed parts cannot be read.
  assert.ok(summary.Missing.some(({ path }) => path === 'host.json'))
  assert.match(stderr, /^not collected: host\.json: /m)
  assert.ok(index.files.find(({ path }) => path === 'host.json')?.error !== undefined)
})

test('what looks like a secret is removed, and other text is kept', () => {
  const redactor = new Redactor(['my-own-token', 'abc'])
  const removed: readonly (readonly [string, string])[] = [
    ['a my-own-token b', 'a <redacted> b'],
    ['token hvs.CAESIJ0abcdefghijklmnop', 'token <redacted>'],
    ['op.0123456789abcdef0123456789abcdef', '<redacted>'],
    ['nats://user:pass@host:4222', 'nats://<redacted>@host:4222'],
    ['password=hunter22 next', 'password=<redacted> next'],
    ['{"password":"hunter22"}', '{"password":"<redacted>"}'],
    ['Authorization: Bearer abcdef123', 'Authorization: <redacted> <redacted>'],
    ['SUAIB5HNSBZ3OJPLPOUYUGDZJNWJTKFLHKVVMUYS7SCQ3Q3MXYXNYPHFUU', '<redacted>'],
    ['-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----', '<redacted>'],
    ['AKIAIOSFODNN7EXAMPLE', '<redacted>'],
  ]
  for (const [text, expected] of removed) assert.equal(redactor.text(text), expected)
  // The scheme of the authorization counts as well.
  assert.equal(redactor.count, removed.length + 1)
  for (const text of ['abc', 'http://127.0.0.1:4646/v1/secret/data/app', 'tokens resolved', 'version 1.2.3-op.1']) {
    assert.equal(redactor.text(text), text)
  }
  assert.deepEqual(
    redactor.json({
      Meta: { rack: 'r7' },
      client_secret: 'x',
      key_file: '/a/b',
      token_ttl: '30s',
      n: { password: '' },
      List: [1, 'a'],
    }),
    {
      Meta: { rack: '<redacted>' },
      client_secret: '<redacted>',
      key_file: '/a/b',
      token_ttl: '30s',
      n: { password: '' },
      List: [1, 'a'],
    },
  )
})
