/** Streams that are resumed by cursor: exactly behind what was received, or with a word about what has gone. */
import assert from 'node:assert/strict'
import { appendFileSync, mkdirSync, renameSync, rmSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { test } from 'node:test'
import { Random } from '../helpers/frames.ts'
import { TailClient } from '../helpers/tail-client.ts'
import { until } from './host-fixture.ts'
import { startTailHost, type TailAllocation, taskOf } from '../helpers/tail-host.ts'

/** Follows until `check`, leaves, and returns what was received. */
async function take(url: string, check: (client: TailClient) => boolean, framed = true): Promise<TailClient> {
  const client = new TailClient(url, { framed })
  await client.until(check)
  client.destroy()
  return client
}

/** Asks once and waits for the end. */
async function ask(url: string, framed = true): Promise<TailClient> {
  const client = new TailClient(url, { framed })
  await client.until(({ ended }) => ended !== undefined)
  assert.equal(client.ended, 'clean', client.text)
  return client
}

test('every frame has the cursor of the place behind it, and each of them goes on exactly there', async (t) => {
  const host = await startTailHost(t)
  const random = new Random(7)
  const parts = [random.bytes(70_000), random.bytes(5), Buffer.alloc(0), random.bytes(140_001)]
  for (const [index, part] of parts.entries()) writeFileSync(host.log(index), part)
  const whole = Buffer.concat(parts)
  const first = await ask(host.logsUrl({ cursor: '' }))
  assert.ok(first.data.equals(whole))
  let passed = 0
  for (const item of first.items) {
    assert.ok(item.kind === 'data' && item.cursor)
    assert.match(item.cursor, /^[\w-]+$/)
    passed += item.data.length
    for (const follow of [false, true]) {
      const rest = whole.subarray(passed)
      const again: TailClient = follow
        ? await take(
            host.logsUrl({ cursor: item.cursor, follow }),
            ({ bytes, beatsMs }) => bytes >= rest.length && beatsMs.length > 0,
          )
        : await ask(host.logsUrl({ cursor: item.cursor, origin: 'end', offset: 3, tail_lines: 1 }))
      assert.ok(again.data.equals(rest), `${passed} of ${whole.length}, follow=${follow}`)
      assert.deepEqual(again.events, [])
    }
  }
  assert.equal(passed, whole.length)
})

test('a follower that is cut off before any data goes on where it began', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'old\n')
  for (const query of [{ tail_lines: 0 }, { task: '*', tail_lines: 0 }, { tail_lines: 0, grep: 'new' }]) {
    const url = (cursor: string) => host.logsUrl({ ...query, follow: true, cursor })
    const idle = await take(url(''), ({ cursor }) => cursor !== undefined)
    assert.equal(idle.bytes, 0)
    appendFileSync(host.log(0), 'new\nnew\n')
    const again = await take(url(idle.cursor ?? ''), ({ bytes }) => bytes >= 8)
    assert.equal(again.text, 'new\nnew\n')
  }
})

test('a request without a cursor has none in its frames', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'x')
  assert.equal((await ask(host.logsUrl({}))).cursor, undefined)
})

for (const framed of [true, false]) {
  test(`a follower that is cut off at random gets everything once, ${framed ? 'framed' : 'plain'}`, async (t) => {
    const host = await startTailHost(t)
    const random = new Random(framed ? 11 : 12)
    for (let run = 0; run < 12; run++) await cutOff(host.another(), random, framed)
    await until(() => host.followers.count === 0)
  })
}

/** A writer that rotates, a follower that is cut off each time it has got a random number of bytes more. */
async function cutOff(alloc: TailAllocation, random: Random, framed: boolean): Promise<void> {
  const written: Buffer[] = []
  let index = 0
  writeFileSync(alloc.log(0), '')
  const write = () => {
    for (let count = random.between(1, 4); count > 0; count--) {
      const bytes = random.bytes(random.pick([1, 100, 3000, 90_000]))
      if (random.chance(0.3)) writeFileSync(alloc.log(++index), '')
      appendFileSync(alloc.log(index), bytes)
      written.push(bytes)
    }
  }
  const received: Buffer[] = []
  let total = 0
  let cursor = ''
  for (let turn = 0; turn < 10; turn++) {
    write()
    const client = new TailClient(alloc.logsUrl({ cursor, follow: true, plain: !framed }), { framed })
    const sofar = written.reduce((sum, { length }) => sum + length, 0) - total
    const wanted = turn === 9 ? sofar : random.between(0, sofar)
    if (random.chance(0.5)) write()
    await client.until(({ bytes, status }) => status !== undefined && bytes >= wanted)
    client.destroy()
    assert.deepEqual(client.events, [])
    received.push(client.data)
    total += client.bytes
    if (framed) cursor = client.cursor ?? cursor
    else cursor = `${String(client.response?.headers['x-outpost-cursor'])}~${client.bytes}`
  }
  const whole = Buffer.concat(written)
  const got = Buffer.concat(received)
  assert.ok(got.length <= whole.length && whole.subarray(0, got.length).equals(got), 'something was lost or repeated')
}

