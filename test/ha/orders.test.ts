/** Orders of DR replication and the shared state reach the members of an HA cluster. */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { Readable, Writable } from 'node:stream'
import { test } from 'node:test'
import { HistoryDiffers } from '../../src/ha/stream/stream-applier.ts'
import { restoreSnapshot, saveSnapshot } from '../../src/storage/snapshot/snapshot.ts'
import { encodeBatch } from '../../src/storage/sqlite/batch.ts'
import { StoreError } from '../../src/storage/sqlite/store-error.ts'
import { NotChained } from '../../src/storage/store/replica.ts'
import { SqliteStore } from '../../src/storage/store/store.ts'
import { Random } from '../helpers/frames.ts'
import { MemberStore, MemoryStream } from '../helpers/member-stores.ts'
import { copy, entriesOf, openStore, positionOf, put, randomBatch, ship } from '../helpers/replica-pair.ts'

/** Everything that members share. */
function sharedOf({ store }: MemberStore) {
  const { epoch, isWhole, role } = store
  const shared = store.member.state?.shared.map(({ path, value }) => [path, Buffer.from(value).toString()])
  return { epoch, isWhole, role, shared, position: positionOf(store), entries: entriesOf(store) }
}

async function assertSame(one: MemberStore, other: MemberStore): Promise<void> {
  await other.follow()
  assert.deepEqual(sharedOf(other), sharedOf(one))
}

const STATE = 'local/replication/state'
const batch = (...puts: ReturnType<typeof put>[]) => ({ puts, deletes: [] })

test('the state of replication and the role are shared, other local entries are not, and none of them has a row', async (t) => {
  const stream = new MemoryStream()
  const [a, b] = [await MemberStore.open(t, stream), await MemberStore.open(t, stream)]
  await a.lead()
  await a.store.commit(batch(put('x')))
  await a.store.commit(batch(put(STATE, 'primary')))
  await a.store.commit(batch(put('local/audit/heads', 'of a')))
  await a.store.commit(batch(put('y')))
  assert.equal(a.store.position().sequence, 2)
  await assertSame(a, b)
  assert.equal(b.store.get('local/audit/heads'), undefined)

  await a.store.setRole('fenced', 3)
  await assertSame(a, b)
  assert.deepEqual([b.store.role, b.store.epoch], ['fenced', 3])
  await assert.rejects(async () => b.store.commit(batch(put(STATE, 'other'))), /not the active one/)
  await assert.rejects(b.store.setRole('own', 4), /not the active one/)

  a.yield()
  await b.lead()
  await b.store.setRole('own', 4)
  await b.store.commit({ puts: [], deletes: [STATE] })
  await b.store.commit(batch(put('z')))
  await assertSame(b, a)
  assert.equal(a.store.rowsAfter(2, { rows: 9, bytes: 1 << 20 })[0]?.epoch, 4)
})

test('a group that a member could not apply does not fail its later local commits', async (t) => {
  const { store } = await MemberStore.open(t, new MemoryStream())
  const row = Uint8Array.from(encodeBatch(batch(put('x'))))
  const mark = { stream: 'stream', position: 2, firstSequence: 9, atMs: 0 }
  await assert.rejects(
    store.member.applyLogged([{ bytes: row.buffer, lengths: [row.length], epoch: 0, mark }]),
    NotChained,
  )
  await store.commit(batch(put('local/audit/heads', 'here')))
  assert.equal(store.get('local/audit/heads')?.sequence, 0)
})

test('the outcome of a commit that is in the stream, but not in the database, is not a refusal', async (t) => {
  const stream = new MemoryStream()
  const { log, store } = await MemberStore.open(t, stream)
  // The database refuses rows that do not follow its newest one.
  log.begin({ term: 1, stream, last: 0, nextRow: 5 })
  for (const path of ['x', 'y']) {
    await assert.rejects(
      store.commit(batch(put(path))),
      (error) =>
        error instanceof StoreError && error.kind === 'standby' && /is in the commit stream/.test(error.message),
    )
  }
  assert.equal(stream.payloads.length, 2)
  assert.equal(store.get('x'), undefined)
})

