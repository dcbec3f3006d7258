/**
 * The cursors of a job's logs may be in the body of a POST, which is read before its caller is authorized: without a token it must be no
 * longer than any other body, and not be parsed if its structure is costly.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { cursorField } from '../../src/cluster/api/job-log-cursors.ts'
import { FREE_BYTES } from '../../src/http/request.ts'
import { startFleetServer } from '../helpers/fleet-server.ts'
import { nodes } from '../cluster/api/job-log-fixture.ts'

const CURSOR = '6f1c0b9e-2f0a-4a51-9d0c-0000000000aa.c'

/** Each costs a tenth of a second and tens of megabytes. */
const COSTLY = {
  'nested lists': `{"Cursors":[],"x":[${`${'['.repeat(900)}${']'.repeat(900)},`.repeat(500)}1]}`,
  objects: `{"Cursors":[],"x":[${'{},'.repeat(300_000)}1]}`,
  'many names': `{"Cursors":["${CURSOR}"],${Array.from({ length: 60_000 }, (_, at) => `"${at}":1`).join(',')}}`,
  'many cursors': `{"Cursors":[${'"",'.repeat(300_000)}""]}`,
}

test('a costly body is refused by its length or its structure, with and without a token', async (t) => {
  const { logs } = nodes(async function* () {
    yield { status: 200 }
  })
  const server = await startFleetServer(t, logs)
  const post = (body: string) => fetch(`${server.url}/v1/job/web/logs?cursor=`, { method: 'POST', body })
  for (const [name, body] of Object.entries(COSTLY)) {
    const answer = await post(body)
    assert.equal(answer.status, 400, `${name}: ${await answer.text()}`)
  }
  const long = await post(`{"Cursors":["${'a'.repeat(FREE_BYTES)}"]}`)
  assert.equal(long.status, 413)
})

test('a costly body is not parsed', (t) => {
  const parse = t.mock.method(JSON, 'parse')
  for (const [name, body] of Object.entries(COSTLY)) {
    const raw = { params: {}, query: [], headers: {}, body }
    assert.throws(() => cursorField.parse(raw, 'cursor'), /malformed body|at most 10000 cursors/, name)
  }
  assert.equal(parse.mock.callCount(), 0)
  const most = JSON.stringify({
    Cursors: Array.from({ length: 10_000 }, (_, at) => `${CURSOR.slice(0, 31)}${String(at).padStart(5, '0')}.c`),
  })
  assert.equal(cursorField.parse({ params: {}, query: [], headers: {}, body: most }, 'cursor')?.size, 10_000)
})