test('plain: the header names the first byte, and a plus is as good as a tilde', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'one two ')
  writeFileSync(host.log(1), 'three four')
  const first = await ask(host.logsUrl({ plain: true, cursor: '', offset: 4 }), false)
  assert.equal(first.text, 'two three four')
  const place = String(first.response?.headers['x-outpost-cursor'])
  for (const [received, rest] of [
    [0, 'two three four'],
    [4, 'three four'],
    [10, 'four'],
    [14, ''],
  ] as const) {
    for (const mark of ['~', '+', '%2B', '%7E']) {
      const again = await ask(`${host.logsUrl({ plain: true })}&cursor=${place}${mark}${received}`, false)
      assert.equal(again.text, rest)
      assert.equal(again.response?.headers['x-outpost-event'], undefined)
    }
  }
})

test('plain: a count goes on over an index that the writer left out', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'one ')
  writeFileSync(host.log(3), 'two ')
  writeFileSync(host.log(4), 'three')
  const first = await ask(host.logsUrl({ plain: true, cursor: '' }), false)
  const again = await ask(
    host.logsUrl({ plain: true, cursor: `${String(first.response?.headers['x-outpost-cursor'])}~9` }),
    false,
  )
  assert.equal(again.text, 'hree')
  assert.equal(again.response?.headers['x-outpost-event'], undefined)
})

test('what a cursor points at is gone: that is said first, and the oldest byte that is left comes next', async (t) => {
  const host = await startTailHost(t)
  for (const [index, text] of ['a0', 'b1', 'c2', 'd3'].entries()) writeFileSync(host.log(index), text)
  const { items } = await ask(host.logsUrl({ cursor: '' }))
  const [cursor = ''] = items.map((item) => (item.kind === 'data' ? item.cursor : undefined))
  unlinkSync(host.log(0))
  unlinkSync(host.log(1))
  for (const follow of [false, true]) {
    const again = await take(host.logsUrl({ cursor, follow }), ({ bytes }) => bytes >= 4)
    assert.equal(again.text, 'c2d3')
    assert.deepEqual(
      again.items.map(({ kind }) => kind),
      ['event', 'data', 'data'],
    )
    assert.deepEqual(again.events, ['file deleted alloc/logs/web.stdout.0'])
  }
  const plain = await ask(host.logsUrl({ cursor: `${cursor}~1`, plain: true }), false)
  assert.equal(plain.text, 'c2d3')
  assert.equal(plain.response?.headers['x-outpost-event'], 'file deleted')
})

test('an older file is never replayed, and a log that was begun anew is', async (t) => {
  const host = await startTailHost(t)
  for (const index of [3, 4]) writeFileSync(host.log(index), `old${index}`)
  const { cursor = '' } = await ask(host.logsUrl({ cursor: '' }))
  unlinkSync(host.log(4))
  const waiting = new TailClient(host.logsUrl({ cursor, follow: true }))
  await waiting.until(({ events }) => events.length === 1)
  assert.equal(waiting.text, '')
  writeFileSync(host.log(5), 'next')
  await waiting.until(({ text }) => text === 'next')
  waiting.destroy()
  rmSync(host.logs, { recursive: true })
  mkdirSync(host.logs)
  writeFileSync(host.log(0), 'anew')
  const again = await ask(host.logsUrl({ cursor }))
  assert.equal(again.text, 'anew')
  assert.deepEqual(again.events, ['file deleted alloc/logs/web.stdout.4'])
})

