/** Timestamps at the beginning of lines, and the values of `since=`. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Refusal } from '../../../../src/platform/errors.ts'
import { TimestampParser } from '../../../../src/host/logs/locate/line-timestamp.ts'
import { parseSince } from '../../../../src/host/logs/locate/log-since.ts'
import { Random } from '../../../helpers/frames.ts'
import { naiveTime, rounded } from '../../../helpers/log-model.ts'
import { FORMS } from '../../../helpers/random-log.ts'

const NOW_MS = Date.UTC(2026, 10, 21, 10)

function timeOf(line: string, referenceMs = NOW_MS): number | undefined {
  const bytes = Buffer.from(`##${line}2026`, 'latin1')
  const timeMs = new TimestampParser(referenceMs).at(bytes, 2, 2 + line.length)
  return Number.isNaN(timeMs) ? undefined : timeMs
}

test('all forms of one time are equal', () => {
  const local = new Date(2026, 10, 21, 10).getTime()
  for (const line of [
    '2026-11-21T10:00:00Z',
    '2026-11-21 10:00:00z',
    '2026-11-21t12:00:00+02:00 x',
    '2026/11/21 09:30:00.000-0030',
    '2026-11-21 10:00:00,000 UTC [12] LOG',
    '[2026-11-21 11:00:00 +0100] [7] [INFO]',
    '"2026-11-21T10:00:00.000000000Z"',
    '2026-11-21 10:00:00+00|x',
    '{"time":"2026-11-21T10:00:00Z"}',
    '{ "ts" : "2026-11-21T10:00:00Z"}',
    '{"timestamp":"2026-11-21T10:00:00Z"}',
    '{"@timestamp":"2026-11-21T10:00:00Z"}',
    '{"ts":1795255200.000,"level":"info"}',
    'time="2026-11-21T10:00:00Z" level=info',
    'ts=2026-11-21T10:00:00Z caller=x',
    '1795255200',
    '1795255200.0: x',
    '[1795255200000] x',
    '1795255200000000 x',
    '1795255200000000000 x',
  ]) {
    assert.equal(timeOf(line), NOW_MS, line)
  }
  for (const line of [
    '2026-11-21T10:00:00',
    '2026/11/21 10:00:00 x',
    'I1121 10:00:00.000000 7 x.go:1]',
    'Nov 21 10:00:00 h',
  ]) {
    assert.equal(timeOf(line), local, line)
  }
})

test('other text is not a timestamp', () => {
  for (const line of [
    '',
    '[',
    '"',
    '{',
    '{"',
    '{"time',
    '{"time"',
    '{"time":',
    '{"timely":"2026-11-21T10:00:00Z"}',
    't',
    'time',
    'timeout=2026-11-21T10:00:00Z',
    'x 2026-11-21T10:00:00Z',
    '2026-11-21',
    '2026-11-21T10:00',
    '2026-11-21T10:00:0',
    '2026-11-21T10:00:000',
    '2026-11-21X10:00:00Z',
    '2026-11-21T24:00:00Z',
    '2026-11-21T10:60:00Z',
    '2026-11-21T10:00:61Z',
    '2026-00-21T10:00:00Z',
    '2026-02-29T10:00:00Z',
    '2100-02-29T10:00:00Z',
    '2O26-11-21T10:00:00Z',
    '12345678',
    '1234567890123456789012',
    '17952552000',
    '946684799',
    '4102444800',
    '0946684800',
    '1795255200-3',
    '1795255200.5.1',
    '1795255200abc',
    'I1321 10:00:00',
    'X1121 10:00:00',
    'Nov 31 10:00:00',
    'Nov  0 10:00:00',
    'Nov 2110:00:00 h',
  ]) {
    assert.equal(timeOf(line), undefined, line)
  }
})

test('fractions, leap seconds, leap days and missing zones are handled', () => {
  assert.equal(timeOf('2026-11-21T10:00:00.123456Z'), NOW_MS + 123.456)
  assert.equal(timeOf('1795255200123456 x'), NOW_MS + 123.456)
  assert.equal(timeOf('2026-11-21T10:00:00,5Z'), NOW_MS + 500)
  assert.equal(timeOf('2016-12-31T23:59:60Z'), Date.UTC(2017, 0, 1))
  assert.equal(timeOf('2024-02-29T00:00:00Z'), Date.UTC(2024, 1, 29))
  const local = new Date(2026, 10, 21, 10).getTime()
  for (const rest of ['-main', ' -1', '+123456', ' +9900', '.x', ' Z']) {
    assert.equal(timeOf(`2026-11-21T10:00:00${rest}`), local, rest)
  }
})

test('a timestamp without a year is in the nearest year', () => {
  const newYear = new Date(2027, 0, 1, 0, 5).getTime()
  assert.equal(timeOf('Dec 31 23:59:59 h x', newYear), new Date(2026, 11, 31, 23, 59, 59).getTime())
  assert.equal(timeOf('Jan  1 00:00:01 h x', newYear), new Date(2027, 0, 1, 0, 0, 1).getTime())
  assert.equal(
    timeOf('E0101 00:00:01.5 7 x]', new Date(2026, 11, 31).getTime()),
    new Date(2027, 0, 1, 0, 0, 1, 500).getTime(),
  )
  assert.equal(timeOf('Feb 29 10:00:00 h x', newYear), new Date(2028, 1, 29, 10).getTime())
})

test('random, truncated and modified timestamps are parsed as in the model', () => {
  const seed = Number(process.env['OUTPOST_SEED'] ?? Date.now() % 1e9)
  const random = new Random(seed)
  for (let count = 0; count < 50_000; count++) {
    const momentMs = random.between(Date.UTC(2001, 9, 1), Date.UTC(2037, 11, 30))
    const referenceMs = momentMs + random.between(-1e10, 1e10)
    let line = random.pick(FORMS)(momentMs)
    if (random.chance(0.3)) line = line.slice(0, random.between(0, line.length))
    if (random.chance(0.3)) {
      const at = random.between(0, line.length)
      line =
        line.slice(0, at) + random.pick(['0', '9', ' ', ':', '-', '+', 'Z', '.', '"', 'x', '']) + line.slice(at + 1)
    }
    const found = timeOf(line, referenceMs)
    const timeMs = found === undefined ? undefined : rounded(found)
    assert.equal(timeMs, naiveTime(line, referenceMs), `${line} at ${referenceMs}, OUTPOST_SEED=${seed}`)
  }
})

test('since is a time or a duration, and other values are refused', () => {
  for (const [text, timeMs] of [
    ['2026-11-21T10:00:00Z', NOW_MS],
    ['2026-11-21T10:00:00.25Z', NOW_MS + 250],
    ['2026-11-21T12:00:00+02:00', NOW_MS],
    ['2026-11-21T12:00:00 02:00', NOW_MS],
    ['2126-11-21T10:00:00Z', Date.UTC(2126, 10, 21, 10)],
    ['0001-01-01T00:00:00Z', -62_135_596_800_000],
    ['1h30m', NOW_MS - 5_400_000],
    ['0', NOW_MS],
    ['1.5s', NOW_MS - 1500],
  ] as const) {
    assert.equal(parseSince(text, NOW_MS), timeMs, text)
  }
  for (const text of [
    '',
    'yesterday',
    '2026-11-21',
    '2026-11-21 10:00:00Z',
    '2026-11-21T10:00:00',
    '2026-13-21T10:00:00Z',
    '2026-11-21T10:00:00+25:00',
    '1795255200',
    '10',
    '1d',
    '-1h',
    '2026-11-21T10:00:00Z\n',
    `${'9'.repeat(30)}h`,
  ]) {
    assert.throws(
      () => parseSince(text, NOW_MS),
      (error) =>
        error instanceof Refusal && error.code === 'invalid_request' && /T10:00:00Z.*1h30m/.test(error.message),
      text,
    )
  }
})
