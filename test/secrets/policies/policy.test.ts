import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Identity, NamespaceCapability } from '../../../src/platform/operation.ts'
import {
  checkPolicy,
  identityFrom,
  anonymousIdentity,
  parsePolicy,
  PolicyError,
  rootIdentity,
} from '../../../src/secrets/policies/policy.ts'

const ALL: readonly NamespaceCapability[] = [
  'list-jobs',
  'read-job',
  'submit-job',
  'read-logs',
  'read-fs',
  'alloc-lifecycle',
  'gc-allocation',
]

const who = (...texts: string[]) => identityFrom(texts.map(parsePolicy), 'ops')
const granted = (identity: Identity, namespace = 'default') =>
  ALL.filter((each) => identity.allowsNamespace(namespace, each))
const node = (identity: Identity) => [identity.allowsNode('read'), identity.allowsNode('write')]
const agent = (identity: Identity) => [identity.allowsAgent('read'), identity.allowsAgent('write')]
const shorthand = (word: string) => granted(who(`namespace "default" { policy = "${word}" }`))
const matches = (pattern: string, name: string) =>
  granted(who(`namespace "${pattern}" { policy = "list" }`), name).length > 0
const says = (text: string) => checkPolicy(text).map(({ line, column, message }) => `${line}:${column} ${message}`)

test('root is allowed everything, a caller without a policy nothing', () => {
  assert.deepEqual([granted(rootIdentity), node(rootIdentity), agent(rootIdentity)], [ALL, [true, true], [true, true]])
  for (const none of [anonymousIdentity, who(), who('')]) {
    assert.deepEqual([granted(none), node(none), agent(none)], [[], [false, false], [false, false]])
  }
  assert.equal(who().accessor, 'ops')
  assert.equal(anonymousIdentity.accessor, 'anonymous')
})

test('shorthands of a namespace grant their capabilities', () => {
  assert.deepEqual(shorthand('read'), ['list-jobs', 'read-job'])
  assert.deepEqual(shorthand('write'), [
    'list-jobs',
    'read-job',
    'submit-job',
    'read-logs',
    'read-fs',
    'alloc-lifecycle',
  ])
  assert.deepEqual(shorthand('list'), ['list-jobs'])
  assert.deepEqual(shorthand('scale'), [])
  assert.deepEqual(shorthand('deny'), [])
})

test('capabilities apply alone and together with a shorthand', () => {
  for (const capability of ALL) {
    assert.deepEqual(granted(who(`namespace "default" { capabilities = ["${capability}"] }`)), [capability])
  }
  const both = who('namespace "default" { policy = "read" capabilities = ["read-logs", "gc-allocation"] }')
  assert.deepEqual(granted(both), ['list-jobs', 'read-job', 'read-logs', 'gc-allocation'])
  assert.deepEqual(granted(both, 'other'), [])
})

test('deny overrides all grants to the same subject', () => {
  const write =
    'namespace "default" { policy = "write" } node { policy = "write" } agent { policy = "write" } server { policy = "write" }'
  const denies = [
    'namespace "default" { policy = "deny" }',
    'namespace "default" { capabilities = ["read-fs", "deny"] }',
  ]
  for (const deny of denies) {
    for (const identity of [who(write, deny), who(deny, write), who(`${deny} ${write}`)])
      assert.deepEqual(granted(identity), [])
  }
  const coarse = who(write, 'node { policy = "deny" } agent { policy = "deny" }')
  assert.deepEqual(
    [node(coarse), agent(coarse)],
    [
      [false, false],
      [false, false],
    ],
  )
})

test('grants of several documents are united', () => {
  const identity = who(
    'namespace "default" { policy = "read" } node { policy = "read" }',
    'namespace "default" { capabilities = ["read-fs"] } node { policy = "write" }',
  )
  assert.deepEqual(granted(identity), ['list-jobs', 'read-job', 'read-fs'])
  assert.deepEqual(node(identity), [true, true])
})

