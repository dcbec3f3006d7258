/** The roster's database: deferred writes are atomic, and errors of the file are distinguished. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { RosterDatabase } from '../../../src/storage/store/roster-store.ts'
import { recordingLogger } from '../../host/allocations/host-fixture.ts'
import { eventually } from '../../helpers/eventually.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

/** Delay until a failed write is retried. */
const RETRY_MS = 5000

test('writes and deletes rows in the background with their newest values', async (t) => {
  const path = join(temporaryDirectory(t), 'deep', 'roster.db')
  const database = RosterDatabase.open(path, recordingLogger())
  for (let at = 0; at < 2000; at++) database.put('node', `n${at}`, { at })
  database.put('node', 'n1', { at: 'again' })
  database.remove('node', 'n2')
  const other = new DatabaseSync(path, { readOnly: true })
  t.after(() => other.close())
  const count = other.prepare('SELECT count(*) AS count FROM node')
  await eventually(() => count.get()?.['count'] === 1999)
  database.close()
  const again = RosterDatabase.open(path, recordingLogger())
  t.after(() => again.close())
  const rows = new Map([...again.rows('node')].map(({ id, value }) => [id, value]))
  assert.deepEqual(rows.get('n1'), { at: 'again' })
  assert.deepEqual(rows.get('n1999'), { at: 1999 })
  assert.equal(rows.has('n2'), false)
})

test('writes the first change after an idle time in the next turn, and later ones together', async (t) => {
  const path = join(temporaryDirectory(t), 'roster.db')
  const database = RosterDatabase.open(path, recordingLogger())
  t.after(() => database.close())
  const other = new DatabaseSync(path, { readOnly: true })
  t.after(() => other.close())
  const count = () => other.prepare('SELECT count(*) AS count FROM claim').get()?.['count']
  database.put('claim', 'first', {})
  database.put('claim', 'with it', {})
  await nextTurn()
  assert.equal(count(), 2)
  for (let at = 0; at < 10; at++) {
    database.put('claim', `later ${at}`, {})
    await nextTurn()
  }
  await eventually(() => count() !== 2)
  assert.equal(count(), 12)
})

test('moves a damaged file aside, and refuses a newer or unwritable one without changing it', (t) => {
  const directory = temporaryDirectory(t)
  const damaged = join(directory, 'damaged.db')
  writeFileSync(damaged, 'this is no database, whatever its name says, and long enough to be looked at')
  const logger = recordingLogger()
  RosterDatabase.open(damaged, logger).close()
  assert.match(readFileSync(`${damaged}.damaged`, 'utf8'), /no database/)
  assert.equal(logger.lines[0]?.level, 'error')
  const newer = join(directory, 'newer.db')
  const database = new DatabaseSync(newer)
  database.exec('PRAGMA user_version = 99')
  database.close()
  assert.throws(() => RosterDatabase.open(newer, logger), /newer version/)
  assert.ok(!existsSync(`${newer}.damaged`))
})

test('keeps the roster in memory on a full disk and logs it', (t) => {
  const disk = temporaryDirectory(t)
  const mount = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', disk])
  if (mount.status !== 0) return t.skip('needs the right to mount')
  try {
    assert.throws(() => writeFileSync(join(disk, 'ballast'), Buffer.alloc(1 << 17)), { code: 'ENOSPC' })
    const logger = recordingLogger()
    RosterDatabase.open(join(disk, 'roster.db'), logger).close()
    assert.match(
      String(logger.lines[0]?.message),
      /no space left on the disk for the roster database, keeping it in memory/,
    )
  } finally {
    // Lazily: SQLite's handle of the file that could not be made is closed when it is collected.
    spawnSync('umount', ['-l', disk])
  }
})

test('a failed write is logged once and retried with the newest values', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const path = join(temporaryDirectory(t), 'roster.db')
  const logger = recordingLogger()
  const database = RosterDatabase.open(path, logger)
  t.after(() => database.close())
  const other = new DatabaseSync(path)
  t.after(() => other.close())
  other.exec("CREATE TRIGGER full BEFORE INSERT ON node BEGIN SELECT RAISE(ABORT, 'no space is left'); END")
  database.put('claim', 'with it', {})
  database.put('node', 'one', { at: 1 })
  database.put('node', 'two', { at: 1 })
  const errors = () => logger.lines.filter(({ message }) => message === 'roster database write failed')
  await nextTurn()
  assert.equal(errors().length, 1)
  assert.equal(
    other.prepare('SELECT count(*) AS count FROM claim').get()?.['count'],
    0,
    'no part of the round is there',
  )
  database.put('node', 'one', { at: 2 })
  database.remove('node', 'two')
  t.mock.timers.tick(RETRY_MS)
  assert.equal(errors().length, 1, 'the second failure is that of before')
  other.exec('DROP TRIGGER full')
  t.mock.timers.tick(RETRY_MS)
  const rows = other.prepare('SELECT id, value FROM node').all()
  assert.deepEqual(
    rows.map(({ id, value }) => [id, value]),
    [['one', '{"at":2}']],
  )
})
