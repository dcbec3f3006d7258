import assert from 'node:assert/strict'
import { test } from 'node:test'
import { answerPolicy, noteLine, parsePolicies } from '../../../src/secrets/policies/policy-answer.ts'
import type { PolicyQuestion } from '../../../src/secrets/policies/policy-answer.ts'
import { lintPolicy } from '../../../src/secrets/policies/policy-lint.ts'
import { parsePolicy } from '../../../src/secrets/policies/policy.ts'
import { decidingPattern } from './naive-acl.ts'
import { pathLike, pathOf, random, SEGMENTS } from './random-paths.ts'

const NOW = Date.UTC(2026, 10, 21)

const DOCUMENT = `path "kv/*" { capabilities = ["deny"] }
path "kv/app/*" { capabilities = ["read", "list", "sudo"] }
path "kv/app/db" {
  capabilities = ["read"]
  required_parameters = ["version"]
}
path "kv/+/db" { capabilities = ["update"] }
path "kv/App/x" { capabilities = ["read"] }
path "kv/old/*" { capabilities = ["read"] expiration = "2020-01-01T00:00:00Z" }
path "me/{{identity.entity.name}}" { capabilities = ["read"] mfa_methods = ["m1"] }
path "v/data/x" { capabilities = ["read"] }
path "l/+" { capabilities = ["list"] pagination_limit = 9 }`

function ask(
  operation: PolicyQuestion['operation'],
  path: string,
  more: Partial<PolicyQuestion> = {},
  further: string[] = [],
) {
  const documents = [DOCUMENT, ...further].map((text, index) => ({ name: `p${index}.hcl`, text }))
  const { faults, sources } = parsePolicies(documents)
  assert.deepEqual(faults, [])
  const question = { operation, path, entityFacts: new Map(), ...more }
  const { hint, reasons, unmatched, verdict } = answerPolicy(sources, question, NOW)
  const hints = hint === undefined ? [] : [`  ${hint}`]
  return {
    lines: [verdict, ...reasons.map((note) => `  ${noteLine(note)}`), ...hints],
    unmatched: unmatched.map((note) => `  ${noteLine(note)}`),
  }
}

test('an explanation has the deciding rule and the reason why each other rule does not decide', () => {
  assert.deepEqual(ask('read', 'kv/app/x').lines, [
    'allowed: read "kv/app/x", with sudo',
    '  p0.hcl:2:6: path "kv/app/*": decides, grants read',
    '  p0.hcl:1:6: path "kv/*": its first wildcard is earlier',
    '  p0.hcl:8:6: path "kv/App/x": does not match: differs in case',
  ])
  assert.deepEqual(ask('read', 'kv/app/db').lines, [
    'denied: read "kv/app/db"',
    '  p0.hcl:3:6: path "kv/app/db": decides, requires the parameter "version"',
    '  p0.hcl:1:6: path "kv/*": a rule for exactly this path takes precedence',
    '  p0.hcl:2:6: path "kv/app/*": a rule for exactly this path takes precedence',
    '  p0.hcl:7:6: path "kv/+/db": a rule for exactly this path takes precedence',
  ])
  assert.deepEqual(ask('read', 'kv/old/x').lines, [
    'denied: read "kv/old/x"',
    '  p0.hcl:1:6: path "kv/*": decides, denies',
    '  p0.hcl:9:6: path "kv/old/*": expired at 2020-01-01T00:00:00.000Z',
  ])
  assert.deepEqual(ask('update', 'kv/q/db').lines.slice(1), [
    '  p0.hcl:7:6: path "kv/+/db": decides, grants update',
    '  p0.hcl:1:6: path "kv/*": it ends in *',
  ])
  assert.deepEqual(ask('read', 'none').lines, ['denied: read "none", no rule matches'])
})

test('an explanation covers several documents, lists, templates and versioned stores', () => {
  const deny = 'path "kv/app/*" { capabilities = ["deny"] }'
  assert.deepEqual(ask('read', 'kv/app/y', {}, [deny]).lines.slice(0, 3), [
    'denied: read "kv/app/y"',
    '  p1.hcl:1:6: path "kv/app/*": decides, denies',
    '  p0.hcl:1:6: path "kv/*": its first wildcard is earlier',
  ])
  assert.equal(
    ask('read', 'kv/app/y', {}, [deny]).lines[3],
    '  p0.hcl:2:6: path "kv/app/*": same path, deny takes precedence',
  )
  assert.deepEqual(ask('list', 'l/x').lines, [
    'allowed: list "l/x/", at most 9 names in one request',
    '  p0.hcl:12:6: path "l/+": decides, grants list',
  ])
  const entityFacts = new Map([['name', 'alice']])
  assert.deepEqual(ask('read', 'me/alice', { entityFacts }).lines.slice(0, 2), [
    'denied: read "me/alice"',
    '  p0.hcl:10:6: path "me/{{identity.entity.name}}": decides, grants read with an MFA code of m1 in the header X-Vault-MFA',
  ])
  assert.deepEqual(ask('read', 'me/alice').lines.slice(0, 2), [
    'denied: read "me/alice"',
    '  p0.hcl:10:6: path "me/{{identity.entity.name}}": decides, denies all paths below, because it is a restriction and its template has no valid value',
  ])
  const template = 'path "own/{{identity.entity.name}}" { capabilities = ["read"] }'
  assert.ok(
    ask('read', 'own/alice', {}, [template]).unmatched.includes(
      '  p1.hcl:1:6: path "own/{{identity.entity.name}}": its template requires an entity, set one with -entity',
    ),
  )
  assert.equal(ask('read', 'v/x').lines[1], '  "v/data/x" would be allowed: is the mount versioned (v2)?')
  assert.equal(
    ask('read', 'kv/app').lines[2],
    '  p0.hcl:2:6: path "kv/app/*": does not match: covers paths below the folder, not the folder itself',
  )
})

