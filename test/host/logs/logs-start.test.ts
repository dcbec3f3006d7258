/** Where a log request begins: the compatible system's table, and its walk written down once more as a slow model. */
import assert from 'node:assert/strict'
import { appendFileSync, writeFileSync } from 'node:fs'
import { test } from 'node:test'
import { logStart } from '../../../src/host/logs/locate/log-files.ts'
import { streamStart } from '../../../src/host/logs/single-file.ts'
import { Random } from '../../helpers/frames.ts'
import { TailClient } from '../../helpers/tail-client.ts'
import { startTailHost } from '../../helpers/tail-host.ts'

const ALL = 'AAAABBBBCCCC'

/** Origin, offset, what a request that does not follow gets of AAAA, BBBB, CCCC. */
const TABLE: readonly (readonly [string, number, string])[] = [
  ['start', 0, ALL],
  ['start', 1, 'AAABBBBCCCC'],
  ['start', 3, 'ABBBBCCCC'],
  ['start', 4, 'BBBBCCCC'],
  ['start', 5, 'BBBCCCC'],
  ['start', 8, 'CCCC'],
  ['start', 9, 'CCC'],
  ['start', 12, ''],
  ['start', 13, ''],
  ['start', 999, ''],
  ['start', -1, 'ABBBBCCCC'],
  ['start', -3, 'AAABBBBCCCC'],
  ['start', -4, ALL],
  ['start', -5, ALL],
  ['start', -999, ALL],
  ['end', 0, 'CCCC'],
  ['end', 1, 'C'],
  ['end', 2, 'CC'],
  ['end', 4, 'CCCC'],
  ['end', 6, 'BBCCCC'],
  ['end', 12, ALL],
  ['end', 999, ALL],
  ['end', -2, 'CC'],
  ['end', -5, ''],
]

test('the start positions are those of Nomad, framed, plain and followed', async (t) => {
  const host = await startTailHost(t)
  for (const [index, letter] of ['A', 'B', 'C'].entries()) writeFileSync(host.log(index), letter.repeat(4))
  for (const [origin, offset, expected] of TABLE) {
    const name = `origin=${origin} offset=${offset}`
    for (const plain of [false, true]) {
      const once = new TailClient(host.logsUrl({ origin, offset, plain }), { framed: !plain })
      await once.until(() => once.ended !== undefined)
      assert.deepEqual([once.status, once.ended, once.text], [200, 'clean', expected], `${name} plain=${plain}`)
    }
  }
  const followers = TABLE.map(([origin, offset]) => new TailClient(host.logsUrl({ origin, offset, follow: true })))
  for (const follower of followers) await follower.open()
  appendFileSync(host.log(2), '!')
  for (const [index, follower] of followers.entries()) {
    const [origin, offset, expected] = TABLE[index] ?? ['', 0, '']
    await follower.until((client) => client.text.endsWith('!'))
    assert.equal(follower.text, `${expected}!`, `follow origin=${origin} offset=${offset}`)
    const last = follower.items.at(-1)
    assert.equal(last?.offset, 5)
    follower.destroy()
  }
})

/** The same walk over bytes instead of sizes: which byte of the whole is the first. */
function modelOf(sizes: readonly number[], origin: string, offset: number): number {
  const total = sizes.reduce((sum, size) => sum + size, 0)
  const first = sizes[0] ?? 0
  const last = sizes.at(-1) ?? 0
  const at =
    origin === 'end'
      ? // Counted back from the end of the newest file; zero and less from its beginning.
        offset > 0
        ? total - offset
        : total - last - offset
      : // Counted from the beginning; less than zero from the end of the oldest file.
        offset >= 0
        ? offset
        : first + offset
  return Math.min(Math.max(at, 0), total)
}

test('random sizes and offsets start where the model does', () => {
  const seed = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 1e9)
  const random = new Random(seed)
  for (let run = 0; run < 20_000; run++) {
    let index = random.between(0, 5)
    const sizes = Array.from({ length: random.between(1, 6) }, () => {
      const file = { index, size: random.chance(0.25) ? 0 : random.between(0, 50) }
      index += random.chance(0.3) ? random.between(2, 11) : 1
      return file
    })
    const total = sizes.reduce((sum, { size }) => sum + size, 0)
    const request = { origin: random.pick(['start', 'end']), offset: random.between(-total - 5, total + 5) }
    const place = logStart(sizes, request)
    const before = sizes.filter((file) => file.index < (place?.index ?? 0)).reduce((sum, { size }) => sum + size, 0)
    const model = modelOf(
      sizes.map(({ size }) => size),
      request.origin,
      request.offset,
    )
    assert.equal(
      before + (place?.offset ?? -1),
      model,
      `OUTPOST_SEED=${seed}, run ${run}: ${JSON.stringify({ sizes, request, place })}`,
    )
  }
})

test('a log without files has no start position', () => {
  assert.equal(logStart([], { origin: 'start', offset: 0 }), undefined)
  assert.equal(logStart([], { origin: 'end', offset: 5 }), undefined)
})

const start = (origin: string, offset: number) => streamStart({ origin, offset, path: 'f' }, 100)

test('the start of a stream depends on the size of its file', () => {
  assert.deepEqual([start('start', 0), start('start', 40), start('start', 1000)], [0, 40, 1000])
  assert.deepEqual([start('end', 0), start('end', 40), start('end', 1000), start('end', -5)], [100, 60, 0, 105])
  assert.throws(() => start('start', -1), /can't seek to offset -1/)
})
