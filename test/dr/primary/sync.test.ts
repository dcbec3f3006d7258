/** Synchronous replication, and a primary that stops because it hears from no secondary. */
import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'
import { join } from 'node:path'
import { SyncReplication } from '../../../src/dr/primary/sync-replication.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { eventually } from '../../helpers/eventually.ts'
import { recordingLogger } from '../../helpers/recording-logger.ts'
import { activate, Site, untilSame } from '../../helpers/replication-site.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

/** Far above what a busy machine holds a heartbeat back. */
const FENCE_AFTER_MS = 4000

test('sync: a commit is answered when the secondary has it, or the state is degraded', async (t) => {
  const settings = { sync: true, syncTimeoutMs: 60_000 }
  const [primary, secondary] = [await Site.start(t, 'primary', { settings }), await Site.start(t, 'secondary')]
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  assert.equal(await primary.field('sync'), 'degraded', 'there is no secondary')
  await primary.put('alone')
  await activate(primary, secondary)
  await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up')
  await eventually(async () => (await secondary.field('sync')) === 'on', 'the secondary says so too')

  await t.test('an answered commit is on the secondary', async () => {
    for (let at = 0; at < 20; at++) {
      await primary.put(`sync/${at}`)
      assert.equal(secondary.text(`sync/${at}`), `sync/${at}`)
    }
  })

  await t.test('a commit waits while the secondary is disconnected', async () => {
    await secondary.close()
    let isAnswered = false
    const waiting = primary.put('waits').then(() => (isAnswered = true))
    await eventually(() => primary.replication.metrics.primary?.waiting === 1, 'it waits')
    assert.equal(isAnswered, false)
    assert.equal(primary.text('waits'), 'waits', 'it is durable here')
    await secondary.restart()
    await waiting
    assert.equal(secondary.text('waits'), 'waits')
    await untilSame(primary, secondary)
  })

  await t.test('after sync_timeout commits do not wait until the secondary has caught up', async () => {
    await primary.restart({ settings: { sync: true, syncTimeoutMs: 100 } })
    await secondary.replication.updatePrimary({ addresses: [address(primary)] })
    await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up')
    await secondary.close()
    await primary.put('without')
    assert.equal(await primary.field('sync'), 'degraded')
    assert.ok(primary.said(/synchronous replication degraded/))
    await primary.put('at/once')
    await secondary.restart()
    await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up again')
    assert.equal(secondary.text('at/once'), 'at/once')
  })
})

test('a commit waits for its own acknowledgement and for no later one', async (t) => {
  const store = await SqliteStore.open(join(temporaryDirectory(t), 'secrets.db'))
  t.after(() => store.close())
  let acknowledged = store.position().sequence + 1
  const sync = new SyncReplication(store, recordingLogger([]), 5000, () => ({ acknowledged, isCaughtUp: true }))
  sync.start()
  const commit = (name: string) => store.commit({ puts: [{ path: name, value: Buffer.from('x') }], deletes: [] })
  await commit('first')
  assert.equal(sync.state, 'on', 'it did not wait until that was given up')
  const second = commit('second')
  await eventually(() => sync.waiting === 1, 'it waits')
  acknowledged++
  sync.update()
  await second
  assert.equal(sync.state, 'on')
  sync.stop()
})

test('a commit that waits when its primary is replaced, stopped or demoted fails', async (t) => {
  const options = { settings: { sync: true, syncTimeoutMs: 60_000 } }
  const [old, heir] = [await Site.start(t, 'old', options), await Site.start(t, 'heir', options)]
  const third = await Site.start(t, 'third')
  await activate(old, heir)
  await activate(old, third)
  await on(old)
  await eventually(async () => areWhole(await old.field('secondaries'), 2), 'commits wait for both')
  // It is committed behind the note that both were whole, which a secondary that has left cannot give any more.
  await old.put('both')
  await third.close()
  const replaced = await waits(old, 'replaced')
  await heir.replication.promote({ primaryClusterAddr: '', force: false })
  await replaced.refused

  await third.open()
  await activate(heir, third)
  await on(heir)
  await third.close()
  const stopped = await waits(heir, 'stopped')
  await heir.close()
  await stopped.refused
  await heir.open()
  const demoted = await waits(heir, 'demoted')
  await heir.replication.demote()
  await demoted.refused
})

test('sync stays degraded until the last of two secondaries has caught up', async (t) => {
  const { one, other, primary } = await syncedByTwo(t, { syncTimeoutMs: 100 })
  await Promise.all([one.close(), other.close()])
  await primary.put('without')
  assert.equal(await primary.field('sync'), 'degraded')
  primary.lines.length = 0
  await one.restart()
  await untilSame(primary, one)
  // Its acknowledgement is a reason to look whether all have caught up.
  const sequence = await primary.put('with one')
  await eventually(async () => acknowledgedBy(await primary.field('secondaries'), 'one') === sequence, 'one has it')
  assert.equal(await primary.field('sync'), 'degraded', 'the other lacks it')
  assert.equal(primary.said(/synchronous replication restored/), undefined, 'at no time')
  await other.restart()
  await on(primary)
  assert.equal(other.text('with one'), 'with one')
})

