/**
 * What may be looked for: what is a literal, and that everything refused says what is wrong with it.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compileLinePattern } from '../../../../src/host/logs/search/line-pattern.ts'
import { Refusal } from '../../../../src/platform/errors.ts'

function refusalOf(text: string): string {
  try {
    compileLinePattern(text)
  } catch (error) {
    assert.ok(error instanceof Refusal, String(error))
    assert.equal(error.code, 'invalid_request')
    return error.message
  }
  return 'none'
}

test('a text without special characters is a literal', () => {
  assert.deepEqual(compileLinePattern('level=error é').literal, Buffer.from('level=error é'))
  assert.deepEqual(compileLinePattern(' ').literal, Buffer.from(' '))
  for (const text of ['a.b', 'a|b', '^a', 'a\\b', '(?i)a', '[a]', 'a{2}', 'a\r', '\ufffd', 'x'.repeat(129)]) {
    assert.equal(compileLinePattern(text).literal, undefined, text)
  }
})

test('refusals of patterns state the reason and the position', () => {
  const wrong: [string, RegExp][] = [
    ['', /grep is empty/],
    ['x'.repeat(1001), /1001 characters, at most 1000/],
    ['a\nb', /line break/],
    ['\ud800', /not valid Unicode/],
    ['ab(c', /missing closing \)/],
    ['ab)c', /unexpected \)/],
    ['abc[d', /missing closing \] at character 4: "\[d"/],
    ['x**', /invalid nested repetition operator at character 2: "\*\*"/],
    ['*a', /missing argument to repetition operator/],
    ['ab\\', /trailing backslash/],
    ['a{1001}', /invalid repeat count at character 2/],
    ['[b-a]', /invalid character class range/],
    ['\\p{Nothing}', /invalid character class range/],
    ['(?<=a)b', /RE2 syntax has no lookahead and lookbehind.*grep_invert/],
    ['(?<!a)b', /RE2 syntax has no lookahead and lookbehind/],
    ['(?=a)', /RE2 syntax has no lookahead and lookbehind/],
    ['a(?!b)', /RE2 syntax has no lookahead and lookbehind/],
    ['(a)\\1', /\\1, but RE2 syntax has no backreferences/],
    ['(?:abcdefghijklmnop){1000}', /too large a program/],
    [`(?:${'a.'.repeat(450)}){1000}`, /too large a program/],
    [`(?i)${'[[:word:]\\x{100}-\\x{ffff}]'.repeat(30)}`, /too large a program/],
    ['((((((a{9}){9}){9}){9}){9}){9}){9}', /too large a program|repeat count/],
  ]
  for (const [text, says] of wrong) assert.match(refusalOf(text), says, text)
})

test('ordinary patterns are not too large', () => {
  const fine = [
    '\\b(?:\\d{1,3}\\.){3}\\d{1,3}\\b',
    '(?i)error|warn(ing)?|fatal',
    '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d',
    '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}',
    'timeout.{0,500}retry',
    '[0-9a-f]{64}:[a-z]{1,200}',
    '\\pL{3,40} \\p{Lu}{2,100}',
    '[ab]*a[ab]{900}[cd]',
    '\\pL+\\s\\p{Greek}',
    '(?i)[\\pL\\pN_]+@[a-z]+',
    '\\Qa.b(\\E',
  ]
  for (const text of fine) assert.equal(refusalOf(text), 'none', text)
})
