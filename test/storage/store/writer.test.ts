/** The writer of batches: what remains of a transaction that was rolled back. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { encodeBatch } from '../../../src/storage/sqlite/batch.ts'
import { openForWriting } from '../../../src/storage/sqlite/database.ts'
import { Writer } from '../../../src/storage/store/batch-transaction.ts'
import { put } from '../../helpers/replica-pair.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

test('a rolled back change of the role leaves role, epoch and position', (t) => {
  const database = openForWriting(join(temporaryDirectory(t), 'secrets.db'))
  t.after(() => database.close())
  const writer = new Writer(database)
  const write = () => writer.write([{ batch: encodeBatch({ puts: [put('a')], deletes: [] }), epoch: 0, generation: 0 }])
  assert.deepEqual(write(), [{ kind: 'written', sequence: 1 }])
  const change = () =>
    writer.transact(0, () => {
      writer.setRole('replica', 7)
      throw new Error('the disk is full')
    })
  assert.throws(change, /the disk is full/)
  assert.deepEqual([writer.role, writer.epoch, writer.position.sequence], ['own', 0, 1])
  assert.deepEqual(write(), [{ kind: 'written', sequence: 2 }])
})
