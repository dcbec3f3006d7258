/** `outpost mfa totp …`, codes that are sent with requests, and logins that need one. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { test } from 'node:test'
import { readTerminal } from '../helpers/qr-reader.ts'
import { OUTPOST, ROOT, start } from './outpost-process.ts'
import { recordingCore, runAt } from './recording-core.ts'

const HAS_PYTHON = spawnSync('python3', ['-c', 'import pty']).status === 0
const UUID = '4469f90e-cf8a-c25d-0490-0d9cc11587ed'
const METHOD = 'sys/mfa/method/totp/phone'
const ALICE = { 'GET identity/entity/name/alice': [200, { data: { id: UUID } }] } as const
const URL_SECRET = 'GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ'
const ENROLLED = {
  data: {
    barcode: 'cGljdHVyZQ==',
    url: `otpauth://totp/Example:${UUID}?secret=${URL_SECRET}`,
    secret: URL_SECRET,
    recovery_codes: ['aaaaa-bbbbb-ccccc-ddddd', 'eeeee-fffff-ggggg-hhhhh'],
    confirmed: false,
  },
  warnings: null,
}

const cases: readonly (readonly [string, readonly (readonly [string, unknown?])[], object?])[] = [
  [
    'list',
    [['GET sys/mfa/method/totp?list=true']],
    { 'GET sys/mfa/method/totp?list=true': [200, { data: { keys: [] } }] },
  ],
  ['read phone', [[`GET ${METHOD}`]], { [`GET ${METHOD}`]: [200, { data: { issuer: 'Example' } }] }],
  ['write phone issuer=Example period=1m', [[`PUT ${METHOD}`, { issuer: 'Example', period: '1m' }]]],
  ['delete phone', [[`DELETE ${METHOD}`]]],
  ['delete -force phone', [[`DELETE ${METHOD}?force=true`]]],
  ['generate phone', [[`GET ${METHOD}/generate`]], { [`GET ${METHOD}/generate`]: [200, ENROLLED] }],
  ['confirm phone 123456', [[`PUT ${METHOD}/confirm`, { passcode: '123456' }]]],
  [
    'admin-generate phone alice',
    [['GET identity/entity/name/alice'], [`PUT ${METHOD}/admin-generate`, { entity_id: UUID }]],
    { ...ALICE, [`PUT ${METHOD}/admin-generate`]: [200, ENROLLED] },
  ],
  [
    `replace phone ${UUID}`,
    [[`PUT ${METHOD}/admin-generate`, { entity_id: UUID, replace: true }]],
    { [`PUT ${METHOD}/admin-generate`]: [200, ENROLLED] },
  ],
  [
    'admin-confirm phone alice 123456',
    [['GET identity/entity/name/alice'], [`PUT ${METHOD}/admin-confirm`, { entity_id: UUID, passcode: '123456' }]],
    ALICE,
  ],
  [`admin-destroy phone ${UUID}`, [[`PUT ${METHOD}/admin-destroy`, { entity_id: UUID }]]],
  [`unlock phone ${UUID}`, [[`PUT ${METHOD}/admin-unlock`, { entity_id: UUID }]]],
  [
    'status phone',
    [[`GET ${METHOD}/entity?list=true`]],
    { [`GET ${METHOD}/entity?list=true`]: [200, { data: { keys: [UUID] } }] },
  ],
  [
    'status phone alice',
    [['GET identity/entity/name/alice'], [`GET ${METHOD}/entity/${UUID}`]],
    { ...ALICE, [`GET ${METHOD}/entity/${UUID}`]: [200, { data: { failed_attempts: 0 } }] },
  ],
]
for (const [line, wanted, answers = {}] of cases) {
  test(`mfa totp ${line} sends the documented request`, async (t) => {
    const core = await recordingCore(t)
    core.answers = answers as typeof core.answers
    const { code, err } = await runAt(core, ['mfa', 'totp', ...line.split(' ')])
    assert.equal(code, 0, err)
    assert.deepEqual(
      core.asked.map(({ body, line: each }) => (body === undefined ? [each] : [each, body])),
      wanted,
    )
  })
}

test('a generated secret is printed without the QR code if stdout is not a terminal, and unchanged as JSON', async (t) => {
  const core = await recordingCore(t)
  core.answers = { [`GET ${METHOD}/generate`]: [200, ENROLLED] }
  const shown = await runAt(core, ['mfa', 'totp', 'generate', 'phone'])
  assert.ok(!shown.out.includes('cGljdHVyZQ') && !shown.out.includes('█'))
  assert.match(shown.out, new RegExp(`^secret +${URL_SECRET}$`, 'm'))
  assert.match(shown.out, /^recovery_code_2 +eeeee-fffff-ggggg-hhhhh$/m)
  assert.match(shown.err, /shown once[^]*outpost mfa totp confirm phone/)
  const asJson = await runAt(core, ['mfa', 'totp', 'generate', '-format=json', 'phone'])
  assert.deepEqual(JSON.parse(asJson.out).data, ENROLLED.data)
  const field = await runAt(core, ['mfa', 'totp', 'generate', '-field=url', 'phone'])
  assert.equal(field.out, ENROLLED.data.url)
})

test('policy write shows the warning about an unknown method', async (t) => {
  const core = await recordingCore(t)
  const warnings = ['1:6: unknown MFA method "fone" in mfa_methods of path "x"']
  core.answers = { 'PUT sys/policies/acl/p': [200, { data: null, warnings }] }
  const file = join(mkdtempSync(join(tmpdir(), 'outpost-policy-')), 'p.hcl')
  t.after(() => rmSync(dirname(file), { recursive: true }))
  writeFileSync(file, 'path "x" { mfa_methods = ["fone"] }')
  const { code, err } = await runAt(core, ['policy', 'write', 'p', file])
  assert.deepEqual([code, err], [0, `warning: ${warnings[0]}\n`])
})

test('generate fails for an entity with a secret, which is kept', async (t) => {
  const core = await recordingCore(t)
  const warnings = ['Entity already has a secret for MFA method "phone"']
  core.answers = {
    [`GET ${METHOD}/generate`]: [200, { data: null, warnings }],
    [`PUT ${METHOD}/admin-generate`]: [200, { data: null, warnings }],
  }
  const own = await runAt(core, ['mfa', 'totp', 'generate', 'phone'])
  assert.deepEqual([own.code, own.out], [1, ''])
  assert.match(own.err, /warning: Entity already has[^]*an administrator can replace it/)
  const other = await runAt(core, ['mfa', 'totp', 'admin-generate', 'phone', UUID])
  assert.equal(other.code, 1)
  assert.match(other.err, /outpost mfa totp replace/)
})

test('a token without an entity is an error with the next step', async (t) => {
  const core = await recordingCore(t)
  core.answers = { [`GET ${METHOD}/generate`]: [400, { errors: ['missing entityID'] }] }
  const { code, err } = await runAt(core, ['mfa', 'totp', 'generate', 'phone'])
  assert.deepEqual([code, /your token has no entity: log in as a user/.test(err)], [1, true])
})

test('unknown methods and entities are errors with the name', async (t) => {
  const core = await recordingCore(t)
  const nothing = [404, { errors: [] }] as const
  core.answers = {
    'GET identity/entity/name/bob': nothing,
    [`GET ${METHOD}`]: nothing,
    [`GET ${METHOD}/entity/${UUID}`]: nothing,
  }
  for (const [line, why] of [
    ['admin-destroy phone bob', /no entity "bob", check "outpost entity list"/],
    ['read phone', /no TOTP method "phone"/],
    [`status phone ${UUID}`, /has no TOTP secret for phone/],
  ] as const) {
    const { code, err } = await runAt(core, ['mfa', 'totp', ...line.split(' ')])
    assert.equal(code, 1)
    assert.match(err, why)
  }
  for (const line of ['generate', 'admin-generate phone', 'confirm phone', 'read a/../b']) {
    assert.equal((await runAt(core, ['mfa', 'totp', ...line.split(' ')])).code, 2, line)
  }
})

test('codes go with the request in one header; the option outranks the variables', async (t) => {
  const core = await recordingCore(t)
  core.answers = { 'GET secret/x': [200, { data: { a: 'b' } }] }
  const sent = async (args: readonly string[], env: NodeJS.ProcessEnv = {}) => {
    const { code } = await runAt(core, ['read', ...args, 'secret/x'], env)
    assert.equal(code, 0)
    return core.asked.at(-1)?.headers['x-vault-mfa']
  }
  assert.equal(await sent([]), undefined)
  assert.equal(await sent(['-mfa', 'phone:123456']), 'phone:123456')
  assert.equal(await sent(['-mfa=phone:123456', '-mfa=key:passcode=654321']), 'phone:123456,key:passcode=654321')
  assert.equal(await sent([], { VAULT_MFA: 'phone:1' }), 'phone:1')
  assert.equal(await sent([], { VAULT_MFA: 'phone:1', OUTPOST_MFA: 'phone:2' }), 'phone:2')
  assert.equal(await sent(['-mfa=phone:3'], { OUTPOST_MFA: 'phone:2' }), 'phone:3')
  const { code, err } = await runAt(core, ['read', '-mfa=phone:12\n3456', 'secret/x'])
  assert.deepEqual([code, err.includes('3456')], [2, false])
})

test('a refusal without a code names the option, and one of a login the possible causes', async (t) => {
  const core = await recordingCore(t)
  const text =
    'permission denied: a policy asks for a second factor here. Send an unused code of each of the MFA methods phone, key as X-Vault-MFA: METHOD:CODE'
  const denied = [403, { errors: ['permission denied'] }] as const
  core.answers = { 'GET secret/x': [403, { errors: [text] }], 'PUT auth/userpass/login/alice': denied }
  const read = await runAt(core, ['read', 'secret/x'])
  assert.match(read.err, /requires an unused code of phone, key, use -mfa METHOD:CODE or OUTPOST_MFA \(HTTP 403\)\n$/)
  const args = ['login', '-no-store', '-method=userpass', 'username=alice', 'password=secret-word']
  assert.match((await runAt(core, args)).err, /login refused: locked user/)
  assert.match((await runAt(core, [...args, '-mfa=phone:1'])).err, /login refused: invalid or used MFA code/)
})

test('a login prompts for a code on a terminal only, else the error names the option', async (t) => {
  const core = await recordingCore(t)
  const any = [{ type: 'totp', id: UUID, uses_passcode: true, name: 'phone' }]
  const requirement = { mfa_request_id: 'the-id', mfa_constraints: { ops: { any } } }
  core.answers = {
    'PUT auth/userpass/login/alice': [200, { auth: { client_token: '', mfa_requirement: requirement } }],
  }
  const args = ['login', '-no-store', '-method=userpass', 'username=alice', 'password=secret-word']
  const { code, err, out } = await runAt(core, args)
  assert.deepEqual([code, out], [1, ''])
  assert.match(err, /requires a code of phone: use -mfa METHOD:CODE/)
  assert.deepEqual(
    core.asked.map(({ line }) => line),
    ['PUT auth/userpass/login/alice'],
  )
  await runAt(core, [...args, '-mfa=phone:123456'])
  assert.equal(core.asked.at(-1)?.headers['x-vault-mfa'], 'phone:123456')
})

/** The command on a terminal, where something is typed behind a text. */
async function onTerminal(url: string, typed: string, awaited: string, args: readonly string[]): Promise<string> {
  const env = { ...process.env, OUTPOST_ADDR: url, OUTPOST_TOKEN: 'a-token', TYPED: typed, TERM: 'xterm' }
  const program = join(ROOT, 'test/helpers/terminal.py')
  return (await start('python3', [program, '80', awaited, OUTPOST, ...args], { env }).finished).stdout
}

