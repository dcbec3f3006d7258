/** The verbs LIST and SCAN on real sockets, split at any position, before and behind other requests. */
import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import type { TlsFiles } from '../../src/http/listener.ts'
import { type Call, WholeAnswer } from '../../src/platform/operation.ts'
import { anyPath, type EchoedRequest } from '../helpers/fallback-stub.ts'
import { eventually } from '../helpers/eventually.ts'
import { makeCertificates } from '../helpers/certificates.ts'
import { type Edge, startEdge } from '../helpers/edge.ts'
import { handshake } from '../helpers/message-client.ts'
import { type Answer, answersIn, ask, raw, type RawOptions } from '../helpers/raw-http.ts'

const head = (verb: string, path: string, ...lines: readonly string[]) =>
  [`${verb} /v1/${path} HTTP/1.1`, 'Host: x', ...lines, '', ''].join('\r\n')
const withBody = (verb: string, path: string, body: string) =>
  head(verb, path, `Content-Length: ${Buffer.byteLength(body)}`) + body
const chunked = (verb: string, path: string, body: string) =>
  `${head(verb, path, 'Transfer-Encoding: chunked')}${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`
const last = (verb: string, path: string) => head(verb, path, 'Connection: close')

/** Each byte a packet, as good as it can be done. */
const bytewise = (text: string) => text.split('').flatMap((byte): (string | number)[] => [byte, 4])

function said({ status, body }: Answer): string {
  if (status !== 200) return `${status} ${body.toString()}`
  const { operation, path, body: got } = JSON.parse(body.toString()) as EchoedRequest
  return `${operation} ${path}${got === null ? '' : ` ${got}`}`
}

/** What the answers to these bytes say, in order. */
async function talk(options: RawOptions, ...pieces: readonly (string | Buffer | number)[]): Promise<string[]> {
  const heard = await raw({ patienceMs: 20_000, ...options }, ...pieces)
  assert.equal(heard.end, 'closed', heard.text)
  return answersIn(heard.bytes).map(said)
}

const TRAP = 'LIST /v1/trap HTTP/1.1\r\nHost: x\r\n\r\nSCAN '
/** Every kind of neighbor that a LIST can have. */
const MIXED = [
  head('LIST', 'a'),
  head('GET', 'b'),
  withBody('POST', 'c', TRAP),
  head('LIST', 'd'),
  head('SCAN', 'e'),
  chunked('LIST', 'f', TRAP),
  chunked('PUT', 'g', 'LIST'),
  last('SCAN', 'h'),
]
const MIXED_SAID = [
  'list a',
  'read b',
  `write c ${TRAP}`,
  'list d',
  'scan e',
  `list f ${TRAP}`,
  'write g LIST',
  'scan h',
]

test('LIST requests are answered alone, kept alive and pipelined among others', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  assert.deepEqual(await talk({ port }, last('LIST', 'a')), ['list a'])
  assert.deepEqual(await talk({ port }, `\r\n${last('SCAN', 'a')}`), ['scan a'])
  assert.deepEqual(await talk({ port }, MIXED.join('')), MIXED_SAID)
  // 1,200 at once: more than is held of them, by number and by bytes, and more than any socket buffers here.
  const paths = Array.from({ length: 1200 }, (_, index) => `p${index}-${'x'.repeat(200)}`)
  const sent = paths.map((path, index) => head(index % 3 === 0 ? 'GET' : 'LIST', path)).join('')
  const expected = paths.map((path, index) => `${index % 3 === 0 ? 'read' : 'list'} ${path}`)
  assert.deepEqual(await talk({ port }, sent + last('LIST', 'end')), [...expected, 'list end'])
})

test('hundreds of mixed requests on one connection do not increase its memory', async (t) => {
  const warnings: Error[] = []
  const onWarning = (warning: Error) => void warnings.push(warning)
  process.on('warning', onWarning)
  t.after(() => process.off('warning', onWarning))
  const { port, listener, lines } = await startEdge(t, { fallback: anyPath() })
  const socket = connect(port, '127.0.0.1')
  for (let index = 0; index < 900; index++) {
    const verb = (['LIST', 'GET', 'SCAN', 'POST', 'LIST'] as const)[index % 5] ?? 'GET'
    const answered = new Promise<Buffer>((resolve) => socket.once('data', resolve))
    socket.write(verb === 'POST' ? withBody(verb, `n${index}`, TRAP) : head(verb, `n${index}`))
    const [answer] = answersIn(await answered)
    const operation = { LIST: 'list', GET: 'read', SCAN: 'scan', POST: 'write' }[verb]
    assert.equal(said(answer as Answer), `${operation} n${index}${verb === 'POST' ? ` ${TRAP}` : ''}`)
  }
  assert.equal(listener.connections.open, 1)
  socket.destroy()
  assert.deepEqual(warnings, [])
  const logged = lines.filter(({ message }) => message === 'request').map(({ fields }) => fields)
  assert.deepEqual(
    [logged[0]?.['method'], logged[0]?.['operation'], logged[0]?.['remote'], logged[2]?.['method']],
    ['LIST', 'stub.list', '127.0.0.1', 'SCAN'],
  )
})

