/** The check of a policy in the web interface, without a browser. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { policyUiPaths } from '../../src/secrets/policies/policy-ui-paths.ts'
import { pairsOf, pathOfRequest, placeOf, questionOf, THIS_POLICY } from '../../ui/views/policies/policy-check.ts'
import { VERBS } from '../../ui/views/policies/policy-types.ts'

test('the form is sent as the server reads it: JSON values and strings, and facts of the entity', () => {
  const policies = [{ name: THIS_POLICY, policy: 'path "x" {}' }]
  const form = {
    path: ' /v1/auth/token/create',
    verb: 'update',
    parameters: 'ttl=1h\nn=5',
    entity: 'name=alice',
  } as const
  assert.deepEqual(questionOf(policies, form), {
    policies,
    operation: 'update',
    path: 'auth/token/create',
    parameters: { ttl: '1h', n: 5 },
    entity: { name: 'alice' },
  })
  const declared = policyUiPaths()[0]?.fields ?? {}
  for (const name of Object.keys(questionOf(policies, form))) assert.ok(name in declared, name)
  for (const verb of VERBS) assert.ok(declared['operation']?.description.includes(verb), verb)
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

test('a note has its place, with the policy if it is another one', () => {
  const note = { policy: THIS_POLICY, line: 2, column: 4, text: 'unknown capability' }
  assert.equal(placeOf(note), 'line 2, column 4')
  assert.equal(placeOf({ ...note, policy: 'default' }), 'default, line 2, column 4')
})
