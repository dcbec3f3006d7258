/** Folders of names against a sorted list, through pages, splits and removals. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Changes } from '../../../src/engines/changes.ts'
import { compareNames } from '../../../src/engines/kv/folder.ts'
import { addName, isNamed, namesBelow, namesIn, removeName, taken } from '../../../src/engines/kv/names.ts'
import { openKv } from '../../helpers/kv-world.ts'

/** Whole numbers below a bound (mulberry32). */
function randomOf(seed: number): (below: number) => number {
  let state = seed
  return (below) => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below
  }
}

test('names are listed as a sorted list would be, whatever was added and removed', async (t) => {
  const world = await openKv(t)
  const mount = world.core.open.mounts.get('secret/')
  assert.ok(mount)
  const { secret } = mount.facts
  const model = new Set<string>()
  const random = randomOf(7)
  for (let round = 0; round < 40; round++) {
    const changes = new Changes(mount.view)
    for (let step = 0; step < 40; step++) {
      const name = `${['', 'a/', 'a/b/', 'ü/'][random(4)] ?? ''}${['x', '\u{1f600}', '\uffee', 'é'][random(4)] ?? ''}${random(400)}`
      if (random(3) > 0) {
        if (!model.has(name)) addName(secret, changes, name)
        model.add(name)
      } else if (model.delete(name)) removeName(secret, changes, name)
    }
    await mount.view.commit(changes.batch)
  }
  const read = (path: string) => mount.view.get(path)
  const expected = (folder: string) => {
    const below = [...model].filter((name) => name.startsWith(folder)).map((name) => name.slice(folder.length))
    const names = below.map((name) => (name.includes('/') ? name.slice(0, name.indexOf('/') + 1) : name))
    return [...new Set(names)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)))
  }
  for (const folder of ['', 'a/', 'a/b/', 'ü/']) {
    const all = expected(folder)
    assert.ok(all.length > 100)
    assert.deepEqual([...namesIn(secret, read, folder)], all)
    const [after = ''] = all.slice(50)
    assert.deepEqual(taken(namesIn(secret, read, folder, after), 30), all.slice(51, 81))
    assert.deepEqual(
      [...namesIn(secret, read, folder, `${after}!`)],
      all.filter((name) => compareNames(name, `${after}!`) > 0),
    )
  }
  assert.deepEqual([...namesBelow(secret, read, '')].sort(), [...model].sort())
  for (const name of model) assert.ok(isNamed(secret, read, name), name)
  for (const name of ['none', 'a/none', 'none/x', 'a/b', 'x999']) assert.ok(!isNamed(secret, read, name), name)
  const last = new Changes(mount.view)
  for (const name of model) removeName(secret, last, name)
  await mount.view.commit(last.batch)
  assert.deepEqual([...namesIn(secret, read, '')], [])
  assert.deepEqual(mount.view.list('f/'), [])
})