test('a name that an engine folds is decided in its canonical form', () => {
  const rules = [
    'path "auth/userpass/users/ADMIN" { capabilities = ["deny"] }',
    'path "auth/userpass/*" { capabilities = ["read"] }',
    'path "sys/policies/acl/Admin" { capabilities = ["deny"] }',
    'path "identity/entity" { capabilities = ["update"] denied_parameters = { name = ["Admin"] } }',
  ]
  const further = [rules.join('\n')]
  assert.deepEqual(ask('read', 'auth/userpass/users/aDmin', {}, further).lines, [
    'denied: read "auth/userpass/users/admin"',
    '  p1.hcl:1:6: path "auth/userpass/users/ADMIN": decides, denies',
    '  p1.hcl:2:6: path "auth/userpass/*": a rule for exactly this path takes precedence',
  ])
  assert.equal(ask('read', 'sys/policies/acl/ ADMIN', {}, further).lines[0], 'denied: read "sys/policies/acl/admin"')
  const denied = ask('update', 'identity/entity', { data: { name: 'ADMIN' } }, further)
  assert.equal(denied.lines[0], 'denied: update "identity/entity"')
})

test('all errors of faulty documents are found', () => {
  const { faults } = parsePolicies([
    { name: 'a', text: 'path "x" { capability = [] }' },
    { name: 'b', text: 'path "x" {' },
  ])
  assert.equal(faults.length, 2)
  const [first = '', second = ''] = faults.map(noteLine)
  assert.match(first, /^a:1:12: path: unknown key "capability"/)
  assert.match(second, /^b:1:11: /)
})

function warningsOf(...rules: string[]): string[] {
  const text = rules
    .map((rule) => (rule.startsWith('path') ? rule : `path "${rule}" { capabilities = ["read"] }`))
    .join('\n')
  return lintPolicy(parsePolicy(text), NOW).map(({ at, message }) => `${at.line} ${message}`)
}

test('common mistakes in a policy are warned about', () => {
  assert.deepEqual(
    warningsOf(
      'secret/foo',
      'secret/foo*',
      'secret/data/foo',
      'secret/*',
      'secret/+/x',
      'secret/d*',
      'secret/metadata/*',
    ),
    [
      '1 if secret/ is versioned (v2), values are at secret/data/foo and names at secret/metadata/foo',
      '2 if secret/ is versioned (v2), values are at secret/data/foo* and names at secret/metadata/foo*',
    ],
  )
  assert.deepEqual(warningsOf('team/data/*', 'team/x', 'other/x'), [
    '2 if team/ is versioned (v2), values are at team/data/x and names at team/metadata/x',
  ])
  assert.deepEqual(warningsOf('path "secret/data/*" { capabilities = ["list"] }'), [
    '1 if secret/ is versioned (v2), names are listed below secret/metadata/, not below secret/data/',
  ])
  assert.deepEqual(warningsOf('kv/*/x', 'kv/a+/b', 'v1/kv/a', 'kv//a', 'kv/{{identity.entity.name}}/*', 'kv/+/c'), [
    '1 a * that is not at the end is a literal character; use + for one segment',
    '2 a + that is not a whole segment is a literal character',
    '3 paths of rules do not start with v1/',
    '4 no request path contains //',
  ])
  assert.deepEqual(
    warningsOf(
      'path "a" {}',
      'path "b" { capabilities = ["sudo"] }',
      'path "c" { capabilities = ["read"] expiration = "2020-01-01T00:00:00Z" }',
    ),
    [
      '1 a rule without capabilities denies every request to its path',
      '2 sudo alone grants nothing: add other capabilities',
      '3 the rule has expired',
    ],
  )
  assert.deepEqual(warningsOf('kv/+/x*', 'kv/*', 'kv/a/*', 'm/+/+/y', 'm/+/*'), [
    '1 never decides: "kv/*" matches the same paths and takes precedence',
  ])
})

test('a rule with the warning that it never decides never decides', () => {
  const pick = random(7)
  let shadowed = 0
  for (let round = 0; round < 3000; round++) {
    const drawn = Array.from({ length: 3 }, () => pathOf(pick, SEGMENTS) + (pick(2) === 0 ? '*' : ''))
    const patterns = [...new Set(drawn)].filter((pattern) => !pattern.includes('+*'))
    const text = patterns.map((path) => `path "${path}" { capabilities = ["read"] }`).join('\n')
    const never = lintPolicy(parsePolicy(text), NOW).filter(({ message }) => message.startsWith('never'))
    for (const { at } of never) {
      shadowed++
      const pattern = patterns[at.line - 1] ?? ''
      for (let tried = 0; tried < 300; tried++) {
        const path = pathLike(pick, pattern)
        assert.notEqual(decidingPattern(patterns, path, false), pattern, `${pattern} decides about ${path}: ${text}`)
        assert.notEqual(
          decidingPattern(patterns, `${path}/`, true),
          pattern,
          `${pattern} decides about ${path}/: ${text}`,
        )
      }
    }
  }
  assert.ok(shadowed > 20, `${shadowed} rules were doubted`)
})
