/** Cursors whose place is gone, was rewritten, or has got late bytes: what is said, and where the stream goes on. */
import assert from 'node:assert/strict'
import { appendFileSync, mkdirSync, renameSync, rmSync, truncateSync, unlinkSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { ask, take, TailClient } from '../../helpers/tail-client.ts'
import { startTailHost } from '../../helpers/tail-host.ts'

test('a cursor of a removed file is reported first and resumes at the oldest remaining byte', async (t) => {
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

test('an older file is never replayed, a restarted log is', async (t) => {
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

test('another file of the same name and a rewritten file are detected', async (t) => {
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

test('the cursor after a truncation is behind it', async (t) => {
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

test('late bytes of the rotated file are neither lost nor repeated', async (t) => {
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

test('names that are not files are skipped at a resume', async (t) => {
  const host = await startTailHost(t)
  for (const follow of [true, false]) {
    for (const left of [true, false]) {
      const one = host.another()
      writeFileSync(one.log(0), 'zero')
      const { cursor } = await ask(one.logsUrl({ cursor: '' }))
      unlinkSync(one.log(0))
      // The writer of a log may replace it.
      mkdirSync(one.log(0))
      mkdirSync(one.log(1))
      if (left) writeFileSync(one.log(2), 'two')
      const url = one.logsUrl({ follow, cursor: cursor ?? '' })
      if (left) assert.equal((await take(url, ({ bytes }) => bytes >= 3)).text, 'two')
      else assert.equal((await fetch(url)).status, 404)
    }
  }
})
