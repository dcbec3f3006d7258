/** Positions of faults in JSON: the scanner of the web interface accepts exactly what `JSON.parse` accepts. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { findJsonFault } from '../../ui/views/secrets/json-position.ts'
import { parseJsonText } from '../../ui/views/secrets/secret-data.ts'

const PIECES = [
  ...'{}[]:,"\\ \n\t0123456789-+.eEutfn/b'.split(''),
  '\u0001',
  '\uFEFF',
  '\u00a0',
  '\ud800',
  '"a"',
  '"b":',
  '"a": 1,',
  '{"a":',
  'true',
  'null',
  '-0',
  '1.50',
  '1e5',
  '\\u00e9',
  '[[',
  ']]',
  '"\\u0061"',
]

function random(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return state / 2 ** 32
  }
}

function parsed(text: string): { readonly value: unknown } | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return { value }
  } catch {
    return undefined
  }
}

function valueOf(next: () => number, depth: number): unknown {
  const kind = Math.floor(next() * (depth > 3 ? 4 : 6))
  if (kind === 0) return next() < 0.5
  if (kind === 1) return Math.round(next() * 1e6) / 10 ** Math.floor(next() * 8)
  if (kind === 2) return 'a"\\\n\u0007é\ud83d'.slice(Math.floor(next() * 6))
  if (kind === 3) return null
  const items = Array.from({ length: Math.floor(next() * 4) }, () => valueOf(next, depth + 1))
  return kind === 4 ? items : Object.fromEntries(items.map((item, at) => [`k${at}`, item]))
}

function assertSame(text: string): boolean {
  const fault = findJsonFault(text)
  const outcome = parsed(text)
  if (fault?.message === 'the key is repeated') assert.ok(outcome, JSON.stringify(text))
  else assert.equal(fault === undefined, outcome !== undefined, `${JSON.stringify(text)}: ${JSON.stringify(fault)}`)
  if (fault) assert.ok(fault.offset >= 0 && fault.offset <= text.length)
  return outcome !== undefined
}

test('the scanner accepts exactly the random texts that JSON.parse accepts', () => {
  const next = random(7)
  let accepted = 0
  for (let round = 0; round < 100_000; round++) {
    const length = 1 + Math.floor(next() * 6)
    const text = Array.from({ length }, () => PIECES[Math.floor(next() * PIECES.length)]).join('')
    if (assertSame(text)) accepted++
  }
  assert.ok(accepted > 500, `${accepted} accepted`)
})

test('the scanner accepts valid texts, and finds a change of one character that JSON.parse refuses', () => {
  const next = random(11)
  for (let round = 0; round < 5000; round++) {
    const text = JSON.stringify(valueOf(next, 0), null, round % 3)
    assert.equal(findJsonFault(text), undefined, text)
    const at = Math.floor(next() * (text.length + 1))
    const piece = PIECES[Math.floor(next() * PIECES.length)] ?? ''
    assertSame(text.slice(0, at) + piece + text.slice(at))
    assertSame(text.slice(0, at) + text.slice(at + 1))
    assertSame(text.slice(0, at) + piece + text.slice(at + 1))
  }
})

test('the position is that of the first fault', () => {
  for (const [text, offset] of [
    ['', 0],
    ['{"a": 1,}', 8],
    ['{"a" 1}', 5],
    ['[1 2]', 3],
    ['[1, tru]', 4],
    ['["a\n"]', 3],
    ['["a\\x"]', 3],
    ['{"a": "x', 8],
    ['{} x', 3],
    ['{"a":1,"\\u0061":2}', 7],
    ['{"a":1,"a":2,}', 13],
  ] as const)
    assert.equal(findJsonFault(text)?.offset, offset, text)
})

test('a long string and deep lists are scanned', () => {
  assert.equal(findJsonFault(JSON.stringify('a\n'.repeat(2_000_000))), undefined)
  assert.equal(findJsonFault('['.repeat(100_000) + ']'.repeat(100_000)), undefined)
  assert.equal(findJsonFault('['.repeat(100_000))?.offset, 100_000)
})

test('numbers are written as they were, except those that JavaScript writes the same', () => {
  const text = '[1,1.0,-0,1e5,12345678901234567890,0.1,1E400,{"a":[2.50]},"1.0",true,null]'
  assert.equal(JSON.stringify(parseJsonText(text)), text)
  const [one] = parseJsonText('[1]') as readonly unknown[]
  assert.equal(one, 1)
})
