/** Audit devices through the whole core: what a file holds, what is refused, and that no value is in it. */
import assert from 'node:assert/strict'
import { hash } from 'node:crypto'
import {
  appendFileSync,
  linkSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { cloud } from '../../../src/engines/cloud/cloud.ts'
import { errorList } from '../../../src/engines/framework/engine.ts'
import { goQuote } from '../../../src/engines/cloud/templates/template-functions.ts'
import { kv } from '../../../src/engines/kv/kv.ts'
import { KeyedHash } from '../../../src/platform/keyed-hash.ts'
import { redactValues } from '../../../src/secrets/audit/audit-errors.ts'
import { CoreWorld } from '../../helpers/core-world.ts'

interface AuditLine {
  readonly type: string
  readonly error?: string
  readonly auth?: Readonly<Record<string, unknown>>
  readonly request: Readonly<Record<string, unknown>> & { readonly data?: Record<string, unknown> }
  readonly response?: { readonly data?: Record<string, unknown> }
  readonly chain: { readonly sequence: number; readonly previous: string }
}

async function audited(t: Parameters<typeof CoreWorld.open>[0], options: Record<string, string> = {}) {
  const world = await CoreWorld.open(t, { engines: [kv, cloud] })
  const file = join(world.directory, 'audit.log')
  await world.ask('POST', 'sys/mounts/kept', { type: 'kv', options: { version: '2' } })
  const enabled = await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file, ...options } })
  assert.equal(enabled.status, 204, enabled.text)
  return { world, file }
}

function linesOf(...files: readonly string[]): AuditLine[] {
  const texts = files.flatMap((file) => readFileSync(file, 'utf8').trimEnd().split('\n'))
  return texts.map((text) => JSON.parse(text) as AuditLine)
}

/** Whether each line has the hash of the one before. */
function assertChain(...files: readonly string[]): void {
  let previous: string | undefined
  let sequence: number | undefined
  for (const text of files.flatMap((file) => readFileSync(file, 'utf8').trimEnd().split('\n'))) {
    const { chain } = JSON.parse(text) as AuditLine
    if (previous !== undefined) assert.equal(chain.previous, previous)
    if (sequence !== undefined) assert.equal(chain.sequence, sequence + 1)
    previous = hash('sha256', text)
    sequence = chain.sequence
  }
}

test('each request has two lines that contain no value', async (t) => {
  const { file, world } = await audited(t)
  const before = linesOf(file).length
  await world.ask('POST', 'kept/data/db', { data: { password: 'planted-value-1' } })
  const read = await world.ask('GET', 'kept/data/db')
  assert.equal(read.status, 200)
  const lines = linesOf(file).slice(before)
  assert.deepEqual(
    lines.map(({ request, type }) => `${type} ${String(request['operation'])} ${String(request['path'])}`),
    [
      'request update kept/data/db',
      'response update kept/data/db',
      'request read kept/data/db',
      'response read kept/data/db',
    ],
  )
  const text = readFileSync(file, 'utf8')
  for (const planted of ['planted-value-1', world.rootToken]) assert.ok(!text.includes(planted), planted)
  const { body } = await world.ask('PUT', 'sys/audit-hash/file', { input: 'planted-value-1' })
  const hashed = String(body.data['hash'])
  assert.match(hashed, /^hmac-sha256:[0-9a-f]{64}$/)
  assert.deepEqual(lines[0]?.request.data, { data: { password: hashed } })
  assert.deepEqual((lines[3]?.response?.data?.['data'] as object) ?? {}, { password: hashed })
  assert.equal(lines[1]?.response?.data?.['version'], 1, 'numbers stay as they are')
  assert.equal(lines[3]?.request['id'], read.body['request_id'], 'lines and answer are found by one ID')
  assertChain(file)
})

