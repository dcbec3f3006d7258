/** Streams over WebSocket: the same operations, each frame or chunk a message, errors as close codes. */
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { Fault, Refusal } from '../../src/platform/errors.ts'
import type { AnyOperation, Chunk, Identity, StreamHead } from '../../src/platform/operation.ts'
import { schema } from '../../src/platform/schema.ts'
import { type Edge, type EdgeOptions, EVERYBODY, startEdge } from '../helpers/edge.ts'
import { FrameReader, Random } from '../helpers/frames.ts'
import { handshake, MessageClient, type MessageClientOptions, OPCODE } from '../helpers/message-client.ts'
import { answersIn, ask, raw } from '../helpers/raw-http.ts'
import { ALLOC, INSIDE, UNKNOWN } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const FS = '/v1/client/fs'
const LOGS = `${FS}/logs/${ALLOC}?task=web`

/** An endpoint of the test's own. */
function streaming(path: string, chunks: () => AsyncIterable<Chunk>, more: Partial<AnyOperation> = {}): AnyOperation {
  return {
    name: 'test.stream',
    summary: '',
    http: [`GET /v1/${path}`],
    target: 'node',
    input: schema({}),
    output: 'stream',
    errorFormat: 'plain',
    authorize: () => undefined,
    run: () => chunks(),
    ...more,
  }
}

async function start(t: TestContext, options: EdgeOptions = {}) {
  const clients: MessageClient[] = []
  // Before the listener is closed, which waits a second for callers that have not left.
  t.after(() => clients.forEach(({ socket }) => socket.destroy()))
  const edge = await startEdge(t, options)
  const open = (path: string, more: Omit<MessageClientOptions, 'port' | 'path'> = {}) => {
    const client = new MessageClient({ port: edge.port, path, ...more })
    clients.push(client)
    return client
  }
  /** The access log's line of the request that has ended. */
  const line = () => eventually(() => edge.lines.find(({ message }) => message === 'request')?.fields, 'its log line')
  return { edge, open, line }
}

const offer = (token: string) => `outpost.token.${Buffer.from(token).toString('base64url')}`
const followers = (edge: Edge) => edge.host.followers.count

test('a framed follow sends each frame and heartbeat as a text message until the client closes', async (t) => {
  const { edge, open, line } = await start(t)
  const client = open(`${LOGS}&follow=true`)
  await client.until('the first line', ({ texts }) => texts.length >= 2)
  assert.match(client.head ?? '', /^HTTP\/1\.1 101 /)
  assert.equal(client.header('x-content-type-options'), 'nosniff')
  assert.equal(client.header('sec-websocket-extensions'), undefined)
  appendFileSync(join(edge.directory, 'alloc/logs/web.stdout.0'), 'another line\n')
  await client.until('heartbeats and the new line', ({ texts }) => texts.length >= 5)
  const frames = client.texts.map((text) => JSON.parse(text) as { Data?: string; Offset?: number })
  assert.deepEqual(frames[0], {})
  const text = frames.map(({ Data = '' }) => Buffer.from(Data, 'base64').toString()).join('')
  assert.equal(text, 'a line of the log\nanother line\n')
  assert.equal(followers(edge), 1)
  client.send(OPCODE.close, Buffer.from([3, 232]))
  assert.equal((await client.close()).code, 1000)
  await eventually(() => followers(edge) === 0, 'its follower is free')
  const { status, bytes, operation, method } = await line()
  const sent = client.texts.join('').length
  assert.deepEqual(
    { status, bytes, operation, method },
    { status: 101, bytes: sent, operation: 'host.logs', method: 'GET' },
  )
})

test('a close frame ends even a silent stream without closing the connection', async (t) => {
  let left = false
  const run: AnyOperation['run'] = async function* (_input, { signal }) {
    yield HEAD
    await new Promise((resolve) => signal.addEventListener('abort', resolve))
    left = true
  }
  const { open } = await start(t, { operations: [streaming('silent', headOnly, { run })] })
  const client = open('/v1/silent', { stays: true })
  await client.until('it has begun', ({ head }) => head)
  client.send(OPCODE.close, Buffer.from([3, 232]))
  assert.equal((await client.close()).code, 1000)
  await eventually(() => left, 'its stream has ended')
})

