/** Checkpoints between commits keep the write-ahead log shorter than the limit of an automatic checkpoint. */
import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'node:test'
import { SqliteStore } from '../../../src/storage/store/store.ts'

const VALUE = Buffer.alloc(4000, 'v')
const ROUNDS = 100
const AT_ONCE = 20
/** 2,000 entries take some 40 MiB of it; SQLite's own limit is 16 MiB. */
const WAL_BYTES_MAX = 10 << 20

test('the write-ahead log stays short during continuous commits', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'outpost-checkpoint-'))
  t.after(() => rmSync(directory, { recursive: true, force: true }))
  const store = await SqliteStore.open(join(directory, 'secrets.db'))
  t.after(() => store.close())
  let most = 0
  for (let round = 0; round < ROUNDS; round++) {
    const paths = Array.from({ length: AT_ONCE }, (_, at) => `test/${round}/${at}`)
    await Promise.all(paths.map((path) => store.commit({ puts: [{ path, value: VALUE }], deletes: [] })))
    most = Math.max(most, statSync(`${store.path}-wal`).size)
  }
  assert.ok(most > 2 << 20, `${most} bytes`)
  assert.ok(most < WAL_BYTES_MAX, `${most} bytes`)
  for (const at of [0, ROUNDS - 1]) assert.deepEqual(store.get(`test/${at}/7`)?.value, new Uint8Array(VALUE))
})
