/** Paths that no operation of the table has, and answers that their operations have made whole. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { WholeAnswer } from '../../src/platform/operation.ts'
import { anyPath, type EchoedRequest } from '../helpers/fallback-stub.ts'
import { startEdge } from '../helpers/edge.ts'
import { type Answer, answersIn, ask, raw } from '../helpers/raw-http.ts'

const told = (answer: Answer): EchoedRequest => JSON.parse(answer.body.toString()) as EchoedRequest

test('a path without an operation goes to the fallback, bare and under /v1, with every verb', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  for (const [verb, operation] of [
    ['GET', 'read'],
    ['POST', 'write'],
    ['PUT', 'write'],
    ['PATCH', 'patch'],
    ['DELETE', 'delete'],
  ] as const) {
    for (const target of ['/v1/secret/data/x?list=true&a=1&a=2', '/secret/data/x?list=true&a=1&a=2']) {
      const answer = told(await ask(port, verb, target, 'X-Vault-Namespace: team/', 'X-Other: 1'))
      assert.equal(answer.operation, operation)
      assert.equal(answer.path, 'secret/data/x')
      assert.deepEqual(answer.query, [
        ['list', 'true'],
        ['a', '1'],
        ['a', '2'],
      ])
      assert.deepEqual(answer.headers, { 'X-Vault-Namespace': 'team/' })
    }
  }
  const { status, headers, body } = await ask(port, 'LINK', '/v1/secret/x')
  assert.deepEqual([status, body.toString()], [405, '{"errors":[]}'])
  assert.equal(headers.get('allow'), 'GET, POST, PATCH, DELETE, LIST, SCAN, PUT')
})

test('HEAD is the read without its body', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  const head = await ask(port, 'HEAD', '/v1/secret/x')
  const get = await ask(port, 'GET', '/v1/secret/x')
  assert.equal(head.status, 200)
  assert.equal(head.body.length, 0)
  assert.equal(head.headers.get('content-length'), String(get.body.length))
})

test('paths in the table do not reach the fallback: another verb is 405, an unknown path of a host 404 in plain text', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  assert.equal((await ask(port, 'DELETE', '/v1/client/metadata')).status, 405)
  assert.equal((await ask(port, 'GET', '/v1/client/stats')).headers.get('content-type'), 'application/json')
  for (const path of ['/v1/client/nothing', '/client/nothing', '/v1/client']) {
    const { status, headers } = await ask(port, 'GET', path)
    assert.equal(status, 404)
    assert.match(headers.get('content-type') ?? '', /^text\/plain/)
  }
  assert.equal(told(await ask(port, 'GET', '/v1/clients/x')).path, 'clients/x')
  assert.equal(told(await ask(port, 'GET', '/v1/')).path, '')
  assert.equal(told(await ask(port, 'GET', '/v1')).path, '')
  assert.equal(told(await ask(port, 'GET', '/')).path, '')
})

test('the path is decoded once and strictly', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  const paths: readonly (readonly [string, string])[] = [
    ['/v1/secret/a%2Fb%20c+d', 'secret/a/b c+d'],
    ['/v1/secret/%2e%2e/x', 'secret/../x'],
    ['/v1/secret/%25%32%66', 'secret/%2f'],
    ['/v1/secret//x/', 'secret//x/'],
    ['/v1/secret/%00%0a%c2%a0', 'secret/\0\n\u00a0'],
    ['/v1/%73ecret/%3Fx', 'secret/?x'],
    ['/v1/secret/%c3%bc', 'secret/ü'],
    ['/v1/client%2Fstats', 'client/stats'],
    ['http://elsewhere/v1/secret/x', 'secret/x'],
  ]
  for (const [target, path] of paths) assert.equal(told(await ask(port, 'GET', target)).path, path, target)
  for (const bad of ['%', '%zz', '%ff', '%c3', '%ed%a0%80', '%c0%ae']) {
    const { status, body } = await ask(port, 'GET', `/v1/secret/${bad}`)
    assert.equal(status, 400, bad)
    assert.match(body.toString(), /^\{"errors":\["[^"]+"\]\}$/)
  }
})

test('the fallback gets the token, the address and the body of any type, and the log gets the accessor', async (t) => {
  const { port, lines } = await startEdge(t, {
    fallback: anyPath(),
    resolve: () => {
      throw new Error('the token must not be resolved here')
    },
  })
  const body = 'a=1&b=2'
  const form = 'Content-Type: application/x-www-form-urlencoded'
  const head = `POST /v1/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Vault-Token: hvs.raw\r\n${form}\r\nContent-Length: 7\r\n\r\n`
  const [answer] = answersIn((await raw({ port }, head + body)).bytes)
  assert.ok(answer)
  const seen = told(answer)
  assert.deepEqual([seen.token, seen.remote, seen.body, seen.accessor], ['hvs.raw', '127.0.0.1', body, ''])
  assert.deepEqual(seen.headers, { 'Content-Type': 'application/x-www-form-urlencoded' })
  const line = lines.find(({ message }) => message === 'request')
  assert.equal(line?.fields['accessor'], 'via-write')
  assert.doesNotMatch(JSON.stringify(lines), /hvs\.raw/)
})

test('a complete response of the fallback is sent unchanged with its headers and length, and never compressed', async (t) => {
  const long = JSON.stringify({ text: 'x'.repeat(10_000) })
  const answers: Readonly<Record<string, WholeAnswer>> = {
    long: new WholeAnswer(200, { 'content-type': 'application/json', 'Cache-Control': 'no-store' }, long),
    none: new WholeAnswer(204, { 'Cache-Control': 'no-store' }, undefined),
    empty: new WholeAnswer(404, { 'Content-Type': 'application/json' }, undefined),
    teapot: new WholeAnswer(473, {}, Buffer.from([0, 255, 1])),
  }
  const { port } = await startEdge(t, { fallback: anyPath((call) => answers[call.raw.params['path'] ?? '']) })
  const get = (path: string) => ask(port, 'GET', `/v1/${path}`, 'Accept-Encoding: gzip', 'Accept: text/plain')
  const first = await get('long')
  assert.equal(first.body.toString(), long)
  assert.equal(first.headers.get('content-encoding'), undefined)
  assert.equal(first.headers.get('content-type'), 'application/json')
  assert.equal(first.headers.get('vary'), undefined)
  const none = await get('none')
  assert.deepEqual([none.status, none.headers.get('content-length')], [204, undefined])
  const empty = await get('empty')
  assert.deepEqual([empty.status, empty.headers.get('content-length')], [404, '0'])
  const teapot = await get('teapot')
  assert.deepEqual([teapot.status, [...teapot.body]], [473, [0, 255, 1]])
})

test('a body over the limit is 413 with the text that clients expect', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath(), limits: { bodyBytesMax: 1000 } })
  const announced = 'POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n'
  const chunked = `POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n${'x'.repeat(1001)}`
  for (const request of [announced, chunked]) {
    const [answer] = answersIn((await raw({ port }, request)).bytes)
    assert.equal(answer?.status, 413)
    assert.equal(answer?.body.toString(), '{"errors":["http: request body too large"]}')
  }
})
