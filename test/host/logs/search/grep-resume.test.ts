/** Searched streams that are cut off at random and resumed: each selected line is received once. */
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { Random } from '../../../helpers/frames.ts'
import { TailClient } from '../../../helpers/tail-client.ts'
import { startTailHost, type TailAllocation } from '../../../helpers/tail-host.ts'

/** The long form has 300. */
const RUNS = Number(process.env['OUTPOST_GREP_RUNS'] ?? 12)

interface Choice {
  readonly invert: boolean
  readonly context: number
}

/** What `grep -C` would print, without separators. */
function selected(text: string, { invert, context }: Choice): string {
  const lines = text.split(/(?<=\n)/)
  const hit = lines.map((line) => line.includes('hit') !== invert)
  return lines.filter((_, at) => hit.slice(Math.max(0, at - context), at + context + 1).some(Boolean)).join('')
}

const short = (lines: string) => lines.split('\n').map((line) => line.slice(0, 20))

async function searched(alloc: TailAllocation, random: Random, choice: Choice): Promise<void> {
  let text = ''
  let index = 0
  writeFileSync(alloc.log(0), '')
  const write = (count: number) => {
    for (; count > 0; count--) {
      const long = random.chance(0.02) ? 'x'.repeat(30_000) : ''
      const line = `${random.chance(0.2) ? 'hit' : 'miss'} ${random.between(0, 1e6)} ${long}\n`
      // A line may be cut by a rotation.
      const cut = random.chance(0.1) ? random.between(0, line.length) : line.length
      appendFileSync(alloc.log(index), line.slice(0, cut))
      if (random.chance(0.1) || cut < line.length) writeFileSync(alloc.log(++index), line.slice(cut))
      text += line
    }
  }
  const query = { grep: 'hit', grep_invert: choice.invert, grep_context: choice.context }
  let cursor = ''
  let received = ''
  for (let turn = 0; turn < 8; turn++) {
    write(random.between(0, 40))
    const sofar = selected(text, choice).length - received.length
    const wanted =
      turn === 7
        ? Math.max(sofar - 31_000 * choice.context, 0)
        : random.between(0, Math.max(sofar - 100 * choice.context, 0))
    const client = new TailClient(alloc.logsUrl({ ...query, cursor, follow: turn % 2 === 0 }))
    await client.until(
      ({ bytes, ended, beatsMs }) => ended !== undefined || (bytes >= wanted / 4 && beatsMs.length > 0),
    )
    client.destroy()
    received += client.text
    cursor = client.cursor ?? cursor
    assert.deepEqual(client.events, [])
  }
  const end = new TailClient(alloc.logsUrl({ ...query, cursor }))
  await end.until(({ ended }) => ended !== undefined)
  received += end.text
  assert.deepEqual(short(received), short(selected(text, choice)), JSON.stringify(choice))
}

test('a resumed search outputs every selected line once', async (t) => {
  const host = await startTailHost(t)
  const random = new Random(23)
  for (let run = 0; run < RUNS; run++) {
    await searched(host.another(), random, { invert: random.chance(0.3), context: random.pick([0, 0, 1, 3]) })
  }
})

test('a line that began in an earlier file is not lost', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'first hit\nbegun ')
  const client = new TailClient(host.logsUrl({ grep: 'hit', cursor: '', follow: true }))
  await client.until(({ text }) => text === 'first hit\n')
  writeFileSync(host.log(1), 'here, ')
  writeFileSync(host.log(2), 'gone on there ')
  // Long enough for the follower to stop listening for late bytes.
  await client.until(({ beatsMs }) => beatsMs.length >= 5)
  client.destroy()
  appendFileSync(host.log(2), 'and hit\n')
  const again = new TailClient(host.logsUrl({ grep: 'hit', cursor: client.cursor ?? '' }))
  await again.until(({ ended }) => ended !== undefined)
  assert.equal(again.text, 'begun here, gone on there and hit\n')
})

test('heartbeats carry the progress of a search', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'miss\n'.repeat(100_000))
  const client = new TailClient(host.logsUrl({ grep: 'hit', cursor: '', follow: true }))
  await client.until(({ cursor }) => cursor !== undefined)
  const first = client.cursor
  await client.until(({ cursor }) => cursor !== first)
  client.destroy()
  appendFileSync(host.log(0), 'hit\n')
  const again = new TailClient(host.logsUrl({ grep: 'miss', cursor: client.cursor ?? '' }))
  await again.until(({ ended }) => ended !== undefined)
  assert.equal(again.text, '')
})

test('plain logs in one stream are interleaved line by line', async (t) => {
  const host = await startTailHost(t)
  const client = new TailClient(host.logsUrl({ type: '*', plain: true, follow: true }), { framed: false })
  writeFileSync(host.log(0), 'out-')
  writeFileSync(host.log(0, 'stderr'), 'err-')
  await client.until(({ ended, status }) => ended !== undefined || status === 200)
  const again = new TailClient(host.logsUrl({ type: '*', plain: true, follow: true }), { framed: false })
  await again.until(({ status }) => status === 200)
  appendFileSync(host.log(0), 'one\n')
  await again.until(({ text }) => text === 'out-one\n')
  appendFileSync(host.log(0, 'stderr'), 'two\n')
  await again.until(({ text }) => text === 'out-one\nerr-two\n')
  again.destroy()
})

test('invalid searches are refused', async (t) => {
  const host = await startTailHost(t)
  writeFileSync(host.log(0), 'x')
  for (const [query, text] of [
    [{ grep: 'a(' }, /grep/],
    [{ grep: 'x'.repeat(10_240) }, /1,?000|long/],
    [{ grep: 'x', grep_context: 101 }, /0 to 100/],
    [{ grep: 'x', grep_context: -1 }, /0 to 100/],
    [{ grep_invert: true }, /grep_invert and grep_context need grep/],
    [{ grep: 'x', plain: true, cursor: '' }, /omit grep/],
  ] as const) {
    const client = new TailClient(host.logsUrl({ ...query }), { framed: false })
    await client.until(({ ended }) => ended !== undefined)
    assert.equal(client.status, 400, client.text)
    assert.match(client.text, text)
  }
})