test('another file of the same name, and one that was rewritten, are noticed', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'first of all')
  const { cursor = '' } = await ask(host.logsUrl({ cursor: '' }))
  appendFileSync(host.log(0), ', second')
  assert.equal((await ask(host.logsUrl({ cursor }))).text, ', second')
  truncateSync(host.log(0), 0)
  appendFileSync(host.log(0), 'longer than it was before')
  const rewritten = await ask(host.logsUrl({ cursor }))
  assert.deepEqual(rewritten.events, ['file truncated alloc/logs/web.stdout.0'])
  assert.equal(rewritten.text, 'longer than it was before')
  writeFileSync(`${host.log(0)}.new`, 'first of all, another')
  renameSync(`${host.log(0)}.new`, host.log(0))
  const replaced = await ask(host.logsUrl({ cursor }))
  assert.deepEqual(replaced.events, ['file deleted alloc/logs/web.stdout.0'])
  assert.equal(replaced.text, 'first of all, another')
})

test('a truncation while following is behind the next cursor', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'before')
  const client = new TailClient(host.logsUrl({ cursor: '', follow: true }))
  await client.until(({ text }) => text === 'before')
  truncateSync(host.log(0), 0)
  await client.until(({ events }) => events.length === 1)
  appendFileSync(host.log(0), 'after')
  await client.until(({ text }) => text === 'beforeafter')
  client.destroy()
  appendFileSync(host.log(0), ' that')
  const again = await ask(host.logsUrl({ cursor: client.cursor ?? '' }))
  assert.equal(again.text, ' that')
  assert.deepEqual(again.events, [])
})

test('bytes that came late to the older file are neither lost nor repeated', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'old ')
  const client = new TailClient(host.logsUrl({ cursor: '', follow: true }))
  await client.until(({ text }) => text === 'old ')
  writeFileSync(host.log(1), 'new ')
  await client.until(({ text }) => text === 'old new ')
  client.destroy()
  appendFileSync(host.log(0), 'late ')
  appendFileSync(host.log(1), 'newer ')
  for (const follow of [false, true]) {
    const again = await take(host.logsUrl({ cursor: client.cursor ?? '', follow }), ({ bytes }) => bytes >= 11)
    assert.equal(again.text, 'late newer ')
  }
})

test('a cursor that is none is refused with a word about what is wrong', async (t) => {
  const host = await startTailHost(t)
  const other = host.another()
  for (const alloc of [host, other]) {
    writeFileSync(alloc.log(0), 'text')
    writeFileSync(alloc.log(0, 'stderr'), 'text')
  }
  const { cursor = '' } = await ask(host.logsUrl({ cursor: '' }))
  const bytes = Buffer.from(cursor, 'base64url')
  bytes[0] = 2
  const refused: [string, RegExp][] = [
    [host.logsUrl({ cursor: cursor.slice(0, -1) }), /damaged or cut/],
    [host.logsUrl({ cursor: cursor.slice(0, 8) }), /damaged or cut/],
    [host.logsUrl({ cursor: `${cursor}A` }), /damaged or cut/],
    [host.logsUrl({ cursor: 'x'.repeat(9000) }), /damaged or cut|newer/],
    [host.logsUrl({ cursor: '{"}' }), /is no cursor/],
    [host.logsUrl({ cursor: `${cursor}~x` }), /is no cursor/],
    [host.logsUrl({ cursor: bytes.toString('base64url') }), /newer version/],
    [other.logsUrl({ cursor }), /another allocation/],
    [host.logsUrl({ cursor, type: 'stderr' }), /another log/],
    [host.streamUrl('alloc/logs/web.stdout.0', { cursor }), /another allocation or endpoint/],
    [`${host.logsUrl({ cursor })}&cursor=`, /given twice/],
    [host.logsUrl({ tail_lines: -1 }), /tail_lines must be 0 or more/],
    [host.logsUrl({ since: 'yesterday' }), /since/],
  ]
  for (const [url, text] of refused) {
    const client = new TailClient(url, { framed: false })
    await client.until(({ ended }) => ended !== undefined)
    assert.equal(client.status, 400, url)
    assert.match(client.text, text)
  }
})

test('a file is resumed as a log is', async (t) => {
  const host = await startTailHost(t)
  mkdirSync(dirname(host.log(0)), { recursive: true })
  writeFileSync(`${host.directory}/alloc/file`, 'line one\nline two\n')
  const first = await take(host.streamUrl('alloc/file', { cursor: '' }), ({ bytes }) => bytes === 18)
  appendFileSync(`${host.directory}/alloc/file`, 'three')
  for (const follow of [false, true]) {
    const url = host.streamUrl('alloc/file', { cursor: first.cursor ?? '', follow })
    assert.equal((await take(url, ({ bytes }) => bytes >= 5)).text, 'three')
  }
  // With a place given, no offset is needed.
  const url = host.streamUrl('alloc/file', { follow: false }).replace('&offset=0', '')
  assert.equal((await ask(`${url}&tail_lines=2`)).text, 'line two\nthree')
  assert.equal((await ask(`${url}&since=1h`)).text, 'line one\nline two\nthree')
  rmSync(`${host.directory}/alloc/file`)
  writeFileSync(`${host.directory}/alloc/file`, 'another file by now')
  const replaced = await ask(`${url}&cursor=${first.cursor}`)
  assert.deepEqual(replaced.events, ['file deleted alloc/file'])
  assert.equal(replaced.text, 'another file by now')
})

