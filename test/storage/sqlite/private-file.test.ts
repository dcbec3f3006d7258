/** Permissions of the files of a store in a world-readable directory. */
import assert from 'node:assert/strict'
import { chmodSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

function open(path: string): Promise<SqliteStore> {
  return SqliteStore.open(path)
}

test('the database and its side files have mode 0600, also existing ones', async (t) => {
  const directory = temporaryDirectory(t)
  chmodSync(directory, 0o755)
  const path = join(directory, 'secrets.db')
  const modes = () => readdirSync(directory).map((name) => (statSync(join(directory, name)).mode & 0o777).toString(8))
  let store = await open(path)
  await store.commit({ puts: [{ path: 'a', value: Buffer.from('a') }], deletes: [] })
  assert.deepEqual([...new Set(modes())], ['600'], String(readdirSync(directory)))
  await store.close()
  for (const name of readdirSync(directory)) chmodSync(join(directory, name), 0o644)
  store = await open(path)
  t.after(() => store.close())
  await store.commit({ puts: [{ path: 'b', value: Buffer.from('b') }], deletes: [] })
  assert.deepEqual([...new Set(modes())], ['600'], String(readdirSync(directory)))
  assert.equal(Buffer.from(store.get('a')?.value ?? []).toString(), 'a')
})
