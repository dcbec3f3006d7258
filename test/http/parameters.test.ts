/** Every parameter of every endpoint, wrong in every way; and what HTTP promises about verbs, encodings and origins. */
import assert from 'node:assert/strict'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { gunzipSync } from 'node:zlib'
import { type Edge, startEdge } from '../helpers/edge.ts'
import { type Answer, ask, raw, answersIn } from '../helpers/raw-http.ts'
import { ALLOC, INSIDE, makeAllocation, NODE, UNKNOWN } from '../helpers/allocation.ts'
import { eventually } from '../helpers/eventually.ts'

const FS = '/v1/client/fs'
const FILE = 'path=web/local/hello.txt'
const LONG = 'x'.repeat(10_240)

/** Targets that are right, with their parameters; one after the other is then made wrong. */
const TARGETS: Readonly<Record<string, readonly [string, string, string]>> = {
  ls: ['GET', `${FS}/ls/:id`, 'path=web/local'],
  stat: ['GET', `${FS}/stat/:id`, FILE],
  cat: ['GET', `${FS}/cat/:id`, FILE],
  readat: ['GET', `${FS}/readat/:id`, `${FILE}&offset=0&limit=5`],
  stream: ['GET', `${FS}/stream/:id`, `${FILE}&offset=0&follow=false&origin=start`],
  logs: ['GET', `${FS}/logs/:id`, 'task=web&type=stdout&follow=false&plain=false&offset=0&origin=start'],
  stats: ['GET', '/v1/client/stats', `node_id=${NODE}`],
  allocstats: ['GET', '/v1/client/allocation/:id/stats', 'task=web'],
  gc: ['GET', '/v1/client/allocation/:id/gc', ''],
  gcall: ['GET', '/v1/client/gc', `node_id=${NODE}`],
  metadata: ['GET', '/v1/client/metadata', `node_id=${NODE}`],
}

const target = (name: string, query?: string, id = ALLOC) => {
  const [, path = '', normal = ''] = TARGETS[name] ?? []
  return `${path.replace(':id', id)}?${query ?? normal}`
}

/** The query of an endpoint with one parameter replaced by other text, or left out. */
function altered(name: string, parameter: string, text: string | undefined): string {
  const pairs = (TARGETS[name]?.[2] ?? '').split('&').filter((pair) => !pair.startsWith(`${parameter}=`))
  return [...pairs, ...(text === undefined ? [] : [text])].join('&')
}

function assertGoodError(edge: Edge, answer: Answer, what: string): void {
  const text = answer.body.toString()
  assert.match(answer.headers.get('content-type') ?? '', /^text\/plain; charset=utf-8$/, what)
  assert.equal(answer.headers.get('x-content-type-options'), 'nosniff', what)
  assert.ok(text.length > 0 && text.length < 12_000, `${what}: ${text.length} characters`)
  for (const never of [
    edge.allocDir,
    edge.outside,
    '/proc/',
    'Unexpected token',
    'JSON.parse',
    'node:internal',
    'internal error',
  ]) {
    assert.ok(!text.includes(never), `${what}: the text holds ${never}: ${text}`)
  }
}

const OFFSETS = { readat: ['offset', 'limit'], stream: ['offset'], logs: ['offset'] } as const

test('integers are validated', async (t) => {
  const edge = await startEdge(t)
  for (const [name, parameters] of Object.entries(OFFSETS)) {
    for (const parameter of parameters) {
      for (const wrong of [
        'x',
        '1.5',
        '1e3',
        '0x10',
        '%201',
        '--1',
        '1_000',
        '9223372036854775808',
        '9'.repeat(10_000),
        '%00',
        '%D9%A1',
      ]) {
        const answer = await ask(edge.port, 'GET', target(name, altered(name, parameter, `${parameter}=${wrong}`)))
        const what = `${name} ${parameter}=${wrong.slice(0, 30)}`
        assert.equal(answer.status, 400, what)
        assertGoodError(edge, answer, what)
        assert.match(answer.body.toString(), new RegExp(`error parsing ${parameter}: strconv.ParseInt`), what)
      }
      for (const right of ['9007199254740993', '9223372036854775807', '%2B2', '007']) {
        if (parameter === 'limit' || right === '%2B2' || right === '007') {
          const answer = await ask(edge.port, 'GET', target(name, altered(name, parameter, `${parameter}=${right}`)))
          assert.equal(answer.status, 200, `${name} ${parameter}=${right}`)
        }
      }
    }
  }
  for (const missing of ['offset', 'limit']) {
    for (const text of [undefined, `${missing}=`]) {
      assert.equal((await ask(edge.port, 'GET', target('readat', altered('readat', missing, text)))).status, 400)
    }
  }
})

