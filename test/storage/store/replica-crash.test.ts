/** A replica whose process is killed or whose disk is full: the database is intact after each step, and catches up with the primary. */
import assert from 'node:assert/strict'
import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync, rmSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { checkDatabase } from '../../../src/storage/store/database-check.ts'
import { openForWriting } from '../../../src/storage/sqlite/database.ts'
import { type ReplicaOrder, ReplicaWriter } from '../../../src/storage/store/replica-writer.ts'
import { SqliteStore, StoreError } from '../../../src/storage/store/store.ts'
import { TreeWriter } from '../../../src/storage/store/tree-writer.ts'
import { Writer } from '../../../src/storage/store/batch-transaction.ts'
import { eventually } from '../../helpers/eventually.ts'
import { Random } from '../../helpers/frames.ts'
import {
  copy,
  entriesOf,
  openReplica,
  openStore,
  positionOf,
  put,
  randomBatch,
  ship,
} from '../../helpers/replica-pair.ts'
import { copyDatabase, StepCopies } from '../../helpers/step-copies.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

const SEED = Number(process.env['OUTPOST_SEED'] ?? Math.floor(Math.random() * 1e9))
/** Of the copies, those that are gone on with. */
const RESUMED = Number(process.env['REPLICA_CRASHES'] ?? 14)

async function assertSame(primary: SqliteStore, replica: SqliteStore): Promise<void> {
  assert.deepEqual(entriesOf(replica), entriesOf(primary))
  assert.equal(positionOf(replica), positionOf(primary))
  assert.deepEqual(await replica.tree.root(), await primary.tree.root())
  assert.deepEqual((await replica.tree.check()).trees.replicated.pages.size, 0)
}

async function reopened(t: TestContext, path: string): Promise<SqliteStore> {
  const store = await SqliteStore.open(path)
  t.after(() => store.close())
  return store
}

/** A replica that notes its orders. */
class NotedReplica {
  readonly orders: ReplicaOrder[] = []

  constructor(replica: SqliteStore) {
    const noted = (order: ReplicaOrder) => void this.orders.push(order)
    const on = SqliteStore.prototype
    replica.applyRows = (rows) => (noted({ do: 'apply', rows }), on.applyRows.call(replica, rows))
    replica.beginCopy = (from, clusterId) => {
      noted({ do: 'begin copy', from, clusterId })
      return on.beginCopy.call(replica, from, clusterId)
    }
    replica.copyEntries = (puts, deletes) => {
      noted({ do: 'copy', puts, deletes })
      return on.copyEntries.call(replica, puts, deletes)
    }
    replica.finishCopy = () => (noted({ do: 'finish copy' }), on.finishCopy.call(replica))
    replica.wipe = () => (noted({ do: 'wipe' }), on.wipe.call(replica))
  }
}

/** The same orders once more on a copy of the database, which is copied after each transaction: what a kill can leave. */
function replayed(t: TestContext, path: string, orders: readonly ReplicaOrder[]): StepCopies<string> {
  let said = 'open'
  const [directory, name] = [dirname(path), basename(path)]
  const copies = new StepCopies({ directory, name, room: temporaryDirectory(t), said: () => said })
  const database = openForWriting(path)
  const writer = new Writer(database, undefined, Date.now, {
    beforeCommit: () => undefined,
    afterCommit: () => copies.take(),
  })
  const tree = new TreeWriter(database, writer)
  const replica = new ReplicaWriter(database, writer)
  tree.execute({ do: 'keep' })
  for (const order of orders) {
    said = order.do
    replica.execute(order)
  }
  database.close()
  return copies
}

