/** How a cluster becomes a secondary, and what is refused; a refusal leaves its data as it was. */
import assert from 'node:assert/strict'
import { randomUUID } from 'node:crypto'
import { test } from 'node:test'
import { openBundle, sealBundle, makeSealingKeys, type Bundle } from '../../../src/dr/link/bundle.ts'
import { makeAuthority, makeIdentity, type Upstream } from '../../../src/dr/link/certificates.ts'
import { LinkClient } from '../../../src/dr/link/link.ts'
import { parseBundle } from '../../../src/dr/replication.ts'
import { activate, bundleFor, Site, untilSame } from '../../helpers/replication-site.ts'
import { eventually } from '../../helpers/eventually.ts'

/** Of `bundleFor`. */
const TTL_MS = 60_000

test('activation', async (t) => {
  let nowMs = Date.now()
  const primary = await Site.start(t, 'primary', { version: '1.2.0', now: () => nowMs })
  const other = await Site.start(t, 'other', { version: '1.2.0' })
  const fresh = await Site.start(t, 'fresh', { version: '1.2.0' })
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  await other.replication.enablePrimary({ primaryClusterAddr: '' })
  await primary.put('a')
  await fresh.put('mine', 'kept')

  const refused = async (bundle: Bundle, pattern: RegExp) => {
    await assert.rejects(() => fresh.replication.enableSecondary(bundle), { status: 400, message: pattern })
    assert.equal(fresh.replication.mode, 'disabled')
    assert.equal(fresh.text('mine'), 'kept', 'nothing was wiped')
    assert.equal(fresh.store.role, 'own')
    assert.deepEqual(await fresh.replication.status(), { mode: 'disabled' })
  }

  await t.test('an expired token is refused', async () => {
    const bundle = await bundleFor(primary, 'late', 1000)
    nowMs += 2000
    await refused(bundle, /expired/)
    nowMs -= 2000
  })

  await t.test('a token that was revoked before it was used is refused', async () => {
    const bundle = await bundleFor(primary, 'revoked')
    await primary.replication.revokeSecondary('revoked')
    await refused(bundle, /revoked/)
    await assert.rejects(() => primary.replication.revokeSecondary('revoked'), {
      status: 400,
      message: /no secondary with ID/,
    })
  })

  await t.test('of two tokens for one ID only the newer one counts', async () => {
    const older = await bundleFor(primary, 'twice')
    await bundleFor(primary, 'twice')
    await refused(older, /replaced by a newer activation/)
  })

  await t.test('a token is refused for another ID', async () => {
    const [one, two] = [await bundleFor(primary, 'one'), await bundleFor(primary, 'two')]
    await refused({ ...one, nonce: two.nonce }, /newer activation was issued for this ID/)
  })

  await t.test('a certificate of a foreign authority is refused, and so is a foreign primary', async () => {
    const bundle = await bundleFor(primary, 'foreign')
    const authority = await makeAuthority(bundle.set_id, Date.now())
    const identity = await makeIdentity(authority, 'client', bundle.set_id, Date.now())
    await refused({ ...bundle, client_cert: identity.certificate, client_key: identity.key }, /refused this cluster/)
    await refused({ ...bundle, ca_cert: authority.certificate }, /certificate is from another replication set/)
    await refused({ ...bundle, cluster_addr: other.clusterAddress }, /certificate is from another replication set/)
  })

  await t.test('a certificate of a secondary does not make a primary', async () => {
    const bundle = await bundleFor(primary, 'posing')
    await refused({ ...bundle, set_id: randomUUID() }, /certificate is from another replication set/)
  })

  await t.test('a refused connection is reported', async () => {
    await refused(
      { ...(await bundleFor(primary, 'lost')), cluster_addr: '127.0.0.1:1' },
      /no response at 127\.0\.0\.1:1: connection refused, the primary is down/,
    )
    await refused({ ...(await bundleFor(primary, 'lost')), cluster_addr: 'nonsense' }, /malformed address "nonsense"/)
  })

  await t.test('a secondary that is older than the primary is refused', async () => {
    await fresh.restart({ version: '1.1.9' })
    await refused(await bundleFor(primary, 'older'), /upgrade the secondary first/)
    await fresh.restart({ version: '1.3.0' })
  })

  await t.test('clocks that differ by more than five minutes are refused', async () => {
    const bundle = await bundleFor(primary, 'skewed')
    nowMs -= 400_000
    await refused(bundle, /clocks .* differ by \d+ s/)
    nowMs += 400_000
  })

  await t.test('malformed tokens are refused', () => {
    for (const token of ['', 'x', '{}', '{"version":2}', '[]', 'null']) {
      assert.throws(() => parseBundle(token), { status: 400, message: /contains no activation of a secondary/ })
    }
    // The ID of the set is a part of the names of conflict reports.
    const elsewhere = { ...openable(), set_id: '../../elsewhere' }
    assert.throws(() => parseBundle(elsewhere), { status: 400, message: /contains no activation of a secondary/ })
    assert.doesNotThrow(() => parseBundle(openable()))
  })

  await t.test('an active ID is not issued again until it is revoked', async () => {
    await activate(primary, fresh)
    await assert.rejects(() => bundleFor(primary, 'fresh'), { status: 400, message: /already exists; revoke it first/ })
    await assert.rejects(() => fresh.replication.enableSecondary({} as Bundle), {
      status: 400,
      message: /already enabled/,
    })
    await assert.rejects(() => primary.replication.promote({ primaryClusterAddr: '', force: true }), {
      status: 400,
      message: /Not a DR secondary\./,
    })
    await assert.rejects(() => fresh.replication.demote(), { status: 400, message: /Not a DR primary\./ })
  })

  /** The state of a secondary, with the certificate that it had. */
  let revoked: string | undefined
  await t.test('revoke disconnects a secondary at once and permanently', async () => {
    revoked = fresh.text('local/replication/state')
    await primary.replication.revokeSecondary('fresh')
    await primary.put('after/revoke')
    await eventually(async () => /revoked/.test(String(await fresh.field('trouble'))), 'the secondary says why')
    assert.equal(fresh.text('after/revoke'), undefined)
    assert.deepEqual(await primary.field('secondaries'), [])
    await assert.rejects(() => fresh.replication.updatePrimary({ addresses: [primary.clusterAddress] }), {
      status: 400,
      message: /revoked/,
    })
  })

  await t.test('a revoked certificate is replaced by a new activation, and nothing is copied', async () => {
    fresh.lines.length = 0
    await fresh.replication.updatePrimary({ bundle: await bundleFor(primary, 'fresh') })
    await untilSame(primary, fresh)
    assert.equal(fresh.text('after/revoke'), 'after/revoke')
    assert.equal(fresh.said(/Merkle sync complete/), undefined, 'the log went on')
    await fresh.restart()
    await primary.put('after/restart')
    await untilSame(primary, fresh)
  })

  await t.test('a secondary that has joined reconnects after its activation has expired', async () => {
    nowMs += 2 * TTL_MS
    await fresh.restart()
    await primary.put('after/expiry')
    await untilSame(primary, fresh)
    nowMs -= 2 * TTL_MS
  })

  await t.test('a replaced certificate is refused', async () => {
    const { upstream: before } = JSON.parse(String(revoked)) as { upstream: Upstream }
    const link = await LinkClient.connect(before, primary.clusterAddress, 20_000)
    t.after(() => link.close())
    await assert.rejects(() => link.call('Pages', {}, 20_000), { reason: 'revoked' })
  })
})

