/** The guide to engines names files and words of the interface: they exist. Its example works. */
import assert from 'node:assert/strict'
import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { test } from 'node:test'
import { cubbyhole } from '../../src/engines/cubbyhole/cubbyhole.ts'
import { CoreWorld } from '../helpers/core-world.ts'
import { checkExample, readGuide } from '../helpers/guide.ts'
import { notes } from '../helpers/notes-engine.ts'

const ROOT = resolve(import.meta.dirname, '../..')

test('docs/adding-an-engine.md matches the code', () => {
  const guide = readGuide('adding-an-engine.md')
  const named = [...guide.matchAll(/`((?:src|test|docs)\/[\w./-]+)`/g)].map(([, file = '']) => file)
  assert.ok(named.length >= 10)
  for (const file of named) assert.ok(existsSync(join(ROOT, file)), file)
  const code = ['engine.ts', 'fields.ts']
    .map((file) => readFileSync(join(ROOT, 'src/engines/framework', file), 'utf8'))
    .join('')
  for (const word of [
    'exists',
    'anyFields',
    'pending',
    'checkOptions',
    'aliases',
    'pathsFor',
    'isSingle',
    'kind',
    'metrics',
    'Rejection',
  ]) {
    assert.match(guide, new RegExp(`\\b${word}\\b`))
    assert.match(code, new RegExp(`\\b${word}\\b`), word)
  }
  assert.match(readFileSync(join(ROOT, 'src/daemon/modules/engines.ts'), 'utf8'), /coreEngines.* = \[cubbyhole/)
  assert.deepEqual([cubbyhole.type, cubbyhole.isSingle, cubbyhole.paths.length], ['cubbyhole', true, 1])
})

test('the engine of the guide works as described', async (t) => {
  checkExample(readGuide('adding-an-engine.md'), 'notes-engine.ts', { '../../src/engines/': '../' })
  const world = await CoreWorld.open(t, { engines: [notes] })
  assert.equal((await world.ask('POST', 'sys/mounts/n', { type: 'notes' })).status, 204)
  assert.equal((await world.ask('LIST', 'n')).status, 404)
  for (const name of ['a', 'b', 'c']) assert.equal((await world.ask('POST', `n/${name}`, { text: name })).status, 204)
  assert.deepEqual((await world.ask('GET', 'n/a')).body.data, { text: 'a' })
  assert.deepEqual((await world.ask('LIST', 'n')).body.data, { keys: ['a', 'b', 'c'] })
  assert.deepEqual((await world.ask('LIST', 'n?after=a&limit=1')).body.data, { keys: ['b'] })
  assert.equal((await world.ask('LIST', 'n?limit=many')).status, 400)
  assert.equal((await world.ask('POST', `n/${'x'.repeat(1001)}`, { text: 'a' })).status, 400)
  assert.equal((await world.ask('GET', 'n/a', undefined, { token: 's.unknown' })).status, 403)
  assert.equal((await world.ask('DELETE', 'n/a')).status, 204)
  assert.equal((await world.ask('GET', 'n/a')).status, 404)
})
