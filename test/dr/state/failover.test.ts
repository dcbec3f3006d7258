/** Promotion, fencing of the replaced primary, and how it joins again. */
import assert from 'node:assert/strict'
import { readFileSync, statSync } from 'node:fs'
import { test } from 'node:test'
import { ReplicationState, type ReplicationRecord } from '../../../src/dr/state/replication-state.ts'
import { decodeBatch } from '../../../src/storage/sqlite/batch.ts'
import { SqliteStore } from '../../../src/storage/store/store.ts'
import { activate, attach, bundleFor, Site, untilSame } from '../../helpers/replication-site.ts'
import { eventually } from '../../helpers/eventually.ts'

test('failover, return of the old primary with a conflict report, and failback', async (t) => {
  const [old, heir] = [await Site.start(t, 'old'), await Site.start(t, 'heir')]
  await old.putMany('shared', 50)
  await activate(old, heir)
  const setId = await old.field('cluster_id')

  await t.test('a secondary is promoted without its primary and continues in a higher epoch', async () => {
    await heir.replication.close()
    await old.put('lost/one', 'never shipped')
    await old.put('lost/two', 'never shipped either')
    await old.close()
    await heir.restart()
    await heir.replication.promote({ primaryClusterAddr: '', force: false })
    assert.equal(heir.replication.mode, 'primary')
    assert.deepEqual(heir.transitions.slice(-1), ['toPrimary'])
    assert.equal(await heir.field('cluster_id'), setId)
    assert.equal(await heir.field('epoch'), 1)
    assert.deepEqual(await heir.field('known_secondaries'), [])
    await heir.put('new/one', 'of the new primary')
    await assert.rejects(() => heir.replication.promote({ primaryClusterAddr: '', force: false }), { status: 400 })
  })

  await t.test('the old primary is fenced when it returns, before it accepts a write', async () => {
    assert.equal(await heir.field('fence_notice'), 'owed')
    // Where it stood before: its cluster port is the same then.
    const { port } = previousPort(heir)
    await old.restart({ port })
    await eventually(() => old.store.role === 'fenced', 'it is fenced')
    await assert.rejects(async () => old.put('too/late'), /fenced|primary/)
    await eventually(() => old.transitions.at(-1) === 'fenced', 'the daemon is notified')
    assert.equal(await old.field('state'), 'fenced')
    assert.equal(await old.field('replaced_by'), 'http://heir')
    await eventually(async () => (await heir.field('fence_notice')) === '', 'the notice is acknowledged')
    await old.restart({ port })
    assert.equal(old.store.role, 'fenced', 'and stays so')
  })

  await t.test(
    'a primary that rejoins after an interrupted demotion reports its unshipped commits and has all data of the new primary',
    async () => {
      const left = await withState(old, (state) => state.change(() => CUT_DEMOTION))
      assert.ok(left.authority && left.deposed, 'the marks of a primary that was replaced')
      assert.equal(old.store.role, 'replica')
      assert.equal(await old.field('state'), 'idle')
      assert.equal(old.replication.primaryAddress, '', 'it knows no primary')
      const now = await withState(old, () => Promise.resolve())
      assert.deepEqual([now.authority, now.deposed, now.secondaries], [undefined, undefined, []])
      await assert.rejects(() => old.replication.updatePrimary({ addresses: [heir.clusterAddress] }), {
        status: 400,
        message: /use a token/,
      })
      await attach(heir, old)
      await untilSame(heir, old)
      assert.equal(old.text('lost/one'), undefined)
      assert.equal(old.text('new/one'), 'of the new primary')
      const report = String(await old.field('conflict_report'))
      assert.equal(statSync(report).mode & 0o777, 0o600)
      const lines = readFileSync(report, 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line) as { puts: string[]; batch: string; epoch: number })
      assert.deepEqual(
        lines.map(({ puts }) => puts),
        [['lost/one'], ['lost/two']],
      )
      const [first] = decodeBatch(Buffer.from(lines[0]?.batch ?? '', 'base64')).puts
      assert.equal(Buffer.from(first?.value ?? []).toString(), 'never shipped')
      const copied = old.said(/Merkle sync complete/)
      assert.ok(Number(copied?.fields['entries']) <= 5, 'only what differs was copied')
    },
  )

  await t.test('failback as a planned switch loses nothing and copies nothing', async () => {
    old.lines.length = 0
    // It has the complete other history before it reports that it follows.
    await eventually(async () => (await old.field('state')) === 'stream-wals', 'it follows its primary')
    await heir.putMany('more', 50)
    await heir.replication.demote()
    await old.replication.promote({ primaryClusterAddr: 'old.example:4647', force: false })
    assert.equal(await old.field('primary_cluster_addr'), 'old.example:4647')
    assert.equal(old.text('more/49'), undefined === heir.text('more/49') ? undefined : heir.text('more/49'))
    heir.lines.length = 0
    const bundle = await bundleFor(old, 'heir')
    assert.equal(bundle.cluster_addr, 'old.example:4647')
    await heir.replication.updatePrimary({ bundle: { ...bundle, cluster_addr: address(old) } })
    await untilSame(old, heir)
    assert.equal(heir.said(/Merkle sync complete/), undefined, 'its history went on')
    assert.equal(await heir.field('conflict_report'), '')
    assert.equal(await old.field('epoch'), 2)
  })
})

