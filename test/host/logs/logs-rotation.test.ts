/** Following a log through everything that can happen to its files, one thing at a time. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import {
  appendFileSync,
  linkSync,
  mkdirSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { type TestContext, test } from 'node:test'
import { setTimeout as delay } from 'node:timers/promises'
import { TailClient } from '../../helpers/tail-client.ts'
import { startTailHost, type TailHost } from '../../helpers/tail-host.ts'
import { eventually } from '../../helpers/eventually.ts'

const FOLLOW = { follow: true, origin: 'start', offset: 0 }

/** A host with one log file, and a framed and a plain follower that have read it. */
async function followed(t: TestContext, text = 'one\n') {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), text)
  const framed = new TailClient(host.logsUrl(FOLLOW))
  const plain = new TailClient(host.logsUrl({ ...FOLLOW, plain: true }), { framed: false })
  const all = [framed, plain]
  const reads = async (expected: string) => {
    for (const client of all) {
      await client.until(() => client.text.length >= expected.length || client.ended !== undefined)
      assert.equal(client.text, expected)
    }
  }
  await reads(text)
  t.after(() => all.forEach((client) => client.destroy()))
  return { host, framed, plain, all, reads }
}

const name = (index: number) => `alloc/logs/web.stdout.${index}`

test('bytes appended to the rotated file after the next one exists are sent with its name', async (t) => {
  const { host, framed, reads } = await followed(t)
  writeFileSync(host.log(1), 'two\n')
  await reads('one\ntwo\n')
  appendFileSync(host.log(0), 'late\n')
  await reads('one\ntwo\nlate\n')
  const last = framed.items.at(-1)
  assert.deepEqual([last?.file, last?.offset], [name(0), 9])
  appendFileSync(host.log(1), 'three\n')
  await reads('one\ntwo\nlate\nthree\n')
  assert.deepEqual([framed.items.at(-1)?.file, framed.items.at(-1)?.offset], [name(1), 10])
})

test('late bytes of a file two rotations ago are sent, and the stream continues', async (t) => {
  const { host, framed, reads } = await followed(t)
  writeFileSync(host.log(1), 'two\n')
  await reads('one\ntwo\n')
  writeFileSync(host.log(2), 'three\n')
  await reads('one\ntwo\nthree\n')
  appendFileSync(host.log(0), 'late\n')
  await reads('one\ntwo\nthree\nlate\n')
  assert.deepEqual([framed.items.at(-1)?.file, framed.items.at(-1)?.offset], [name(0), 9])
  appendFileSync(host.log(2), 'four\n')
  await reads('one\ntwo\nthree\nlate\nfour\n')
})

test('a truncation of a rotated file is reported and repeats nothing', async (t) => {
  const { host, framed } = await followed(t, '0123456789')
  writeFileSync(host.log(1), 'x')
  await framed.until(() => framed.text.endsWith('x'))
  truncateSync(host.log(0), 4)
  await framed.until(() => framed.events.length > 0)
  await framed.until(() => framed.text.length === 15)
  assert.deepEqual([framed.text, framed.events], ['0123456789x0123', [`file truncated ${name(0)}`]])
})

test('an empty next file and a gap of the index are followed', async (t) => {
  const { host, framed, reads } = await followed(t)
  writeFileSync(host.log(1), '')
  writeFileSync(host.log(2), 'two\n')
  await reads('one\ntwo\n')
  writeFileSync(host.log(13), 'thirteen\n')
  await reads('one\ntwo\nthirteen\n')
  assert.deepEqual(framed.events, [])
  assert.deepEqual(new Set(framed.items.map((item) => item.file)), new Set([name(0), name(2), name(13)]))
})

test('deletion of the newest file is reported once, older files are not replayed, a higher index continues', async (t) => {
  const { host, framed, reads } = await followed(t)
  writeFileSync(host.log(1), 'two\n')
  await reads('one\ntwo\n')
  unlinkSync(host.log(1))
  await framed.until(() => framed.events.length > 0)
  const beats = framed.beatsMs.length
  await framed.until(() => framed.beatsMs.length >= beats + 2)
  await reads('one\ntwo\n')
  writeFileSync(host.log(2), 'three\n')
  await reads('one\ntwo\nthree\n')
  assert.deepEqual(framed.events, [`file deleted ${name(1)}`])
})

