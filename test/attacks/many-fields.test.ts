/**
 * A caller without a token sends a form of half a million fields in a megabyte. The form parser needs quadratic time,
 * which would block the server for fifteen seconds; so would JSON of a million names with a token. Both are refused
 * before they are parsed.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { listenTo } from '../helpers/core-listener.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { tokenWith } from '../helpers/kv-world.ts'
import { answersIn, raw } from '../helpers/raw-http.ts'

const FORM = 'application/x-www-form-urlencoded'

interface Sent {
  readonly path: string
  readonly body: string
  readonly type?: string
  readonly token?: string
}

async function post(port: number, { body, path, token, type = 'application/json' }: Sent) {
  const lines = [`POST /v1/${path} HTTP/1.1`, 'Host: localhost', 'Connection: close', `Content-Type: ${type}`]
  if (token !== undefined) lines.push(`X-Vault-Token: ${token}`)
  const { bytes } = await raw({ port }, `${lines.join('\r\n')}\r\nContent-Length: ${body.length}\r\n\r\n${body}`)
  const [answer] = answersIn(bytes)
  return { status: answer?.status, text: String(answer?.body) }
}

const namesOf = (count: number) => Array.from({ length: count }, (_, at) => `"${at.toString(36)}":1`).join(',')

test('a form with many fields is refused, also without a token', async (t) => {
  const world = await CoreWorld.open(t)
  const port = await listenTo(t, world)
  for (const body of ['a&'.repeat(500_000), 'a=1&'.repeat(1000), `${'&'.repeat(1000)}a=1`]) {
    const answer = await post(port, { path: 'sys/unseal', body, type: FORM })
    assert.equal(answer.status, 400)
    assert.match(answer.text, /more than 1000 fields: send JSON/)
  }
  const most = Array.from({ length: 1000 }, (_, at) => `k${at}=v`).join('&')
  const kept = { path: 'cubbyhole/form', body: most, type: FORM, token: world.rootToken }
  assert.equal((await post(port, kept)).status, 204)
})

test('JSON with very many names is refused', async (t) => {
  const world = await CoreWorld.open(t)
  const port = await listenTo(t, world)
  const token = await tokenWith(world, 'path "secret/data/x" { capabilities = ["create", "update"] }')
  const weak = await tokenWith(world, 'path "nothing" { capabilities = ["read"] }')
  const bodies = [
    `{"data":{${namesOf(900_000)}}}`,
    `{"data":{${namesOf(100_000)}}}`,
    `{"data":[${'{"a":1},'.repeat(100_001)}{}]}`,
  ]
  for (const body of bodies) {
    const answer = await post(port, { path: 'secret/data/x', body, token })
    assert.equal(answer.status, 400)
    assert.match(answer.text, /more than 100000 names of members/)
    assert.equal((await post(port, { path: 'secret/data/x', body, token: weak })).status, 403, 'it is not even read')
  }
  const colons = JSON.stringify({ text: ':'.repeat(200_000), '"a": ': 1 })
  const kept = { path: 'cubbyhole/colons', body: colons, token: world.rootToken }
  assert.equal((await post(port, kept)).status, 204, 'what stands in a text is no name')
})
