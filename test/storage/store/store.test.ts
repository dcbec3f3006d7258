/** The store on a real database: the contract, its log, its epochs, a full disk, a killed process. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { decodeBatch } from '../../../src/storage/sqlite/batch.ts'
import { checksumOf } from '../../../src/storage/sqlite/rows.ts'
import { SqliteStore, StoreError } from '../../../src/storage/store/store.ts'
import { storeContract } from '../contract.ts'
import { EVERY_ROW } from '../../helpers/every-row.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

async function openIn(t: TestContext, directory = temporaryDirectory(t)): Promise<SqliteStore> {
  const store = await SqliteStore.open(join(directory, 'secrets.db'))
  t.after(() => store.close())
  return store
}

const put = (path: string, value = path) => ({ path, value: Buffer.from(value) })

storeContract('sqlite', (t) => openIn(t))

test('every commit has a log row chained to the previous one, and local commits have none', async (t) => {
  const store = await openIn(t)
  await store.commit({ puts: [put('a')], deletes: [] })
  await store.commit({ puts: [put('local/key')], deletes: [] })
  await store.commit({ puts: [put('b')], deletes: ['a'] })
  const rows = store.rowsAfter(0, EVERY_ROW)
  assert.deepEqual(
    rows.map(({ sequence }) => sequence),
    [1, 2],
  )
  let before: Uint8Array = new Uint8Array(32)
  for (const row of rows) {
    assert.ok(checksumOf(row, before).equals(row.checksum))
    before = row.checksum
  }
  assert.deepEqual(decodeBatch(rows[1]?.batch ?? Buffer.alloc(0)).deletes, ['a'])
  assert.deepEqual(store.position().sequence, 2)
  assert.equal(store.rowsAfter(1, EVERY_ROW).length, 1)
})

test('pending returns the newest queued value while an older one becomes durable', async (t) => {
  const store = await openIn(t)
  const text = () =>
    Buffer.from(store.pending('a')?.value ?? [])
      .toString()
      .slice(0, 6)
  for (let round = 0; round < 20; round++) {
    const first = store.commit({ puts: [put('a', `old ${round}`)], deletes: [] })
    // The writer has the first one when the second comes, which takes longer.
    for (let turn = 0; turn < 4; turn++) await nextTurn()
    const large = { path: `large/${round}`, value: Buffer.alloc(1 << 20) }
    const second = store.commit({ puts: [put('a', `new ${round}`.padEnd(1 << 16)), large], deletes: [] })
    await first
    assert.equal(text(), `new ${round}`.padEnd(6))
    await second
    assert.equal(text(), `new ${round}`.padEnd(6))
  }
})

test('a higher epoch fences commits of an older one, also after a restart', async (t) => {
  const directory = temporaryDirectory(t)
  const store = await openIn(t, directory)
  await store.commit({ puts: [put('a')], deletes: [] })
  const raised = store.raiseEpoch(5)
  const late = store.commit({ puts: [put('a', 'late')], deletes: [] })
  await raised
  await assert.rejects(late, (error: StoreError) => error.kind === 'fenced')
  assert.equal(Buffer.from(store.get('a')?.value ?? []).toString(), 'a')
  await store.commit({ puts: [put('b')], deletes: [] })
  await store.close()
  const again = await openIn(t, directory)
  assert.equal(again.epoch, 5)
  assert.equal(again.position().epoch, 5)
})

test('a full disk refuses commits, keeps the entries, and accepts commits once there is space', async (t) => {
  const directory = temporaryDirectory(t)
  const small = join(directory, 'small')
  mkdirSync(small)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', small], { stdio: 'ignore' })
  } catch {
    return t.skip('needs the right to mount')
  }
  try {
    await onSmallDisk(small)
  } finally {
    execFileSync('umount', ['-l', small])
  }
})

async function onSmallDisk(small: string): Promise<void> {
  const store = await SqliteStore.open(join(small, 'secrets.db'))
  await store.commit({ puts: [put('kept')], deletes: [] })
  execFileSync('sh', ['-c', `cat /dev/zero > ${small}/ballast 2>/dev/null || true`])
  let refused = 0
  for (let at = 0; at < 40; at++) {
    try {
      await store.commit({ puts: [{ path: `big/${at}`, value: Buffer.alloc(50_000, at) }], deletes: [] })
    } catch (error) {
      assert.ok(error instanceof StoreError && error.kind === 'full', String(error))
      assert.equal(store.get(`big/${at}`), undefined)
      refused++
    }
  }
  assert.ok(refused > 0)
  assert.equal(Buffer.from(store.get('kept')?.value ?? []).toString(), 'kept')
  execFileSync('rm', [`${small}/ballast`])
  // The disk is looked at five times a second.
  const after = async () => store.commit({ puts: [put('after')], deletes: [] })
  while (!(await after().catch((error: StoreError) => assert.equal(error.kind, 'full')))) await sleep(20)
  await store.close()
  assert.deepEqual(checkDatabase(join(small, 'secrets.db')), [])
}
