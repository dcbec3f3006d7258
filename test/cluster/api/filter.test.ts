/** The expression language of filters: what it means, and what is said of what it is not. */
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
test('a pattern is refused where the installation lacks the engine, and is read once it is there', () => {
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

test('every operator, both ways', () => {
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

test('and binds tighter than or, and not tighter than both', () => {
  assert.equal(matches('Status == ready or Name == x and Name == y'), true)
  assert.equal(matches('(Status == ready or Name == x) and Name == y'), false)
  assert.equal(matches('not Name == x and Status == ready'), true)
  assert.equal(matches('not Name == web-1 or Status == ready'), true)
})

test('keys that every object inherits are no fields of a record', () => {
  assert.equal(matches('Meta.constructor is empty'), true)
  assert.equal(matches('"__proto__" in Meta'), false)
})

test('what is no expression is refused with its place', () => {
  const wrong: [string, RegExp][] = [
    ['', /1:1 \(0\): expected the name of a field/],
    ['Nope == 1', /1:1 \(0\): there is no field "Nope", there are CreateIndex, /],
    ['Status', /1:7 \(6\): expected ==/],
    ['Status = ready', /1:8 \(7\): expected ==/],
    ['Status == ', /1:11 \(10\): expected a value/],
    ['Status == ready and', /1:20 \(19\): expected the name of a field/],
    ['Status == ready Name == x', /1:17 \(16\): expected and, or, or the end/],
    ['Status == ready\nand Foo == 1', /2:5 \(20\): there is no field "Foo"/],
    ['(Status == ready', /1:17 \(16\): expected \)/],
    ['Status is full', /1:11 \(10\): expected empty/],
    ['Status == "ready', /1:11 \(10\): this text has no end/],
    ['Status == "a\\q"', /unknown escape \\q/],
    ['Name matches "("', /1:14 \(13\): the pattern is not in RE2's syntax/],
    ['Name matches "(?=x)"', /RE2's syntax/],
    ['Name matches "((a{60}){60}){60}"', /counts of the pattern/],
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
