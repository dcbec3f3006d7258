import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { createWriteStream, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { test } from 'node:test'
import { promisify } from 'node:util'
import { Worker } from 'node:worker_threads'
import { saveSnapshot } from '../../../src/storage/snapshot/snapshot.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { releaseStoreWorker, acquireStoreWorker } from '../../../src/storage/store/store-worker-cache.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const STORE = new URL('../../../src/storage/store/store.ts', import.meta.url).href

async function openAndClose(path: string): Promise<void> {
  const store = await SqliteStore.open(path)
  await store.commit({ puts: [{ path: 'a', value: Buffer.from(path) }], deletes: [] })
  await store.close()
}

/** The thread that the next store gets; it stays the next one. */
async function nextThread(): Promise<number> {
  const worker = acquireStoreWorker()
  const { threadId } = worker
  await releaseStoreWorker(worker)
  return threadId
}

test('the worker of a closed store serves the next store', async (t) => {
  const directory = temporaryDirectory(t)
  await openAndClose(join(directory, 'a.db'))
  const first = await nextThread()
  await openAndClose(join(directory, 'b.db'))
  assert.equal(await nextThread(), first)
})

test('two open stores have separate workers and separate content', async (t) => {
  const directory = temporaryDirectory(t)
  await openAndClose(join(directory, 'a.db'))
  const stores = [await SqliteStore.open(join(directory, 'a.db')), await SqliteStore.open(join(directory, 'b.db'))]
  await Promise.all(
    stores.map((store) => store.commit({ puts: [{ path: 'b', value: Buffer.from(store.path) }], deletes: [] })),
  )
  assert.deepEqual(
    stores.map((store) => store.paths('')),
    [['a', 'b'], ['b']],
  )
  await Promise.all(stores.map((store) => store.close()))
})

test('a worker that could not open its database is not reused', async (t) => {
  const directory = temporaryDirectory(t)
  await openAndClose(join(directory, 'a.db'))
  const before = await nextThread()
  mkdirSync(join(directory, 'folder.db'))
  await assert.rejects(SqliteStore.open(join(directory, 'folder.db')), /folder\.db/)
  await openAndClose(join(directory, 'b.db'))
  assert.notEqual(await nextThread(), before)
})

test('a worker that built a tree or copied a snapshot is reused', async (t) => {
  const directory = temporaryDirectory(t)
  const store = await SqliteStore.open(join(directory, 'a.db'))
  t.after(() => store.close())
  await store.commit({ puts: [{ path: 'a', value: Buffer.from('a') }], deletes: [] })
  await store.tree.enable()
  const first = await nextThread()
  assert.equal((await store.tree.check()).entries, 1)
  await saveSnapshot(store, createWriteStream(join(directory, 'snapshot')))
  assert.equal(await nextThread(), first)
  await openAndClose(join(directory, 'b.db'))
  assert.equal(await nextThread(), first)
})

test('a worker whose copy or tree failed is not reused', async (t) => {
  const directory = temporaryDirectory(t)
  const store = await SqliteStore.open(join(directory, 'a.db'))
  t.after(() => store.close())
  await store.commit({ puts: [{ path: 'a', value: Buffer.from('a') }], deletes: [] })
  await store.tree.enable()
  const other = new DatabaseSync(store.path)
  t.after(() => other.close())
  other.exec('ALTER TABLE entries RENAME TO moved')
  const first = await nextThread()
  await assert.rejects(store.tree.check(), /could not be scanned/)
  const second = await nextThread()
  assert.notEqual(second, first)
  await assert.rejects(
    saveSnapshot(store, createWriteStream(join(directory, 'snapshot'))),
    /taking the snapshot failed/,
  )
  assert.notEqual(await nextThread(), second)
  other.exec('ALTER TABLE moved RENAME TO entries')
})

test('closing a store does not end a worker that now writes for another store', async (t) => {
  const directory = temporaryDirectory(t)
  const posted = t.mock.method(Worker.prototype, 'postMessage')
  /** IDs of the threads that were sent a message whose JSON matches. */
  const threadsOf = (what: RegExp) =>
    posted.mock.calls
      .filter(({ arguments: [message] }) => what.test(JSON.stringify(message)))
      .map(({ this: worker }: { this: unknown }) => worker instanceof Worker && worker.threadId)
  const store = await SqliteStore.open(join(directory, 'a.db'))
  await store.tree.enable()
  const other = await SqliteStore.open(join(directory, 'b.db'))
  t.after(() => other.close())
  const [maker] = threadsOf(/"task":"tree"/)
  assert.ok(maker)
  assert.deepEqual(threadsOf(/b\.db"/), [maker], 'its writer is the thread that made the tree')
  await store.close()
  await other.commit({ puts: [{ path: 'a', value: Buffer.from('a') }], deletes: [] })
  assert.deepEqual(other.paths(''), ['a'])
})

test('a store closes although its tree was built at the same moment', { timeout: 20_000 }, async (t) => {
  const posted = t.mock.method(Worker.prototype, 'postMessage')
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'a.db'))
  await store.tree.enable()
  const before = posted.mock.callCount()
  const checking = store.tree.check().catch(() => undefined)
  const isBuilding = () =>
    posted.mock.calls.slice(before).some(({ arguments: [message] }) => /"task":"tree"/.test(JSON.stringify(message)))
  while (!isBuilding()) await new Promise(setImmediate)
  // Meanwhile the worker reports the tree, and this thread has not received the report when the worker is terminated.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 300)
  await store.close()
  await checking
  await openAndClose(join(temporaryDirectory(t), 'b.db'))
})

test('an idle worker ends after a timeout', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] })
  const worker = acquireStoreWorker()
  await releaseStoreWorker(worker)
  const ended = new Promise((resolve) => worker.once('exit', resolve))
  t.mock.timers.tick(10_000)
  await ended
  const next = acquireStoreWorker()
  assert.notEqual(next.threadId, worker.threadId)
  assert.ok(next.threadId > 0)
  await releaseStoreWorker(next)
})

test('an idle worker does not keep the process running', async (t) => {
  const directory = temporaryDirectory(t)
  const program = join(directory, 'program.mjs')
  writeFileSync(
    program,
    `import { SqliteStore } from ${JSON.stringify(STORE)}
    await (await SqliteStore.open(${JSON.stringify(join(directory, 'a.db'))})).close()
    process.on('exit', () => console.log('ended'))`,
  )
  const { stdout } = await promisify(execFile)(process.execPath, [program])
  assert.equal(stdout, 'ended\n')
})
