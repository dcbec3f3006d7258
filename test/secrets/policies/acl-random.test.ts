import assert from 'node:assert/strict'
import { test } from 'node:test'
import { compileAcl } from '../../../src/secrets/policies/acl.ts'
import type { Policy } from '../../../src/secrets/policies/policy.ts'
import { decidingPattern } from './naive-acl.ts'
import { NAMES, pathLike, pathOf, random, SEGMENTS } from './random-paths.ts'

function policyOf(patterns: readonly string[]): Policy {
  const at = { line: 1, column: 1 }
  const paths = patterns.map((path) => ({ path, at, capabilities: new Set(['read', 'list'] as const) }))
  return { paths, namespaces: [], coarse: [] }
}

test('compiled rules decide as the naive model', () => {
  const seed = Number(process.env['OUTPOST_SEED'] ?? 20_261_121)
  const pick = random(seed)
  let decided = 0
  for (let round = 0; round < 1200; round++) {
    const drawn = Array.from({ length: 1 + pick(12) }, () => pathOf(pick, SEGMENTS) + (pick(3) === 0 ? '*' : ''))
    const patterns = [...new Set(drawn)].filter((pattern) => !pattern.includes('+*') && pattern !== '')
    const acl = compileAcl([{ name: 'p', policy: policyOf(patterns) }], 0)
    for (let query = 0; query < 12; query++) {
      const like = patterns[pick(2 * patterns.length)]
      const path = (like === undefined ? pathOf(pick, NAMES) : pathLike(pick, like)).replace(/^\/+/, '')
      for (const operation of ['read', 'list'] as const) {
        const asked = operation === 'list' && path !== '' && !path.endsWith('/') ? `${path}/` : path
        const expected = decidingPattern(patterns, asked, operation === 'list')
        const decision = acl.decide({ operation, path })
        const says = `OUTPOST_SEED=${seed}: ${operation} ${JSON.stringify(path)} with ${JSON.stringify(patterns)}`
        assert.equal(decision.rules[0]?.path, expected, says)
        assert.equal(decision.allowed, expected !== undefined, says)
        if (expected !== undefined) decided++
      }
    }
  }
  assert.ok(decided > 3000, `${decided} requests were decided by a rule`)
})
