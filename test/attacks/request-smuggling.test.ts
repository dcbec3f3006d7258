/** Requests that one program on the way reads in another way than the next one. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { anyPath } from '../helpers/any-path.ts'
import { startEdge } from '../helpers/edge.ts'
import { answersIn, raw } from '../helpers/raw-http.ts'

const CLOSE = 'Host: localhost\r\nConnection: close\r\n\r\n'

test('an expectation that is not met is 417, and does not turn the next verb into LIST', async (t) => {
  const edge = await startEdge(t, { fallback: anyPath() })
  for (const expect of ['200-ok', '100-continue, 200-ok', '', '100-continued', 'x 100-continue']) {
    for (const verb of ['GET', 'LIST', 'SCAN', 'PUT']) {
      const { text } = await raw(
        { port: edge.port },
        `${verb} /v1/a HTTP/1.1\r\nHost: x\r\nExpect: ${expect}\r\n${CLOSE.slice(17)}`,
      )
      assert.match(text, /^HTTP\/1\.1 417 /, `${verb} ${expect}`)
    }
    const first = `LIST /v1/a HTTP/1.1\r\nHost: x\r\nExpect: ${expect}\r\n\r\n`
    const { bytes } = await raw({ port: edge.port }, `${first}LINK /v1/b HTTP/1.1\r\n${CLOSE}`)
    const [answer] = answersIn(bytes)
    assert.equal(answer?.status, 417, expect)
  }
  const listed = edge.lines.filter(({ message, fields }) => message === 'request' && fields['path'] === '/v1/b')
  for (const { fields } of listed) assert.equal(fields['method'], 'LINK')
  const good = await raw(
    { port: edge.port },
    `PUT /v1/a HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n${CLOSE}{}`,
  )
  assert.match(good.text, /^HTTP\/1\.1 100 Continue\r\n\r\nHTTP\/1\.1 200 /)
  const old = await raw({ port: edge.port }, 'GET /v1/a HTTP/1.0\r\nExpect: 200-ok\r\n\r\n')
  assert.match(old.text, /^HTTP\/1\.1 200 /, 'HTTP/1.0 has no expectations')
})

test('a second Host header is 400, whatever it says', async (t) => {
  const edge = await startEdge(t, { fallback: anyPath() })
  for (const second of ['Host: localhost', 'host: other', 'HOST:', 'X: 1\r\nHost: localhost']) {
    for (const verb of ['GET', 'LIST', 'OPTIONS', 'POST']) {
      const { text } = await raw({ port: edge.port }, `${verb} /v1/client/stats HTTP/1.1\r\n${second}\r\n${CLOSE}`)
      assert.match(text, /^HTTP\/1\.1 400 [^]*more than one Host/, `${verb} ${second}`)
    }
  }
  const lines = 'Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n'
  const socket = `GET /v1/client/fs/logs/x HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: Upgrade\r\n${lines}\r\n`
  assert.match((await raw({ port: edge.port }, socket)).text, /^HTTP\/1\.1 400 /)
})