test('a commit that is not appended fails after the commits before it were written', async (t) => {
  // The first commit is one message.
  const stream = Object.assign(new MemoryStream(), { messageBytesMax: 1 << 24 })
  const member = await MemberStore.open(t, stream)
  const { store } = member
  await member.lead()
  const durable: (number | undefined)[] = []
  store.onFailure(() => durable.push(store.get('many/0')?.sequence))
  const appended = stream.publish.bind(stream)
  const late: Promise<void>[] = []
  stream.publish = async (part, last) => {
    const sequence = await appended(part, last)
    // The writer takes some time for the first commit.
    queueMicrotask(() => {
      late.push(assert.rejects(store.commit(batch(put('late'))), /not the active one/))
      member.yield()
    })
    return sequence
  }
  const many = Array.from({ length: 5000 }, (_, at) => put(`many/${at}`))
  assert.equal(await store.commit(batch(...many)), 1)
  await Promise.all(late)
  assert.deepEqual(durable, [1])
})

test('a commit that was queued before a change of the epoch is refused after it, on all members', async (t) => {
  const stream = new MemoryStream()
  const [a, b] = [await MemberStore.open(t, stream), await MemberStore.open(t, stream)]
  await a.lead()
  await a.store.commit(batch(put('x')))
  const raised = a.store.setRole('own', 7)
  const late = a.store.commit(batch(put('late')))
  await assert.rejects(late, (error) => error instanceof StoreError && error.kind === 'fenced')
  await raised
  await a.store.commit(batch(put('y')))
  await assertSame(a, b)
  assert.equal(b.store.get('late'), undefined)
})

test('the members of a DR secondary have the rows and copies of the primary, through takeovers in each step', async (t) => {
  const stream = new MemoryStream()
  const random = new Random(7)
  const primary = await openStore(t, 'primary')
  for (let at = 0; at < 30; at++) await primary.commit(randomBatch(random))
  let [active, standby] = [await MemberStore.open(t, stream), await MemberStore.open(t, stream)]
  await active.lead()
  await active.store.commit(batch(put('own'), put('e/1', 'own')))
  await active.store.setRole('replica')
  await active.store.wipe()
  await assertSame(active, standby)

  const takeOver = async () => {
    active.yield()
    await standby.lead()
    ;[active, standby] = [standby, active]
    await assertSame(active, standby)
  }
  await copy(primary, active.store, { between: async () => void (await primary.commit(randomBatch(random))) })
  await assertSame(active, standby)
  assert.equal(standby.store.isWhole, true)
  await takeOver()
  for (let at = 0; at < 10; at++) await primary.commit(randomBatch(random))
  await ship(primary, active.store)
  await assertSame(active, standby)
  assert.deepEqual(entriesOf(standby.store), entriesOf(primary))
  assert.equal(positionOf(standby.store), positionOf(primary))
  assert.equal(standby.store.clusterId, primary.clusterId)

  // A copy that a takeover interrupts is not complete on the next active server, which repeats it.
  await active.store.beginCopy(primary.position(), primary.clusterId)
  await takeOver()
  assert.equal(active.store.isWhole, false)
  await copy(primary, active.store)
  await takeOver()
  await active.store.setRole('own', 2)
  await active.store.commit(batch(put('promoted')))
  await assertSame(active, standby)
})

test('an order that the active server refuses is not in the stream', async (t) => {
  const stream = new MemoryStream()
  const primary = await openStore(t, 'primary')
  for (const path of ['a', 'b', 'c']) await primary.commit(batch(put(path)))
  const a = await MemberStore.open(t, stream)
  await a.lead()
  await a.store.setRole('replica')
  const before = stream.payloads.length
  const rows = primary.rowsAfter(0, { rows: 9, bytes: 1 << 20 })
  await assert.rejects(a.store.applyRows(rows.slice(1)), NotChained)
  const changed = rows.map((row) => ({ ...row, batch: Buffer.concat([row.batch, Buffer.from('x')]) }))
  await assert.rejects(a.store.applyRows(changed), NotChained)
  assert.equal(stream.payloads.length, before)
  await a.store.applyRows(rows)
  assert.equal(positionOf(a.store), positionOf(primary))
})

test('a member with other entries does not execute an order', async (t) => {
  const stream = new MemoryStream()
  const [a, b] = [await MemberStore.open(t, stream), await MemberStore.open(t, stream)]
  await a.lead()
  await a.store.commit(batch(put('x')))
  await b.follow()
  await b.store.close()
  const alone = await SqliteStore.open(b.path)
  await alone.commit(batch(put('only/here')))
  await alone.close()
  await a.store.setRole('fenced', 2)
  const again = await MemberStore.open(t, stream, b.path)
  await assert.rejects(again.follow(), HistoryDiffers)
  assert.equal(again.store.role, 'own')
})