test('cursors are in each frame, or in the handshake', async (t) => {
  const { open } = await start(t)
  const framed = open(`${LOGS}&cursor=`)
  await framed.close()
  const { Cursor: behind = '' } = JSON.parse(framed.texts[0] ?? '') as { Cursor?: string }
  assert.match(behind, /^[\w-]+$/)
  const plain = open(`${LOGS}&plain=true&cursor=`)
  assert.equal((await plain.close()).code, 1000)
  const begun = plain.header('x-outpost-cursor') ?? ''
  const rest = open(`${LOGS}&plain=true&cursor=${begun}~7`)
  await rest.close()
  assert.equal(plain.data.toString().slice(7), rest.data.toString())
  const nothing = open(`${LOGS}&cursor=${behind}`)
  assert.equal((await nothing.close()).code, 1000)
  assert.deepEqual(nothing.messages, [])
  assert.equal((await open(`${LOGS}&cursor=${behind.slice(3)}`).close()).code, 4400)
})

test('coalesced messages equal the HTTP response for any sizes', async (t) => {
  const { edge, open } = await start(t)
  const random = new Random(7)
  for (const size of [0, 1, 92, 93, 94, 49_000, 49_152, 65_535, 65_536, 65_537, 700_001, 6 << 20]) {
    writeFileSync(join(edge.directory, 'alloc/data/{odd} "name"'), random.bytes(Math.min(size, 1 << 20)).subarray(0))
    if (size > 1 << 20) writeFileSync(join(edge.directory, 'alloc/data/{odd} "name"'), Buffer.alloc(size, 'line {}\n'))
    const name = encodeURIComponent('alloc/data/{odd} "name"')
    const asked = [
      `${FS}/stream/${ALLOC}?path=${name}&offset=0&follow=false`,
      `${FS}/cat/${ALLOC}?path=${name}`,
      `${FS}/readat/${ALLOC}?path=${name}&offset=7&limit=100000`,
    ]
    for (const [at, path] of asked.entries()) {
      const client = open(path)
      assert.deepEqual(await client.close(), { code: 1000, reason: '' })
      client.farewell()
      const answer = await ask(edge.port, 'GET', path)
      const whole = Buffer.concat(client.messages.map(({ bytes }) => bytes))
      assert.ok(whole.equals(answer.body), `${path} of ${size}: ${whole.length} of ${answer.body.length} bytes`)
      const framed = at === 0
      assert.ok(client.messages.every(({ kind }) => kind === (framed ? 'text' : 'binary')))
      if (framed) assert.ok(client.texts.every((text) => new FrameReader().push(Buffer.from(text)).length === 1))
    }
  }
})

test('a stock client reads framed and plain logs, the latter as binary messages', async (t) => {
  const { edge } = await start(t)
  const read = (path: string, protocols: string[] = []) =>
    new Promise<{ code: number; messages: unknown[]; protocol: string }>((resolve) => {
      const socket = new WebSocket(`ws://127.0.0.1:${edge.port}${path}`, protocols)
      socket.binaryType = 'arraybuffer'
      const messages: unknown[] = []
      socket.addEventListener('message', ({ data }: MessageEvent) => void messages.push(data))
      socket.addEventListener('close', ({ code }) => resolve({ code, messages, protocol: socket.protocol }))
    })
  const framed = await read(LOGS, ['outpost', 'another'])
  assert.equal(framed.code, 1000)
  assert.equal(framed.protocol, 'outpost')
  assert.equal(typeof framed.messages[0], 'string')
  const plain = await read(`${LOGS}&plain=true`)
  assert.equal(plain.code, 1000)
  const [bytes] = plain.messages
  assert.ok(bytes instanceof ArrayBuffer)
  assert.equal(Buffer.from(bytes).toString(), 'a line of the log\n')
  const [whole] = (await read(`${FS}/cat/${ALLOC}?path=web/local/hello.txt`)).messages
  assert.ok(whole instanceof ArrayBuffer)
  assert.equal(Buffer.from(whole).toString(), INSIDE)
})

