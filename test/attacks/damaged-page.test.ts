/**
 * An attacker with access to the disk overwrites one page of the database, the root of all entries. SQLite then fails
 * the read and the end of its transaction, which must not end the process.
 */
import assert from 'node:assert/strict'
import { closeSync, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { EVERY_ROW } from '../helpers/every-row.ts'
import { startAgent } from '../helpers/agent-process.ts'
import { freshServer } from '../helpers/secrets-server.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

const PAGE_BYTES = 4096

/** Overwrites the page that every search for an entry begins at. */
function overwriteRoot(path: string): void {
  const database = new DatabaseSync(path)
  database.exec('PRAGMA wal_checkpoint(TRUNCATE)')
  const page = Number(database.prepare("SELECT rootpage FROM sqlite_schema WHERE name = 'entries'").get()?.['rootpage'])
  database.close()
  assert.ok(page > 1)
  const fd = openSync(path, 'r+')
  writeSync(fd, Buffer.alloc(PAGE_BYTES), 0, PAGE_BYTES, (page - 1) * PAGE_BYTES)
  closeSync(fd)
}

test('each read of an entry on a damaged page fails, and no other read does', async (t) => {
  const path = join(temporaryDirectory(t), 'secrets.db')
  const before = await SqliteStore.open(path)
  for (let at = 0; at < 100; at++)
    await before.commit({ puts: [{ path: `d/${at}`, value: Buffer.alloc(900, at) }], deletes: [] })
  await before.close()
  overwriteRoot(path)
  const store = await SqliteStore.open(path)
  for (let at = 0; at < 3; at++) {
    assert.throws(() => store.get(`d/${at}`), /the database .* cannot be read: database disk image is malformed/)
    // An error at the end of the turn would be uncaught and fail this test.
    await turn()
    await turn()
  }
  assert.equal(store.rowsAfter(0, EVERY_ROW).length, 100, 'what lies elsewhere is read')
  await store.close()
})

test('a server that starts on a damaged database keeps reporting the damaged file', { timeout: 280_000 }, async (t) => {
  const { agent, directory } = await freshServer(t, '-key-shares=1 -key-threshold=1')
  await agent.stop()
  overwriteRoot(join(directory, 'data/server/secrets.db'))
  const again = await startAgent(t, ['-config', join(directory, 'server.hcl')])
  const statusOf = async (path: string, body?: object) => {
    const options = body ? { method: 'PUT', body: JSON.stringify(body) } : {}
    const answer = await fetch(`${again.url}/v1/${path}`, options)
    await answer.text()
    return answer.status
  }
  assert.ok(
    (await statusOf('sys/init', { secret_shares: 1, secret_threshold: 1 })) >= 400,
    'nothing new is made in its place',
  )
  assert.equal(await statusOf('agent/ready'), 503)
  // What the timer of the metrics asks, too.
  assert.equal(await statusOf('metrics?format=prometheus'), 200)
  assert.match(again.stderr(), /secrets\.db cannot be read: database disk image is malformed/)
  assert.equal(again.child.exitCode, null)
  again.child.kill('SIGTERM')
  assert.equal(await again.ended, 0)
})
