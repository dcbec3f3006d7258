/** Logs of a job: labels, ends and errors of single logs, new allocations, clients that do not read. */
import '../../helpers/short-timings.ts'
import assert from 'node:assert/strict'
import { setTimeout as delay } from 'node:timers/promises'
import { connect } from 'node:net'
import { test } from 'node:test'
import { FrameLabeler } from '../../../src/cluster/api/frame-labeler.ts'
import { Refusal, type RefusalCode } from '../../../src/platform/errors.ts'
import { idOf, startFleetServer } from '../../helpers/fleet-server.ts'
import { identity } from '../../host/allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'
import {
  ONE,
  TWO,
  THREE,
  type Asked,
  nodes,
  frame,
  framesOf,
  said,
  fill,
  follow,
  type Shown,
} from './job-log-fixture.ts'

test('frames are labeled for any split into chunks, and heartbeats are dropped', () => {
  const stream = Buffer.concat([frame('first'), Buffer.from('{}'), frame('second'), Buffer.from('{}{}')])
  for (let size = 1; size <= stream.length; size++) {
    const labels = new FrameLabeler('AllocID', ONE)
    const parts: Buffer[] = []
    for (let at = 0; at < stream.length; at += size) parts.push(labels.label(stream.subarray(at, at + size)))
    assert.equal(labels.isComplete, true)
    const text = Buffer.concat(parts).toString()
    assert.deepEqual(said(framesOf(text)), ['01 first', '01 second'])
    assert.ok(text.endsWith(`,"Offset":6,"AllocID":"${ONE}"}`))
  }
  assert.throws(() => new FrameLabeler('AllocID', ONE).label(Buffer.alloc(2 << 20)))
})

const INVALID_FRAMES: readonly string[] = [
  '{ }',
  ' {"Data":"eA=="}',
  '{"Data":5}',
  '{"Data":"eA==","Offset":1e3}',
  '{"Data":"eA==","Offset":"1"}',
  '{"Data":"e-A="}',
  `{"File":${'['.repeat(20_000)}${']'.repeat(20_000)}}`,
  `{"AllocID":"${ONE}","Data":"eA=="}`,
  '{"Other":1}',
  '{"File":"\\x"}',
  '{"File":"a\nb"}',
  '{"Data":"eA==",}',
  '{"File":"\u00ff"}',
]

test('a frame that clients cannot parse ends the log of its own allocation only', async (t) => {
  for (const text of INVALID_FRAMES) {
    assert.throws(() => new FrameLabeler('AllocID', ONE).label(Buffer.from(text, 'latin1')), /invalid frame/, text)
  }
  for (const text of [
    '{"File":"\\u007b\\"ü","FileEvent":"file deleted"}',
    '{"Data":"","File":"f","Offset":0,"Cursor":"c"}',
  ]) {
    const labelled = new FrameLabeler('AllocID', ONE).label(Buffer.from(text)).toString()
    assert.equal(labelled, `${text.slice(0, -1)},"AllocID":"${ONE}"}`)
  }
  const { logs } = nodes(async function* ({ id }) {
    yield { status: 200, frames: true }
    yield id === TWO ? Buffer.from('{ }') : frame(`log of ${id.slice(0, 2)}`)
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE, TWO])
  const body = await (await fetch(`${server.url}/v1/job/web/logs`)).text()
  assert.deepEqual(said(framesOf(body)).sort(), [
    '01 log ended',
    '01 log of 01',
    '02 log failed: 500 the node had an internal error',
  ])
})

test('all allocations are read, and the failure of one log is reported and does not end the others', async (t) => {
  const { logs, asked } = nodes(async function* ({ id }) {
    if (id === TWO) throw new Refusal('not_found', 'no {path} to node')
    yield { status: 200, frames: true }
    yield frame(`log of ${id.slice(0, 2)}`)
    if (id === THREE) throw new Error('it broke')
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE, TWO, THREE])
  const { status, text, headers } = await server.get('job/web/logs?grep=x&grep_context=2&namespace=default')
  assert.deepEqual([status, headers.get('content-type')], [200, 'application/json'])
  const expected = [
    '01 log of 01',
    '01 log ended',
    '02 log failed: 404 no {path} to node',
    '03 log of 03',
    '03 log failed: 500 the node had an internal error',
  ]
  assert.deepEqual(said(framesOf(text)).sort(), expected.sort())
  assert.ok(!text.includes('{path}'), 'braces of a text would break clients that cut at them')
  assert.deepEqual(asked[0]?.raw.query, [
    ['grep', 'x'],
    ['grep_context', '2'],
    ['task', '*'],
    ['type', '*'],
    ['follow', 'false'],
  ])
})

