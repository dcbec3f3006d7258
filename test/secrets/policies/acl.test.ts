import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compileAcl, rootAcl } from '../../../src/secrets/policies/acl.ts'
import type { Acl, AccessRequest } from '../../../src/secrets/policies/acl.ts'
import type { EntityFacts } from '../../../src/secrets/policies/policy-template.ts'
import { parsePolicy } from '../../../src/secrets/policies/policy.ts'
import { TABLE } from './policy-table.ts'
import { ALICE } from './policy-table-templates.ts'
import type { TableRow } from './policy-rows.ts'

const NOW = Date.UTC(2026, 10, 21)

function aclOf(texts: readonly string[], entity?: EntityFacts, nowMs = NOW): Acl {
  return compileAcl(
    texts.map((text, index) => ({ name: `p${index + 1}`, policy: parsePolicy(text) })),
    nowMs,
    entity,
  )
}

function requestOf(row: TableRow): AccessRequest {
  assert.ok(row.verb !== 'caps')
  return {
    operation: row.verb,
    path: row.path,
    ...(row.data ? { data: row.data } : {}),
    ...(row.wrap === undefined ? {} : { wrapTtlSeconds: row.wrap }),
  }
}

test('each row of the policy table decides as stated', () => {
  let rows = 0
  for (const { shows, policies, entity, rows: given } of TABLE) {
    for (const texts of [policies, policies.toReversed()]) {
      const acl = aclOf(texts, entity ? ALICE : undefined)
      for (const row of given) {
        const says = `${shows}: ${row.verb} ${row.path} ${JSON.stringify(row.data ?? {})}`
        if (row.verb === 'caps') {
          assert.equal(acl.capabilities(row.path).join(','), row.outcome, says)
          continue
        }
        const decision = acl.decide(requestOf(row))
        assert.equal(decision.allowed ? 'allow' : 'deny', row.outcome, `${says} (${decision.reason})`)
        if (row.outcome === 'allow') assert.equal(decision.limit, row.gives, says)
        if (row.sudo !== undefined) assert.equal(decision.sudo, row.sudo, says)
      }
    }
    rows += given.length
  }
  assert.ok(rows >= 300, `${rows} rows`)
})

test('root is allowed everything', () => {
  assert.deepEqual(rootAcl.capabilities('any/thing'), ['root'])
  const decision = rootAcl.decide({ operation: 'delete', path: 'sys/auth/x' })
  assert.deepEqual([decision.allowed, decision.sudo, decision.limit], [true, true, undefined])
  assert.equal(rootAcl.decide({ operation: 'list', path: 'kv/', data: { limit: 'max' } }).limit, 0)
  assert.ok(rootAcl.allowsAnythingUnder('kv/'))
})

test('a decision has the rules that made it', () => {
  const acl = aclOf([
    'path "kv/a" { capabilities = ["read"] }',
    'path "kv/*" { capabilities = ["list"] }\n path "kv/a" { capabilities = ["update"] }',
    'path "kv/b" { capabilities = ["read"] }',
    'path "kv/b" { capabilities = ["deny"] }',
  ])
  const told = (operation: 'read' | 'update' | 'delete', path: string) => {
    const { reason, rules } = acl.decide({ operation, path })
    return [reason, ...rules.map(({ policy, path: text, at }) => `${policy} ${text} ${at.line}:${at.column}`)]
  }
  assert.deepEqual(told('read', 'kv/a'), ['granted', 'p1 kv/a 1:6'])
  assert.deepEqual(told('update', 'kv/a'), ['granted', 'p2 kv/a 2:7'])
  assert.deepEqual(told('delete', 'kv/a'), ['not granted', 'p1 kv/a 1:6', 'p2 kv/a 2:7'])
  assert.deepEqual(told('read', 'kv/b'), ['deny', 'p4 kv/b 1:6'])
  assert.deepEqual(told('read', 'kv/c'), ['not granted', 'p2 kv/* 1:6'])
  assert.deepEqual(told('read', 'else'), ['no rule'])
})