test('readat reads exactly the bytes that were asked for', async (t) => {
  const edge = await startEdge(t)
  const size = INSIDE.length
  const cases: readonly (readonly [string, string, string | number])[] = [
    ['0', '5', INSIDE.slice(0, 5)],
    ['3', '1', INSIDE.slice(3, 4)],
    ['0', '-1', INSIDE],
    ['0', '0', INSIDE],
    ['7', '-9223372036854775808', INSIDE.slice(7)],
    ['0', '9223372036854775807', INSIDE],
    [String(size - 1), '10', INSIDE.slice(-1)],
    [String(size), '10', ''],
    [String(size + 1), '10', ''],
    ['9223372036854775807', '9223372036854775807', ''],
    ['-1', '10', 400],
    ['-9223372036854775808', '10', 400],
  ]
  for (const [offset, limit, expected] of cases) {
    const answer = await ask(edge.port, 'GET', target('readat', `${FILE}&offset=${offset}&limit=${limit}`))
    const what = `offset=${offset} limit=${limit}`
    if (typeof expected === 'number') {
      assert.equal(answer.status, expected, what)
      assertGoodError(edge, answer, what)
    } else {
      assert.equal(answer.status, 200, what)
      assert.equal(answer.body.toString(), expected, what)
      assert.equal(answer.headers.get('content-length'), String(expected.length), what)
    }
  }
})

test('booleans, choices and names are validated', async (t) => {
  const edge = await startEdge(t)
  const wrong: readonly (readonly [string, string, string, number])[] = [
    ...['follow', 'plain'].flatMap((name) =>
      ['yes', 'tRUE', '2', '-1', '%20true', LONG, '%00'].map((v) => ['logs', name, v, 400] as const),
    ),
    ...['yes', 'TrUe', LONG].map((value) => ['stream', 'follow', value, 400] as const),
    ...['START', 'middle', LONG, '%00'].flatMap((v) => [
      ['stream', 'origin', v, 400] as const,
      ['logs', 'origin', v, 400] as const,
    ]),
    ...['STDOUT', 'stdin', LONG].map((value) => ['logs', 'type', value, 400] as const),
    ...['nope', '..', '../web', '%00', '__proto__', 'constructor', 'alloc'].map(
      (v) => ['logs', 'task', v, 400] as const,
    ),
    ['logs', 'task', '', 400],
    ...['stats', 'gcall', 'metadata'].flatMap((name) => [
      [name, 'node_id', 'a1b2c3d4', 400] as const,
      [name, 'node_id', LONG, 400] as const,
      [name, 'node_id', '%00', 400] as const,
      [name, 'node_id', UNKNOWN, 404] as const,
      [name, 'node_id', NODE.toUpperCase(), 404] as const,
    ]),
  ]
  for (const [name, parameter, value, status] of wrong) {
    const answer = await ask(edge.port, 'GET', target(name, altered(name, parameter, `${parameter}=${value}`)))
    const what = `${name} ${parameter}=${value.slice(0, 30)}`
    assert.equal(answer.status, status, `${what}: ${answer.body.toString().slice(0, 200)}`)
    assertGoodError(edge, answer, what)
  }
  for (const yes of ['1', 't', 'T', 'true', 'TRUE', 'True']) {
    const answer = await ask(edge.port, 'GET', target('logs', altered('logs', 'plain', `plain=${yes}`)))
    assert.equal(answer.body.toString(), 'a line of the log\n', yes)
  }
  for (const parameter of ['follow', 'plain', 'type', 'offset', 'origin']) {
    assert.equal(
      (await ask(edge.port, 'GET', target('logs', altered('logs', parameter, `${parameter}=`)))).status,
      200,
      parameter,
    )
  }
})

