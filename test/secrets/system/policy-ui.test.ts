/** `sys/internal/ui/policy-check` and `policy-format`, which editors of policies call. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { policyUiPaths } from '../../../src/secrets/policies/policy-ui-paths.ts'
import { auditLinesOf } from '../../helpers/audit-lines.ts'
import { type AskOptions, CoreWorld } from '../../helpers/core-world.ts'

const CHECK = 'sys/internal/ui/policy-check'
const FORMAT = 'sys/internal/ui/policy-format'
const READ_APP = 'path "secret/data/app/*" {\n  capabilities = ["read"]\n}\n'

async function open(t: Parameters<typeof CoreWorld.open>[0]) {
  const world = await CoreWorld.open(t)
  const { body } = await world.ask('POST', 'auth/token/create', { policies: ['none'], no_default_policy: true })
  const token = String(body.auth['client_token'])
  const ask = (path: string, given: unknown, options: AskOptions = { token }) => world.ask('POST', path, given, options)
  const check = (policy: string, request: object = {}) =>
    ask(CHECK, { policies: [{ name: 'p', policy }], path: 'secret/data/app/db', ...request })
  return { world, ask, check }
}

test('the decision, the deciding rule and the warnings have positions', async (t) => {
  const { ask, check } = await open(t)
  const { body, status } = await check(`${READ_APP}path "v1/x" {\n  capabilities = ["read"]\n}`)
  assert.equal(status, 200)
  assert.deepEqual(body.data, {
    allowed: true,
    verdict: 'allowed: read "secret/data/app/db"',
    reasons: [{ policy: 'p', line: 1, column: 6, text: 'path "secret/data/app/*": decides, grants read' }],
    unmatched: [{ policy: 'p', line: 4, column: 6, text: 'path "v1/x": does not match' }],
    faults: [],
    warnings: [{ policy: 'p', line: 4, column: 6, text: 'paths of rules do not start with v1/' }],
  })
  const policies = [
    { name: 'p', policy: READ_APP },
    { name: 'q', policy: 'path "secret/data/app/*" { capabilities = ["deny"] }' },
  ]
  const both = await ask(CHECK, { policies, path: 'secret/data/app/db', operation: 'read' })
  assert.equal(both.body.data['allowed'], false)
  assert.match(both.text, /"policy":"q","line":1,"column":6,"text":"path \\"secret\/data\/app\/\*\\": decides, denies"/)
  const bare = await check('path "secret/data/app" { capabilities = ["read"] }', { path: 'secret/app' })
  assert.equal(bare.body.data['hint'], '"secret/data/app" would be allowed: is the mount versioned (v2)?')
})

test('parameters and the entity decide', async (t) => {
  const { check } = await open(t)
  const isAllowed = async (policy: string, request: object) => (await check(policy, request)).body.data['allowed']
  const limited = 'path "x" {\n capabilities = ["update"]\n allowed_parameters = { ttl = ["1h"], n = [5] }\n}'
  const update = { path: 'x', operation: 'update' }
  assert.equal(await isAllowed(limited, { ...update, parameters: { ttl: '1h', n: 5 } }), true)
  assert.equal(await isAllowed(limited, { ...update, parameters: { ttl: '2h' } }), false)
  const own = 'path "u/{{identity.entity.name}}" { capabilities = ["read"] }'
  assert.equal(await isAllowed(own, { path: 'u/alice', entity: { name: 'alice' } }), true)
  assert.equal(await isAllowed(own, { path: 'u/alice', entity: { name: 'bob' } }), false)
})

test('all faults are listed, at most 50', async (t) => {
  const { ask, check } = await open(t)
  const { data } = (await check('path "x" {\n  capabilities = ["reed"]\n}\nnope "y" {}')).body
  assert.equal(data['allowed'], false)
  assert.match(
    JSON.stringify(data['faults']),
    /^\[{"policy":"p","line":2,"column":\d+,"text":"[^{]*unknown capability \\"reed\\".*{"policy":"p","line":4,"column":1,"text":"unknown rule \\"nope\\"/,
  )
  for (const [path, body] of [
    [CHECK, { policies: [{ name: 'p', policy: 'a = 1\n'.repeat(60) }] }],
    [FORMAT, { policy: 'a = 1\n'.repeat(60) }],
  ] as const) {
    const many = (await ask(path, body)).body
    assert.ok(Array.isArray(many.data['faults']) && many.data['faults'].length === 50)
    assert.deepEqual(many.warnings, ['60 faults, of which the first 50 are listed'])
  }
})

test('a policy is formatted; one with faults is returned as it is', async (t) => {
  const { ask } = await open(t)
  const policy = 'path "x" {\ncapabilities=["read"]\n}'
  const formatted = (await ask(FORMAT, { policy })).body
  assert.deepEqual(formatted.data, { policy: 'path "x" {\n  capabilities = ["read"]\n}\n', faults: [] })
  const faulty = (await ask(FORMAT, { policy: 'path "x" {' })).body.data
  assert.equal(faulty['policy'], 'path "x" {')
  assert.match(JSON.stringify(faulty['faults']), /"line":1,"column":11/)
})

test('any valid token may ask, whatever its policies are, and no other caller', async (t) => {
  const { ask, world } = await open(t)
  for (const [path, body] of [
    [CHECK, { policies: [] }],
    [FORMAT, { policy: '' }],
  ] as const) {
    assert.equal((await ask(path, body)).status, 200, path)
    assert.equal((await ask(path, body, { token: null })).status, 403, path)
    assert.equal((await ask(path, body, { token: 'unknown' })).status, 403, path)
    assert.equal((await world.ask('GET', path)).status, 405, path)
  }
  const declared = policyUiPaths()
  assert.ok(!declared.some(({ onSecondary, whileFenced, whileSealed }) => onSecondary || whileFenced || whileSealed))
  await world.core.seal()
  assert.equal((await ask(CHECK, { policies: [] })).status, 503)
})

function rules(count: number): string {
  return 'path "a" { policy = "read" }\n'.repeat(count)
}

test('requests above the limits are refused', async (t) => {
  const { ask, check } = await open(t)
  assert.equal((await ask(FORMAT, { policy: ' '.repeat(256 << 10) })).status, 413)
  assert.equal((await check(' '.repeat(256 << 10))).status, 413)
  const values = Array.from({ length: 4000 }, () => '"1s"').join()
  const listed = `path "a" { policy = "write" denied_parameters = { p = [${values}] } }`
  const policies = Array.from({ length: 101 }, (_, at) => ({ name: String(at), policy: '' }))
  for (const [answer, text] of [
    [await check(rules(501)), /more than 500 rules/],
    [await check('', { path: 'a'.repeat(9000) }), /the path is longer than 8192 characters/],
    [await check('', { entity: { name: 'a'.repeat(513) } }), /longer than 512 characters/],
    [await check(listed, { parameters: { p: '1,'.repeat(400) } }), /the parameters are too long/],
    [await check('', { operation: 'write' }), /unknown operation/],
    [await ask(CHECK, { policies }), /at most 100 policies/],
    [await ask(CHECK, { policies: ['x'] }), /expected objects with the strings name and policy/],
    [await ask(CHECK, { policies: 'x' }), /expected a list of objects/],
    [await ask(CHECK, { policies: [{ name: 'n'.repeat(513), policy: '' }] }), /names of at most 512/],
  ] as const) {
    assert.equal(answer.status, 400, answer.text)
    assert.match(answer.text, text)
  }
  assert.equal((await check(rules(500))).status, 200)
})

test('hostile texts are checked and formatted in a bounded time or refused', async (t) => {
  const { ask, check } = await open(t)
  const size = 18_000
  const filled = (line: (at: number) => string) => {
    let text = ''
    for (let at = 0; text.length < size; at++) text += line(at)
    return text
  }
  const texts = {
    nested: `path "x" { allowed_parameters = { a = ${'['.repeat(size)}`,
    blocks: 'a={'.repeat(size / 3),
    'closing brackets': `path "x" {\n${']}, '.repeat(size / 5)}`,
    'a wide name': `path "x" { allowed_parameters = {\n${'a'.repeat(8000)} = []\n${filled((at) => `b${at}=[]\n`)
      .slice(0, 10_000)
      .replace(/\n[^\n]*$/, '')}\n}}`,
    'segments in all rules': Array.from({ length: 80 }, (_, at) => `path "${'+/'.repeat(100)}${at}" {}`).join('\n'),
    'faults in all lines': 'a=1\n'.repeat(size / 4),
    'many rules': filled((at) => `path "${at}" {}\n`),
    templates: `path "${'{{identity.entity.name}}'.repeat(size / 25)}" { policy = "deny" }`,
    'open braces': `path "${'{{'.repeat(size / 2)}" {}`,
  }
  const request = { path: 'a/'.repeat(4000), operation: 'list', entity: { name: 'e'.repeat(512) } }
  await check(READ_APP)
  for (const [name, policy] of Object.entries(texts)) {
    const before = process.cpuUsage()
    const answers = [await check(policy, request), await ask(FORMAT, { policy })]
    const { user } = process.cpuUsage(before)
    for (const { status, text } of answers) {
      assert.ok(status === 200 || status === 400, `${name}: ${text.slice(0, 200)}`)
      assert.ok(text.length < 8 * size, `${name}: ${text.length} characters`)
    }
    assert.ok(user < 500_000, `${name}: both took ${user / 1000} ms of processor time`)
  }
})

test('audit devices record both requests without their texts', async (t) => {
  const { check, world } = await open(t)
  const file = join(world.directory, 'audit.log')
  await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file } })
  await check('path "planted/rule" { policy = "read" }', { path: 'planted/path', parameters: { p: 'planted-value' } })
  const text = readFileSync(file, 'utf8')
  const lines = auditLinesOf(text).filter(({ request }) => request?.['path'] === CHECK)
  assert.deepEqual(
    lines.map(({ type }) => type),
    ['request', 'response'],
  )
  assert.match(JSON.stringify(lines[0]?.request.data), /"policy":"hmac-sha256:/)
  assert.ok(!text.includes('planted'))
})

test('both paths are in the OpenAPI document', async (t) => {
  const { world } = await open(t)
  const { text } = await world.ask('GET', 'sys/internal/specs/openapi')
  for (const path of [CHECK, FORMAT]) assert.ok(text.includes(`"/${path}"`), path)
})
