/** The role is authenticated under the membership key; a kill between two steps of a change of role leaves a state that is accepted. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { eventually } from '../../helpers/eventually.ts'
import { activate, MEMBERSHIP_KEY, Site, untilSame } from '../../helpers/replication-site.ts'

/** What a kill at the nth change of the store's role leaves: `before` it was written, or behind it. */
function dieAtRole({ store }: Site, isBefore: boolean): void {
  const setRole = store.setRole.bind(store)
  store.setRole = async (role, epoch) => {
    if (!isBefore) await setRole(role, epoch)
    throw new Error('killed')
  }
}

async function restartSealed(site: Site): Promise<void> {
  site.membershipKey = undefined
  await site.restart()
  site.membershipKey = MEMBERSHIP_KEY
}

for (const isBefore of [true, false]) {
  const when = isBefore ? 'before' : 'behind'
  test(`a promotion that is killed ${when} the change of the role is finished once the cluster is unsealed`, async (t) => {
    const [primary, secondary] = await Promise.all([Site.start(t, 'a'), Site.start(t, 'b')])
    await activate(primary, secondary)
    dieAtRole(secondary, isBefore)
    await assert.rejects(secondary.replication.promote({ primaryClusterAddr: '', force: false }), /killed/)
    await restartSealed(secondary)
    assert.equal(secondary.replication.mode, 'secondary')
    await secondary.replication.unsealed()
    assert.equal(secondary.replication.mode, 'primary')
    assert.equal(secondary.store.epoch, 1)
    await secondary.put('goes/on')
  })

  test(`a demotion and a disable that are killed ${when} the change of the role leave a state that is accepted`, async (t) => {
    const [primary, secondary] = await Promise.all([Site.start(t, 'a'), Site.start(t, 'b')])
    await activate(primary, secondary)
    dieAtRole(primary, isBefore)
    await assert.rejects(primary.replication.demote(), /killed/)
    dieAtRole(secondary, isBefore)
    await assert.rejects(secondary.replication.disable(), /killed/)
    for (const site of [primary, secondary]) {
      await restartSealed(site)
      await site.replication.unsealed()
      assert.equal(site.replication.refusal, undefined)
    }
    assert.deepEqual([primary.replication.mode, secondary.replication.mode], ['secondary', 'disabled'])
  })
}

test('a sealed secondary that followed its primary into another epoch is accepted, and proves that epoch', async (t) => {
  const [primary, secondary] = await Promise.all([Site.start(t, 'a'), Site.start(t, 'b')])
  await activate(primary, secondary)
  await restartSealed(secondary)
  secondary.membershipKey = undefined
  await primary.store.setRole('own', 3)
  await primary.put('in/epoch/3')
  await untilSame(primary, secondary)
  assert.equal(secondary.store.epoch, 3)
  await restartSealed(secondary)
  await secondary.replication.unsealed()
  const isProven = () => secondary.text('local/replication/state')?.includes('"provenEpoch":3')
  await secondary.restart()
  await eventually(isProven, 'its primary has shown the epoch')
})

test('a secondary does not fence its primary by an epoch that the primary has never shown', async (t) => {
  const [primary, secondary] = await Promise.all([Site.start(t, 'a'), Site.start(t, 'b')])
  await activate(primary, secondary)
  await secondary.store.setRole('replica', 9)
  await secondary.replication.updatePrimary({ addresses: [primary.clusterAddress] })
  const hasSeen = async () => /in epoch 0, this cluster has seen epoch 9/.test(String(await secondary.field('trouble')))
  await eventually(hasSeen, 'the status of the secondary says so')
  assert.equal(primary.replication.fence, undefined)
  await primary.put('goes/on')
})
