import assert from 'node:assert/strict'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type { ServerResponse } from 'node:http'
import { describe, test } from 'node:test'
import { beginHere, runHere } from '../../helpers/command-here.ts'
import { ALLOC_ID, beat, fakeAgent, frame } from '../fake-agent.ts'
import { OUTPOST, start } from '../outpost-process.ts'
import { eventually } from '../../helpers/eventually.ts'

const OUT = 'alloc/logs/web.stdout.0'
const ERR = 'alloc/logs/web.stderr.0'

const envAt = (url: string) => ({ ...process.env, OUTPOST_ADDR: url })

/** In this process. */
function logs(url: string, ...args: readonly string[]) {
  return runHere(['logs', ...args], envAt(url))
}

/** For what is about the process: its descriptors, and signals. */
function begin(url: string, ...args: readonly string[]) {
  return start(OUTPOST, ['logs', ...args], { env: envAt(url) })
}

test('options become parameters of the request', async (t) => {
  const agent = await fakeAgent(t, (_, response) => void response.end(frame('x\n', { File: OUT })))
  const query = async (...args: string[]) => {
    const { code, stderr, stdout } = await logs(agent.url, ...args, ALLOC_ID, 'web')
    assert.deepEqual([code, stderr, stdout], [0, '', 'x\n'], args.join(' '))
    const last = agent.asked.at(-1)
    assert.equal(last?.path, `/v1/client/fs/logs/${ALLOC_ID}`)
    return Object.fromEntries(last?.query ?? [])
  }
  const always = { task: 'web', cursor: '' }
  const whole = { ...always, follow: 'false', offset: '0', origin: 'start' }
  assert.deepEqual(await query(), { ...whole, type: '*' })
  assert.deepEqual(await query('-stdout'), { ...whole, type: 'stdout' })
  assert.deepEqual(await query('-stderr'), { ...whole, type: 'stderr' })
  assert.deepEqual(await query('-type', 'all'), { ...whole, type: '*' })
  assert.deepEqual(await query('-f'), { ...whole, follow: 'true', type: '*', origin: 'end' })
  assert.deepEqual(await query('-f', '-stdout'), { ...whole, follow: 'true', type: 'stdout' })
  const tail = { ...always, follow: 'false', origin: 'end', type: '*' }
  assert.deepEqual(await query('-tail'), { ...tail, offset: '1200', tail_lines: '10' })
  assert.deepEqual(await query('-tail', '-n', '3'), { ...tail, offset: '360', tail_lines: '3' })
  assert.deepEqual(await query('-tail', '3'), { ...tail, offset: '360', tail_lines: '3' })
  assert.deepEqual(await query('-tail=3'), { ...tail, offset: '360', tail_lines: '3' })
  assert.deepEqual(await query('-n', '3'), { ...tail, offset: '360', tail_lines: '3' })
  assert.deepEqual(await query('-c', '77'), { ...tail, offset: '77' })
  assert.deepEqual(
    await query('-f', '-since', '10m', '-grep', 'a|b', '-grep-invert', '-grep-context', '2', '-end-when-done'),
    {
      ...whole,
      follow: 'true',
      type: '*',
      since: '10m',
      grep: 'a|b',
      grep_invert: 'true',
      grep_context: '2',
      end_when_done: 'true',
    },
  )
})

const wrong: [string[], RegExp][] = [
  [[], /missing ALLOC, usage: outpost logs ALLOC/],
  [['-n', '1', '-c', '1', 'x'], /-n and -c are mutually exclusive/],
  [['-tail=5', '-n', '1', 'x'], /-tail N, -n and -c are mutually exclusive/],
  [['x', 'web', 'more'], /unexpected argument "more"/],
  [['-stdout', '-stderr', 'x'], /options -stdout, -stderr and -type are mutually exclusive/],
  [['-all', 'x', 'web'], /option -all excludes task names/],
  [['-task', 'a', 'x', 'b'], /the task is specified twice/],
  [['-end-when-done', 'x'], /requires -f/],
  [['-grep-invert', 'x'], /requires -grep/],
  [['-grep-context', '1', 'x'], /requires -grep/],
  [['-since', 'yesterday', 'x'], /must be a time such as/],
]
for (const [args, message] of wrong) {
  test(`exit code 2 for logs ${args.join(' ')}`, async () => {
    const { code, stdout, stderr } = await logs('http://127.0.0.1:1', ...args)
    assert.deepEqual([code, stdout], [2, ''])
    assert.match(stderr, message)
    assert.equal(stderr.split('\n').length, 2, 'one line')
  })
}

