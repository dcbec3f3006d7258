/** The link in bad weather: it is cut, slow, limited, and its log does not reach back far enough. */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { test } from 'node:test'
import { type CuttingProxy, cuttingProxy } from '../../helpers/cutting-proxy.ts'
import { quietPort } from '../../helpers/quiet-port.ts'
import { RowApplier } from '../../../src/dr/secondary/row-applier.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { eventually } from '../../helpers/eventually.ts'
import { Random } from '../../helpers/frames.ts'
import { activate, bundleFor, Site, untilSame } from '../../helpers/replication-site.ts'
import { temporaryDirectory } from '../../helpers/temporary-directory.ts'

/** Far above what a busy machine holds a heartbeat back. */
const SILENCE_MS = 4000
const BEAT_MS = 50

/** Multiple of three. */
const ROUNDS = Number(process.env['OUTPOST_LINK_CUTS'] ?? 6)
const seed = Number(process.env['OUTPOST_SEED'] ?? Math.floor(Math.random() * 2 ** 31))

test(`a link that is cut again and again, anywhere, loses nothing (OUTPOST_SEED=${seed})`, async (t) => {
  const random = new Random(seed)
  // Heartbeats tell this address: a secondary would dial another one where the first fails.
  let via = '127.0.0.1:1'
  const primary = await Site.start(t, 'primary', { clusterAddress: () => via })
  const secondary = await Site.start(t, 'secondary')
  await primary.putMany('before', 200, 400)
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  const proxy = await cuttingProxy(t, primary.replication.listening?.port ?? 0)
  via = new URL(proxy.url).host
  const bundle = await bundleFor(primary, 'secondary')
  await secondary.replication.enableSecondary(bundle)
  // The cut is at any byte of the handshake, the copy, the log or a heartbeat. Every third connection is not cut.
  for (let round = 0; round < ROUNDS; round++) {
    const before = proxy.count
    proxy.bytesLeft = random.between(1, random.pick([500, 5000, 50_000, 200_000]))
    await primary.putMany(`round/${round}`, random.between(1, 20), random.pick([10, 1000, 20_000]))
    await primary.store.commit({ puts: [], deletes: [`before/${round}`] })
    if (round % 3 === 2) proxy.bytesLeft = Number.POSITIVE_INFINITY
    else await eventually(() => isCut(proxy, before, primary), 'it dials again')
  }
  proxy.bytesLeft = Number.POSITIVE_INFINITY
  await untilSame(primary, secondary)
  assert.equal(secondary.text(`before/${ROUNDS - 1}`), undefined)
  assert.equal((await secondary.replication.merkleCheck()).merkle_corruption_report.corrupted_root, false)
})

/** Writes until the link has carried as many bytes as it may: a quiet link needs minutes for them. */
async function isCut(proxy: CuttingProxy, before: number, primary: Site): Promise<boolean> {
  if (proxy.count === before) await primary.put('more', randomBytes(20_000))
  return proxy.count > before
}

test('a secondary that was away for longer than the log reaches copies only what differs', async (t) => {
  const log = { bytesMax: 40_000, ageMaxMs: 3_600_000, behindBytesMax: 40_000 }
  const [primary, secondary] = [await Site.start(t, 'primary', { log }), await Site.start(t, 'secondary')]
  await primary.putMany('kept', 200, 1000)
  await activate(primary, secondary)
  await secondary.close()
  await primary.putMany('new', 60, 1000)
  await primary.putMany('new', 60, 1000)
  await primary.put('kept/3', 'changed')
  await primary.store.commit({ puts: [], deletes: ['kept/4'] })
  secondary.lines.length = 0
  await secondary.restart()
  await untilSame(primary, secondary)
  assert.equal(secondary.text('kept/3'), 'changed')
  assert.ok(secondary.said(/log gap, starting Merkle comparison/))
  const copied = secondary.said(/Merkle sync complete/)
  assert.equal(copied?.fields['entries'], 62, '60 new, one changed, one removed')
})

test('an interrupted initial sync resumes with the entries that it has', async (t) => {
  const [primary, secondary] = [
    await Site.start(t, 'primary', { settings: { bandwidthBytes: 2_000_000 } }),
    await Site.start(t, 'secondary'),
  ]
  await primary.putMany('many', 1500, 2000)
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  await secondary.replication.enableSecondary(await bundleFor(primary, 'secondary'))
  await eventually(() => secondary.store.paths('many/').length > 500, 'a part is there')
  const begun = secondary.store.paths('many/').length
  secondary.lines.length = 0
  await secondary.restart()
  await untilSame(primary, secondary)
  const copied = Number(secondary.said(/Merkle sync complete/)?.fields['entries'])
  assert.ok(copied <= 1500 - begun, `${copied} were copied after ${begun} were there`)
})

