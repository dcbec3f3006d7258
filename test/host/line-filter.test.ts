/**
 * The filter of lines against the model: random logs in random pieces over random files, with and without context, and
 * resumed at every place where it may be.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { LINE_BYTES_MAX } from '../../src/host/line-assembly.ts'
import { type Ask, expected, feed, type Place } from './line-model.ts'

/** The same numbers in every run. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

const literal = (text: string) => ({ pattern: text, matches: (line: string) => line.includes(text) })
const pattern = (text: string, same = new RegExp(text, 'u')) => ({
  pattern: text,
  matches: (line: string) => same.test(line),
})

const ASKS: readonly Pick<Ask, 'pattern' | 'matches'>[] = [
  { pattern: undefined, matches: () => true },
  literal('a'),
  literal('ab'),
  literal('é'),
  literal('aaaa'),
  literal('\ufffd'),
  literal('b\r'),
  pattern('^a'),
  pattern('b$'),
  pattern('^$'),
  pattern('^(a|b)+$'),
  pattern('a.b', /a[^]b/u),
  pattern('[^ab]'),
  pattern('\\s'),
  pattern('b\\b'),
  pattern('\\Aab', /^ab/),
  pattern('ab\\z', /ab$/),
  pattern('(?-m)^b$', /^b$/),
  pattern('(?i)AB', /ab/i),
  pattern('a[^b]*b'),
  pattern('é+b'),
  pattern('.', /[^]/u),
  pattern('x*'),
]
const PARTS = ['', 'a', 'b', 'ab', 'ba', 'aaaa', ' ', '\r', 'é', '\ud83d\ude00', 'a b', '\xff', '\xc3', '\0']

function part(random: (below: number) => number): Buffer {
  const text = PARTS[random(PARTS.length)] ?? ''
  return text === '\xff' || text === '\xc3' ? Buffer.from(text, 'latin1') : Buffer.from(text)
}

function randomLog(random: (below: number) => number): Place[] {
  const parts: Buffer[] = []
  for (let line = random(14); line > 0; line--) {
    for (let count = random(4); count > 0; count--) parts.push(part(random))
    if (line > 1 || random(2) === 0) parts.push(Buffer.from(random(6) === 0 ? '\r\n' : '\n'))
  }
  const bytes = Buffer.concat(parts)
  const places: Place[] = []
  let at = 0
  for (let index = random(4); index >= 0; index--) {
    const to = index === 0 ? bytes.length : at + random(bytes.length - at + 1)
    places.push({ name: `log.${places.length}`, bytes: bytes.subarray(at, to) })
    at = to
  }
  return places
}

test('gives what the model gives, for 12,000 logs in any pieces, and resumes everywhere', async () => {
  const random = randomFrom(20_261_121)
  for (let round = 0; round < 12_000; round++) {
    const places = randomLog(random)
    const base = ASKS[random(ASKS.length)] ?? { pattern: undefined, matches: () => true }
    const ask: Ask = { ...base, invert: random(3) === 0, context: random(2) === 0 ? 0 : random(4) }
    const most = 1 + random(12)
    const size = () => 1 + random(most)
    const { lines, moments } = await feed(places, ask, size)
    const want = expected(places, ask)
    const about = `round ${round}: ${JSON.stringify({ ...ask, files: places.map(({ bytes }) => bytes.toString('latin1')) })}`
    assert.deepEqual(lines, want, about)
    // Every moment now and then, one of them always.
    const some = round % 8 === 0 ? moments : moments.slice(random(moments.length + 1)).slice(0, 1)
    for (const moment of some) {
      const rest = await feed(places, ask, size, moment)
      assert.deepEqual(
        rest.lines,
        want.slice(moment.given),
        `${about}, resumed at ${JSON.stringify({ ...moment, place: moment.place.name })}`,
      )
    }
  }
})

test('gives what the model gives for lines around the longest, in large pieces', async () => {
  const random = randomFrom(7)
  const lengths = [0, 3, 1000, LINE_BYTES_MAX - 1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, LINE_BYTES_MAX + 2, 200_000]
  for (let round = 0; round < 300; round++) {
    const parts: Buffer[] = []
    for (let line = 2 + random(8); line > 0; line--) {
      const bytes = Buffer.alloc(lengths[random(lengths.length)] ?? 0, 'b')
      for (let hit = random(3); hit > 0 && bytes.length > 0; hit--) bytes[random(bytes.length)] = 97
      parts.push(bytes, Buffer.from(random(4) === 0 ? '\r\n' : '\n'))
    }
    if (random(2) === 0) parts.pop()
    const bytes = Buffer.concat(parts)
    const middle = random(bytes.length + 1)
    const places = [
      { name: 'log.0', bytes: bytes.subarray(0, middle) },
      { name: 'log.1', bytes: bytes.subarray(middle) },
    ]
    const base = [literal('a'), pattern('a'), pattern('^b+$'), pattern('ab*$')][random(4)] ?? literal('a')
    const ask: Ask = { ...base, invert: random(3) === 0, context: random(3) }
    const most = random(2) === 0 ? 65_536 : 600_000
    const { lines, moments } = await feed(places, ask, () => 1 + random(most))
    const want = expected(places, ask)
    assert.deepEqual(lines, want, `round ${round}`)
    const moment = moments[random(moments.length)]
    if (!moment) continue
    const rest = await feed(places, ask, () => 1 + random(most), moment)
    assert.deepEqual(rest.lines, want.slice(moment.given), `round ${round}, resumed`)
  }
})