/** In the suite each place in and next to the first line of a request, and of the others one of three. */
const HAS_ALL_SPLITS = process.env['OUTPOST_SPLITS'] === 'all'

test('a request split into two packets at every position, or into single bytes, is answered', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  const whole = MIXED.join('')
  const begins = MIXED.map((_, index) => MIXED.slice(0, index).join('').length)
  const isNear = (at: number) => begins.some((begin) => at > begin - 3 && at < begin + 8)
  const places = Array.from({ length: whole.length - 1 }, (_, index) => index + 1).filter(
    (at) => HAS_ALL_SPLITS || at % 3 === 0 || isNear(at),
  )
  for (let from = 0; from < places.length; from += 100) {
    const cut = places.slice(from, from + 100).map(async (at) => {
      assert.deepEqual(await talk({ port }, whole.slice(0, at), 40, whole.slice(at)), MIXED_SAID, `cut at ${at}`)
    })
    await Promise.all(cut)
  }
  const large = withBody('LIST', 'a', 'x'.repeat(200_000))
  for (const at of [2, 3]) {
    const [answer] = await talk({ port }, large.slice(0, at), 40, large.slice(at) + last('GET', 'b'))
    assert.equal(answer, `list a ${'x'.repeat(200_000)}`)
  }
  const bytes = bytewise(head('LIST', 'a') + last('SCAN', 'b'))
  assert.deepEqual(await talk({ port }, ...bytes), ['list a', 'scan b'])
})

test('over TLS, complete and split, LIST is answered', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-list-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  if (!makeCertificates(directory, ['server'])) return
  const file = (name: string) => readFileSync(join(directory, name), 'utf8')
  const tls: TlsFiles = {
    cert: file('server.pem'),
    key: file('server.key'),
    minVersion: 'TLSv1.2',
    verifyClient: false,
  }
  const { port } = await startEdge(t, { fallback: anyPath(), tls })
  const options = { port, tls: { ca: file('ca.pem') } }
  assert.deepEqual(await talk(options, MIXED.join('')), MIXED_SAID)
  const places = Array.from({ length: MIXED.join('').length - 1 }, (_, index) => index + 1)
  await Promise.all(
    places
      .filter((at) => at < 10 || at % 23 === 0)
      .map(async (at) => {
        assert.deepEqual(await talk(options, MIXED.join('').slice(0, at), 60, MIXED.join('').slice(at)), MIXED_SAID)
      }),
  )
})

test('a client that sends Expect: 100-continue gets it', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  const request = head('LIST', 'a', 'Expect: 100-continue', 'Content-Length: 4', 'Connection: close')
  const heard = await raw({ port }, request, 100, 'LIST')
  const [first, second] = answersIn(heard.bytes)
  assert.equal(first?.status, 100)
  assert.equal(said(second as Answer), 'list a LIST')
})

test('unknown verbs are refused with a plain response, wherever they are split', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  for (const verb of ['LISP', 'LISTS', 'LOST', 'SCAM', 'SCANS', 'list', 'SC', 'L', 'LI ST']) {
    for (const before of ['', head('GET', 'a'), head('LIST', 'a')]) {
      const heard = await talk({ port }, before + head(verb, 'x'))
      assert.deepEqual(heard.slice(before === '' ? 0 : 1), ['400 Bad Request\n'], verb)
      const bytes = bytewise(head(verb, 'x').slice(0, 8))
      assert.equal((await talk({ port }, before, ...bytes)).at(-1), '400 Bad Request\n', verb)
    }
  }
  // A known verb is not replaced by LIST, also behind a LIST request.
  assert.deepEqual(await talk({ port }, head('LIST', 'a') + last('LINK', 'x')), ['list a', '405 {"errors":[]}'])
  const odd = head('LIST', 'a', 'Expect: a-miracle')
  const refused = '417 {"errors":["only the expectation 100-continue is supported"]}'
  assert.deepEqual(await talk({ port }, odd, 50, last('LIST', 'b')), [refused], 'the connection ends behind it')
})

test('LIST on a path of another operation is 405', async (t) => {
  const { port } = await startEdge(t)
  const { status, headers } = await ask(port, 'LIST', '/v1/client/metadata')
  assert.equal(status, 405)
  assert.match(headers.get('allow') ?? '', /^GET, POST/)
  assert.equal((await ask(port, 'LIST', '/v1/nothing')).status, 404)
})

