/** The guide to engines names files and words of the interface: they exist. */
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { cubbyhole } from '../../src/engines/cubbyhole/cubbyhole.ts'

const ROOT = resolve(import.meta.dirname, '../..')

test('docs/adding-an-engine.md is true', () => {
  const guide = readFileSync(join(ROOT, 'docs/adding-an-engine.md'), 'utf8')
  const named = [...guide.matchAll(/`((?:src|test|docs)\/[\w./-]+)`/g)].map(([, file = '']) => file)
  assert.ok(named.length >= 10)
  for (const file of named) assert.ok(existsSync(join(ROOT, file)), file)
  const code = ['engine.ts', 'fields.ts'].map((file) => readFileSync(join(ROOT, 'src/engines', file), 'utf8')).join('')
  for (const word of [
    'exists',
    'anyFields',
    'pending',
    'checkOptions',
    'aliases',
    'pathsFor',
    'isSingle',
    'kind',
    'figures',
    'Rejection',
  ]) {
    assert.match(guide, new RegExp(`\\b${word}\\b`))
    assert.match(code, new RegExp(`\\b${word}\\b`), word)
  }
  assert.match(readFileSync(join(ROOT, 'src/daemon-engines.ts'), 'utf8'), /coreEngines.* = \[cubbyhole/)
  assert.deepEqual([cubbyhole.type, cubbyhole.isSingle, cubbyhole.paths.length], ['cubbyhole', true, 1])
})