test('refused requests are recorded: without a token, with an invalid token, without permission, with a malformed body', async (t) => {
  const { file, world } = await audited(t)
  const weak = await world.ask('POST', 'auth/token/create', { policies: ['default'] })
  const token = String(weak.body.auth['client_token'])
  const before = linesOf(file).length
  assert.equal((await world.ask('GET', 'kept/data/db', undefined, { token: null })).status, 403)
  assert.equal((await world.ask('GET', 'kept/data/db', undefined, { token: 's.planted-token' })).status, 403)
  assert.equal((await world.ask('GET', 'kept/data/db', undefined, { token })).status, 403)
  assert.equal((await world.ask('POST', 'kept/data/db', '{"broken')).status, 400)
  assert.equal((await world.ask('GET', 'sys/health', undefined, { token: null })).status, 200)
  const lines = linesOf(file).slice(before)
  assert.equal(lines.length, 8, 'two lines each, and none of sys/health')
  for (const line of lines.filter(({ type }) => type === 'response')) assert.ok(line.error, JSON.stringify(line))
  assert.ok(!readFileSync(file, 'utf8').includes('s.planted-token'))
})

test('undeclared parts of a path and values quoted in errors are HMACs', async (t) => {
  const { file, world } = await audited(t)
  const token = 'planted-token-1'
  const { hash: hashed } = (await world.ask('PUT', 'sys/audit-hash/file', { input: token })).body.data
  const before = linesOf(file).length
  const rows: readonly (readonly [string, string])[] = [
    [`auth/token/revoke/${token}`, `auth/token/revoke/${String(hashed)}`],
    [`auth/token/lookup/${token}`, `auth/token/lookup/${String(hashed)}`],
    [`auth/token/${token}`, `auth/token/${String(hashed)}`],
    [`sys/wrapping/unwrap/${token}`, `sys/wrapping/unwrap/${String(hashed)}`],
    [token, String(hashed)],
    ['kept/data/db', 'kept/data/db'],
    ['auth/token/lookup-self', 'auth/token/lookup-self'],
    ['sys/mounts/', 'sys/mounts/'],
  ]
  for (const [path] of rows) await world.ask('GET', path)
  const lines = linesOf(file).slice(before)
  const paths = lines.filter(({ type }) => type === 'request').map(({ request }) => String(request['path']))
  const shownPaths = rows.map(([, shown]) => shown)
  assert.deepEqual(paths, shownPaths)
  const long = `planted-${'x'.repeat(200)}`
  await world.ask('POST', 'sys/mounts/cloud', { type: 'aws' })
  const escaped = 'planted "and"\n\\ '.repeat(40)
  const roles = [escaped, 'planted'.repeat(30), `"\n\u0007\u{1f600}${'planted'.repeat(30)}`].flatMap((text) => [
    ['cloud/roles/r', { credential_type: 'iam_user', policy_document: text }] as const,
    ['cloud/roles/r', { policy: text }] as const,
    ['cloud/roles/r', { credential_type: text }] as const,
    ['cloud/roles/r', { credential_type: 'iam_user', policy_arns: [text] }] as const,
    ['cloud/roles/r', { credential_type: 'assumed_role', role_arns: [text] }] as const,
  ])
  const faulty: readonly (readonly [string, object])[] = [
    ['auth/token/roles/r', { token_bound_cidrs: `192.168.0.0/16,${long}` }],
    ['auth/token/roles/r', { token_type: long }],
    ['auth/token/roles/r', { token_type: 'planted-short' }],
    ['sys/mounts/new', { type: long }],
    ['identity/group', { type: 'planted "quoted" \\ text' }],
    ...roles,
  ]
  for (const [path, body] of faulty)
    assert.equal((await world.ask('POST', path, body)).status, 400, JSON.stringify(body))
  const [cidr, ...errors] = linesOf(file)
    .slice(-2 * faulty.length)
    .flatMap(({ error = [] }) => error)
  assert.equal(errors.length, faulty.length - 1)
  assert.match(cidr ?? '', /^bound CIDRs: "hmac-sha256:\w{64}" is not an address or a range such as "10\.0\.0\.0\/8"$/)
  assert.ok(!/planted|xxx/.test(readFileSync(file, 'utf8')))
})