test('a repeated parameter is refused, an unknown one ignored, and a malformed one is 400', async (t) => {
  const edge = await startEdge(t)
  for (const [name, [, , query]] of Object.entries(TARGETS)) {
    if (name.startsWith('gc')) continue
    for (const pair of query.split('&').filter((text) => text !== '')) {
      const answer = await ask(edge.port, 'GET', target(name, `${query}&${pair}`))
      assert.equal(answer.status, 400, `${name} twice ${pair}`)
      assert.match(answer.body.toString(), /is set 2 times, set it once/)
    }
    assert.equal((await ask(edge.port, 'GET', target(name, `${query}&zzz=1&zzz=2&&=&=x`))).status, 200, name)
    for (const broken of ['%', '%zz', '%ff', '%C3%28', '%ED%A0%80']) {
      const answer = await ask(edge.port, 'GET', target(name, `${query}&x=${broken}`))
      assert.equal(answer.status, 400, `${name} ${broken}`)
      assertGoodError(edge, answer, name)
    }
    const many = Array.from({ length: 300 }, (_, index) => `a${index}=1`).join('&')
    assert.equal((await ask(edge.port, 'GET', target(name, many))).status, 400)
  }
})

test('allocation IDs are validated', async (t) => {
  const edge = await startEdge(t)
  const wrong: readonly (readonly [string, number])[] = [
    ['', 400],
    [ALLOC.slice(0, 8), 400],
    [`${ALLOC}x`, 400],
    [`${ALLOC}/x`, 400],
    [`${ALLOC}/..`, 400],
    ['..', 400],
    ['%00', 400],
    ['%zz', 400],
    [`%2e%2e%2f${ALLOC}`, 400],
    ['__proto__', 400],
    [LONG.slice(0, 7000), 400],
    [LONG, 414],
    [UNKNOWN, 404],
    [ALLOC.toUpperCase(), 404],
  ]
  for (const name of ['ls', 'stat', 'cat', 'readat', 'stream', 'logs']) {
    for (const [id, status] of wrong) {
      const answer = await ask(edge.port, 'GET', target(name, undefined, id))
      assert.equal(answer.status, status, `${name} ${id.slice(0, 50)}: ${answer.body.toString().slice(0, 200)}`)
      assertGoodError(edge, answer, `${name} ${id.slice(0, 50)}`)
    }
  }
  for (const name of ['allocstats', 'gc']) {
    for (const [id, status] of wrong.filter(([text]) => text !== '' && !text.includes('/'))) {
      assert.equal(
        (await ask(edge.port, 'GET', target(name, undefined, id))).status,
        status,
        `${name} ${id.slice(0, 50)}`,
      )
    }
  }
  assert.ok(existsSync(join(edge.directory, 'alloc.json')), 'nothing was collected')
})

test('ranges of cat are validated', async (t) => {
  const edge = await startEdge(t)
  writeFileSync(join(edge.directory, 'web/local/empty'), '')
  const size = INSIDE.length
  const cases: readonly (readonly [string, number, string, string?])[] = [
    ['bytes=0-4', 206, INSIDE.slice(0, 5), `bytes 0-4/${size}`],
    ['bytes=5-5', 206, INSIDE.slice(5, 6), `bytes 5-5/${size}`],
    ['bytes=5-', 206, INSIDE.slice(5), `bytes 5-${size - 1}/${size}`],
    ['bytes=-5', 206, INSIDE.slice(-5), `bytes ${size - 5}-${size - 1}/${size}`],
    ['bytes=-99999', 206, INSIDE, `bytes 0-${size - 1}/${size}`],
    ['bytes=0-99999999999999999999', 206, INSIDE, `bytes 0-${size - 1}/${size}`],
    ['Bytes=1-2', 206, INSIDE.slice(1, 3), `bytes 1-2/${size}`],
    ['bytes=0-1,3-4', 200, INSIDE],
    ['bytes=4-2', 200, INSIDE],
    ['bytes=a-b', 200, INSIDE],
    ['bytes=-', 200, INSIDE],
    ['lines=0-1', 200, INSIDE],
    [`bytes=${size}-`, 416, '', `bytes */${size}`],
    ['bytes=99999999999999999999-', 416, '', `bytes */${size}`],
    ['bytes=-0', 416, '', `bytes */${size}`],
  ]
  for (const [range, status, body, contentRange] of cases) {
    const answer = await ask(edge.port, 'GET', target('cat'), `Range: ${range}`)
    assert.equal(answer.status, status, range)
    if (status !== 416) assert.equal(answer.body.toString(), body, range)
    assert.equal(answer.headers.get('content-range'), contentRange, range)
  }
  const conditional = await ask(edge.port, 'GET', target('cat'), 'Range: bytes=0-1', 'If-Range: "some-validator"')
  assert.equal(conditional.status, 200, 'a validator that cannot be ours')
  const empty = target('cat', 'path=web/local/empty')
  assert.equal((await ask(edge.port, 'GET', empty, 'Range: bytes=0-')).status, 416)
  assert.equal((await ask(edge.port, 'GET', empty, 'Range: bytes=-5')).status, 200)
  assert.equal((await ask(edge.port, 'HEAD', target('cat'), 'Range: bytes=0-4')).headers.get('content-length'), '5')
  assert.equal((await ask(edge.port, 'GET', target('readat'), 'Range: bytes=0-1')).status, 200, 'only cat has ranges')
})

