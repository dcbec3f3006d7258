/** Pages of other origins at operations that answer in their own form: what they may is a setting that changes. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type CrossOrigin, isSameOrigin } from '../../src/http/cross-origin.ts'
import { type AnyOperation, WholeAnswer } from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'
import { anyPath } from '../helpers/fallback-stub.ts'
import { startEdge } from '../helpers/edge.ts'
import { ask, type Answer } from '../helpers/raw-http.ts'

const RULE: CrossOrigin = {
  allowedOrigins: ['https://good.example'],
  allowedHeaders: ['Content-Type', 'X-Vault-Token'],
  allowCredentials: false,
}
const GOOD = 'Origin: https://good.example'
const EVIL = 'Origin: https://evil.example'
const PREFLIGHT = 'Access-Control-Request-Method: LIST'
const ASKED = ['Access-Control-Request-Method: GET', 'Access-Control-Request-Headers: x-nomad-token']

const controls = ({ headers }: Answer) =>
  Object.fromEntries([...headers].filter(([name]) => name.startsWith('access-control') || name === 'vary'))

test('CORS headers follow the setting, for requests and preflights', async (t) => {
  let rule: CrossOrigin | undefined
  const { port } = await startEdge(t, { fallback: anyPath(), crossOrigin: () => rule })
  const get = (...lines: string[]) => ask(port, 'GET', '/v1/secret/x', ...lines)
  const preflight = (...lines: string[]) => ask(port, 'OPTIONS', '/v1/secret/x', ...lines)

  assert.deepEqual([(await get(EVIL)).status, controls(await get(EVIL))], [200, {}])
  assert.equal(controls(await preflight(EVIL, PREFLIGHT))['access-control-allow-origin'], undefined)

  rule = RULE
  const allowed = { 'access-control-allow-origin': 'https://good.example', vary: 'Origin' }
  assert.deepEqual(controls(await get(GOOD)), allowed)
  const asked = await preflight(GOOD, PREFLIGHT)
  assert.equal(asked.status, 204)
  assert.deepEqual(controls(asked), {
    ...allowed,
    'access-control-allow-methods': 'DELETE, GET, OPTIONS, POST, PUT, LIST, SCAN, PATCH',
    'access-control-allow-headers': 'Content-Type, X-Vault-Token',
    'access-control-max-age': '300',
  })
  for (const refused of [await get(EVIL), await get('Origin: null'), await preflight(EVIL, PREFLIGHT)]) {
    assert.equal(refused.status, 403)
    assert.equal(refused.body.toString(), '{"errors":["origin not allowed"]}')
    assert.deepEqual(controls(refused), { vary: 'Origin' })
  }
  assert.equal((await preflight(GOOD, 'Access-Control-Request-Method: BREW')).status, 405)
  // No page, and a page of the same origin.
  assert.deepEqual([(await get()).status, controls(await get())], [200, {}])
  assert.deepEqual(
    [(await get('Origin: http://localhost')).status, controls(await get('Origin: http://localhost'))],
    [200, {}],
  )

  rule = { ...RULE, allowedOrigins: ['*'], allowCredentials: true }
  assert.deepEqual(controls(await get(EVIL)), {
    'access-control-allow-origin': 'https://evil.example',
    'access-control-allow-credentials': 'true',
    vary: 'Origin',
  })
})

test('a disallowed origin changes nothing, and endpoints of hosts keep their own rules', async (t) => {
  let written = 0
  const fallback = anyPath(() => {
    written++
    return undefined
  })
  const table: AnyOperation = {
    name: 'test.health',
    summary: '',
    http: ['GET /v1/sys/health'],
    target: 'server',
    input: schema({}),
    output: 'answer',
    crossOrigin: 'configured',
    errorFormat: 'errors',
    authorize: () => undefined,
    run: async () => new WholeAnswer(200, {}, 'ok'),
  }
  const { port } = await startEdge(t, { fallback, operations: [table], crossOrigin: () => RULE })
  assert.equal((await ask(port, 'POST', '/v1/secret/x', EVIL, 'Content-Length: 0')).status, 403)
  assert.equal(written, 0)
  assert.equal((await ask(port, 'GET', '/v1/sys/health', EVIL)).status, 403)
  assert.equal((await ask(port, 'OPTIONS', '/v1/sys/health', EVIL, PREFLIGHT)).status, 403)
  assert.equal((await ask(port, 'OPTIONS', '/v1/sys/health', GOOD, PREFLIGHT)).status, 204)
  const stats = await ask(port, 'GET', '/v1/client/stats', EVIL, 'X-Nomad-Token: x')
  assert.equal(stats.headers.get('access-control-allow-origin'), '*')
  const asked = await ask(port, 'OPTIONS', '/v1/client/stats', EVIL, ...ASKED)
  assert.deepEqual([asked.status, asked.headers.get('access-control-allow-origin')], [204, '*'])
  for (const more of [[], ['Access-Control-Request-Headers: content-type']]) {
    const withoutToken = await ask(port, 'OPTIONS', '/v1/client/stats', EVIL, ASKED[0] ?? '', ...more)
    assert.equal(withoutToken.headers.get('access-control-allow-origin'), undefined, 'a request without a token')
  }
})

test('an origin is that of the request in any spelling of its Host header', () => {
  for (const host of ['host.example', 'host.example:80', 'HOST.example']) {
    assert.equal(isSameOrigin('http://host.example', host), true, host)
  }
  assert.equal(isSameOrigin('https://host.example', 'host.example:443'), true)
  for (const host of ['host.example:443', 'other.example', 'host.example.evil', '']) {
    assert.equal(isSameOrigin('http://host.example', host), false, host)
  }
  assert.equal(isSameOrigin('null', 'null'), false)
})