test('two secondaries: one is promoted, the other joins it', async (t) => {
  const [old, heir, third] = [await Site.start(t, 'old'), await Site.start(t, 'heir'), await Site.start(t, 'third')]
  await activate(old, heir)
  await activate(old, third)
  await old.put('a')
  await Promise.all([untilSame(old, heir), untilSame(old, third)])
  await heir.replication.promote({ primaryClusterAddr: '', force: false })
  await eventually(() => old.store.role === 'fenced', 'the old primary is notified over its own link')
  await eventually(async () =>
    /replaced as primary in epoch 1 by http:\/\/heir/.test(String(await third.field('trouble'))),
  )
  await eventually(() => heir.said(/replaced primary acknowledged the promotion/), 'the acknowledgement is logged')
  const refused = { status: 400, message: /another cluster may be the primary already.*by http:\/\/heir.*"force"/ }
  await assert.rejects(third.replication.promote(UNFORCED), refused)
  await third.replication.updatePrimary({ bundle: await bundleFor(heir, 'third') })
  await heir.put('b')
  await untilSame(heir, third)
  // A peer that shows a higher epoch fences as well: both were promoted.
  await third.replication.promote({ primaryClusterAddr: '', force: false })
  await eventually(() => heir.store.role === 'fenced', 'the first heir is fenced in turn')
})

test('two secondaries are promoted at once: the one whose notice comes first is the primary, the other yields', async (t) => {
  const [old, first, second] = [await Site.start(t, 'old'), await Site.start(t, 'first'), await Site.start(t, 'second')]
  await activate(old, first)
  await activate(old, second)
  const { port } = old.replication.listening ?? { port: 0 }
  await old.close()
  await Promise.all([first, second].map(({ replication }) => replication.promote(UNFORCED)))
  assert.deepEqual([first.store.epoch, second.store.epoch], [1, 1])
  // Both accept writes until the replaced primary returns and connects them.
  await first.put('of/first')
  await second.put('of/second')
  await old.restart({ port })
  await eventually(() => [first, second].some(({ store }) => store.role === 'fenced'), 'one is fenced')
  await eventually(
    () => [first, second].every(({ replication }) => replication.pendingNotice === undefined),
    'both were notified',
  )
  const [winner, loser] = first.store.role === 'own' ? [first, second] : [second, first]
  assert.deepEqual([winner.store.role, loser.store.role, old.store.role], ['own', 'fenced', 'fenced'])
  assert.equal(await loser.field('replaced_by'), `http://${winner.name}`)
  assert.equal(await old.field('replaced_by'), `http://${winner.name}`)
  await winner.put('goes/on')
  await assert.rejects(async () => loser.put('too/late'), /fenced|primary/)
  // What it wrote is kept, although both wrote in the same epoch.
  await loser.replication.demote()
  await attach(winner, loser)
  await untilSame(winner, loser)
  const report = String(await loser.field('conflict_report'))
  const lines = readFileSync(report, 'utf8').trim().split('\n')
  assert.deepEqual(
    lines.map((line) => (JSON.parse(line) as { puts: string[] }).puts),
    [[`of/${loser.name}`]],
  )
  // From then on it is a secondary like any other: a long absence is no conflict.
  assert.equal(loser.text(`of/${loser.name}`), undefined)
})

