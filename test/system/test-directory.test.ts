/** The directory of a test run is removed by the next one, including file systems that a killed run left mounted in it. */
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { removeTestDirectory } from '../../scripts/test-directory.ts'
import { mountSmallDisk } from '../helpers/small-disk.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

test('file systems that a killed test run left mounted are unmounted, also nested ones', (t) => {
  const room = join(temporaryDirectory(t), 'op-1')
  mkdirSync(room)
  const outer = join(room, 'a disk')
  if (!mountSmallDisk(outer, 1)) return t.skip('needs the right to mount')
  assert.ok(mountSmallDisk(join(outer, 'inner'), 1))
  writeFileSync(join(outer, 'inner/file'), 'left')
  removeTestDirectory(room)
  assert.equal(existsSync(room), false)
})