test('only its key opens a sealed token', async (t) => {
  const [primary, fresh] = [await Site.start(t, 'primary'), await Site.start(t, 'fresh')]
  await primary.replication.enablePrimary({ primaryClusterAddr: '' })
  await assert.rejects(() => fresh.replication.openSealedBundle('dr1.AAAA'), {
    status: 400,
    message: /has generated none/,
  })
  const publicKey = await fresh.replication.generatePublicKey()
  const issued = await primary.replication.issueSecondary({ id: 'fresh', ttlMs: 60_000, publicKey })
  assert.ok('sealed' in issued)
  assert.match(issued.sealed, /^dr1\.[\w-]+$/)
  await assert.rejects(() => fresh.replication.openSealedBundle(issued.sealed.slice(0, -8)), { status: 400 })
  await assert.rejects(() => primary.replication.issueSecondary({ id: 'y', ttlMs: 1, publicKey: 'drk1.abc' }), {
    status: 400,
    message: /secondary_public_key/,
  })
  await fresh.restart()
  await fresh.replication.enableSecondary(await fresh.replication.openSealedBundle(issued.sealed))
  await untilSame(primary, fresh)
  const bundle = openable()
  const keys = makeSealingKeys()
  const sealed = sealBundle(bundle, keys.publicKey)
  assert.deepEqual(openBundle(sealed, keys.privateKey), bundle)
  assert.throws(() => openBundle(sealed, makeSealingKeys().privateKey), {
    status: 400,
    message: /not sealed to the latest/,
  })
})

function openable(): Bundle {
  const text = {
    set_id: randomUUID(),
    id: 'i',
    cluster_addr: 'h:1',
    api_addr: '',
    ca_cert: 'c',
    client_cert: 'd',
    client_key: 'k',
  }
  return { version: 1, ...text, expires_at_ms: 1, nonce: 'n' }
}