test('an initial sync is complete only behind the last entry that it has read', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await primary.put('changed', 'before')
  const { tree } = primary.store
  const leaves = tree.leaves.bind(tree)
  let changedAt = 0
  // After the listing, and before the entry is read.
  tree.leaves = async (...listed) => {
    const found = await leaves(...listed)
    if (changedAt === 0) changedAt = await primary.put('changed', 'meanwhile')
    return found
  }
  const { store } = secondary
  const finishCopy = store.finishCopy.bind(store)
  const finishedAt: number[] = []
  store.finishCopy = async () => {
    finishedAt.push(store.position().sequence)
    await finishCopy()
  }
  await activate(primary, secondary)
  assert.ok(changedAt > 0)
  assert.deepEqual(finishedAt, [changedAt])
})

test('values larger than a message are sent in chunks', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await primary.put('large/copied', Buffer.alloc(5 << 20, 1))
  await activate(primary, secondary)
  await primary.put('large/shipped', Buffer.alloc(9_000_001, 2))
  await primary.put('small')
  await untilSame(primary, secondary)
  assert.equal(secondary.store.get('large/shipped')?.value.length, 9_000_001)
})

test('rows that arrive faster than they are applied pause the stream until half of them are applied', async (t) => {
  const primary = await Site.start(t, 'primary')
  await primary.putMany('many', 40, 1000)
  const store = await SqliteStore.open(`${temporaryDirectory(t)}/secrets.db`)
  t.after(() => store.close())
  await store.setRole('replica')
  const told: string[] = []
  const { promise: applied, resolve } = Promise.withResolvers<number>()
  const flow = { pause: () => told.push('pause'), resume: () => told.push('resume') }
  const rows = primary.store.rowsAfter(0, { rows: 40, bytes: 1 << 20 })
  const applier = new RowApplier(store, flow, 20_000, {
    onApplied: async ({ sequence }) => {
      assert.ok(applier.waiting > 0, 'until what follows is done as well')
      if (sequence === rows.length) resolve(sequence)
    },
    onFailure: (error) => assert.fail(String(error)),
  })
  for (const row of rows) applier.enqueue([row])
  assert.equal(applier.waiting > 0 && told.at(-1), 'pause')
  await applied
  await applier.drain()
  assert.equal(told.at(-1), 'resume')
  assert.equal(store.position().sequence, rows.length)
  applier.enqueue(rows)
  assert.equal(applier.waiting, 0, 'nothing is taken behind a drain')
})

test('a secondary that applies rows for longer than the silence limit stays connected', async (t) => {
  const timings = { silenceMs: SILENCE_MS, beatMs: BEAT_MS }
  const [held, reached] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  t.after(() => held.resolve())
  const primary = await Site.start(t, 'primary', { timings })
  // A row is above the limit: the stream is paused, and no heartbeat is read.
  const secondary = await Site.start(t, 'secondary', { timings, settings: { bufferBytes: 10_000 } })
  await activate(primary, secondary)
  const { store } = secondary
  const apply = store.applyRows.bind(store)
  store.applyRows = async (rows) => {
    reached.resolve()
    await held.promise
    const position = await apply(rows)
    // The next check of the silence is due before another message can be read.
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2 * BEAT_MS)
    return position
  }
  const sequence = await primary.put('large', Buffer.alloc(20_000))
  await reached.promise
  const untilMs = performance.now() + 1.25 * SILENCE_MS
  await eventually(() => performance.now() > untilMs, 'the disk is slow')
  assert.deepEqual([primary.said(/disconnected/), secondary.said(/interrupted/)], [undefined, undefined])
  held.resolve()
  const connected = () => primary.replication.metrics.primary?.secondaries[0]
  await eventually(() => connected()?.lagEntries === 0 && store.position().sequence === sequence, 'it is applied')
  assert.deepEqual([primary.said(/disconnected/), secondary.said(/interrupted/)], [undefined, undefined])
  assert.equal(secondary.replication.metrics.secondary?.connections, 1)
})

