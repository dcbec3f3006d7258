/** Renewals of the lease whose acknowledgement is lost, or that are not stored. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { TIMINGS } from '../../src/cluster/nats/timings.ts'
import { ActiveLease, type LeaseHolder } from '../../src/ha/lease/lease.ts'

/** The bucket's entry, changed by compare-and-set. */
class EntryWithFaults {
  holder: LeaseHolder | undefined
  revision = 0
  fault: 'not stored' | 'not acknowledged' | undefined
  /** Called when an entry has been stored, before that is acknowledged. */
  onStored: () => void = () => undefined

  async readHolder() {
    return { holder: this.holder, revision: this.revision }
  }

  async writeHolder(holder: LeaseHolder, revision: number): Promise<number> {
    const { fault } = this
    this.fault = undefined
    if (fault === 'not stored') throw new Error('timeout')
    if (revision !== this.revision) throw new Error('wrong last sequence')
    this.holder = holder
    this.revision++
    this.onStored()
    if (fault === 'not acknowledged') throw new Error('timeout')
    return this.revision
  }
}

function leaseOf(name: string, bucket: EntryWithFaults, clock: { readonly nowMs: number }): ActiveLease {
  const self = { serverId: `run-of-${name}`, name, apiAddress: '', clusterAddress: '' }
  return new ActiveLease({
    bucket,
    self: () => self,
    nowMs: () => clock.nowMs,
    wallMs: () => 0,
    coreMs: () => 0,
  })
}

async function heldLease() {
  const bucket = new EntryWithFaults()
  const clock = { nowMs: 1000 }
  const lease = leaseOf('a', bucket, clock)
  await lease.poll()
  bucket.revision = 1
  await lease.poll()
  assert.equal(await lease.acquire(), true)
  assert.equal(await lease.renew(), true)
  return { bucket, clock, lease }
}

test('a renewal after one whose acknowledgement was lost renews the lease', async () => {
  const { bucket, clock, lease } = await heldLease()
  bucket.fault = 'not acknowledged'
  clock.nowMs += TIMINGS.haLeaseMs - 1
  assert.equal(await lease.renew(), true)
  clock.nowMs += TIMINGS.haLeaseMs - 1
  assert.deepEqual([lease.isValid, await lease.renew()], [true, true])
})

test('a renewal that was not stored rejects, and does not extend the lease', async () => {
  const { bucket, clock, lease } = await heldLease()
  bucket.fault = 'not stored'
  clock.nowMs += TIMINGS.haLeaseMs - 1
  await assert.rejects(() => lease.renew(), /timeout/)
  clock.nowMs += 1
  assert.equal(lease.isValid, false)
  assert.equal(await lease.renew(), true)
  assert.equal(lease.isValid, true)
})

test('a renewal of a lease that another server has acquired ends the term', async () => {
  const { bucket, lease } = await heldLease()
  bucket.holder = bucket.holder && { ...bucket.holder, serverId: 'run-of-b' }
  bucket.revision++
  assert.deepEqual([await lease.renew(), lease.term, lease.isValid], [false, 0, false])
})

test('an abandoned lease is not renewed, and can be acquired again once it has expired', async () => {
  const { clock, lease } = await heldLease()
  lease.abandon()
  assert.deepEqual([lease.term, lease.isValid, await lease.renew()], [0, false, false])
  assert.equal(lease.mayAcquire(0), false)
  clock.nowMs += TIMINGS.haLeaseMs + TIMINGS.haLeaseMarginMs
  assert.equal(lease.mayAcquire(0), true)
  assert.equal(await lease.acquire(), true)
})

test('a lease is valid from the moment at which its acquisition or renewal was sent', async () => {
  const { bucket, clock, lease } = await heldLease()
  const other = leaseOf('b', bucket, clock)
  await lease.release()
  await other.poll()
  bucket.onStored = () => (clock.nowMs += 500)
  for (const change of [() => other.acquire(), () => other.renew()]) {
    assert.equal(await change(), true)
    clock.nowMs += TIMINGS.haLeaseMs - 501
    assert.equal(other.isValid, true)
    clock.nowMs += 1
    assert.equal(other.isValid, false)
  }
})

test('another server may acquire a lease once it has expired by the clocks of both, and a released one at once', async () => {
  const { bucket, clock, lease } = await heldLease()
  const other = leaseOf('b', bucket, clock)
  await other.poll()
  clock.nowMs += TIMINGS.haLeaseMs + TIMINGS.haLeaseMarginMs - 1
  assert.deepEqual([lease.isValid, other.mayAcquire(0)], [false, false])
  clock.nowMs += 1
  assert.equal(other.mayAcquire(0), true)
  assert.equal(await lease.renew(), true)
  await other.poll()
  assert.equal(other.mayAcquire(0), false)
  await lease.release()
  await other.poll()
  assert.deepEqual([other.mayAcquire(0), other.mayAcquire(1)], [true, false])
})
