/** Retention of the log. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test, type TestContext } from 'node:test'
import { encodeBatch } from '../../../src/storage/sqlite/batch.ts'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { openForWriting } from '../../../src/storage/sqlite/database.ts'
import { ROW_BYTES } from '../../../src/storage/sqlite/rows.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { Writer } from '../../../src/storage/store/batch-transaction.ts'
import { EVERY_ROW } from '../../helpers/every-row.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const HOUR_MS = 3_600_000
const FOREVER = { bytesMax: 1e12, ageMaxMs: 1e15, behindBytesMax: 1e12 }
const batch = encodeBatch({ puts: [{ path: 'a', value: Buffer.alloc(1000) }], deletes: [] })
const ROW = batch.length + ROW_BYTES

class World {
  nowMs = 1_790_000_000_000
  readonly database: DatabaseSync
  readonly writer: Writer
  readonly path: string

  constructor(t: TestContext, limits: Partial<typeof FOREVER>) {
    this.path = join(temporaryDirectory(t), 'secrets.db')
    this.database = openForWriting(this.path)
    t.after(() => this.database.isOpen && this.database.close())
    this.writer = new Writer(this.database, { ...FOREVER, ...limits }, () => this.nowMs)
  }

  write(count: number): void {
    for (let at = 0; at < count; at++) this.writer.write([{ batch, epoch: 0, generation: 0 }])
  }

  trimAll(): number {
    for (let steps = 1; ; steps++) if (!this.writer.trim()) return steps
  }

  get sequences(): { from: number; to: number; count: number } {
    const row = this.database.prepare('SELECT min(sequence) AS a, max(sequence) AS b, count(*) AS c FROM log').get()
    return { from: Number(row?.['a']), to: Number(row?.['b']), count: Number(row?.['c']) }
  }
}

test('trims rows above the age limit, but neither the newest row nor rows that a secondary needs', (t) => {
  const world = new World(t, { ageMaxMs: HOUR_MS })
  world.write(10)
  world.nowMs += 2 * HOUR_MS
  world.write(5)
  world.writer.acknowledged = 4
  world.trimAll()
  assert.deepEqual(world.sequences, { from: 5, to: 15, count: 11 })
  world.writer.acknowledged = undefined
  world.trimAll()
  assert.deepEqual(world.sequences, { from: 11, to: 15, count: 5 })
  world.nowMs += 2 * HOUR_MS
  world.trimAll()
  assert.deepEqual(world.sequences, { from: 15, to: 15, count: 1 })
  world.write(1)
  world.database.close()
  assert.deepEqual(checkDatabase(world.path), [])
})

test('commits trim a log above the size limit, and above the larger limit also rows that a secondary needs', (t) => {
  const world = new World(t, { bytesMax: 20 * ROW, behindBytesMax: 50 * ROW })
  world.write(100)
  assert.deepEqual(world.sequences, { from: 80, to: 100, count: 21 })
  world.writer.acknowledged = 90
  world.write(30)
  assert.deepEqual(world.sequences, { from: 91, to: 130, count: 40 })
  world.write(40)
  assert.deepEqual(world.sequences, { from: 120, to: 170, count: 51 })
  world.writer.acknowledged = 170
  world.trimAll()
  assert.deepEqual(world.sequences, { from: 150, to: 170, count: 21 })
  const again = new Writer(world.database, { ...FOREVER, bytesMax: 10 * ROW }, () => world.nowMs)
  while (again.trim());
  assert.deepEqual(world.sequences, { from: 160, to: 170, count: 11 })
})

test('trims a long log in steps, and keeps the size limit after the clock was set back', (t) => {
  const world = new World(t, { ageMaxMs: HOUR_MS, bytesMax: 2000 * ROW })
  world.write(1000)
  world.nowMs += 2 * HOUR_MS
  assert.equal(world.trimAll(), 4)
  assert.equal(world.sequences.count, 1)
  world.nowMs -= 100 * HOUR_MS
  world.write(2500)
  world.trimAll()
  assert.equal(world.sequences.count, 2001)
})

test('the store reports the size of its log and applies the limits', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const store = await SqliteStore.open(path, { log: { ...FOREVER, bytesMax: 5 * ROW } })
  t.after(() => store.close())
  assert.equal(store.logBytes, 0)
  await store.keepLogBehind(0)
  const commit = () => store.commit({ puts: [{ path: 'a', value: Buffer.alloc(1000) }], deletes: [] })
  for (let at = 0; at < 20; at++) await commit()
  assert.equal(store.logBytes, 20 * ROW)
  assert.equal(store.base().sequence, 0)
  const rows = store.rowsAfter(0, EVERY_ROW)
  await store.keepLogBehind(undefined)
  for (let at = 0; at < 5; at++) await commit()
  assert.ok(store.logBytes <= 6 * ROW)
  const base = store.base()
  assert.equal(store.rowsAfter(0, EVERY_ROW)[0]?.sequence, base.sequence + 1)
  assert.deepEqual(base.checksum, Buffer.from(rows.find(({ sequence }) => sequence === base.sequence)?.checksum ?? []))
})
