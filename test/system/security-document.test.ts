/** `docs/security.md` names a test for each thing that an attacker cannot do: each name is one of a test that exists. */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'

const TEST = resolve(import.meta.dirname, '..')
const text = readFileSync(join(TEST, '../docs/security.md'), 'utf8')

test('every test that the document names exists, and the document lists every attack', () => {
  const named = new Set([...text.matchAll(/`test\/([\w/-]+)\.test\.ts`/g)].map(([, name]) => name ?? ''))
  assert.ok(named.size > 20)
  assert.deepEqual(
    [...named].filter((name) => !existsSync(join(TEST, `${name}.test.ts`))),
    [],
  )
  const attacks = readdirSync(join(TEST, 'attacks')).map((file) => `attacks/${file.replace(/\.test\.ts$/, '')}`)
  assert.deepEqual(
    attacks.filter((name) => !named.has(name)),
    [],
    'attacks that docs/security.md does not tell of',
  )
})
