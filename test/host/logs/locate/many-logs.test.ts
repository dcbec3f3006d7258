/** Streams of hundreds of logs: what they cost, and cursors that tell of all of them. */
import assert from 'node:assert/strict'
import fs, { appendFileSync, closeSync, fstatSync, openSync, writeFileSync } from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { encodeCursor, LOGS_MAX, logHash, markAt, scopeHash } from '../../../../src/host/logs/locate/resume-cursor.ts'
import { ask, take, TailClient } from '../../../helpers/tail-client.ts'
import { ALLOC_ID, startTailHost, taskOf } from '../../../helpers/tail-host.ts'
import { eventually } from '../../../helpers/eventually.ts'

test('a cursor of hundreds of just rotated logs can be resumed, and more logs are refused', async (t) => {
  const host = await startTailHost(t)
  const names = Array.from({ length: LOGS_MAX / 2 }, (_, count) => `task${count}`)
  const setTasks = (tasks: readonly string[]) =>
    host.change({ tasks: new Map(tasks.map((name) => [name, taskOf(name)])) })
  setTasks(names)
  const write = (index: number) => {
    for (const name of names) {
      for (const type of ['stdout', 'stderr']) appendFileSync(join(host.logs, `${name}.${type}.${index}`), 'line\n')
    }
  }
  write(0)
  const url = (cursor: string, follow: boolean) => host.logsUrl({ task: '*', type: '*', follow, cursor })
  const client = new TailClient(url('', true))
  await client.until(({ bytes }) => bytes === LOGS_MAX * 5)
  write(1)
  await client.until(({ bytes }) => bytes === 2 * LOGS_MAX * 5)
  for (const item of client.items.slice(-LOGS_MAX)) {
    assert.ok(item.kind === 'data' && item.cursor && item.cursor.length < 15_000)
  }
  assert.equal((await ask(url(client.cursor ?? '', false))).text, '')
  appendFileSync(join(host.logs, 'task0.stderr.1'), 'more\n')
  assert.equal((await ask(url(client.cursor ?? '', false))).text, 'more\n')

  appendFileSync(join(host.logs, 'other.stdout.0'), 'too many\n')
  setTasks([...names, 'other'])
  await client.until(({ ended }) => ended === 'broken')
  const refused = await fetch(url(client.cursor ?? '', true))
  assert.equal(refused.status, 400)
  assert.match(await refused.text(), /^a cursor can have at most 512 logs, and the request selects 513: /)
  assert.equal((await fetch(host.logsUrl({ task: '*', type: '*' }))).status, 200)
})

test('a forged cursor that names an earlier file repeatedly reads it once', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'old\n')
  writeFileSync(host.log(1), 'new\n')
  const name = 'web.stdout'
  const [older, newer] = [0, 1].map((index) => {
    const fd = openSync(host.log(index), 'r')
    t.after(() => closeSync(fd))
    return markAt(logHash(name), index, { fd, stat: fstatSync(fd, { bigint: true }) }, index === 0 ? 1 : 4)
  })
  assert.ok(older && newer)
  const marks = [...Array.from({ length: 500 }, () => older), newer]
  const cursor = encodeCursor(scopeHash('logs', ALLOC_ID), marks)
  assert.equal((await ask(host.logsUrl({ cursor }))).text, 'ld\n')
})

test('logs with equal name hashes are all followed and released', async (t) => {
  const host = await startTailHost(t)
  // The first two of their kind.
  const names = ['t1926', 't120600']
  assert.equal(logHash(`${names[0]}.stdout`), logHash(`${names[1]}.stdout`))
  host.change({ tasks: new Map(names.map((each) => [each, taskOf(each)])) })
  for (const each of names) writeFileSync(join(host.logs, `${each}.stdout.0`), `${each}\n`)
  const client = await take(host.logsUrl({ task: '*', follow: true }), ({ bytes }) => bytes >= names.join(' \n').length)
  assert.deepEqual(client.text.split('\n').sort(), ['', ...names].sort())
  await eventually(() => host.followers.count === 0 && host.followers.files.size === 0)
})

/** Counts how often a directory is listed. */
function countListings(t: TestContext): () => number {
  const listed = t.mock.method(fs, 'readdirSync')
  syncBuiltinESMExports()
  t.after(() => {
    listed.mock.restore()
    syncBuiltinESMExports()
  })
  return () => listed.mock.callCount()
}

test('hundreds of logs in one stream need only a few listings of their directory', async (t) => {
  const host = await startTailHost(t)
  const names = Array.from({ length: 300 }, (_, count) => `task${count}`)
  host.change({ tasks: new Map(names.map((name) => [name, taskOf(name)])) })
  for (const index of [0, 1, 2]) {
    for (const name of names) writeFileSync(join(host.logs, `${name}.stdout.${index}`), 'line\n')
  }
  const listings = countListings(t)
  const all = await ask(host.logsUrl({ task: '*', cursor: '' }))
  assert.equal(all.bytes, 3 * 300 * 5)
  assert.ok(listings() < 100, `read once: ${listings()} listings`)
  const before = listings()
  const tail = await take(host.logsUrl({ task: '*', follow: true, tail_lines: 2 }), ({ bytes }) => bytes === 600 * 5)
  assert.deepEqual(tail.events, [])
  assert.ok(listings() - before < 100, `followed: ${listings() - before} listings`)
})