test('node and agent rules grant read or write', () => {
  assert.deepEqual(node(who('node { policy = "read" }')), [true, false])
  assert.deepEqual(node(who('node { policy = "write" }')), [true, true])
  assert.deepEqual(node(who('server { policy = "read" }')), [true, false])
  assert.deepEqual(node(who('server { policy = "write" }')), [true, false])
  assert.deepEqual(node(who('server { policy = "deny" }')), [false, false])
  assert.deepEqual(node(who('agent { policy = "write" } operator { policy = "write" }')), [false, false])
  assert.deepEqual(agent(who('agent { policy = "read" }')), [true, false])
  assert.deepEqual(agent(who('node { policy = "write" }')), [false, false])
})

test('the exact name or else the most specific pattern decides about a namespace', () => {
  const text = `
    namespace "*" { capabilities = ["list-jobs"] }
    namespace "prod-*" { capabilities = ["read-logs"] }
    namespace "*-web" { capabilities = ["read-fs"] }
    namespace "prod-*-web" { capabilities = ["read-job"] }
    namespace "prod-api" { capabilities = ["submit-job"] }
    namespace "prod-api*" { policy = "deny" }
    namespace "prod-secret*" { policy = "deny" }
    namespace "prod-secret-open" { policy = "read" }`
  const identity = who(text)
  const cases: [string, string[]][] = [
    ['default', ['list-jobs']],
    ['', ['list-jobs']],
    ['prod-', ['read-logs']],
    ['prod-x', ['read-logs']],
    ['dev-web', ['read-fs']],
    ['prod-web', ['read-logs']],
    ['prod-a-web', ['read-job']],
    ['prod-api', ['submit-job']],
    ['prod-api-2', []],
    ['prod-secret', []],
    ['prod-secret-x', []],
    ['prod-secret-open', ['list-jobs', 'read-job']],
    ['Prod-api', ['list-jobs']],
  ]
  for (const [namespace, expected] of cases) assert.deepEqual(granted(identity, namespace), expected, namespace)
  const reversed = who(text.trim().split('\n').toReversed().join('\n'))
  for (const [namespace, expected] of cases) assert.deepEqual(granted(reversed, namespace), expected, namespace)
})

test('namespace patterns match with wildcards', () => {
  assert.ok(matches('a*c*e', 'abcde') && matches('a*c*e', 'ace') && matches('**', 'x') && matches('*a*', 'bab'))
  assert.ok(matches('a*aa', 'aaa') && matches('*ab*ab', 'abab') && matches('a**b', 'ab'))
  assert.ok(!matches('a*a', 'a') && !matches('a*c*e', 'aec') && !matches('*ab*ab', 'aab') && !matches('a', 'ab'))
  assert.ok(!matches('a*bc*c', 'abc') && !matches('a-b', 'a.b') && !matches('a*', 'ba'))
})

test('equally specific patterns are merged in any order, and deny overrides', () => {
  const [a, b, deny] = [
    'namespace "a*" { policy = "list" }',
    'namespace "*b" { capabilities = ["read-fs"] }',
    'namespace "*b" { policy = "deny" }',
  ]
  assert.deepEqual(granted(who(a, b), 'ab'), ['list-jobs', 'read-fs'])
  assert.deepEqual(granted(who(b, a), 'ab'), ['list-jobs', 'read-fs'])
  assert.deepEqual([granted(who(a, deny), 'ab'), granted(who(deny, a), 'ab')], [[], []])
})

test('a JSON document has the same rules as an HCL document', () => {
  const identity = who(
    '{"namespace": {"default": {"policy": "read"}, "prod": [{"capabilities": ["read-logs"]}]}, "node": [{"policy": "write"}]}',
  )
  assert.deepEqual(
    [granted(identity), granted(identity, 'prod'), node(identity)],
    [['list-jobs', 'read-job'], ['read-logs'], [true, true]],
  )
})

test('rules without effect are accepted and grant nothing', () => {
  const identity = who(`
    name = "theirs"
    quota { policy = "write" }
    plugin { policy = "list" }
    operator { policy = "write" capabilities = ["snapshot-save"] }
    host_volume "*" { policy = "write" capabilities = ["mount-readwrite"] }
    node_pool "*" { policy = "write" capabilities = ["delete"] }
    namespace "default" {
      capabilities = ["alloc-node-exec", "csi-register-plugin"]
      variables { path "a/*" { capabilities = ["read", "list"] } path "b" { capabilities = ["deny"] } }
    }`)
  assert.deepEqual([granted(identity), node(identity), agent(identity)], [[], [false, false], [false, false]])
})