test('a new log from index zero is followed after all files were deleted', async (t) => {
  const { host, framed, reads } = await followed(t)
  writeFileSync(host.log(1), 'two\n')
  await reads('one\ntwo\n')
  await delay(20) // file systems tell times of birth in ticks
  unlinkSync(host.log(0))
  unlinkSync(host.log(1))
  writeFileSync(host.log(0), 'new\n')
  await reads('one\ntwo\nnew\n')
  unlinkSync(host.log(0))
  await framed.until(() => framed.events.length === 2)
  writeFileSync(host.log(0), 'newer\n')
  await reads('one\ntwo\nnew\nnewer\n')
  assert.deepEqual(framed.events, [`file deleted ${name(1)}`, `file deleted ${name(0)}`])
})

test('removal of the log directory is reported and breaks the stream', async (t) => {
  const { host, framed, all } = await followed(t)
  rmSync(host.logs, { recursive: true })
  for (const client of all) {
    await client.until(() => client.ended !== undefined)
    assert.equal(client.ended, 'broken')
    assert.equal(client.text, 'one\n')
  }
  assert.deepEqual(framed.events, [`file deleted ${name(0)}`])
  await eventually(() => host.followers.count + host.followers.files.size + host.followers.watches.size === 0)
})

test('followers continue in a new directory of the same name and are woken there', async (t) => {
  const { host, reads } = await followed(t)
  renameSync(host.logs, `${host.logs}.old`)
  mkdirSync(host.logs)
  writeFileSync(host.log(1), 'two\n')
  await reads('one\ntwo\n')
  for (let line = 0; line < 3; line++) appendFileSync(host.log(1), `${line}\n`)
  await reads('one\ntwo\n0\n1\n2\n')
})

test('pipes, directories, other names and links are skipped', async (t) => {
  const { host, reads } = await followed(t)
  assert.equal(spawnSync('mkfifo', [host.log(1)]).status, 0)
  mkdirSync(host.log(2))
  for (const stray of ['old', '007', '1e3', '-1', '0x5', '', '99999999999999999999', '3.gz']) {
    writeFileSync(join(host.logs, `web.stdout.${stray}`), 'stray')
  }
  writeFileSync(join(host.logs, 'web.stderr.9'), 'other type')
  writeFileSync(join(host.logs, 'webb.stdout.9'), 'other task')
  appendFileSync(host.log(0), 'still here\n')
  await reads('one\nstill here\n')
  writeFileSync(host.log(3), 'three\n')
  await reads('one\nstill here\nthree\n')
  const once = new TailClient(host.logsUrl({ origin: 'end', offset: 8 }))
  await once.until(() => once.ended !== undefined)
  assert.deepEqual([once.ended, once.text], ['clean', 'e\nthree\n'])
})

/** A secret in the task's directory, one outside the allocation. */
function secrets(host: TailHost): { inside: string; outside: string } {
  const inside = join(host.directory, 'web/secrets/key')
  mkdirSync(join(host.directory, 'web/secrets'), { recursive: true })
  writeFileSync(inside, 'SECRET inside')
  const outside = join(host.directory, '../outside')
  writeFileSync(outside, 'SECRET outside')
  return { inside, outside }
}

test('a next file that links to a secret or outside is not followed, a regular file in its place is', async (t) => {
  const { host, reads, all } = await followed(t)
  const { inside, outside } = secrets(host)
  symlinkSync(inside, host.log(1))
  symlinkSync('../../web/secrets/key', host.log(2))
  symlinkSync(outside, host.log(3))
  symlinkSync('../../../outside', host.log(4))
  linkSync(inside, host.log(5))
  symlinkSync('/proc/self/environ', host.log(6))
  appendFileSync(host.log(0), 'still here\n')
  await reads('one\nstill here\n')
  unlinkSync(host.log(3))
  writeFileSync(host.log(3), 'three\n')
  await reads('one\nstill here\nthree\n')
  // The live file itself becomes a link: its name is gone, the link is not followed.
  symlinkSync(inside, `${host.log(3)}.new`)
  renameSync(`${host.log(3)}.new`, host.log(3))
  writeFileSync(host.log(20), 'twenty\n')
  await reads('one\nstill here\nthree\ntwenty\n')
  assert.ok(all.every((client) => !client.text.includes('SECRET')))
})

