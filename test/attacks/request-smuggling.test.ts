/** Requests that one program on the way reads in another way than the next one. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import type { TlsFiles } from '../../src/http/listener.ts'
import { anyPath } from '../helpers/fallback-stub.ts'
import { makeCertificates } from '../helpers/certificates.ts'
import { startEdge } from '../helpers/edge.ts'
import { answersIn, raw, type RawOptions } from '../helpers/raw-http.ts'

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

test('a second Host header is 400, for any value', async (t) => {
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

/** What of the line `Transfer-Encoding` is answered how; none of these bodies is read, nor what comes behind it. */
const CODINGS: readonly (readonly [lines: string, status: number])[] = [
  ['Transfer-Encoding: gzip, chunked', 501],
  ['Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked', 501],
  ['Transfer-Encoding: identity, chunked', 501],
  ['Transfer-Encoding: x-chunked, CHUNKED', 501],
  ['Transfer-Encoding: , chunked', 400],
  ['Transfer-Encoding: "x", chunked', 400],
  ['Transfer-Encoding: gzip;q=1, chunked', 400],
  ['Transfer-Encoding: chunked, gzip', 400],
  ['Transfer-Encoding: chunked, chunked', 400],
  ['Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked', 400],
  ['Transfer-Encoding: chunked,', 400],
  ['Transfer-Encoding: xchunked', 400],
  ['Transfer-Encoding: identity', 400],
  ['Transfer-Encoding: \x0bchunked', 400],
  ['Transfer-Encoding: chunked\r\nContent-Length: 12', 400],
]

test('a body with unknown coding or framing is refused, and nothing behind it is served', async (t) => {
  const edge = await startEdge(t, { fallback: anyPath() })
  const body = '2\r\n{}\r\n0\r\n\r\n'
  const next = `GET /v1/behind HTTP/1.1\r\n${CLOSE}`
  const send = async (head: string, ...pieces: (string | number)[]) => {
    const { bytes } = await raw({ port: edge.port }, head + body + next, ...pieces)
    return answersIn(bytes).map(({ status }) => status)
  }
  for (const verb of ['POST', 'GET', 'LIST', 'OPTIONS']) {
    for (const [lines, status] of CODINGS) {
      const head = `${verb} /v1/a HTTP/1.1\r\nHost: x\r\n${lines}\r\n\r\n`
      assert.deepEqual(await send(head), [status], head)
      const apart = await raw({ port: edge.port }, head, 20, body + next)
      assert.deepEqual(
        answersIn(apart.bytes).map((answer) => answer.status),
        [status],
        head,
      )
    }
  }
  for (const line of ['chunked', 'gzip, chunked', 'Chunked']) {
    assert.deepEqual(
      await send(`POST /v1/a HTTP/1.0\r\nTransfer-Encoding: ${line}\r\n\r\n`),
      [400],
      'HTTP/1.0 has none',
    )
  }
  const served = edge.lines.filter(({ message, fields }) => message === 'request' && fields['path'] === '/v1/behind')
  assert.equal(served.length, 0)
  for (const coding of ['chunked', 'Chunked', ' chunked', 'CHUNKED ']) {
    assert.deepEqual(await send(`POST /v1/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding:${coding}\r\n\r\n`), [200, 200])
  }
})

/** Verbs that do not exist: each has the end of LIST or SCAN, its beginning, or all of it. */
const LOOK_ALIKES = (
  'LOST GEST PIST LOCKST UNLIST LISTST LIIST LLIST LISTX list LISt PROPFIST DELIST GCAN SSCAN SUBSCAN OPTIONSCAN POSCAN ' +
  'M-SCAN SCANCAN SCANX LISTCAN SCANST scan L\r\nIST LI\r\nST S\r\nCAN L\nIST \0LIST ST IST CAN'
).split(' ')
/** Requests that a verb may stand behind; none leaves letters that a verb could begin with. */
const BEFORE = [
  { sent: '', said: [] },
  { sent: 'GET /v1/a HTTP/1.1\r\nHost: x\r\n\r\n', said: [200] },
  { sent: 'PUT /v1/a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nLI', said: [200] },
  { sent: 'PUT /v1/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n', said: [200] },
  { sent: 'POST /v1/a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nS', said: [200] },
  { sent: 'LIST /v1/a HTTP/1.1\r\nHost: x\r\n\r\n', said: [200] },
]

/** Each cut of every verb behind every request; in the suite so only of some verbs without TLS, of others each cut behind one of them. */
const HAS_ALL_SPLITS = process.env['OUTPOST_SPLITS'] === 'all'
const SPLIT_EVERYWHERE = new Set(['LIST', 'SCAN', 'LOST', 'UNLIST', 'LISTX', 'GCAN', 'L\r\nIST'])

/** Sends the verb whole and cut in two at each letter and into bytes, behind those of `BEFORE`, kept alive and pipelined. */
async function eachSplit(options: RawOptions, verb: string, status: number): Promise<void> {
  const rest = ` /v1/x HTTP/1.1\r\n${CLOSE}`
  const cuts = Array.from(verb, (_, at) => [verb.slice(0, at), 20, verb.slice(at) + rest] as const)
  const ways: (readonly (string | number)[])[] = [...cuts, [...verb.split(''), rest].flatMap((piece) => [piece, 20])]
  const isThorough = HAS_ALL_SPLITS || (!options.tls && SPLIT_EVERYWHERE.has(verb))
  const tries = BEFORE.flatMap(({ sent, said }, before) =>
    ways.flatMap(([first = '', ...more], way) => {
      if (!isThorough && (way + verb.length) % BEFORE.length !== before) return []
      const isAlive = sent === '' ? [false] : [false, true]
      return isAlive.map((alive) => ({ pieces: alive ? [sent, 60, first, ...more] : [sent + first, ...more], said }))
    }),
  )
  await Promise.all(
    tries.map(async ({ pieces, said }) => {
      const { bytes } = await raw(options, ...pieces)
      const statuses = answersIn(bytes).map((answer) => answer.status)
      assert.deepEqual(statuses, [...said, status], JSON.stringify(pieces))
    }),
  )
}

test('the verb LIST in several packets is parsed as strictly as in one', async (t) => {
  const edge = await startEdge(t, { fallback: anyPath() })
  for (const verb of ['LIST', 'SCAN']) await eachSplit({ port: edge.port }, verb, 200)
  for (const verb of LOOK_ALIKES) await eachSplit({ port: edge.port }, verb, 400)
  const served = edge.lines.filter(({ message, fields }) => message === 'request' && fields['path'] === '/v1/x')
  const verbs = new Set(served.map(({ fields }) => fields['method']))
  assert.deepEqual([...verbs], ['LIST', 'SCAN'])
})

test('over TLS it is parsed as strictly', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-smuggling-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  if (!makeCertificates(directory, ['server'])) return t.skip('needs openssl')
  const file = (name: string) => readFileSync(join(directory, name), 'utf8')
  const [cert, key, ca] = [file('server.pem'), file('server.key'), file('ca.pem')]
  const tls: TlsFiles = { cert, key, minVersion: 'TLSv1.2', verifyClient: false }
  const { port } = await startEdge(t, { fallback: anyPath(), tls })
  for (const verb of ['LIST', 'SCAN']) await eachSplit({ port, tls: { ca } }, verb, 200)
  for (const verb of ['LOST', 'GEST', 'UNLIST', 'LISTX', 'GCAN', 'POSCAN', 'L\r\nIST']) {
    await eachSplit({ port, tls: { ca } }, verb, 400)
  }
})