test('values in an error are redacted if they are whole, truncated, nested or repeated', () => {
  const key = new KeyedHash(Buffer.alloc(32, 1))
  const shown = (error: string, data: Record<string, unknown>) => redactValues(key, error, data)
  const hmac = (text: string) => `hmac-sha256:${key.digest(text, 'hex')}`
  const long = 'v'.repeat(100)
  assert.equal(shown(`no such type: ${long.slice(0, 64)}`, { type: long }), `no such type: ${hmac(long)}`)
  assert.equal(shown('field "ttl" is wrong', { ttl: 'soon' }), 'field "ttl" is wrong')
  assert.equal(shown('"a" and "x\\"y"', { list: [{ deep: 'x"y' }] }), `"a" and "${hmac('x"y')}"`)
  for (const texts of [
    ['12345678', '5678abc-', '78abc', '345678ab'],
    ['345678ab', '12345678'],
  ]) {
    assert.equal(shown('12345678abc', { texts }), `${hmac('12345678')}${hmac('345678ab')}c`)
  }
  const quotes = '"q" '.repeat(17)
  assert.equal(shown(quotes, {}), `${'"q" '.repeat(16)}"${hmac('q')}" `)
  assert.equal(shown('"q"', { list: Array.from({ length: 10_001 }, () => 1) }), `"${hmac('q')}"`)
  const many = shown('aaaaaaab'.repeat(1000), { a: ['aaaaaaab', ...Array.from({ length: 9000 }, () => 'hmac-sha')] })
  assert.equal(many, `${hmac('aaaaaaab')}…`)
})

test('values in an error are redacted with a truncation mark, with escapes and in nested quotations', () => {
  const key = new KeyedHash(Buffer.alloc(32, 1))
  const shown = (error: string, data: Record<string, unknown>) => redactValues(key, error, data)
  const hmac = (text: string) => `hmac-sha256:${key.digest(text, 'hex')}`
  const long = 'v'.repeat(300)
  const odd = `"\n\u0007\\\u{1f600}\u200b${'v'.repeat(300)}`
  for (const text of [long, odd]) {
    for (const cut of [text, `${text.slice(0, 200)}…`, `${text.slice(0, 61)}...`]) {
      assert.equal(shown(`no: ${goQuote(cut)}!`, { text }), `no: "${hmac(text)}"!`)
      assert.equal(shown(`no: ${goQuote(`a ${goQuote(cut)}`)}!`, { text }), `no: "a \\"${hmac(text)}\\""!`)
    }
    const listed = goQuote(errorList([`unknown: ${text.slice(0, 100)}…: no`]))
    assert.equal(shown(listed, { text }), goQuote(errorList([`unknown: ${hmac(text)}…: no`])))
    assert.equal(shown(`no: ${goQuote(text).slice(0, 150)}`, { text }), `no: "${hmac(text)}`)
    assert.equal(shown(`no: ${text.slice(0, 200)}`, { text }), `no: ${hmac(text)}`)
  }
  assert.equal(shown('"" is not "abc", "…"', { text: 'abc' }), `"" is not "${hmac('abc')}", "…"`)
  assert.equal(shown('"\\Uffffffff" "\\', { text: '\ufffd' }), `"${hmac('\ufffd')}" "\\`)
})

