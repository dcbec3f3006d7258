/**
 * The filter of lines against the model: random logs in random pieces over random files, with and without context, and
 * resumed at every place where it may be.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { LINE_BYTES_MAX } from '../../../../src/host/logs/search/line-assembly.ts'
import { LineFilter } from '../../../../src/host/logs/search/line-filter.ts'
import { compileLinePattern } from '../../../../src/host/logs/search/line-pattern.ts'
import { type Ask, expected, feed, type Place } from './line-model.ts'
import { eventually } from '../../../helpers/eventually.ts'

const LOGS = Number(process.env['FILTER_LOGS'] ?? 200)
const SEED = Number(process.env['OUTPOST_SEED'] ?? 20_261_121)

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
  pattern('(?i)A|é', /a|é/iu),
  pattern('(?i)AA|B a', /aa|b a/i),
  pattern('ab|ba|  '),
  pattern('(?i)k|s', /k|s/iu),
  pattern('(?i)B\\r', /b\r/i),
  pattern('a[^b]*b'),
  pattern('é+b'),
  pattern('.', /[^]/u),
  pattern('x*'),
]
const PARTS = [
  '',
  'a',
  'b',
  'ab',
  'ba',
  'aaaa',
  ' ',
  '\r',
  'é',
  '\ud83d\ude00',
  'a b',
  '\xff',
  '\xc3',
  '\0',
  '\u212a',
  '\u017f',
  'A',
  'B a',
]

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

test(`outputs what the model outputs, for ${LOGS} logs in any pieces, and resumes everywhere`, async () => {
  const random = randomFrom(SEED)
  for (let round = 0; round < LOGS; round++) {
    const places = randomLog(random)
    const base = ASKS[random(ASKS.length)] ?? { pattern: undefined, matches: () => true }
    const ask: Ask = { ...base, invert: random(3) === 0, context: random(2) === 0 ? 0 : random(4) }
    const most = random(3) === 0 ? 200 : 1 + random(12)
    const size = () => 1 + random(most)
    const { lines, moments } = await feed(places, ask, size)
    const want = expected(places, ask)
    const about = `OUTPOST_SEED=${SEED}, round ${round}: ${JSON.stringify({ ...ask, files: places.map(({ bytes }) => bytes.toString('latin1')) })}`
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

test('outputs what the model outputs for lines around the maximum length', async () => {
  const random = randomFrom(7)
  const lengths = [0, 3, 1000, LINE_BYTES_MAX - 1, LINE_BYTES_MAX, LINE_BYTES_MAX + 1, LINE_BYTES_MAX + 2, 200_000]
  for (let round = 0; round < LOGS / 2; round++) {
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

test('a line of 100 MB needs memory only for its truncated beginning', async () => {
  for (const wanted of ['needle', 'need+le', undefined]) {
    const compiled = wanted === undefined ? undefined : compileLinePattern(wanted)
    const filter = new LineFilter<string>({ pattern: compiled, invert: false, context: 5 })
    const data = Buffer.alloc(1 << 20, 'x')
    data.write('needle', 1000)
    const before = process.memoryUsage()
    for (let at = 0; at < 100; at++) assert.deepEqual(await filter.push(data, 'a', at << 20), [])
    const { arrayBuffers } = process.memoryUsage()
    assert.ok(arrayBuffers - before.arrayBuffers < 4 << 20, `${arrayBuffers - before.arrayBuffers} bytes`)
    assert.deepEqual(filter.pending, { file: 'a', offset: 0 })
    const [run, ...more] = await filter.push(Buffer.from('\nlast'), 'a', 100 << 20)
    assert.equal(more.length, 0)
    assert.equal(run?.end, (100 << 20) + 1)
    assert.match(run?.bytes.toString() ?? '', /^x{1000}needlex+ \[line cut: it has 104857600 bytes\]\n$/)
    assert.ok((run?.bytes.length ?? 0) < 65_536)
    filter.close()
  }
})

test('alternating short matches are output completely with their context', async () => {
  for (const text of ['a', '^a$']) {
    for (const [invert, context] of [
      [false, 0],
      [true, 0],
      [false, 1],
    ] as const) {
      const filter = new LineFilter<string>({ pattern: compileLinePattern(text), invert, context })
      const data = Buffer.from('a\nb\nb\nb\n'.repeat(60_000))
      const runs = await filter.push(data, 'a', 0)
      const whole = Buffer.concat(runs.map(({ bytes }) => bytes)).toString()
      const given = invert ? 'b\nb\nb\n' : context === 1 ? 'a\nb\nb\n' : 'a\n'
      // Nothing follows the last lines.
      const want = given.repeat(60_000).slice(0, context === 1 ? -2 : undefined)
      assert.ok(whole === want, `${text} ${invert} ${context}: ${whole.length}`)
      for (const run of runs) assert.ok(run.bytes.equals(data.subarray(run.end - run.bytes.length, run.end)))
      filter.close()
    }
  }
})

test('truncation does not split a character', async () => {
  const filter = new LineFilter<string>({ pattern: undefined, invert: false, context: 0 })
  const [run] = await filter.push(Buffer.from(`x${'é'.repeat(40_000)}\n`), 'a', 0)
  assert.match(run?.bytes.toString() ?? '', /^xé+ \[line cut: it has 80001 bytes\]\n$/)
})

test('binary data is output unchanged', async () => {
  const random = randomFrom(3)
  const bytes = Buffer.from(Array.from({ length: 300_000 }, () => random(256)))
  for (const text of ['\\x00', 'a', 'a.b', '[^a]', '\ufffd', '(?s).']) {
    const filter = new LineFilter<string>({ pattern: compileLinePattern(text), invert: false, context: 0 })
    for (const run of [...(await filter.push(bytes, 'a', 0)), ...(await filter.finish())]) {
      assert.deepEqual(run.bytes, bytes.subarray(run.end - run.bytes.length, run.end), text)
    }
    filter.close()
  }
})

/** The garbage collector, which a process otherwise runs when it likes. */
function collector(): () => void {
  setFlagsFromString('--expose-gc')
  return runInNewContext('gc')
}

test('the buffered context before a match is bounded', async () => {
  const filter = new LineFilter<string>({ pattern: compileLinePattern('needle'), invert: false, context: 100 })
  const line = Buffer.from(`${'x'.repeat(50_000)}\n`)
  const collect = collector()
  collect()
  const before = process.memoryUsage().arrayBuffers
  for (let count = 0; count < 400; count++) await filter.push(line, 'a', count * line.length)
  await eventually(() => {
    collect()
    return process.memoryUsage().arrayBuffers - before < 3 << 20
  })
  const runs = await filter.push(Buffer.from('needle\n'), 'a', 400 * line.length)
  const given = runs.reduce((sum, { bytes }) => sum + bytes.length, 0)
  assert.equal(given, 20 * line.length + 'needle\n'.length)
})

test('a truncation discards the context before it', async () => {
  const filter = new LineFilter<string>({ pattern: compileLinePattern('b'), invert: false, context: 2 })
  await filter.push(Buffer.from('b\na\nx\ny\nhalf a line with b'), 'a', 0)
  filter.reset()
  assert.equal(filter.after, 0)
  assert.equal(filter.pending, undefined)
  const runs = await filter.push(Buffer.from('c\nb\n'), 'a', 0)
  assert.deepEqual(
    runs.map(({ bytes, end, after }) => [bytes.toString(), end, after]),
    [['c\nb\n', 4, 2]],
  )
})
