/** The filter expression language, and the errors of invalid expressions. */
import assert from 'node:assert/strict'
import { registerHooks } from 'node:module'
import { test } from 'node:test'
import { parseFilter } from '../../../src/cluster/api/filter.ts'
import { Refusal } from '../../../src/platform/errors.ts'

const RECORD = {
  Name: 'web-1',
  Status: 'ready',
  Drain: false,
  CreateIndex: 12,
  Meta: { rack: 'r1', 'a.b': 'dotted', empty: '' },
  Drivers: { raw_exec: { Healthy: true } },
  Datacenters: ['dc1', 'dc2'],
  LastDrain: null,
}
const FIELDS = new Set(Object.keys(RECORD))
const matches = (text: string) => parseFilter(text, FIELDS)(RECORD)

// The first, before the engine is loaded.
test('a pattern is refused while the engine is not installed, and accepted after that', () => {
  const hooks = registerHooks({
    resolve(specifier, context, next) {
      if (specifier === 're2js') throw new Error("Cannot find module 're2js'")
      return next(specifier, context)
    },
  })
  try {
    assert.throws(
      () => matches('Name matches "^web"'),
      (error: unknown) =>
        error instanceof Refusal && error.code === 'unavailable' && error.message.includes('npm ci --omit=dev'),
    )
    assert.equal(matches('Name == web-1'), true)
  } finally {
    hooks.deregister()
  }
  assert.equal(matches('Name matches "^web"'), true)
})

test('each operator matches and does not match as documented', () => {
  const yes = [
    'Status == ready',
    'Status == "ready"',
    'Status == `ready`',
    'Status!="down"',
    'Drain == false',
    'CreateIndex == 12',
    'CreateIndex != 13',
    'Meta.rack == r1',
    'Meta["a.b"] == dotted',
    'Meta.a.b == dotted',
    'Meta.nothing != r1',
    'Meta.nothing is empty',
    'Meta.empty is empty',
    'Meta is not empty',
    'LastDrain is empty',
    'Name contains "eb-"',
    'Name not contains x',
    'Datacenters contains dc2',
    'dc2 in Datacenters',
    '"raw_exec" in Drivers',
    'docker not in Drivers',
    'Drivers.raw_exec.Healthy == true',
    'Name matches "^web-[0-9]+$"',
    'Name not matches "^db"',
    'Meta.nothing not matches "x"',
    'not Status == down',
    'not (Status == down)',
    '(((Status == ready)))',
    'Status == ready\n  and Drain == false',
  ]
  for (const text of yes) {
    assert.equal(matches(text), true, text)
    assert.equal(matches(`not (${text})`), false, `not (${text})`)
  }
})

test('not has precedence over and, which has precedence over or', () => {
  assert.equal(matches('Status == ready or Name == x and Name == y'), true)
  assert.equal(matches('(Status == ready or Name == x) and Name == y'), false)
  assert.equal(matches('not Name == x and Status == ready'), true)
  assert.equal(matches('not Name == web-1 or Status == ready'), true)
})

test('inherited keys of objects are not fields of a record', () => {
  assert.equal(matches('Meta.constructor is empty'), true)
  assert.equal(matches('"__proto__" in Meta'), false)
})

test('an invalid expression is refused with the position of the error', () => {
  const wrong: [string, RegExp][] = [
    ['', /1:1 \(0\): expected the name of a field/],
    ['Nope == 1', /1:1 \(0\): unknown field "Nope", expected one of CreateIndex, /],
    ['Status', /1:7 \(6\): expected ==/],
    ['Status = ready', /1:8 \(7\): expected ==/],
    ['Status == ', /1:11 \(10\): expected a value/],
    ['Status == ready and', /1:20 \(19\): expected the name of a field/],
    ['Status == ready Name == x', /1:17 \(16\): expected "and", "or" or the end of the expression/],
    ['Status == ready\nand Foo == 1', /2:5 \(20\): unknown field "Foo"/],
    ['(Status == ready', /1:17 \(16\): expected \)/],
    ['Status is full', /1:11 \(10\): expected empty/],
    ['Status == "ready', /1:11 \(10\): missing closing quote/],
    ['Status == "a\\q"', /unknown escape \\q/],
    ['Name matches "("', /1:14 \(13\): invalid RE2 pattern/],
    ['Name matches "(?=x)"', /invalid RE2 pattern/],
    ['Name matches "((a{60}){60}){60}"', /repetition counts of the pattern/],
    [`Name matches "${'a'.repeat(201)}"`, /longer than 200/],
    [`${'('.repeat(100)}Status == ready`, /more than 64 levels deep/],
    [`Status == ${'a'.repeat(5000)}`, /longer than 4096 characters/],
  ]
  for (const [text, message] of wrong) {
    assert.throws(
      () => parseFilter(text, FIELDS),
      (error: unknown) =>
        error instanceof Refusal &&
        error.status === 400 &&
        error.message.startsWith('failed to read filter expression: ') &&
        message.test(error.message),
      text.slice(0, 40),
    )
  }
})