test('errors before the first byte are close codes, with the text of the same error over HTTP', async (t) => {
  const nobody: Identity = { ...EVERYBODY, accessor: 'nobody', allowsNamespace: () => false }
  const { edge, open, line } = await start(t, {
    resolve: (token) => {
      if (token === 'late') throw new Refusal('unavailable', 'nobody can tell now')
      return token === 'weak' ? nobody : EVERYBODY
    },
  })
  for (const [path, code, token] of [
    [`${FS}/logs/${ALLOC}?task=nope`, 4400],
    [`${FS}/logs/${ALLOC}`, 4400],
    [`${FS}/logs/${UNKNOWN}?task=web`, 4404],
    [`${FS}/stream/${ALLOC}?path=nowhere&offset=0`, 4404],
    [`${FS}/stream/${ALLOC}?path=nowhere&offset=${'9'.repeat(30)}`, 4400],
    [`${FS}/cat/${ALLOC}?path=web/secrets/token`, 4403],
    [`${LOGS}&follow=true`, 4403, 'weak'],
    [LOGS, 4503, 'late'],
  ] as const) {
    const lines = token === undefined ? [] : [`X-Nomad-Token: ${token}`]
    const client = open(path, { lines })
    const closed = await client.close()
    client.farewell()
    const answer = await ask(edge.port, 'GET', path, ...lines)
    assert.equal(closed.code, 4000 + answer.status, path)
    assert.equal(closed.code, code)
    assert.equal(closed.reason, answer.body.toString().slice(0, 123))
    assert.equal(client.messages.length, 0)
  }
  assert.equal((await line()).status, 400, 'the log shows what it was')
  assert.equal(followers(edge), 0)
})

test('the limit on followers applies, with its headers on the handshake', async (t) => {
  const { edge, open } = await start(t, { followersMax: 1 })
  const first = open(`${LOGS}&follow=true`)
  await first.until('it is served', ({ texts }) => texts.length > 0)
  const second = open(`${LOGS}&follow=true`)
  const { code, reason } = await second.close()
  assert.equal(code, 4429)
  assert.match(reason, /http_max_followers/)
  assert.equal(second.header('retry-after'), '5')
  first.socket.destroy()
  await eventually(() => followers(edge) === 0, 'the first has left')
})

const HEAD: StreamHead = { status: 200, headers: { 'X-Outpost-Cursor': 'abc' } }

test('headers of the response are in the 101, and later errors are close codes', async (t) => {
  const text = `${'é'.repeat(61)}€ and more`
  const broken = (path: string, error: Error) =>
    streaming(path, async function* () {
      yield HEAD
      yield Buffer.from('part')
      throw error
    })
  const { edge, open } = await start(t, {
    operations: [
      broken('fault', new Fault('a secret of the house')),
      broken('refusal', new Refusal('not_found', text)),
      streaming('first', async function* () {
        if (edge.port > 0) throw new Fault('a secret of the house')
        yield HEAD
      }),
    ],
  })
  const fault = open('/v1/fault')
  assert.equal((await fault.close()).code, 1011)
  assert.match(fault.closed?.reason ?? '', /^internal error, request \S+$/)
  assert.equal(fault.data.toString(), 'part', 'what came before it was sent')
  assert.equal(fault.header('x-outpost-cursor'), 'abc')
  assert.equal(fault.header('content-length'), undefined)
  const refusal = open('/refusal')
  assert.deepEqual(await refusal.close(), { code: 4404, reason: 'é'.repeat(61) }, 'cut at a character')
  const first = open('/v1/first')
  assert.equal((await first.close()).code, 4500)
  assert.ok(!first.closed?.reason.includes('secret'))
  assert.equal(edge.lines.filter(({ level }) => level === 'error').length, 3)
  for (const client of [fault, refusal, first]) await client.until('it is left alone', ({ ended }) => ended)
})