test('a malformed message behind a LIST is refused', async (t) => {
  const { port } = await startEdge(t, { fallback: anyPath() })
  const cases: readonly (readonly [string, number])[] = [
    [head('LIST', 'a', `X: ${'a'.repeat(17_000)}`), 431],
    [head('LIST', 'a'.repeat(17_000)), 431],
    [head('LIST', 'a'.repeat(9000)), 414],
    ['LIST /v1/a HTTP/1.1\r\n\r\n', 400],
    [head('LIST', 'a', 'Content-Length: 1', 'Transfer-Encoding: chunked'), 400],
    ['LIST\r\n\r\n', 400],
    ['LIST  \r\n\r\n', 400],
    ['LIST /v1/a HTTP/9.9\r\n\r\n', 400],
    [chunked('LIST', 'a', 'x').replace('1\r\n', 'zz\r\n'), 400],
  ]
  for (const [bytes, status] of cases) {
    for (const before of ['', head('LIST', 'b')]) {
      const { bytes: answer, text } = await raw({ port }, before + bytes + last('LIST', 'c'))
      const statuses = answersIn(answer).map((one) => one.status)
      assert.equal(statuses[before === '' ? 0 : 1], status, `${bytes.slice(0, 40)}: ${text}`)
    }
  }
})

test('an Upgrade request with the verb LIST is refused, and one behind it is accepted', async (t) => {
  const { port, directory } = await startEdge(t, { fallback: anyPath() })
  assert.ok(directory)
  const asked = handshake('/v1/x').replace('GET', 'LIST')
  assert.equal(answersIn((await raw({ port }, asked)).bytes)[0]?.status, 400)
  const stream = handshake('/v1/client/fs/logs/a1b2c3d4-0000-4000-8000-000000000001?task=web')
  const heard = await raw({ port, until: (text) => text.includes('"Data"') }, head('LIST', 'a'), 100, stream)
  assert.match(heard.text, /^HTTP\/1\.1 200 [\s\S]*HTTP\/1\.1 101 [\s\S]*"Data"/)
})

/** Responds to `slow` on demand. */
function slowly() {
  const go = Promise.withResolvers<void>()
  const fallback = anyPath().map((operation) => ({
    ...operation,
    async run(input: unknown, call: Call, about: unknown) {
      if (call.raw.params['path'] === 'slow') await go.promise
      return operation.run(input, call, about) as Promise<WholeAnswer>
    },
  }))
  return { fallback, go: () => go.resolve() }
}

/** The long form has 20. */
const VANISH_ROUNDS = Number(process.env['OUTPOST_VANISH_ROUNDS'] ?? 2)

const limits = { headTimeoutMs: 1000, idleTimeoutMs: 200, requestTimeoutMs: 20_000 }
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

// Each with a listener of its own.
describe('clients that are silent for seconds are served', { concurrency: true }, () => {
  test('a LIST behind a slow response is answered, although the response exceeds the head and idle timeouts', async (t) => {
    const { fallback, go } = slowly()
    const { port } = await startEdge(t, { fallback, limits })
    const both = talk({ port }, head('GET', 'a') + head('LIST', 'slow') + head('GET', 'slow') + last('LIST', 'b'))
    const cut = talk({ port }, `${head('GET', 'slow')}LIS`, 300, last('LIST', 'b').slice(3))
    const alone = talk({ port }, head('LIST', 'slow'), 5000, last('GET', 'c'))
    await pause(4000)
    go()
    assert.deepEqual(await alone, ['list slow', 'read c'])
    assert.deepEqual(await both, ['read a', 'list slow', 'read slow', 'list b'])
    assert.deepEqual(await cut, ['read slow', 'list b'])
  })

  test('partial verbs, partial heads and silence time out as with other verbs', async (t) => {
    // Silence behind an answer ends without a word, sooner or later than half a head does: here later.
    const { port, listener } = await startEdge(t, { fallback: anyPath(), limits: { ...limits, idleTimeoutMs: 4000 } })
    const begins = ['LI', 'LIS', 'LIST', 'SC', 'SCAN', 'LIST /v1/a HT', head('LIST', 'a').slice(0, -2)]
    const cases = begins.flatMap((begin) => ['', head('LIST', 'b'), head('GET', 'b')].map((before) => [before, begin]))
    await Promise.all(
      cases.map(async ([before = '', begin = '']) => {
        const heard = await talk({ port }, before + begin)
        assert.deepEqual(heard.slice(before === '' ? 0 : 1), ['408 Request Timeout\n'], begin)
      }),
    )
    assert.deepEqual(await talk({ port }, head('LIST', 'a')), ['list a'])
    await eventually(() => listener.connections.open === 0)
  })
})

/** Of 68 KB each, 34 MB together. */
const PARTS = 500

