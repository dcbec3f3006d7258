/** A secondary follows the log of its primary. */
import assert from 'node:assert/strict'
import { cpSync, rmSync } from 'node:fs'
import { test } from 'node:test'
import { eventually } from '../helpers/eventually.ts'
import { activate, Site, untilSame } from '../helpers/replication-site.ts'
import { temporaryDirectory } from '../helpers/temporary-directory.ts'

test('a secondary copies its primary, then follows its log', async (t) => {
  const [primary, secondary] = await Promise.all([Site.start(t, 'one'), Site.start(t, 'two')])
  await primary.putMany('before', 300)
  await secondary.put('old/data')
  await activate(primary, secondary)
  assert.equal(secondary.text('old/data'), undefined, 'what the secondary had is gone')
  assert.deepEqual(secondary.transitions, ['toSecondary', 'wiped'])
  await primary.put('after/one', 'value')
  await primary.store.commit({ puts: [], deletes: ['before/7'] })
  await untilSame(primary, secondary)
  assert.equal(secondary.text('after/one'), 'value')
  assert.equal(secondary.text('before/7'), undefined)
  await eventually(async () => (await secondary.field('state')) === 'stream-wals', 'it streams')
  await assert.rejects(async () => secondary.put('of/its/own'), /replica|secondary/)
  const status = await eventually(async () => {
    const now = await primary.replication.status()
    return now['lag_entries'] === 0 && now
  })
  assert.deepEqual(status['known_secondaries'], ['two'])
})

/** As the status of a secondary tells it, or that of a primary of its secondary. */
async function lagOf(site: Site): Promise<{ readonly entries: number; readonly seconds: number }> {
  const { lag_entries: entries, lag_seconds: seconds, secondaries } = await site.replication.status()
  const [row] = Array.isArray(secondaries) ? secondaries : []
  return { entries: Number(entries), seconds: Number(row ? row.lag_seconds : seconds) }
}

async function hasNoLag(site: Site): Promise<boolean> {
  const { entries, seconds } = await lagOf(site)
  return entries === 0 && seconds === 0
}

test('the lag grows while the primary is silent, includes received rows that are not applied, and ends when all are applied', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'one'), await Site.start(t, 'two')]
  await activate(primary, secondary)
  const { port } = primary.replication.listening ?? { port: 0 }
  await eventually(async () => (await hasNoLag(secondary)) && (await hasNoLag(primary)), 'neither sees a lag')

  await t.test('while rows wait to be applied both sides count them, although heartbeats arrive', async () => {
    const apply = secondary.store.applyRows.bind(secondary.store)
    const { promise: held, resolve: goOn } = Promise.withResolvers<void>()
    secondary.store.applyRows = async (rows) => {
      await held
      return apply(rows)
    }
    await primary.putMany('behind', 20)
    for (const site of [primary, secondary]) {
      await eventually(
        async () => (await lagOf(site)).entries === 20 && (await lagOf(site)).seconds > 0.2,
        `${site.name} counts`,
      )
    }
    goOn()
    for (const site of [primary, secondary]) await eventually(() => hasNoLag(site), `${site.name} has caught up`)
  })

  await t.test('the lag grows while the primary is silent although nothing is known to be missing', async () => {
    await primary.close()
    await eventually(async () => (await lagOf(secondary)).seconds > 0.2, 'it grows')
    const first = await lagOf(secondary)
    assert.equal(first.entries, 0)
    await eventually(async () => (await lagOf(secondary)).seconds > first.seconds, 'and goes on growing')
    await primary.restart({ port })
    await primary.put('after/silence')
    await untilSame(primary, secondary)
    for (const site of [primary, secondary]) await eventually(() => hasNoLag(site), `${site.name} has caught up`)
  })

  await t.test('the lag is unknown before the first message of the primary', async () => {
    await primary.close()
    await secondary.restart()
    assert.deepEqual([await secondary.field('lag_entries'), await secondary.field('lag_seconds')], [null, null])
  })
})

test('a secondary does not replicate from a primary of an older epoch and keeps its data', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'one'), await Site.start(t, 'two')]
  await activate(primary, secondary)
  const { port } = primary.replication.listening ?? { port: 0 }
  await primary.close()
  const before = `${temporaryDirectory(t)}/before`
  cpSync(primary.directory, before, { recursive: true })
  await primary.restart({ port })
  await primary.store.setRole('own', 1)
  await primary.put('of/epoch/1')
  await untilSame(primary, secondary)
  assert.equal(secondary.store.epoch, 1)
  // The disk of the primary is put back to where it was before.
  await primary.close()
  rmSync(primary.directory, { recursive: true })
  cpSync(before, primary.directory, { recursive: true })
  await primary.restart({ port })
  await primary.put('of/epoch/0')
  const reason = 'the primary is in epoch 0, this cluster has seen epoch 1'
  await eventually(async () => String(await secondary.field('trouble')).includes(reason), 'it says why')
  assert.deepEqual([secondary.text('of/epoch/1'), secondary.text('of/epoch/0')], ['of/epoch/1', undefined])
  assert.equal(primary.store.role, 'own', 'an epoch that was not proven fences no primary')
})
