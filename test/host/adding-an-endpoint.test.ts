/** The guide to endpoints: its example works, and the words that it names are there. */
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { ANONYMOUS } from '../../src/platform/operation.ts'
import { NODE, UNKNOWN } from '../helpers/allocation.ts'
import { EVERYBODY, startEdge } from '../helpers/edge.ts'
import { checkExample, readGuide } from '../helpers/guide.ts'
import { hello } from '../helpers/hello-endpoint.ts'
import { ask } from '../helpers/raw-http.ts'

const ROOT = resolve(import.meta.dirname, '../..')

const greeted = (name: string) => [200, JSON.stringify({ Hello: name, NodeID: NODE })]

test('the tables and parts that docs/adding-an-endpoint.md names exist', () => {
  const guide = readGuide('adding-an-endpoint.md')
  const rows = [...guide.matchAll(/^ {3}\|.*\| `(\w+)` \| `(src\/[\w./-]+)` \| `(\w+)` \|$/gm)]
  assert.deepEqual(
    rows.map(([, room]) => room),
    ['host', 'cluster', 'telemetry'],
  )
  for (const [, , file = '', parts = ''] of rows) {
    const text = readFileSync(join(ROOT, file), 'utf8')
    assert.match(text, new RegExp(`interface ${parts} `), `${file} has ${parts}`)
    assert.match(text, new RegExp(`TABLE: readonly EndpointBinding<${parts}>\\[\\] = `), `${file} has a table`)
  }
})

test('the endpoint of the guide is a file of the tests and responds as described', async (t) => {
  checkExample(readGuide('adding-an-endpoint.md'), 'hello-endpoint.ts', {
    '../../src/platform/': '../platform/',
    '../../src/host/': './',
  })
  const edge = await startEdge(t, {
    operations: [hello.in({ nodeId: NODE })],
    resolve: (token) => (token === undefined ? EVERYBODY : ANONYMOUS),
  })
  const get = async (path: string, ...headers: string[]) => {
    const { body, status } = await ask(edge.port, 'GET', path, ...headers)
    return [status, body.toString().trim()]
  }
  assert.deepEqual(await get('/v1/client/hello/ann'), greeted('ann'))
  assert.deepEqual(await get(`/client/hello/a/b%20c?node_id=${NODE}`), greeted('a/b c'))
  assert.deepEqual(await get('/v1/client/hello/'), [400, 'name is empty, say who is greeted'])
  assert.deepEqual(await get(`/v1/client/hello/ann?node_id=${UNKNOWN}`), [404, `Unknown node ${UNKNOWN}`])
  assert.deepEqual(await get('/v1/client/hello/ann', 'X-Nomad-Token: x'), [403, 'Permission denied'])
})