test('HEAD has the headers of GET and no body', async (t) => {
  const edge = await startEdge(t)
  for (const name of ['ls', 'stat', 'cat', 'readat', 'stream', 'logs', 'allocstats']) {
    for (const query of [undefined, 'path=nothing&task=nothing&offset=x']) {
      const get = await ask(edge.port, 'GET', target(name, query))
      const heard = await raw(
        { port: edge.port },
        `HEAD ${target(name, query)} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`,
      )
      const [answer, ...more] = answersIn(heard.bytes, ['HEAD'])
      assert.equal(answer?.status, get.status, name)
      assert.equal(heard.text.split('\r\n\r\n')[1], '', `${name}: no body`)
      assert.equal(more.length, 0)
      if (name !== 'allocstats')
        assert.equal(answer?.headers.get('content-length'), get.headers.get('content-length'), name)
      assert.equal(answer?.headers.get('content-type'), get.headers.get('content-type'), name)
    }
  }
  const follow = await ask(edge.port, 'HEAD', target('logs', 'task=web&follow=true'))
  assert.equal(follow.status, 200)
  await eventually(() => edge.host.followers.count === 0, 'no follower is left')
  const metadata = await ask(edge.port, 'HEAD', '/v1/client/metadata')
  assert.equal(metadata.status, 405)
  assert.equal(metadata.headers.get('allow'), 'GET, POST')
})

test('pretty, gzip and paths without /v1 are supported', async (t) => {
  const edge = await startEdge(t)
  const plain = JSON.parse((await ask(edge.port, 'GET', target('stat'))).body.toString()) as unknown
  for (const [query, pretty] of [
    ['pretty', true],
    ['pretty=', true],
    ['pretty=1', true],
    ['pretty=false', true],
    ['pretty=0', false],
    ['x=pretty', false],
  ] as const) {
    const text = (await ask(edge.port, 'GET', target('stat', `${FILE}&${query}`))).body.toString()
    assert.equal(text, pretty ? `${JSON.stringify(plain, null, 4)}\n` : JSON.stringify(plain), query)
  }
  for (let index = 0; index < 40; index++) writeFileSync(join(edge.directory, 'web/local', `file-${index}`), '')
  const whole = (await ask(edge.port, 'GET', target('ls'))).body.toString()
  for (const [accepted, zipped] of [
    ['gzip', true],
    ['deflate, gzip;q=0.5', true],
    ['GZIP', true],
    ['gzip;q=1.0, identity', true],
    ['gzip;q=0', false],
    ['gzip; q=0.000', false],
    ['identity', false],
    ['br', false],
    ['', false],
  ] as const) {
    const answer = await ask(edge.port, 'GET', target('ls'), `Accept-Encoding: ${accepted}`)
    assert.equal(answer.headers.get('content-encoding'), zipped ? 'gzip' : undefined, accepted)
    assert.equal((zipped ? gunzipSync(answer.body) : answer.body).toString(), whole, accepted)
    assert.match(answer.head, /^Vary: Accept-Encoding$/m)
  }
  assert.equal(
    (await ask(edge.port, 'GET', target('cat'), 'Accept-Encoding: gzip')).headers.get('content-encoding'),
    undefined,
  )
  for (const [name, [method]] of Object.entries(TARGETS)) {
    if (name.startsWith('gc') || name.endsWith('stats')) continue
    const [versioned, bare] = [
      await ask(edge.port, method, target(name)),
      await ask(edge.port, method, target(name).replace('/v1', '')),
    ]
    assert.equal(bare.status, versioned.status, name)
    assert.equal(bare.body.toString(), versioned.body.toString(), name)
  }
})

