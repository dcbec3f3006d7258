/** Lines and expressions that would freeze the page or fill its memory: each is handled in time in proportion to its length. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { expressionPattern } from '../../ui/views/logs/model/expression.ts'
import { formattedJson, piecesOf } from '../../ui/views/logs/model/line-text.ts'
import { TraceJoiner } from '../../ui/views/logs/model/trace-joiner.ts'
import { type Frame } from '../../ui/api/frame-reader.ts'
import { LineSplitter } from '../../ui/views/logs/stream/line-splitter.ts'
import { nameMatcher } from '../../ui/views/secrets/secret-path.ts'

const LINE_CHARS = 64 * 1024
/** Far above the time in proportion to the length, and far below the square of it. */
const TIME_MS = 1000

function expectQuick<T>(what: string, run: () => T): T {
  const startMs = performance.now()
  const result = run()
  const took = performance.now() - startMs
  assert.ok(took < TIME_MS, `${what}: ${took.toFixed(0)} ms`)
  return result
}

test('a line of a trace is recognized without a search of its square', () => {
  for (const line of [
    '('.repeat(LINE_CHARS),
    `x${'('.repeat(LINE_CHARS)}`,
    'a.'.repeat(LINE_CHARS / 2),
    ' '.repeat(LINE_CHARS),
  ]) {
    const joiner = new TraceJoiner()
    joiner.continues('panic: x')
    expectQuick(line.slice(0, 10), () => joiner.continues(line))
  }
  const joiner = new TraceJoiner()
  joiner.continues('panic: x')
  assert.equal(joiner.continues('main.run(0x1, 0x2)'), true)
  assert.equal(joiner.continues('main.run(0x1, 0x2) x'), false)
})

test('an opened line with very many strings, colors or levels of JSON is shown', () => {
  const quotes = `{"${'\\"'.repeat(30_000)}}`
  const pieces = expectQuick('strings without an end', () => piecesOf(quotes, undefined, true))
  assert.equal(pieces.map(({ text }) => text).join(''), quotes)
  const numbers = `{"a":[${'1,'.repeat(90_000)}1]}`
  assert.ok(expectQuick('numbers', () => piecesOf(numbers, undefined, true)).length < 6000)
  assert.ok((expectQuick('lines', () => formattedJson(numbers, undefined))?.length ?? 0) <= 5000)
  const deep = `{"a":${'['.repeat(30_000)}${']'.repeat(30_000)}}`
  assert.equal(
    expectQuick('levels', () => formattedJson(deep, undefined)),
    undefined,
  )
  const colors = `\u001b[${'1;'.repeat(60_000)}mtext`
  expectQuick('colors', () => piecesOf(colors, undefined, true))
})

test('an incomplete escape sequence hides no text', () => {
  for (const hidden of ['\u001b[<rm -rf /m', '\u001b[:secret m', '\u001b[\u0001 text m']) {
    const shown = piecesOf(`before ${hidden}after`, undefined)
    assert.equal(
      shown.map(({ text }) => text).join(''),
      `before ${hidden.replace('\u001b', '\u241b').replace('\u0001', '\u2401')}after`,
    )
  }
})

test('an expression needs time in proportion to the line', async () => {
  const line = `${'a'.repeat(LINE_CHARS)}!`
  for (const text of ['(a+)+$', '(a|aa)+$', '(.*)*x', 'a.*b|a']) {
    const pattern = await expressionPattern(text)
    expectQuick(text, () => pattern.test(line))
    expectQuick(`matches of ${text}`, () => pattern.matches(line))
  }
  for (const text of ['x{1000}'.repeat(60), '(x{1,30}){1,30}'.repeat(30), 'a'.repeat(5000)]) {
    await assert.rejects(expressionPattern(text), /too large/)
  }
  await assert.rejects(expressionPattern('(?=a)'), /./)
  const pattern = await expressionPattern('took \\d+')
  assert.deepEqual(pattern.matches('Took 12 ms, took 7'), [
    [0, 7],
    [12, 18],
  ])
})

test('a pattern of names with many wildcards is matched without backtracking', () => {
  const matches = nameMatcher('*a*a*a*a*a*a*a*a*ab')
  assert.equal(
    expectQuick('wildcards', () => matches('a'.repeat(500))),
    false,
  )
  assert.equal(matches(`${'a'.repeat(500)}b`), true)
})

function frameOf(file: string, data: Uint8Array): Frame {
  return { data, file, offset: data.length, event: '', cursor: undefined, allocationId: '', error: '' }
}

test('frames that name ever new files do not fill the memory', () => {
  const splitter = new LineSplitter()
  const piece = new Uint8Array(60 * 1024).fill(97)
  let lines = 0
  for (let at = 0; at < 5000; at++) lines += splitter.push(frameOf(`alloc/logs/t${at}.stdout.0`, piece)).length
  assert.ok(lines > 3500, `${lines} of 5000 incomplete lines were ended`)
  for (let at = 0; at < 120_000; at++) splitter.push(frameOf(`alloc/logs/u${at}.stdout.0`, Uint8Array.of(97)))
  assert.ok(splitter.incomplete().length <= 50_000)
})
