/** The files of an open database are moved and truncated between two checks, with the real writer on real files. */
import assert from 'node:assert/strict'
import { mkdtempSync, renameSync, rmSync, statSync, symlinkSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { encodeBatch } from '../../../src/storage/sqlite/batch.ts'
import { openForWriting } from '../../../src/storage/sqlite/database.ts'
import { DisplacedFilesError, FileGuard } from '../../../src/storage/sqlite/file-guard.ts'
import { LOG_LIMITS } from '../../../src/storage/sqlite/rows.ts'
import { SqliteStore, StoreError } from '../../../src/storage/store/store.ts'
import { Writer } from '../../../src/storage/store/batch-transaction.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const nothing = (): void => undefined

function opened(t: TestContext, name = 'secrets.db') {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-guard-'))
  const path = join(directory, name)
  const database = openForWriting(path)
  const guard = new FileGuard(path, database)
  t.after(() => {
    guard.close()
    database.close()
    rmSync(directory, { recursive: true })
  })
  /** Done to the files after the look before a transaction, and before it is written. */
  let meanwhile = nothing
  const watch = {
    beforeCommit: () => {
      guard.beforeCommit()
      meanwhile()
    },
    afterCommit: () => guard.afterCommit(),
  }
  const writer = new Writer(database, LOG_LIMITS, Date.now, watch)
  const write = (between = nothing, generation = 0, bytes = 5000) => {
    meanwhile = between
    const batch = encodeBatch({ puts: [{ path: 'a/b', value: new Uint8Array(bytes).fill(1) }], deletes: [] })
    return writer.write([{ batch, epoch: writer.epoch, generation }])
  }
  return { directory, path, wal: `${path}-wal`, guard, write }
}

test('a commit fails if the write-ahead log was truncated during its transaction', (t) => {
  const { guard, wal, write } = opened(t)
  write()
  const written = statSync(wal).size
  assert.throws(() => write(() => truncateSync(wal)), DisplacedFilesError)
  assert.ok(statSync(wal).size > written, 'its length alone tells nothing')
  assert.equal(guard.inspect()?.isTruncated, true)
  assert.throws(() => write(), /was truncated while it was written/)
  assert.equal(guard.empty(), false, 'a log with a hole is not put in its place')
})

for (const bytes of [0, 32, 5000]) {
  test(`a log that is cut to ${bytes} bytes between transactions is refused before anything is written`, (t) => {
    const { guard, wal, write } = opened(t)
    write()
    const before = statSync(wal).size
    truncateSync(wal, bytes)
    assert.throws(() => write(), /was truncated to \d+ of/)
    assert.equal(statSync(wal).size, bytes)
    truncateSync(wal, before)
    assert.equal(guard.inspect()?.isTruncated, true, 'its length does not bring back what it held')
  })
}

test('a checkpoint and a restart of the log by the writer are no fault', (t) => {
  const { guard, wal, write } = opened(t)
  for (let round = 0; round < 3; round++) {
    // More than SQLite puts in its place by itself: then the log is written from its beginning again.
    for (let each = 0; each < 30; each++) write(undefined, 0, 300_000)
    assert.ok(statSync(wal).size > 4_000_000)
    assert.equal(guard.inspect(), undefined)
    assert.equal(guard.empty(), true)
    assert.equal(statSync(wal).size, 0)
    assert.equal(guard.inspect(), undefined)
  }
})

test('a truncated database stays a fault', (t) => {
  const { guard, path, write } = opened(t)
  write()
  guard.empty()
  assert.equal(guard.inspect(), undefined)
  truncateSync(path, 4096)
  assert.throws(() => write(), /the database .* was truncated to 4096 of/)
  assert.equal(guard.inspect()?.isTruncated, true)
})

test('a fault ends when the renamed directory is moved back', (t) => {
  const { directory, guard, write } = opened(t)
  write()
  renameSync(directory, `${directory}-aside`)
  assert.throws(() => write(), /was moved or removed/)
  assert.equal(guard.inspectAndSave()?.isTruncated, false)
  renameSync(`${directory}-aside`, directory)
  assert.equal(guard.inspect(), undefined)
  // A batch of the generation in which one was refused is dropped, as after any failure.
  assert.deepEqual(write(undefined, 0), [{ kind: 'dropped' }])
  assert.equal(write(undefined, 1)[0]?.kind, 'written')
})

test('for a symlinked database the log is beside the target, and a changed symlink is a fault', (t) => {
  const { path, write, directory } = opened(t)
  write()
  const link = join(directory, 'link.db')
  symlinkSync(path, link)
  const database = openForWriting(link)
  const guard = new FileGuard(link, database)
  t.after(() => {
    guard.close()
    database.close()
  })
  assert.equal(guard.inspect(), undefined)
  rmSync(link)
  symlinkSync('/dev/null', link)
  assert.match(guard.inspect()?.text ?? '', /is not the file/)
})

test('a read of a truncated log reports the truncation before the writer has detected it', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  for (let at = 0; at < 50; at++)
    await store.commit({ puts: [{ path: `a/${at}`, value: Buffer.alloc(3000, at) }], deletes: [] })
  truncateSync(`${path}-wal`)
  // In the same turn: the report of the writer has not arrived.
  const reads = Array.from({ length: 50 }, (_, at) => () => store.get(`a/${at}`))
  reads.push(
    () => void store.paths(''),
    () => void store.rowsAfter(0, { rows: 100, bytes: 1 << 20 }),
  )
  const failures = reads.flatMap((read) => {
    try {
      read()
      return []
    } catch (error) {
      return [error]
    }
  })
  assert.ok(failures.length > 0)
  for (const failure of failures) {
    assert.ok(failure instanceof StoreError && failure.kind === 'displaced', String(failure))
    assert.match(failure.message, /the write-ahead log .* was truncated to 0 of \d+ bytes/)
  }
})