test('requests of other origins follow CORS', async (t) => {
  const edge = await startEdge(t)
  const preflight = (path: string, method: string) =>
    ask(
      edge.port,
      'OPTIONS',
      path,
      'Origin: http://evil.example',
      `Access-Control-Request-Method: ${method}`,
      'Access-Control-Request-Headers: x-nomad-token',
    )
  const allowed = await preflight(target('cat'), 'GET')
  assert.equal(allowed.status, 204)
  assert.equal(allowed.headers.get('access-control-allow-methods'), 'GET')
  assert.equal(allowed.headers.get('access-control-allow-headers'), 'x-nomad-token')
  assert.equal(allowed.headers.get('access-control-allow-origin'), '*')
  for (const [path, method] of [
    ['/v1/client/metadata', 'POST'],
    [target('gcall'), 'GET'],
    [target('cat'), 'DELETE'],
    ['/nothing', 'GET'],
  ] as const) {
    const refused = await preflight(path, method)
    assert.equal(refused.status, 204)
    assert.doesNotMatch(refused.head, /access-control-allow/i, `${method} ${path}`)
  }
  const simple = await ask(edge.port, 'GET', target('cat'), 'Origin: http://evil.example', 'X-Nomad-Token: x')
  assert.equal(simple.headers.get('access-control-allow-origin'), '*')
  assert.doesNotMatch((await ask(edge.port, 'GET', target('cat'))).head, /access-control/i)
})

const BODIES: readonly (readonly [string, string | Buffer])[] = [
  ['nothing', ''],
  ['white space', ' \n'],
  ['broken', '{"Meta":{"a":'],
  ['not JSON', 'hunter2-in-the-body'],
  ['single quotes', "{'Meta':{}}"],
  ['a number', '1'],
  ['a text', '"hunter2"'],
  ['null', 'null'],
  ['a list', '[]'],
  ['no Meta', '{}'],
  ['Meta null', '{"Meta":null}'],
  ['Meta a list', '{"Meta":["a"]}'],
  ['Meta empty', '{"Meta":{}}'],
  ['a number as value', '{"Meta":{"a":1}}'],
  ['an object as value', '{"Meta":{"a":{}}}'],
  ['a key that is none', '{"Meta":{"a/b":"1"}}'],
  ['an empty key', '{"Meta":{"":"1"}}'],
  ['a key with a NUL', '{"Meta":{"a\\u0000":"1"}}'],
  ['NodeID a number', '{"NodeID":1,"Meta":{"a":"1"}}'],
  ['no UTF-8', Buffer.from([0x7b, 0xff, 0x7d])],
  ['deep', '['.repeat(200_000)],
  ['deep and closed', `${'['.repeat(200_000)}${']'.repeat(200_000)}`],
]

test('bodies with the wrong structure change nothing and are not quoted', async (t) => {
  const edge = await startEdge(t)
  for (const [name, body] of BODIES) {
    const head = `POST /v1/client/metadata HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: ${body.length}\r\n\r\n`
    const [answer] = answersIn(
      (await raw({ port: edge.port }, Buffer.concat([Buffer.from(head), Buffer.from(body)]))).bytes,
    )
    assert.equal(answer?.status, 400, `${name}: ${answer?.body.toString()}`)
    assert.ok(answer)
    assertGoodError(edge, answer, name)
    assert.doesNotMatch(answer.body.toString(), /hunter2/, name)
  }
  assert.deepEqual(edge.host.metadata.view().Dynamic, {})
  for (const method of ['PUT', 'DELETE', 'PATCH']) {
    assert.equal((await ask(edge.port, method, '/v1/client/metadata')).status, 405, method)
  }
  const other = makeAllocation(edge.allocDir, UNKNOWN, { ClientStatus: 'complete', Tasks: {} })
  assert.ok(readFileSync(join(other, 'alloc.json')).length > 0)
})