test('a request that no device records changes nothing, and the error names the device', async (t) => {
  const { file, world } = await audited(t)
  await world.ask('POST', 'kept/data/there', { data: { a: 'b' } })
  const kept = () => [world.core.barrier.paths('sys/token/'), world.core.barrier.paths('core/wrapping/')]
  const before = kept()
  assert.notDeepEqual(before[0], [])
  rmSync(file)
  writeFileSync(file, 'something else\n')
  const wrapped = await world.ask('GET', 'kept/data/there', undefined, { headers: { 'X-Vault-Wrap-TTL': '60s' } })
  const key = await world.ask('GET', 'sys/wrapping/pubkey')
  assert.deepEqual([wrapped.status, key.status], [500, 500])
  assert.deepEqual(kept(), before, 'a read makes no token for its answer, and no key')
  const refused = await world.ask('POST', 'kept/data/db', { data: { a: 'b' } })
  assert.equal(refused.status, 500)
  assert.match(refused.body.errors[0] ?? '', /^no audit device has recorded the request: file\//)
  assert.ok(!refused.text.includes(file), 'where the file is, is not told')
  assert.equal(readFileSync(file, 'utf8'), 'something else\n')
  rmSync(file)
  assert.equal((await world.ask('GET', 'kept/data/db')).status, 404, 'it was not written')
  assertChain(file)
})

test('a request whose first line is not recorded changes nothing and reveals nothing', async (t) => {
  const { world } = await audited(t)
  await world.ask('POST', 'kept/data/there', { data: { a: 'planted-value' } })
  const [device = assert.fail('there is one')] = world.core.audit?.devices ?? []
  const record = device.record.bind(device)
  const recorded: string[] = []
  const { mock } = t.mock.method(device, 'record', (json: string) => {
    if (json.includes('"type":"request"')) return Promise.reject(new Error('not this line'))
    recorded.push(json)
    return record(json)
  })
  const read = await world.ask('GET', 'kept/data/there')
  const written = await world.ask('POST', 'kept/data/there', { data: { a: 'other' } })
  const removed = await world.ask('DELETE', 'kept/metadata/there')
  for (const { status, text } of [read, written, removed]) {
    assert.equal(status, 500)
    assert.match(text, /no audit device has recorded the request: file\//)
    assert.ok(!text.includes('planted-value'))
  }
  assert.ok(
    recorded.some((line) => line.includes('"operation":"read"')),
    'the second line of the read was recorded',
  )
  mock.restore()
  const now = await world.ask('GET', 'kept/data/there')
  assert.deepEqual((now.body.data['metadata'] as { version: number }).version, 1)
})

test('the error of a request that no device records does not name a device that was disabled', async (t) => {
  const { file, world } = await audited(t)
  const second = join(world.directory, 'second.log')
  const device = { type: 'file', options: { file_path: second } }
  assert.equal((await world.ask('PUT', 'sys/audit/second', device)).status, 204)
  rmSync(file)
  writeFileSync(file, 'something else\n')
  assert.equal((await world.ask('POST', 'kept/data/db', { data: { a: 'b' } })).status, 200, 'the second records it')
  assert.ok(world.core.audit?.states.some(({ failure, path }) => path === 'file/' && failure !== undefined))
  assert.equal((await world.ask('DELETE', 'sys/audit/file')).status, 204)
  rmSync(second)
  writeFileSync(second, 'something else\n')
  const refused = await world.ask('POST', 'kept/data/db', { data: { a: 'b' } })
  assert.equal(refused.status, 500)
  assert.match(refused.body.errors.join(), /^no audit device has recorded the request: second\/ has content [^,]*$/)
})

test('a failing device does not delay another device', async (t) => {
  const { file, world } = await audited(t)
  const second = join(world.directory, 'second.log')
  assert.equal(
    (await world.ask('PUT', 'sys/audit/second', { type: 'file', options: { file_path: second } })).status,
    204,
  )
  rmSync(file)
  symlinkSync('/dev/full', file)
  assert.equal((await world.ask('POST', 'kept/data/db', { data: { a: 'b' } })).status, 200)
  const listed = await world.ask('GET', 'sys/audit')
  const device = listed.body.data['file/'] as { failures: number; fault?: string }
  assert.ok(device.failures >= 2)
  assert.match(device.fault ?? '', /is a symbolic link/)
})

test('the chain continues over a rotation, a restart and a partial line', async (t) => {
  const { file, world } = await audited(t)
  await world.ask('POST', 'kept/data/db', { data: { a: '1' } })
  const old = `${file}.1`
  renameSync(file, old)
  await world.ask('POST', 'kept/data/db', { data: { a: '2' } })
  assertChain(old, file)
  await world.close()
  const whole = readFileSync(file, 'utf8')
  appendFileSync(file, '{"time":"2026-01-01T00:00:00.000Z","type":"requ')
  const again = await CoreWorld.reopen(world.directory, world.keys, { engines: [kv, cloud] })
  t.after(() => again.store.close())
  await again.ask('POST', 'kept/data/db', { data: { a: '3' } })
  assert.ok(readFileSync(file, 'utf8').startsWith(whole), 'what was whole stays')
  assertChain(old, file)
  await again.core.seal()
})

test('the request that seals the core has both lines', async (t) => {
  const { file, world } = await audited(t)
  assert.equal((await world.ask('PUT', 'sys/seal')).status, 204)
  const [asked, done] = linesOf(file).slice(-2)
  assert.equal(asked?.request['path'], 'sys/seal')
  assert.equal(done?.type, 'response')
  assert.equal(done?.request['path'], 'sys/seal')
})

test('a device with a forbidden destination is refused', async (t) => {
  const world = await CoreWorld.open(t)
  const inUse = join(world.directory, 'in-use')
  writeFileSync(inUse, 'a program\n')
  const link = join(world.directory, 'link')
  symlinkSync(inUse, link)
  const other = join(world.directory, 'other')
  writeFileSync(other, '')
  linkSync(other, join(world.directory, 'name'))
  const bad: readonly [Record<string, unknown>, RegExp][] = [
    [{ type: 'file', options: { file_path: inUse } }, /not written by an audit device/],
    [{ type: 'file', options: { file_path: join(world.directory, 'secrets.db') } }, /not written by an audit device/],
    [{ type: 'file', options: { file_path: link } }, /is a symbolic link/],
    [{ type: 'file', options: { file_path: other } }, /several hard links/],
    [{ type: 'file', options: { file_path: 'relative' } }, /absolute/],
    [{ type: 'file', options: { file_path: `${world.directory}/../x` } }, /absolute/],
    [{ type: 'file', options: { file_path: world.directory } }, /./],
    [{ type: 'file', options: {} }, /file_path is required/],
    [{ type: 'file', options: { file_path: `${inUse}2`, mode: '0777' } }, /must not be executable/],
    [{ type: 'file', options: { file_path: `${inUse}2`, prefix: '#!/bin/sh\n' } }, /prefix/],
    [{ type: 'file', options: { file_path: `${inUse}2`, colour: 'red' } }, /unknown options/],
    [{ type: 'socket', options: { address: 'nowhere' } }, /host:port/],
    [{ type: 'socket', options: { address: '127.0.0.1:1' } }, /audit device write failed/],
    [{ type: 'syslog', options: {} }, /unknown audit device type/],
  ]
  for (const [given, text] of bad) {
    const answer = await world.ask('PUT', 'sys/audit/file', given)
    assert.equal(answer.status, 400, `${JSON.stringify(given)}: ${answer.text}`)
    assert.match(answer.body.errors[0] ?? '', text)
  }
  assert.equal(readFileSync(inUse, 'utf8'), 'a program\n')
  assert.deepEqual((await world.ask('GET', 'sys/audit')).body.data, {})
})

test('an audit file is private, and its truncation is detected after a restart', async (t) => {
  const { file, world } = await audited(t)
  assert.equal(statSync(file).mode & 0o777, 0o600)
  for (let at = 0; at < 5; at++) await world.ask('GET', 'kept/data/db')
  await world.core.open.auditing.devices.saveHeads()
  await world.close()
  const [first = ''] = readFileSync(file, 'utf8').split('\n')
  truncateSync(file, first.length + 1)
  const again = await CoreWorld.reopen(world.directory, world.keys, { engines: [kv, cloud] })
  t.after(() => again.store.close())
  await again.ask('GET', 'kept/data/db')
  const [, next] = linesOf(file)
  assert.ok((next?.chain.sequence ?? 0) > 10, 'the number tells that lines are missing')
  await again.core.seal()
})

test('requests that a quota refuses are recorded if that is enabled, without a caller', async (t) => {
  const { file, world } = await audited(t)
  const operator = { remote: '10.99.0.1' }
  await world.ask('POST', 'sys/quotas/rate-limit/q', { path: 'kept', rate: 1, interval: '1h' }, operator)
  await world.ask('GET', 'kept/data/x')
  const before = linesOf(file).length
  assert.equal((await world.ask('GET', 'kept/data/x')).status, 429)
  assert.equal(linesOf(file).length, before)
  await world.ask('POST', 'sys/quotas/config', { enable_rate_limit_audit_logging: true }, operator)
  const from = linesOf(file).length
  assert.equal((await world.ask('GET', 'kept/data/x')).status, 429)
  const lines = linesOf(file).slice(from)
  assert.deepEqual(
    lines.map(({ error = '', type }) => `${type} ${error}`),
    ['request ', 'response request path "kept/data/x": rate limit quota exceeded'],
  )
  assert.equal(lines[0]?.auth?.['accessor'], undefined)
})