test('a log that ends in the middle of a frame is reported as incomplete', async (t) => {
  const { logs } = nodes(async function* () {
    yield { status: 200, frames: true }
    yield Buffer.concat([frame('whole'), frame('cut').subarray(0, 20)])
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE])
  const body = await (await fetch(`${server.url}/v1/job/web/logs`)).text()
  assert.deepEqual(said(framesOf(body)), ['01 whole', '01 log failed: incomplete frame'])
})

test('invalid parameters are refused before the head is sent', async (t) => {
  const { logs, asked } = nodes(async function* () {
    yield { status: 200 }
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE])
  const cases: [string, number, RegExp][] = [
    ['web/logs?grep=%28', 400, /^grep is not a valid pattern$/],
    ['web/logs?plain=true', 400, /^plain is not supported for the logs of a job/],
    ['web/logs?cursor=abc', 400, /^malformed cursor: expected ALLOCATION\.CURSOR$/],
    [`web/logs?cursor=${ONE}.c&cursor=${ONE}.d`, 400, /^several cursors for allocation 01000000-/],
    ['web/logs?follow=x', 400, /follow/],
    ['web/logs?namespace=*', 400, /specify the namespace/],
    ['web/logs?task=nobody', 404, /^no allocation of this job has a matching log$/],
    ['nobody/logs', 404, /^no allocation/],
    ['web/logs?region=mars', 500, /^No path to region$/],
  ]
  for (const [path, status, text] of cases) {
    const answer = await server.get(`job/${path}`)
    assert.equal(answer.status, status, path)
    assert.match(answer.text, text)
  }
  server.actAs(identity('default:read-job'))
  assert.equal((await server.get('job/web/logs')).status, 403)
  assert.equal(asked.length, 0)
})

test('new allocations are followed from the beginning of their logs, and a log that is not ready is retried', async (t) => {
  let isReady = false
  const { logs, asked } = nodes(async function* ({ id, signal }) {
    if (id === TWO && !isReady) throw new Refusal('not_found', 'not started yet')
    yield { status: 200 }
    yield frame(`log of ${id.slice(0, 2)}`)
    await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE])
  const follower = await follow(t, server, 'follow&tail_lines=5')
  await eventually(() => follower.said().length === 1)
  await eventually(() => follower.heard.text.includes('{}')) // it is alive
  fill(server, [ONE, TWO])
  await eventually(() => follower.said().length === 2)
  isReady = true
  await eventually(() => follower.said().length === 3)
  assert.deepEqual(follower.said(), ['01 log of 01', '02 log failed: 404 not started yet', '02 log of 02'])
  const names = asked.map(({ raw }) => raw.query.map(([name]) => name))
  assert.ok(names[0]?.includes('tail_lines'))
  assert.ok(!names[1]?.includes('tail_lines'))
  assert.equal(follower.heard.ended, false)
  follower.close()
  await eventually(() => asked.every(({ id, signal }) => signal.aborted || (id === TWO && !isReady)))
  await eventually(() => server.api.queries.waiterCount === 0)
})

const withCursor = (text: string, cursor: string) =>
  Buffer.from(`${frame(text).toString().slice(0, -1)},"Cursor":"${cursor}"}`)

const waitFor = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))

const startOf = ({ raw }: Asked) => raw.query.filter(([name]) => name === 'cursor' || name === 'tail_lines')

test('a stream with cursors is resumed with the cursor of each allocation, in the query or in a body', async (t) => {
  const { logs, asked } = nodes(async function* ({ id, signal }) {
    yield { status: 200 }
    yield Buffer.from('{"Cursor":"begin"}')
    yield withCursor(`log of ${id.slice(0, 2)}`, `c${id.slice(1, 2)}`)
    await waitFor(signal)
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE, TWO])
  const first = await follow(t, server, 'follow&tail_lines=5&cursor=')
  await eventually(() => first.said().length === 4)
  const frames = framesOf(first.heard.text) as (Shown & { Cursor?: string })[]
  const last = frames.filter(({ Data }) => Data !== undefined).map(({ AllocID, Cursor }) => `${AllocID}.${Cursor}`)
  assert.deepEqual(last.sort(), [`${ONE}.c1`, `${TWO}.c2`])
  assert.deepEqual(
    asked.map(startOf),
    [ONE, TWO].map(() => [
      ['tail_lines', '5'],
      ['cursor', ''],
    ]),
  )
  const isLeft = () => server.api.queries.waiterCount === 0
  first.close()
  await eventually(isLeft)
  asked.length = 0
  // The third one has started meanwhile: from its beginning, and its frames have cursors too.
  fill(server, [ONE, TWO, THREE])
  const again = await follow(t, server, `follow&tail_lines=5&cursor=${last.join('&cursor=')}`)
  await eventually(() => asked.length === 3)
  const starts = [[['cursor', 'c1']], [['cursor', 'c2']], [['cursor', '']]]
  assert.deepEqual(asked.map(startOf), starts)
  again.close()
  await eventually(isLeft)
  asked.length = 0
  const abort = new AbortController()
  t.after(() => abort.abort())
  const post = (body: string) => {
    const init = { method: 'POST', body, signal: abort.signal }
    return fetch(`${server.url}/v1/job/web/logs?follow&tail_lines=5`, init)
  }
  const posted = await post(JSON.stringify({ Cursors: last }))
  assert.equal(posted.status, 200)
  await eventually(() => asked.length === 3)
  assert.deepEqual(asked.map(startOf), starts)
  for (const body of ['{', '{}', '{"Cursors":[1]}', '{"Cursors":["x"]}']) assert.equal((await post(body)).status, 400)
})

