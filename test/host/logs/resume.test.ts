/** Streams that are resumed by cursor, exactly behind what was received. */
import assert from 'node:assert/strict'
import { appendFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { test } from 'node:test'
import { Random } from '../../helpers/frames.ts'
import { ask, take, TailClient } from '../../helpers/tail-client.ts'
import { startTailHost, type TailAllocation } from '../../helpers/tail-host.ts'
import { eventually } from '../../helpers/eventually.ts'

test('every frame has the cursor of its end, and each cursor resumes exactly there', async (t) => {
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

test('a follower disconnected before any data resumes at its start', async (t) => {
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
  test(`a follower disconnected at random positions gets every byte once, ${framed ? 'framed' : 'plain'}`, async (t) => {
    const host = await startTailHost(t)
    const random = new Random(framed ? 11 : 12)
    for (let run = 0; run < 12; run++) await cutOff(host.another(), random, framed)
    await eventually(() => host.followers.count === 0)
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

test('a plain stream has its start position in a header, and a cursor accepts plus for tilde', async (t) => {
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

test('the byte count of a plain cursor continues over a skipped index', async (t) => {
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

test('a malformed cursor is refused with the reason', async (t) => {
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
    [host.logsUrl({ cursor: cursor.slice(0, -1) }), /malformed cursor: send it exactly/],
    [host.logsUrl({ cursor: cursor.slice(0, 8) }), /malformed cursor: send it exactly/],
    [host.logsUrl({ cursor: `${cursor}A` }), /malformed cursor: send it exactly/],
    [host.logsUrl({ cursor: 'x'.repeat(9000) }), /malformed cursor: send it exactly|newer/],
    [host.logsUrl({ cursor: '{"}' }), /malformed cursor: send it as received, for a plain stream/],
    [host.logsUrl({ cursor: `${cursor}~x` }), /malformed cursor: send it as received, for a plain stream/],
    [host.logsUrl({ cursor: bytes.toString('base64url') }), /newer version/],
    [other.logsUrl({ cursor }), /another allocation/],
    [host.logsUrl({ cursor, type: 'stderr' }), /another log/],
    [host.streamUrl('alloc/logs/web.stdout.0', { cursor }), /another allocation or endpoint/],
    [`${host.logsUrl({ cursor })}&cursor=`, /set more than once/],
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

test('a file is resumed like a log', async (t) => {
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
