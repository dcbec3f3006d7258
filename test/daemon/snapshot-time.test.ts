/** The time of the last snapshot: across restarts, and shared between the servers of a highly available core. */
import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { SnapshotTime } from '../../src/daemon/modules/snapshot-time.ts'
import { type LogLine, recordingLogger } from '../helpers/recording-logger.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

test('the time is that of the newest snapshot of any server, and survives a restart', (t) => {
  const database = join(temporaryDirectory(t), 'secrets.db')
  const time = new SnapshotTime(database, recordingLogger([]))
  assert.deepEqual([time.atMs, time.learn(0)], [0, 0])
  time.saved(2000)
  assert.equal(time.learn(1000), 2000)
  assert.equal(time.learn(3000), 3000)
  assert.equal(time.learn(Date.now() + 3_600_000), 3000, 'a time in the future hides missing snapshots')
  assert.equal(new SnapshotTime(database, recordingLogger([])).atMs, 3000)
})

test('a damaged file counts as never, and a file that cannot be written is logged', (t) => {
  const directory = temporaryDirectory(t)
  const file = join(directory, 'snapshot.saved')
  for (const text of ['', 'x', '-5', '1e999', '12.5']) {
    writeFileSync(file, text)
    assert.equal(new SnapshotTime(join(directory, 'secrets.db'), recordingLogger([])).atMs, 0, text)
  }
  assert.equal(readFileSync(file, 'utf8'), '12.5')
  const lines: LogLine[] = []
  const time = new SnapshotTime(join(directory, 'missing/secrets.db'), recordingLogger(lines))
  time.saved(2000)
  assert.deepEqual(
    [time.atMs, lines.map(({ message }) => message)],
    [2000, ['snapshot time not saved, an older time will be reported after a restart']],
  )
})
