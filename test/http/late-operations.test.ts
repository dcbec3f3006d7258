/** Operations that are loaded with the first request for a path that the table does not have yet. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { AnyOperation, Chunk } from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'
import { startEdge } from '../helpers/edge.ts'
import { MessageClient } from '../helpers/message-client.ts'
import { ask } from '../helpers/raw-http.ts'

/** Only requests that may send a token are granted to pages of other origins. */
const ASKS = 'Access-Control-Request-Headers: x-nomad-token'

const about = {
  summary: '',
  target: 'server',
  input: schema({}),
  errorFormat: 'plain',
  crossOrigin: ['GET'],
  authorize: () => undefined,
} as const

const list: AnyOperation = {
  ...about,
  name: 'late.list',
  http: ['GET /v1/late'],
  output: 'json',
  run: () => Promise.resolve(['a']),
}

const stream: AnyOperation = {
  ...about,
  name: 'late.stream',
  http: ['GET /v1/late/:id'],
  output: 'stream',
  run: oneByte,
}

async function* oneByte(): AsyncGenerator<Chunk> {
  yield { status: 200 }
  yield Buffer.from('x')
}

function loader() {
  const loads = { count: 0 }
  const later = async () => {
    loads.count++
    await new Promise((resolve) => setTimeout(resolve, 20))
    return [list, stream]
  }
  return { loads, later }
}

test('the first requests for a path that the table lacks wait for one load', async (t) => {
  const { later, loads } = loader()
  const { port } = await startEdge(t, { later })
  assert.equal((await ask(port, 'GET', '/v1/client/metadata')).status, 200)
  assert.equal(loads.count, 0)
  const paths = ['/v1/late', '/late', '/v1/late/x', '/v1/nothing']
  const answers = await Promise.all(paths.map((path) => ask(port, 'GET', path)))
  assert.deepEqual(
    answers.map(({ status }) => status),
    [200, 200, 200, 404],
  )
  assert.equal(answers[0]?.body.toString(), '["a"]')
  assert.equal((await ask(port, 'DELETE', '/v1/late')).status, 405)
  assert.equal((await ask(port, 'GET', '/v1/late')).status, 200)
  assert.equal(loads.count, 1)
})

test('a preflight is answered as for an operation of the table', async (t) => {
  const { port } = await startEdge(t, { later: loader().later })
  const lines = ['Origin: http://page.example', 'Access-Control-Request-Method: GET', ASKS]
  const { headers, status } = await ask(port, 'OPTIONS', '/v1/late', ...lines)
  assert.deepEqual([status, headers.get('access-control-allow-methods')], [204, 'GET'])
})

test('a WebSocket handshake waits too, and has the error of its request as close code', async (t) => {
  for (const [path, expected] of [
    ['/v1/late/x', 1000],
    ['/v1/late', 4400],
    ['/v1/nothing', 4404],
  ] as const) {
    const { port } = await startEdge(t, { later: loader().later })
    const client = new MessageClient({ port, path })
    t.after(() => client.socket.destroy())
    assert.equal((await client.close()).code, expected, path)
  }
})

test('a load that failed is an error of its requests, and the next request loads again', async (t) => {
  const { later, loads } = loader()
  const { port } = await startEdge(t, {
    later: () => (loads.count === 0 ? Promise.reject(new Error(`load ${++loads.count}`)) : later()),
  })
  assert.equal((await ask(port, 'GET', '/v1/late')).status, 500)
  assert.equal((await ask(port, 'GET', '/v1/late')).status, 200)
  assert.equal(loads.count, 2)
})
