/** Folders of names against a sorted list, through pages, splits and removals. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BatchBuilder } from '../../../src/engines/framework/records.ts'
import { compareNames } from '../../../src/engines/kv/store/folder.ts'
import { addName, eachBelow, eachIn, isNamed, namesIn, removeName } from '../../../src/engines/kv/store/names.ts'
import type { SlicedWork } from '../../../src/platform/sliced-work.ts'
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

/** Without concurrent changes. */
function toTheEnd<T>(steps: SlicedWork<T>): T {
  for (let next = steps.next(false); ; next = steps.next(false)) if (next.done === true) return next.value
}

test('names are listed like a sorted list after any additions and removals', async (t) => {
  const world = await openKv(t)
  const mount = world.core.open.mounts.get('secret/')
  assert.ok(mount)
  const { secret } = mount.facts
  const model = new Set<string>()
  const random = randomOf(7)
  for (let round = 0; round < 40; round++) {
    const changes = new BatchBuilder(mount.storage)
    for (let step = 0; step < 40; step++) {
      const name = `${['', 'a/', 'a/b/', 'ü/'][random(4)] ?? ''}${['x', '\u{1f600}', '\uffee', 'é'][random(4)] ?? ''}${random(400)}`
      if (random(3) > 0) {
        if (!model.has(name)) addName(secret, changes, name)
        model.add(name)
      } else if (model.delete(name)) removeName(secret, changes, name)
    }
    await mount.storage.commit(changes.batch)
  }
  const read = (path: string) => mount.storage.get(path)
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
    const visited: string[] = []
    const walk = eachIn(secret, read, folder, after, (name) => (visited.push(name) < 30 ? 1 : 'enough'))
    assert.equal(toTheEnd(walk), true)
    assert.deepEqual(visited, all.slice(51, 81))
    assert.deepEqual(
      [...namesIn(secret, read, folder, `${after}!`)],
      all.filter((name) => compareNames(name, `${after}!`) > 0),
    )
  }
  const visited: string[] = []
  assert.equal(toTheEnd(eachBelow(secret, read, '', '', (name) => visited.push(name))), false)
  assert.deepEqual(visited.toSorted(), [...model].toSorted())
  // From each of them on it is the rest.
  for (const at of [0, 100, 500, visited.length - 1]) {
    const rest: string[] = []
    toTheEnd(eachBelow(secret, read, '', visited[at] ?? '', (name) => rest.push(name)))
    assert.deepEqual(rest, visited.slice(at + 1))
  }
  for (const name of model) assert.ok(isNamed(secret, read, name), name)
  for (const name of ['none', 'a/none', 'none/x', 'a/b', 'x999']) assert.ok(!isNamed(secret, read, name), name)
  const last = new BatchBuilder(mount.storage)
  for (const name of model) removeName(secret, last, name)
  await mount.storage.commit(last.batch)
  assert.deepEqual([...namesIn(secret, read, '')], [])
  assert.deepEqual(mount.storage.list('f/'), [])
})

test('a name that exists throughout is visited once while other names change between slices', async (t) => {
  const world = await openKv(t)
  const mount = world.core.open.mounts.get('secret/')
  assert.ok(mount)
  const { secret } = mount.facts
  const random = randomOf(11)
  const change = async (work: (changes: BatchBuilder) => void) => {
    const changes = new BatchBuilder(mount.storage)
    work(changes)
    await mount.storage.commit(changes.batch)
  }
  const folders = ['', 'a/', 'b/c/', 'z/']
  const staying = folders.flatMap((folder) =>
    Array.from({ length: 300 }, (_, at) => `${folder}n${String(at * 10).padStart(5, '0')}`),
  )
  const moving = new Set<string>()
  for (const folder of folders) {
    for (let at = 0; at < 200; at++) moving.add(`${folder}n${String(random(3000)).padStart(5, '0')}!`)
  }
  await change((changes) => {
    for (const name of [...staying, ...moving]) addName(secret, changes, name)
  })
  const read = (path: string) => mount.storage.get(path)
  const visited: string[] = []
  const steps = eachBelow(secret, read, '', '', (name) => visited.push(name))
  let isLater = false
  let turns = 0
  for (let next = steps.next(isLater); next.done !== true; next = steps.next(isLater)) {
    // So that turns end at any name, and often in the middle of a page.
    isLater = random(20) === 0
    if (!isLater) continue
    turns++
    await change((changes) => {
      for (let step = 0; step < 40; step++) {
        const name = `${folders[random(4)] ?? ''}n${String(random(3000)).padStart(5, '0')}!`
        if (moving.delete(name)) removeName(secret, changes, name)
        else {
          addName(secret, changes, name)
          moving.add(name)
        }
      }
      // All of a folder comes and goes too.
      if (turns % 3 === 0) addName(secret, changes, `q${turns}/x`)
      if (turns % 3 === 1 && turns > 3) removeName(secret, changes, `q${turns - 1}/x`)
    })
  }
  t.diagnostic(`${turns} turns`)
  assert.ok(turns > 50)
  assert.equal(new Set(visited).size, visited.length, 'a name was visited twice')
  assert.deepEqual(
    visited.filter((name) => !name.endsWith('!') && !name.endsWith('/x')),
    staying,
  )
})