if (HAS_PYTHON) {
  test('on a terminal the QR code of a generated secret encodes its URL', async (t) => {
    const core = await recordingCore(t)
    core.answers = { [`GET ${METHOD}/generate`]: [200, ENROLLED] }
    const shown = await onTerminal(core.url, '', '', ['mfa', 'totp', 'generate', 'phone'])
    assert.equal(readTerminal(shown), ENROLLED.data.url)
    const plain = await onTerminal(core.url, '', '', ['mfa', 'totp', 'generate', '-no-qr', 'phone'])
    assert.ok(plain.includes(URL_SECRET) && !plain.includes('█'))
  })

  test('on a terminal a login prompts for the code without echo, at most three times', async (t) => {
    const core = await recordingCore(t)
    const any = [{ type: 'totp', id: UUID, uses_passcode: true, name: 'phone' }]
    const requirement = { mfa_request_id: 'the-id', mfa_constraints: { ops: { any }, others: { any } } }
    const auth = { client_token: 's.the-token', accessor: 'a', policies: ['default'] }
    core.answers = {
      'PUT auth/userpass/login/alice': [200, { auth: { client_token: '', mfa_requirement: requirement } }],
      'PUT sys/mfa/validate': [200, { auth }],
    }
    const args = ['login', '-no-store', '-token-only', '-method=userpass', 'username=alice', 'password=a-password']
    const shown = await onTerminal(core.url, '123456\r', 'Code of phone (will be hidden): ', args)
    assert.match(shown, /Code of phone \(will be hidden\): \r\ns\.the-token\r?\n[^]*exit code 0\n$/)
    assert.ok(!shown.includes('123456'))
    assert.deepEqual(core.asked.at(-1)?.body, { mfa_request_id: 'the-id', mfa_payload: { [UUID]: ['123456'] } })
    const refused = [403, { errors: ['failed to satisfy enforcement ops'] }] as const
    core.answers = { ...core.answers, 'PUT sys/mfa/validate': refused }
    const wrong = await onTerminal(core.url, '1\r\u001E2\r\u001E3\r\u001E4\r', 'Code of phone (will be hidden): ', args)
    assert.match(wrong, /failed to satisfy enforcement ops[^]*exit code 1\n$/)
    assert.equal(core.asked.filter(({ line }) => line === 'PUT sys/mfa/validate').length, 4)
  })
}