test('of two promoted secondaries the one promoted later in the common history also reports commits that the other never had', async (t) => {
  const [old, early, late] = [await Site.start(t, 'old'), await Site.start(t, 'early'), await Site.start(t, 'late')]
  await activate(old, early)
  await activate(old, late)
  await early.close()
  await old.put('between/1')
  await old.put('between/2')
  await untilSame(old, late)
  await late.close()
  const { port } = old.replication.listening ?? { port: 0 }
  await old.close()
  // The notice of the incomplete one arrives first.
  await early.open()
  await early.replication.promote(UNFORCED)
  await old.restart({ port })
  await eventually(() => early.replication.pendingNotice === undefined, 'the old primary acknowledged the notice')
  await old.close()
  await late.open()
  await late.replication.promote(UNFORCED)
  await late.put('of/late')
  assert.deepEqual([early.store.epoch, late.store.epoch], [1, 1])
  await old.restart({ port })
  await eventually(() => late.replication.pendingNotice === undefined, 'the other one acknowledged the notice')
  assert.equal(late.store.role, 'fenced')
  await late.replication.demote()
  await attach(early, late)
  await untilSame(early, late)
  const lines = readFileSync(String(await late.field('conflict_report')), 'utf8')
    .trim()
    .split('\n')
  const puts = lines.flatMap((line) => (JSON.parse(line) as { puts: string[] }).puts)
  assert.deepEqual(
    puts.filter((path) => !path.startsWith('local/')),
    ['between/1', 'between/2', 'of/late'],
  )
})

test('of two promoted secondaries the one promoted earlier reports all its commits, also for sequences that the other has', async (t) => {
  const [old, early, late] = [await Site.start(t, 'old'), await Site.start(t, 'early'), await Site.start(t, 'late')]
  await activate(old, early)
  await activate(old, late)
  await early.close()
  await old.put('between/1')
  await old.put('between/2')
  await untilSame(old, late)
  await late.close()
  const { port } = old.replication.listening ?? { port: 0 }
  await old.close()
  // The notice of the complete one arrives first.
  await late.open()
  await late.replication.promote(UNFORCED)
  await old.restart({ port })
  await eventually(() => late.replication.pendingNotice === undefined, 'the old primary acknowledged the notice')
  await old.close()
  await early.open()
  await early.replication.promote(UNFORCED)
  await early.put('of/early')
  assert.ok(early.store.position().sequence <= late.store.position().sequence)
  await old.restart({ port })
  await eventually(() => early.replication.pendingNotice === undefined, 'the other one acknowledged the notice')
  assert.equal(early.store.role, 'fenced')
  await early.replication.demote()
  await attach(late, early)
  await untilSame(late, early)
  const lines = readFileSync(String(await early.field('conflict_report')), 'utf8')
    .trim()
    .split('\n')
  const puts = lines.flatMap((line) => (JSON.parse(line) as { puts: string[] }).puts)
  assert.deepEqual(
    puts.filter((path) => !path.startsWith('local/')),
    ['of/early'],
  )
})