test('an invalid handshake gets an ordinary HTTP error', async (t) => {
  const { edge } = await start(t)
  const status = async (path: string, ...lines: string[]) => {
    const { bytes } = await raw({ port: edge.port, until: (text) => /\r\n\r\n./s.test(text) }, handshake(path, lines))
    const [answer] = answersIn(bytes)
    return `${answer?.status} ${answer?.body.toString()}`
  }
  assert.match(await status('/v1/client/metadata'), /^400 this endpoint does not stream/)
  assert.match(await status(LOGS, 'Connection: keep-alive'), /^400 .*"Connection: Upgrade"/)
  assert.match(await status(LOGS, 'Sec-WebSocket-Version: 8'), /^426 only version 13/)
  assert.match(await status(LOGS, 'Sec-WebSocket-Version:'), /^426 /)
  assert.match(await status(LOGS, 'Sec-WebSocket-Key: short'), /^400 Sec-WebSocket-Key/)
  assert.match(await status(LOGS, 'Sec-WebSocket-Key:'), /^400 Sec-WebSocket-Key/)
  assert.match(await status(LOGS, 'Sec-WebSocket-Protocol: a, a'), /^400 Sec-WebSocket-Protocol/)
  assert.match(await status(LOGS, 'Sec-WebSocket-Protocol: a,,b'), /^400 Sec-WebSocket-Protocol/)
  assert.match(await status('/v1/nowhere'), /^404 /)
  assert.match(await status(LOGS, 'Content-Length: 0', 'Host:'), /^400/)
  const old = await raw({ port: edge.port }, handshake(LOGS).replace('HTTP/1.1', 'HTTP/1.0'))
  assert.match(old.text, /^HTTP\/1\.1 400 .*a WebSocket requires HTTP\/1\.1/s)
  const posted = await raw(
    { port: edge.port, until: (text) => /\r\n\r\n./s.test(text) },
    handshake(LOGS).replace('GET', 'POST'),
  )
  assert.match(posted.text, /^HTTP\/1\.1 400 .*must be a GET request/s)
  const body = await raw({ port: edge.port }, `${handshake(LOGS, ['Content-Length: 3'])}abc`)
  assert.match(body.text, /^HTTP\/1\.1 400 .*must not have a body/s)
  const version = await raw(
    { port: edge.port, until: (text) => /\r\n\r\n./s.test(text) },
    handshake(LOGS, ['Sec-WebSocket-Version: 14']),
  )
  assert.match(version.text, /\r\nSec-WebSocket-Version: 13\r\n/i)
  assert.match(version.text, /\r\nUpgrade: websocket\r\n/i)
  const last = await raw(
    { port: edge.port },
    `${handshake('/v1/client/metadata')}GET /v1/x HTTP/1.1\r\nHost: x\r\n\r\n`,
  )
  assert.match(last.text, /^HTTP\/1\.1 400 .*\r\nConnection: close\r\n/s)
  assert.equal(last.end, 'closed', 'no later response is pending')
})

test('an upgrade to another protocol gets the ordinary response', async (t) => {
  const { edge } = await start(t)
  const answer = await ask(
    edge.port,
    'GET',
    LOGS,
    'Connection: Upgrade, HTTP2-Settings',
    'Upgrade: h2c',
    'HTTP2-Settings: AAMAAABk',
  )
  assert.equal(answer.status, 200)
})

test('a WebSocket does not share its connection with other requests', async (t) => {
  const release = Promise.withResolvers<void>()
  const { edge, open } = await start(t, {
    operations: [
      streaming('slow', async function* () {
        yield HEAD
        await release.promise
        yield Buffer.from('slow')
      }),
    ],
  })
  const behind = raw(
    { port: edge.port, until: (text) => text.includes('request before it') },
    `GET /v1/slow HTTP/1.1\r\nHost: x\r\n\r\n${handshake(LOGS)}`,
  )
  await eventually(() => edge.listener.activeExchanges === 1, 'the first is under way')
  release.resolve()
  assert.deepEqual(
    answersIn((await behind).bytes).map(({ status }) => status),
    [200, 400],
  )
  const after = open(`${LOGS}&follow=true`)
  after.socket.write('GET /v1/client/metadata HTTP/1.1\r\nHost: x\r\n\r\n')
  assert.equal((await after.close()).code, 1002, 'no frame begins like that')
  await after.until('the connection is closed', ({ ended }) => ended)
  await eventually(() => followers(edge) === 0 && edge.listener.activeExchanges === 0, 'nothing is left')
})

async function* headOnly(): AsyncGenerator<Chunk> {
  yield HEAD
}

test('a page of another origin needs a token and the permission of CORS', async (t) => {
  const own = streaming('own', headOnly)
  const offered = streaming('offered', headOnly, { crossOrigin: ['GET'] })
  const { edge, open } = await start(t, { operations: [own, offered] })
  const host = `127.0.0.1:${edge.port}`
  const refused = async (...lines: string[]) => {
    const [path = '/v1/own'] = lines[0]?.startsWith('/') ? lines.splice(0, 1) : []
    const { text } = await raw({ port: edge.port }, handshake(path, lines))
    return /^HTTP\/1\.1 403 .*pages of other origins/s.test(text)
  }
  assert.ok(await refused(`Host: ${host}`, 'Origin: https://elsewhere.example'))
  assert.ok(await refused(`Host: ${host}`, `Origin: http://127.0.0.1:${edge.port + 1}`))
  assert.ok(await refused(`Host: ${host}`, 'Origin: null'))
  assert.ok(await refused('Host: a.example', 'Origin: http://a.example.evil.example'))
  assert.ok(await refused('/v1/offered', `Host: ${host}`, 'Origin: https://elsewhere.example'))
  for (const [path, ...lines] of [
    ['/v1/own', `Host: ${host}`, `Origin: http://${host}`],
    ['/v1/own', 'Host: A.example', 'Origin: https://a.example'],
    ['/v1/own'],
    [
      '/v1/offered',
      `Host: ${host}`,
      'Origin: https://elsewhere.example',
      `Sec-WebSocket-Protocol: ${offer('t')}, outpost`,
    ],
    [LOGS, `Host: ${host}`, 'Origin: null', 'X-Nomad-Token: t'],
  ] as const) {
    assert.equal((await open(path, { lines }).close()).code, 1000, `${path} ${lines.join()}`)
  }
})

