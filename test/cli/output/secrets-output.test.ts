/** What commands for secrets print, and what they say when something is wrong. */
import assert from 'node:assert/strict'
import { chmodSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { parseExact } from '../../../src/cli/output/json.ts'
import { ttlText, yamlOf } from '../../../src/cli/core/secret-output.ts'
import { fakeAgent } from '../fake-agent.ts'
import { OUTPOST, processesMentioning, start, temporaryDirectory } from '../outpost-process.ts'
import { recordingCore, runAt } from '../recording-core.ts'
import { runHere } from '../../helpers/command-here.ts'
import { eventually } from '../../helpers/eventually.ts'

const BODY =
  '{"request_id":"id","lease_id":"","renewable":false,"lease_duration":0,"data":{"zeta":"z","big":12345678901234567890,' +
  '"ttl":5400,"list":["a","b"],"map":{"k":1.0},"nothing":null,"text":"1\\n2"},"wrap_info":null,"warnings":["look out"],"auth":null}'

test('a table, JSON, YAML and one field', async (t) => {
  const core = await recordingCore(t)
  core.answers = { 'GET x': [200, BODY] }
  const table = await runAt(core, ['read', 'x'])
  const expected = [
    'Key        Value',
    '---        -----',
    'big        12345678901234567890',
    'list       [a b]',
    'map        {"k":1.0}',
    'nothing    n/a',
    'text       1\n2',
    'ttl        1h30m',
    'zeta       z',
    '',
  ]
  assert.deepEqual(table, { code: 0, out: expected.join('\n'), err: 'warning: look out\n' })
  const json = await runAt(core, ['read', '-format=json', 'x'])
  assert.match(json.out, /"big": 12345678901234567890,/)
  assert.deepEqual(Object.keys(JSON.parse(json.out) as object), [
    'request_id',
    'lease_id',
    'lease_duration',
    'renewable',
    'data',
    'warnings',
  ])
  assert.equal(json.err, '')
  const yaml = await runAt(core, ['read', 'x'], { VAULT_FORMAT: 'yaml' })
  assert.match(yaml.out, /^data:\n {2}zeta: z\n {2}big: 12345678901234567890\n {2}ttl: 5400\n {2}list:\n {2}- a\n/m)
  for (const [field, out] of [
    ['zeta', 'z'],
    ['text', '1\n2'],
    ['big', '12345678901234567890'],
    ['map', '{"k":1.0}'],
  ] as const) {
    assert.deepEqual(await runAt(core, ['read', `-field=${field}`, 'x']), { code: 0, out, err: '' })
  }
  const names = 'big, list, map, nothing, text, ttl, zeta'
  for (const field of ['none', 'constructor', '__proto__', 'token', 'lease']) {
    const { code, err, out } = await runAt(core, ['read', '-field', field, 'x'])
    assert.deepEqual(
      [code, out, err],
      [1, '', `outpost: the response has no field ${JSON.stringify(field)}, its fields are ${names}\n`],
    )
  }
})

test('YAML has the content of JSON', () => {
  const value = parseExact(
    '{"n":1,"yes":"no","a b":"c: d","-":"#x","empty":{},"none":[],"deep":[[1,[2]],{"k":[{"x":null}]}],"e":1e400,"t":"a\\tb"}',
  )
  const lines = [
    '"n": 1',
    '"yes": "no"',
    '"a b": "c: d"',
    '"-": "#x"',
    'empty: {}',
    'none: []',
    'deep:',
    '- - 1',
    '  - - 2',
    '- k:',
    '  - x: null',
    'e: 1e400',
    String.raw`t: "a\tb"`,
  ]
  assert.equal(yamlOf(value), `${lines.join('\n')}\n`)
  assert.deepEqual([0, 59, 60, 3600, 5400, 2_764_800].map(ttlText), ['0s', '59s', '1m', '1h', '1h30m', '768h'])
  assert.equal(ttlText(3605.9), '1h0m5s')
})

test('tables escape control characters', async (t) => {
  const core = await recordingCore(t)
  core.answers = { 'GET x': [200, { data: { 'a\u001b[2J': '\u001b]0;title\u0007' } }] }
  const { out } = await runAt(core, ['read', 'x'])
  assert.ok(!out.includes('\u001b') && out.includes(String.raw`\x1b]0;title\x07`))
})

test('errors are one line with the next step', async (t) => {
  const core = await recordingCore(t)
  const sealed = { errors: ['Vault is sealed'] }
  const rows: [Record<string, readonly [number, unknown]>, RegExp][] = [
    [
      { 'GET x': [503, sealed], 'GET sys/seal-status': [200, { initialized: true }] },
      /^outpost: the server is sealed, next: outpost operator unseal\n$/,
    ],
    [
      { 'GET x': [503, sealed], 'GET sys/seal-status': [200, { initialized: true, recovery_seal: true }] },
      /^outpost: the server is sealed, next: the server unseals itself with its static key: .*\n$/,
    ],
    [
      {
        'GET x': [503, sealed],
        'GET sys/seal-status': [200, { initialized: true, recovery_seal: true, migration: true }],
      },
      /^outpost: the server is sealed, next: outpost operator unseal -migrate\n$/,
    ],
    [
      { 'GET x': [503, sealed], 'GET sys/seal-status': [200, { initialized: false }] },
      /^outpost: the server is not initialized, next: outpost operator init, or restore .*-new FILE\n$/,
    ],
    [
      { 'GET x': [403, { errors: ['1 error occurred:\n\t* permission denied\n\n'] }] },
      /^outpost: permission denied \(HTTP 403\), the token from OUTPOST_TOKEN lacks the permission\n$/,
    ],
    [
      { 'GET x': [400, { errors: ['2 errors occurred:\n\t* one\n\t* two\n\n', 'three'] }] },
      /^outpost: one; two; three \(HTTP 400\)\n$/,
    ],
    [{ 'GET x': [404, { errors: [] }] }, /^outpost: no value found at x\n$/],
    [
      { 'GET x': [404, { errors: ['no handler for route "/v1/x"'] }] },
      /^outpost: http:\S+ has no secrets core: set OUTPOST_ADDR to a server with one\n$/,
    ],
    [
      { 'GET x': [404, { errors: ['no handler for route "x". route entry not found.'] }] },
      /route entry not found\. \(HTTP 404\), check "outpost secrets list"\n$/,
    ],
    [
      { 'GET x': [404, { errors: ['no handler for route "x"'] }] },
      /^outpost: no handler for route "x" \(HTTP 404\)\n$/,
    ],
    [{ 'GET x': [200, 'no JSON'] }, /^outpost: .* did not return JSON, check that it is an outpost server\n$/],
    [{ 'GET x': [500, '<html>\nno\n'] }, /^outpost: <html>; no \(HTTP 500\)\n$/],
  ]
  for (const [answers, message] of rows) {
    core.answers = answers
    const { code, err, out } = await runAt(core, ['read', 'x'])
    assert.deepEqual([code, out], [1, ''])
    assert.match(err, message)
    assert.ok(!err.includes('a-token'))
  }
})

test('options override the variables of the connection', async (t) => {
  const core = await recordingCore(t)
  const url = core.url.replace('http:', 'https:')
  const nowhere = await runAt({ url }, ['read', '-ca-cert=/nowhere', 'x'], { OUTPOST_CACERT: '/elsewhere' })
  assert.match(nowhere.err, /^outpost: cannot read \/nowhere of OUTPOST_CACERT: ENOENT/)
  const half = await runAt({ url }, ['status', '-client-cert=/dev/null'])
  assert.match(half.err, /OUTPOST_CLIENT_CERT and OUTPOST_CLIENT_KEY must be set together/)
})

test('an invalid command line sends no request', async (t) => {
  const core = await recordingCore(t)
  for (const [args, message] of [
    [['read'], /missing PATH, usage: outpost read PATH/],
    [['read', '../x'], /"\." and "\.\." are not allowed/],
    [['read', '/'], /empty path/],
    [['read', '-fomat=json', 'x'], /unknown option "-fomat", did you mean -format\?/],
    [['write', 'x'], /missing KEY=VALUE: pass data, or use -force/],
    [['write', 'x', 'hunter2'], /argument 1 is not KEY=VALUE/],
    [['write', 'x', 'a=@/nowhere'], /cannot read \/nowhere: ENOENT/],
    [['token', 'create', '-orphan', '-role=r'], /are mutually exclusive/],
    [['token', 'lookup', '-accessor'], /missing ACCESSOR/],
    [['token', 'revoke', '-self', 't1'], /option -self takes no argument/],
    [['secrets', 'tune', 'x'], /missing setting/],
    [['secrets', 'move', 'x'], /missing DESTINATION/],
    [['operator', 'rekey', '-init', '-cancel'], /options -init and -cancel are mutually exclusive/],
    [['operator', 'generate-root', '-init', 'K'], /-init takes no key share/],
    [['operator', 'generate-root', '-decode=AA', '-otp=abc'], /do not belong to the same attempt/],
    [['operator', 'init', '-key-shares=256'], /must be a whole number from 0 to 255/],
    [['operator', 'snapshot', 'save'], /missing FILE\|-, usage: outpost operator snapshot save/],
    [['policy', 'write', 'x'], /missing FILE\|-, usage/],
    [['login', 'a b'], /malformed token/],
  ] as const) {
    const { code, err, out } = await runAt(core, args)
    assert.deepEqual([code, out], [2, ''], err)
    assert.match(err, message)
    assert.ok(!err.includes('hunter2'), 'what may be a secret is not repeated')
    assert.equal(err.split('\n').length, 2)
  }
  assert.deepEqual(core.asked, [])
  assert.equal((await runAt(core, ['status', 'x'])).code, 1, '2 is for what is sealed')
})

test('data comes from files and standard input, as text and as JSON', async (t) => {
  const directory = temporaryDirectory(t)
  const core = await recordingCore(t)
  const file = join(directory, 'f')
  writeFileSync(file, '{"from":"file","n":1}')
  const write = async (args: readonly string[], input: string) => {
    const ran = await runHere(['write', 'p', ...args], { ...process.env, OUTPOST_ADDR: core.url }, input)
    return { ...ran, body: core.asked.splice(0).at(-1)?.body }
  }
  assert.deepEqual((await write(['a=-', 'b=@' + file, String.raw`c=\@x`], 'in\n')).body, {
    a: 'in\n',
    b: '{"from":"file","n":1}',
    c: '@x',
  })
  assert.deepEqual((await write([`@${file}`, '-', 'k=v'], '{"from":"stdin","d":{"e":[]}}')).body, {
    from: 'stdin',
    n: 1,
    d: { e: [] },
    k: 'v',
  })
  for (const [args, input, code, message] of [
    [['-'], '{"secret": hunter2}', 1, /standard input is not valid JSON\n$/],
    [['-'], '["hunter2"]', 1, /is not a JSON object\n$/],
    [['a=-', 'b=-'], 'hunter2', 2, /can be read only once/],
  ] as const) {
    const ran = await write(args, input)
    assert.deepEqual([ran.code, ran.stdout, ran.body], [code, '', undefined])
    assert.match(ran.stderr, message)
    assert.ok(!ran.stderr.includes('hunter2'))
  }
})

test('a secret in an argument is removed from the process list', async (t) => {
  const agent = await fakeAgent(t, () => undefined)
  const env = { ...process.env, OUTPOST_ADDR: agent.url }
  const lines = ['operator unseal', 'token lookup', 'login', 'write p', 'kv put -mount=s p']
  for (const [at, line] of lines.entries()) {
    const secret = `hunter${at}${'x'.repeat(20)}`
    const argument = /write|put/.test(line) ? `k=${secret}` : secret
    const running = start(OUTPOST, [...line.split(' '), argument], { env })
    await eventually(() => agent.asked.length > at, 'it has asked')
    assert.deepEqual(processesMentioning(secret), [], line)
    running.child.kill()
    await running.finished
  }
})

test('a stored token is private, or is refused', async (t) => {
  const HOME = temporaryDirectory(t)
  const core = await recordingCore(t)
  core.answers = { 'GET auth/token/lookup-self': [200, { data: { id: 't1' } }] }
  const file = join(HOME, '.outpost-token')
  const env = { HOME, OUTPOST_TOKEN: undefined }
  const { code, err } = await runAt(core, ['login', '-no-print', 't1'], env)
  assert.deepEqual([code, err], [0, `stored the token in ${file}\n`])
  assert.deepEqual([readFileSync(file, 'utf8'), statSync(file).mode & 0o777], ['t1\n', 0o600])
  assert.match((await runAt(core, ['login', 't1'], { HOME })).err, /warning: OUTPOST_TOKEN overrides the stored token/)
  chmodSync(file, 0o644)
  const refused = await runAt(core, ['read', 'x'], env)
  assert.deepEqual(
    [refused.code, refused.err],
    [1, `outpost: ${file} is readable by other users: run chmod 600 ${file}\n`],
  )
  core.answers = { 'GET auth/token/lookup-self': [403, { errors: ['permission denied'] }] }
  writeFileSync(file, 'before', { mode: 0o600 })
  chmodSync(file, 0o600)
  assert.equal((await runAt(core, ['login', 'bad'], env)).code, 1)
  assert.equal(readFileSync(file, 'utf8'), 'before', 'a token that is none is not kept')
})