test('a replica that is killed at any step of a copy, of applied rows or of a wipe recovers', async (t) => {
  t.diagnostic(`OUTPOST_SEED=${SEED}`)
  const random = new Random(SEED)
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  const write = async (batches: number) => {
    await Promise.all(Array.from({ length: batches }, () => primary.commit(randomBatch(random, 80))))
  }
  // What it had before: another history, whose log has to go.
  await replica.setRole('own')
  for (let at = 0; at < 20; at++) await replica.commit(randomBatch(random, 80))
  await replica.commit({ puts: [put('local/replication/state')], deletes: [] })
  await replica.setRole('replica')
  await write(30)
  await replica.tree.enable()
  const before = join(temporaryDirectory(t), 'replica.db')
  copyDatabase(replica.path, before)
  const { orders } = new NotedReplica(replica)
  await copy(primary, replica, { piece: 20, between: async () => void (random.chance(0.3) && (await write(2))) })
  await write(20)
  await ship(primary, replica, 3)
  await assertSame(primary, replica)
  await replica.wipe()
  const { all } = replayed(t, before, orders)
  const states = new Map<string, number>()
  const every = Math.max(1, Math.floor(all.length / RESUMED))
  const first = new Set(orders.map((order) => all.findIndex(({ said }) => said === order.do)))
  for (const { path } of all.filter((_, at) => at % every === 0 || first.has(at))) {
    assert.deepEqual(checkDatabase(path), [])
    const killed = await reopened(t, path)
    assert.equal(killed.role, 'replica')
    assert.ok(killed.get('local/replication/state'))
    const state = killed.isWhole ? (primary.holds(killed.position()) ? 'follows' : 'other') : 'copies'
    states.set(state, (states.get(state) ?? 0) + 1)
    await killed.tree.enable()
    // A whole one follows the log where that goes back so far; any other begins its copy again with what it has.
    if (state === 'follows' && killed.position().sequence > 0) await ship(primary, killed)
    else await copy(primary, killed)
    await assertSame(primary, killed)
    assert.equal(killed.isWhole, true)
    await killed.close()
  }
  t.diagnostic(`${all.length} copies: ${JSON.stringify([...states])}`)
  for (const state of ['copies', 'follows']) assert.ok(states.has(state), `none ${state}`)
})

test('a process that is killed while it applies rows keeps the acknowledged rows, each atomically', async (t) => {
  const random = new Random(SEED)
  const primary = await openStore(t, 'primary')
  const replica = await openReplica(t)
  await primary.tree.enable()
  await replica.tree.enable()
  for (let at = 0; at < 400; at++) await primary.commit(randomBatch(random))
  await Promise.all([primary.close(), replica.close()])
  const child = spawn(process.execPath, [join(import.meta.dirname, 'replica-applier.ts'), primary.path, replica.path])
  let [said, errors] = ['', '']
  child.stdout.on('data', (bytes: Buffer) => (said += bytes.toString()))
  child.stderr.on('data', (bytes: Buffer) => (errors += bytes.toString()))
  const closed = once(child, 'close')
  await eventually(() => said.split('\n').length > 20)
  child.kill('SIGKILL')
  assert.deepEqual(await closed, [null, 'SIGKILL'], `it ended by itself: ${errors}`)
  assert.deepEqual(checkDatabase(replica.path), [])
  const [from, to] = [await reopened(t, primary.path), await reopened(t, replica.path)]
  const last = Number(said.trimEnd().split('\n').at(-1))
  assert.ok(to.position().sequence >= last, `${to.position().sequence} is there, ${last} was said`)
  assert.ok(from.holds(to.position()))
  await ship(from, to)
  await assertSame(from, to)
})

test('a replica with a full disk applies nothing partially and continues once there is space', async (t) => {
  const small = join(temporaryDirectory(t), 'small')
  mkdirSync(small)
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=3m', 'tmpfs', small], { stdio: 'ignore' })
  } catch {
    return t.skip('needs the right to mount')
  }
  const primary = await openStore(t, 'primary')
  const replica = await SqliteStore.open(join(small, 'replica.db'))
  try {
    await fillDisk(primary, replica, small)
  } finally {
    await replica.close()
    execFileSync('umount', ['-l', small])
  }
})

const isFull = (error: unknown) => error instanceof StoreError && error.kind === 'full'

async function fillDisk(primary: SqliteStore, replica: SqliteStore, small: string): Promise<void> {
  await replica.setRole('replica')
  for (let at = 0; at < 40; at++) await primary.commit({ puts: [put(`e/${at}`, 'v'.repeat(3000))], deletes: [] })
  await primary.tree.enable()
  await replica.tree.enable()
  await replica.applyRows(primary.rowsAfter(0, { rows: 20, bytes: 1 << 20 }))
  execFileSync('sh', ['-c', `cat /dev/zero > ${small}/ballast 2>/dev/null || true`])
  await assert.rejects(async () => {
    for (;;) {
      await primary.commit({ puts: [put('large', 'l'.repeat(200_000))], deletes: [] })
      await ship(primary, replica, 1)
    }
  }, isFull)
  const before = [positionOf(replica), entriesOf(replica).length]
  await assert.rejects(ship(primary, replica, 1), isFull)
  assert.deepEqual([positionOf(replica), entriesOf(replica).length], before)
  assert.ok(primary.holds(replica.position()))
  rmSync(join(small, 'ballast'))
  await eventually(async () => {
    await ship(primary, replica, 1).catch((error: unknown) => {
      if (!isFull(error)) throw error
    })
    return positionOf(replica) === positionOf(primary)
  })
  await assertSame(primary, replica)
  assert.deepEqual(checkDatabase(replica.path), [])
}