test('stdout and stderr are printed to stdout and stderr, byte for byte', async (t) => {
  const odd = Buffer.from([0, 255, 10, 13, 128, 27])
  const agent = await fakeAgent(t, (_, response) => {
    response.write(frame('a\n', { File: OUT }))
    response.write(frame('bad\n', { File: ERR }) + frame('half', { File: OUT }))
    response.end(frame(odd, { File: ERR }))
  })
  const { code, stdout, stderr } = await begin(agent.url, '-f', ALLOC_ID, 'web').finished
  assert.deepEqual([code, stdout, stderr], [0, 'a\nhalf', `bad\n${odd.toString('utf8')}`])
})

// They wait for seconds, each for itself.
describe('connections that break', { concurrency: true }, () => {
  test('a silent connection counts as lost', async (t) => {
    const agent = await fakeAgent(t, ({ query }, response) => {
      if (query.get('cursor') === '1') response.end(frame('b\n', { File: OUT, Cursor: '2' }))
      else response.write(frame('a\n', { File: OUT, Cursor: '1' }))
    })
    const { code, stdout, stderr } = await logs(agent.url, '-f', ALLOC_ID, 'web')
    assert.deepEqual([code, stdout], [0, 'a\nb\n'])
    assert.match(stderr, /lost \(no data for 5 s\), resuming\noutpost: resumed\n$/)
  })

  test('connections that break without data are retried with backoff', async (t) => {
    const askedMs: number[] = []
    const agent = await fakeAgent(t, (_, response, count) => {
      askedMs.push(performance.now())
      if (count === 5) response.end(frame('done\n', { File: OUT, Cursor: 'c' }))
      else response.write('{}', () => setTimeout(() => response.destroy(), 5))
    })
    const { code, stdout } = await logs(agent.url, '-f', ALLOC_ID, 'web')
    assert.deepEqual([code, stdout], [0, 'done\n'])
    // 100, 200, 400, 800 and 1600 ms; timers are never early.
    assert.ok((askedMs[5] ?? 0) - (askedMs[0] ?? 0) >= 3100, askedMs.join())
  })

  test('a lost connection resumes after the last complete frame, with one message', async (t) => {
    const lines = Array.from({ length: 40 }, (_, count) => `line ${count}\n`)
    const agent = await fakeAgent(t, ({ query }, response, count) => {
      const from = Number(query.get('cursor') || 0)
      if (count === 2 || count === 3) {
        response.statusCode = count === 2 ? 503 : 429
        response.end('later')
        return
      }
      lines.slice(from, from + 9).forEach((line, at) => {
        response.write(frame(line, { File: OUT, Cursor: String(from + at + 1) }))
      })
      if (from + 9 >= lines.length) {
        response.end()
        return
      }
      // Half a frame, and then the connection is gone.
      response.write(frame('never', { File: OUT }).slice(0, 12), () => setTimeout(() => response.destroy(), 20))
    })
    const { code, stdout, stderr } = await logs(agent.url, '-f', '-n', '5', ALLOC_ID, 'web')
    assert.equal(stdout, lines.join(''))
    assert.equal(code, 0)
    const outage = `outpost: connection to ${agent.url} lost (closed by the agent), resuming\noutpost: resumed\n`
    assert.equal(stderr, outage.repeat(4))
    const again = agent.asked[1]?.query
    assert.deepEqual([again?.get('cursor'), again?.get('tail_lines'), again?.get('task')], ['9', null, 'web'])
  })
})