/** What came of each log file. */
function byFile(client: TailClient): Record<string, string> {
  const files: Record<string, string> = {}
  for (const item of client.items) {
    if (item.kind === 'data') files[item.file.slice(11)] = (files[item.file.slice(11)] ?? '') + item.data.toString()
  }
  return files
}

test('all logs of an allocation in one stream, which can be resumed', async (t) => {
  const host = await startTailHost(t)
  const tasks = ['web', 'db', 'new']
  host.change({ tasks: new Map(tasks.map((name) => [name, taskOf(name)])) })
  writeFileSync(host.log(0), 'w0')
  writeFileSync(host.log(1), 'w1')
  writeFileSync(host.log(0, 'stderr'), 'we')
  writeFileSync(`${host.logs}/db.stdout.4`, 'd4')
  const all = { 'web.stdout.0': 'w0', 'web.stdout.1': 'w1', 'web.stderr.0': 'we', 'db.stdout.4': 'd4' }
  assert.deepEqual(byFile(await ask(host.logsUrl({ task: '*', type: '*' }))), all)
  const client = new TailClient(host.logsUrl({ task: '*', type: '*', follow: true, cursor: '' }))
  await client.until(({ bytes }) => bytes === 8)
  writeFileSync(`${host.logs}/new.stdout.0`, 'n0')
  await client.until(({ bytes }) => bytes === 10)
  client.destroy()
  assert.deepEqual(byFile(client), { ...all, 'new.stdout.0': 'n0' })
  appendFileSync(host.log(0, 'stderr'), '+')
  appendFileSync(`${host.logs}/new.stdout.0`, '+')
  writeFileSync(`${host.logs}/new.stderr.0`, 'ne')
  for (const follow of [false, true]) {
    const url = host.logsUrl({ task: '*', type: '*', follow, cursor: client.cursor ?? '' })
    const again = await take(url, ({ bytes }) => bytes >= 4)
    assert.deepEqual(byFile(again), { 'web.stderr.0': '+', 'new.stdout.0': '+', 'new.stderr.0': 'ne' })
  }
  const tail = await ask(host.logsUrl({ task: '*', type: 'stdout', tail_lines: 0 }))
  assert.equal(tail.bytes, 0)
})

test('a stream ends cleanly once its task is dead, when that was asked for', async (t) => {
  const host = await startTailHost(t)
  host.change({
    tasks: new Map([
      ['web', taskOf('web')],
      ['db', taskOf('db')],
    ]),
  })
  writeFileSync(host.log(0), 'one ')
  const urls = [
    host.logsUrl({ follow: true, end_when_done: true }),
    host.logsUrl({ follow: true, end_when_done: true, plain: true }),
    host.logsUrl({ follow: true, end_when_done: true, task: '*', type: '*' }),
    host.logsUrl({ follow: true }),
    host.streamUrl('alloc/logs/web.stdout.0', { end_when_done: true }),
  ]
  const clients = urls.map((url) => new TailClient(url, { framed: !url.includes('plain=true') }))
  for (const client of clients) await client.until(({ bytes }) => bytes === 4)
  appendFileSync(host.log(0), 'two ')
  const dead = taskOf('web', { state: 'dead', finishedAtMs: 2 })
  host.change({
    tasks: new Map([
      ['web', dead],
      ['db', taskOf('db')],
    ]),
  })
  for (const client of clients.slice(0, 2)) {
    await client.until(({ ended }) => ended !== undefined)
    assert.equal(client.ended, 'clean')
    assert.equal(client.text, 'one two ')
  }
  assert.ok(clients.slice(2).every(({ ended }) => ended === undefined))
  host.change({
    tasks: new Map([
      ['web', dead],
      ['db', { ...dead, name: 'db' }],
    ]),
  })
  for (const at of [2, 4]) {
    await clients[at]?.until(({ ended }) => ended === 'clean')
    assert.equal(clients[at]?.text, 'one two ')
  }
  assert.equal(clients[3]?.ended, undefined)
  clients[3]?.destroy()
})