test('a decision has the rejected parameter and the required MFA methods', () => {
  const acl = aclOf([
    'path "kv/a" { capabilities = ["update"] denied_parameters = { no = [] } allowed_parameters = { yes = [], no = [] } required_parameters = ["yes"] mfa_methods = ["m1"] }',
    'path "kv/a" { capabilities = ["update"] mfa_methods = ["m2", "m1"] }',
  ])
  const told = (data: Record<string, unknown>) => {
    const { reason, parameter, mfaMethods } = acl.decide({ operation: 'update', path: 'kv/a', data })
    return [reason, parameter, ...mfaMethods]
  }
  assert.deepEqual(told({}), ['parameter missing', 'yes', 'm1', 'm2'])
  assert.deepEqual(told({ yes: 1, No: 2 }), ['parameter denied', 'No', 'm1', 'm2'])
  assert.deepEqual(told({ yes: 1, other: 2 }), ['parameter not allowed', 'other', 'm1', 'm2'])
  assert.deepEqual(told({ yes: 1 }), ['second factor', undefined, 'm1', 'm2'])
})

test('names of Object.prototype are ordinary parameter names', () => {
  const acl = aclOf([
    'path "kv/a" { capabilities = ["update"] required_parameters = ["constructor"] allowed_parameters = { "__proto__" = [], "constructor" = [] } }',
  ])
  const data: unknown = JSON.parse('{"__proto__": 1, "constructor": 2}')
  assert.ok(typeof data === 'object' && data !== null)
  assert.ok(acl.decide({ operation: 'update', path: 'kv/a', data: { ...data, constructor: 2 } }).allowed)
  assert.ok(!acl.decide({ operation: 'update', path: 'kv/a', data: {} }).allowed)
  assert.ok(!acl.decide({ operation: 'read', path: '__proto__' }).allowed)
})

function until(at: string): string {
  return `path "kv/a" { capabilities = ["read"] expiration = "${at}" }`
}

test('an ACL has the period in which it is valid', () => {
  const texts = [until('2026-01-01T00:00:00Z'), until('2026-12-01T00:00:00Z'), until('2027-01-01T00:00:00Z')]
  const acl = aclOf(texts)
  assert.deepEqual([acl.validFromMs, acl.validUntilMs], [Date.UTC(2026, 0), Date.UTC(2026, 11)])
  // At the moment itself the rule is over.
  assert.equal(aclOf(texts, undefined, Date.UTC(2027, 0)).decide({ operation: 'read', path: 'kv/a' }).reason, 'no rule')
  assert.equal(aclOf(texts, undefined, Date.UTC(2027, 0) - 1).decide({ operation: 'read', path: 'kv/a' }).allowed, true)
})

function below(pattern: string, mount: string, capabilities = '"read"'): boolean {
  return aclOf([`path "${pattern}" { capabilities = [${capabilities}] }`]).allowsAnythingUnder(mount)
}

test('an ACL knows whether some rule may grant access below a mount', () => {
  const yes: [string, string][] = [
    ['kv/', 'kv/'],
    ['kv', 'kv/'],
    ['kv/data/x', 'kv/'],
    ['kv/data/*', 'kv/'],
    ['kv*', 'kv/'],
    ['*', 'kv/'],
    ['+/data/x', 'kv/'],
    ['+/+', 'team/kv/'],
    ['+/kv/*', 'team/kv/'],
    ['+/k*', 'team/kv/'],
    ['+/*', 'team/kv/'],
    ['team/+/data/x', 'team/kv/'],
    ['team/kv/+', 'team/kv/'],
  ]
  const no: [string, string][] = [
    ['kv2/data/x', 'kv/'],
    ['kv2*', 'kv/'],
    ['k', 'kv/'],
    ['+', 'kv/'],
    ['team/+', 'team/kv/'],
    ['+/data/x', 'team/kv/'],
    ['+/l*', 'team/kv/'],
    ['other/+/x', 'team/kv/'],
  ]
  // `+` stands for the mount's own last segment too when a list of it is judged without its slash.
  for (const [pattern, mount] of yes) assert.ok(below(pattern, mount), `${pattern} reaches below ${mount}`)
  const expected = new Set(['+ kv/', 'team/+ team/kv/'])
  for (const [pattern, mount] of no) {
    assert.equal(below(pattern, mount), expected.has(`${pattern} ${mount}`), `${pattern} and ${mount}`)
  }
  assert.ok(!below('kv/*', 'kv/', '"deny"') && !below('kv/*', 'kv/', ''))
})