test('data that a client sends while it waits is read up to a limit only', async (t) => {
  const { fallback, go } = slowly()
  const edge = await startEdge(t, { fallback })
  const socket = connect(edge.port, '127.0.0.1')
  socket.write(head('GET', 'slow'))
  await eventually(() => edge.listener.activeExchanges === 1)
  // A socket counts a write as waiting until all of it has gone: so many small ones, one behind the other.
  const part = Buffer.from(head('LIST', 'x'.repeat(1000)).repeat(64))
  let taken = 0
  const sendOn = () => socket.write(part, (error) => void (!error && ++taken < PARTS && sendOn()))
  sendOn()
  // What the kernel holds of it for both sides is some megabytes.
  let before = 0
  await eventually(() => taken > 0 && before === (before = taken), 'nothing is taken any more', undefined, 300)
  assert.ok(taken < PARTS / 2, `most of it is still with its sender: ${taken} of ${PARTS} parts have gone`)
  socket.resetAndDestroy()
  go()
})

test('a request behind one that Node refuses is not executed', async (t) => {
  const { port, lines } = await startEdge(t, { fallback: anyPath() })
  for (const before of ['', head('GET', 'a'), head('LIST', 'a')]) {
    const { bytes } = await raw({ port }, `${before}GET /v1/b HTTP/1.1\r\n\r\n${head('LIST', 'never')}`)
    assert.equal(answersIn(bytes)[before === '' ? 0 : 1]?.status, 400)
  }
  assert.doesNotMatch(JSON.stringify(lines), /never/)
})

test('a client that leaves a stream with a LIST behind it is detected', async (t) => {
  const edge = await startEdge(t, { fallback: anyPath() })
  const follow = 'client/fs/logs/a1b2c3d4-0000-4000-8000-000000000001?task=web&follow=true&plain=true'
  const { text } = await raw(
    { port: edge.port, until: (one) => one.includes('a line') },
    head('GET', follow),
    50,
    'LIST',
  )
  assert.match(text, /^HTTP\/1\.1 200 /)
  await gone(edge)
})

async function gone({ host, listener }: Edge): Promise<void> {
  await eventually(
    () => host.followers.count === 0 && listener.activeExchanges === 0 && listener.connections.open === 0,
  )
}

test('clients that disconnect halfway leave nothing behind', async (t) => {
  const { fallback, go } = slowly()
  const edge = await startEdge(t, { fallback })
  const request = head('GET', 'a') + head('LIST', 'slow') + head('SCAN', 'b') + head('LIST', 'slow')
  const vanish = (at: number) =>
    new Promise<void>((resolve) => {
      const socket = connect(edge.port, '127.0.0.1', () => {
        socket.write(request.slice(0, at), () => setTimeout(() => socket.resetAndDestroy(), at % 3))
      })
      socket.on('error', () => undefined).once('close', () => resolve())
    })
  for (let round = 0; round < VANISH_ROUNDS; round++) {
    await Promise.all(Array.from({ length: request.length }, (_, at) => vanish(at + 1)))
  }
  go()
  await gone(edge)
  assert.equal((await ask(edge.port, 'LIST', '/v1/x')).status, 200)
  assert.deepEqual(
    edge.lines.filter(({ level }) => level === 'error'),
    [],
  )
})

test('while the listener stops, a LIST in progress is answered and idle connections are closed', async (t) => {
  const { fallback, go } = slowly()
  const edge = await startEdge(t, { fallback })
  const idle = raw({ port: edge.port, patienceMs: 20_000 }, head('LIST', 'a'))
  const busy = raw({ port: edge.port, patienceMs: 20_000 }, head('LIST', 'slow'))
  await eventually(() => edge.listener.activeExchanges === 1 && edge.lines.length > 0)
  const closed = edge.listener.close()
  assert.equal((await idle).end, 'closed')
  go()
  assert.deepEqual(answersIn((await busy).bytes).map(said), ['list slow'])
  await closed
})

test('the connection limit counts each connection once', async (t) => {
  const { port, listener } = await startEdge(t, { fallback: anyPath(), limits: { connectionsPerClient: 2 } })
  const sockets = [connect(port, '127.0.0.1'), connect(port, '127.0.0.1')]
  for (const socket of sockets) {
    for (let round = 0; round < 3; round++) {
      const answered = new Promise((resolve) => socket.once('data', resolve))
      socket.write(head('LIST', 'a'))
      await answered
    }
  }
  assert.equal(listener.connections.open, 2)
  // Both are idle again, and the longest idle one is closed.
  const closed = new Promise((resolve) => sockets[0]?.once('close', resolve))
  const late = connect(port, '127.0.0.1')
  late.write(head('LIST', 'a'))
  await closed
  assert.equal(listener.connections.open, 2)
  late.destroy()
  for (const socket of sockets) socket.destroy()
})
