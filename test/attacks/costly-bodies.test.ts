/**
 * Bodies that cost the server much more than the sender: a megabyte of JSON needs a tenth of a second to parse, and a
 * second and sixty megabytes of audit lines with an audit device; and callers without a token could hold the complete
 * budget for large bodies. A body is not read before its caller is known to have permission.
 */
import assert from 'node:assert/strict'
import { readFileSync, statSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { userpass } from '../../src/auth/userpass/userpass.ts'
import { auditLinesIn } from '../helpers/audit-lines.ts'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { tokenWith } from '../helpers/kv-world.ts'
import { answersIn, listen } from '../helpers/raw-http.ts'
import { countTurns } from '../helpers/event-loop-turns.ts'

const MiB = 1 << 20
const POLICY = 'path "cubbyhole/own" { capabilities = ["create", "update"] }'
const names = (count: number) => Array.from({ length: count }, (_, at) => `"${at.toString(36)}":"a"`).join(',')

/** What costs most, each below a megabyte; `head` is what the body is otherwise. */
const COSTLY = {
  'a list of strings': `{"password":"x","role_id":"x","token":"x","list":[${'"",'.repeat(300_000)}""]}`,
  'many names': `{"password":"x","role_id":"x","token":"x",${names(90_000)}}`,
  'nested lists': `{"password":"x","role_id":"x","token":"x","list":[${`${'['.repeat(900)}${']'.repeat(900)},`.repeat(500)}1]}`,
}
const OPEN_PATHS = ['sys/unseal', 'auth/userpass/login/x', 'sys/wrapping/unwrap', 'sys/rekey/update']

async function opened(t: TestContext) {
  const world = await CoreWorld.open(t, { engines: [userpass] })
  assert.equal((await world.ask('POST', 'sys/auth/userpass', { type: 'userpass' })).status, 204)
  const file = join(world.directory, 'audit.log')
  const audit = async () => {
    const made = await world.ask('PUT', 'sys/audit/file', { type: 'file', options: { file_path: file } })
    assert.equal(made.status, 204, made.text)
  }
  return { world, file, audit, weak: await tokenWith(world, POLICY) }
}

test('a body without a token is parsed and recorded only up to a small number of fields', async (t) => {
  const { audit, file, world } = await opened(t)
  for (const isAudited of [false, true]) {
    if (isAudited) await audit()
    for (const [name, body] of Object.entries(COSTLY)) {
      for (const path of OPEN_PATHS) {
        const { status, text } = await world.ask('POST', path, body, { token: null })
        assert.equal(status, 400, `${name} ${path}: ${text}`)
        assert.match(text, /high complexity: more than (2000 values|1000 names)/)
      }
      for (const token of [null, 'no-token']) {
        assert.equal((await world.ask('POST', 'cubbyhole/own', body, { token })).status, 403, name)
      }
    }
  }
  assert.ok(statSync(file).size < 64 << 10, `${statSync(file).size} bytes of audit lines`)
  const pgp = Array.from({ length: 255 }, () => 'x')
  const most = { pgp_keys: pgp, recovery_pgp_keys: pgp, secret_shares: 255, secret_threshold: 3 }
  assert.doesNotMatch((await world.ask('POST', 'sys/init', most, { token: null })).text, /complexity/)
})

test('a long body is not read if its caller has no permission on the path', async (t) => {
  const { audit, file, weak, world } = await opened(t)
  await audit()
  const noJson = 'x'.repeat(20_000)
  for (const path of ['sys/mounts/x', 'cubbyhole/other', 'auth/token/lookup', 'no/such']) {
    for (const method of ['POST', 'PATCH']) {
      assert.equal((await world.ask(method, path, noJson, { token: weak })).status, 403, `${method} ${path}`)
    }
    assert.equal((await world.ask('POST', path, COSTLY['many names'], { token: weak })).status, 403)
  }
  const short = await world.ask('POST', 'sys/mounts/x', 'x', { token: weak })
  assert.equal(short.status, 400, 'a short one is, and its faults are reported as before')
  assert.ok(statSync(file).size < 64 << 10)
  assert.equal((await world.ask('POST', 'cubbyhole/own', noJson, { token: weak })).status, 400)
  assert.equal((await world.ask('POST', 'cubbyhole/own', COSTLY['many names'], { token: weak })).status, 204)
})

test('a body with very many values has one HMAC per field, which can be looked up', async (t) => {
  const { audit, file, weak, world } = await opened(t)
  await audit()
  const list = Array.from({ length: 100_000 }, (_, at) => String(at))
  const sent = await world.ask('POST', 'cubbyhole/own', { list, name: 'short', count: 3 }, { token: weak })
  assert.equal(sent.status, 204)
  assert.ok(statSync(file).size < 64 << 10)
  const hashed = async (input: string) => {
    const { body } = await world.ask('POST', 'sys/audit-hash/file', { input })
    return body.data['hash']
  }
  const line = auditLinesIn(file).find(({ request }) => request?.['path'] === 'cubbyhole/own')
  assert.deepEqual(line?.request.data, {
    list: await hashed(JSON.stringify(list)),
    name: await hashed('short'),
    count: 3,
  })
  const wide = Object.fromEntries(list.slice(0, 20_000).map((name) => [name, 'planted-value']))
  assert.equal((await world.ask('POST', 'cubbyhole/own', wide, { token: weak })).status, 204)
  const last = auditLinesIn(file).findLast(({ request }) => request?.['path'] === 'cubbyhole/own')
  assert.deepEqual(last?.request.data, { 'hmac-sha256': await hashed(JSON.stringify(wide)) })
  assert.ok(!readFileSync(file, 'latin1').includes('planted-value'))
})

test('a capabilities request for very many paths is limited and yields the event loop', async (t) => {
  const { weak, world } = await opened(t)
  const policy = 'path "sys/capabilities*" { capabilities = ["update"] }'
  const asking = await tokenWith(world, policy)
  const target = { 'sys/capabilities-self': {}, 'sys/capabilities': { token: weak }, 'sys/capabilities-accessor': {} }
  for (const [path, more] of Object.entries(target)) {
    const paths = Array.from({ length: 10_000 }, (_, at) => `secret/data/${at}/${'x'.repeat(2700)}`)
    const { status, text } = await world.ask('POST', path, { ...more, paths }, { token: asking })
    assert.deepEqual([status, /at most 1048576: send several requests/.test(text)], [413, true], `${path} ${text}`)
  }
  const paths = Array.from({ length: 10_000 }, (_, at) => `secret/data/${at}`)
  for (const body of [{ paths }, { paths: paths.join(',') }, { token: weak, paths }]) {
    const turns = countTurns()
    const path = 'token' in body ? 'sys/capabilities' : 'sys/capabilities-self'
    const { body: answer, status } = await world.ask('POST', path, body, { token: asking })
    assert.deepEqual([status, answer.data['secret/data/9999']], [200, ['deny']])
    const count = turns.end()
    assert.ok(count >= 30, `${path}: ${count} turns`)
  }
})

test('long bodies without a token are refused and do not use the budget of authenticated callers', async (t) => {
  const { weak, world } = await opened(t)
  const port = await listenTo(t, world)
  const begin = (path: string, token: string | undefined, lines: string, body: string | Buffer) => {
    const socket = connect(port, '127.0.0.1')
    const who = token === undefined ? '' : `X-Vault-Token: ${token}\r\n`
    socket.write(`POST /v1/${path} HTTP/1.1\r\nHost: x\r\n${who}${lines}\r\n\r\n`)
    if (body.length > 0) socket.write(body)
    const answer = listen(socket, {}).then(({ bytes }) => answersIn(bytes)[0]?.status)
    return { answer, socket }
  }
  const announced = `Content-Length: ${32 * MiB}`
  const chunked = 'Transfer-Encoding: chunked'
  const long = `${(2 * MiB).toString(16)}\r\n${'a'.repeat(2 * MiB)}\r\n`
  const cases = [
    ['cubbyhole/own', undefined, 403],
    ['cubbyhole/own', 'no-token', 403],
    ['sys/unseal', undefined, 413],
    ['sys/unseal', 'no-token', 413],
  ] as const
  for (const [path, token, expected] of cases) {
    assert.equal(await begin(path, token, announced, '').answer, expected, `${path} ${token} before it has come`)
    assert.equal(await begin(path, token, chunked, long).answer, expected, `${path} ${token} in chunks`)
    const asking = begin(path, token, `${announced}\r\nExpect: 100-continue`, '')
    assert.equal(await asking.answer, expected, 'the body is not requested')
  }
  // A path that takes no token reads as little from a caller who has one.
  const withToken = begin('sys/unseal', weak, `${chunked}\r\nConnection: close`, `${long}0\r\n\r\n`)
  assert.equal(await withToken.answer, 413)
  // One whose token is one is served, however many others have begun.
  const others = Array.from({ length: 20 }, () => begin('cubbyhole/own', 'no-token', announced, Buffer.alloc(20 * MiB)))
  const good = JSON.stringify({ v: 'a'.repeat(20 * MiB) })
  const sent = begin('cubbyhole/own', weak, `Content-Length: ${good.length}\r\nConnection: close`, good)
  assert.notEqual(await sent.answer, 503)
  for (const { socket } of others) socket.destroy()
})
