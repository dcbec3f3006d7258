/** How a followed file notices that its content was replaced. */
import assert from 'node:assert/strict'
import { fstatSync, openSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { type FileFollower, FollowedFiles } from '../../../../src/host/logs/follow/followed-file.ts'
import { DirectoryWatches } from '../../../../src/host/logs/follow/watched-directory.ts'
import { temporaryDirectory } from '../../../helpers/temporary-directory.ts'
import { recordingLogger } from '../../allocations/host-fixture.ts'

test('a file that is rewritten with the same size and the same mtime is a new generation, if the mtime was recent', (t) => {
  const nowMs = Date.now()
  t.mock.method(Date, 'now', () => nowMs)
  const path = join(temporaryDirectory(t), 'web.stdout.0')
  // Kernels count mtime in ticks of some milliseconds.
  const write = (text: string, atMs: number) => {
    writeFileSync(path, text)
    utimesSync(path, atMs / 1000, atMs / 1000)
  }
  const files = new FollowedFiles(new DirectoryWatches(recordingLogger()))
  const follower: FileFollower = { wake: () => undefined, revoke: () => undefined, progressAtMs: 0, wakeAtMs: 0 }
  write('one', nowMs - 20)
  const fd = openSync(path, 'r')
  const file = files.acquire({ fd, stat: fstatSync(fd, { bigint: true }), hostPath: path, follower })
  t.after(() => files.release(file, follower))
  assert.equal(file.edgeBefore(3).toString(), 'one')
  file.check()
  file.check()
  assert.equal(file.generation, 0)
  write('two', nowMs - 20)
  file.check()
  assert.equal(file.generation, 1)
  assert.equal(file.edgeBefore(3).toString(), 'two')
  file.check()
  assert.equal(file.generation, 1)
})
