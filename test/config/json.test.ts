import assert from 'node:assert/strict'
import { test } from 'node:test'
import { HclError, parseJson } from '../../src/config/hcl.ts'
import type { HclNode } from '../../src/config/hcl.ts'

function plain(node: HclNode): unknown {
  if (node.kind === 'null') return null
  if (node.kind === 'list') return node.items.map(plain)
  return node.kind === 'object'
    ? Object.fromEntries(node.entries.map((each) => [each.key, plain(each.value)]))
    : node.value
}

function says(text: string): string {
  try {
    parseJson(text)
  } catch (error) {
    assert.ok(error instanceof HclError, String(error))
    return `${error.at.line}:${error.at.column} ${error.message}`
  }
  return 'no fault'
}

test('parses the same values as JSON.parse', () => {
  const texts = [
    '{}',
    ' {"a": 1, "b": [true, false, null, -0.5e2, "x"], "c": {"d": {}}, "e": []}\r\n',
    '{"\\u0061\\"\\\\\\/\\b\\f\\n\\r\\t": "\\ud83d\\ude00é"}',
  ]
  for (const text of texts) assert.deepEqual(plain(parseJson(text)), JSON.parse(text), text)
})

test('keeps positions, order and repeated keys', () => {
  const { entries } = parseJson('{\n  "b": 1,\n  "a": {"x": 2},\n  "b": 3\n}')
  assert.deepEqual(
    entries.map(({ key, keyAt, value }) => [key, keyAt.line, keyAt.column, value.at.column]),
    [
      ['b', 2, 3, 8],
      ['a', 3, 3, 8],
      ['b', 4, 3, 8],
    ],
  )
})

test('a fault has its position and quotes no value', () => {
  const faults: [string, string][] = [
    ['', '1:1 expected `{`, found the end of the text'],
    ['[]', '1:1 expected `{`, found `[`'],
    ['{"a":1,}', '1:8 expected a key in double quotes, found `}`'],
    ['{"a":1 "b":2}', '1:8 expected `,` or `}` to close the object opened at 1:1, found a string'],
    ['{"a" 1}', '1:6 expected `:` after a key, found a number'],
    ['{"a":[1,]}', '1:9 expected a value, found `]`'],
    ['{"a":01}', '1:6 expected a value, found an unquoted word: put strings in double quotes'],
    ['{"a":planted-secret}', '1:6 expected a value, found an unquoted word: put strings in double quotes'],
    ['{"a":"planted\n-secret"}', '1:14 expected `"` to end the string that begins at 1:6'],
    ['{"a":"\\x"}', '1:7 unknown escape: expected one of \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uHHHH'],
    ['{"a":"\\ud800"}', '1:6 unpaired surrogate'],
    ['{} {}', '1:4 expected nothing after the closing `}`, found `{`'],
    ["{'a':1}", "1:2 expected a key in double quotes, found `'`"],
    ['{"a":1', '1:7 expected `,` or `}` to close the object opened at 1:1, found the end of the text'],
  ]
  for (const [text, expected] of faults) assert.equal(says(text), expected, text)
})
