import assert from 'node:assert/strict'
import { existsSync, linkSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { mayUseReserve } from '../../../src/storage/sqlite/batch.ts'
import { DiskReserve } from '../../../src/platform/disk-reserve.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

test('the reserve is created later if there is enough space, and is complete then', (t) => {
  const path = join(temporaryDirectory(t), 'a.db')
  const reserve = new DiskReserve(`${path}.reserve`)
  t.after(() => reserve.close())
  assert.equal(reserve.look(true), false)
  assert.equal(statSync(`${path}.reserve`).size, 0)
  assert.equal(reserve.look(), false)
  const whole = statSync(`${path}.reserve`).size
  assert.ok(whole > 0)
  assert.ok(reserve.giveUp())
  assert.ok(statSync(`${path}.reserve`).size < whole)
  assert.equal(reserve.look(), false)
  assert.equal(statSync(`${path}.reserve`).size, whole)
})

test('a store creates its reserve without a commit', async (t) => {
  const path = join(temporaryDirectory(t), 'a.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  await eventually(() => existsSync(`${path}.reserve`) && statSync(`${path}.reserve`).size > 0, 'the reserve is made')
})

test('an existing file of another program is never truncated for a reserve', (t) => {
  const path = join(temporaryDirectory(t), 'a.reserve')
  writeFileSync(path, 'kept')
  const reserve = new DiskReserve(path)
  t.after(() => reserve.close())
  reserve.look()
  assert.equal(reserve.giveUp(), false)
  assert.equal(readFileSync(path, 'utf8'), 'kept')
})

test('a link in the place of a reserve is not followed, and a file with a second name is not used', (t) => {
  const directory = temporaryDirectory(t)
  for (const [kind, link] of [
    ['symbolic', symlinkSync],
    ['hard', linkSync],
  ] as const) {
    const target = join(directory, `${kind}-target`)
    writeFileSync(target, '')
    link(target, join(directory, `${kind}.reserve`))
    const reserve = new DiskReserve(join(directory, `${kind}.reserve`))
    t.after(() => reserve.close())
    reserve.look()
    reserve.look()
    assert.equal(reserve.giveUp(), false, kind)
    assert.equal(statSync(target).size, 0, kind)
  }
})

test('the reserve is for writes that remove entries, and for entries that grow by 128 bytes at most', () => {
  const sizes = new Map([['kept', 1000]])
  const isFor = (bytes: number, path = 'kept', deletes: readonly string[] = []) =>
    mayUseReserve({ puts: [{ path, value: Buffer.alloc(bytes) }], deletes }, (each) => sizes.get(each))
  assert.deepEqual([isFor(1128), isFor(1129)], [true, false])
  assert.deepEqual([isFor(64, 'new', ['kept']), isFor(65, 'new', ['kept']), isFor(64, 'new')], [true, false, false])
})