test('a token in the subprotocols is used, never returned and never logged', async (t) => {
  const secret = 'planted-töken+/='
  const seen: (string | undefined)[] = []
  const { edge, open } = await start(t, {
    resolve: (token) => {
      seen.push(token)
      if (token !== secret && token !== 'header') throw new Refusal('permission_denied', 'Permission denied')
      return EVERYBODY
    },
  })
  const good = open(LOGS, { lines: [`Sec-WebSocket-Protocol: ${offer(`${secret}\n`)}, outpost`] })
  assert.equal((await good.close()).code, 1000)
  assert.equal(good.header('sec-websocket-protocol'), 'outpost')
  assert.equal((await open(LOGS, { lines: [`Sec-WebSocket-Protocol: outpost, ${offer('wrong')}`] }).close()).code, 4403)
  assert.equal((await open(LOGS).close()).code, 4403)
  const both = open(LOGS, { lines: ['X-Nomad-Token: header', `Sec-WebSocket-Protocol: outpost, ${offer('wrong')}`] })
  assert.equal((await both.close()).code, 1000, 'a header comes first')
  assert.deepEqual(seen, [secret, 'wrong', undefined, 'header'])
  for (const offered of [
    offer(secret),
    'outpost, outpost.token.',
    `outpost, outpost.token.${encodeURIComponent('/w==')}`,
    'outpost, outpost.token._w',
  ]) {
    const { text } = await raw({ port: edge.port }, handshake(LOGS, [`Sec-WebSocket-Protocol: ${offered}`]))
    assert.match(text, /^HTTP\/1\.1 400 /)
    assert.ok(!text.includes(offer(secret)))
  }
  const plain = await ask(edge.port, 'GET', LOGS, `Sec-WebSocket-Protocol: outpost, ${offer(secret)}`)
  assert.equal(plain.status, 403, 'only where a browser can do no other')
  const logged = JSON.stringify(edge.lines)
  assert.ok(!logged.includes(offer(secret)) && !logged.includes('planted'))
})

test('a stream that takes too long to start is refused and does not start later', async (t) => {
  const release = Promise.withResolvers<void>()
  const { edge, open } = await start(t, {
    limits: { headTimeoutMs: 300, requestTimeoutMs: 300 },
    operations: [
      streaming('slow', async function* () {
        await release.promise
        yield HEAD
        yield Buffer.from('late')
      }),
    ],
  })
  const client = open('/v1/slow')
  assert.deepEqual(await client.close(), { code: 4503, reason: 'the request took too long, try again later' })
  release.resolve()
  await client.until('it is left', ({ ended }) => ended)
  assert.equal(client.messages.length, 0)
  await eventually(() => edge.listener.activeExchanges === 0, 'nothing is left')
  assert.deepEqual(
    edge.lines.flatMap(({ level, message }) => (level === 'info' ? [] : [message])),
    [],
  )
})

test('while the listener stops, follows get a close code, finite responses complete, and no new one starts', async (t) => {
  const release = Promise.withResolvers<void>()
  const { edge, open } = await start(t, {
    operations: [
      streaming('finite', async function* () {
        yield HEAD
        await release.promise
        yield Buffer.from('whole')
      }),
    ],
  })
  const follow = open(`${LOGS}&follow=true`)
  const done = open(LOGS, { stays: true })
  const finite = open('/v1/finite')
  await follow.until('it follows', ({ texts }) => texts.length > 0)
  await done.close() // and never says farewell
  await finite.until('it has begun', ({ head }) => head)
  let down = false
  const closed = edge.listener.close().then(() => (down = true))
  assert.deepEqual(await follow.close(), { code: 1001, reason: 'the agent is stopping, try again' })
  await done.until('who has everything is not waited for', ({ ended }) => ended)
  assert.equal(down, false, 'one is still being answered')
  release.resolve()
  assert.equal((await finite.close()).code, 1000)
  assert.equal(finite.data.toString(), 'whole')
  await closed
  await eventually(() => followers(edge) === 0, 'no follower is left')
})