test('a member with another history at the same row detects it with the next group or order', async (t) => {
  for (const next of ['group', 'order'] as const) {
    const [stream, other] = [new MemoryStream(), new MemoryStream()]
    const [a, b] = [await MemberStore.open(t, stream), await MemberStore.open(t, other)]
    await a.lead()
    await b.lead()
    await a.store.commit(batch(put('x')))
    await b.store.commit(batch(put('only/here')))
    if (next === 'group') await a.store.commit(batch(put('y')))
    else await a.store.setRole('fenced', 2)
    b.yield()
    other.payloads.push(...stream.payloads.slice(1))
    await assert.rejects(b.follow(), HistoryDiffers, next)
    assert.equal(b.store.role, 'own')
  }
})

test('a change of the role without the commit log takes the database out of the stream', async (t) => {
  const stream = new MemoryStream()
  const a = await MemberStore.open(t, stream)
  await a.lead()
  await a.store.commit(batch(put('x')))
  await a.store.close()
  const alone = await SqliteStore.open(a.path)
  assert.equal(alone.member.streamMark?.row, 1)
  await alone.commit(batch(put(STATE, 'changed')))
  assert.equal(alone.member.streamMark?.row, -1)
  await alone.close()
})

test('a member takes over role, epoch and shared state with the entries of another one', async (t) => {
  const stream = new MemoryStream()
  const [a, b] = [await MemberStore.open(t, stream), await MemberStore.open(t, stream)]
  await a.lead()
  await a.store.commit(batch(put('x')))
  await b.follow()
  await a.store.commit(batch(put(STATE, 'secondary')))
  await a.store.setRole('replica', 5)
  await a.store.beginCopy({ sequence: 9, epoch: 4, checksum: new Uint8Array(32).fill(1) }, 'cluster of the primary')
  const { state: memberState } = a.store.member
  assert.ok(memberState)
  await b.store.member.beginCopy(memberState)
  assert.deepEqual([b.store.member.isJoining, b.store.isWhole], [true, false])
  assert.equal(b.store.member.state, undefined, 'its entries are not those of the stream yet')
  await b.store.member.finishCopy()
  assert.deepEqual(sharedOf(b), sharedOf(a))
  // The copy from the primary goes on.
  assert.deepEqual([b.store.member.isJoining, b.store.isWhole], [false, false])
  await a.store.finishCopy()
  await assertSame(a, b)
})

async function saved(store: SqliteStore): Promise<Buffer> {
  const chunks: Buffer[] = []
  const out = new Writable({ write: (chunk: Buffer, _, done) => (chunks.push(chunk), done()) })
  await saveSnapshot(store, out)
  return Buffer.concat(chunks)
}

test('a restored snapshot is on all members, and a damaged one on none', async (t) => {
  const stream = new MemoryStream()
  const [a, b] = [await MemberStore.open(t, stream), await MemberStore.open(t, stream)]
  await a.lead()
  await a.store.commit(batch(put('kept', 'x'.repeat(100_000)), put('also/kept')))
  await a.store.commit(batch(put(STATE, 'primary')))
  const snapshot = await saved(a.store)
  await a.store.commit(batch(put('kept', 'changed'), put('new')))
  await b.follow()
  const before = sharedOf(b)
  await assert.rejects(
    restoreSnapshot(a.store, Readable.from([snapshot]), { requires: ['core/keyring'] }),
    /no keys to unseal/,
  )
  await assertSame(a, b)
  assert.deepEqual(sharedOf(b), before)

  let replaced = 0
  b.store.onOrder(() => replaced++)
  await restoreSnapshot(a.store, Readable.from([snapshot]))
  await a.store.commit(batch(put('after')))
  await assertSame(a, b)
  assert.equal(replaced, 1)
  assert.deepEqual(b.store.paths(''), ['after', 'also/kept', 'kept', STATE])
  assert.equal(existsSync(`${b.path}.restore`), false)
  await assert.rejects(restoreSnapshot(b.store, Readable.from([snapshot])), /restore the snapshot at the active one/)
})

test('a member without the parts of a snapshot does not restore it', async (t) => {
  const stream = new MemoryStream()
  const [a, b] = [await MemberStore.open(t, stream), await MemberStore.open(t, stream)]
  await a.lead()
  await a.store.commit(batch(put('x')))
  await b.follow()
  const snapshot = await saved(a.store)
  const { state: memberState } = a.store.member
  await restoreSnapshot(a.store, Readable.from([snapshot]))
  // It joins between the parts and the restore.
  assert.ok(memberState)
  const parts = stream.payloads.length - 1
  await b.store.member.beginCopy({ ...memberState, mark: { ...memberState.mark, position: parts } })
  await b.store.member.finishCopy()
  await assert.rejects(b.follow(), HistoryDiffers)
})
