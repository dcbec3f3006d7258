/** A demotion in favor of a secondary loses nothing, or does not happen. Addresses that secondaries cannot reach are named. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { apiAddressWarnings, clusterAddressWarnings } from '../../../src/dr/status.ts'
import { eventually } from '../../helpers/eventually.ts'
import { activate, Site, untilSame } from '../../helpers/replication-site.ts'

test('a demotion in favor of a secondary that lacks commits is refused and the primary continues', async (t) => {
  const timings = { handoverMs: 50 }
  const [primary, secondary] = [await Site.start(t, 'primary', { timings }), await Site.start(t, 'secondary')]
  await activate(primary, secondary)
  const unknown = { status: 409, message: /the secondary "other" cannot take over: it is not connected/ }
  await assert.rejects(() => primary.replication.demote({ secondaryId: 'other' }), unknown)
  secondary.membershipKey = undefined
  await primary.put('unproven')
  await eventually(async () => (await row(primary))['authenticated'] === false, 'acknowledgements come without a proof')
  const sealed = { status: 409, message: /it is sealed; nothing has changed/ }
  await assert.rejects(() => primary.replication.demote({ secondaryId: 'secondary' }), sealed)
  assert.deepEqual(primary.transitions, [])
  secondary.membershipKey = 'the key of the set'
  await primary.put('proven')
  await eventually(async () => (await row(primary))['authenticated'] === true, 'proofs come again')

  // It is sealed at the moment of the demotion, so its last acknowledgement carries no proof.
  secondary.membershipKey = undefined
  const last = primary.put('last')
  const refused = { status: 503, message: /lacks \d+ commits after 0.05 s: this cluster is still the primary/ }
  await Promise.all([last, assert.rejects(() => primary.replication.demote({ secondaryId: 'secondary' }), refused)])
  assert.deepEqual(primary.transitions, ['toSecondary', 'toPrimary'])
  assert.deepEqual([primary.replication.mode, primary.store.role], ['primary', 'own'])
  await primary.put('goes/on')
  await untilSame(primary, secondary)
})

test('the secondary of a demotion has every acknowledged commit', async (t) => {
  const [primary, secondary] = [await Site.start(t, 'primary'), await Site.start(t, 'secondary')]
  await activate(primary, secondary)
  const acknowledged: string[] = []
  const writers = [0, 1, 2].map(async (writer) => {
    for (let at = 0; ; at++) {
      try {
        await primary.put(`${writer}/${at}`)
      } catch {
        return
      }
      acknowledged.push(`${writer}/${at}`)
    }
  })
  await eventually(() => acknowledged.length > 100, 'writes go on')
  await primary.replication.demote({ secondaryId: 'secondary' })
  await Promise.all(writers)
  assert.equal(secondary.store.position().sequence, primary.store.position().sequence)
  for (const path of acknowledged) assert.equal(secondary.text(path), path)
  await secondary.replication.promote({ primaryClusterAddr: '', force: false })
  assert.equal(secondary.replication.mode, 'primary')
})

test('warns about cluster addresses that a secondary on another host cannot reach', () => {
  for (const address of ['127.0.0.1:4647', 'localhost:4647', '[::1]:4647', 'https://127.1.2.3:1']) {
    assert.match(warnings(address), /is on loopback and .*: set addresses\.cluster \(or bind_addr\)/, address)
  }
  for (const address of ['0.0.0.0:4647', '[::]:4647'])
    assert.match(warnings(address), /set advertise\.cluster/, address)
  assert.match(warnings('localhost:1', '10.0.0.1', 'localhost:1'), /it was set with primary_cluster_addr: enable/)
  assert.match(warnings('a.example:4647', '127.0.0.1'), /listens on 127\.0\.0\.1 only, .* through a proxy/)
  for (const address of ['10.0.0.1:4647', 'a.example:4647', '[2001:db8::1]:4647']) assert.equal(warnings(address), '')
})

function warnings(announced: string, listen = '10.0.0.1', given = ''): string {
  return clusterAddressWarnings(announced, given, listen).join()
}

async function row(primary: Site): Promise<Readonly<Record<string, unknown>>> {
  const rows = await primary.field('secondaries')
  assert.ok(Array.isArray(rows))
  return rows[0] as Readonly<Record<string, unknown>>
}

test('a wildcard API address, which secondaries cannot use, is a warning', () => {
  for (const address of ['https://0.0.0.0:4646', 'http://[::]:4646']) {
    assert.match(apiAddressWarnings(address).join(), /API address http\S+ is a wildcard.*advertise\.http/, address)
  }
  assert.deepEqual(apiAddressWarnings('https://h1.example.com:4646'), [])
})
