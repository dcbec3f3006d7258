/** Settings of SQLite that promises rest on and that no kill of a process can show: they count when the power goes. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { openForWriting } from '../../../src/storage/sqlite/database.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const FULL = 2

test('a commit is synced before it is answered, and deleted data is overwritten', (t) => {
  const database = openForWriting(join(temporaryDirectory(t), 'a.db'))
  t.after(() => database.close())
  const pragma = (name: string) => database.prepare(`PRAGMA ${name}`).get()?.[name]
  assert.deepEqual(['journal_mode', 'synchronous', 'secure_delete', 'trusted_schema'].map(pragma), ['wal', FULL, 1, 0])
})