test('path rules are parsed in order', () => {
  const { name, paths } = parsePolicy(`
name = "app"
path "/secret/data/app/*" {
  capabilities = ["create", "read"]
  required_parameters = ["Data"]
  allowed_parameters = { "Data" = [], "n" = [1, true, "x*"] }
  denied_parameters { "*" = [] }
  min_wrapping_ttl = 90  max_wrapping_ttl = "2m"
  mfa_methods = ["m1", "m2"]
  pagination_limit = 100
  expiration = "2027-01-31T12:00:00Z"
  comment = "why"
}
path "a/+/b*" { policy = "write" }
path "a/+/b*" { capabilities = ["sudo", "deny"] }
path "id/{{identity.entity.id}}" {}`)
  assert.equal(name, 'app')
  const [first, ...rest] = paths
  assert.deepEqual(first, {
    path: 'secret/data/app/*',
    at: { line: 3, column: 6 },
    capabilities: new Set(['create', 'read']),
    requiredParameters: ['Data'],
    allowedParameters: new Map<string, unknown[]>([
      ['data', []],
      ['n', [1, true, 'x*']],
    ]),
    deniedParameters: new Map([['*', []]]),
    minWrappingTtlMs: 90_000,
    maxWrappingTtlMs: 120_000,
    mfaMethods: ['m1', 'm2'],
    paginationLimit: 100,
    expiresAtMs: Date.UTC(2027, 0, 31, 12),
  })
  assert.deepEqual(
    rest.map(({ path, capabilities }) => [path, [...capabilities]]),
    [
      ['a/+/b*', ['create', 'read', 'update', 'delete', 'list']],
      ['a/+/b*', ['deny']],
      ['id/{{identity.entity.id}}', []],
    ],
  )
})

test('every error of a document is reported with its position', () => {
  const text = `nodes { policy = "read" }
node { policy = "reed" }
agent { level = "read" }
namespace { policy = "read" }
namespace "a b" { policy = "read" }
namespace "a" { capabilities = ["read-log"] policy = "all" policy = "read" }
path "a/+*" { capabilities = "read" }
path "b" { capability = ["read"] min_wrapping_ttl = "2m" max_wrapping_ttl = "1m" }
path "c{{" { allowed_parameters = { a = "x" } control_group {} }
operator {}
node "x" { policy = "read" }`
  const faults = says(text)
  assert.deepEqual(
    faults.map((fault) =>
      fault.replace(/, expected (one|some) of .*/, ', ...').replace(/: expected one of .*/, ': ...'),
    ),
    [
      '1:1 unknown rule "nodes": ...',
      '2:17 node: policy must be one of read, write, deny',
      '3:9 agent: unknown key "level", ...',
      '4:22 namespace: expected a block { }',
      '5:11 namespace: a name must have 1 to 128 letters, digits, "-" and "*"',
      '6:33 namespace "a": unknown capability "read-log", ...',
      '6:54 namespace: policy must be one of read, write, scale, list, deny',
      '6:60 namespace: duplicate key "policy"',
      "7:6 path: '+*' is not allowed: end in '+' or in '*'",
      '7:30 path: capabilities must be a list of strings',
      '8:6 path: min_wrapping_ttl is longer than max_wrapping_ttl',
      '8:12 path: unknown key "capability", ...',
      '9:6 path: unbalanced `{{` and `}}`',
      '9:41 path: allowed_parameters must map names to lists of values',
      '9:47 path: unknown key "control_group", ...',
      '10:1 operator: expected policy = "read", "write" or "deny"',
      '11:6 node: unexpected label',
    ],
  )
  assert.throws(
    () => parsePolicy(text),
    (error) => error instanceof PolicyError && error.message === faultsAsMessage(text),
  )
  assert.deepEqual(says('node {\n'), ['2:1 expected `}` to close what was opened at 1:6'])
  assert.deepEqual(says('node { policy = "read" }'), [])
})

function faultsAsMessage(text: string): string {
  return checkPolicy(text)
    .map(({ line, column, message }) => `${line}:${column}: ${message}`)
    .join('\n')
}
