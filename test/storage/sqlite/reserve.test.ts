import assert from 'node:assert/strict'
import { existsSync, linkSync, readFileSync, statSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { DiskReserve } from '../../../src/platform/disk-reserve.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

test('the reserve waits where it may and there is plenty of space, and is whole afterwards', (t) => {
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

test('a store that stays open has its reserve without a commit', async (t) => {
  const path = join(temporaryDirectory(t), 'a.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  await eventually(() => existsSync(`${path}.reserve`) && statSync(`${path}.reserve`).size > 0, 'the reserve is made')
})

test('no reserve is made through a link, nor in a file that has another name', (t) => {
  const directory = temporaryDirectory(t)
  const [outside, named] = [join(directory, 'outside'), join(directory, 'named')]
  symlinkSync(outside, join(directory, 'link.reserve'))
  writeFileSync(named, '')
  linkSync(named, join(directory, 'named.reserve'))
  for (const name of ['link.reserve', 'named.reserve']) {
    const reserve = new DiskReserve(join(directory, name))
    t.after(() => reserve.close())
    reserve.look()
  }
  assert.ok(!existsSync(outside))
  assert.equal(statSync(named).size, 0)
})

test('a file of another program is never truncated for a reserve', (t) => {
  const path = join(temporaryDirectory(t), 'a.reserve')
  writeFileSync(path, 'kept')
  const reserve = new DiskReserve(path)
  t.after(() => reserve.close())
  reserve.look()
  assert.equal(reserve.giveUp(), false)
  assert.equal(readFileSync(path, 'utf8'), 'kept')
})