test('names that alternate between a file and a link to a secret never reveal the secret', async (t) => {
  const { host, plain } = await followed(t)
  const { inside } = secrets(host)
  writeFileSync(join(host.directory, 'web/secrets/web.stdout.999'), 'SECRET by directory')
  for (let index = 1; index <= 60; index++) {
    const spare = `${host.log(index)}.spare`
    symlinkSync(inside, spare)
    if (index % 2 === 0) renameSync(spare, host.log(index))
    writeFileSync(`${host.log(index)}.real`, `line ${index}\n`)
    renameSync(`${host.log(index)}.real`, host.log(index))
    if (index % 3 === 0) await delay(1)
    if (index % 2 === 1) renameSync(spare, host.log(index))
    // The whole directory for a moment, too.
    if (index % 10 === 0) {
      renameSync(host.logs, `${host.logs}.kept`)
      symlinkSync('../web/secrets', host.logs)
      unlinkSync(host.logs)
      renameSync(`${host.logs}.kept`, host.logs)
    }
  }
  writeFileSync(host.log(61), 'the end\n')
  await plain.until(() => plain.text.endsWith('the end\n') || plain.ended !== undefined)
  assert.equal(plain.ended, undefined)
  assert.ok(!plain.text.includes('SECRET'))
  assert.ok(plain.text.includes('line 60\n'))
})

test('a file of 100 GB: its end is found at once and followed exactly', async (t) => {
  const host = await startTailHost(t)
  const size = 100 * 2 ** 30
  writeFileSync(host.log(0), '')
  truncateSync(host.log(0), size - 4)
  appendFileSync(host.log(0), 'tail')
  const logs = new TailClient(host.logsUrl({ follow: true, origin: 'end', offset: 6 }))
  const stream = new TailClient(host.streamUrl(name(0), { origin: 'start', offset: size - 2 }))
  const end = new TailClient(host.streamUrl(name(0), { origin: 'end' }))
  await end.open()
  await logs.until(() => logs.text === '\0\0tail')
  await stream.until(() => stream.text === 'il')
  assert.equal(logs.items.at(-1)?.offset, size)
  appendFileSync(host.log(0), '!')
  for (const client of [logs, stream, end]) {
    await client.until(() => client.text.endsWith('!'))
    assert.equal(client.items.at(-1)?.offset, size + 1)
    client.destroy()
  }
  assert.equal(end.text, '!')
})

test('a missing log is 404, an empty one is followed, an offset beyond the end waits', async (t) => {
  const host = await startTailHost(t)
  for (const url of [
    host.logsUrl(FOLLOW),
    host.logsUrl({}),
    host.streamUrl(name(0)),
    host.streamUrl(name(0), { follow: false }),
  ]) {
    const missing = await new TailClient(url).open()
    assert.equal(missing.status, 404)
  }
  assert.equal(host.followers.count, 0)
  writeFileSync(host.log(0), '')
  const empty = new TailClient(host.logsUrl(FOLLOW))
  const beyond = new TailClient(host.streamUrl(name(0), { offset: 5 }))
  await empty.open()
  await beyond.open()
  for (const part of ['abc', 'de', 'fgh']) {
    appendFileSync(host.log(0), part)
    await delay(20)
  }
  await empty.until(() => empty.text === 'abcdefgh')
  await beyond.until(() => beyond.text === 'fgh')
  assert.deepEqual([beyond.items.at(-1)?.offset, beyond.events.length], [8, 0])
  for (const client of [empty, beyond]) client.destroy()
})

test('a follower that joins after a truncation gets no event of it', async (t) => {
  const { host, framed } = await followed(t, 'a'.repeat(1000))
  writeFileSync(host.log(0), 'short')
  // No wait, so the file was not read since.
  const late = new TailClient(host.logsUrl(FOLLOW))
  await late.until(() => late.text === 'short')
  await framed.until(() => framed.text.endsWith('short'))
  appendFileSync(host.log(0), '!')
  await late.until(() => late.text === 'short!')
  assert.deepEqual([late.events, framed.events], [[], [`file truncated ${name(0)}`]])
  late.destroy()
})

test('a truncation to a part is announced although nothing is written after it', async (t) => {
  const { host, framed } = await followed(t, 'one two three\n')
  truncateSync(host.log(0), 4)
  await framed.until(({ text }) => text.endsWith('\none '))
  assert.deepEqual([framed.events, framed.text], [[`file truncated ${name(0)}`], 'one two three\none '])
})
