/** Denied and allowed values in long lists: beyond what is looked through, a request is refused and never let in. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { commaList, type EngineFields } from '../../../src/engines/framework/fields.ts'
import { findParameterFault } from '../../../src/secrets/policies/parameter-rules.ts'
import type { ParameterValue } from '../../../src/secrets/policies/path-rules.ts'

const TEXT_MAX = 65_536
const LIST_MAX = 10_000

function whyNot(
  how: 'denied' | 'allowed',
  rule: ParameterValue,
  value: unknown,
  fields: EngineFields = {},
  name = 'names',
) {
  const values = new Map([[name, [rule]]])
  const rules = { required: [], allowed: undefined, denied: undefined, [how]: values }
  return findParameterFault(rules, { [name]: value }, fields)?.reason
}

const many = (count: number) => Array.from({ length: count }, (_, at) => `n${at}`)

test('a denied value is found anywhere in a list and in a string with commas', () => {
  for (const at of [0, 4999, LIST_MAX - 1]) {
    const list = many(LIST_MAX).with(at, 'bad')
    for (const value of [list, list.join(','), list.join(', '), list.map((each) => `${each} `).join()]) {
      assert.equal(whyNot('denied', 'bad', value), 'parameter denied', `at ${at} of ${typeof value}`)
    }
    assert.equal(whyNot('denied', 'ba*', list), 'parameter denied')
  }
  assert.equal(whyNot('denied', 'bad', many(LIST_MAX)), undefined)
  assert.equal(whyNot('denied', 'bad', many(1000).join()), undefined)
  assert.equal(whyNot('denied', 'bad', ['good,x,bad']), 'parameter denied', 'a member is a text with commas, too')
  assert.equal(whyNot('denied', ['bad', 'worse'], [...many(50), 'worse', 'bad']), 'parameter denied')
  assert.equal(
    whyNot('denied', ['bad', 'worse'], [...many(50), 'bad']),
    undefined,
    'the list that is denied is not there',
  )
})

test('folded names are found in another spelling anywhere in a long string', () => {
  for (const spelling of ['ROOT', ' Root ', 'root']) {
    for (const list of [
      [...many(500), spelling],
      [spelling, ...many(500)],
    ]) {
      assert.equal(whyNot('denied', 'root', list.join(), {}, 'policies'), 'parameter denied', spelling)
      assert.equal(whyNot('denied', 'root', list, {}, 'policies'), 'parameter denied', spelling)
    }
  }
})

test('a list or string that is too long to search is denied and not allowed', () => {
  const longest = 'a,'.repeat(TEXT_MAX / 2)
  assert.equal(longest.length, TEXT_MAX)
  assert.equal(whyNot('denied', 'bad', longest), undefined)
  assert.equal(whyNot('denied', 'bad', `${longest}a`), 'parameter denied')
  assert.equal(whyNot('denied', 'bad', many(LIST_MAX + 1)), 'parameter denied')
  assert.equal(whyNot('allowed', 'a*', longest.slice(0, -1)), undefined)
  assert.equal(whyNot('allowed', 'a*', `${longest}a`), 'parameter not allowed')
  assert.equal(whyNot('allowed', 'n*', many(LIST_MAX)), undefined)
  assert.equal(whyNot('allowed', 'n*', many(LIST_MAX + 1)), 'parameter not allowed')
})

test('a string that its field parses to too many members is denied', () => {
  const fields = { names: commaList('Names') }
  const numbers = Array.from({ length: LIST_MAX + 1 }, () => '1').join()
  assert.equal(whyNot('denied', 'bad', numbers), undefined, 'it is short enough for a text')
  assert.equal(whyNot('denied', 'bad', numbers, fields), 'parameter denied')
  assert.equal(whyNot('denied', 'bad', many(50).join(), fields), undefined)
})

test('a string with commas is allowed by a wildcard only if each part is', () => {
  assert.equal(whyNot('allowed', 'n*', many(500).join()), undefined)
  assert.equal(whyNot('allowed', 'n*', [...many(500), 'bad', 'n'].join()), 'parameter not allowed')
  assert.equal(whyNot('allowed', 'n*', [...many(500), 'bad']), 'parameter not allowed')
  assert.equal(whyNot('allowed', 'n1', 'n1,n1'), 'parameter not allowed')
})