test('a notice stays pending until its effect is done, and an error of the core does not prevent the fence', async (t) => {
  const [old, heir] = [await Site.start(t, 'old'), await Site.start(t, 'heir')]
  await activate(old, heir)
  const { port } = old.replication.listening ?? { port: 0 }
  await heir.replication.close()
  // A snapshot was restored: the primary has counted further than its secondary knows.
  await old.store.setRole('own', 3)
  await old.close()
  await heir.restart()
  await heir.replication.promote(UNFORCED)
  assert.equal(heir.store.epoch, 1)
  const setRole = heir.store.setRole.bind(heir.store)
  let failures = 0
  heir.store.setRole = async (role, epoch) => {
    if (epoch === 4 && ++failures <= 2) throw new Error('the disk is full')
    await setRole(role, epoch)
  }
  old.fencedFailure = new Error('the core does not close')
  await old.restart({ port })
  await eventually(() => failures > 0, 'the heir is to rise above the epoch of the old primary')
  assert.equal(await heir.field('fence_notice'), 'owed')
  await eventually(() => heir.replication.pendingNotice === undefined, 'it is sent again until that is done')
  assert.deepEqual([failures, heir.store.epoch, heir.store.role], [3, 4, 'own'])
  assert.equal(old.store.role, 'fenced')
  assert.equal(old.said(/closing the secrets core after a fence failed/)?.level, 'error')
  await heir.put('goes/on')
})

test('a primary that is killed between the two commits of fencing is fenced after its start', async (t) => {
  const [old, heir] = [await Site.start(t, 'old'), await Site.start(t, 'heir')]
  await activate(old, heir)
  const { port } = old.replication.listening ?? { port: 0 }
  const { store } = old
  const [setRole, commit] = [store.setRole.bind(store), store.commit.bind(store)]
  let steps = 0
  const step = async <T>(work: () => Promise<T>): Promise<T> => {
    if (++steps > 1) throw new Error('killed')
    return work()
  }
  store.setRole = (role, epoch) => (role === 'fenced' ? step(() => setRole(role, epoch)) : setRole(role, epoch))
  store.commit = (batch) => {
    const isDeposed = batch.puts.some(({ value }) => Buffer.from(value).includes('"deposed":{'))
    return isDeposed ? step(() => commit(batch)) : commit(batch)
  }
  await heir.replication.promote(UNFORCED)
  await eventually(() => steps > 1, 'the first of them is durable, the second is not')
  // Nothing tells it again.
  await heir.close()
  await old.restart({ port })
  assert.equal(old.store.role, 'fenced')
  await assert.rejects(async () => old.put('too/late'), /fenced|primary/)
  await heir.open()
  await eventually(() => heir.replication.pendingNotice === undefined, 'the notice was still owed, and is acknowledged')
  assert.equal(await old.field('replaced_by'), 'http://heir')
  assert.equal(old.store.role, 'fenced')
})

test('a promotion goes above the epoch that the primary announces, also without a commit in it', async (t) => {
  const [old, heir] = [await Site.start(t, 'old'), await Site.start(t, 'heir')]
  await activate(old, heir)
  const epoch = old.store.epoch + 3
  await old.store.setRole('own', epoch)
  await heir.restart()
  await eventually(() => heir.replication.metrics.secondary?.isConnected === true, 'it has received a heartbeat')
  assert.ok(heir.store.epoch < epoch, 'no row of that epoch was shipped')
  await heir.replication.promote(UNFORCED)
  assert.equal(heir.store.epoch, epoch + 1)
  await eventually(() => old.store.role === 'fenced', 'the replaced primary is fenced')
})

test('promote is refused without force before the initial sync is complete', async (t) => {
  const primary = await Site.start(t, 'primary', { settings: { bandwidthBytes: 2_000_000 } })
  await primary.putMany('many', 1500, 5000)
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  const heir = await Site.start(t, 'heir')
  await attach(primary, heir)
  await eventually(async () => (await heir.field('state')) === 'merkle-sync', 'it copies')
  assert.equal(await heir.field('mode'), 'bootstrapping')
  await assert.rejects(() => heir.replication.promote({ primaryClusterAddr: '', force: false }), {
    status: 400,
    message: /still catching up.*"force"/,
  })
  await eventually(
    () => heir.store.get('many/1') !== undefined || heir.store.paths('many/').length > 0,
    'a part is there',
  )
  await heir.restart()
  assert.equal(heir.replication.mode, 'secondary', 'and it goes on with what it has')
  await heir.replication.promote({ primaryClusterAddr: '', force: true })
  assert.equal(heir.replication.mode, 'primary')
  assert.ok(heir.store.isWhole)
  assert.ok(heir.said(/promotion forced/))
})

