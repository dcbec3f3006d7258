/** A secondary follows the log of its primary. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventually } from '../helpers/eventually.ts'
import { activate, Site, untilSame } from '../helpers/replication-site.ts'

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