/** True for what Node tells of a request to a port that does not listen. */
function isRefused(message: unknown, port: number): boolean {
  const error: unknown = isObject(message) ? message['error'] : undefined
  return isObject(error) && error['code'] === 'ECONNREFUSED' && error['port'] === port
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

test('the command waits for an agent that is unreachable', async (t) => {
  const agent = await fakeAgent(t, ({ query }, response) => {
    if (query.get('cursor') === 'here') response.end(frame('second\n', { File: OUT, Cursor: 'there' }))
    else response.write(frame('first\n', { File: OUT, Cursor: 'here' }))
  })
  const running = beginHere(['logs', '-f', ALLOC_ID, 'web'], envAt(agent.url))
  await eventually(() => running.stdout() === 'first\n', 'the first line')
  let refused = 0
  const count = (message: unknown) => void (isRefused(message, agent.port) && refused++)
  subscribe('http.client.request.error', count)
  await agent.stop()
  await eventually(() => refused >= 2, 'it has asked in vain, again and again')
  unsubscribe('http.client.request.error', count)
  await agent.again()
  const { code, stdout, stderr } = await running.finished
  assert.deepEqual([code, stdout], [0, 'first\nsecond\n'])
  assert.match(stderr, /^outpost: connection to \S+ lost \(closed by the agent\), resuming\noutpost: resumed\n$/)
})

test('-no-resume and a refusal end the command', async (t) => {
  const agent = await fakeAgent(t, (_, response, count) => {
    if (count % 2 === 1) {
      response.statusCode = 404
      response.end('Unknown allocation "x"')
      return
    }
    response.write(frame('a\n', { File: OUT, Cursor: '1' }), () => setTimeout(() => response.destroy(), 20))
  })
  const refused = await logs(agent.url, '-f', ALLOC_ID, 'web')
  assert.deepEqual([refused.code, refused.stdout], [1, 'a\n'])
  assert.match(refused.stderr, /resuming\noutpost: cannot resume: Unknown allocation "x" \(HTTP 404\)\n$/)
  const given = await logs(agent.url, '-f', '-no-resume', ALLOC_ID, 'web')
  assert.deepEqual([given.code, given.stdout], [1, 'a\n'])
  assert.match(given.stderr, /^outpost: connection to \S+ lost \(closed by the agent\)\n$/)
})

test('a server without cursors is resumed by offsets, with a warning about inexact output', async (t) => {
  const agent = await fakeAgent(t, ({ query }, response, count) => {
    if (query.get('offset') === '8') response.end(frame('three\n', { File: OUT }))
    else if (count > 0) response.end(frame('later\n', { File: OUT }))
    else response.write(frame('one\ntwo\n', { File: OUT }), () => setTimeout(() => response.destroy(), 20))
  })
  const counted = await logs(agent.url, '-f', '-stdout', ALLOC_ID, 'web')
  assert.deepEqual([counted.code, counted.stdout], [0, 'one\ntwo\nthree\n'])
  assert.match(counted.stderr, /resumed by byte count, because the server has no cursors/)
})

test('a server that knows no "*" is asked for both types', async (t) => {
  const agent = await fakeAgent(t, ({ query }, response) => {
    const type = query.get('type') ?? ''
    if (type === '*') {
      response.statusCode = 400
      response.end('must provide log type (stdout/stderr)')
    } else response.end(frame(`${type}\n`, { File: `alloc/logs/web.${type}.0` }))
  })
  const { code, stdout, stderr } = await logs(agent.url, '-f', ALLOC_ID, 'web')
  assert.deepEqual([code, stdout, stderr], [0, 'stdout\n', 'stderr\n'])
})

test('file events are printed, and an error text in the stream is an error', async (t) => {
  const agent = await fakeAgent(t, (_, response) => {
    response.write(frame('', { File: OUT, FileEvent: 'file truncated' }))
    response.end('failed to list entries:\n no such file')
  })
  const { code, stderr } = await logs(agent.url, '-f', ALLOC_ID, 'web')
  assert.equal(code, 1)
  const event = `outpost: ${OUT}: file truncated, continuing\n`
  assert.equal(stderr, `${event}outpost: the agent ended the stream: failed to list entries: no such file\n`)
})

test('prefixes and JSON are whole lines, also of lines that come in pieces and from two files', async (t) => {
  const agent = await fakeAgent(t, (_, response) => {
    response.write(frame('one\ntw', { File: OUT }))
    response.write(frame('db\n', { File: 'alloc/logs/db.x.stderr.3' }))
    response.end(frame('o\nlast', { File: 'alloc/logs/web.stdout.1' }))
  })
  const prefixed = await logs(agent.url, '-all', '-stdout', ALLOC_ID)
  const lines = 'web | one\ndb.x | db\nweb | two\nweb | last\n'
  assert.deepEqual([prefixed.code, prefixed.stdout, prefixed.stderr], [0, lines, ''])
  assert.equal(agent.asked[0]?.query.get('task'), '*')
  const json = await logs(agent.url, '-all', '-f', '-json', ALLOC_ID)
  assert.deepEqual(
    json.stdout
      .trimEnd()
      .split('\n')
      .map((line): unknown => JSON.parse(line)),
    [
      { Task: 'web', Type: 'stdout', File: OUT, Line: 'one' },
      { Task: 'db.x', Type: 'stderr', File: 'alloc/logs/db.x.stderr.3', Line: 'db' },
      { Task: 'web', Type: 'stdout', File: 'alloc/logs/web.stdout.1', Line: 'two' },
      { Task: 'web', Type: 'stdout', File: 'alloc/logs/web.stdout.1', Line: 'last' },
    ],
  )
})

test('several tasks are several streams', async (t) => {
  const agent = await fakeAgent(t, ({ query }, response) => {
    const task = query.get('task') ?? ''
    response.end(frame(`of ${task}\n`, { File: `alloc/logs/${task}.stdout.0` }))
  })
  const { code, stdout } = await logs(agent.url, '-task', 'a', '-task', 'b', ALLOC_ID)
  assert.deepEqual([code, stdout], [0, 'a | of a\nb | of b\n'])
})

test('the task is optional if the allocation has one task', async (t) => {
  let names = ['web.stdout.0', 'web.stderr.0', '.web.stdout.fifo', 'notes.txt']
  let forbidden = false
  const agent = await fakeAgent(t, ({ path }, response) => {
    if (path.startsWith('/v1/client/fs/ls/')) {
      response.statusCode = forbidden ? 403 : 200
      response.end(forbidden ? 'Permission denied' : JSON.stringify(names.map((Name) => ({ Name }))))
    } else if (path.endsWith('/stats')) response.end(JSON.stringify({ Tasks: { api: {} } }))
    else response.end(frame('x\n', { File: OUT }))
  })
  const asks = async () => {
    const done = await logs(agent.url, ALLOC_ID)
    return { ...done, task: agent.asked.at(-1)?.query.get('task') }
  }
  assert.deepEqual((await asks()).task, 'web')
  assert.equal(agent.asked.length, 2, 'one request more')
  forbidden = true
  assert.deepEqual((await asks()).task, 'api')
  forbidden = false
  names = ['web.stdout.0', 'db.stdout.12']
  const several = await asks()
  assert.equal(several.code, 1)
  assert.match(several.stderr, /has several tasks: specify one of db, web, or use -all\n$/)
})

test('an ID prefix is resolved by the agent, or by the directory of -data-dir', async (t) => {
  const first = 'abc01234-0000-4000-8000-000000000001'
  const agent = await fakeAgent(t, ({ path, query }, response) => {
    if (path !== '/v1/allocations') return response.end(frame('text\n', { File: OUT }))
    // Nomad's servers refuse an odd number of digits.
    const isOdd = (query.get('prefix') ?? '').length % 2 !== 0
    response.statusCode = isOdd ? 500 : 200
    return response.end(isOdd ? 'odd' : JSON.stringify([{ ID: first }, { ID: first.replace('abc', 'abd') }]))
  })
  assert.equal((await logs(agent.url, '-stdout', 'abc', 'web')).stdout, 'text\n')
  assert.deepEqual(
    agent.asked.map(({ path }) => path),
    ['/v1/allocations', `/v1/client/fs/logs/${first}`],
  )
  const local = await logs(agent.url, '-data-dir', '/nonexistent', 'abc', 'web')
  assert.equal(local.code, 1)
  assert.match(local.stderr, /^outpost: no allocation with ID prefix "abc" in \/nonexistent\/alloc, /)
  assert.equal(agent.asked.length, 2)
})

test('Ctrl-C ends a follow with exit code 0, also if the output is not read', async (t) => {
  const block = Buffer.alloc(60_000, 'x')
  // One behind the other, since a socket counts a write as waiting until all of it has gone.
  let gone = 0
  const flood = (response: ServerResponse) => {
    response.write(frame(block, { File: OUT }), (error) => void (!error && ++gone < 200 && flood(response)))
  }
  const agent = await fakeAgent(t, ({ query }, response) => {
    response.write(frame('first\n', { File: OUT }))
    if (query.get('task') === 'flood') flood(response)
    else beat(response)
  })
  for (const task of ['web', 'flood']) {
    const running = begin(agent.url, '-f', ALLOC_ID, task)
    await new Promise((done) => running.child.stdout?.once('data', done))
    running.child.stdout?.pause()
    let before = 0
    if (task === 'flood') {
      await eventually(() => gone > 0 && before === (before = gone), 'nothing is taken any more', undefined, 50)
      assert.ok(gone < 200, 'not all of it is taken')
    }
    running.child.kill('SIGINT')
    await new Promise((done) => running.child.once('exit', done))
    assert.deepEqual([running.child.exitCode, running.child.signalCode], [0, null], task)
    running.child.stdout?.resume()
    assert.equal((await running.finished).stderr, '')
  }
})

for (const reader of ['a pipe', 'a socket'] as const) {
  test(`the reader of ${reader} leaves while the log is idle: a quiet end`, async (t) => {
    const agent = await fakeAgent(t, (_, response) => {
      response.write(frame('1\n2\n3\n', { File: OUT }))
      beat(response)
    })
    if (reader === 'a socket') {
      const running = begin(agent.url, '-f', ALLOC_ID, 'web')
      await new Promise((done) => running.child.stdout?.once('data', done))
      running.child.stdout?.destroy()
      await new Promise((done) => running.child.once('exit', done))
      assert.equal(running.child.exitCode, 0)
      return
    }
    const script = `"$1" logs -f ${ALLOC_ID} web | head -n 2; echo "codes \${PIPESTATUS[*]}"`
    const env = { ...process.env, OUTPOST_ADDR: agent.url }
    const { stdout, stderr } = await start('bash', ['-c', script, 'bash', OUTPOST], { env }).finished
    assert.deepEqual([stdout, stderr], ['1\n2\ncodes 0 0\n', ''])
  })
}

test('control characters of a server are escaped on a terminal', async (t) => {
  const agent = await fakeAgent(t, (_, response, count) => {
    if (count === 0)
      response.end(frame('x\n', { File: 'alloc/logs/\u001b[31mred.stdout.0', FileEvent: '\u001b[2J\nfile' }))
    else response.writeHead(400).end('\u001b]0;title\u0007 no')
  })
  const event = await logs(agent.url, '-prefix', ALLOC_ID, 'web')
  assert.deepEqual([event.code, event.stdout], [0, '\\x1b[31mred | x\n'])
  assert.match(event.stderr, /\\x1b\[31mred\.stdout\.0: \\x1b\[2J\\x0afile, continuing/)
  const refused = await logs(agent.url, ALLOC_ID, 'web')
  assert.equal(refused.stderr, 'outpost: \\x1b]0;title\\x07 no (HTTP 400)\n')
})

test('with -no-resume no cursor is asked for', async (t) => {
  const agent = await fakeAgent(t, (_, response) => void response.end(frame('x', { File: OUT })))
  assert.equal((await logs(agent.url, '-f', '-no-resume', ALLOC_ID, 'web')).stdout, 'x')
  assert.equal(agent.asked[0]?.query.get('cursor'), null)
})