test('revoking a secondary releases the commits that wait for it', async (t) => {
  const { one, other, primary } = await syncedByTwo(t)
  await other.close()
  const waiting = primary.put('for the other')
  await eventually(() => primary.replication.metrics.primary?.waiting === 1, 'it waits')
  await eventually(() => one.text('for the other') !== undefined, 'one has it')
  await primary.replication.revokeSecondary('other')
  assert.equal(primary.replication.metrics.primary?.waiting, 0)
  await waiting
  assert.equal(await primary.field('sync'), 'on', 'it was not given up')

  await one.close()
  const last = primary.put('for the last')
  await eventually(() => primary.replication.metrics.primary?.waiting === 1, 'it waits')
  await primary.replication.revokeSecondary('one')
  assert.equal(primary.replication.metrics.primary?.waiting, 0)
  await last
  const degraded = primary.said(/synchronous replication degraded/)
  assert.deepEqual(degraded?.fields, { why: 'there is no secondary' })
})

test('sync is on again as soon as a secondary has caught up under load, without waiting for a heartbeat', async (t) => {
  const settings = { sync: true, syncTimeoutMs: 200 }
  // One heartbeat at the beginning of each connection, and then none.
  const timings = { heartbeatMs: 600_000, silenceMs: 1_200_000 }
  const primary = await Site.start(t, 'primary', { settings, timings })
  const secondary = await Site.start(t, 'secondary', { timings })
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  await activate(primary, secondary)
  const stop = new AbortController()
  const load = Array.from({ length: 4 }, async (_, writer) => {
    for (let at = 0; !stop.signal.aborted; at++) await primary.put(`load/${writer}/${at % 50}`, `${at}`)
  })
  await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up')
  await secondary.close()
  await eventually(async () => (await primary.field('sync')) === 'degraded', 'it is away')
  await secondary.restart()
  await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up again')
  stop.abort()
  await Promise.all(load)
  await untilSame(primary, secondary)
})

test('fence_after: a primary without messages from a secondary accepts no writes', async (t) => {
  const settings = { fenceAfterMs: FENCE_AFTER_MS }
  const [primary, secondary] = [await Site.start(t, 'primary', { settings }), await Site.start(t, 'secondary')]
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  await activate(primary, secondary)
  await primary.put('a')
  const idleMs = performance.now() + 1.5 * FENCE_AFTER_MS
  await eventually(() => performance.now() > idleMs, 'nothing is written for longer than that')
  assert.equal(primary.store.role, 'own', 'heartbeats are answered')
  await secondary.close()
  await eventually(() => primary.store.role === 'fenced', 'it stops')
  await eventually(() => primary.said(/no heartbeat from a secondary within fence_after/), 'the log says why')
  await assert.rejects(async () => primary.put('b'), /fenced|primary/)
  assert.equal(primary.text('a'), 'a', 'reads go on')
  assert.deepEqual(primary.transitions, [], 'no promotion took place')
  await secondary.restart()
  await eventually(() => primary.store.role === 'own', 'it goes on')
  await primary.put('c')
  await untilSame(primary, secondary)
})

test('a primary that was fenced for silence serves after a restart without fence_after', async (t) => {
  const settings = { fenceAfterMs: FENCE_AFTER_MS }
  const [primary, secondary] = [await Site.start(t, 'primary', { settings }), await Site.start(t, 'secondary')]
  await activate(primary, secondary)
  await secondary.close()
  await eventually(() => primary.store.role === 'fenced', 'it stops')
  assert.equal(primary.replication.fence?.reason, 'isolated')
  await primary.restart({ settings: { fenceAfterMs: 0 } })
  assert.equal(primary.replication.fence, undefined)
  await primary.put('d')
})

async function waits(primary: Site, path: string) {
  const refused = assert.rejects(primary.put(path), /before a secondary acknowledged/, path)
  await eventually(() => primary.replication.metrics.primary?.waiting === 1, 'it waits')
  assert.equal(primary.text(path), path, 'it is durable here')
  return { refused }
}

/** A primary whose commits wait for two secondaries, `one` and `other`. */
async function syncedByTwo(t: TestContext, { syncTimeoutMs = 60_000 } = {}) {
  const primary = await Site.start(t, 'primary', { settings: { sync: true, syncTimeoutMs } })
  const [one, other] = [await Site.start(t, 'one'), await Site.start(t, 'other')]
  await activate(primary, one)
  await activate(primary, other)
  await on(primary)
  await eventually(async () => areWhole(await primary.field('secondaries'), 2), 'commits wait for both')
  await primary.put('both')
  return { one, other, primary }
}

function acknowledgedBy(secondaries: unknown, id: string): unknown {
  assert.ok(Array.isArray(secondaries))
  return secondaries.find((each) => each.node_id === id)?.last_acknowledged_wal
}

async function on(primary: Site): Promise<void> {
  await eventually(async () => (await primary.field('sync')) === 'on', 'it has caught up')
}

function areWhole(secondaries: unknown, count: number): boolean {
  assert.ok(Array.isArray(secondaries))
  return secondaries.length === count && secondaries.every(({ is_whole, lag_entries }) => is_whole && lag_entries === 0)
}

function address(site: Site): string {
  const { host, port } = site.replication.listening ?? { host: '', port: 0 }
  return `${host}:${port}`
}

test('a primary does not report a secondary that starts together with it as missing', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await activate(primary, secondary)
  const { port } = primary.replication.listening ?? { port: 0 }
  const missing = () => primary.said(/^DR secondaries did not connect after the start/)
  await secondary.close()
  await primary.restart({ port, timings: { startMs: 20, graceMs: 60_000 } })
  assert.equal(missing(), undefined, 'it may be starting')
  await secondary.open()
  await eventually(() => primary.said(/^DR secondary connected$/))
  await secondary.close()
  await primary.restart({ port, timings: { startMs: 20, graceMs: 20 } })
  const line = await eventually(missing, 'it does not come')
  assert.deepEqual([line.level, line.fields], ['warn', { secondaries: 'secondary' }])
})