test('a promotion that is refused for its entries leaves a connected secondary, also with force', async (t) => {
  const [primary, heir] = [await Site.start(t, 'primary'), await Site.start(t, 'heir')]
  await activate(primary, heir)
  heir.refusal = new Error('not what the primary wrote')
  for (const force of [false, true]) {
    await assert.rejects(heir.replication.promote({ primaryClusterAddr: '', force }), /not what the primary wrote/)
    assert.deepEqual([heir.replication.mode, heir.store.role, heir.store.epoch], ['secondary', 'replica', 0])
    await primary.put(`behind/${force}`)
    await untilSame(primary, heir)
  }
  await heir.restart()
  assert.equal(heir.replication.mode, 'secondary')
  heir.refusal = undefined
  await heir.replication.promote(UNFORCED)
  assert.equal(heir.replication.mode, 'primary')
})

test('disable: a secondary keeps its data and accepts writes; a primary accepts no secondaries', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await primary.put('a')
  await activate(primary, secondary)
  await secondary.replication.disable()
  assert.deepEqual(await secondary.replication.status(), { mode: 'disabled' })
  await secondary.put('b')
  assert.equal(secondary.text('a'), 'a')
  await secondary.restart()
  await secondary.put('c')
  const set = await primary.field('cluster_id')
  await primary.replication.disable()
  await primary.put('d')
  await assert.rejects(() => primary.replication.disable(), { status: 400 })
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  assert.notEqual(await primary.field('cluster_id'), set)
})

test('update_primary_addrs: the first address that answers is used', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await activate(primary, secondary)
  const good = address(primary)
  await assert.rejects(() => secondary.replication.updatePrimary({ addresses: ['127.0.0.1:1', 'x'] }), {
    status: 400,
    message: /does not respond at any of the addresses.*127\.0\.0\.1:1.*malformed address "x"/,
  })
  await secondary.replication.updatePrimary({ addresses: ['127.0.0.1:1', `https://${good}`] })
  assert.equal(await secondary.field('primary_cluster_addr'), `https://${good}`)
  await primary.put('b')
  await untilSame(primary, secondary)
  await secondary.replication.updatePrimary({ forget: true })
  assert.equal(await secondary.field('state'), 'idle')
  assert.deepEqual(await secondary.field('primaries'), [])
  await assert.rejects(() => secondary.replication.updatePrimary({ addresses: [good] }), { status: 400 })
  const foreign = await Site.start(t, 'foreign')
  await foreign.replication.enablePrimary({ primaryClusterAddr: '' })
  await assert.rejects(async () => secondary.replication.updatePrimary({ bundle: await bundleFor(foreign, 'x') }), {
    status: 400,
    message: /another replication set: to join it/,
  })
})

const UNFORCED = { primaryClusterAddr: '', force: false }

/** What a demotion writes first. */
const CUT_DEMOTION = { mode: 'secondary', needsToken: true, upstream: undefined } as const

/** The state of a cluster that does not run meanwhile; then it runs again. */
async function withState(site: Site, use: (state: ReplicationState) => Promise<void>): Promise<ReplicationRecord> {
  await site.close()
  const store = await SqliteStore.open(site.store.path)
  const state = new ReplicationState(store)
  await use(state)
  await store.close()
  await site.open()
  return state.now
}

function address(site: Site): string {
  const { host, port } = site.replication.listening ?? { host: '', port: 0 }
  return `${host}:${port}`
}

function previousPort(heir: Site): { port: number } {
  const notice = heir.replication.pendingNotice
  return { port: Number(notice?.split(':').at(-1)) }
}