test('a log that breaks is resumed at its last cursor, and without cursors it has ended', async (t) => {
  let breaks = 1
  const { logs, asked } = nodes(async function* ({ raw, signal }) {
    yield { status: 200 }
    const cursor = raw.query.find(([name]) => name === 'cursor')?.[1]
    if (cursor === 'one') yield withCursor('two', 'two')
    else yield cursor === undefined ? frame('one') : withCursor('one', 'one')
    if (breaks-- > 0) throw new Refusal('no_answer', 'the node does not answer')
    await waitFor(signal)
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE])
  const follower = await follow(t, server, 'follow&cursor=')
  await eventually(() => follower.said().length === 3)
  assert.deepEqual(follower.said(), ['01 one', '01 log failed: 504 the node does not answer', '01 two'])
  follower.close()
  breaks = 1
  asked.length = 0
  const plain = await follow(t, server, 'follow')
  await eventually(() => plain.said().length === 2)
  await eventually(() => plain.heard.text.includes('{}')) // it goes on without this log
  assert.deepEqual(plain.said(), ['01 one', '01 log failed: 504 the node does not answer'])
  assert.equal(asked.length, 1)
})

test('a log that breaks with NATS, or while the core is sealed, is resumed at its last cursor', async (t) => {
  const failures: RefusalCode[] = ['no_answer', 'not_connected', 'not_active', 'sealed']
  const { logs } = nodes(async function* ({ raw, signal }) {
    const cursor = raw.query.find(([name]) => name === 'cursor')?.[1]
    const failure = cursor === 'one' ? failures.shift() : undefined
    if (failure && failure !== 'no_answer') throw new Refusal(failure, 'try again')
    yield { status: 200 }
    if (failure) throw new Refusal(failure, 'the node does not answer')
    if (cursor === 'one') yield withCursor('two', 'two')
    else {
      yield withCursor('one', 'one')
      throw new Refusal('no_answer', 'the node does not answer')
    }
    await waitFor(signal)
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE])
  const follower = await follow(t, server, 'follow&cursor=')
  await eventually(() => follower.said().includes('01 two'))
  assert.deepEqual(failures, [])
})

test('an allocation that is removed and added again is followed once, from the beginning if its log has ended', async (t) => {
  const ends = new Map<string, () => void>()
  const { logs, asked } = nodes(async function* ({ id, signal }) {
    yield { status: 200 }
    yield frame(`log of ${id.slice(0, 2)}`)
    await new Promise<void>((resolve) => {
      ends.set(id, resolve)
      signal.addEventListener('abort', () => resolve(), { once: true })
    })
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE, TWO])
  const follower = await follow(t, server, 'follow')
  await eventually(() => follower.said().length === 2)
  // The log of the first one ends with it, that of the second goes on.
  ends.get(ONE)?.()
  await eventually(() => follower.said().length === 3)
  fill(server, [])
  fill(server, [ONE, TWO])
  await eventually(() => follower.said().length >= 4)
  fill(server, [ONE, TWO, THREE])
  await eventually(() => follower.said().some((text) => text === '03 log of 03'))
  assert.deepEqual(follower.said().sort(), [
    '01 log ended',
    '01 log of 01',
    '01 log of 01',
    '02 log of 02',
    '03 log of 03',
  ])
  assert.equal(asked.filter(({ id }) => id === TWO).length, 1)
})

