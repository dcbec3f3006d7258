/** The check of a policy in the web interface, without a browser. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { answerPolicy } from '../../src/secrets/policies/policy-answer.ts'
import { checkPolicies, pairsOf, pathOfRequest, placedLine, THIS_POLICY } from '../../ui/views/policies/policy-check.ts'
import type { AnswerPolicy } from '../../ui/views/policies/policy-types.ts'

/** Fails to compile if the page declares the evaluation with other types than it has. */
const declared: AnswerPolicy = answerPolicy

function check(text: string, path: string, parameters = '', entity = '') {
  const documents = [{ file: THIS_POLICY, text }]
  return checkPolicies(declared, documents, { path, verb: 'update', parameters, entity })
}

test('parameters decide: JSON values and strings', () => {
  const text =
    'path "auth/token/create" {\n capabilities = ["update"]\n allowed_parameters = { ttl = ["1h"], n = [5] }\n}'
  assert.equal(check(text, '/v1/auth/token/create', 'ttl=1h\nn=5').allowed, true)
  assert.equal(check(text, 'auth/token/create', 'ttl=2h').allowed, false)
  assert.match(check(text, 'auth/token/create', 'ttl=2h').reasons.join(), /"ttl"/)
})

test('templates use the entity of the form', () => {
  const text = 'path "secret/data/{{identity.entity.name}}/*" { capabilities = ["update"] }'
  assert.equal(check(text, 'secret/data/alice/x', '', 'name=alice').allowed, true)
  assert.equal(check(text, 'secret/data/alice/x', '', 'name=bob').allowed, false)
})

test('pairs are lines NAME=VALUE, and a value may contain an equals sign', () => {
  const { fault, pairs } = pairsOf(' a = b=c \n\nd=')
  assert.equal(fault, undefined)
  assert.deepEqual(
    [...pairs],
    [
      ['a', 'b=c'],
      ['d', ''],
    ],
  )
  assert.match(pairsOf('a=1\nx').fault ?? '', /"x"/)
  assert.match(pairsOf('=1').fault ?? '', /NAME=VALUE/)
})

test('the path may be copied from a URL', () => {
  assert.equal(pathOfRequest(' /v1/secret/data/x '), 'secret/data/x')
  assert.equal(pathOfRequest('v1'), 'v1')
})

test('faults have a line of the edited policy', () => {
  const { faults } = check('path "x" {\n  capabilities = ["reed"]\n}', 'x')
  const found = placedLine(faults[0] ?? '')
  assert.deepEqual([found.isOwn, found.line], [true, 2])
  assert.match(found.text, /reed/)
  assert.equal(placedLine('default:4:6: path "x": decides').place, 'default, line 4, column 6')
  assert.equal(placedLine('  a line without a position').line, undefined)
})