test('a slow secondary costs the primary at most one window', async (t) => {
  const settings = { bufferBytes: 1 << 20 }
  const [primary, secondary] = [await Site.start(t, 'primary', { settings }), await Site.start(t, 'secondary')]
  await activate(primary, secondary)
  // It takes nothing until it may.
  let isSlow = true
  const { store } = secondary
  const apply = store.applyRows.bind(store)
  const waiting: (() => void)[] = []
  store.applyRows = async (rows) => {
    if (isSlow) await new Promise<void>((resolve) => waiting.push(resolve))
    return apply(rows)
  }
  let most = 0
  for (let round = 0; round < 10; round++) {
    await primary.putMany(`round/${round}`, 50, 10_000)
    most = Math.max(most, primary.replication.metrics.primary?.secondaries[0]?.inFlightBytes ?? 0)
  }
  assert.ok(most <= 3 << 20, `${most} bytes were on their way`)
  assert.ok(Number(await primary.field('lag_entries')) > 400)
  isSlow = false
  for (const resolve of waiting) resolve()
  await untilSame(primary, secondary)
})

test('the lag and the last acknowledgement of a disconnected secondary survive a restart of its primary', async (t) => {
  const port = await quietPort()
  const [primary, secondary] = [await Site.start(t, 'primary', { port }), await Site.start(t, 'secondary')]
  await activate(primary, secondary)
  await primary.putMany('more', 20)
  await untilSame(primary, secondary)
  const row = async () => ((await primary.field('secondaries')) as Row[])[0]
  const head = primary.store.position().sequence
  await eventually(async () => (await row())?.last_acknowledged_wal === head, 'it has acknowledged everything')
  await secondary.close()
  await eventually(async () => ((await row())?.lag_seconds ?? 0) > 0.5, 'the lag grows although nothing is committed')
  assert.equal(primary.said(/^DR secondary disconnected$/)?.level, 'warn')
  const before = (await row())?.lag_seconds ?? 0
  await primary.restart()
  const after = await row()
  assert.equal(after?.last_acknowledged_wal, head)
  assert.ok((after?.lag_seconds ?? 0) >= before, `${after?.lag_seconds} s, ${before} s before`)
  await secondary.restart()
  await eventually(async () => (await row())?.lag_seconds === 0, 'it has everything again')
})

test('the log of a secondary has the end of an interruption', async (t) => {
  const port = await quietPort()
  const [primary, secondary] = [await Site.start(t, 'primary', { port }), await Site.start(t, 'secondary')]
  await activate(primary, secondary)
  assert.equal(secondary.said(/resumed/), undefined)
  await primary.close()
  await eventually(() => secondary.said(/^replication from primary interrupted$/)?.level === 'warn')
  await primary.restart()
  await eventually(() => secondary.said(/^replication from primary resumed$/)?.level === 'info')
})

interface Row {
  readonly lag_seconds: number
  readonly last_acknowledged_wal: number
}

test('heartbeats measure the clock skew, and both sides report it', async (t) => {
  const primary = await Site.start(t, 'primary')
  let skewMs = 90_000
  const secondary = await Site.start(t, 'secondary', { now: () => Date.now() + skewMs })
  await activate(primary, secondary)
  await eventually(async () => {
    const [first] = (await primary.field('secondaries')) as { clock_skew_ms: string; last_heartbeat: string }[]
    return near(first?.clock_skew_ms, 90_000) && /^\d{4}-.*Z$/.test(String(first?.last_heartbeat))
  }, 'the primary tells it')
  await eventually(async () => {
    const [first] = (await secondary.field('primaries')) as { clock_skew_ms: string }[]
    return near(first?.clock_skew_ms, -90_000)
  }, 'the secondary tells it')
  assert.equal(primary.said(/^clock skew to the DR secondary$/)?.level, 'warn')
  const own = await eventually(() => secondary.said(/^clock skew to the DR primary$/), 'its log too', 10_000)
  assert.deepEqual([own.level, own.fields['primary']], ['warn', 'http://primary'])
  assert.ok(near(own.fields['skew_seconds'], 90, 20), String(own.fields['skew_seconds']))
  // A new connection measures again.
  await primary.restart({ port: primary.replication.listening?.port ?? 0 })
  await eventually(() => secondary.said(/^replication from primary resumed$/))
  await eventually(async () => {
    const [first] = (await secondary.field('primaries')) as { clock_skew_ms: string }[]
    return near(first?.clock_skew_ms, -90_000)
  })
  assert.equal(secondary.said(/^clock skew to the DR primary resolved$/), undefined)
  assert.equal(secondary.lines.filter(({ message }) => message === 'clock skew to the DR primary').length, 1)
  skewMs = 0
  // oxlint-disable-next-line no-await-in-loop
  for (const [site, other] of [
    [primary, 'secondary'],
    [secondary, 'primary'],
  ] as const)
    await eventually(() => site.said(new RegExp(`^clock skew to the DR ${other} resolved$`))?.level === 'info')
})

/** A busy machine answers a heartbeat late. */
function near(text: unknown, ms: number, tolerance = 20_000): boolean {
  return Math.abs(Number(text) - ms) < tolerance
}