test('an allocation above the limit is reported as not followed, and a released slot is used for a new one', async (t) => {
  const ends = new Map<string, () => void>()
  const { logs, asked } = nodes(async function* ({ id, signal }) {
    yield { status: 200 }
    await new Promise<void>((resolve) => {
      ends.set(id, resolve)
      signal.addEventListener('abort', () => resolve(), { once: true })
    })
  })
  const server = await startFleetServer(t, logs)
  const ids = Array.from({ length: 2001 }, (_, serial) => idOf('0a000000', serial))
  fill(server, ids)
  const follower = await follow(t, server, 'follow')
  await eventually(() => asked.length === 2000)
  await eventually(() => follower.said().length > 0)
  const text =
    '0a log failed: 1 allocations of this host are not followed: at most 2000 allocations of a job are followed at once, shared among its hosts'
  assert.deepEqual(follower.said(), [text])
  assert.ok(follower.heard.text.includes(ids.at(-1) ?? ''))
  fill(server, [...ids, ONE])
  ends.get(ids[0] ?? '')?.()
  await eventually(() => follower.said().length === 2)
  fill(server, [...ids, ONE, TWO])
  await eventually(() => asked.at(-1)?.id === TWO)
  assert.equal(asked.length, 2001)
})

test('a quiet stream sends heartbeats of its own interval', async (t) => {
  const { logs } = nodes(async function* ({ signal }) {
    yield { status: 200 }
    while (!signal.aborted) {
      await delay(300)
      yield Buffer.from('{}')
    }
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE, TWO])
  const follower = await follow(t, server, 'follow')
  await eventually(() => follower.heard.text.length >= 4, 'it beats', 20_000)
  assert.match(follower.heard.text, /^(?:\{\})+$/)
})

test('with end_when_done the stream ends when the last allocation has ended', async (t) => {
  const { logs } = nodes(async function* ({ raw }) {
    assert.ok(raw.query.some(([name, value]) => name === 'end_when_done' && value === 'true'))
    yield { status: 200 }
    yield frame('done')
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE, TWO])
  const follower = await follow(t, server, 'follow=true&end_when_done=true')
  await eventually(() => follower.heard.ended)
  assert.deepEqual(follower.said().sort(), ['01 done', '01 log ended', '02 done', '02 log ended'])
})

test('a reader that does not read stops a hundred nodes, and its disconnection ends their logs', async (t) => {
  const piece = Buffer.concat(Array.from({ length: 8 }, () => frame('x'.repeat(8192))))
  let made = 0
  let running = 0
  const { logs, asked } = nodes(async function* ({ signal }) {
    running++
    try {
      yield { status: 200 }
      while (!signal.aborted) {
        made += piece.length
        yield piece
      }
    } finally {
      running--
    }
  })
  const server = await startFleetServer(t, logs)
  fill(
    server,
    Array.from({ length: 100 }, (_, serial) => idOf('0a000000', serial)),
  )
  const socket = connect(server.port, '127.0.0.1')
  socket.pause()
  socket.write('GET /v1/job/web/logs?follow=true HTTP/1.1\r\nHost: x\r\n\r\n')
  await eventually(() => running === 100)
  let last = -1
  await eventually(() => {
    const isStill = made === last
    last = made
    return isStill
  })
  // What waits here, one piece of each, and what the kernel took.
  assert.ok(made < 64 << 20, `${made} bytes were made for a reader that reads nothing`)
  socket.destroy()
  await eventually(() => running === 0)
  assert.equal(asked.length, 100)
})

test('the log of a busy allocation among 149 quiet ones arrives complete at a client that pauses', async (t) => {
  const PIECES = 100
  const piece = Buffer.concat(Array.from({ length: 8 }, () => frame('x'.repeat(12_000))))
  let sent = 0
  let beats = 0
  const { logs } = nodes(async function* ({ id, signal }) {
    yield { status: 200 }
    if (id === ONE) {
      for (; sent < PIECES; sent++) yield piece
      return
    }
    // One heartbeat is under way for each quiet allocation while the client reads nothing.
    while (!signal.aborted) {
      yield Buffer.from('{}')
      beats++
      await delay(100, undefined, { signal }).catch(() => undefined)
    }
  })
  const server = await startFleetServer(t, logs)
  fill(server, [ONE, ...Array.from({ length: 149 }, (_, serial) => idOf('0a000000', serial))])
  const socket = connect(server.port, '127.0.0.1')
  t.after(() => socket.destroy())
  socket.pause()
  let text = ''
  socket.setEncoding('latin1').on('data', (data: string) => (text = (text + data).slice(-100_000)))
  socket.write('GET /v1/job/web/logs?follow=true HTTP/1.1\r\nHost: x\r\n\r\n')
  let before = { sent: -1, beats: -1 }
  await eventually(
    () => {
      const isStill = sent === before.sent && sent > 10 && beats > 0
      before = { sent, beats }
      return isStill
    },
    'the busy allocation waits',
    undefined,
    200,
  )
  assert.ok(sent < PIECES, 'the client pauses long enough')
  socket.resume()
  await eventually(
    () => text.includes(`{"FileEvent":"log ended","AllocID":"${ONE}"}`),
    () => `the end, after ${sent}`,
    20_000,
  )
})
